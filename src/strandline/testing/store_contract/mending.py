"""Views of tags that were damaged: mended in place, from what the journal and the view itself still tell."""

# ruff: noqa: S101
from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from zlib import crc32

import pytest

from strandline.backends.memory.store import MemoryStore
from strandline.carry.tag_findings import ExaminedRow, KeyFacts, TagRebuildCounts
from strandline.carry.tag_mending import TagMender
from strandline.errors import Corrupt, LeaseHeld, LeaseLost, MissingEvent
from strandline.fold import segment_of
from strandline.query.feed import Pace
from strandline.store.api import Store
from strandline.store.correction import Correction
from strandline.store.scans import Scan, events_of, put_back, quarantined
from strandline.store.tables import JOURNAL, Table
from strandline.store.tag_scans import BUCKETS, BY_TIME, IN_BUCKET, PLACES, PROGRESS, is_partitioned
from strandline.store.tag_view import TAG_PLACE, TAG_PROGRESS, TAG_VIEW
from strandline.testing.store_contract.made import KEY, MadeStore, Make, settings_of, state
from strandline.testing.store_contract.tagging import HOUR, counted, query, shown, tagged_tape
from strandline.testing.tape import Tape
from strandline.values.events import EventRow, Life
from strandline.values.heads import Head
from strandline.values.keys import key_partition
from strandline.values.tag_rows import TagPlace, TagProgress, TagRow, resealed

OTHER = "order|7"
Damage = tuple[dict[Table, list[Any]], dict[Table, list[Any]]]
"""Rows anew, and rows that go."""


def rebuilt(store: Store, tape: Tape, tag: str) -> TagRebuildCounts:
    """Mend the view of a tag, as the pipeline does it."""
    lease = store.lease().take("rebuild")
    try:
        mender = TagMender(store, tag, lease.fence, partial(tape.carry_mark, store))
        done = TagRebuildCounts()
        for partition in range(store.settings.partitions):
            for counts in mender.mend_keys(partition):
                done.add(counts)
        for span in mender.spans(3):
            for counts in mender.walk(*span):
                done.add(counts)
        return done
    finally:
        lease.release()


def view_of(store: Store, tag: str) -> list[TagRow]:
    """All rows of a tag."""
    if not is_partitioned(store):
        return list(map(TagRow._make, _all(store, BY_TIME, (tag,))))
    buckets = [row[0] for row in _all(store, BUCKETS, (tag,))]
    return [TagRow._make(row) for bucket in buckets for row in _all(store, IN_BUCKET, (tag, bucket))]


def progress_of(store: Store, keys: Sequence[str], tag: str) -> list[TagProgress]:
    """How far the keys are."""
    found = [row for key, head in _heads(store, keys) for row in _all(store, PROGRESS, (key, head.life))]
    return [row for row in found if row.tag == tag]


def places_of(store: Store, keys: Sequence[str], tag: str) -> list[TagPlace]:
    """Where the keys' rows are, where a table tells it."""
    if not is_partitioned(store):
        return []
    return [
        TagPlace(key, head.life, segment, tag, *row)
        for key, head in _heads(store, keys)
        for segment in range(segment_of(max(head.seq_nr, 1), head.segment_size) + 1)
        for row in _all(store, PLACES, (key, head.life, segment, tag))
    ]


def _heads(store: Store, keys: Sequence[str]) -> Iterator[tuple[str, Head]]:
    for key in keys:
        head = state(store, key)
        if isinstance(head, Head):
            yield key, head


def tables_of(store: Store, tape: Tape, tag: str) -> tuple[list[Any], list[Any], list[Any]]:
    """All that a store keeps for a tag."""
    keys = tape.all_keys()
    return view_of(store, tag), progress_of(store, keys, tag), places_of(store, keys, tag)


def _all(store: Store, scan: Scan, equal: tuple[Any, ...]) -> Iterator[Any]:
    after, more = None, True
    while more:
        page = store.scan(scan, equal, after=after, limit=100)
        yield from page.rows
        more = page.more and bool(page.rows)
        after = scan.place_of(page.rows[-1]) if page.rows else None


