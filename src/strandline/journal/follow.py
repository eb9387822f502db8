"""A cursor that reads on in one journal, again and again: new events cost something, those read before do not.

Every other read folds the log from the pointer on. A cursor remembers how far it has folded the log and what the key's
state was there, and goes on from that place, as long as the log still has what comes after it.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.errors import NotFound
from strandline.journal.plan import ReadPlan
from strandline.journal.read import JournalReader, Reading
from strandline.journal.tail import KeyTail
from strandline.log.cursor import PartitionCursor
from strandline.values.events import RecordedEvent
from strandline.values.heads import SEQ_NR_MAX, Head
from strandline.values.keys import key_partition


class _FoldedHead(NamedTuple):
    """The place up to which the log was folded, and the key's head there."""

    offset: int
    head: Head


class JournalCursor:
    """A reader of one journal, which remembers where it is. Threads that share it may fold the same records twice."""

    def __init__(self, reader: JournalReader, key: str) -> None:
        self._reader, self._key = reader, key
        self._partition = key_partition(key, reader.log.partitions)
        self._place: _FoldedHead | None = None

    def read(self, *, from_: int, limit: int) -> list[RecordedEvent]:
        """Read as `Journal.read` does."""
        events = self._read_on(from_, limit)
        return self._read_all(from_, limit) if events is None else events

    @property
    def known(self) -> Head | None:
        """The head that the last call of `head` returned; None: not known."""
        return None if self._place is None else self._place.head

    def head(self) -> Head | None:
        """Return the head as `Journal.head` does. A later `read` of events that came before it reads all of them."""
        if self._read_on(SEQ_NR_MAX, 0) is not None and self._place is not None:
            return self._place.head
        made = self._reader.plan(self._key, values=False)
        self._keep(made)
        return made.head

    def _read_on(self, from_: int, limit: int) -> list[RecordedEvent] | None:
        """Return the events that came since the remembered place; None if the log cannot be read from there."""
        place, reader = self._place, self._reader
        if place is None or place.head.seq_nr >= from_:
            return None
        mark = reader.end_of(self._key, self._partition)
        tail = KeyTail(self._key, place.head, reader.rules, from_=from_, bytes_max=reader.settings.tail_buffer_bytes)
        try:
            reader.search(tail, PartitionCursor(reader.log, self._partition, place.offset, 0), mark)
        except NotFound as error:
            if error.code != "trimmed":
                raise
            return None
        head = tail.state
        if not isinstance(head, Head) or head.life != place.head.life or tail.resume is not None:
            return None
        if len(tail.events) <= limit:
            self._place = _FoldedHead(mark, head)
        return [event for event in tail.events[:limit] if event.seq_nr > head.delete_to]

    def _read_all(self, from_: int, limit: int) -> list[RecordedEvent]:
        made = self._reader.plan(self._key, from_=from_)
        events = list(Reading(self._reader, made, from_, SEQ_NR_MAX, limit=limit).events())
        self._keep(made)
        return events

    def _keep(self, made: ReadPlan) -> None:
        # Timestamps of an inexact log are counted from a place whose timestamp is known: such a log is read as a whole.
        if made.head is not None and self._reader.log.exact:
            self._place = _FoldedHead(made.mark, made.head)
