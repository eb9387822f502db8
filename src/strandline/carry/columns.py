"""Plain appends, taken together by columns: in less than half of the time that they take one by one.

A plain append has one event without metadata, and nothing else: no id or headers of the caller's, no condition, no
expiry. Most records of most logs are plain. A record is taken for plain only if its header, value and digest are right
to the last byte, and only if all records of its key are. All other records are carried one by one; so is a run of a key
for which the fold does more than give the next numbers. This module decides nothing: the fold does.

    records ─▶ plain_of ─▶ columns, key by key ─▶ add_plain: the fold on the key's state ─▶ cuts of a Batch
                  └─▶ the others                        └─▶ what must go one by one
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import chain, islice, repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple
from zlib import crc32

from strandline.errors import SchemaMismatch
from strandline.fold import EventsAppended, FoldRules, extended, fold, segment_of
from strandline.record import (
    HEADER_OPENED,
    HEADER_SIGNED_AT,
    HEADER_START,
    LENGTH_TOP,
    VALUE_BYTES_MAX,
    BadHeader,
    Record,
    decode_header,
    digest_input,
    encode_value,
    sealed,
)
from strandline.rows import KeyRun, PartitionBatch, life_of
from strandline.values.actions import KEEP_EXPIRY, Append, EventHeader, Place
from strandline.values.events import EventRow, plain_bodies
from strandline.values.heads import Head, State
from strandline.values.keys import key_partition
from strandline.values.payloads import BYTES
from strandline.values.tuples import new_tuple


def _slice(start: int, stop: int | None) -> Callable[[Any], bytes]:
    return itemgetter(slice(start, stop))


# A header: its start and checksum, what it says of key and event, then ,"id":"…","digest":"…"}
_COMMA, _BEFORE_ID, _BEFORE_DIGEST, _END = b'",', b',"id":"', b'","digest":"', b'"}'
_begin, _end = struct.Struct("8s8s2s").unpack_from, struct.Struct("7s32s12s32s2s").unpack
_END_BYTES: Final = 85
_HEADER_LEAST: Final = HEADER_SIGNED_AT + _END_BYTES
_signed, _text = _slice(HEADER_SIGNED_AT, None), _slice(HEADER_SIGNED_AT, -_END_BYTES)
_tail, _digest = _slice(-_END_BYTES, None), _slice(-34, -2)
# A value: its version, 1 event, no metadata, the length of the payload, the payload.
_ONE: Final = encode_value([(BYTES, b"", None)])[:9]
_PAYLOAD_AT: Final = 13
_one, _length, _payload = _slice(0, 9), _slice(9, _PAYLOAD_AT), _slice(_PAYLOAD_AT, None)
# These replace a header or a value that does not have this form.
_NO_END: Final = b"".join((_BEFORE_ID, b"0" * 32, _BEFORE_DIGEST, b"0" * 32, _END))
_NO_HEADER: Final = b"".join((HEADER_START, b"0" * 8, _COMMA, _NO_END))
_NO_VALUE: Final = _ONE + bytes(4)
_offset_of, _value_of = itemgetter(1), itemgetter(5)
_hashed = partial(blake2b, digest_size=16)
REMEMBERED_MAX, REMEMBERED_BYTES_MAX = 32768, 1024
"""How many parsed headers are remembered, and how long each may be. A full memory is emptied."""
AT_ONCE: Final = 1000
"""How many records are checked together: few enough to stay in the processor's cache from column to column."""


class Plain(NamedTuple):
    """Columns of plain appends: the rows of a key together, in their order."""

    runs: Sequence[tuple[str, int, int]]
    """Each key, with the index of its first row and the index after its last."""
    at: Sequence[int]
    """The index of each row among all records."""
    records: Sequence[Record]
    lives: Sequence[int | None]
    """Life, first and last number, if the log gave them."""
    firsts: Sequence[int | None]
    lasts: Sequence[int | None]
    events: Sequence[EventHeader]
    ids: tuple[bytes, ...]
    forms: Sequence[int]


