"""Resolve a quarantined record: skip it, or read it again.

A damaged append keeps its numbers. `skip` turns its events into gaps: their rows go, and the chain is mended at the
next event, or at the head where there is none yet. `retry` reads the record again and fills the rows in place. A
foreign record, or a delete or purge whose header is damaged, can only be skipped, which takes it off the quarantine.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import getpid
from socket import gethostname
from typing import Any
from uuid import uuid4

from strandline.carry.range import carry_up_to
from strandline.errors import Corrupt, InvalidInput, NotFound, SchemaMismatch, Unavailable, invalid
from strandline.fold import EventsAppended
from strandline.log.api import ActionDraft, Log
from strandline.record import BadHeader, BadValue, decode_header, encode_header, read_contents
from strandline.rows import Pointer, QuarantineRow, event_cells
from strandline.settings import Settings
from strandline.store.api import CarryMark, Store
from strandline.store.correction import Amend, Correction
from strandline.store.scans import quarantined_at
from strandline.store.tag_scans import tag_row_at
from strandline.store.tag_view import TAG_VIEW
from strandline.values.actions import Append, Mark, Place
from strandline.values.events import EventRow, Life, RecordedEvent, with_prev
from strandline.values.heads import SEQ_NR_MAX, Head
from strandline.values.tag_rows import TagRow, fillers

ATTEMPTS_MAX = 100


def resolve(log: Log, store: Store, partition: int, offset: int, how: str, settings: Settings) -> None:
    """Resolve a quarantined record; `how` is "skip" or "retry".

    After a call that was killed half-way, call it again: the record is still in the quarantine, or nothing has changed.
    It is safe beside a running pipeline, which waits meanwhile; a store without locks raises `LeaseHeld` then.
    """

    marking = mark_carrier(log, store, partition, settings)
    resolve_marked(store, partition, offset, how, f"resolve, {gethostname()} pid {getpid()}", marking)


def mark_carrier(log: Log, store: Store, partition: int, settings: Settings) -> CarryMark:
    """Writes a Mark and carries the partition up to it, as `Store.correct` asks for it."""

    def carry_mark(fence: int) -> None:
        mark = Mark(None, uuid4().hex)
        (recorded,) = log.append([ActionDraft(partition, mark, encode_header(mark))])
        if recorded.place is None:
            raise TypeError(recorded)
        carry_up_to(log, store, partition, recorded.place.offset, fence, settings)

    return carry_mark


def resolve_marked(store: Store, partition: int, offset: int, how: str, holder: str, carry_mark: CarryMark) -> None:
    """Do what `resolve` does, with the caller's own way of carrying a Mark."""
    if how not in ("skip", "retry"):
        raise invalid("how", "how", "unknown", allowed="skip or retry", got=how)
    _listed(store, partition, offset)  # refuse a place that is not in the quarantine before anything is locked
    with store.correct(partition, holder, carry_mark) as amend:
        for _ in range(ATTEMPTS_MAX):
            try:
                return _resolve(store, amend, _listed(store, partition, offset), how)
            except Unavailable as error:
                if error.code != "serialization":  # else the pipeline wrote meanwhile: look again
                    raise
    raise Unavailable(
        f"partition {partition} is too busy to resolve offset {offset}", code="serialization", hint="try again"
    )


def _listed(store: Store, partition: int, offset: int) -> QuarantineRow:
    listed = quarantined_at(store, partition, offset)
    if listed is None:
        raise NotFound(
            f"nothing is quarantined at partition {partition}, offset {offset}",
            code="quarantine",
            hint="`strandline pipeline quarantine` lists the quarantined records",
            partition=partition,
            offset=offset,
        )
    return listed


def _resolve(store: Store, amend: Amend, listed: QuarantineRow, how: str) -> None:
    partition, offset = listed.partition, listed.offset
    if listed.life is None or listed.key is None:
        if how == "retry":
            raise InvalidInput(
                f"offset {offset} of partition {partition} has no events that could be read again ({listed.reason})",
                code="how",
                hint="take it off the quarantine with skip",
                field="how",
            )
        amend(store.look(partition, ()).pointer, Correction(resolved=offset))
        return
    look = store.look(partition, (listed.key,))
    seen, head = look.pointer, look.states.get(listed.key)
    if not isinstance(head, Head) or head.life != listed.life:
        amend(seen, Correction(resolved=offset))
    elif how == "skip":
        _skip(store, amend, listed, seen, head)
    else:
        _retry(store, amend, listed, seen, head)


