"""What comes from outside in each phase of a group: a cancel, a deadline, a resolve, the same group again, a stop; and
what is seen of it meanwhile."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import strandline
from strandline.errors import NotFound, Unavailable
from strandline.group import lease as leases
from strandline.group import mail
from strandline.group.checks import ask
from strandline.group.core.parts import Handler, Hook, Recipe
from strandline.group.definition import Group
from strandline.group.groups import Groups
from strandline.pipeline.expiry import purge_expired
from strandline.testing import FakeClock, points
from strandline.testing.lww import LwwTarget, lww
from strandline.work.declaration import WorkDeclaration
from tests.group.cuts import Cuts
from tests.group.worlds import ACCOUNTS, PostgresShop, Running, SqliteShop, World, serving, transfer, update
from tests.query.filling import carry_all
from tests.repeats import repeats

HOUR_US = 3_600_000_000
SEAT = "CREATE TABLE seat (id int, guest text, n int, PRIMARY KEY (id))"


@pytest.fixture(params=["sqlite", "postgres"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    here = request.param == "sqlite"
    shop: Any = SqliteShop(tmp_path / "shop.db") if here else PostgresShop(request.getfixturevalue("shop"))
    made = World(shop)
    yield made
    points.clear()
    made.close()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    """For what is the same on every target."""
    made = World(SqliteShop(tmp_path / "shop.db"))
    yield made
    points.clear()
    made.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(SqliteShop(tmp_path / "shop.db"), f"sqlite:{tmp_path / 'j'}")
    yield made
    points.clear()
    made.close()


class Seats:
    """A target without transactions, and its groups."""

    def __init__(self) -> None:
        self.name = uuid4().hex
        self.target: LwwTarget = lww(self.name)
        self.target.create(SEAT)
        for n in (1, 2, 3):
            self.target.execute(f"INSERT INTO seat (id, guest) VALUES ({n}, 'guest {n}')")
        self.before = self.rows()
        self.s = strandline.connect("memory:")
        self.handlers: dict[str, Callable[[Any], Any]] = {}
        self.cuts = Cuts()

    def groups(self, **more: Any) -> Groups:
        more.setdefault("targets", {"shop": f"lww:{self.name}"})
        return self.cuts.watch(self.s.groups(handlers=self.handlers, **more))

    def rows(self) -> list[Any]:
        return self.target.execute("SELECT id, guest, n FROM seat")

    def times(self, id_: int) -> int:
        ((found,),) = self.target.execute(f"SELECT writetime(guest) FROM seat WHERE id = {id_}")
        return int(found)

    def close(self) -> None:
        points.clear()
        self.cuts.check()
        self.s.close()


@pytest.fixture
def seats() -> Iterator[Seats]:
    made = Seats()
    yield made
    made.close()


def guest(g: Group, name: str, id_: int, text: str, **more: Any) -> Any:
    more.setdefault("target", "shop")
    return g.update(name, "UPDATE seat SET guest = :t WHERE id = :id", {"t": text, "id": id_}, **more)


class Crash(BaseException):
    pass


def crash() -> None:
    raise Crash


def pause_at(point: str, time_: int = 1) -> tuple[threading.Event, threading.Event]:
    """Who comes there waits; the first one is set when it is there, the second one lets it go."""
    there, go = threading.Event(), threading.Event()

    def hold() -> None:
        there.set()
        assert go.wait(30)

    points.at(point, hold, time_)
    return there, go


def until(true: Callable[[], Any], timeout_s: float = 20) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


# ---------------------------------------------------------------- cancel and deadline


def three(fails: bool) -> Group:
    g = Group("g")
    update(g, "x", 1, 1)
    update(g, "y", 2, 1, depends_on=["x"])
    g.empty("last", depends_on=["y"], success="1 = 2" if fails else "1 = 1")
    return g


PHASES = [
    ("group.started", False, "cancelled"), ("step.before", False, "cancelled"), ("step.done", False, "cancelled"),
    ("step.recorded", False, "cancelled"), ("ended", False, None), ("decided", True, "check_false"),
    ("undo.before", True, "check_false"), ("undo.recorded", True, "check_false"), ("ended", True, "check_false"),
]  # fmt: skip


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.req("G46", "S43", "RG6")
@pytest.mark.parametrize(("point", "fails", "reason"), PHASES, ids=[f"{p}-{fails}" for p, fails, _ in PHASES])
def test_a_cancel_in_each_phase(here: World, point: str, fails: bool, reason: str | None) -> None:
    """Before it is decided it undoes; a rollback under way, and what is committed, it does not touch."""
    there, go = pause_at(point)
    with Running(here.plain):
        here.plain.submit(three(fails))
        assert there.wait(20)
        here.plain.cancel("g")
        until(lambda: not list(here.s.journal.read("group_inbox|default")))
        go.set()
        outcome = here.plain.wait("g")
    assert outcome.reason == reason
    if reason is None:
        assert outcome.state == "committed"
        assert [row[2] for row in here.accounts()[:2]] == [101, 51]
    else:
        assert outcome.state == ("aborted" if point == "group.started" else "rolled_back")
        assert here.accounts() == ACCOUNTS
    assert here.types("g").count("Decided") == here.types("g").count("Ended") == 1


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.req("G46", "S44", "RG8")
@pytest.mark.parametrize(("point", "fails"), [("step.done", False), ("undo.before", True)])
def test_a_deadline_that_passes_in_a_step_and_in_a_rollback(here: World, point: str, fails: bool) -> None:
    there, go = pause_at(point)
    groups = here.groups(deadline_s=0.3)
    with Running(groups):
        groups.submit(three(fails))
        assert there.wait(20)
        time.sleep(0.4)
        go.set()
        outcome = groups.wait("g")
    assert (outcome.state, outcome.reason) == ("rolled_back", "check_false" if fails else "deadline")
    assert here.accounts() == ACCOUNTS


@pytest.mark.req("RG8", "G46")
@pytest.mark.parametrize("how", ["cancel", "deadline", "failure"])
def test_a_handler_that_hangs_does_not_hold_back_what_failed(here: World, how: str) -> None:
    """It is waited for no longer than a statement would be; its undo handler is told that nobody knows."""
    go, inside, told = threading.Event(), threading.Event(), list[Any]()

    def hang(message: Any) -> None:
        inside.set()
        go.wait(30)

    def fail(message: Any) -> dict[str, Any]:
        inside.wait(20)
        return {"value": how != "failure"}

    here.handlers |= {"hang": hang, "undo": told.append, "fail": fail}
    groups = here.groups(statement_timeout_s=0.2)
    g = Group("g", deadline_s=0.5 if how == "deadline" else None)
    update(g, "x", 1, 1)
    g.empty("hangs", depends_on=["x"], recipes=[Recipe("r", handler="hang", timeout_s=30)], undo=Handler("undo"))
    g.empty("asks", depends_on=["x"], checks=[ask("fail")])
    began = time.monotonic()
    with Running(groups):
        groups.submit(g)
        assert inside.wait(20)
        if how == "cancel":
            groups.cancel("g")
        outcome = groups.wait("g", 10)
        go.set()
    assert time.monotonic() - began < 10
    assert (outcome.state, outcome.reason) == (
        "rolled_back", {"cancel": "cancelled", "failure": "check_false"}.get(how, how)
    )  # fmt: skip
    assert here.accounts() == ACCOUNTS
    assert [(undo.step, undo.outcome) for undo in told] == [("hangs", "unknown")]


# ---------------------------------------------------------------- resolve, and the same group again


@pytest.mark.req("G47", "S42")
@pytest.mark.parametrize(("first", "second", "left"), [("force", "accept_current", 100), ("retry", "force", 100),
                                                       ("accept_current", "force", 777)])  # fmt: skip
def test_two_resolves_of_one_step(here: World, first: str, second: str, left: int) -> None:
    """The one that ends it counts; what was said before and did not help changes nothing."""

    def meddle(message: Any) -> dict[str, Any]:
        here.shop.execute("UPDATE account SET amount = 777 WHERE id = 1")
        return {"value": False}

    here.handlers["meddle"] = meddle
    g = Group("stuck")
    update(g, "x", 1, 1)
    g.empty("e", depends_on=["x"], checks=[ask("meddle")])
    assert here.run(g).state == "rollback_failed"
    here.plain.resolve("stuck", "x", first)
    here.plain.resolve("stuck", "x", second)
    here.plain.processor().run_until_idle()
    assert here.plain.get("stuck").state == "rolled_back"
    assert here.accounts()[0][2] == left
    assert list(here.s.journal.read("group_inbox|default")) == []


@pytest.mark.req("G47", "G84", "S60")
def test_who_waits_for_rows_of_a_group_that_is_stuck_says_so(here: World) -> None:
    def meddle(message: Any) -> dict[str, Any]:
        here.shop.execute("UPDATE account SET amount = 777 WHERE id = 1")
        return {"value": False}

    here.handlers["meddle"] = meddle
    stuck, same, other = Group("stuck"), Group("same"), Group("other")
    update(stuck, "x", 1, 1)
    update(stuck, "y", 2, 1)
    stuck.empty("e", depends_on=["x", "y"], checks=[ask("meddle")])
    update(same, "x", 1, 1)
    update(other, "x", 2, 1)
    here.run(stuck, same, other)
    assert [here.plain.get(id_).state for id_ in ("stuck", "same", "other")] == [
        "rollback_failed",
        "queued",
        "committed",
    ]
    waits_for = str(here.groups().get("same").waits_for)
    assert waits_for.startswith("rows of group stuck")
    assert "group resolve stuck" in waits_for
    here.plain.resolve("stuck", "x", "force")
    here.plain.processor().run_until_idle()
    assert (here.plain.get("same").state, here.plain.get("same").waits_for) == ("committed", None)


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.req("G59", "S51", "RG6")
@pytest.mark.parametrize("point", ["decided", "undo.done", "ended"])
def test_the_same_group_is_submitted_while_it_is_rolled_back(here: World, point: str) -> None:
    there, go = pause_at(point)
    with Running(here.plain):
        here.plain.submit(three(True))
        assert there.wait(20)
        handle = here.groups().submit(three(True))
        go.set()
        assert handle.wait().state == "rolled_back"
        assert here.plain.submit(three(True)).wait().state == "rolled_back"
    here.plain.processor().run_until_idle()
    assert here.accounts() == ACCOUNTS
    assert here.types("g").count("Started") == 1


# ---------------------------------------------------------------- stops


@pytest.mark.req("G74", "G72")
def test_a_processor_that_is_stopped_brings_to_an_end_what_runs(here: World) -> None:
    """Steps that ask somebody are still to come when it is told to stop."""
    inside, go = threading.Event(), threading.Event()

    def slow(message: Any) -> None:
        inside.set()
        go.wait(30)

    here.handlers |= {"slow": slow, "quick": lambda message: {"value": 1}}
    g = Group("g")
    g.empty("first", recipes=[Recipe("r", handler="slow")])
    for n in range(3):
        g.empty(f"e{n}", depends_on=["first"], recipes=[Recipe("r", handler="quick")])
    with Running(here.plain) as running:
        here.plain.submit(g)
        assert inside.wait(20)
        running.processor.stop()
        until(lambda: not here.plain.near.running)
        time.sleep(0.05)
        go.set()
    assert here.plain.get("g").state == "committed"


@pytest.mark.req("G74", "G63")
def test_no_group_waits_for_the_next_look_of_its_processor(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submitted before it starts, or while it runs: whatever makes it go on wakes the processor."""
    monkeypatch.setattr("strandline.group.turn.TICK_S", 60.0)
    began = time.monotonic()
    assert here.run(transfer("before", 1, 2, 1), transfer("behind", 1, 2, 1)).state == "committed"
    with Running(here.plain):
        assert here.plain.submit(transfer("while", 1, 2, 1)).wait().state == "committed"
    assert time.monotonic() - began < 30


