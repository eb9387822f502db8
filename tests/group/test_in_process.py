"""What submit, the processor and those who wait tell each other in one process: nothing else than the log says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread, current_thread, main_thread
from typing import Any

import pytest

from strandline.errors import InvalidGroup, Unavailable
from strandline.group.checks import affected_rows_equal, query_check
from strandline.group.core.parts import Dep, Hook, Need, Recipe
from strandline.group.definition import Group
from strandline.group.history import HistoryEvent
from strandline.group.in_process import BYTES_MAX, HandedOver, InProcess
from strandline.group.names import inbox_key
from strandline.group.open_targets import SharedLook
from strandline.group.outcome import outcome_of
from strandline.group.record import load
from strandline.testing import points
from tests.group.worlds import ACCOUNTS, Running, SqliteShop, World, update

DEFINED = HistoryEvent(
    1, "Defined", {"hash": "h", "stream": "default", "identities": {}, "dialects": {}, "definition": {}, "plan": {}}
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(SqliteShop(tmp_path / "shop.db"), f"sqlite:{tmp_path / 'j'}")
    yield made
    points.clear()
    made.close()


@pytest.mark.req("G26", "G16")
def test_what_a_wait_is_told_is_what_the_log_says(world: World) -> None:
    world.handlers.update(price=lambda _: {"value": (7, 8)}, stock=lambda _: {"left": 3}, hook=lambda _: None)
    g = Group("g", pre_hook="hook", post_hook=Hook("hook"))
    g.query("customer", "SELECT is_active FROM customer WHERE id = :id", {"id": 42}, target="shop", success="is_active")
    g.empty("quote", recipes=[Recipe("price", handler="price")], needs=[Need("stock", "stock")])
    text = "UPDATE account SET amount = amount + :stock.left WHERE id = :id"
    needs, behind = [Need("stock", "stock", step="customer")], ["customer", Dep("quote", recipe="price")]
    check = query_check("SELECT amount FROM account WHERE id = :id", {"id": 1}, "amount = 104")
    g.update(
        "grant", text, {"id": 1}, target="shop", needs=needs, depends_on=behind, must_exist=True,
        checks=[affected_rows_equal(1), check],
    )  # fmt: skip
    g.delete("undoing", "DELETE FROM account WHERE id = :id", {"id": 2}, target="shop", is_rollback=True)
    plain = Group("plain", post_hook=Hook("hook"))
    update(plain, "x", 1, 1, checks=[affected_rows_equal(1)], must_exist=True, recipes=[Recipe("n", "1 + :n")])
    plain.query(
        "sum", "SELECT amount, name FROM account ORDER BY id", target="shop", depends_on=["x", Dep("x", "n")],
        recipes=[Recipe("rows", "rows.amount"), Recipe("n", "row_count + :n.value")],
    )  # fmt: skip
    failing = Group("failing")
    update(failing, "x", 1, 1)
    failing.empty("no", depends_on=["x"], success="1 = 2", needs=[Need("stock", "stock")])
    with Running(world.plain):
        for group in (plain, g, failing):
            told = world.plain.submit(group).wait()
            history = load(world.s.journal, group.id)
            assert history is not None
            assert told == outcome_of(history)
            assert told == world.plain.wait(group.id)
    assert [world.plain.get(id_).state for id_ in ("plain", "g", "failing")] == [
        "committed",
        "committed",
        "rolled_back",
    ]


@pytest.mark.req("G26", "G61")
def test_a_group_that_is_run_where_it_was_submitted_is_not_read_from_the_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    real = world.s.journal.read

    def noted(key: Any, **more: Any) -> Any:
        if current_thread() is not main_thread():  # who waits for a long time looks into the log
            read.append(str(key))
        return real(key, **more)

    monkeypatch.setattr(world.s.journal, "read", noted)
    monkeypatch.setattr("strandline.group.groups.NEAR_S", 30.0)  # who waits on a slow machine would look there
    other = world.groups()
    with Running(world.plain) as running:
        while running.processor.lease is None or not world.plain.near.running:
            time.sleep(0.01)
        for groups, id_ in ((world.plain, "here"), (other, "elsewhere")):
            g = Group(id_)
            update(g, "x", 1, 1)
            assert groups.submit(g).wait().state == "committed"
    assert {key for key in read if key.startswith("group|")} == {"group|elsewhere"}
    assert world.accounts()[0][2] == 102


@pytest.mark.req("G46", "G59")
def test_a_cancel_between_definition_and_entry_is_not_missed(world: World) -> None:
    """Submit has recorded the definition, the processor records the cancel, then comes the entry."""
    groups = world.plain
    g = Group("g")
    update(g, "x", 1, 1)
    defined, go_on = Event(), Event()

    def stop() -> None:
        defined.set()
        assert go_on.wait(20)

    with Running(groups):
        while not groups.near.running:
            time.sleep(0.01)
        points.at("group.defined", stop)
        submitting = Thread(target=groups.submit, args=(g,))
        submitting.start()
        assert defined.wait(20)
        groups.cancel("g")
        while list(world.s.journal.read(inbox_key("default"))):
            time.sleep(0.01)
        go_on.set()
        submitting.join()
        assert groups.wait("g").reason == "cancelled"
    assert world.accounts() == ACCOUNTS


@pytest.mark.req("G59")
def test_a_handle_of_a_group_that_has_ended_says_so_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.group.groups.NEAR_S", 20.0)
    g = Group("g")
    update(g, "x", 1, 1)
    with Running(world.plain):
        assert world.plain.submit(g).wait().state == "committed"
        began = time.monotonic()
        assert world.plain.submit(g).wait().state == "committed"
        assert time.monotonic() - began < 10


@pytest.mark.req("G59", "G61")
def test_nothing_is_handed_over_that_somebody_else_may_have_changed() -> None:
    near, processor = InProcess(), object()
    near.define(near.expect("before"), 1, [DEFINED])
    near.start(processor)
    assert near.take("before") is None
    slip = near.expect("g")
    near.define(slip, 3, [DEFINED])
    taken = near.take("g")
    assert taken is not None
    history = taken.history
    assert (history.life, history.last, history.state, history.stream) == (3, 1, "queued", "default")
    assert near.take("g") is None
    near.define(slip, 3, [DEFINED])
    assert near.take("g") is None, "it was taken, and may be over"
    slip = near.expect("g")
    near.forget("g")
    again = near.expect("g")
    near.define(slip, 3, [DEFINED])
    assert near.take("g") is None, "the processor has written since"
    near.define(again, 3, [DEFINED])
    assert near.take("g") is None
    near.define(near.expect("unnumbered"), None, [DEFINED])
    assert near.take("unnumbered") is None
    large = HistoryEvent(1, "Defined", {**DEFINED.payload, "definition": {"x": "x" * (BYTES_MAX // 2)}})
    for n in range(3):
        near.define(near.expect(f"large{n}"), 1, [large])
    assert [near.take(f"large{n}") is None for n in range(3)] == [False, True, True]
    near.define(near.expect("g"), 1, [large])
    assert near.take("g") is not None, "what was taken takes no place"
    near.define(near.expect("g"), 1, [DEFINED])
    near.start(object())
    assert near.take("g") is None, "others may have run the stream meanwhile"
    near.stop(processor)
    assert near.running, "another one runs it"


@pytest.mark.req("G7", "G73", "G85")
def test_a_group_of_a_known_shape_is_what_it_would_be_if_it_were_the_first(world: World) -> None:
    """Checked and planned once for its shape: hash, history and outcome are those of its own definition."""

    def made(n: int, **more: Any) -> Group:
        g = Group(f"g{n}")
        update(g, "x", n % 3 + 1, n, **more)
        text, values = "DELETE FROM account WHERE id IN :ids AND name = :name", {"ids": [n, 77], "name": f"n{n}'\0"}
        g.delete("y", text, values, target="shop", depends_on=["x"])
        update(g, "z", 1, 5, depends_on=["y"])
        return g

    for n in range(4):
        world.plain.submit(made(n))
    again = world.groups()
    for n in range(4):
        again.submit(made(n))  # the same hash, by the long way the first time and the short way then
        history = load(world.s.journal, f"g{n}")
        assert history is not None
        assert history.hash == made(n).hash
        plan, first = world.plain.plan_of(history), again._submitter.plan(made(n))
        assert {name: (one.values, one.holds, one.order) for name, one in plan.steps.items()} == {
            name: (one.values, one.holds, one.order) for name, one in first.steps.items()
        }
        assert plan.group.id == f"g{n}"
    bad = made(9)
    bad.update("w", "UPDATE account SET amount = 1", {"id": object()}, target="shop")
    with pytest.raises(InvalidGroup) as refused:
        world.plain.submit(bad)
    assert [problem.code for problem in refused.value.problems] == ["payload_type"]
    world.shop.execute("ALTER TABLE account RENAME COLUMN amount TO money")
    with pytest.raises(InvalidGroup):
        world.plain.submit(made(5))
    with pytest.raises(InvalidGroup):
        world.plain.submit(made(6, retries=-1))


@pytest.mark.req("G85")
def test_a_plan_that_is_handed_over_is_the_one_in_the_history(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[HandedOver] = []
    real = world.plain.near.take

    def taken(id_: str) -> HandedOver | None:
        if (one := real(id_)) is not None:
            handed.append(one)
        return one

    monkeypatch.setattr(world.plain.near, "take", taken)
    with Running(world.plain):
        while not world.plain.near.running:
            time.sleep(0.01)
        for n in range(6):
            g = Group(f"g{n}", post_hook=None)
            update(g, "x", n % 2 + 1, n, recipes=[Recipe("n", "1 + :n")])
            update(g, "y", 1, 5, depends_on=["x"] if n < 4 else [])
            g.update("back", "UPDATE account SET amount = :n WHERE id = 1", {"n": n}, target="shop", is_rollback=True)
            world.plain.submit(g).wait()
    assert [one.history.id for one in handed] == [f"g{n}" for n in range(6)]
    plans = [(one.plan, world.plain.plan_of(one.history)) for one in handed]
    assert [plan is None for plan, _ in plans] == [True, False, False, False, True, False], "the first of each shape"
    for plan, stored in plans:
        for mine, theirs in () if plan is None else ((plan.steps, stored.steps), (plan.rollback, stored.rollback)):
            assert {name: replace(one, step=theirs[name].step) for name, one in mine.items()} == theirs
        if plan is not None:
            assert (plan.segments, plan.sequence, plan.handlers) == (stored.segments, stored.sequence, stored.handlers)
            assert plan.group.id == stored.group.id


@pytest.mark.req("G85")
def test_a_look_that_is_shared_began_after_each_of_its_callers_asked() -> None:
    begun, go_on, seen = Event(), Event(), list[int]()

    def look() -> int:
        seen.append(len(seen) + 1)
        if len(seen) == 1:
            begun.set()
            assert go_on.wait(20)
        if len(seen) == 3:
            raise Unavailable("it is away", code="away")
        return len(seen)

    shared, found = SharedLook(look), list[int]()
    first = Thread(target=lambda: found.append(shared.now()))
    first.start()
    assert begun.wait(20)
    others = [Thread(target=lambda: found.append(shared.now())) for _ in range(5)]
    for one in others:
        one.start()
    while shared._newest < 6:
        time.sleep(0.001)
    go_on.set()
    for one in (first, *others):
        one.join()
    assert sorted(found) == [1, 2, 2, 2, 2, 2], "five asked while the first look was under way"
    with pytest.raises(Unavailable):
        shared.now()
    assert shared.now() == 4, "what was wrong then is not told again"


@pytest.mark.req("G26")
def test_a_processor_hears_on_after_a_bug(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the thread that follows the log meets: it goes on, or nobody would be heard any more."""
    log, met = world.plain.log, Event()
    newest = log.newest

    def broken(*given: Any, **more: Any) -> Any:
        if current_thread().name == "strandline-handler" and not met.is_set():
            met.set()
            raise ZeroDivisionError
        return newest(*given, **more)

    monkeypatch.setattr(log, "newest", broken)
    with Running(world.plain):
        assert met.wait(10)
        group = Group("g")
        update(group, "x", 1, 1)
        assert world.plain.submit(group).wait(10).state == "committed"
