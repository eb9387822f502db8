"""The first page: problems first, then activity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strandline.journal.checks import RESERVED_ENTITY_TYPES
from strandline.journal.status import Status
from strandline.server.console.acts_record import recent_acts
from strandline.server.console.desk import ConsoleDesk, Found, PageQuery
from strandline.server.console.drawing import line
from strandline.server.console.history import StatusSample, rates, span_of
from strandline.server.console.texts import number, seconds
from strandline.server.console.troubles import troubles

CHARTS = (
    ("recorded", "Recorded", "actions a second"),
    ("carried", "Carried", "actions a second"),
    ("lag_s", "Oldest not carried", ""),
    ("projections", "Slowest projection", ""),
)


def overview(desk: ConsoleDesk, given: PageQuery) -> Found:
    """Return the values of the first page."""
    status, samples = desk.history.status(), desk.history.samples()
    rows = {section.name: section.rows for section in status.sections}
    return {
        "troubles": troubles(status),
        "status": status,
        "log": _log(status, samples),
        "lags": _lags(status),
        "projections": rows.get("projections", ()),
        "streams": rows.get("streams", ()),
        "work": rows.get("work", ()),
        "charts": [_chart(samples, *chart) for chart in CHARTS],
        "entity_types": [name for name in desk.s.journal.entity_types() if name not in RESERVED_ENTITY_TYPES],
        "acts": recent_acts(desk.s, limit=5) if given.admin else [],
    }


def _log(status: Status, samples: Sequence[StatusSample]) -> dict[str, Any]:
    recent = list(samples[-4:])
    recorded, carried = rates(recent, "recorded"), rates(recent, "carried")
    return {
        "recorded": sum(one.newest + 1 for one in status.partitions),
        "carried": sum(one.pointer + 1 for one in status.partitions),
        "waiting": sum(one.lag_actions for one in status.partitions),
        "oldest_s": max(one.lag_s for one in status.partitions),
        "recorded_rate": sum(one.value for one in recorded) / len(recorded) if recorded else 0.0,
        "carried_rate": sum(one.value for one in carried) / len(carried) if carried else 0.0,
    }


def _lags(status: Status) -> list[dict[str, Any]]:
    """Return a bar for each partition: its lag as a share of the largest one."""
    most = max((one.lag_actions for one in status.partitions), default=0) or 1
    return [
        {"partition": one.partition, "lag": one.lag_actions, "lag_s": one.lag_s, "share": one.lag_actions / most,
         "failed": one.last_error is not None, "pointer": one.pointer, "newest": one.newest}
        for one in status.partitions
    ]  # fmt: skip


def _chart(samples: Sequence[StatusSample], what: str, title: str, unit: str) -> dict[str, Any]:
    if what == "lag_s":
        values = [(one.at, one.lag_s) for one in samples]
    elif what == "projections":
        values = [(one.at, max((lag or 0.0 for lag in one.projections.values()), default=0.0)) for one in samples]
    else:
        values = [(one.at, one.value) for one in rates(list(samples), what)]
    told = number if unit else seconds
    newest, most = (values[-1][1], max(value for _, value in values)) if values else (0.0, 0.0)
    span_s, span = span_of(samples)
    label = f"{title}, {span}: now {told(newest)}, at most {told(most)}"
    return {
        "title": title, "unit": unit, "now": told(newest), "most": told(most), "some": len(values) > 1,
        "picture": line(values, span_s, label), "span": span,
    }  # fmt: skip