@pytest.mark.req("G74")
def test_a_lease_is_given_back_whatever_ends_a_processor(here: World) -> None:
    """A group comes upon an error of the program while the processor is told to stop."""
    there, go = pause_at("step.done")
    here.plain.submit(three(False))
    running = Running(here.plain)
    running.__enter__()
    assert there.wait(20)
    points.at("step.recorded", crash)
    running.processor.stop()
    go.set()
    with pytest.raises(Crash):
        running.__exit__()
    points.clear()
    assert leases.said(here.s.journal, "default").holder is None
    here.plain.processor().run_until_idle()
    assert here.plain.get("g").state == "committed"


@pytest.mark.req("RG8", "G24", "G44")
def test_an_undo_that_waits_for_answers_by_mail_holds_back_no_other_group(world: World) -> None:
    box = world.s.work(WorkDeclaration("prices", key=mail.KEY, data=mail.DATA, poll_s=0.05))
    groups = world.groups(parallel_steps=1)
    g, other = Group("g"), Group("other")
    for n in (1, 2):
        update(g, f"x{n}", n, 1, undo=Handler("work:prices", timeout_s=60))
    g.empty("last", depends_on=["x1", "x2"], success="1 = 2")
    for n in range(3):
        other.query(f"q{n}", "SELECT amount FROM account WHERE id = 3", target="shop")
    with Running(groups):
        groups.submit(g)
        until(lambda: box.counts().due == 2)
        groups.submit(other)
        assert groups.wait("other", 10).state == "committed"
        for claim in box.cursor("w").claim(10).claims:
            groups.answer(claim.entry.data["message"]["message_id"], {})
        assert groups.wait("g").state == "rolled_back"


