"""What every log refuses in the same words."""

from __future__ import annotations

from strandline.errors import InvalidInput, NotFound, Unsupported, invalid


def closed() -> InvalidInput:
    """The error for a call after `close`."""
    return InvalidInput("this log is closed", code="closed", hint="connect again")


def used_after_fork() -> Unsupported:
    """The error for a call in a child of the process that opened it."""
    return Unsupported(
        "this log was opened before a fork",
        code="used_after_fork",
        hint="open a log of its own in each process",
    )


def trimmed(partition: int, after: int, earliest: int) -> NotFound:
    """The error for a read of what the log no longer has."""
    return NotFound(
        f"partition {partition} was trimmed: records after offset {after} begin at {earliest}",
        code="trimmed",
        hint=f"read after offset {earliest - 1}, or from the store",
        partition=partition,
        earliest=earliest,
    )


def check_trim(to: int, pointer: int) -> None:
    """A log may forget only what the store has."""
    if to > pointer:
        raise invalid(
            "trim_range", "to", "above the partition's pointer", allowed=f"at most {pointer}", got=to, pointer=pointer
        )