NOTHING: Final = Plain((), (), (), (), (), (), (), (), ())


# ---------------------------------------------------------------- records


def plain_of(records: Sequence[Record], partitions: int) -> tuple[Plain, Sequence[Record]]:
    """Return the plain appends among the records of a partition, and the others."""
    runs: dict[Any, list[int]] = {}
    others: set[str | None] = set()
    columns: tuple[list[Any], ...] = ([], [], [], [], [], [])
    for start in range(0, len(records), AT_ONCE):
        part = records[start : start + AT_ONCE]
        placed, _, _, keys, headers, values, *numbers = zip(*part, strict=True)
        *checked, wrong = _checked(placed, keys, headers, values, partitions)
        for column, more in zip(columns, (*numbers, *checked), strict=True):
            column.extend(more)
        others.update([keys[row] for row in wrong])
        for at, key in enumerate(keys, start):
            run = runs.get(key)
            if run is None:
                runs[key] = [at]
            else:
                run.append(at)
    for key in others:
        runs.pop(key, None)
    if not runs:
        return NOTHING, records
    bounds: list[tuple[str, int, int]] = []
    end = 0
    for key, run in runs.items():
        bounds.append((key, end, end := end + len(run)))
    order = tuple(chain.from_iterable(runs.values()))
    plain = Plain(bounds, order, *[_chosen(order, column) for column in (records, *columns)])
    return plain, [record for record in records if record[3] in others] if others else ()


def _checked(
    placed: Sequence[int], keys: Sequence[Any], headers: Sequence[Any], values: Sequence[Any], partitions: int
) -> tuple[Sequence[EventHeader], Sequence[bytes], Sequence[int], set[int]]:
    """Return events, ids and forms of records, and the rows of the records that are not plain."""
    count = len(keys)
    wrong: set[int] = set()
    odd: set[int] = set()
    if (
        not (all(headers) and all(values))
        or min(map(len, headers)) < _HEADER_LEAST
        or min(map(len, values)) < _PAYLOAD_AT
    ):
        both = enumerate(zip(headers, values, strict=True))
        odd = {
            row
            for row, (header, value) in both
            if len(header or b"") < _HEADER_LEAST or len(value or b"") < _PAYLOAD_AT
        }
    while True:  # once, if all of them look plain
        if odd:
            wrong |= odd
            headers, values = _without(odd, headers, _NO_HEADER), _without(odd, values, _NO_VALUE)
        starts, crcs, commas = zip(*map(_begin, headers), strict=True)
        before_ids, ids, before_digests, digests, ends = zip(*map(_end, map(_tail, headers)), strict=True)
        numbers = _unhexed(b"".join(chain(crcs, ids, digests)))
        odd = {
            *_differing(starts, (HEADER_START,) * count),
            *_differing(commas, (_COMMA,) * count),
            *_differing(before_ids, (_BEFORE_ID,) * count),
            *_differing(before_digests, (_BEFORE_DIGEST,) * count),
            *_differing(ends, (_END,) * count),
            *_differing(tuple(map(_one, values)), (_ONE,) * count),
        }
        if numbers is None:
            said = enumerate(zip(crcs, ids, digests, strict=True))
            odd |= {row for row, digits in said if _unhexed(b"".join(digits)) is None}
        elif not odd:
            break
    crcs = struct.unpack_from(f">{count}I", numbers)
    ids = struct.unpack_from("16s" * count, numbers, 4 * count)
    digests = struct.unpack_from("16s" * count, numbers, 20 * count)
    said_keys, said_partitions, events, hashed = zip(
        *map(_plain_headers(partitions).__getitem__, map(_text, headers)), strict=True
    )
    lengths = struct.unpack(f"<{count}I", b"".join(map(_length, values)))
    sizes = tuple(map(len, values))
    wrong.update(
        _differing(said_keys, keys),
        _differing(said_partitions, placed),
        _differing(tuple(map(crc32, map(_signed, headers), repeat(HEADER_OPENED))), crcs),
        _differing(tuple([(length & ~LENGTH_TOP) + _PAYLOAD_AT for length in lengths]), sizes),
        _differing(
            tuple([_hashed(text + value).digest() for text, value in zip(hashed, values, strict=True)]), digests
        ),
        [row for row, size in enumerate(sizes) if size > VALUE_BYTES_MAX] if max(sizes) > VALUE_BYTES_MAX else (),
    )
    return events, ids, [length >> 31 for length in lengths], wrong


