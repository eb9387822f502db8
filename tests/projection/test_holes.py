"""Holes: never stepped over. Unknown commits: settled before the next event. Ranges that share rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from strandline import ByTag, Event, Key, Unavailable
from strandline.connect import Strandline
from strandline.projection.definition import Projection
from strandline.projection.offset_store import OffsetStore
from strandline.store.api import RowPage
from tests.projection.repairing import Lost, LostTag
from tests.projection.worlds import (
    ORDERS,
    QUICK,
    Table,
    caught_up,
    check_exactly_once,
    error_of,
    range_of,
    running,
    until,
)
from tests.query.filling import carry_all, key_in, put


class Hiding:
    """A store in which an event is not there, for queries by slices or for anybody."""

    def __init__(self, store: Any, key: Key, seq_nr: int) -> None:
        self._store, self._event = store, (str(key), seq_nr)
        self.from_slices = self.from_all = True

    def scan(self, *what: Any, **how: Any) -> RowPage:
        rows, more = self._store.scan(*what, **how)
        return RowPage([row for row in rows if not self.from_slices or (row[2], row[1]) != self._event], more)

    def page(self, key: str, life: int, segment_size: int, **how: Any) -> RowPage:
        cells, more = self._store.page(key, life, segment_size, **how)
        return RowPage([cell for cell in cells if not self.from_all or (key, cell[0]) != self._event], more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


PARKING: dict[str, Any] = {**QUICK, "gap_timeout_s": 0.02, "retries": 0, "on_failure": "park"}


@pytest.mark.req("P35", "P62", "P38")
@pytest.mark.parametrize("life", [1, 2])
def test_a_key_that_begins_with_a_hole_is_parked_before_it(s: Strandline, table: Table, life: int) -> None:
    """Nothing is known of the key: what lacks is not taken for done, neither by unpark nor by a repair."""
    key = key_in(0, s.log.partitions)
    if life == 2:
        put(s, key)
        s.journal.purge(key)
    for _ in range(3):
        put(s, key)
    carry_all(s)
    whole = s.store
    s.store = hiding = Hiding(whole, key, 1)
    with running(s, Projection("totals", ORDERS, table.add, **PARKING)):
        until(lambda: s.projections.parked("totals") == [str(key)])
        s.projections.unpark("totals", key)
        until(lambda: any(each.refused for each in s.projections.status("totals").requests))
        (request,) = s.projections.status("totals").requests
        assert "lacks 1" in str(request.refused)
        assert table.of(key) == []
        hiding.from_slices = hiding.from_all = False
        s.projections.unpark("totals", key)
        until(lambda: table.of(key) == [1, 2, 3])
    s.store = whole


@pytest.mark.req("P35", "P33", "P62")
@pytest.mark.parametrize("source", [ORDERS, ByTag("blue")])
def test_a_hole_behind_what_was_forgotten(s: Strandline, table: Table, source: Any) -> None:
    """1 to 3 are done and forgotten, 4 is lost, 5 comes: it waits; unparked, neither is 4 left out nor 3 repeated."""
    key = key_in(0, s.log.partitions)

    def more(count: int) -> None:
        for _ in range(count):
            s.journal.append(key, [Event("Placed", 1, tags=["blue"])])
        carry_all(s)

    more(3)
    projection = Projection("totals", source, table.add, **PARKING)
    with running(s, projection):
        until(lambda: caught_up(s))
    store = s.open_offsets().store
    list(store.forget(store.find("totals"), min(found.position for found in s.projections.status("totals").ranges)))
    store.close()
    more(2)
    lost = Lost(s, key, 4) if source is ORDERS else LostTag(s, key, 4)
    with running(s, projection):
        until(lambda: s.projections.parked("totals") == [str(key)] or table.of(key) != [1, 2, 3])
        assert table.of(key) == [1, 2, 3]
        lost.put_back()
        s.projections.unpark("totals", key)
        until(lambda: table.of(key) == [1, 2, 3, 4, 5])
    assert s.projections.dead_letters("totals") == []


@pytest.mark.req("P34", "P35", "P99", "RP5")
@pytest.mark.parametrize("source", [ORDERS, ByTag("blue")])
def test_a_hole_that_was_passed_and_forgotten(s: Strandline, table: Table, source: Any) -> None:
    """4 is lost before it is read, so nothing shows it; the key is forgotten; 5 comes: 4 is not taken for done."""
    key = key_in(0, s.log.partitions)

    def more(count: int) -> None:
        for _ in range(count):
            s.journal.append(key, [Event("Placed", 1, tags=["blue"])])
        carry_all(s)

    more(4)
    lost = Lost(s, key, 4) if source is ORDERS else LostTag(s, key, 4)
    projection = Projection("totals", source, table.add, **PARKING)
    with running(s, projection):
        until(lambda: caught_up(s))
    assert table.of(key) == [1, 2, 3]
    store = s.open_offsets().store
    assert sum(store.forget(store.find("totals"), min(each.position for each in s.projections.status("totals").ranges)))
    store.close()
    more(1)
    with running(s, projection):
        until(lambda: s.projections.parked("totals") == [str(key)] or table.of(key) != [1, 2, 3])
        assert table.of(key) == [1, 2, 3]
        lost.put_back()
        s.projections.unpark("totals", key)
        until(lambda: table.of(key) == [1, 2, 3, 4, 5])


@pytest.mark.req("P35", "P62", "P79")
def test_a_hole_that_an_operator_steps_over(s: Strandline, table: Table) -> None:
    """Unpark is refused while it is there; skip says that it does not matter."""
    key = key_in(0, s.log.partitions)
    for _ in range(5):
        put(s, key)
    carry_all(s)
    Lost(s, key, 3)
    with running(s, Projection("totals", ORDERS, table.add, **PARKING)):
        until(lambda: s.projections.parked("totals") == [str(key)])
        s.projections.unpark("totals", key)
        until(lambda: any(each.refused for each in s.projections.status("totals").requests))
        assert table.of(key) == [1, 2]
        s.projections.skip("totals", key, 3)
        s.projections.unpark("totals", key)
        until(lambda: table.of(key) == [1, 2, 4, 5])


@pytest.mark.req("P63", "P35")
def test_holes_count_among_the_keys_that_may_be_parked(s: Strandline, table: Table) -> None:
    key = key_in(0, s.log.partitions)
    put(s, key)
    put(s, key)
    carry_all(s)
    Lost(s, key, 1)
    with running(s, Projection("totals", ORDERS, table.add, parked_keys_max=0, **PARKING)):
        assert error_of(s, key)["error"] == "MissingEvent"
        assert s.projections.parked("totals") == []


@pytest.mark.req("P35", "RP5", "P36")
@pytest.mark.parametrize("on_failure", ["fail", "skip", "park"])
def test_a_hole_is_never_skipped(s: Strandline, table: Table, on_failure: str) -> None:
    key, other = key_in(0, s.log.partitions), key_in(1, s.log.partitions)
    for _ in range(5):
        put(s, key)
        put(s, other)
    carry_all(s)
    whole = s.store
    s.store = hiding = Hiding(whole, key, 3)
    settings = {**QUICK, "gap_timeout_s": 0.05, "retries": 0, "on_failure": on_failure}
    with running(s, Projection("totals", ORDERS, table.add, **settings)):
        until(lambda: table.of(other) == [1, 2, 3, 4, 5])
        if on_failure == "park":
            until(lambda: s.projections.parked("totals") == [str(key)])
        else:
            assert error_of(s, key)["error"] == "MissingEvent"
        assert table.of(key) == [1, 2]
        hiding.from_slices = hiding.from_all = False  # put back
        if on_failure == "park":
            s.projections.unpark("totals", key)
        until(lambda: table.of(key) == [1, 2, 3, 4, 5])
    s.store = whole
    check_exactly_once(s, table)


@pytest.mark.req("P35", "RP5")
def test_what_stands_elsewhere_is_looked_back_for(s: Strandline, table: Table) -> None:
    key = key_in(0, s.log.partitions)
    for _ in range(5):
        put(s, key)
    carry_all(s)
    whole = s.store
    s.store = hiding = Hiding(whole, key, 3)
    hiding.from_all = False
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
        until(lambda: caught_up(s))
        assert range_of(s, key).counts["violations"] == 1
    s.store = whole
    assert table.of(key) == [1, 2, 3, 4, 5]


class LostAnswers:
    """A database whose commit comes through, or not, and whose answer is lost."""

    def __init__(self, database: Any, every: int) -> None:
        self._database, self._every, self.lost, self._writes = database, every, 0, 0

    @contextmanager
    def write(self, **how: Any) -> Iterator[Any]:
        self._writes += 1
        away = Unavailable("the connection was lost", code="away", hint="", applied="unknown")
        if self._writes % self._every:
            with self._database.write(**how) as tx:
                yield tx
        elif self._writes % (2 * self._every):
            with self._database.write(**how) as tx:
                yield tx
            self.lost += 1
            raise away
        else:
            with self._database.write(**how) as tx:
                yield tx
                self.lost += 1
                raise away

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


@pytest.mark.req("P53", "RP1")
def test_lost_answers_to_commits(s: Strandline, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is settled first, and offsets are read again: every effect is there once."""
    databases: list[LostAnswers] = []
    made = OffsetStore.__init__

    def wrapped(self: OffsetStore, database: Any) -> None:
        databases.append(LostAnswers(database, 4))
        made(self, databases[-1])

    for _ in range(10):
        for number in range(6):
            put(s, Key("order", str(number)))
    carry_all(s)
    projection = Projection("totals", ORDERS, table.add, save_after=3, **QUICK)
    with running(s, projection):  # the tables are there
        until(lambda: caught_up(s))
    s.projections.reset("totals")
    before = len(table.rows())
    with monkeypatch.context() as patched:
        patched.setattr(OffsetStore, "__init__", wrapped)
        with running(s, projection):
            until(lambda: len(table.rows()) >= 2 * before)
    assert sum(database.lost for database in databases) > 3
    handled = table.rows()[before:]
    assert sorted(handled) == sorted(table.rows()[:before])


