"""Holes: never stepped over. Unknown commits: settled before the next event. Ranges that share rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from strandline import Key, Unavailable
from strandline.connect import Strandline
from strandline.projection.definition import Projection
from strandline.projection.offset_store import OffsetStore
from strandline.store.api import Page
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

    def scan(self, *what: Any, **how: Any) -> Page:
        rows, more = self._store.scan(*what, **how)
        return Page([row for row in rows if not self.from_slices or (row[2], row[1]) != self._event], more)

    def page(self, key: str, life: int, segment_size: int, **how: Any) -> Page:
        cells, more = self._store.page(key, life, segment_size, **how)
        return Page([cell for cell in cells if not self.from_all or (key, cell[0]) != self._event], more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


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


@pytest.mark.req("P53", "P47")
def test_ranges_that_share_a_row(s: Strandline, table: Table) -> None:
    """Two ranges read and then update one row: both effects, no dead letter, no failure of the handler."""
    mark = "?" if table.dialect == "sqlite" else "%s"
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

    with running(s, Projection("totals", ORDERS, handle, save_after=5, on_failure="skip", retries=0, **QUICK)):
        until(lambda: caught_up(s), 15)
    assert [seq_nr for key, _, seq_nr in table.rows() if key == "sum"] == [45]
    assert not s.projections.dead_letters("totals")