def plant(store: Store, tape: Tape, key: str, damage: Damage) -> bool:
    """Change rows of a key as damage would; False if the store does not take it."""
    partition = key_partition(key, store.settings.partitions)
    anew, gone = damage
    with tape.correcting(store, partition) as amend:
        try:
            amend(store.pointers()[partition], Correction(anew=anew, gone=gone))
        except Corrupt:
            return False
    return True


def _in_journal(store: Store, row: TagRow) -> bool:
    head = state(store, row.key)
    return isinstance(head, Head) and row.seq_nr > head.delete_to and bool(row.body)


def damages(store: Store, row: TagRow, progress: TagProgress, place: TagPlace | None) -> dict[str, Damage]:
    """Each kind of damage to a row, or to what is kept of its key."""
    changed = bytearray(row.body or b"x")
    changed[-1] ^= 1
    on_view: dict[str, Damage] = {
        "number": ({TAG_VIEW: [row._replace(tag_seq_nr=row.tag_seq_nr + 700)]}, {}),
        "link": ({TAG_VIEW: [row._replace(previous_timestamp=row.previous_timestamp + 1)]}, {}),
        "life": (
            {TAG_VIEW: [resealed(row._replace(life=row.life + 9, timestamp=row.timestamp + 1))]},
            {},
        ),
        "doubled": (
            {TAG_VIEW: [resealed(row._replace(timestamp=row.timestamp + 2, tag_seq_nr=row.tag_seq_nr + 600))]},
            {},
        ),
    }
    if row.body:
        on_view["moved"] = {TAG_VIEW: [resealed(row._replace(timestamp=row.timestamp + 3))]}, {TAG_VIEW: [row]}
        on_view["bucket"] = {TAG_VIEW: [resealed(row._replace(bucket=row.bucket + 1))]}, {TAG_VIEW: [row]}
    if _in_journal(store, row):
        on_view |= {
            "removed": ({}, {TAG_VIEW: [row]}),
            "renumbered": ({TAG_VIEW: [resealed(row._replace(tag_seq_nr=row.tag_seq_nr + 900))]}, {}),
            "body": ({TAG_VIEW: [row._replace(body=bytes(changed))]}, {}),
            "prev": ({TAG_VIEW: [row._replace(prev_seq_nr=row.prev_seq_nr + 5)]}, {}),
            "blank": ({TAG_VIEW: [row._replace(body=b"", digest=0)]}, {}),
        }
    on_view["progress lost"] = {}, {TAG_PROGRESS: [progress]}
    on_view["progress wrong"] = {TAG_PROGRESS: [progress._replace(seq_nr=1, tag_seq_nr=1)]}, {}
    if place is not None:
        on_view["place lost"] = {}, {TAG_PLACE: [place]}
        on_view["place wrong"] = {TAG_PLACE: [place._replace(timestamp=place.timestamp + 5, tag_seq_nr=77)]}, {}
        on_view["place extra"] = {TAG_PLACE: [place._replace(seq_nr=place.segment * 3 + 3, timestamp=5)]}, {}
    return on_view