@pytest.mark.req("P53")
@pytest.mark.parametrize("refused", [9, 10])
def test_a_transaction_that_others_refuse_is_tried_ten_times(s: Strandline, table: Table, refused: int) -> None:
    """The handler is called again each time, and none of that is a failure of its own; then the range fails."""
    put(s, Key("order", "a"))
    carry_all(s)
    calls: list[int] = []

    def handle(tx: Any, event: Any) -> None:
        calls.append(event.seq_nr)
        table.add(tx, event)
        if len(calls) <= refused:
            raise Unavailable("others wrote it", code="serialization", hint="again")

    slowly: dict[str, Any] = {**QUICK, "restart_min_s": 60.0, "restart_max_s": 60.0, "retries": 0}
    with running(s, Projection("totals", ORDERS, handle, **slowly)):
        until(lambda: caught_up(s) or range_of(s, "order|a").last_error)
        failed = range_of(s, "order|a").last_error
    assert len(calls) == 10
    assert len(table.rows()) == (refused == 9)
    if refused == 9:
        assert failed is None
    else:
        assert (failed["error"], failed["key"], failed["seq_nr"]) == ("Unavailable", "order|a", 1)
        assert "refused 10 times" in failed["message"]


@pytest.mark.req("P53", "P47")
@pytest.mark.parametrize("isolation", ["default", "serializable"])
def test_ranges_that_share_a_row(s: Strandline, table: Table, isolation: str) -> None:
    """Ranges read and then update one row: all effects, no dead letter, no failure of the handler. A row that none of
    them found is their own affair, unless they ask for more."""
    mark = "?" if table.dialect == "sqlite" else "%s"
    given = {} if isolation == "default" else {"isolation": isolation}
    for _ in range(15):
        for partition in range(s.log.partitions):
            put(s, key_in(partition, s.log.partitions))
    carry_all(s)

    def handle(tx: Any, event: Any) -> None:
        found = tx.execute(f"select count(*), max(seq_nr) from {table.name} where key = 'sum'")
        count, total = found[0]
        if not count:
            tx.execute(f"insert into {table.name} (key, life, seq_nr) values ('sum', 0, 1)")
        else:
            tx.execute(f"update {table.name} set seq_nr = {mark} where key = 'sum'", (total + 1,))

    if isolation == "default":
        with s.open_offsets(None).store.closed_after() as store, store.database.write() as tx:
            raw: Any = tx.raw
            raw.execute(f"insert into {table.name} (key, life, seq_nr) values ('sum', 0, 0)")
    strict: dict[str, Any] = {"save_after": 5, "on_failure": "skip", "retries": 0, **given, **QUICK}
    with running(s, Projection("totals", ORDERS, handle, **strict)):
        until(lambda: caught_up(s), 15)
    assert [seq_nr for key, _, seq_nr in table.rows() if key == "sum"] == [45]
    assert not s.projections.dead_letters("totals")
