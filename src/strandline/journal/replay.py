"""Replay: the journals of all keys of a partition, up to a cut. Store and tail are joined by the rule of a read.

The partition's tail is read once and grouped by key; each key is then planned and read like any other. A tail that does
not fit into the buffer is read again for each half of the slices. A key is whole up to the cut, less what a Delete or a
Purge removed while the replay ran.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

from strandline.errors import NotFound
from strandline.journal.plan import Plan, plan
from strandline.journal.read import Reader, Reading
from strandline.journal.tail import EVENT_OVERHEAD_BYTES, Tail
from strandline.log.api import Log
from strandline.log.cursor import PAGE_BYTES, Cursor
from strandline.log.refusals import trimmed_away
from strandline.record import Record
from strandline.rows import Pointer
from strandline.settings import Settings
from strandline.store.api import Readable
from strandline.values.events import RecordedEvent
from strandline.values.heads import SEQ_NR_MAX
from strandline.values.keys import SLICES, is_key, slice_of

KEYS_A_PAGE = 1000


def replay_partition(
    log: Log,
    store: Readable,
    settings: Settings,
    partition: int,
    *,
    cut: int,
    slices: tuple[int, int] = (0, SLICES - 1),
    entity_type: str | None = None,
    tail: bool = True,
) -> Iterator[RecordedEvent]:
    """Events of every key of a partition in these slices, key by key, each by seq_nr, up to offset `cut`.

    Without `tail` only what the store has by then.
    """
    reader = Reader(log, store, settings)
    left = [_slices_of(partition, log.partitions, slices)]
    while left:
        lo, hi = left.pop()
        tails = Tails(reader, partition, cut if tail else -1, (lo, hi), entity_type)
        if tails.full and lo < hi:
            middle = (lo + hi) // 2
            left += [(middle + 1, hi), (lo, middle)]
            continue
        for key in _keys(store, (lo, hi), entity_type, tails):
            yield from Reading(reader, tails.plan(key), 1, SEQ_NR_MAX, cut=cut).events()


class Tails:
    """The tail of a partition up to a mark: the records of each key, if the buffer holds them all.

    `full`: it does not. Of several slices nothing is kept then, of one the names of its keys.
    """

    def __init__(
        self, reader: Reader, partition: int, mark: int, slices: tuple[int, int], entity_type: str | None
    ) -> None:
        self._reader, self._partition, self._mark = reader, partition, mark
        self._slices, self._entity_type = slices, entity_type
        self._free = reader.settings.tail_buffer_bytes
        self.full = False
        self._records: dict[str, list[Record]] = {}
        self._read(reader.store.pointers()[partition])

    def keys(self) -> dict[str, list[tuple[int, bytes]]]:
        """The keys that the tail has something of: by entity type, then slice and bytes."""
        found: dict[str, list[tuple[int, bytes]]] = {}
        for key in self._records:
            found.setdefault(key.partition("|")[0], []).append(_place(key))
        return {name: sorted(places) for name, places in found.items()}

    def plan(self, key: str) -> Plan:
        """The key's plan. The log is asked again only where the buffer was too small."""
        if self.full and key in self._records:
            return self._reader.plan(key, mark=self._mark)
        _, state = self._reader.store.look(key, self._partition)
        tail = Tail(key, state, self._reader.rules, bytes_max=SEQ_NR_MAX)
        tail.add(self._records.pop(key, ()))
        return plan(key, self._partition, self._mark, state, tail)

    def _read(self, pointer: Pointer) -> None:
        reader, partition, mark = self._reader, self._partition, self._mark
        cursor = Cursor(reader.log, partition, pointer.offset, pointer.timestamp)
        while cursor.offset < mark and not (self.full and self._slices[0] < self._slices[1]):
            try:
                records = cursor.read(
                    to=mark, limit=reader.settings.read_page, bytes_max=PAGE_BYTES, values=not self.full
                )
            except NotFound as error:
                if error.code != "trimmed":
                    raise
                # The pipeline carried it, and it was trimmed, while this was read: go on at the pointer of now.
                pointer = reader.store.pointers()[partition]
                if pointer.offset + 1 < error.earliest:
                    raise trimmed_away(partition, pointer.offset + 1, error.earliest - 1) from None
                cursor = Cursor(reader.log, partition, pointer.offset, pointer.timestamp)
                continue
            for record in records:
                self._keep(record)

    def _keep(self, record: Record) -> None:
        key = record.key
        if key is None or not is_key(key) or not self._slices[0] <= slice_of(key) <= self._slices[1]:
            return
        if self._entity_type is not None and key.partition("|")[0] != self._entity_type:
            return
        kept = self._records.setdefault(key, [])
        if self.full:
            return
        kept.append(record)
        self._free -= len(record.header or b"") + len(record.value or b"") + EVENT_OVERHEAD_BYTES
        if self._free < 0:
            self.full = True
            for records in self._records.values():
                records.clear()


def _keys(store: Readable, slices: tuple[int, int], entity_type: str | None, tails: Tails) -> Iterator[str]:
    """The keys of store and tail, each once. One that is new in the store by now was in the tail before."""
    in_tail = tails.keys()
    names = [entity_type] if entity_type is not None else sorted({*store.entity_types(), *in_tail}, key=str.encode)
    for name in names:
        last: tuple[int, bytes] | None = None
        for place in merge(_stored_keys(store, name, slices), in_tail.get(name, ())):
            if place != last:
                yield place[1].decode()
            last = place


def _stored_keys(store: Readable, entity_type: str, slices: tuple[int, int]) -> Iterator[tuple[int, bytes]]:
    after = None
    while True:
        page = store.keys(entity_type, after=after, limit=KEYS_A_PAGE, slices=slices)
        yield from map(_place, page)
        if len(page) < KEYS_A_PAGE:
            return
        after = page[-1]


def _place(key: str) -> tuple[int, bytes]:
    return slice_of(key), key.encode()


def _slices_of(partition: int, partitions: int, wanted: tuple[int, int]) -> tuple[int, int]:
    """The slices of a partition that are wanted."""
    first = -(-partition * SLICES // partitions)
    last = -(-(partition + 1) * SLICES // partitions) - 1
    return max(first, wanted[0]), min(last, wanted[1])
