"""Generations: a new build beside the serving one, never past it, which takes its place exactly where that one is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from strandline import Conflict, InvalidInput, Key, NotFound
from strandline.connect import Strandline
from strandline.pipeline.projections import begin
from strandline.projection.definition import BySlices, ByTag, Context, Projection
from tests.journal.worlds import world
from tests.projection.worlds import (
    BACKENDS,
    ORDERS,
    QUICK,
    Table,
    caught_up,
    check_exactly_once,
    everything,
    running,
    until,
)
from tests.query.filling import carry_all, key_in, put


def fill(s: Strandline, rounds: int = 2, keys: int = 10) -> None:
    for _ in range(rounds):
        for number in range(keys):
            put(s, Key("order", str(number)))
    carry_all(s)


@pytest.fixture
def new(s: Strandline) -> Iterator[Table]:
    made = Table(s)
    yield made
    made.close()


class Handler:
    """Writes into its generation's own table, and keeps what it was told."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.contexts: list[Context] = []
        self.switched: list[tuple[int, int]] = []
        self.fails: Any = None

    def start(self, context: Context) -> None:
        self.contexts.append(context)

    def handle(self, tx: Any, event: Any) -> None:
        if self.fails is not None and self.fails(event):
            raise ValueError("no")
        self.table.add(tx, event)

    def on_switch(self, tx: Any, old: int, new: int) -> None:
        name = self.table.name
        assert tx.execute(f"select count(*) from {name}")
        self.switched.append((old, new))


def first(table: Table, **settings: Any) -> Projection:
    return Projection("totals", ORDERS, table.add, **{**QUICK, **settings})


def second(handler: Handler, **settings: Any) -> Projection:
    return Projection("totals", ORDERS, handler, generation=2, **{**QUICK, **settings})


def state(s: Strandline, generation: int) -> str:
    return s.projections.status("totals", generation=generation).state


def never_past(s: Strandline) -> bool:
    """Whether no slice of the new generation is further than the old one's; looked at in the safe order."""

    def done(generation: int) -> list[int]:
        found = s.projections.status("totals", generation=generation).ranges
        return [each.position for each in found for _ in range(each.lo, each.hi + 1)]

    mine = done(2)
    return all(one <= other for one, other in zip(mine, done(1), strict=True))


@pytest.mark.req("P84", "P76")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_generation_waits_although_its_database_is_busy(backend: str, tmp_path: Path) -> None:
    """Looking whether to begin it is refused for a while: the host goes on."""
    with world(backend, tmp_path, partitions=3, append_timeout_s=0.3) as s:
        fill(s)
        table, new = Table(s), Table(s)
        handler = Handler(new)
        with running(s, first(table), second(handler)) as host:
            until(lambda: caught_up(s))
            with s.open_offsets(None).store.closed_after() as store, store.database.write() as tx:
                if backend == "postgresql":
                    raw: Any = tx.raw
                    schema = raw.execute("select schemaname from pg_tables where tablename = 'projection'")
                    raw.execute(f"lock table {schema.fetchone()[0]}.projection in access exclusive mode")
                    tx.take_long()
                    raw.execute("select pg_sleep(1.2)")
                else:
                    time.sleep(1.2)
            assert not host._stop.is_set()
            fill(s)
            until(lambda: caught_up(s))
            begin(s, second(handler), None, allow_deleted=False)
            until(lambda: state(s, 2) == "ready")
        check_exactly_once(s, table)
        table.close()
        new.close()


@pytest.mark.req("P88", "P67")
def test_on_switch_may_take_as_long_as_a_handler(tmp_path: Path) -> None:
    """On a server, where all other statements have the time of an append, and silence half of it."""
    with world("postgresql", tmp_path, partitions=1, append_timeout_s=0.5) as s:
        fill(s)
        table, new = Table(s), Table(s)

        class Slow(Handler):
            def on_switch(self, tx: Any, old: int, new: int) -> None:
                tx.execute("select pg_sleep(0.8)")
                time.sleep(0.4)
                super().on_switch(tx, old, new)

        handler = Slow(new)
        with running(s, first(table), second(handler)):
            until(lambda: caught_up(s))
            begin(s, second(handler), None, allow_deleted=False)
            until(lambda: state(s, 2) == "ready")
            assert s.projections.switch("totals", 2)
        assert handler.switched == [(1, 2)]
        table.close()
        new.close()


