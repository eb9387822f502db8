"""The checks and errors that all stores share."""

from __future__ import annotations

from strandline import errors
from strandline.clock import now_us, seconds_text, time_text
from strandline.errors import Conflict, Corrupt, InvalidInput, LeaseHeld, LeaseLost, Unavailable, Unsupported
from strandline.rows import Pointer


def check_pointer(found: Pointer, seen: Pointer) -> None:
    """Raise `Unavailable.serialization` if the partition moved since `seen`."""
    if (found.offset, found.revision) != (seen.offset, seen.revision):
        raise Unavailable(
            f"partition {found.partition} moved from offset {seen.offset}, revision {seen.revision} "
            f"to {found.offset}, {found.revision}",
            code="serialization",
            hint="prepare again from the pointer that is there now",
            partition=found.partition,
            seen=seen.offset,
            found=found.offset,
        )


def check_fence(found: int, mine: int) -> None:
    """Raise `LeaseLost` if another fence is in force."""
    if found != mine:
        raise LeaseLost(
            f"fence {mine} is no longer in force; fence {found} is",
            hint="stop: another pipeline carries this store",
            fence=mine,
            found=found,
        )


def check_correcting(found: Pointer, mine: int | None) -> None:
    """Raise `LeaseLost` unless a correction is made under the pipeline's lease, after a Mark was carried."""
    if mine is None or found.last_action_at >= found.timestamp:
        raise LeaseLost(
            "a correction here needs the pipeline's lease, and a Mark that was carried under it",
            hint="correct with `strandline pipeline resolve`",
            found=found.fence,
        )
    check_fence(found.fence, mine)


def lease_held(holder: str, since: int) -> LeaseHeld:
    """Return the error for a lease that somebody else holds: since when, unless that is not known yet."""
    ago = seconds_text(max(0, now_us() - since) / 10**6)
    known = f" since {time_text(since, digits=0)}, {ago} ago" if since else ""
    return LeaseHeld(
        f"{holder} carries this store{known}",
        hint="one pipeline per store: stop that one, or wait until it ends",
        holder=holder,
        since=since,
    )


def other_event(key: str, life: int, seq_nr: int) -> Corrupt:
    """Return the error for an event whose place another event has."""
    return Corrupt(
        f"event {seq_nr} of {key}, life {life}, is in the store with another content",
        code="conflict",
        hint="nothing was written; if it stays so, restore log and store from one backup",
        key=key,
        life=life,
        seq_nr=seq_nr,
    )


def life_ended(key: str, life: int) -> Conflict:
    """Return the error for a snapshot for a life that is over."""
    return Conflict(
        f"life {life} of {key} was purged",
        code="life_ended",
        hint="read the journal again and save a snapshot of what it says now",
        key=key,
        life=life,
    )


def bad_row(table: str, place: str) -> Corrupt:
    """Return the error for a stored row that fails its digest."""
    return Corrupt(
        f"{table} {place} is not what was written",
        code="digest",
        hint="restore log and store from one backup",
        table=table,
        place=place,
    )


def closed() -> InvalidInput:
    """Return the error for a call after `close`."""
    return errors.closed("this store")


def used_after_fork() -> Unsupported:
    """Return the error for a call in a forked child."""
    return errors.used_after_fork("this store")