class Meanwhile(Pace):
    """A query that pauses lets something happen, once."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._acts = [act]
        self._time_s = 0.0

    def now_s(self) -> float:
        return self._time_s

    def pause(self, seconds: float) -> None:
        self._time_s += seconds
        while self._acts:
            self._acts.pop()()


class MendingContract(MadeStore):
    """Holes in a tag's view, and its rebuild."""

    @pytest.mark.req("T56", "T57", "T58", "T59", "T60", "T61", "T73")
    @pytest.mark.parametrize("strandline", [True, False])
    def test_a_hole(self, store: Store, strandline: bool) -> None:
        """A1 B1 A2 B2 A3 without the row of A2: the query stops and says so; where it comes back, each comes once."""
        tape = Tape()
        for key in (KEY, OTHER, KEY, OTHER, KEY):
            tape.append(key, tags=("red",))
        tape.carry(store)
        rows = view_of(store, "red")
        given: dict[str, Any] = {} if strandline else {"use_strandline": False, "eventual_consistency_delay_s": 0}
        assert plant(store, tape, KEY, ({}, {TAG_VIEW: [rows[2]]}))
        tape.mark()
        tape.carry(store)
        events = query(store, "red", gap_timeout_s=0, **given)
        got: list[Any] = []
        with pytest.raises(MissingEvent) as stopped:
            got.extend(events)
        assert [(str(event.key), event.tag_seq_nr) for event in got] == [(KEY, 1), (OTHER, 1), (OTHER, 2)]
        assert stopped.value.missing == {KEY: (1, 2, 2, 1)}
        assert stopped.value.last_known_offset == got[0].offset
        events = query(store, "red", gap_timeout_s=5, **given)
        events._pace = Meanwhile(lambda: plant(store, tape, KEY, ({TAG_VIEW: [rows[2]]}, {})))
        numbers = [(str(event.key), event.tag_seq_nr) for event in events]
        assert numbers == [(KEY, 1), (OTHER, 1), (OTHER, 2), (KEY, 2), (KEY, 3)]
        assert events.strandline_violations == (1 if strandline else 0)

    @pytest.mark.req("T81", "T82", "T83", "T84", "RR8", "J118")
    @pytest.mark.parametrize("seed", range(2))
    def test_rebuild_equals(self, make: Make, seed: int) -> None:
        """Rows removed, changed, added, moved at random: mended, the tables are what they were, byte for byte."""
        chance = random.Random(seed)
        tape = tagged_tape(seed, actions=60 if self.quick else 25, keys=4, partitions=2)
        store = make(settings_of(partitions=2))
        tape.carry(store)
        for listed in quarantined(store):
            if chance.random() < 0.5:
                tape.resolve(store, listed.offset, "skip", partition=listed.partition)
        tag = "red"
        before = tables_of(store, tape, tag)
        assert before[0]
        assert rebuilt(store, tape, tag) == TagRebuildCounts(keys=_living(store, tape), rows=len(before[0]))
        kinds: set[str] = set()
        hurt: set[str] = set()
        for row in chance.sample(before[0], min(8, len(before[0]))):
            if row.key in hurt:
                continue  # one at a time: what nothing proves any more cannot be mended
            hurt.add(row.key)
            (progress,) = [each for each in before[1] if (each.key, each.life) == (row.key, row.life)]
            places = [each for each in before[2] if each[:2] == (row.key, row.life) and each.seq_nr == row.seq_nr]
            kind, damage = chance.choice(sorted(damages(store, row, progress, next(iter(places), None)).items()))
            assert plant(store, tape, row.key, damage), kind
            kinds.add(kind)
        assert tables_of(store, tape, tag) != before, kinds
        done = rebuilt(store, tape, tag)
        assert done != TagRebuildCounts(keys=done.keys, rows=done.rows), kinds
        assert tables_of(store, tape, tag) == before, kinds
        assert rebuilt(store, tape, tag) == TagRebuildCounts(keys=done.keys, rows=len(before[0])), kinds
        assert shown(query(store, tag)) == counted_now(tape, store, tag)

    @pytest.mark.req("T81", "T83", "T84", "J118")
    def test_each_kind_of_damage_is_mended(self, make: Make) -> None:
        """One of each kind to a row of a deleted event, to one in the journal, to a filler: named, and then none."""
        for at in range(4) if self.quick else (1,):
            store = make(settings_of())
            tape = _four()
            tape.carry(store)
            (bad,) = quarantined(store)
            tape.resolve(store, bad.offset, "skip")
            before = tables_of(store, tape, "red")
            row = before[0][at]
            (progress,) = [each for each in before[1] if each.key == row.key]
            place = next((each for each in before[2] if (each.key, each.seq_nr) == (row.key, row.seq_nr)), None)
            for kind, damage in [*damages(store, row, progress, place).items()][:: 1 if self.quick else 4]:
                listed = len(put_back(store, 0))
                assert plant(store, tape, row.key, damage), kind
                if kind != "place extra" or tables_of(store, tape, "red") != before:
                    assert tables_of(store, tape, "red") != before, kind
                    done = rebuilt(store, tape, "red")
                    assert done != TagRebuildCounts(keys=done.keys, rows=done.rows), kind
                assert tables_of(store, tape, "red") == before, (at, kind)
                assert shown(query(store, "red")) == counted_now(tape, store, "red"), kind
                added = put_back(store, 0)[listed:]
                if kind in ("removed", "moved") or (kind == "bucket" and is_partitioned(store)):
                    assert [each[2:] for each in added] == [
                        (row.key, row.life, row.seq_nr, row.timestamp, "red", row.tag_seq_nr)
                    ]
                if kind in ("number", "link", "doubled", "life", "progress lost", "progress wrong"):
                    assert not added, kind
            numbers = [each.number for each in put_back(store, 0)]
            assert numbers == sorted(set(numbers))

    @pytest.mark.req("T81", "T82", "P20", "P96")
    def test_a_view_that_is_gone(self, store: Store) -> None:
        """All of it comes back that the journal has; numbers go on where deleted ones were lost. A purge takes all."""
        tape = Tape()
        tape.append(KEY, ["a", "b", "c", "d"], tags=("red",))
        tape.append(OTHER, ["x"], tags=("red", "blue"))
        tape.later(2 * HOUR)
        tape.append(KEY, ["e", "f"], tags=("red",))
        tape.delete(KEY, 2, 1)
        tape.mark()
        tape.carry(store)
        whole, other = shown(query(store, "red")), tables_of(store, tape, "blue")
        rows = view_of(store, "red")
        places: Sequence[Any] = places_of(store, [KEY, OTHER], "red")
        gone: dict[Table, list[Any]] = {TAG_VIEW: [*rows], TAG_PLACE: [*places]} if places else {TAG_VIEW: [*rows]}
        assert plant(store, tape, KEY, ({}, gone))
        done = rebuilt(store, tape, "red")
        assert (done.missing, done.wrong, done.extra) == (5, 0, 0)
        with pytest.raises(MissingEvent) as stopped:
            list(query(store, "red", gap_timeout_s=0))
        assert stopped.value.missing == {KEY: (1, 1, 2, 2)}
        left = [row for row in whole if row.key == OTHER or row.tag_seq_nr > 2]
        assert shown(query(store, "red", seen={KEY: (1, 2)})) == left
        assert tables_of(store, tape, "blue") == other
        listed = put_back(store, 0)
        assert len(listed) == 5
        assert put_back(store, 0, after=listed[0].number, to=listed[3].number) == listed[1:4]
        tape.append(OTHER, ["y"])
        tape.carry(store)
        tape.purge(KEY)
        tape.carry(store)
        assert [(row.key, row.tag) for row in put_back(store, 0)] == [(OTHER, "red")]
        assert [row.key for row in view_of(store, "red")] == [OTHER]

    @pytest.mark.req("T88", "T82", "RR8")
    @pytest.mark.parametrize("at", [1, 3, 5])
    @pytest.mark.parametrize("hurt", ["lost", "damaged"])
    @pytest.mark.parametrize("row_lost", [False, True])
    def test_what_a_damaged_journal_cannot_prove_is_left_alone(
        self, store: Store, at: int, hurt: str, *, row_lost: bool
    ) -> None:
        """A row of the journal is lost or damaged, and that of the view there or not: nothing else in the view changes,
        and no number is given twice, also not after the last event."""
        tape = _five()
        tape.carry(store)
        before = tables_of(store, tape, "red")
        row = before[0][at - 1]
        hurt_journal(store, tape, {at: hurt})
        if row_lost:
            assert plant(store, tape, KEY, ({}, {TAG_VIEW: [row]}))
        left = tables_of(store, tape, "red")
        found = rebuilt(store, tape, "red")
        assert tables_of(store, tape, "red") == left
        assert (found.lost, found.unproven) == ((1, 0) if row_lost else (0, int(hurt == "lost")))
        assert rebuilt(store, tape, "red") == found
        if row_lost and at < 5:
            with pytest.raises(MissingEvent) as stopped:
                list(query(store, "red", gap_timeout_s=0))
            assert stopped.value.missing == {KEY: (1, at, at, 1)}
        tape.append(KEY, ["more"], tags=("red",))
        tape.mark()
        tape.carry(store)
        assert view_of(store, "red")[-1].tag_seq_nr == 6

    @pytest.mark.req("T88", "T82", "RR8")
    @pytest.mark.parametrize("seed", range(12))
    def test_no_number_is_made_up_beside_a_damaged_journal(self, store: Store, seed: int) -> None:
        """Rows of the journal are lost and damaged, rows and places of the view, too: what is there stays, and what
        comes back is what was there."""
        if seed and not self.quick:
            pytest.skip("one is enough where each takes long")
        chance = random.Random(seed)
        tape = Tape()
        for _ in range(chance.randint(4, 12)):
            tape.append(KEY, ["x"] * chance.randint(1, 3), tags=chance.choice([("red",), ("red",), ()]))
            tape.later(chance.choice([1, HOUR]))
        if chance.random() < 0.3:
            tape.delete(KEY, 2, 1)
        tape.append(KEY, tags=("red",))
        tape.mark()
        tape.carry(store)
        before = tables_of(store, tape, "red")
        numbers = [event.seq_nr for event in events_in(store)]
        hurt_journal(store, tape, {n: chance.choice(["lost", "damaged"]) for n in numbers if chance.random() < 0.3})
        gone: dict[Table, list[Any]] = {TAG_VIEW: [row for row in before[0] if chance.random() < 0.3]}
        if chance.random() < 0.5:
            gone[TAG_PLACE] = [place for place in before[2] if chance.random() < 0.3]
        assert plant(store, tape, KEY, ({}, gone))
        left = tables_of(store, tape, "red")
        found = rebuilt(store, tape, "red")
        after = tables_of(store, tape, "red")
        assert set(left[0]) <= set(after[0])
        numbers_after = {row.tag_seq_nr for row in after[0]}
        for row in after[0]:
            (was,) = [each for each in before[0] if each.seq_nr == row.seq_nr]
            alone = row.tag_seq_nr - 1 not in numbers_after and row.seq_nr > 2  # the row of a deleted event is lost
            link = {"previous_timestamp": 0, "previous_seq_nr": 0, "row_digest": 0} if alone else {}
            assert row._replace(**link) == was._replace(**link)
        assert left[1] == after[1]
        assert set(left[2]) <= set(after[2]) <= set(before[2])
        assert set(before[0]) == set(after[0]) or found.lost + found.unproven
        again = rebuilt(store, tape, "red")
        assert (again.lost, again.unproven, again.missing) == (found.lost, found.unproven, 0)
        assert tables_of(store, tape, "red") == after

    @pytest.mark.req("T88", "RR8")
    def test_rows_stay_whose_life_nobody_knows_to_be_over(self, store: Store) -> None:
        """A whole row of a key and life of which the store knows nothing: nobody says that it was purged."""
        tape = _five()
        tape.carry(store)
        whole, life = view_of(store, "red")[4], Life("order|none", 1)
        row = resealed(whole._replace(key=life.key, digest=crc32(whole.body, life.seed)))
        later = resealed(
            whole._replace(life=9, digest=crc32(whole.body, Life(KEY, 9).seed), timestamp=whole.timestamp + 1)
        )
        for each in (row, later):
            assert plant(store, tape, each.key, ({TAG_VIEW: [each]}, {}))
        left = tables_of(store, tape, "red")
        found = rebuilt(store, tape, "red")
        assert (found.extra, found.unproven) == (0, 2)
        assert tables_of(store, tape, "red") == left

    @pytest.mark.req("T81", "T86")
    def test_a_correction_in_between_is_seen(self, store: Store) -> None:
        """Where an operator needs no lease: what is skipped while a rebuild looks at the key is not put back."""
        tape = _four()
        tape.carry(store)
        (bad,) = quarantined(store)
        row = view_of(store, "red")[1]
        assert plant(store, tape, KEY, ({}, {TAG_VIEW: [row]}))
        if is_partitioned(store):
            return
        mender = Interrupted(store, tape, bad.offset)
        assert [counts.missing for counts in mender.mend_keys(0)] == [1]
        assert mender.looked > 1
        assert rebuilt(store, tape, "red") == TagRebuildCounts(keys=2, rows=6)
        assert shown(query(store, "red")) == counted_now(tape, store, "red")
        assert [each.body for each in view_of(store, "red")].count(b"") == 1

    @pytest.mark.req("T81")
    def test_nothing_is_mended_without_the_lease(self, store: Store) -> None:
        """Beside a pipeline it is refused; under a fence that is over nothing changes. An unknown tag is no error."""
        tape = Tape()
        tape.append(KEY, ["a", "b"], tags=("red",))
        tape.mark()
        tape.carry(store)
        assert rebuilt(store, tape, "nobody's") == TagRebuildCounts(keys=1)
        row = view_of(store, "red")[0]
        assert plant(store, tape, KEY, ({}, {TAG_VIEW: [row]}))
        left = tables_of(store, tape, "red")
        old = store.lease().take("the one before")
        with pytest.raises(LeaseHeld):
            rebuilt(store, tape, "red")
        old.release()
        new = store.lease().take("a pipeline")
        late = TagMender(store, "red", old.fence, partial(tape.carry_mark, store))
        with pytest.raises(LeaseLost):
            list(late.mend_keys(0))
        assert tables_of(store, tape, "red") == left
        new.release()
        assert rebuilt(store, tape, "red").missing == 1


