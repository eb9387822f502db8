"""Streams: who waits for whom, one processor at a time, and the same rows as if groups ran one after the other."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import points
from strandline.errors import LeaseLost, Unavailable
from strandline.group import lease as leases
from strandline.group.checks import affected_rows_equal, is_true
from strandline.group.core.parts import Dep, Recipe
from strandline.group.definition import Group
from strandline.group.groups import Groups
from strandline.group.open_targets import Target
from strandline.group.rows import RowQueues
from strandline.group.statements.api import Held
from strandline.testing.rare import counting
from tests.group.worlds import CassandraShop, LwwShop, PostgresShop, Running, SqliteShop, World, transfer, update
from tests.lanes import needs_servers
from tests.repeats import repeats
from tests.store.keyspaces import RELAXED


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    here = request.param == "sqlite"
    shop: Any = SqliteShop(tmp_path / "shop.db") if here else PostgresShop(request.getfixturevalue("shop"))
    made = World(shop)
    yield made
    made.close()


# ---------------------------------------------------------------- row queues


def held(*place: Any, writes: bool = True) -> Held:
    return Held(("t", *place), writes)


@pytest.mark.req("G61", "G63", "S57")
@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (held("a", 1), held("a", 2), True), (held("a", 1), held("a", 1), False),
        (held("a", 1, writes=False), held("a", 1, writes=False), True),
        (held("a", 1, writes=False), held("a", 1), False),
        (held("a"), held("a", 1), False), (held("a", 1), held("a"), False), (held(), held("a", 1), False),
        (held("a", writes=False), held("a", 1, writes=False), True), (held("a", writes=False), held("a", 1), False),
        (held("a", 1), held("a", writes=False), False), (held("a"), held("b"), True), (held("a", 1), held(), False),
        (held(writes=False), held("a", 1, writes=False), True), (held(writes=False), held("a", 1), False),
    ],
)  # fmt: skip
def test_who_may_run_side_by_side(first: Held, second: Held, together: bool) -> None:
    queues = RowQueues()
    assert queues.admit("first", [first])
    assert queues.admit("second", [second]) is together
    assert queues.behind("first") == ([] if together else ["second"])
    assert queues.release("first") == ([] if together else ["second"])
    assert first.meets(second) is not together


@pytest.mark.req("G63", "S59")
def test_nobody_is_overtaken_on_its_rows() -> None:
    queues = RowQueues()
    assert queues.admit("reader", [held("a", 1, writes=False)])
    assert not queues.admit("writer", [held("a", 1)])
    assert not queues.admit("late reader", [held("a", 1, writes=False)])
    assert queues.release("reader") == ["writer"]
    assert queues.release("writer") == ["late reader"]


@pytest.mark.req("G47", "S60")
def test_what_is_kept_holds_back_only_who_needs_it() -> None:
    queues = RowQueues()
    queues.admit("stuck", [held("a")])
    assert not queues.admit("same", [held("a", 1)])
    assert not queues.admit("other", [held("a", 2)])
    assert queues.release("stuck", [held("a", 1)]) == ["other"]
    assert queues.behind("stuck") == ["same"]
    assert queues.release("stuck") == ["same"]


@pytest.mark.req("G63", "S59")
@pytest.mark.parametrize("seed", range(20))
def test_random_queues_are_those_of_a_plain_list(seed: int) -> None:
    """A group may start exactly when nobody admitted before it, and not yet over, is in its way."""
    rng = random.Random(seed)
    queues = RowQueues()
    order: list[tuple[int, list[Held]]] = []
    started: set[int] = set()

    def model() -> set[int]:
        return {
            n for at, (n, mine) in enumerate(order)
            if not any(a.meets(b) for _, theirs in order[:at] for a in theirs for b in mine)
        }  # fmt: skip

    for n in range(150):
        mine = [
            Held(tuple(["t", rng.choice("ab"), rng.randrange(4)][: rng.choice([1, 2, 3, 3, 3])]), rng.random() < 0.5)
            for _ in range(rng.randrange(1, 4))
        ]
        order.append((n, mine))
        if queues.admit(n, mine):
            started.add(n)
        assert started == model()
        while started and rng.random() < 0.5:
            done = rng.choice(sorted(started))
            started.discard(done)
            order = [one for one in order if one[0] != done]
            started.update(int(str(free)) for free in queues.release(done))
            assert started == model()


# ---------------------------------------------------------------- parallel is sequential


def groups_of(rng: random.Random, count: int) -> list[Group]:
    """Transfers and other changes, of which some fail, on few rows and many."""
    made = []
    for n in range(count):
        from_, to = rng.sample([1, 2, 3, 4, 5], 2)
        kind = rng.randrange(5)
        if kind < 3:
            made.append(transfer(f"g{n}", from_, to, rng.randrange(60)))
            continue
        g = Group(f"g{n}")
        if kind == 3:
            g.insert("in", f"INSERT INTO account VALUES ({rng.randrange(6, 10)}, 'new', {n})", target="shop")
            update(g, "more", from_, 1, depends_on=["in"], checks=[affected_rows_equal(1)])
        else:
            recipe = Recipe("top", expression="first.id")
            g.query("some", "SELECT id FROM account WHERE amount > 20 ORDER BY id", target="shop", recipes=[recipe])
            out = "DELETE FROM account WHERE id = :top.value AND id > 5"
            g.delete("out", out, target="shop", depends_on=[Dep("some", "top")])
            update(g, "mark", to, 3, depends_on=["out"])
            g.empty("end", depends_on=["mark"], checks=[is_true("true" if n % 3 else "false")])
        made.append(g)
    return made


def outcomes_of(groups: Groups, made: list[Group]) -> list[tuple[str, str | None, str | None]]:
    """Submitted, run, and how each has ended."""
    for group in made:
        groups.submit(group)
    groups.processor().run_until_idle()
    outcomes = [groups.get(group.id) for group in made]
    assert {one.state for one in outcomes} <= {"committed", "rolled_back", "aborted"}
    return [(one.state, one.failed_step, one.reason) for one in outcomes]


GROUPS = 25


@pytest.mark.req("G61", "G62", "S58", "RG7")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@repeats(1, 10_000 // GROUPS)
@pytest.mark.timeout(3600)
def test_parallel_equals_sequential(request: pytest.FixtureRequest, tmp_path: Path, times: int, kind: str) -> None:
    for seed in range(times):
        found = []
        for parallel in (1, 8):
            file = tmp_path / f"shop-{seed}-{parallel}.db"
            shop: Any = SqliteShop(file) if kind == "sqlite" else PostgresShop(request.getfixturevalue("shop"))
            world = World(shop)
            shop.execute("INSERT INTO account VALUES (4, 'd', 100), (5, 'e', 30)")
            shop.execute("UPDATE account SET amount = 40 WHERE id = 3")
            outcomes = outcomes_of(world.groups(parallel_groups=parallel), groups_of(random.Random(seed), GROUPS))
            found.append((world.accounts(), outcomes))
            world.close()
            file.unlink(missing_ok=True)
        assert found[0] == found[1], seed
        assert len({state for state, _, _ in found[0][1]}) > 1


@pytest.mark.req("S57", "S58", "G61")
def test_a_range_is_written_behind_who_reads_a_row_of_it(world: World) -> None:
    text = "SELECT amount FROM account WHERE id = 1"
    reader, writer = Group("reader"), Group("writer")
    read = [Recipe("amount", expression="amount")]
    reader.query("one", text, target="shop", recipes=read)
    reader.empty("pause", recipes=[Recipe("go", handler="pause")], depends_on=["one"])
    reader.query("two", text, target="shop", recipes=read, depends_on=["pause"])
    writer.update("x", "UPDATE account SET amount = 0 WHERE amount > 0", target="shop")
    with counting() as reached:

        def pause(_: object) -> dict[str, int]:
            deadline = time.monotonic() + 20
            while not reached["group.waits_for_rows"] and groups.get("writer").state != "committed":
                assert time.monotonic() < deadline
                time.sleep(0.01)
            return {"value": 1}

        world.handlers["pause"] = pause
        groups = world.groups(parallel_groups=8)
        outcomes_of(groups, [reader, writer])
    steps = groups.get("reader").steps
    assert [steps[name].results["amount"]["value"] for name in ("one", "two")] == [100, 100]
    assert {amount for _, _, amount in world.accounts()} == {0, None}


def cell_groups_of(rng: random.Random, count: int, prefix: str) -> list[Group]:
    """The same on a target that only sets cells: transfers of what was read, rows that come and go."""
    made = []
    for n in range(count):
        from_, to = rng.sample([1, 2, 3, 4, 5], 2)
        g = Group(f"{prefix}{n}")
        if rng.randrange(5) < 3:
            amount = rng.randrange(60)
            for step, id_, sign in (("take", from_, "-"), ("give", to, "+")):
                new = Recipe(step, expression=f"amount {sign} {amount}")
                g.query(f"{step}n", f"SELECT amount FROM account WHERE id = {id_}", target="shop", recipes=[new])
                text = f"UPDATE account SET amount = :{step}.value WHERE id = {id_}"
                g.update(f"{step}s", text, target="shop", depends_on=[Dep(f"{step}n", step)])
            enough = f"SELECT amount FROM account WHERE id = {from_}"
            g.query("enough", enough, target="shop", depends_on=["takes"], success="amount >= 0")
        else:
            row = rng.randrange(6, 10)
            text = f"INSERT INTO account (id, name, amount) VALUES ({row}, 'new', {n})"
            g.insert("in", text, target="shop", must_not_exist=True)
            out = f"DELETE FROM account WHERE id = {rng.randrange(6, 10)}"
            g.delete("out", out, target="shop", depends_on=["in"])
            g.update("mark", f"UPDATE account SET name = 'by {n}' WHERE id = {to}", target="shop", depends_on=["out"])
            g.empty("end", depends_on=["mark"], checks=[is_true("true" if n % 3 else "false")])
        made.append(g)
    return made


CELLS = "CREATE TABLE account (id int, name text, amount int, PRIMARY KEY (id))"


@pytest.mark.req("G61", "G62", "S58", "RG7")
@pytest.mark.parametrize("kind", ["lww", pytest.param("cassandra", marks=[needs_servers, RELAXED, pytest.mark.soak])])
@repeats(1, 10_000 // GROUPS)
@pytest.mark.timeout(3600)
def test_parallel_equals_sequential_without_transactions(request: pytest.FixtureRequest, times: int, kind: str) -> None:
    here = kind == "lww"
    shop: Any = LwwShop() if here else CassandraShop(request.getfixturevalue("cassandra"), ("account",))
    shop.execute(CELLS)
    for seed in range(times if here else times // 20):
        found = []
        for parallel in (1, 8):
            with strandline.connect("memory:", accept_power_loss=not here) as s:
                for id_ in range(10):
                    shop.execute(f"DELETE FROM account WHERE id = {id_}")
                for id_, amount in ((1, 100), (2, 50), (3, 40), (4, 100), (5, 30)):
                    shop.execute(f"INSERT INTO account (id, name, amount) VALUES ({id_}, 'a', {amount})")
                targets = {"shop": Target(shop.url, shared=True)}
                groups = s.groups(targets=targets, parallel_groups=parallel, lease_s=60)
                outcomes = outcomes_of(groups, cell_groups_of(random.Random(seed), GROUPS, "g"))
                found.append((sorted(shop.execute("SELECT id, name, amount FROM account")), outcomes))
        assert found[0] == found[1], seed
        assert len({state for state, _, _ in found[0][1]}) > 1
    shop.close()


@pytest.mark.req("G61", "S57")
def test_groups_on_different_rows_run_at_the_same_time(world: World) -> None:
    together = threading.Barrier(2, timeout=20)
    world.handlers["meet"] = lambda message: {"n": together.wait()}
    for n in (1, 2):
        g = Group(f"g{n}")
        update(g, "x", n, 1, recipes=[Recipe("r", handler="meet")])
        world.plain.submit(g)
    world.plain.processor().run_until_idle()
    assert {world.plain.get(f"g{n}").state for n in (1, 2)} == {"committed"}


@pytest.mark.req("G61", "RG7")
def test_groups_on_the_same_rows_run_in_their_order(world: World) -> None:
    for n in range(10):
        g = Group(f"g{n}")
        g.update("x", f"UPDATE account SET name = coalesce(name, '') || '{n}' WHERE id = 3", target="shop")
        world.plain.submit(g)
    world.plain.processor().run_until_idle()
    assert world.accounts()[2][1] == "0123456789"


# ---------------------------------------------------------------- one processor at a time


@pytest.mark.req("G74", "S52")
def test_a_second_processor_waits_and_says_for_whom(world: World) -> None:
    first, second = world.plain, world.groups()
    with Running(first) as one:
        handle = first.submit(transfer("a", 1, 2, 1))
        handle.wait(10)
        two = second.processor()
        waiting = threading.Thread(target=two.run)
        waiting.start()
        while two.waits_for is None:
            first.log.wait({}, 0.01)
        assert two.waits_for == leases.said(world.s.journal, "default").holder
        first.submit(transfer("b", 1, 2, 1)).wait(10)
        assert one.error is None
    while two.waits_for is not None:
        first.log.wait({}, 0.01)
    two.stop()
    waiting.join(20)
    assert not waiting.is_alive()


@pytest.mark.req("G74")
def test_until_idle_ends_while_another_processor_has_nothing_to_do(world: World) -> None:
    """What the other one still runs is waited for; that it goes on living is not."""
    began, go = threading.Event(), threading.Event()

    def slowly(message: Any) -> None:
        began.set()
        go.wait(20)

    g = Group("slow")
    g.empty("ask", recipes=[Recipe("answer", handler="slowly", timeout_s=30)])
    world.handlers["slowly"] = slowly
    first, two = world.groups(lease_s=1), world.groups(lease_s=1).processor()
    with Running(first):
        handle = first.submit(g)
        assert began.wait(10)
        waiting = threading.Thread(target=two.run_until_idle)
        waiting.start()
        waiting.join(1)
        assert waiting.is_alive()
        go.set()
        handle.wait(10)
        waiting.join(10)
        assert not waiting.is_alive()
        assert two.waits_for is None


@pytest.mark.req("G75", "G76", "S52", "RG7")
def test_a_processor_that_lost_its_lease_changes_nothing_more(world: World) -> None:
    """One that was stopped inside a step wakes up after another one took over: its statement does not commit."""
    inside, go = threading.Event(), threading.Event()

    def stop_once(message: Any) -> dict[str, Any]:
        if not inside.is_set():
            inside.set()
            go.wait(30)
        return {"value": 1}

    world.handlers["stop"] = stop_once
    g = Group("g")
    update(g, "x", 1, 1)
    g.empty("e", depends_on=["x"], recipes=[Recipe("r", handler="stop", timeout_s=60)])
    update(g, "y", 2, 1, depends_on=["e"])
    later = transfer("later", 1, 2, 10)
    first, second = world.groups(lease_s=2), world.groups(lease_s=2)
    first.submit(g)
    first.submit(later)
    running = Running(first)
    running.__enter__()
    assert inside.wait(20)
    _still(running)
    second.processor().run_until_idle()
    assert [second.get(id_).state for id_ in ("g", "later")] == ["committed", "committed"]
    after = world.accounts()
    go.set()
    with pytest.raises(LeaseLost):
        running.__exit__()
    assert world.accounts() == after == [(1, "anna", 91), (2, "bert", 61), (3, None, None)]


def _still(running: Running) -> None:
    """Let a processor's beat stop, as if its process were stopped."""
    assert running.processor.lease is not None
    running.processor.lease._over.set()


