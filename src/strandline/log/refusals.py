"""The checks and errors that all logs share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strandline.errors import Applied, MissingEvent, NotFound, SchemaMismatch, invalid
from strandline.record import Record


def trimmed(partition: int, after: int, earliest: int) -> NotFound:
    """Return the error for a read of records that the log has trimmed."""
    return NotFound(
        f"partition {partition} was trimmed: records after offset {after} begin at {earliest}",
        code="trimmed",
        hint=f"read after offset {earliest - 1}, or from the store",
        partition=partition,
        earliest=earliest,
    )


def trimmed_away(partition: int, first: int, last: int) -> MissingEvent:
    """Return the error for actions that the log trimmed before the store had them."""
    return MissingEvent(
        f"partition {partition}: offsets {first} to {last} are lost: trimmed before the pipeline carried them",
        code="log_trimmed",
        hint="restore log and store from one backup; let the pipeline run at least once per log_retention_s",
        partition=partition,
        first=first,
        last=last,
    )


def replaced(where: object, log_id: str | None = None, *, applied: Applied = "no") -> SchemaMismatch:
    """Return the error for an append to a log that another log has taken over, or is about to."""
    return SchemaMismatch(
        f"{where} takes no records: another log takes over from it, by `strandline schema repartition`",
        code="log_replaced",
        hint="connect with the new log's URL; if the change was interrupted, start it again or take it back (--undo)",
        applied=applied,
        stored=log_id,
    )


def check_trim(to: int, pointer: int) -> None:
    """Check that a log forgets only what the store has."""
    if to > pointer:
        raise invalid(
            "trim_range", "to", "above the partition's pointer", allowed=f"at most {pointer}", got=to, pointer=pointer
        )


def check_holes(partition: int, after: int, records: Sequence[Record]) -> None:
    """Check that the offsets of a log which gives them itself are consecutive: a record that is missing was lost."""
    if records and records[-1].offset - after != len(records):
        expected = after + 1
        for record in records:
            if record.offset != expected:
                raise hole(partition, expected, record.offset - 1)
            expected += 1


def hole(partition: int, first: int, last: int) -> MissingEvent:
    """Return the error for records that the log has lost."""
    return MissingEvent(
        f"partition {partition} lacks offsets {first}..{last}",
        code="log_trimmed",
        hint="restore log and store from one backup",
        partition=partition,
        first=first,
        last=last,
    )


def last_older(timestamp_at: Callable[[int], int], low: int, high: int, keep_after: int) -> int:
    """Return the last offset in `low` + 1..`high` that is older than `keep_after`, or `low`; timestamps grow with
    offsets."""
    while low < high:
        middle = (low + high + 1) // 2
        if timestamp_at(middle) < keep_after:
            low = middle
        else:
            high = middle - 1
    return low
