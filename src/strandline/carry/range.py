"""Carry one partition from the log into the store: what a Spark task does, as plain functions.

    records ──decode──▶ actions ──fold on the store's states──▶ effects ──rows──▶ one Batch ──▶ store.write

Rows are prepared outside the store's lock, from the pointer and states of one moment, and written only if the partition
has not moved since; else they are prepared again. Between calls, nothing is kept outside the store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from strandline.carry.columns import NOTHING, Plain, add_plain, plain_of
from strandline.errors import NotFound, SchemaMismatch, Unavailable
from strandline.fold import EventsAppended, EventsDeleted, LifePurged, fold
from strandline.log.api import Log
from strandline.log.cursor import PAGE_BYTES
from strandline.log.refusals import trimmed_away
from strandline.points import reached
from strandline.record import (
    VALUE_BYTES_MAX,
    BadHeader,
    BadValue,
    Content,
    Record,
    decode_header,
    event_count,
    read_contents,
    tag_count,
    time_of,
)
from strandline.record_numbers import check_numbers, salvaged_action
from strandline.rows import DAMAGED_FORMS, KeyRun, PartitionBatch, Pointer, QuarantineRow, damaged_contents, event_rows
from strandline.settings import Settings
from strandline.store.api import KeyStates, Store, StoreSettings
from strandline.store.views import View, add_rows
from strandline.values.actions import Action, Append, Mark, Place, Purge
from strandline.values.heads import Head, State
from strandline.values.keys import key_partition
from strandline.values.tuples import new_tuple

PREPARE_ATTEMPTS_MAX = 5
PAGE_RECORDS: Final = 2000
EVENT_OVERHEAD_BYTES: Final = 1024
_offset_of, _header_of, _value_of = itemgetter(1), itemgetter(4), itemgetter(5)


class CarryStore(Protocol):
    """The part of a store that carrying a range needs."""

    @property
    def views(self) -> Sequence[View]: ...

    def look(self, partition: int, keys: Collection[str], followed: Collection[str] = ()) -> KeyStates: ...

    def write(self, batch: PartitionBatch, seen: Pointer) -> None: ...


class CarriedRange(NamedTuple):
    """Records of a partition from offset `start` up to `position` - 1, all of them."""

    partition: int
    start: int
    position: int
    records: Sequence[Record]
    exact: bool = True
    """Whether the records come from an exact log. Else their timestamps are derived from the pointer's."""


class CarryResult(NamedTuple):
    """The result of carrying: how many actions and events it added to the store."""

    actions: int
    events: int
    pointer: Pointer


class Decoded(NamedTuple):
    """A record and its action; or the reason why it cannot be read, and the salvaged action, if any."""

    record: Record
    action: Action | None
    reason: str = ""


def carry(store: CarryStore, settings: StoreSettings, range_: CarriedRange, fence: int) -> CarryResult:
    """Write a range into the store, its pointer last; what is at or below the pointer is dropped.

    A record of a newer version stops the partition there: what comes before it is written, then
    `SchemaMismatch.version` is raised.
    """
    plain, others = plain_of(range_.records, settings.partitions)
    decoded, newer = decode(others, settings.partitions)
    if newer is not None:
        at, error = newer
        if at > range_.start:
            before = [record for record in range_.records if record.offset < at]
            carry(store, settings, range_._replace(position=at, records=before), fence)
        raise error
    return _carry(store, settings, range_, plain, decoded, fence)


def carry_range(
    log: Log, store: Store, partition: int, start: int, position: int, fence: int, settings: Settings
) -> Iterator[CarryResult]:
    """Carry offsets `start` to `position` - 1, read page by page; each commit has up to about `batch_bytes_max`."""
    records: list[Record] = []
    size, at = 0, start
    while at < position:
        try:
            page = log.read(partition, after=at - 1, to=position - 1, limit=PAGE_RECORDS, bytes_max=PAGE_BYTES)
        except NotFound as error:
            raise trimmed_away(partition, at, error.earliest - 1) from None
        if page.position <= at:
            break
        for piece, at, more in _pieces(page.records, page.position, settings.batch_bytes_max):
            records += piece
            size += more
            if size >= settings.batch_bytes_max:
                yield carry(store, store.settings, CarriedRange(partition, start, at, records, log.exact), fence)
                start, records, size = at, [], 0
    if at > start:
        yield carry(store, store.settings, CarriedRange(partition, start, at, records, log.exact), fence)