def _skip(store: Store, amend: Amend, listed: QuarantineRow, seen: Pointer, head: Head) -> None:
    key, first, last = _numbers(listed)
    rows = store.page(key, head.life, head.segment_size, from_=first, to=last, limit=last - first + 1).rows
    if not rows:
        amend(seen, Correction(resolved=listed.offset))
        return
    life, size = Life(key, head.life), head.segment_size
    prev = rows[0][1]
    gone = [_row(seen, life, size, cells) for cells in rows]
    following = store.page(key, head.life, size, from_=last + 1, to=SEQ_NR_MAX, limit=1).rows
    anew = _fillers(store, gone)
    if following:
        mended = _row(seen, life, size, with_prev(life, following[0], prev))
        anew += _filled(store, [mended])
        amend(seen, Correction(resolved=listed.offset, remove=gone, replace=[mended], anew={TAG_VIEW: anew}))
    else:
        moved = head._replace(prev=prev)
        amend(seen, Correction(resolved=listed.offset, remove=gone, head=(key, moved), anew={TAG_VIEW: anew}))


def _retry(store: Store, amend: Amend, listed: QuarantineRow, seen: Pointer, head: Head) -> None:
    key, first, last = _numbers(listed)
    try:
        action = decode_header(listed.header)
        if not isinstance(action, Append) or (action.key, len(action.events)) != (key, last - first + 1):
            raise BadValue("undecodable")
        contents = read_contents(action, listed.value)
    except (BadHeader, BadValue) as bad:
        raise Corrupt(
            f"events {first}..{last} of {key} still cannot be read ({bad.reason})",
            code=bad.reason if bad.reason in Corrupt.codes else "undecodable",
            hint="skip it, or try again with a version that can read it",
            key=key, seq_nr=first, partition=listed.partition, offset=listed.offset,
        ) from None  # fmt: skip
    life, size = Life(key, head.life), head.segment_size
    rows = store.page(key, head.life, size, from_=first, to=last, limit=last - first + 1).rows
    if not rows:
        amend(seen, Correction(resolved=listed.offset))
        return
    place = Place(RecordedEvent(life, rows[0]).partition, listed.offset, listed.timestamp)
    effect = EventsAppended(first, last, first - 1, head.life)
    fresh = {cells[0]: cells for cells in event_cells(action, place, effect, contents)}
    filled = [_row(seen, life, size, with_prev(life, fresh[cells[0]], cells[1])) for cells in rows]
    amend(seen, Correction(resolved=listed.offset, replace=filled, anew={TAG_VIEW: _filled(store, filled)}))


def _row(seen: Pointer, life: Life, segment_size: int, cells: tuple[Any, ...]) -> EventRow:
    """Return the row of an event in the partition where its key is now; its body keeps the one that recorded it."""
    return EventRow.of(life, segment_size, cells)._replace(partition=seen.partition)


def _tag_rows(store: Store, row: EventRow) -> list[TagRow]:
    """Return the rows of an event in the views of its tags."""
    found = [tag_row_at(store, tag, (row.timestamp, row.key, row.seq_nr)) for tag in row.event.tags]
    return [tag_row for tag_row in found if tag_row is not None]


def _fillers(store: Store, gone: Sequence[EventRow]) -> list[TagRow]:
    """Return the tag rows that keep number and link of events that are skipped."""
    return fillers([tag_row for row in gone for tag_row in _tag_rows(store, row)])


def _filled(store: Store, rows: Sequence[EventRow]) -> list[TagRow]:
    """Tag rows of events that are written anew."""
    return [
        tag_row._replace(prev_seq_nr=row.prev_seq_nr, body=row.body, digest=row.digest)
        for row in rows
        for tag_row in _tag_rows(store, row)
    ]


def _numbers(listed: QuarantineRow) -> tuple[str, int, int]:
    if listed.key is None or listed.first is None or listed.last is None:
        missing = "the quarantine has this damaged append without its numbers"
        raise SchemaMismatch(missing, code="version", hint="upgrade the store")
    return listed.key, listed.first, listed.last