# ---------------------------------------------------------------- what is seen meanwhile


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.req("G84")
def test_what_a_group_has_done_is_seen_before_it_is_in_the_log(both: World) -> None:
    there, go = pause_at("step.recorded", 2)
    other = both.groups()
    with Running(both.plain):
        both.plain.submit(three(False))
        assert there.wait(20)
        assert set(both.types("g")) <= {"Defined", "Taken"}
        outcome = other.get("g")
        go.set()
        both.plain.wait("g")
    assert (outcome.state, outcome.place) == ("running", 1)
    assert [outcome.steps[name].state for name in ("x", "y", "last")] == ["succeeded", "succeeded", "waiting"]
    assert outcome.steps["x"].affected == 1


@pytest.mark.req("G84")
def test_a_group_is_seen_though_its_target_is_away(here: World) -> None:
    groups = here.groups()
    groups.submit(three(False))

    def away(*_: Any) -> Any:
        raise Unavailable("away", code="away", hint="", applied="no")

    target: Any = groups.targets.target("shop")
    target.barriers = away
    assert groups.get("g").state == "queued"


# ---------------------------------------------------------------- in flight


@pytest.mark.req("G43", "S39", "RG5")
def test_a_step_in_flight_while_another_fails_is_undone(both: World) -> None:
    failed = threading.Event()

    def fail(message: Any) -> dict[str, Any]:
        failed.set()
        return {"value": False}

    both.handlers["fail"] = fail
    groups = both.groups()
    target: Any = groups.targets.target("shop")
    real = target.run_segment

    def slowly(owner: Any, segment: Any, *more: Any) -> Any:
        assert failed.wait(20)
        time.sleep(0.1)
        return real(owner, segment, *more)

    target.run_segment = slowly
    g = Group("g")
    update(g, "x", 1, 1)
    g.empty("e", checks=[ask("fail")])
    groups.submit(g)
    groups.processor().run_until_idle()
    outcome = groups.get("g")
    assert (outcome.state, outcome.failed_step, outcome.steps["x"].state) == ("rolled_back", "e", "undone")
    assert both.accounts() == ACCOUNTS


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.req("G6", "G43", "S40", "RG5")
@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("retries", [0, 1])
def test_an_answer_that_is_lost(both: World, done: bool, retries: int) -> None:
    """Sent again, its outcome is found; where it is not sent again it is undone, done or not."""
    groups = both.groups(retries=retries)
    target: Any = groups.targets.target("shop")
    real, left = target.run_segment, [1]

    def lost(owner: Any, segment: Any, *more: Any) -> Any:
        if not left:
            return real(owner, segment, *more)
        left.pop()
        if done:
            real(owner, segment, *more)
        raise Unavailable("the connection is gone", code="away", hint="", applied="unknown")

    target.run_segment = lost
    g = Group("g")
    update(g, "x", 1, 1)
    groups.submit(g)
    groups.processor().run_until_idle()
    outcome = groups.get("g")
    if retries:
        assert (outcome.state, both.accounts()[0][2]) == ("committed", 101)
    else:
        assert outcome.state == ("rolled_back" if done else "aborted")
        assert both.accounts() == ACCOUNTS