class _PlainHeaders(dict[bytes, tuple[str | None, int, EventHeader, bytes]]):
    """The part of plain headers between checksum and id: key, its partition, the event, and how that is hashed.

    A key of None, which fits no record, if a header is not plain.
    """

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self._partitions = partitions

    def __missing__(self, text: bytes) -> tuple[str | None, int, EventHeader, bytes]:
        found = self._found(text)
        if len(text) <= REMEMBERED_BYTES_MAX:
            if len(self) >= REMEMBERED_MAX:
                self.clear()
            self[text] = found
        return found

    def _found(self, text: bytes) -> tuple[str | None, int, EventHeader, bytes]:
        with suppress(BadHeader, SchemaMismatch):
            action = decode_header(sealed(b"{%s%s" % (text, _NO_END)))
            if isinstance(action, Append) and len(action.events) == 1:
                key, events = action.key, action.events
                if action == Append(key, events, "0" * 32, False, "0" * 32):
                    return key, key_partition(key, self._partitions), events[0], digest_input(events[0])
        return None, -1, ("", ()), b""


_plain_headers = lru_cache(maxsize=8)(_PlainHeaders)


# ---------------------------------------------------------------- rows


def add_plain(
    batch: PartitionBatch, plain: Plain, times: Sequence[int], states: dict[str, State], rules: FoldRules
) -> Sequence[Record]:
    """Add the cuts of plain appends to a batch, and update states; return the records that must be carried one by one.

    `times` are those of all records.
    """
    clock = _chosen(plain.at, times)
    numbered = _Numbered()
    left: list[Record] = []
    rows: list[int] = []
    cuts: list[tuple[KeyRun, int]] = []
    for key, start, end in plain.runs:
        folded = _folded(plain, key, start, end, clock, states.get(key), rules)
        if folded is None:
            left += plain.records[start:end]
            continue
        head, effect = folded
        states[key] = batch.states[key] = head
        rows += range(start, end)
        numbered.add(key, effect, end - start, head.segment_size)
        tags = [event[1] for event in plain.events[start:end]]
        cuts.append((KeyRun(key, head, clock[end - 1], tags=tags if any(tags) else ()), end - start))
    if not rows:
        return left
    columns: tuple[Sequence[Any], ...] = (plain.records, plain.events, plain.ids, plain.forms, clock)
    if left:
        columns = tuple([_chosen(rows, column) for column in columns])
    made = numbered.rows(batch.pointer.partition, *columns)
    at = 0
    for cut, count in cuts:
        cut.events = made[at : (at := at + count)]
        batch.cuts.append(cut)
    batch.actions += at
    batch.events += at
    return left