@pytest.mark.req("G74", "S52")
def test_a_lease_goes_over_when_its_beat_is_still(world: World) -> None:
    journal = world.s.journal
    first = leases.take(journal, "x", 1.0, lambda: 1, lambda said: True)
    assert first is not None
    assert leases.take(journal, "x", 1.0, lambda: 1, lambda said: False) is None
    first.say(done_to=7)
    first.beat()
    first._over.set()  # as if its process were stopped
    second = leases.take(journal, "x", 1.0, lambda: 1, lambda said: True)
    assert second is not None
    assert (second.fence, second.progress.done_to) == (first.fence + 1, 7)
    with pytest.raises(LeaseLost):
        first.look()
    with pytest.raises(LeaseLost):
        first.check()
    second.check()
    second.release()
    third = leases.take(journal, "x", 1.0, lambda: 1, lambda said: False)
    assert third is not None
    assert third.fence == second.fence + 1
    third.release()


@pytest.mark.req("G74")
def test_what_is_over_leaves_the_stream(world: World) -> None:
    for n in range(5):
        world.plain.submit(transfer(f"g{n}", 1, 2, 1))
    world.plain.processor().run_until_idle()
    assert leases.said(world.s.journal, "default").done_to == 5
    assert list(world.s.journal.read("group_stream|default")) == []
    world.run(transfer("more", 1, 2, 1))
    assert leases.said(world.s.journal, "default").done_to == 6


