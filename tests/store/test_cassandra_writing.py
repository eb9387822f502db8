"""How the Cassandra store writes: in which order, with which timestamps, and what a death in between leaves."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, cast

import pytest
from cassandra.cluster import Cluster

from strandline.backends.cassandra import CqlRequest, Session
from strandline.backends.cassandra.store import CassandraStore
from strandline.errors import LeaseLost, Unavailable
from strandline.sql.sections import sections
from strandline.store.phases import ALWAYS
from strandline.store.scans import events_of, expired_keys, quarantined_at, snapshots_of
from strandline.store.tables import (
    ENDED,
    ENTITY_TYPE,
    JOURNAL,
    METAJOURNAL,
    QUARANTINE,
    SLICE_BUCKET,
    SLICE_VIEW,
    SNAPSHOT,
)
from strandline.store.tag_view import TAG_BUCKET, TAG_PLACE, TAG_PROGRESS, TAG_VIEW
from strandline.testing.faults import Crash
from strandline.testing.store_contract import random_tape, settings_of
from strandline.testing.store_contract.made import snapshot
from strandline.testing.tape import Tape
from strandline.values.heads import SEQ_NR_MAX
from tests.store.keyspaces import RELAXED, TABLES, EmptyStores
from tests.store.reading import expected, read
from tests.store.sessions import dies_at, row_by_row
from tests.store.test_last_write_wins import story

pytestmark = RELAXED
KEY = "order|42"
PARTITION_KEYS = {table.name: table.partitioned_by for table in (
    JOURNAL, SLICE_VIEW, SLICE_BUCKET, ENTITY_TYPE, METAJOURNAL, QUARANTINE, ENDED, SNAPSHOT, TAG_VIEW, TAG_PROGRESS,
    TAG_PLACE, TAG_BUCKET,
)}  # fmt: skip
"""How many of a statement's first values are its partition key; before them removals have the write timestamp."""
NAMED = re.compile(r"(put|remove)_(\w+?)(?:_row|_rows|_all)?")


def tables(stores: EmptyStores) -> dict[str, list[Any]]:
    """All rows, leases and fences aside."""
    found = {table: stores.rows(table) for table in TABLES if table != "lease"}
    found["pointer"] = [(row[0], row[3], row[4], row[6]) for row in found["pointer"]]
    return found


def carried(stores: EmptyStores, tape: Tape, size: int | None = None) -> dict[str, list[Any]]:
    """What an unkilled run leaves."""
    store = stores.make(settings_of(segment_size=2))
    tape.carry(store, size=size)
    return tables(stores)


# ---------------------------------------------------------------- order


@pytest.mark.req("J75", "J79")
def test_the_order_of_writes(empty_stores: EmptyStores) -> None:
    tape = Tape()
    tape.append(KEY, ["a", "b"], damaged="digest")
    tape.delete(KEY, 1, 1)
    tape.append(KEY, ["c"])
    tape.purge(KEY)
    store = empty_stores.make(settings_of())
    session = row_by_row(store)
    tape.carry(store)
    names = [name for name, _ in session.written]
    assert [name for index, name in enumerate(names) if index == 0 or names[index - 1] != name] == [
        *("put_quarantine", "put_journal", "put_entity_type", "put_slice_bucket", "put_slice_view"),
        *("put_metajournal", "hide", "remove_slice_view_row", "remove_journal_row", "put_metajournal"),
        *("put_journal", "put_entity_type", "put_slice_bucket", "put_slice_view", "put_metajournal", "put_ended"),
        *("remove_slice_view_row", "remove_journal_all", "remove_snapshot_all", "remove_quarantine_row"),
        "remove_metajournal_row",
        "set_pointer",
    ]


@pytest.mark.req("J75")
def test_a_batch_never_spans_two_partition_keys(empty_stores: EmptyStores) -> None:
    store = empty_stores.make(settings_of(segment_size=2))
    session = row_by_row(store)
    tape = random_tape(3, actions=150, keys=12)
    tape.carry(store, size=50)
    assert {request.name for request in session.requests if len(request.rows) > 1} >= {
        "put_journal", "put_slice_view", "remove_slice_view_row",
    }  # fmt: skip
    for name, rows, *_ in session.requests:
        if len(rows) > 1:
            verb, table = NAMED.fullmatch(name).groups()  # type: ignore[union-attr]
            start, count = verb == "remove", PARTITION_KEYS[table]
            assert len({tuple(row[start : start + count]) for row in rows}) == 1, name