class _Numbered:
    """The columns of rows that the fold gives."""

    __slots__ = ("keys", "lives", "prevs", "seeds", "segments", "seq_nrs", "slices", "types")

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.lives: list[int] = []
        self.segments: list[int] = []
        self.seq_nrs: list[int] = []
        self.prevs: list[int] = []
        self.types: list[str] = []
        self.slices: list[int] = []
        self.seeds: list[int] = []

    def add(self, key: str, effect: EventsAppended, count: int, segment_size: int) -> None:
        """Add a run of a key, with the fold's effect for its first event."""
        first, _, prev, number = effect
        life, numbers = life_of(key, number), range(first, first + count)
        self.keys += [key] * count
        self.lives += [number] * count
        self.segments += _segments(first, count, segment_size)
        self.seq_nrs += numbers
        self.prevs.append(prev)
        self.prevs += numbers[:-1]
        self.types += [life.entity_type] * count
        self.slices += [life.slice] * count
        self.seeds += [life.seed] * count

    def rows(
        self,
        partition: int,
        records: Sequence[Record],
        events: Sequence[EventHeader],
        ids: Sequence[bytes],
        forms: Sequence[int],
        clock: Sequence[int],
    ) -> list[EventRow]:
        """Return the rows, with the columns that their records give."""
        offsets, payloads = map(_offset_of, records), map(_payload, map(_value_of, records))
        bodies = plain_bodies(self.seq_nrs, self.prevs, forms, repeat(partition), offsets, clock, ids, events, payloads)
        made: list[EventRow] = []
        for at in range(0, len(self.keys), AT_ONCE):
            these = slice(at, at + AT_ONCE)
            packed = list(islice(bodies, AT_ONCE))
            columns = zip(
                self.keys[these], self.lives[these], self.segments[these], self.seq_nrs[these], self.prevs[these],
                self.types[these], self.slices[these], repeat(partition), clock[these], packed,
                map(crc32, packed, self.seeds[these]), strict=False,
            )  # fmt: skip
            made += map(new_tuple, repeat(EventRow), columns)
        return made


def _segments(first: int, count: int, size: int) -> list[int]:
    segment = segment_of(first, size)
    if segment == segment_of(first + count - 1, size):
        return [segment] * count
    return [segment_of(seq_nr, size) for seq_nr in range(first, first + count)]


def _folded(
    plain: Plain, key: str, start: int, end: int, clock: Sequence[int], state: State, rules: FoldRules
) -> tuple[Head, EventsAppended] | None:
    """Return the head after a run and the effect of its first append; None if the run must be carried one by one."""
    partition, offset, _, _, header, _, _, _, _ = plain.records[start]
    events, digest = (plain.events[start],), _digest(header).decode()
    action = new_tuple(Append, (key, events, plain.ids[start].hex(), False, digest, None, None, KEEP_EXPIRY, None))
    head, effect = fold(state, action, new_tuple(Place, (partition, offset, clock[start])), rules)
    if not (isinstance(effect, EventsAppended) and isinstance(head, Head)):
        return None
    if end - start > 1:
        _, offset, _, _, header, _, _, _, _ = plain.records[end - 1]
        place = new_tuple(Place, (partition, offset, clock[end - 1]))
        more = extended(head, plain.ids[start:end], _digest(header).decode(), place)
        if more is None:
            return None
        head = more
    # If the log has given numbers itself, and others than the fold, the run is carried one by one.
    if plain.lives[start] is not None:
        numbers = tuple(range(effect.first, effect.first + end - start))
        same = plain.firsts[start:end] == numbers == plain.lasts[start:end]
        if not same or plain.lives[start:end] != (effect.life,) * (end - start):
            return None
    return head, effect


# ---------------------------------------------------------------- columns


def _chosen(at: Sequence[int], column: Sequence[Any]) -> tuple[Any, ...]:
    return itemgetter(*at)(column) if len(at) > 1 else (column[at[0]],)


def _without(rows: Container[int], column: Sequence[bytes], instead: bytes) -> list[bytes]:
    return [instead if row in rows else value for row, value in enumerate(column)]


def _unhexed(digits: bytes) -> bytes | None:
    """Return the bytes of hexadecimal digits; None unless they have the form that this library writes."""
    try:
        data = bytes.fromhex(digits.decode("ascii"))
    except ValueError:
        return None
    return data if data.hex().encode() == digits else None


def _differing(found: Sequence[Any], wanted: Sequence[Any]) -> list[int]:
    """Return the rows where two columns differ."""
    if found == wanted:
        return []
    return [row for row, (one, other) in enumerate(zip(found, wanted, strict=True)) if one != other]
