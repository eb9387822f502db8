"""The state of a journal at each scrape: the figures of `status`, as gauges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from strandline.errors import StrandlineError
from strandline.journal.status import Status, StatusSection

if TYPE_CHECKING:
    from strandline.connect import Strandline

SECTIONS: Final[Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]]] = {
    "projections": (
        ("name", "generation"),
        {
            "behind_store_s": "Seconds from its position to the newest event that it may have; not before its start",
            "ranges": "Ranges of a projection",
            "failed": "Ranges that have failed",
            "parked": "Keys that are parked",
            "dead_letters": "Events that were not handled",
        },
    ),
    "streams": (
        ("stream",),
        {
            "queued": "Groups that wait, or run",
            "open": "Groups that are not over, before all those",
            "rollback_failed": "Groups that wait for an operator",
        },
    ),
    "work": (
        ("journal",),
        {
            "due": "Entries that are due",
            "later": "Entries that are due later",
            "behind": "Entries that wait behind another one of their key",
            "running": "Entries that are claimed",
            "dead": "Dead letters",
            "unacknowledged": "Dead letters that nobody has acknowledged",
            "oldest_due_s": "Seconds that the oldest entry has been due",
            "tables": "Short-lived tables",
        },
    ),
}
"""By section of a status: the columns that name its rows, and the columns that are gauges."""
PREFIX: Final = {"projections": "projection", "streams": "group", "work": "work"}


class Gauges(Collector):
    """Reads the state of a journal at each scrape. If it cannot, the only figure is `strandline_up 0`."""

    def __init__(self, s: Strandline) -> None:
        self._s = s

    def describe(self) -> list[Metric]:
        """Return no metrics: a registry need not look at the journal to know them."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the figures of the journal's present state."""
        try:
            status = self._s.status()
        except StrandlineError:
            status = None
        yield _gauge("up", "Whether log and store could be looked at", status is not None)
        if status is not None:
            yield from _of_status(status)
            for section in status.sections:
                yield from _of_section(section)


def _gauge(name: str, says: str, value: float) -> Metric:
    return GaugeMetricFamily(f"strandline_{name}", says, value=value)


def _of_status(status: Status) -> Iterator[Metric]:
    lag = GaugeMetricFamily("strandline_lag_actions", "Actions not carried yet", labels=["partition"])
    waits = GaugeMetricFamily("strandline_lag_seconds", "Age of the oldest of them", labels=["partition"])
    failed = GaugeMetricFamily("strandline_partition_failed", "Whether its range fails", labels=["partition"])
    for one in status.partitions:
        labels = [str(one.partition)]
        lag.add_metric(labels, one.lag_actions)
        waits.add_metric(labels, one.lag_s)
        failed.add_metric(labels, one.last_error is not None)
    yield from (lag, waits, failed)
    if status.strandline_age_s is not None:
        yield _gauge("age_seconds", "Age of the strandline", status.strandline_age_s)
    yield _gauge("pipeline_running", "Whether somebody holds the pipeline's lease", status.lease_holder is not None)
    yield _gauge("quarantined", "Records in the quarantine, up to 1000", status.quarantined)


def _of_section(section: StatusSection) -> Iterator[Metric]:
    named, columns = SECTIONS.get(section.name, ((), {}))
    for column, says in columns.items():
        name = f"{PREFIX[section.name]}_{column.removesuffix('_s')}{'_seconds' if column.endswith('_s') else ''}"
        gauge = GaugeMetricFamily(f"strandline_{name}", says, labels=list(named))
        for row in section.rows:
            value: Any = row[column]
            if value is not None:
                gauge.add_metric([str(row[label]) for label in named], value)
        yield gauge
