"""Views of tags without transactions: a death before any write, and what the next run makes of it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from strandline.backends.cassandra.session import CqlRequest
from strandline.errors import Corrupt, NotFound, Unavailable
from strandline.store.scans import put_back
from strandline.store.tag_view import TAG_PLACE, TAG_PROGRESS, TAG_VIEW
from strandline.testing.faults import Crash
from strandline.testing.last_write_wins import LastWriteWinsStore
from strandline.testing.store_contract import settings_of
from strandline.testing.store_contract.mending import plant, rebuilt, tables_of, view_of
from strandline.testing.store_contract.tagging import HOUR, TAGS, counted, query, shown, tagged_tape
from strandline.testing.tape import Tape
from strandline.values.tag_rows import resealed
from tests.store.keyspaces import RELAXED, EmptyStores
from tests.store.sessions import dies_at, row_by_row
from tests.store.test_last_write_wins import DiesAt, rows

KEY, OTHER = "order|42", "order|7"


def story() -> Tape:
    """Several keys, tags and buckets; a delete, a purge and a new life."""
    tape = Tape()
    tape.append(KEY, ["a", "b"], tags=("red", "blue"))
    tape.later(HOUR)
    tape.append(OTHER, ["x"], tags=("red",))
    tape.append(KEY, ["c"])
    tape.append(KEY, ["d"], tags=("blue",))
    tape.delete(KEY, 2, 1)
    tape.later(HOUR)
    tape.append(KEY, ["e"], tags=("red",))
    tape.purge(KEY)
    tape.append(KEY, ["f"], tags=("red", "été"))
    tape.append(OTHER, ["y"], tags=("red",))
    tape.mark()
    return tape


def carried(tape: Tape, size: int | None) -> LastWriteWinsStore:
    store = LastWriteWinsStore(settings_of(segment_size=2))
    tape.carry(store, size=size)
    return store


@pytest.mark.req("T19", "T22", "T31", "T34", "T35", "T36", "T37", "T38", "T41", "RJ10")
@pytest.mark.parametrize("then_size", [2, None])
@pytest.mark.parametrize("size", [1, 3, None])
def test_kill_sweep(size: int | None, then_size: int | None) -> None:
    """At every write: queries show what the strandline covers, and the redo ends in the rows of an undisturbed run.

    The places of the seed are among them: rows and progress written, progress lost, rows lost.
    """
    tape = story()
    whole = rows(carried(tape, size))
    for point in range(100_000):
        store = LastWriteWinsStore(settings_of(segment_size=2))
        store.before_write = hook = DiesAt(point)
        with contextlib.suppress(Crash):
            tape.carry(store, size=size)
        if hook.left:
            assert point > 50
            return
        bound = store.pointers()[0]
        for tag in TAGS:
            ended = _purged_before(tape, bound.offset)
            covered = [row for row in counted(_up_to(tape, bound.offset), tag) if (row.key, row.life) not in ended]
            seen = [row for row in shown(query(store, tag)) if (row.key, row.life) not in ended]
            # What a purge that is under way takes may be gone already, or not yet.
            assert [row for row in seen if (row.key, row.life) != (KEY, 1)] == [
                row for row in covered if (row.key, row.life) != (KEY, 1)
            ], (point, tag)
        _check_order(store, point)
        store.before_write = lambda table: None
        tape.carry(store, size=then_size)
        assert rows(store) == whole, point
    raise AssertionError("the sweep has no end")


def _up_to(tape: Tape, offset: int) -> Tape:
    part = Tape()
    part.records = [[record for record in records if record.offset <= offset] for records in tape.records]
    return part


def _purged_before(tape: Tape, offset: int) -> set[tuple[str, int]]:
    purge = next(r for r in tape.records[0] if r.header is not None and b"purge" in r.header.lower())
    return {(KEY, 1)} if purge.offset <= offset else set()


def _check_order(store: LastWriteWinsStore, point: int) -> None:
    """A row has its place; progress never speaks of a row that is not there, but in a life that is purged."""
    places = {(row[3], row[5], row[0], row[4]) for row in _all(store, TAG_PLACE)}
    view = {(row[0], row[2], row[3], row[9]) for row in _all(store, TAG_VIEW)}
    assert view <= places, point
    for key, life, tag, _, seq_nr, _, timestamp in _all(store, TAG_PROGRESS):
        assert (key, life) == (KEY, 1) or (tag, timestamp, key, seq_nr) in view, (point, key, tag)


def _all(store: LastWriteWinsStore, table: Any) -> list[Any]:
    return list(store._all(table))


@pytest.mark.req("T38", "T37")
@pytest.mark.parametrize("seed", range(4))
def test_an_older_pointer_that_is_put_back_changes_nothing(seed: int) -> None:
    tape = tagged_tape(seed, actions=40, keys=3)
    store = LastWriteWinsStore(settings_of())
    stages = []
    for record in tape.records[0]:
        stages.append(store.pointers()[0])
        part = _up_to(tape, record.offset)
        part.carry(store)
    whole = rows(store)
    for stage in stages[::5]:
        last = store.pointers()[0]
        store._set_pointer(stage._replace(fence=last.fence, revision=last.revision + 1))
        tape.carry(store, size=3)
        assert rows(store) == whole


@pytest.mark.req("T29", "T38")
@pytest.mark.parametrize("seed", range(3))
def test_die_anywhere_in_random_actions(seed: int) -> None:
    tape = tagged_tape(seed + 20, actions=12, keys=2)
    whole = rows(carried(tape, None))
    for point in range(100_000):
        store = LastWriteWinsStore(settings_of(segment_size=2))
        store.before_write = hook = DiesAt(point)
        with contextlib.suppress(Crash):
            tape.carry(store, size=5)
        if hook.left:
            return
        store.before_write = lambda table: None
        tape.carry(store, size=4)
        assert rows(store) == whole, point


@pytest.mark.req("T28")
def test_one_tag_fails() -> None:
    """Rows of a tag are refused five times: the pointer waits, others are whole, no number is skipped."""
    tape = Tape()
    for at in range(6):
        tape.append(f"order|{at % 2}", ["x"], tags=("red", "blue"))
    tape.mark()
    store = LastWriteWinsStore(settings_of())
    left = [5]

    def refuse(table: str) -> None:
        if table == "tag_view" and left[0]:
            left[0] -= 1
            raise Crash

    store.before_write = refuse
    for _ in range(5):
        with pytest.raises(Crash):
            tape.carry(store)
        assert store.pointers()[0].offset == -1
    tape.carry(store)
    for tag in ("red", "blue"):
        assert shown(query(store, tag)) == counted(tape, tag)


@pytest.mark.req("T86")
def test_a_resolve_that_dies_anywhere_is_done_again() -> None:
    def made() -> tuple[Tape, int]:
        tape = Tape()
        tape.append(KEY, ["a"], tags=("red",))
        first = tape.append(KEY, ["b", "c"], tags=("red", "blue"), damaged="digest")
        tape.append(KEY, ["d"], tags=("red",))
        return tape, first.offset

    for point in range(1000):
        tape, offset = made()
        store = LastWriteWinsStore(settings_of(segment_size=2))
        tape.carry(store)
        store.before_write = hook = DiesAt(point)
        with contextlib.suppress(Crash):
            tape.resolve(store, offset, "skip")
        done = hook.left > 0
        store.before_write = lambda table: None
        if not done:
            store.tables["lease"] = type(store.tables["lease"])()
            assert next(e.tag_seq_nr for e in query(store, "red")) == 1
            with contextlib.suppress(NotFound):  # all but the answer was done
                tape.resolve(store, offset, "skip")
        events = list(query(store, "red"))
        assert [(e.tag_seq_nr, e.payload, e.prev_seq_nr) for e in events] == [(1, "a", 0), (4, "d", 1)], point
        if done:
            assert point > 8
            return


def test_the_error_of_a_damaged_payload_is_ours() -> None:
    tape = Tape()
    tape.append(KEY, ["b"], tags=("red",), damaged="undecodable")
    store = carried(tape, None)
    (event,) = query(store, "red")
    with pytest.raises(Corrupt):
        _ = event.payload


@pytest.mark.req("T81", "T82", "T84", "RR8")
def test_a_rebuild_that_is_killed_at_any_write() -> None:
    """The view was never worse, and the next rebuild ends in the rows of an undisturbed run."""
    tape = story()
    whole = carried(tape, None)
    before = tables_of(whole, tape, "red")
    rows_red = before[0]
    hurt: dict[Any, list[Any]] = {TAG_VIEW: [rows_red[0]._replace(tag_seq_nr=70)]}
    moved = resealed(rows_red[2]._replace(bucket=rows_red[2].bucket + 3))
    hurt[TAG_VIEW].append(moved)
    gone: dict[Any, list[Any]] = {TAG_VIEW: [*rows_red[1:3]], TAG_PLACE: [before[2][0]], TAG_PROGRESS: [before[1][0]]}
    for point in range(100):
        tape = story()
        store = carried(tape, None)
        assert plant(store, tape, KEY, (hurt, gone))
        right = {row.place for row in view_of(store, "red") if row in rows_red}
        store.before_write = hook = DiesAt(point)
        with contextlib.suppress(Crash):
            rebuilt(store, tape, "red")
        store.before_write = lambda table: None
        assert right <= {row.place for row in view_of(store, "red") if row in rows_red}, point
        _free(store)
        rebuilt(store, tape, "red")
        assert tables_of(store, tape, "red") == before, point
        listed = {(row.key, row.seq_nr) for row in put_back(store, 0)}
        assert listed >= {(row.key, row.seq_nr) for row in rows_red[1:3]}, point
        if hook.left:
            assert point > 8
            return
    raise AssertionError("the sweep has no end")


def _free(store: LastWriteWinsStore) -> None:
    """The lease of somebody who died."""
    store.tables["lease"].put("pipeline", 0, {"holder": None, "since": None}, store._now_us())


@RELAXED
@pytest.mark.req("T22", "T31", "T38", "RJ10")
@pytest.mark.parametrize("point", [4, 22, 45, *(pytest.param(n, marks=pytest.mark.soak) for n in range(0, 70, 3))])
def test_kills_on_cassandra(empty_stores: EmptyStores, point: int) -> None:
    """A sample of the sweep on a real node."""
    tape = story()
    store = empty_stores.make(settings_of(segment_size=2))
    row_by_row(store, dies_at(point))
    with contextlib.suppress(Crash):
        tape.carry(store, size=3)
    again = empty_stores.again(settings_of(segment_size=2))
    tape.carry(again, size=2)
    for tag in ("red", "été"):
        assert shown(query(again, tag)) == counted(tape, tag)
    whole = carried(tape, None)
    for table in (TAG_VIEW, TAG_PROGRESS, TAG_PLACE):
        names = [column.name for column in table.columns]
        found = empty_stores.asked(f'SELECT {", ".join(names)} FROM "{empty_stores.url.name}".{table.name}')
        assert sorted(map(tuple, found), key=repr) == sorted(map(tuple, _all(whole, table)), key=repr), table.name


@RELAXED
@pytest.mark.req("T87")
@pytest.mark.timeout(300)
def test_more_purged_rows_than_a_read_may_meet(empty_stores: EmptyStores) -> None:
    """Cassandra refuses to read past 100,000 tombstones: the others are shown all the same."""
    tape = Tape()
    for number in range(20):
        tape.append(f"order|{number % 3}", tags=("red",))
    tape.later(HOUR // 2)
    for number in range(10):
        tape.append(f"order|{number % 3}", tags=("red",))
    store = empty_stores.make(settings_of())
    tape.carry(store)
    rows = view_of(store, "red")
    start, bucket = rows[19].timestamp, rows[0].bucket
    removals = [(1, "red", bucket, start + 10 * n, "order|gone", 1) for n in range(TOMBSTONES)]
    names = [removals[at : at + 100] for at in range(0, TOMBSTONES, 100)]
    store._session.write([CqlRequest("remove_tag_view_row", some) for some in names])
    with pytest.raises(Unavailable) as refused:
        store._session.rows("tag_in_bucket", ("red", bucket, start, "zzz", 0, start + HOUR, 500))
    assert refused.value.tombstones
    assert shown(query(store, "red")) == counted(tape, "red")


TOMBSTONES = 101_000