class Interrupted(TagMender):
    """A rebuild during whose first look at a key an operator skips a damaged event of it."""

    def __init__(self, store: Store, tape: Tape, offset: int) -> None:
        super().__init__(store, "red", store.pointers()[0].fence, partial(tape.carry_mark, store))
        self._tape, self._offset = tape, offset
        self.looked = 0

    def _rows(self, life: Life, journal: KeyFacts, places: dict[int, tuple[int, int]]) -> list[ExaminedRow]:
        found = super()._rows(life, journal, places)
        if life.key == KEY:
            self.looked += 1
            if self.looked == 1:
                self._tape.resolve(self._store, self._offset, "skip")
        return found


def events_in(store: Store) -> list[EventRow]:
    """The rows of the journal of the first partition."""
    return list(events_of(store, 0, after=(-1, 0), to=2**62, limit=1000).rows)


def hurt_journal(store: Store, tape: Tape, how: dict[int, str]) -> None:
    """Lose or damage rows of the key's journal, by number."""
    if isinstance(store, MemoryStore):
        pytest.skip("a store in memory has no rows of a journal that could be damaged")
    anew, gone = [], []
    for row in events_in(store):
        if row.key == KEY and row.seq_nr in how:
            gone.append(row) if how[row.seq_nr] == "lost" else anew.append(row._replace(digest=row.digest ^ 1))
    assert plant(store, tape, KEY, ({JOURNAL: anew} if anew else {}, {JOURNAL: gone} if gone else {}))


