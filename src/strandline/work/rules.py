"""Pure functions over rows that decide what becomes of an entry. Every decision of a work journal is made here.

from          event                     to
none, expired add                       W, counter 0, new id
W             add, date >= revised      merged: counter 0, every earlier fence void
W             add, date < revised       stale: priority and dates merge, nothing else
P             add                       unchanged, and a W behind it
P             lease ends, fail          expired: gone; counter + 1 at the limit: dead letter; else W
P             release                   expired: gone; else W
P to W        another of its key waits  folded into that one
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from strandline.clock import time_text
from strandline.errors import InvalidInput, invalid
from strandline.points import reached
from strandline.work.dates import ALLOWED, DATE_MAX, US, us
from strandline.work.declaration import WorkSettings
from strandline.work.entries import (
    BEHIND,
    LAPSED,
    NOWHERE,
    PROCESSING,
    READY,
    SOON,
    WAITING,
    EntryDraft,
    EntryRow,
    Outcome,
)

AHEAD_MAX_US: Final = 60 * US
LATER_US: Final = 10 * US
"""An entry that is due after more than this time is kept in the later table."""
COUNTER_MAX: Final = 255
Key = tuple[bytes, bytes]
"""A key as the tables know it: its hash, and the encoded key."""


class Merged(NamedTuple):
    """The result of merging an add with the waiting entry of its key, if any: the outcome and the row to write."""

    outcome: Outcome
    row: EntryRow


class Moment(NamedTuple):
    """The database's clock, and that of leases. They differ on SQLite alone."""

    now: int
    lease_now: int


# ---------------------------------------------------------------- time


def expired(row: EntryRow, now: int) -> bool:
    """Return whether an entry has expired. An expired entry is hidden, but a claim on it stays valid."""
    return 0 < row.expiration_date < now


def lease_over(row: EntryRow, moment: Moment) -> bool:
    """Return whether the lease of a claim is over. A claim that is exactly as old as its lease still lives."""
    return moment.lease_now - row.beat > row.lease


def running(row: EntryRow, moment: Moment) -> bool:
    """Return whether an entry has a live claim."""
    return row.status == PROCESSING and not lease_over(row, moment)


def placed(row: EntryRow, now: int, *, behind: bool = False) -> EntryRow:
    """Return a waiting entry with its place in the order set."""
    return row._replace(place=BEHIND if behind else READY if row.date <= now else SOON)


# ---------------------------------------------------------------- add


def at_index(index: int, error: InvalidInput) -> InvalidInput:
    """Return the error of one of several adds, with its index."""
    facts = {**error.facts, "index": index}
    return InvalidInput(f"adds[{index}] {error.message}", code=error.code, hint=error.hint, **facts)