@pytest.mark.req("P84", "P85", "P88", "P82")
def test_a_generation_is_built_beside_and_takes_the_place_of_the_serving_one(
    s: Strandline, table: Table, new: Table
) -> None:
    fill(s)
    handler = Handler(new)
    with ExitStack() as hosts:
        hosts.enter_context(running(s, first(table)))
        until(lambda: caught_up(s))
        # Its hosts wait until it is begun, and make nothing of their own.
        hosts.enter_context(running(s, second(handler)))
        assert s.projections.list() == [("totals", 1, "serving")]
        begin(s, second(handler), 5, allow_deleted=False)
        fill(s, 1)
        until(lambda: state(s, 2) == "ready")
        assert never_past(s)
        s.projections.pause("totals")
        fill(s, 1)  # the serving one stands still: so does the new one
        before = len(new.rows())
        assert len(table.rows()) == before
        s.projections.resume("totals")
        until(lambda: len(new.rows()) == 40)
        assert all(context.rebuilding and context.generation == 2 for context in handler.contexts)
        assert s.projections.switch("totals", 2)
        assert handler.switched == [(1, 2)]
        fill(s, 1)
        until(lambda: caught_up(s))
        assert not handler.contexts[-1].rebuilding
    assert len(table.rows()) == 40
    check_exactly_once(s, new)
    assert sorted(s.projections.list()) == [("totals", 1, "retired"), ("totals", 2, "serving")]
    assert [s.projections.status("totals", generation=number).paused for number in (1, 2)] == [True, False]
    with pytest.raises(InvalidInput) as refused:
        s.projections.drop("totals", generation=2)
    assert refused.value.code == "generation_serving"
    s.projections.drop("totals", generation=1)
    assert s.projections.list() == [("totals", 2, "serving")]


@pytest.mark.req("P84")
def test_hosts_of_a_lower_generation_than_serves_end(s: Strandline, table: Table, new: Table) -> None:
    fill(s, 1)
    handler = Handler(new)
    with running(s, first(table)) as old, running(s, second(handler)):
        until(lambda: caught_up(s))
        begin(s, second(handler), None, allow_deleted=False)
        until(lambda: state(s, 2) == "ready")
        assert s.projections.switch("totals", 2)
        until(lambda: not old._runs)  # it has ended by itself, with nothing left to run
    with running(s, first(table)):  # one that comes later ends, too
        pass
    assert len(table.rows()) == 10


@pytest.mark.req("P88", "P85", "P30")
@pytest.mark.parametrize("how", ["failed in a time", "fed", "other ranges", "paused"])
def test_switched_exactly_where_the_serving_one_is(s: Strandline, table: Table, new: Table, how: str) -> None:
    """Wherever the old one stands, the new one has done the same events and no other when it serves."""
    keys = [key_in(number % 3, s.log.partitions, nth=number) for number in range(6)]
    handler = Handler(new)
    bad = keys[0]
    armed = threading.Event()

    def handle(tx: Any, event: Any) -> None:
        if armed.is_set() and event.key == bad and event.seq_nr % 5 == 3:
            raise ValueError("stuck")
        table.add(tx, event)

    old = Projection("totals", ORDERS, handle, **{**QUICK, "retries": 0, "save_after": 2, "feed": how == "fed"})
    for key in keys:
        put(s, key, 2)
    carry_all(s)
    with ExitStack() as hosts:
        hosts.enter_context(running(s, old))
        until(lambda: caught_up(s))
        begin(s, second(handler), 2 if how == "other ranges" else None, allow_deleted=False)
        hosts.enter_context(running(s, second(handler, save_after=1)))
        until(lambda: state(s, 2) == "ready")
        if how == "failed in a time":
            armed.set()
        if how == "paused":
            s.projections.pause("totals")
        for key in reversed(keys):
            put(s, key, 4)  # one append, one time: it fails in the middle of it
        if how != "fed":
            carry_all(s)
        expected = {"failed in a time": 12 + 20, "paused": 12}.get(how, 36)
        until(lambda: len(table.rows()) >= expected)
        asked = threading.Thread(target=s.projections.switch, args=("totals", 2))
        asked.start()
        if how == "fed":
            until(lambda: state(s, 2) == "switching")
            carry_all(s)  # what the feed brought must be carried first: the store is what the new one reads
        asked.join()
        until(lambda: state(s, 2) == "serving")
        done = sorted(table.rows())
        if how == "failed in a time":
            assert (str(bad), 1, 3) not in done
        assert set(done) <= set(new.rows())
        armed.clear()
        for key in keys:
            put(s, key)
        carry_all(s)
        until(lambda: caught_up(s))
    assert sorted(table.rows()) == done
    check_exactly_once(s, new)