@pytest.mark.req("G63")
def test_a_queue_has_an_end(world: World) -> None:
    groups = world.groups(queue_max=2)
    for n in range(3):
        groups.submit(transfer(f"g{n}", 1, 2, 1))
    groups._submitter._backlog = (0.0, 0)
    with pytest.raises(Unavailable) as caught:
        groups.submit(transfer("more", 1, 2, 1))
    assert caught.value.code == "overloaded"


@pytest.mark.req("G72", "S55")
def test_groups_run_though_no_pipeline_ever_did(world: World) -> None:
    assert world.run(transfer("g", 1, 2, 1)).state == "committed"
    assert world.s.strandline() == 0


@pytest.mark.req("G26", "G46")
def test_a_message_for_a_group_that_never_came_holds_back_no_other(world: World) -> None:
    """A group whose submitter died between the two appends is defined, and never run."""
    groups = world.plain
    points.told = _die_at("group.defined")
    try:
        with pytest.raises(ZeroDivisionError):
            groups.submit(transfer("half", 1, 2, 1))
    finally:
        points.told = None
    groups.cancel("half")
    groups.submit(transfer("whole", 1, 2, 1))
    groups.cancel("whole")
    with Running(groups):
        assert (groups.wait("whole", 20).state, groups.get("whole").reason) == ("aborted", "cancelled")
        assert groups.get("half").state == "defined"
        groups.submit(transfer("half", 1, 2, 1))
        assert (groups.wait("half", 20).state, groups.get("half").reason) == ("aborted", "cancelled")
    assert list(world.s.journal.read("group_inbox|default")) == []


def _die_at(point: str) -> Any:
    def told(name: str) -> None:
        if name == point:
            raise ZeroDivisionError

    return told