def _five() -> Tape:
    """Five events of a key under a tag, and one of another key."""
    tape = Tape()
    for _ in range(5):
        tape.append(KEY, ["x"], tags=("red",))
    tape.append(OTHER, ["y"])
    tape.mark()
    return tape


def _living(store: Store, tape: Tape) -> int:
    return len(list(_heads(store, tape.all_keys())))


def _four() -> Tape:
    """A row of a deleted event, one that the journal has, a filler, one of another key; over two buckets."""
    tape = Tape()
    tape.append(KEY, ["a"], tags=("red", "blue"))
    tape.append(KEY, ["b"], tags=("red",))
    tape.later(HOUR)
    tape.append(KEY, ["bad"], tags=("red",), damaged="digest")
    tape.append(KEY, ["d", "e"], tags=("blue",))
    tape.append(OTHER, ["x", "y"], tags=("red",))
    tape.append(KEY, ["f"], tags=("red",))
    tape.delete(KEY, 1, 1)
    tape.mark()
    return tape


def counted_now(tape: Tape, store: Store, tag: str) -> list[Any]:
    """Return the rows that a query shows: all that were counted over the log, but the skipped ones."""
    filled = {row.place for row in view_of(store, tag) if not row.body}
    bound = min(pointer.timestamp for pointer in store.pointers())
    return [row for row in counted(tape, tag) if row[:3] not in filled and row.timestamp <= bound]