@pytest.mark.req("J75")
def test_conditional_writes_only_where_they_must_be() -> None:
    """And no counters, no lists."""
    conditional = set()
    for section in sections("strandline.backends.cassandra", "cql").values():
        if section.kind == "name" and not section.name.startswith("target_"):  # those are no store's
            written = re.search(r"(?:UPDATE|INSERT INTO|DELETE FROM) keyspace\.(\w+)", section.text)
            if written and re.search(r"\bIF\b", section.text):
                conditional.add(written[1])
            assert "counter" not in section.text
            assert "list<" not in section.text
    assert conditional == {"lease", "pointer", "lock"}


@pytest.mark.req("J75")
def test_every_cell_has_its_actions_timestamp(empty_stores: EmptyStores) -> None:
    store, tape = empty_stores.make(settings_of()), Tape()
    first = tape.append(KEY, ["a"])
    second = tape.append(KEY, ["b"])
    tape.carry(store)
    name = empty_stores.url.name
    assert empty_stores.asked(f'SELECT seq_nr, timestamp, writetime(body) FROM "{name}".journal') == [
        (1, first.timestamp, first.timestamp),
        (2, second.timestamp, second.timestamp),
    ]
    assert empty_stores.asked(f'SELECT writetime(body) FROM "{name}".slice_view') == [
        (first.timestamp,),
        (second.timestamp,),
    ]
    assert empty_stores.asked(f'SELECT writetime(digest) FROM "{name}".metajournal') == [(second.timestamp,)]


# ---------------------------------------------------------------- death


@pytest.mark.req("RJ5", "J75", "J77", "J78")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("size", "then_size", "start"), [(None, 1, 0), (4, None, 3)])
@pytest.mark.parametrize("every", [15, pytest.param(1, marks=pytest.mark.soak)])
def test_die_anywhere(
    empty_stores: EmptyStores, size: int | None, then_size: int | None, start: int, every: int
) -> None:
    """Every so many writes; the in-memory twin dies at each."""
    tape = story()
    whole = carried(empty_stores, tape)
    died = 0
    for point in range(start, 1000, every):
        store = empty_stores.make(settings_of(segment_size=2))
        row_by_row(store, dies_at(point))
        try:
            tape.carry(store, size=size)
        except Crash:
            died += 1
        else:
            assert died >= 60 // every
            return
        again = empty_stores.again(settings_of(segment_size=2))
        for key in tape.all_keys():
            assert read(again, tape, key) == expected(tape, key, 2), (point, key)
        reached = again.pointers()[0].timestamp
        assert all(row.timestamp <= reached for row in events_of(again, 0, after=(0, 0), to=SEQ_NR_MAX, limit=999).rows)
        tape.carry(again, size=then_size)
        assert _without_revision(tables(empty_stores)) == _without_revision(whole), point
        empty_stores.close_stores()
    raise AssertionError("the sweep has no end")


