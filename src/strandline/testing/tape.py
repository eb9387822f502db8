"""A log on paper: records written down one after the other, carried into a store as a task would.

Everything on it follows from the calls: ids, timestamps and offsets are the same each time, and offsets have holes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from strandline.carry.range import CarriedRange, carry, decode
from strandline.carry.resolve import resolve_marked
from strandline.fold import FoldRules, fold
from strandline.record import Content, Record, content_digest, encode_header, encode_value
from strandline.settings import APPEND_IDS_KEPT_DEFAULT
from strandline.store.api import CarryMark, Store, StoreSettings
from strandline.store.correction import Amend
from strandline.values.actions import KEEP_EXPIRY, Action, Append, Delete, Mark, Place, Purge
from strandline.values.heads import State
from strandline.values.keys import key_partition
from strandline.values.payloads import encode

START_US = 1_767_225_600 * 10**6


class Tape:
    """Records by partition. Each call writes one and returns it."""

    def __init__(self, partitions: int = 1) -> None:
        self.partitions = partitions
        self.records: list[list[Record]] = [[] for _ in range(partitions)]
        self._count = 0
        self._later_us = 0

    # ------------------------------------------------------------ writing

    def append(
        self,
        key: str,
        payloads: Sequence[Any] = ("one",),
        *,
        first: int | None = None,
        expected: int | None = None,
        append_id: str | None = None,
        expire_after_us: int = KEEP_EXPIRY,
        tags: Sequence[str] = (),
        headers: dict[str, str] | None = None,
        damaged: str | None = None,
    ) -> Record:
        """An Append of one event per payload. `damaged`: "undecodable" or "digest"."""
        contents = [Content(*encode(payload), b'{"by":"tape"}' if tags else None) for payload in payloads]
        events = tuple([(f"type-{index}", tuple(tags)) for index in range(len(payloads))])
        value = encode_value(contents)
        action = Append(
            key, events, append_id or f"{self._count + 1:032x}", append_id is not None,
            content_digest(events, headers, value), first, expected, expire_after_us, headers,
        )  # fmt: skip
        if damaged == "undecodable":
            value = value[:-1]
        elif damaged == "digest":
            value = value[:-1] + bytes([value[-1] ^ 1])
        return self._write(action, value)

    def again(self, record: Record) -> Record:
        """Write the record once more, as a producer does that did not hear of the first."""
        return self._record(record.partition, record.key, record.header, record.value)

    def delete(self, key: str, to: int, life: int | None = None) -> Record:
        """A Delete; without a life it may reset an absent key."""
        return self._write(Delete(key, to, life))

    def purge(self, key: str, if_offset: int | None = None) -> Record:
        """A Purge."""
        return self._write(Purge(key, if_offset))

    def mark(self, partition: int = 0) -> Record:
        """A Mark without a key."""
        return self._record(partition, None, encode_header(Mark(None, f"mark-{self._count}")), None)

    def foreign(self, partition: int = 0) -> Record:
        """A record that is not ours."""
        return self._record(partition, "who|knows", None, b"\x00not ours")

    def later(self, us: int) -> None:
        """Let so much time pass."""
        self._later_us += us

    def until_before_the_hour(self) -> None:
        """Let time pass until the next record is the last that fits into its hour, at 1000 µs a record."""
        hour_us = 3_600_000_000
        self._later_us += hour_us - 1 - (START_US + 1000 * (self._count + 1) + self._later_us) % hour_us

    def _write(self, action: Action, value: bytes | None = None) -> Record:
        key = action.key or ""
        return self._record(key_partition(key, self.partitions), key, encode_header(action), value)

    def _record(self, partition: int, key: str | None, header: bytes | None, value: bytes | None) -> Record:
        self._count += 1
        past = self.records[partition]
        offset = past[-1].offset + 1 + self._count % 2 if past else 0
        record = Record(partition, offset, START_US + 1000 * self._count + self._later_us, key, header, value)
        past.append(record)
        return record

    # ------------------------------------------------------------ reading

    def all_keys(self) -> list[str]:
        """All keys on it, sorted."""
        return sorted({record.key for past in self.records for record in past if record.key is not None})

    def state(self, key: str, segment_size: int, *, on: State = None, after: int = -1) -> State:
        """Fold the key's actions after an offset."""
        rules = FoldRules(segment_size, APPEND_IDS_KEPT_DEFAULT)
        past = self.records[key_partition(key, self.partitions)]
        decoded, _ = decode([record for record in past if record.key == key], self.partitions)
        for record, action, _reason in decoded:
            if action is not None and record.offset > after:
                on, _effect = fold(on, action, Place(record.partition, record.offset, record.timestamp), rules)
        return on

    def carry(
        self, store: Store, *, fence: int | None = None, size: int | None = None, settings: StoreSettings | None = None
    ) -> None:
        """Carry all partitions from the store's pointers to the end, `size` records at a time.

        Without a `fence` under the one in force.
        """
        for pointer in store.pointers():
            left = [record for record in self.records[pointer.partition] if record.offset > pointer.offset]
            start = pointer.offset + 1
            step = size or len(left) or 1
            for index in range(0, len(left), step):
                records = left[index : index + step]
                position = records[-1].offset + 1
                range_ = CarriedRange(pointer.partition, start, position, records)
                carry(store, settings or store.settings, range_, pointer.fence if fence is None else fence)
                start = position

    def correcting(self, store: Store, partition: int = 0) -> AbstractContextManager[Amend]:
        """Within, rows of the store may be amended."""
        return store.correct(partition, "tape", self.carry_mark(store, partition))

    def resolve(self, store: Store, offset: int, how: str, *, partition: int = 0) -> None:
        """Resolve a quarantined record."""
        resolve_marked(store, partition, offset, how, "tape", self.carry_mark(store, partition))

    def carry_mark(self, store: Store, partition: int) -> CarryMark:
        """How a correction gets its Mark."""

        def carry_mark(fence: int) -> None:
            self.mark(partition)
            self.carry(store, fence=fence)

        return carry_mark