@pytest.mark.req("P88")
def test_a_switch_hands_over_no_more_than_the_serving_one_has_done(s: Strandline, table: Table, new: Table) -> None:
    """Seen in `on_switch`: the two tables are the same then, also in the middle of a time, with slices apart."""
    keys = [key_in(number % 3, s.log.partitions, nth=number) for number in range(6)]
    handler = Handler(new)
    seen: list[tuple[Any, Any]] = []

    def compared(tx: Any, old: int, generation: int) -> None:
        def rows(name: str) -> list[Any]:
            return sorted(tuple(row) for row in tx.execute(f"select key, life, seq_nr from {name}"))

        seen.append((rows(table.name), rows(new.name)))

    handler.on_switch = compared  # type: ignore[method-assign, assignment]
    stuck = threading.Event()

    def handle(tx: Any, event: Any) -> None:
        if stuck.is_set() and event.key in keys[:2] and event.seq_nr == 4:
            raise ValueError("stuck")
        table.add(tx, event)

    for key in keys:
        put(s, key, 2)
    carry_all(s)
    old = Projection("totals", ORDERS, handle, **{**QUICK, "retries": 0, "save_after": 1})
    with running(s, old), running(s, second(handler)):
        until(lambda: caught_up(s))
        begin(s, second(handler), 1, allow_deleted=False)
        until(lambda: state(s, 2) == "ready")
        stuck.set()
        for _ in range(2):
            for key in keys:
                put(s, key, 3)
            carry_all(s)

        def failed() -> int:
            return [found.state for found in s.projections.status("totals").ranges].count("failed")

        until(lambda: failed() == 2 and len(table.of(keys[2])) == 8)
        assert s.projections.switch("totals", 2)
    ((theirs, mine),) = seen
    assert theirs == mine
    assert len(mine) < len(everything(s))


@pytest.mark.req("P88")
def test_a_generation_with_a_dead_letter_alone_is_switched_to_by_force(s: Strandline, table: Table, new: Table) -> None:
    fill(s)
    handler = Handler(new)
    handler.fails = lambda event: event.key == Key("order", "3") and event.seq_nr == 2
    with running(s, first(table)):
        until(lambda: caught_up(s))
    begin(s, second(handler), None, allow_deleted=False)
    with running(s, second(handler, on_failure="skip", retries=0)):
        until(lambda: state(s, 2) == "ready")
        with pytest.raises(Conflict) as refused:
            s.projections.switch("totals", 2)
        assert (refused.value.code, refused.value.parked, refused.value.dead_letters) == ("switch", 0, 1)
        assert not s.projections.status("totals").paused
        assert s.projections.switch("totals", 2, force=True, timeout_s=10)
    assert state(s, 2) == "serving"