def _without_revision(found: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {**found, "pointer": [row[:3] for row in found["pointer"]]}


@pytest.mark.req("J98", "RJ5")
@pytest.mark.parametrize("point", range(2, 8))  # the fence and the Mark come first
def test_a_correction_that_was_killed_is_repeated(empty_stores: EmptyStores, point: int) -> None:
    tape = Tape()
    tape.append(KEY, ["a"])
    bad = tape.append(KEY, ["b", "c"], damaged="digest")
    tape.append(KEY, ["d"])
    store = empty_stores.make(settings_of(segment_size=2))
    tape.carry(store)
    row_by_row(store, dies_at(point))
    with contextlib.suppress(Crash):
        tape.resolve(store, bad.offset, "skip")
    again = empty_stores.again(settings_of(segment_size=2))
    if quarantined_at(again, 0, bad.offset):
        tape.resolve(again, bad.offset, "skip")
    rows = events_of(again, 0, after=(0, 0), to=SEQ_NR_MAX, limit=10).rows
    assert [(row.seq_nr, row.prev_seq_nr) for row in rows] == [(1, 0), (4, 1)]
    page = again.page(KEY, 1, 2, from_=1, to=9, limit=9).rows
    assert [tuple(cells[:2]) for cells in page] == [(1, 0), (4, 1)]


def test_an_unfinished_purge_hides_no_expired_key(empty_stores: EmptyStores) -> None:
    tape, store = Tape(), empty_stores.make(settings_of())
    tape.append("order|1", expire_after_us=1)
    second = tape.append("order|2", expire_after_us=2)
    tape.carry(store)
    tape.purge("order|1")
    row_by_row(store, dies_at(1))  # the life has ended; its head is still there
    with pytest.raises(Crash):
        tape.carry(store)
    again = empty_stores.again(settings_of())
    assert expired_keys(again, at=SEQ_NR_MAX, after=None, limit=1) == [(second.timestamp + 2, "order|2", second.offset)]


# ---------------------------------------------------------------- what comes late


@pytest.mark.req("RJ6", "RR3", "J83")
@pytest.mark.parametrize("point", [9, 40, *(pytest.param(n, marks=pytest.mark.soak) for n in (0, 23, 55))])
def test_a_pipeline_that_wakes_up_without_its_lease_undoes_nothing(empty_stores: EmptyStores, point: int) -> None:
    """Stopped before a write; another one carries everything; then it goes on writing what it had prepared."""
    tape = story()
    whole = carried(empty_stores, tape, 3)
    store = empty_stores.make(settings_of(segment_size=2))
    stale = store.lease().take("stale")
    new = empty_stores.again(settings_of(segment_size=2))

    def takeover(number: int) -> None:
        if number == point:
            stale.release()
            tape.carry(new, fence=new.lease().take("new").fence, size=3)

    row_by_row(store, takeover)
    with pytest.raises(LeaseLost):
        tape.carry(store, fence=stale.fence)
    assert tables(empty_stores) == whole
    with pytest.raises(LeaseLost):
        stale.check()


@pytest.mark.req("J75", "RJ6", "J77")
def test_what_is_older_never_beats_what_is_newer(empty_stores: EmptyStores) -> None:
    """All writes of the past again, in any order, after a delete and a purge."""
    tape = Tape()
    store = empty_stores.make(settings_of(segment_size=2))
    session = row_by_row(store)
    tape.append(KEY, ["a", "b", "c"])
    tape.append("order|7", ["x", "y", "z"])
    tape.carry(store)
    past = [(name, row) for name, row in session.written if name != "set_pointer"]
    tape.delete("order|7", 2, 1)
    tape.purge(KEY)
    tape.append(KEY, ["d"])
    tape.carry(store)
    late = [(name, row) for name, row in session.written if name != "set_pointer"]
    before = tables(empty_stores)
    for name, row in [*reversed(late), *past]:
        session.write([CqlRequest(name, [row])])
    assert tables(empty_stores) == before
    for name, row in past:
        if name in ("put_journal", "put_slice_view") and KEY in row:
            session.write([CqlRequest(name, [(*row[:-1], ALWAYS - 1)])])  # from a clock that is far ahead
    assert tables(empty_stores) == before


@pytest.mark.req("RJ6", "J106")
def test_a_snapshot_that_comes_behind_the_purge_is_gone_already(empty_stores: EmptyStores) -> None:
    tape, store = Tape(), empty_stores.make(settings_of())
    other = empty_stores.again(settings_of())
    tape.append(KEY, ["a", "b", "c"])
    tape.carry(store)
    tape.purge(KEY)
    row_by_row(other, lambda number: tape.carry(store))  # between its look at the life and its write
    other.save(snapshot(2), 0)
    assert snapshots_of(store, KEY, 1) == []
    assert empty_stores.rows("snapshot") == []


@pytest.mark.req("RJ6", "J48", "J11")
def test_a_purge_leaves_nothing_in_any_table(empty_stores: EmptyStores) -> None:
    tape, store = Tape(), empty_stores.make(settings_of(segment_size=2))
    secret = "order|very secret"
    tape.append(secret, ["a", "b", "c"], tags=("red",))
    tape.append(secret, ["d"], damaged="digest")
    tape.carry(store)
    store.save(snapshot(2, key=secret), 0)
    assert "secret" in repr([empty_stores.rows(table) for table in TABLES])
    tape.purge(secret)
    tape.carry(store)
    left = {table: empty_stores.rows(table) for table in TABLES}
    assert "secret" not in repr(left)
    assert {table for table, rows in left.items() if rows} == {
        "entity_type", "slice_bucket", "tag_bucket", "ended", "pointer",
    }  # fmt: skip


def test_a_long_gap_is_crossed(empty_stores: EmptyStores) -> None:
    """A life may start at any number: neither page nor purge walks from the first segment."""
    store, tape = empty_stores.make(settings_of(segment_size=2)), Tape()
    tape.append(KEY, ["a", "b", "c"], first=10**15)
    tape.append(KEY, ["d"], first=10**15 + 150)
    tape.carry(store)
    found = [cells[0] for cells in store.page(KEY, 1, 2, from_=1, to=SEQ_NR_MAX, limit=10).rows]
    assert found == [10**15, 10**15 + 1, 10**15 + 2, 10**15 + 150]
    tape.purge(KEY)
    tape.carry(store)
    assert empty_stores.rows("journal") == []
    assert empty_stores.rows("slice_view") == []


def test_a_large_batch_of_large_events(empty_stores: EmptyStores) -> None:
    store: CassandraStore = empty_stores.make(settings_of(segment_size=1000))
    tape = Tape()
    for _ in range(30):
        tape.append(KEY, ["x" * 1_000_000])
    tape.append(KEY, ["y"] * 900)
    tape.carry(store)
    page = store.page(KEY, 1, 1000, from_=1, to=930, limit=1000).rows
    assert [cells[0] for cells in page] == list(range(1, 931))
    assert len(events_of(store, 0, after=(0, 0), to=SEQ_NR_MAX, limit=1000).rows) == 930


def test_sockets_that_are_full(empty_stores: EmptyStores, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a slow network: the driver then refuses to send, and says that the node is busy."""
    small = [(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)]
    monkeypatch.setattr("strandline.backends.cassandra.session.Cluster", partial(Cluster, sockopts=small))
    store = empty_stores.make(settings_of(segment_size=1000))
    tape = Tape()
    for _ in range(30):
        tape.append(KEY, ["x" * 1_000_000])
    tape.carry(store)
    assert [cells[0] for cells in store.page(KEY, 1, 1000, from_=1, to=30, limit=30).rows] == list(range(1, 31))


@pytest.mark.req("RS8")
def test_sockets_that_stay_full(empty_stores: EmptyStores) -> None:
    timeout_s = 1.0  # longer than a busy machine keeps a thread waiting: the driver's own time-out is the same
    with closing(Session(empty_stores.url, timeout_s)) as session:
        asks: list[Callable[[], list[Any]]] = [
            lambda: session.rows("entity_types", (0,)),
            lambda: [*session.each([("entity_types", (0,))])],
        ]
        for ask in asks:
            ask()
        asks.append(lambda: session.rows("pointer", (0,)))  # which must be prepared
        for pool in session._open().get_pools():
            for connection in pool.get_connections():
                connection._socket_writable = False
        for ask in asks:
            begun = time.monotonic()
            with pytest.raises(Unavailable) as refused:
                ask()
            assert (refused.value.name, refused.value.applied) == ("Unavailable.overloaded", "no")
            assert time.monotonic() - begun >= timeout_s


@pytest.mark.req("P15")
def test_a_page_lists_no_more_buckets_than_it_reads(empty_stores: EmptyStores) -> None:
    store, tape = empty_stores.make(settings_of(segment_size=100)), Tape()
    for _ in range(40):
        tape.append(KEY, ["a", "b"])
        tape._count += 60_000  # a minute
    tape.carry(store)
    assert len(empty_stores.rows("slice_bucket")) == 40
    session = Counting(store._session)
    store._session = cast(Session, session)
    assert [row.seq_nr for row in events_of(store, 0, after=(0, 0), to=SEQ_NR_MAX, limit=3).rows] == [1, 2, 3]
    assert 2 <= session.listed <= session.read <= 7
    whole = events_of(store, 0, after=(0, 0), to=SEQ_NR_MAX, limit=100).rows
    assert [row.seq_nr for row in whole] == list(range(1, 81))
    middle = whole[40]
    session.listed = session.read = 0
    later = events_of(store, 0, after=(middle.timestamp, middle.seq_nr), to=whole[50].timestamp, limit=100).rows
    assert later == whole[41:52]
    assert session.listed <= session.read == 6


class Counting:
    """Counts buckets that are listed, and those that are read."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.listed = self.read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def rows(self, name: str, values: Any = (), **more: Any) -> list[Any]:
        found = self._session.rows(name, values, **more)
        self.listed += len(found) if name == "buckets" else 0
        self.read += name == "range"
        return found

    def each(self, queries: Any) -> Any:
        queries = list(queries)
        self.read += sum(query[0] == "range" for query in queries)
        return self._session.each(queries)
