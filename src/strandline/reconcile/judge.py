"""Judge: name the faults in the events and the head of one key. Pure: two sorted runs in, faults out.

The stored run and the run that the kept log proves are merged by number. A number that only the log has is missing, one
that only the store has may be older than what the log keeps. An event that the next one, or the head, names and that
has no row is missing, too. Which event comes before another is judged in the merged run, not by the log: the log does
not know of events that an operator skipped or that it has trimmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from strandline.reconcile.findings import numbers_shown
from strandline.values.heads import Head

Mend = Literal["", "put", "prev", "columns", "remove"]


class StoredEvent(NamedTuple):
    """An event as its row has it."""

    seq_nr: int
    prev_seq_nr: int
    timestamp: int
    log_offset: int
    content: int
    """A checksum of the body without the number of the event before."""
    whole: bool
    """Whether body and digest are those of this key, life and number."""
    in_columns: bool = True
    """Whether its other columns agree with its body."""


class ProvedEvent(NamedTuple):
    """An event as the kept log has it, or the archive."""

    seq_nr: int
    timestamp: int
    content: int
    damaged: bool
    """Whether the log's own record cannot be read: an operator may have skipped it."""
    source: str = "the log"


class EventFault(NamedTuple):
    """A fault in the events of a key, and how it can be corrected."""

    kind: str
    seq_nrs: tuple[int, ...]
    expected: str
    found: str
    timestamp: int = 0
    mend: Mend = ""
    prev: int = 0


def judge_events(
    stored: Sequence[StoredEvent],
    proved: Sequence[ProvedEvent],
    head: Head,
    *,
    log: tuple[int, int] | None,
) -> list[EventFault]:
    """Return the faults of a key's events, both runs sorted by number.

    `log` has the first and the last offset that the proofs are from; None where the log proves nothing. A stored event
    with an offset in between that is not among the proofs was never recorded.
    """
    faults: list[EventFault] = []
    run: list[StoredEvent | ProvedEvent] = []
    by_number = {event.seq_nr: event for event in proved}
    standing = {event.seq_nr: event for event in stored}
    named = {event.prev_seq_nr for event in stored if event.whole} | {head.prev}
    for number in sorted({*by_number, *standing}):
        event, proof = standing.get(number), by_number.get(number)
        if event is None and proof is not None:
            if number <= head.delete_to or (proof.damaged and number not in named):
                continue
            faults.append(EventFault("event_missing", (number,), "a row", "none", proof.timestamp, "put"))
            run.append(proof)
        elif event is not None:
            fault = _judge_row(event, proof, head, log)
            if fault is not None:
                faults.append(fault)
            if fault is None or fault.kind != "event_extra":
                run.append(event)
    faults += _judge_chain(run, head)
    return faults


def _judge_row(
    event: StoredEvent, proof: ProvedEvent | None, head: Head, log: tuple[int, int] | None
) -> EventFault | None:
    number, at = (event.seq_nr,), event.timestamp
    if event.seq_nr <= head.delete_to:
        return EventFault("event_extra", number, f"deleted up to {head.delete_to}", "a row", at, "remove")
    if proof is not None:
        if not event.whole:
            return EventFault("event_different", number, f"what {proof.source} has", "a damaged row", at, "put")
        if event.content != proof.content:
            return EventFault("event_different", number, f"what {proof.source} has", "another event", at, "put")
    elif log is not None and event.whole and log[0] <= event.log_offset <= log[1]:
        offset = f"nothing at offset {event.log_offset} of the log"
        return EventFault("event_extra", number, offset, "a row", at, "remove")
    elif not event.whole:
        return EventFault("event_different", number, "what was written", "a damaged row", at)
    if not event.in_columns:
        return EventFault("event_different", number, "columns as in the body", "other columns", at, "columns")
    return None


def _judge_chain(run: Sequence[StoredEvent | ProvedEvent], head: Head) -> list[EventFault]:
    faults = []
    before = 0
    for event in run:
        if isinstance(event, StoredEvent) and event.whole:
            prev, deleted = event.prev_seq_nr, not before and event.prev_seq_nr <= head.delete_to
            if before < prev < event.seq_nr and not deleted:
                faults.append(_named(max(before, head.delete_to) + 1, prev, f"named by {event.seq_nr}"))
            elif prev != before and not deleted:
                faults.append(
                    EventFault(
                        "chain_broken", (event.seq_nr,), f"{before} before it", f"{prev}", event.timestamp, "prev",
                        before,
                    )
                )  # fmt: skip
        before = event.seq_nr
    if head.prev > max(before, head.delete_to):
        faults.append(_named(max(before, head.delete_to) + 1, head.prev, "named by the head"))
    return faults


def _named(first: int, last: int, by: str) -> EventFault:
    """Return the fault of an event that is named and has no row. Events before it may be missing, too; no row names
    them.
    """
    gap = f"{last}, {by}" if first == last else f"{last}, {by}, and perhaps others from {first} on"
    return EventFault("event_missing", numbers_shown(last, last), gap, "none")


HEAD_FIELDS = (
    "seq_nr", "delete_to", "life", "offset", "created", "updated", "expire_after_us", "expire_at", "segment_size",
)  # fmt: skip


def judge_head(found: Head | None, proved: Head | None, last: int) -> tuple[str, str, Head | None] | None:
    """Compare a head with the log: the head expected, the one found, and the right one where it is known.

    `proved` is the head that the log proves; `last` is the number of the last event that is there, or must be.
    """
    if found is None:
        return "a head", "none, or a damaged one", proved
    if proved is not None:
        wrong = [name for name in HEAD_FIELDS if getattr(found, name) != getattr(proved, name)]
        if wrong:
            expected = ", ".join(f"{name} {getattr(proved, name)}" for name in wrong)
            return expected, ", ".join(f"{name} {getattr(found, name)}" for name in wrong), proved
    if last > found.delete_to and (found.prev < last or found.seq_nr < last):
        right = found._replace(prev=last, seq_nr=max(found.seq_nr, last))
        return f"last event {last}", f"last event {found.prev}, seq_nr {found.seq_nr}", right
    return None