@pytest.mark.req("P88", "P102")
def test_what_must_not_be_switched_to_is_refused(s: Strandline, table: Table, new: Table) -> None:
    fill(s)
    handler = Handler(new)
    handler.fails = lambda event: event.key == Key("order", "3") and event.seq_nr == 2
    with running(s, first(table)):
        until(lambda: caught_up(s))
    begin(s, second(handler), None, allow_deleted=False)
    with pytest.raises(Conflict) as refused:
        s.projections.switch("totals", 2)
    assert (refused.value.code, refused.value.state) == ("switch", "building")
    with pytest.raises(NotFound):
        s.projections.switch("totals", 3)
    with pytest.raises(Conflict):
        s.projections.switch("totals", 1)
    with running(s, second(handler, on_failure="park", retries=0)):
        until(lambda: state(s, 2) == "ready")
    with pytest.raises(Conflict) as refused:
        s.projections.switch("totals", 2)
    assert (refused.value.parked, refused.value.dead_letters) == (1, 1)
    assert not s.projections.status("totals").paused
    assert not s.projections.switch("totals", 2, force=True, timeout_s=0)  # no host runs it: it waits for one
    (request,) = s.projections.status("totals", generation=2).requests
    assert (request.verb, request.refused) == ("switch", None)
    broken = [True]

    def on_switch(tx: Any, old: int, generation: int) -> None:
        if broken.pop() if broken else False:
            raise ValueError("not yet")

    handler.on_switch = on_switch  # type: ignore[method-assign, assignment]
    with running(s, second(handler, on_failure="park", retries=0)):
        until(lambda: state(s, 2) == "serving")
    assert not broken
    assert not s.projections.status("totals").requests


@pytest.mark.req("P94", "P84", "P57")
def test_what_cannot_be_rebuilt_is_refused(s: Strandline, table: Table, new: Table) -> None:
    with pytest.raises(NotFound):
        begin(s, second(Handler(new)), None, allow_deleted=False)
    fill(s, 1)
    with running(s, first(table)):
        until(lambda: caught_up(s))
    with pytest.raises(InvalidInput) as refused:
        begin(s, first(table), None, allow_deleted=False)
    assert refused.value.code == "generation_serving"
    for other in (
        Projection("totals", ByTag("blue"), print, generation=2), second(Handler(new), use_strandline=False),
        Projection("totals", BySlices("user"), print, generation=2),
    ):  # fmt: skip
        with pytest.raises(InvalidInput) as refused:
            begin(s, other, None, allow_deleted=False)
        assert refused.value.code in ("setting", "projection_changed")
    assert s.projections.list() == [("totals", 1, "serving")]


@pytest.mark.req("P89")
def test_a_rebuild_after_deletions_must_be_wanted(s: Strandline, table: Table, new: Table) -> None:
    fill(s)
    with running(s, first(table)):
        until(lambda: caught_up(s))
    s.journal.delete(Key("order", "1"), to=1)
    s.journal.purge(Key("order", "2"))
    put(s, Key("order", "2"))
    carry_all(s)
    with pytest.raises(InvalidInput) as refused:
        begin(s, second(Handler(new)), None, allow_deleted=False)
    assert (refused.value.code, refused.value.keys) == ("deleted_events", 2)
    assert s.projections.list() == [("totals", 1, "serving")]
    assert begin(s, second(Handler(new)), None, allow_deleted=True).state == "building"


@pytest.mark.req("P62", "P30")
def test_an_unpark_that_fails_again_passes_no_other_event(s: Strandline, table: Table) -> None:
    """A host that starts far behind, with an unpark to carry out first: what lies between must not be passed."""
    bad, *good = (key_in(0, s.log.partitions, nth=nth) for nth in range(4))

    def handle(tx: Any, event: Any) -> None:
        if event.key == bad and event.seq_nr > 1:
            raise ValueError("no")
        table.add(tx, event)

    parking = Projection("totals", ORDERS, handle, on_failure="park", retries=0, **QUICK)
    put(s, bad, 2)
    carry_all(s)
    with running(s, parking):
        until(lambda: s.projections.parked("totals"))
    for key in good:  # none has a later event, by which it could be looked back for
        put(s, key)
        put(s, bad)
    carry_all(s)

    def later(tx: Any, event: Any) -> None:
        if event.key == bad and event.seq_nr > 3:
            raise ValueError("no")
        table.add(tx, event)

    s.projections.unpark("totals", bad)
    with running(s, Projection("totals", ORDERS, later, on_failure="park", retries=0, **QUICK)):
        until(lambda: caught_up(s))
    assert [table.of(key) for key in good] == [[1], [1], [1]]
    assert table.of(bad) == [1, 2, 3]