def _pieces(records: list[Record], position: int, bytes_max: int) -> Iterator[tuple[list[Record], int, int]]:
    """Yield records up to a position, cut where they take more than so much memory; each piece with its position and
    size."""
    size = _size_of(records)
    if len(records) < 2 or size <= bytes_max:
        yield records, position, size
        return
    reached("carry.cut_by_bytes")
    middle = len(records) // 2
    yield from _pieces(records[:middle], records[middle - 1].offset + 1, bytes_max)
    yield from _pieces(records[middle:], position, bytes_max)


def _size_of(records: Sequence[Record]) -> int:
    """Return about how much memory it takes to carry these records, with the rows that their events and tags become."""
    headers, values = b"".join(filter(None, map(_header_of, records))), list(filter(None, map(_value_of, records)))
    size = sum(map(len, values))
    events = min(event_count(values), size // 8)
    return size + len(headers) + EVENT_OVERHEAD_BYTES * (events + tag_count(headers, len(values), events))


def carry_up_to(
    log: Log, store: Store, partition: int, to: int, fence: int, settings: Settings, *, limit: int | None = None
) -> CarryResult:
    """Carry a partition from its pointer up to an offset, range by range; at most `limit` offsets."""
    done = CarryResult(0, 0, store.pointers()[partition])
    start = done.pointer.offset + 1
    position = to + 1 if limit is None else min(to + 1, start + limit)
    for at in range(start, position, settings.batch_actions_max):
        end = min(at + settings.batch_actions_max, position)
        for step in carry_range(log, store, partition, at, end, fence, settings):
            done = CarryResult(done.actions + step.actions, done.events + step.events, step.pointer)
    return done


def _carry(
    store: CarryStore,
    settings: StoreSettings,
    range_: CarriedRange,
    plain: Plain,
    decoded: Sequence[Decoded],
    fence: int,
) -> CarryResult:
    keys = {item.action.key for item in decoded if item.action is not None and item.action.key is not None}
    keys.update(key for key, _, _ in plain.runs)
    followed = _followed(plain, decoded, store.views)
    for _ in range(PREPARE_ATTEMPTS_MAX):
        look = store.look(range_.partition, keys, followed)
        seen = look.pointer
        if look.unfinished:
            reached("carry.ends_a_purge_that_was_killed")
        if range_.start > seen.offset + 1:
            raise Unavailable(
                f"partition {range_.partition}: the range starts at {range_.start}, the pointer is at {seen.offset}",
                code="serialization",
                hint="the range is planned again from the pointers",
                partition=range_.partition,
            )
        if range_.position - 1 <= seen.offset:
            reached("carry.all_is_there")
            return CarryResult(0, 0, seen)
        batch = prepare(range_, decoded, look, settings, fence, plain, store.views)
        try:
            store.write(batch, seen)
        except Unavailable as error:
            if error.code != "serialization":
                raise
            reached("carry.moved_meanwhile")
        else:
            return CarryResult(batch.actions, batch.events, batch.pointer)
    raise Unavailable(
        f"partition {range_.partition} moved {PREPARE_ATTEMPTS_MAX} times under the pipeline",
        code="serialization",
        hint="it is tried again; see `strandline status` for who else writes this store",
        partition=range_.partition,
    )


def decode(records: Iterable[Record], partitions: int) -> tuple[list[Decoded], tuple[int, SchemaMismatch] | None]:
    """Return actions of records up to the first of a newer version, which comes with its offset."""
    decoded = []
    for record in records:
        partition, offset, _, written, header, _, _, _, _ = record
        try:
            action = decode_header(header)
        except BadHeader as bad:
            decoded.append(_unreadable(record, bad.reason, partitions))
            continue
        except SchemaMismatch as error:
            return decoded, (offset, error)
        key = action.key
        if key != written:
            decoded.append(_unreadable(record, "key", partitions))
        elif key is not None and key_partition(key, partitions) != partition:
            decoded.append(Decoded(record, None, "partition"))
        else:
            decoded.append(new_tuple(Decoded, (record, action, "")))
    return decoded, None


def _unreadable(record: Record, reason: str, partitions: int) -> Decoded:
    left = salvaged_action(record)
    if left is not None and key_partition(left.key, partitions) != record.partition:
        left = None
    return Decoded(record, left, reason)


def prepare(
    range_: CarriedRange,
    decoded: Sequence[Decoded],
    look: KeyStates,
    settings: StoreSettings,
    fence: int,
    plain: Plain = NOTHING,
    views: Sequence[View] = (),
) -> PartitionBatch:
    """Return the batch of a range, folded on what the store had of its keys. Pure."""
    seen = look.pointer
    batch = PartitionBatch(pointer=seen)
    states: dict[str, State] = {**look.states, **look.unfinished}
    times, done, rules = _times(range_, seen), seen.offset, settings.rules
    last_action_at = seen.last_action_at
    if plain.runs:
        if range_.records[0].offset <= done:  # some of the events are in the store already: look at each
            reached("carry.part_is_there")
            left = plain.records
        else:
            left = add_plain(batch, plain, times, states, rules)
            last_action_at = max([last_action_at, *[cut.timestamp for cut in batch.cuts]])
        if left:
            reached("carry.plain_ones_looked_at")
            decoded = sorted([*decoded, *decode(left, settings.partitions)[0]], key=lambda item: item.record.offset)
    clock = {} if range_.exact else dict(zip(map(_offset_of, range_.records), times, strict=True))
    open_cuts: dict[str, KeyRun] = {}
    for record, action, reason in decoded:
        partition, offset, timestamp, _, _, _, life, _, _ = record
        if offset <= done:
            continue
        if clock:
            timestamp = clock[offset]
        if action is None:
            batch.quarantine.append(_listed(record, timestamp, reason))
            continue
        batch.actions += 1
        if isinstance(action, Mark):
            continue
        last_action_at, key = max(last_action_at, timestamp), action.key
        place = new_tuple(Place, (partition, offset, timestamp))
        before = states.get(key)
        state, effect = fold(before, action, place, rules)
        if life is not None:
            check_numbers(record, before, state, effect)
        if state is before:
            reached("carry.changed_nothing")
            continue
        states[key] = batch.states[key] = state
        cut = open_cuts.get(key)
        if cut is None:
            cut = open_cuts[key] = KeyRun(key, state)
            batch.cuts.append(cut)
        cut.state, cut.timestamp = state, timestamp
        if isinstance(effect, EventsAppended) and isinstance(action, Append) and isinstance(state, Head):
            _add_events(batch, cut, record, action, place, effect, state.segment_size, reason)
            continue
        if reason:
            batch.quarantine.append(_listed(record, timestamp, reason))
        if isinstance(effect, (EventsDeleted, LifePurged)):
            cut.ended_by, cut.before = effect, before
            del open_cuts[key]
    last = times[-1] if times and range_.records[-1].offset > done else seen.timestamp
    batch.pointer = Pointer(seen.partition, range_.position - 1, last, last_action_at, fence, seen.revision + 1)
    add_rows(batch, views, look.rows)
    return batch


def _followed(plain: Plain, decoded: Sequence[Decoded], views: Sequence[View]) -> set[str]:
    """Return the keys for which views need more than the head, because of one of their events or a purge."""
    following = [view.follows for view in views if any(table.looked_up for table in view.tables)]
    if not following:
        return set()
    wanted = {event: any(follows(event) for follows in following) for event in set(plain.events)}
    keys = {key for key, start, end in plain.runs if any(wanted[event] for event in plain.events[start:end])}
    for _, action, _ in decoded:
        if isinstance(action, Purge) or (
            isinstance(action, Append) and any(follows(event) for follows in following for event in action.events)
        ):
            keys.add(action.key)
    return keys


def _times(range_: CarriedRange, seen: Pointer) -> list[int]:
    """Return the timestamps that all readers see, record by record. Those of records carried already are not used."""
    if range_.exact:
        return [record[2] for record in range_.records]
    times = []
    before, done = seen.timestamp, seen.offset
    for _, offset, recorded, _, header, _, _, _, _ in range_.records:
        if offset > done:
            before = time_of(recorded, header, before)
        times.append(before)
    return times


def _add_events(
    batch: PartitionBatch,
    cut: KeyRun,
    record: Record,
    action: Append,
    place: Place,
    effect: EventsAppended,
    segment_size: int,
    reason: str,
) -> None:
    """Add the rows of an append; damaged rows if its header (`reason`) or its value cannot be read."""
    try:
        contents: Sequence[Content] = read_contents(action, record.value)
    except BadValue as bad:
        contents = damaged_contents(len(action.events), DAMAGED_FORMS[bad.reason])
        batch.quarantine.append(_listed(record, place.timestamp, reason or bad.reason, effect))
    rows = event_rows(action, place, effect, segment_size, contents)
    if cut.tags or any(tags for _, tags in action.events):
        cut.tags = [*(cut.tags or [()] * len(cut.events)), *[tags for _, tags in action.events]]
    cut.events += rows
    batch.events += len(action.events)


def _listed(record: Record, timestamp: int, reason: str, effect: EventsAppended | None = None) -> QuarantineRow:
    value = record.value if record.value is None else record.value[:VALUE_BYTES_MAX]
    numbers = (effect.life, effect.first, effect.last) if effect else (None, None, None)
    return QuarantineRow(record.partition, record.offset, timestamp, record.key, reason, record.header, value, *numbers)
