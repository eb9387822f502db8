"""What is away for a while, or full: nothing goes out that is not in the log, and groups end by themselves."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from strandline.connect import Strandline
from strandline.errors import Unavailable
from strandline.group.checks import ask
from strandline.group.core.parts import Recipe
from strandline.group.definition import Group
from strandline.testing.faults import Faults
from tests.group.worlds import SqliteShop, World, transfer


@pytest.fixture
def world(tmp_path: Path) -> Any:
    made = World(SqliteShop(tmp_path / "shop.db"))
    yield made
    made.close()


class Outage:
    """While it is on, calls fail as those of a server that is away."""

    def __init__(self) -> None:
        self.on, self.failed = False, 0

    def __call__(self) -> None:
        if self.on:
            self.failed += 1
            raise Unavailable("the log is away", code="away", hint="", applied="no")


@pytest.mark.req("G71", "S49", "RG4")
def test_nothing_goes_out_and_nothing_is_decided_while_the_log_is_away(world: World) -> None:
    outage, faults = Outage(), Faults()
    faults.at("before log.append", outage, times=10**9)
    asked: list[str] = []

    def price(message: Any) -> dict[str, Any]:
        asked.append(message.step)
        return {"value": 1}

    with Strandline(faults.around("log", world.s.log), world.s.store) as s:
        groups = s.groups(targets={"shop": world.shop.url}, handlers={"price": price})
        g = transfer("a", 1, 2, 10)
        g.empty("quote", depends_on=["give"], recipes=[Recipe("price", handler="price")])
        groups.submit(g)
        groups.submit(transfer("b", 2, 1, 1))
        target: Any = groups.targets.target("shop")
        real = target.run_segment

        def run(owner: Any, segment: Any, *more: Any) -> Any:
            outage.on = outage.on or segment.id.step == "take"
            return real(owner, segment, *more)

        target.run_segment = run
        processor = threading.Thread(target=groups.processor().run_until_idle)
        processor.start()
        until = time.monotonic() + 10
        while outage.failed < 3 and time.monotonic() < until:
            time.sleep(0.01)
        assert outage.failed >= 3
        assert asked == []
        assert {type_ for type_, _, _ in groups.history("a")} <= {"Defined", "Taken", "Started"}
        target.run_segment, outage.on = real, False
        processor.join(20)
        assert not processor.is_alive()
        assert [groups.get(id_).state for id_ in ("a", "b")] == ["committed", "committed"]
        assert asked == ["quote"]
    assert world.accounts()[:2] == [(1, "anna", 91), (2, "bert", 59)]


@pytest.mark.req("G5", "G47", "S50")
@pytest.mark.parametrize(("back", "end"), [(False, "aborted"), (True, "rolled_back")])
def test_a_full_disk_of_a_target(world: World, back: bool, end: str) -> None:
    """Forward the step fails in the end, and leaves nothing; back it is waited for until there is room."""
    long = "x" * 50_000
    world.shop.execute("CREATE TABLE ballast (x)")
    if back:
        world.shop.execute("UPDATE account SET name = ? WHERE id = 1", (long,))
    before = world.accounts()

    freed = threading.Timer(0.8, lambda: target._writer.pragma("max_page_count", 2**30))

    def fill(message: Any) -> dict[str, Any]:
        world.shop.execute("INSERT INTO ballast VALUES (?)", ("b" * 200_000,))
        target._writer.pragma("max_page_count", target._writer.pragma("page_count"))
        freed.start()
        return {"value": not back}

    g = Group("large")
    if back:
        g.update("x", "UPDATE account SET name = 'short' WHERE id = 1", target="shop")
        g.empty("asks", depends_on=["x"], checks=[ask("fill")])
    else:
        g.empty("asks", checks=[ask("fill")])
        text = "UPDATE account SET name = :long WHERE id = 1"
        g.update("x", text, {"long": long}, target="shop", depends_on=["asks"], retries=1)
    world.handlers["fill"] = fill
    target: Any = world.plain.targets.target("shop")
    outcome = world.run(g)
    assert freed.is_alive() != back, "an undo waits until there is room"
    freed.join()
    assert (outcome.state, outcome.reason) == (end, "check_false" if back else "statement"), outcome
    assert world.accounts() == before
