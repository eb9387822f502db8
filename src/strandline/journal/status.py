"""Status: how far the store is behind the log, who carries, and what an operator should look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from strandline.errors import NotFound, StrandlineError, counted
from strandline.log.api import Log
from strandline.log.refusals import trimmed_away
from strandline.record import is_mark
from strandline.rows import Pointer
from strandline.settings import Settings
from strandline.store.api import Store
from strandline.store.scans import quarantined

QUARANTINE_COUNT_MAX = 1000
LAG_LOOKED_AT_MAX = 1000


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The status of a partition: its pointer, and where its log begins and ends."""

    partition: int
    pointer: int
    timestamp: int
    """The pointer's timestamp."""
    newest: int
    oldest_kept: int
    lag_actions: int
    """How many actions are not in the store: up to 1000 are looked at and Marks are not counted; above that all
    count."""
    lag_s: float
    """The age of the oldest of these actions."""
    last_error: str | None = None
    """Why the partition's range failed, as the pipeline reported; None once it is carried."""
    lost: tuple[int, int] | None = None
    """The first and the last offset that the log forgot before they were carried."""


@dataclass(frozen=True, slots=True)
class StatusSection:
    """The status of a part beside log and store: a row of values for each thing that it has."""

    name: str
    """The name of the part, such as work."""
    summary: str
    rows: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    error: StrandlineError | None = None
    """Why the part's status could not be read."""


@dataclass(frozen=True, slots=True)
class Status:
    """A log and its store at one moment."""

    partitions: tuple[PartitionStatus, ...]
    strandline: int
    strandline_age_s: float | None
    """None while a partition was never replicated."""
    lease_holder: str | None
    lease_since: int | None
    quarantined: int
    """How many records are quarantined; counted up to 1000."""
    durability: str
    """"full", or "relaxed" where a power cut may lose acknowledged appends."""
    warnings: tuple[str, ...]
    sections: tuple[StatusSection, ...] = ()
    """The status of other parts, where there are any."""

    @property
    def up_to_date(self) -> bool:
        """Return whether no action waits to be carried, and none was lost before it was carried."""
        return not any(partition.lag_actions or partition.lost for partition in self.partitions)

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON values; of each section its rows, under its name."""
        found = asdict(replace(self, sections=()))
        del found["sections"]
        return found | {section.name: [dict(row) for row in section.rows] for section in self.sections}

    def and_parts(self, parts: Mapping[str, Callable[[], StatusSection | None]]) -> Status:
        """Return the status with these sections. A section whose part cannot be read has the error; the others are
        shown."""
        sections = tuple(section for name, look in parts.items() if (section := _section(name, look)) is not None)
        return replace(
            self,
            sections=(*self.sections, *sections),
            warnings=(*self.warnings, *(warning for section in sections for warning in section.warnings)),
        )


def _section(name: str, look: Callable[[], StatusSection | None]) -> StatusSection | None:
    try:
        return look()
    except StrandlineError as error:
        return StatusSection(name, error.message, warnings=(f"{name}: {error.message}",), error=error)


def strandline_of(pointers: list[Pointer]) -> int:
    """Return the least timestamp over all pointers: everything recorded up to it is in the store. 0 if one has none."""
    return min(pointer.timestamp for pointer in pointers)


def status_of(log: Log, store: Store, settings: Settings, now: int) -> Status:
    """Return the status of a log and a store, while a pipeline may carry and trim. The log's begin is read before the
    pointers, so that nothing is called lost that was carried since. Its end is read after them, so that no lag is shown
    as less than it is.
    """
    oldest, pointers, newest = log.oldest(), store.pointers(), log.newest()
    errors = store.lease().reported()
    partitions = tuple(
        _partition(
            log, pointer, newest[pointer.partition], oldest[pointer.partition], now, errors.get(pointer.partition)
        )
        for pointer in pointers
    )
    strandline = strandline_of(pointers)
    holder, since = store.lease().holder() or (None, None)
    listed = len(quarantined(store, limit=QUARANTINE_COUNT_MAX))
    return Status(
        partitions,
        strandline,
        _seconds(now - strandline) if strandline else None,
        holder,
        since,
        listed,
        "relaxed" if settings.accept_power_loss else "full",
        tuple(_warnings(partitions, settings, listed)),
    )


def _partition(log: Log, pointer: Pointer, newest: int, oldest: int, now: int, error: str | None) -> PartitionStatus:
    before = max(pointer.offset, oldest - 1)
    lost = (pointer.offset + 1, before) if before > pointer.offset else None
    lag, waits_since = max(0, newest - before), None
    if lag:
        lag, waits_since = _waiting(log, pointer.partition, before, newest, lag)
    lag_s = 0.0 if waits_since is None else _seconds(now - waits_since)
    return PartitionStatus(
        pointer.partition, pointer.offset, pointer.timestamp, newest, oldest, lag, lag_s, error, lost
    )


def _waiting(log: Log, partition: int, after: int, newest: int, lag: int) -> tuple[int, int | None]:
    """Return how many actions wait to be carried, and since when. Marks do not: a read on Kafka leaves one behind."""
    few = lag <= LAG_LOOKED_AT_MAX
    try:
        page = log.read(partition, after=after, to=newest, limit=LAG_LOOKED_AT_MAX if few else 1, values=False)
    except NotFound:  # trimmed by now
        return lag, None
    waiting = [record for record in page.records if record.header is None or not is_mark(record.header)]
    if few and page.position > newest:
        lag = len(waiting)
    elif page.records:
        waiting = page.records
    return lag, waiting[0].timestamp if waiting else None


def _seconds(us: int) -> float:
    return max(0, us) / 1_000_000


def _warnings(partitions: tuple[PartitionStatus, ...], settings: Settings, quarantined: int) -> list[str]:
    warnings = []
    for partition in partitions:
        if partition.lag_s > settings.log_retention_s / 2:
            warnings.append(
                f"partition {partition.partition}: not carried for {partition.lag_s / 3600:.1f} h, more than half of "
                "the log's retention; start the pipeline"
            )
        if partition.lost:
            error = trimmed_away(partition.partition, *partition.lost)
            warnings.append(f"{error.message}; {error.hint}")
    if quarantined:
        warnings.append(f"{counted(quarantined, 'record')} quarantined; see `strandline pipeline quarantine`")
    return warnings