@pytest.mark.req("G6", "G43", "S39", "S40", "RG5")
@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("retries", [0, 1])
def test_an_answer_that_is_lost_without_transactions(
    seats: Seats, done: bool, retries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same write is sent again; where it is not it is put back, done or not. Another step has failed meanwhile, or
    fails then."""
    real, left = seats.target.sent, [1]

    def lost(*given: Any, **more: Any) -> None:
        if done or not left:
            real(*given, **more)
        if left:
            left.pop()
            raise Unavailable("no answer in time", code="timeout", hint="", applied="unknown")

    groups = seats.groups(retries=retries)
    monkeypatch.setattr(seats.target, "sent", lost)
    for id_, check in (("g", "1 = 1"), ("h", "1 = 2")):
        g = Group(id_)
        guest(g, "x", 1, id_)
        g.empty("last", depends_on=["x"], success=check)
        groups.submit(g)
    groups.processor().run_until_idle()
    ends = [groups.get(id_).state for id_ in ("g", "h")]
    assert ends == ["committed" if retries else "rolled_back", "rolled_back"]
    assert seats.rows() == ([(1, "g", None), *seats.before[1:]] if retries else seats.before)


@pytest.mark.req("G47", "G75", "S49", "RG5")
@pytest.mark.parametrize("changed", [True, False])
def test_a_target_without_transactions_that_goes_away_later(
    seats: Seats, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that has changed nothing waits, and asks nobody again; another one fails, and its undo waits."""
    real, left, asked = seats.target.asked, [0], list[Any]()

    def moody(*given: Any, **more: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise Unavailable("it is away", code="away", hint="")
        return real(*given, **more)

    def off(message: Any) -> dict[str, Any]:
        asked.append(message)
        left[0] = 4 if changed else 2 - len(asked)
        return {"value": True}

    seats.handlers["off"] = off
    monkeypatch.setattr(seats.target, "asked", moody)
    groups = seats.groups(retries=1)
    g = Group("g")
    if changed:
        guest(g, "x", 1, "g")
    g.empty("e", depends_on=["x"] if changed else [], checks=[ask("off")])
    guest(g, "y", 2, "g", depends_on=["e"])
    groups.submit(g)
    groups.processor().run_until_idle()
    outcome = groups.get("g")
    assert (outcome.state, outcome.failed_step) == (("rolled_back", "y") if changed else ("committed", None))
    assert (left, len(asked)) == ([0], 1)
    assert seats.rows() == (seats.before if changed else [seats.before[0], (2, "g", None), seats.before[2]])


@pytest.mark.req("G47", "G53", "S28", "S49")
def test_an_undo_that_was_interrupted_at_its_first_question_puts_all_back(
    seats: Seats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target goes away while it is asked what a removal covers."""
    real, asked = seats.target.kinds, list[Any]()

    def moody(table: Any) -> Any:
        asked.append(table)
        if len(asked) == 1:
            raise Unavailable("it is away", code="away", hint="")
        return real(table)

    monkeypatch.setattr(seats.target, "kinds", moody)
    groups = seats.groups()
    g = Group("g")
    guest(g, "x", 1, "g")
    for name, needs in (("once", "x"), ("twice", "once")):
        g.delete(name, "DELETE FROM seat WHERE id = 1", target="shop", depends_on=[needs])
    g.empty("last", depends_on=["twice"], success="1 = 2")
    groups.submit(g)
    groups.processor().run_until_idle()
    assert groups.get("g").state == "rolled_back"
    assert len(asked) > 1
    assert seats.rows() == seats.before


@pytest.mark.req("G43", "S39", "S43", "S44", "RG5")
@pytest.mark.parametrize("how", ["fails", "cancel", "deadline"])
def test_a_write_in_flight_without_transactions_is_put_back(
    seats: Seats, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failed = seats.target.sent, threading.Event()

    def slowly(*given: Any, **more: Any) -> None:
        monkeypatch.undo()
        if how == "cancel":
            groups.cancel("g")
        elif how == "fails":
            assert failed.wait(20)
        else:
            time.sleep(0.11)  # past the deadline, whoever sees that
        real(*given, **more)
        until(lambda: how != "cancel" or "Cancelled" in [type_ for type_, _, _ in groups.history("g")])

    def fail(message: Any) -> dict[str, Any]:
        failed.set()
        return {"value": False}

    seats.handlers["fail"] = fail
    groups = seats.groups()
    monkeypatch.setattr(seats.target, "sent", slowly)
    g = Group("g", deadline_s=0.1 if how == "deadline" else None)
    guest(g, "x", 1, "late")
    g.empty("e", checks=[ask("fail")] if how == "fails" else ())
    groups.submit(g)
    groups.processor().run_until_idle()
    outcome = groups.get("g")
    assert (outcome.state, outcome.steps["x"].state) == ("rolled_back", "undone")
    assert outcome.reason == {"fails": "check_false", "cancel": "cancelled", "deadline": "deadline"}[how]
    assert seats.rows() == seats.before


@pytest.mark.req("G45", "S46", "S47", "RG5")
@pytest.mark.parametrize("point", ["intent.recorded", "step.done"])
def test_an_irreversible_step_that_was_begun_is_brought_to_its_end(both: World, point: str) -> None:
    """The process ends when it may have been sent; then somebody cancels, and the deadline passes: it goes forward."""
    g = Group("ship", deadline_s=0.2)
    update(g, "x", 1, 1)
    text = "UPDATE account SET amount = amount + 1000 WHERE id = 2"
    g.statement("ship", text, target="shop", irreversible=True, depends_on=["x"])
    both.plain.submit(g)
    points.at(point, crash, 1 if point == "intent.recorded" else 2)
    with pytest.raises(Crash):
        both.plain.processor().run_until_idle()
    points.clear()
    both.plain.cancel("ship")
    time.sleep(0.3)
    both.plain.processor().run_until_idle()
    outcome = both.plain.get("ship")
    assert (outcome.state, outcome.reason) == ("committed", None)
    assert [row[2] for row in both.accounts()[:2]] == [101, 1050]


# ---------------------------------------------------------------- clocks, names, backups


@pytest.mark.req("G53", "G76")
def test_a_processor_whose_clock_was_an_hour_ahead_stops_no_other(seats: Seats) -> None:
    """What it wrote is an hour ahead; the next one writes above that, and takes it for no foreign clock."""
    ahead = seats.groups()
    ahead.clock = lambda: time.time_ns() // 1000 + HOUR_US
    for groups, text in ((ahead, "ahead"), (seats.groups(), "right"), (seats.groups(), "again")):
        g = Group(text)
        guest(g, "x", 1, text)
        groups.submit(g)
        groups.processor().run_until_idle()
        assert groups.get(text).state == "committed", groups.get(text)
        assert seats.rows()[0][1] == text
    far = time.time_ns() // 1000 + 3 * HOUR_US
    seats.target.execute(f"UPDATE seat USING TIMESTAMP {far} SET guest = 'theirs' WHERE id = 1")
    g = Group("far")
    guest(g, "x", 1, "ours")
    seats.groups().submit(g)
    seats.groups().processor().run_until_idle()
    assert (seats.groups().get("far").state, seats.groups().get("far").reason) == ("aborted", "clock_ahead")


@pytest.mark.req("G53")
def test_a_processor_that_was_stopped_leaves_no_time_of_its_own(seats: Seats) -> None:
    """Who writes after a group, by the clock, is later than it, however often processors came and went."""
    for n in range(5):
        g = Group(f"g{n}")
        guest(g, "x", 1, f"ours {n}")
        seats.groups().submit(g)
        seats.groups().processor().run_until_idle()
        time.sleep(0.01)
        seats.target.execute(f"UPDATE seat SET guest = 'theirs {n}' WHERE id = 1")
        assert seats.rows()[0][1] == f"theirs {n}"


@pytest.mark.req("G13", "G89", "G62", "RG2")
@pytest.mark.parametrize("fails", [False, True])
def test_two_names_of_one_database_in_one_group(world: World, fails: bool) -> None:
    """Steps on the same rows run in their order, and are undone in reverse."""
    groups = world.groups(targets={"shop": world.shop.url, "again": world.shop.url})
    g = Group("g")
    for n, target in enumerate(("shop", "again") * 3):
        text = f"UPDATE account SET name = coalesce(name, '') || '{n}', amount = {n} WHERE id = 3"
        g.update(f"s{n}", text, target=target)
    g.empty("last", depends_on=["s5"], success="1 = 2" if fails else "1 = 1")
    groups.submit(g)
    groups.processor().run_until_idle()
    assert groups.get("g").state == ("rolled_back" if fails else "committed"), groups.get("g")
    assert world.accounts()[2] == (ACCOUNTS[2] if fails else (3, "012345", 5))


@pytest.mark.req("G13", "G89", "RG2")
def test_two_names_of_one_target_without_transactions(seats: Seats) -> None:
    groups = seats.groups(targets={"shop": f"lww:{seats.name}", "again": f"lww:{seats.name}"})
    g = Group("g")
    guest(g, "a", 1, "a")
    guest(g, "b", 1, "b", target="again", depends_on=["a"])
    guest(g, "c", 1, "c")
    g.empty("last", depends_on=["b", "c"], success="1 = 2")
    groups.submit(g)
    groups.processor().run_until_idle()
    assert groups.get("g").state == "rolled_back", groups.get("g")
    assert seats.rows() == seats.before


@pytest.mark.req("G89", "G75", "G72")
def test_a_target_that_was_put_back_to_an_older_state(tmp_path: Path, world: World) -> None:
    """Its groups stay as they ended; the next ones run on what is there, though it knows an older fence."""
    world.run(transfer("one", 1, 2, 1))
    world.plain.close()
    world.shop.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(tmp_path / "shop.db", tmp_path / "backup.db")
    for n in range(3):
        world.run(transfer(f"lost{n}", 1, 2, 10))
    world.plain.close()
    world.shop.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    world.shop.close()
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"shop.db{suffix}").unlink(missing_ok=True)
    shutil.copy(tmp_path / "backup.db", tmp_path / "shop.db")
    world.shop = SqliteShop(tmp_path / "shop.db")
    assert world.run(transfer("next", 1, 2, 5)).state == "committed"
    assert {world.plain.get(f"lost{n}").state for n in range(3)} == {"committed"}
    assert [row[2] for row in world.accounts()[:2]] == [94, 56]


@pytest.mark.req("G77", "G84", "G59")
def test_a_history_is_purged_while_its_group_is_listed(tmp_path: Path) -> None:
    """It leaves the lists, its id is free, and another life of it runs."""
    clock, url = FakeClock(), f"sqlite:{tmp_path / 'j'}"
    world = World(SqliteShop(tmp_path / "shop.db"))
    world.s.close()
    world.s = strandline.connect(url, clock=clock)
    groups = world.groups(history_keep_s=86_400)
    for n in range(3):
        groups.submit(transfer(f"g{n}", 1, 2, 1))
    groups.processor().run_until_idle()
    carry_all(world.s)
    first = groups.list(limit=1)
    assert [one.id for one in first.groups] == ["g0"]
    clock.advance(timedelta(days=2))
    assert sorted(map(str, purge_expired(url, clock=clock))) == [f"group|g{n}" for n in range(3)]
    for listed in (groups.list(), groups.list(after=first.after), groups.list("committed"), groups.list("open")):
        assert listed.groups == ()
    carry_all(world.s)
    assert groups.list(after=first.after).groups == ()
    with pytest.raises(NotFound):
        groups.get("g0")
    groups.submit(transfer("g0", 1, 2, 20))
    groups.processor().run_until_idle()
    assert groups.get("g0").state == "committed"
    assert [row[2] for row in world.accounts()[:2]] == [77, 73]
    world.close()


# ---------------------------------------------------------------- cells


@pytest.mark.req("G47", "S42", "S34", "RG1")
@pytest.mark.parametrize(("how", "left"), [("force", "guest 2"), ("accept_current", "theirs")])
def test_one_undo_of_three_fails_where_there_are_no_transactions(seats: Seats, how: str, left: str) -> None:
    def meddle(message: Any) -> dict[str, Any]:
        seats.target.execute("UPDATE seat SET guest = 'theirs' WHERE id = 2")
        return {"value": False}

    seats.handlers["meddle"] = meddle
    g = Group("g")
    for n in (1, 2, 3):
        guest(g, f"s{n}", n, "ours")
    g.empty("last", depends_on=["s1", "s2", "s3"], checks=[ask("meddle")])
    groups = seats.groups()
    groups.submit(g)
    groups.processor().run_until_idle()
    outcome = groups.get("g")
    assert outcome.state == "rollback_failed"
    assert [outcome.steps[f"s{n}"].state for n in (1, 2, 3)] == ["undone", "undo_failed", "undone"]
    assert [row[1] for row in seats.rows()] == ["guest 1", "theirs", "guest 3"]
    groups.resolve("g", "s2", how)
    groups.processor().run_until_idle()
    assert groups.get("g").state == "rolled_back"
    assert [row[1] for row in seats.rows()] == ["guest 1", left, "guest 3"]


@pytest.mark.req("G53", "G46", "RG6")
@pytest.mark.parametrize("point", ["undo.sent", "undo.done"])
def test_what_is_written_after_an_undo_that_overwrote_stays(seats: Seats, point: str) -> None:
    """The undo was sent, and its process ended before anybody knew; who repeats it repeats the same write."""

    def meddle(message: Any) -> dict[str, Any]:
        seats.target.execute("UPDATE seat SET guest = 'theirs' WHERE id = 1")
        return {"value": False}

    seats.handlers["meddle"] = meddle
    groups = seats.groups(on_conflict="overwrite")
    g = Group("g")
    guest(g, "x", 1, "ours")
    g.empty("last", depends_on=["x"], checks=[ask("meddle")])
    groups.submit(g)
    points.at(point, crash)
    with pytest.raises(Crash):
        groups.processor().run_until_idle()
    points.clear()
    assert seats.rows() == seats.before
    over = seats.times(1)
    time.sleep(0.01)
    seats.target.execute("UPDATE seat SET guest = 'later' WHERE id = 1")
    groups.processor().run_until_idle()
    assert groups.get("g").state == "rolled_back"
    assert seats.rows()[0][1] == "later"
    intents = [
        payload["over"] for type_, payload, _ in groups.history("g") if type_ == "UndoIntent" and "over" in payload
    ]
    assert intents == [over]


@pytest.mark.req("G71", "S49", "RG4")
def test_no_write_goes_to_a_target_without_transactions_while_the_log_is_away(
    seats: Seats, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = seats.groups()
    real, sent, failed = seats.s.journal.append_reserved, list[str](), list[str]()

    def append(key: Any, events: Any, **more: Any) -> Any:
        if len(failed) < 3 and any(event.type == "Intent" for event in events):
            failed.append(str(key))
            raise Unavailable("away", code="away", hint="", applied="no")
        return real(key, events, **more)

    write = seats.target.write

    def watched(*given: Any) -> Any:
        sent.append("write")
        assert len(failed) == 3
        return write(*given)

    monkeypatch.setattr(seats.s.journal, "append_reserved", append)
    monkeypatch.setattr(seats.target, "write", watched)
    g = Group("g")
    guest(g, "x", 1, "ours")
    groups.submit(g)
    groups.processor().run_until_idle()
    assert (groups.get("g").state, sent) == ("committed", ["write"])


@pytest.mark.req("G45", "S47")
def test_an_irreversible_step_without_transactions_is_sent_until_it_is_there(seats: Seats) -> None:
    groups = seats.groups()
    g = Group("g")
    guest(g, "x", 1, "ours", irreversible=True)
    groups.submit(g)
    points.at("intent.recorded", crash)
    with pytest.raises(Crash):
        groups.processor().run_until_idle()
    points.clear()
    groups.cancel("g")
    groups.processor().run_until_idle()
    assert groups.get("g").state == "committed"
    assert seats.rows()[0][1] == "ours"


# ---------------------------------------------------------------- hooks


@pytest.mark.req("G67", "S63", "RG9")
@pytest.mark.parametrize("point", ["hook.queued", "hook.sent", "ended"])
def test_a_hook_is_told_again_after_a_crash_with_the_same_id(here: World, point: str) -> None:
    told: list[Any] = []
    here.handlers["hook"] = told.append
    g = Group("g", post_hook=Hook("hook"))
    update(g, "x", 1, 1, pre_hook=Hook("hook"))
    here.plain.submit(g)
    points.at(point, crash)
    with pytest.raises(Crash):
        here.plain.processor().run_until_idle()
    points.clear()
    here.plain.processor().run_until_idle()
    assert here.plain.get("g").state == "committed"
    ids = {(message.step, message.when): {m.message_id for m in told if m.step == message.step} for message in told}
    assert {place: len(found) for place, found in ids.items()} == {("x", "pre"): 1, ("group/post", "post"): 1}
    queued = {payload["message_id"] for type_, payload, _ in here.plain.history("g") if type_ == "HookQueued"}
    assert queued == {message.message_id for message in told}


@pytest.mark.req("G46", "G67", "S45")
def test_what_fails_after_the_commit_undoes_nothing(here: World) -> None:
    def broken(message: Any) -> None:
        raise RuntimeError("after the end")

    here.handlers["broken"] = broken
    g = Group("g", post_hook=Hook("broken", ack=True))
    update(g, "x", 1, 1)
    assert here.run(g, retries=1).state == "committed"
    assert here.accounts()[0][2] == 101


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.req("G41", "G43", "S38")
def test_branches_are_undone_side_by_side_each_in_reverse(here: World) -> None:
    """Two chains: while one of them is held up in its undo, the other one goes all the way back."""
    g = Group("g")
    for branch, id_ in (("a", 1), ("b", 2)):
        for n in range(3):
            update(g, f"{branch}{n}", id_, 1, depends_on=[f"{branch}{n - 1}"] if n else [])
    g.empty("last", depends_on=["a2", "b2"], success="1 = 2")
    groups, done = here.groups(), list[str]()
    target: Any = groups.targets.target("shop")
    real = target.undo_segment

    def undo(owner: Any, segment: Any, *given: Any, **more: Any) -> Any:
        if segment.id.step == "a2":
            until(lambda: {"b0", "b1", "b2"} <= set(done))
        found = real(owner, segment, *given, **more)
        done.append(segment.id.step)
        return found

    target.undo_segment = undo
    groups.submit(g)
    groups.processor().run_until_idle()
    assert groups.get("g").state == "rolled_back"
    assert done == ["b2", "b1", "b0", "a2", "a1", "a0"]
    assert here.accounts() == ACCOUNTS


@pytest.mark.req("G24", "G44", "S12")
def test_acks_and_answers_that_come_twice_are_one_outcome(world: World) -> None:
    """A worker that answers each message twice, and acks it once more."""
    world.s.work(WorkDeclaration("prices", key=mail.KEY, data=mail.DATA, poll_s=0.05))
    groups, seen = world.plain, list[str]()

    def price(message: Any) -> dict[str, Any]:
        seen.append(message.message_id)
        groups.ack(message.message_id)
        groups.answer(message.message_id, {"value": len(seen)})
        return {"value": 99}

    g = Group("g")
    g.empty("a", recipes=[Recipe("r", handler="work:prices", ack=True, timeout_s=20)])
    with serving(world, price):
        outcome = world.run(g)
    assert outcome.steps["a"].results == {"r": {"value": 1}}
    assert len(set(seen)) == 1


@pytest.mark.req("G14", "G43", "S6")
@repeats(100, 10_000)
def test_a_long_chain_and_a_wide_group_are_undone(tmp_path: Path, times: int) -> None:
    """All steps but the last one have run."""
    for wide in (False, True):
        world = World(SqliteShop(tmp_path / f"shop-{wide}.db"))
        count = max(100, times // 10) if wide else times
        world.shop.execute("CREATE TABLE many (id integer PRIMARY KEY, n integer)")
        world.shop.execute(f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {count - 1}) "
                           "INSERT INTO many SELECT i, 0 FROM n")  # fmt: skip
        g = Group("many", deadline_s=3600)
        for n in range(count - 1):
            text = f"UPDATE many SET n = n + 1 WHERE id = {n if wide else n % 7}"
            g.update(f"s{n}", text, target="shop", depends_on=[f"s{n - 1}"] if n and not wide else [])
        g.empty("last", depends_on=[f"s{n}" for n in range(count - 1)] if wide else [f"s{count - 2}"], success="1 = 2")
        outcome = world.run(g)
        assert (outcome.state, outcome.failed_step) == ("rolled_back", "last")
        assert {outcome.steps[f"s{n}"].state for n in range(count - 1)} == {"undone"}
        assert world.shop.execute("SELECT max(n), min(n), count(*) FROM many") == [(0, 0, count)]
        world.close()