def check_dates(draft: EntryDraft, now: int) -> None:
    """Check the dates of an add against the database's clock."""
    if draft.insertion_date is not None and draft.insertion_date > now + AHEAD_MAX_US:
        ahead_s = -(-(draft.insertion_date - now) // US)
        raise invalid(
            "time_ahead",
            "insertion_date",
            f"is {ahead_s} s ahead of the database's clock (limit {AHEAD_MAX_US // US})",
            allowed="a date that is not in the future",
            got=draft.insertion_date,
        )
    if draft.process_date is None:
        if draft.delay > DATE_MAX - now:
            raise invalid("time_range", "process_date", "is after 9999", allowed=ALLOWED, got=draft.delay)
        refuse_early(draft.expiration_date, now + draft.delay)


def refuse_early(expiration_date: int, process_date: int) -> None:
    """Raise `InvalidInput.expires_early` for an entry that could never be processed."""
    if 0 < expiration_date < process_date:
        raise invalid(
            "expires_early",
            "expiration_date",
            f"would expire at {expiration_date}, before it may be processed at {process_date}",
            allowed="a date that is not before process_date, or 0 for never",
            got=expiration_date,
        )


def added(
    draft: EntryDraft, waiting: EntryRow | None, settings: WorkSettings, now: int, number: int, *, behind: bool
) -> Merged:
    """Merge an add with the waiting entry of its key. `behind`: another entry of the key is being processed.

    `number` is a new one: the id of a new entry, and that of data which has none yet.
    """
    revised = waiting.revised_date if waiting is not None else 0
    inserted = max(now, revised) if draft.insertion_date is None else draft.insertion_date
    process = max(now + draft.delay if draft.process_date is None else draft.process_date, inserted)
    if waiting is None:
        place = BEHIND if behind else READY if process <= now else SOON
        new = EntryRow(0, number, draft.number or number, draft.hash, draft.key, draft.version, draft.priority, process,
                  inserted, inserted, draft.expiration_date, 0, len(draft.data),
                  data=draft.data, place=place)  # fmt: skip
        return Merged("behind" if behind else "inserted", new)
    merged = waiting._replace(
        priority=min(waiting.priority, draft.priority),
        expiration_date=_later_expiry(waiting.expiration_date, draft.expiration_date),
        process_date=_process_date(waiting.process_date, process, waiting.insertion_date, settings),
    )
    if inserted < revised:
        reached("work.stale_add")
        return Merged("stale", placed(merged, now, behind=behind))
    merged = _forgotten(merged)._replace(
        number=draft.number or number,
        data=draft.data,
        size=len(draft.data),
        version=draft.version,
        revised_date=inserted,
    )
    return Merged("merged", placed(merged, now, behind=behind))


def _forgotten(row: EntryRow) -> EntryRow:
    """Return an entry with its claims reset. The date when the last claim began stays."""
    return EntryRow(*row[:11], row.started, row.size, data=row.data)


def _later_expiry(one: int, other: int) -> int:
    return max(one, other) if one and other else 0


def _process_date(before: int, new: int, insertion_date: int, settings: WorkSettings) -> int:
    if settings.merge_process_date == "smallest":
        return min(before, new)
    date = max(before, new)
    if settings.max_delay_s is not None:
        date = min(date, max(before, insertion_date + us(settings.max_delay_s)))
    return date


def folded(ended: EntryRow, waiting: EntryRow, settings: WorkSettings, now: int) -> EntryRow:
    """Merge an entry that waits again with the entry that waits behind it, as if the latter were added only now."""
    newer = waiting if waiting.revised_date >= ended.revised_date else ended
    both = newer._replace(
        slot=waiting.slot,
        id=waiting.id,
        key=waiting.key,
        priority=min(ended.priority, waiting.priority),
        process_date=_process_date(ended.process_date, waiting.process_date, ended.insertion_date, settings),
        insertion_date=min(ended.insertion_date, waiting.insertion_date),
        expiration_date=_later_expiry(ended.expiration_date, waiting.expiration_date),
    )
    return placed(_forgotten(both)._replace(first_start=ended.started), now)


def waits_for(waiting: EntryRow, row: EntryRow, settings: WorkSettings) -> bool:
    """Return whether `waiting`, which waits behind entries of its key, is merged with `row` once `row` waits again.

    Entries that were added since `merge` became `none` are entries of their own.
    """
    return settings.merge == "key" or row.id < waiting.id


def held_back(waiting: EntryRow, running: Iterable[EntryRow]) -> bool:
    """Return whether an entry goes on waiting behind others of its key. Entries that were added later do not count."""
    return any((row.hash, row.key) == (waiting.hash, waiting.key) and row.id < waiting.id for row in running)


def seen(
    over: Sequence[EntryRow], behind: Mapping[Key, EntryRow], settings: WorkSettings, now: int
) -> dict[int, EntryRow | None]:
    """Return what recording these lapses makes of entries, by id: the new row, or None if the entry is removed.

    `behind` has the entries that wait behind entries of their keys. All have their data.
    """
    found: dict[int, EntryRow | None] = {}
    for row in over:
        outcome, other = lapsed(row, settings, now), behind.get((row.hash, row.key))
        folds = other is not None and waits_for(other, row, settings)
        found[row.id] = None if isinstance(outcome, str) or folds else outcome
        if other is not None and folds and not isinstance(outcome, str):
            found[other.id] = folded(outcome, found.get(other.id) or other, settings, now)
    return found


# ---------------------------------------------------------------- the end of a claim

GONE: Final = "gone"
DEAD: Final = "dead"


def lapsed(row: EntryRow, settings: WorkSettings, now: int) -> EntryRow | str:
    """Return what becomes of an entry whose lease ended: it waits again, is a dead letter, or is removed."""
    return _counted(row, settings, now, LAPSED, 0)


def failed(row: EntryRow, settings: WorkSettings, now: int, delay_s: float | None) -> EntryRow | str:
    """Return what becomes of an entry after `fail`, with the given delay or one that doubles with every count."""
    delay = delay_s
    if delay is None:
        doubled = settings.retry_delay_s * 2.0 ** min(row.counter, 64)
        delay = min(doubled, max(settings.retry_delay_max_s, settings.retry_delay_s))
    return _counted(row, settings, now, WAITING, now + us(delay))


def _counted(row: EntryRow, settings: WorkSettings, now: int, status: str, retry_date: int) -> EntryRow | str:
    if expired(row, now):
        return GONE
    counter = min(row.counter + 1, COUNTER_MAX)
    if 0 < settings.max_timeouts <= counter:
        return DEAD
    return placed(row._replace(status=status, counter=counter, retry_date=retry_date or row.retry_date), now)


def released(row: EntryRow, now: int) -> EntryRow | str:
    """Return what becomes of an entry after `release`: dates and counter stay."""
    return GONE if expired(row, now) else placed(row._replace(status=WAITING), now)


def claimed(row: EntryRow, fence: int, owner: str, lease: int, moment: Moment) -> EntryRow:
    """Return an entry as a new claim changes it."""
    return row._replace(
        status=PROCESSING, fence=fence, owner=owner, start_date=moment.now, claimed_date=moment.now,
        beat=moment.lease_now, lease=lease, place=NOWHERE,
    )  # fmt: skip


def expired_letter(expiration_date: int) -> InvalidInput:
    """Return the error for a dead letter that would expire as soon as it waits again."""
    return invalid(
        "expired", "dead letter", f"expired at {time_text(expiration_date)}", allowed="one that has not expired",
        got=expiration_date, hint="give a new expiration_date, or 0 for never",
    )  # fmt: skip
