"""Handlers in other processes, through work journals: messages out, answers back, whoever lives meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline.errors import InvalidGroup, InvalidInput, NotFound
from strandline.group import mail
from strandline.group.checks import ask
from strandline.group.core.parts import Dep, Handler, Hook, Need, Produce, Recipe, Refused, Undo
from strandline.group.definition import Group
from strandline.group.groups import Groups
from strandline.testing import points
from strandline.work.claims import Claim
from strandline.work.declaration import WorkDeclaration
from strandline.work.journal import WorkJournal
from tests.group.worlds import ACCOUNTS, Running, SqliteShop, World, serving, update

BOX = WorkDeclaration("prices", key=mail.KEY, data=mail.DATA, poll_s=0.05)


@pytest.fixture(params=["sqlite", "postgres"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    shop = SqliteShop(tmp_path / "shop.db")
    url = request.getfixturevalue("postgres").database() if request.param == "postgres" else f"sqlite:{tmp_path / 'j'}"
    made = World(shop, url)
    yield made
    made.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(SqliteShop(tmp_path / "shop.db"), f"sqlite:{tmp_path / 'j'}")
    yield made
    points.clear()
    made.close()


def priced(id_: str, handler: str = "work:prices", timeout_s: float | None = 20, **more: Any) -> Group:
    g = Group(id_, **more)
    g.query(
        "account", "SELECT amount FROM account WHERE id = 1", target="shop",
        recipes=[Recipe("price", handler=handler, timeout_s=timeout_s)],
    )  # fmt: skip
    g.update(
        "take", "UPDATE account SET amount = amount - :price.value WHERE id = 1", target="shop",
        depends_on=[Dep("account", "price")],
    )  # fmt: skip
    return g


def amount(world: World) -> int:
    found: int = world.accounts()[0][2]
    return found


def claimed(box: WorkJournal, timeout_s: float = 20) -> Claim:
    cursor, until = box.cursor("by hand"), time.monotonic() + timeout_s
    while time.monotonic() < until:
        for claim in cursor.claim(1).claims:
            return claim
        box.wait(0.05)
    raise AssertionError("nothing came")


def answers(groups: Groups, id_: str) -> list[Any]:
    return [payload for type_, payload, _ in groups.history(id_) if type_ == "Answered"]


def until(true: Callable[[], Any], timeout_s: float = 20) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


# ---------------------------------------------------------------- out and back


@pytest.mark.req("G24", "G19", "G21", "G26")
def test_a_handler_on_a_work_journal_answers_as_a_local_one_does(both: World) -> None:
    both.s.work(BOX)
    seen: list[Any] = []

    def price(message: Produce) -> Any:
        seen.append(message)
        return {"value": message.data.rows[0][0] // 20, "rate": Decimal("1.10")}

    both.handlers["local"] = price
    assert both.run(priced("here", "local")).state == "committed"
    with serving(both, price):
        assert both.run(priced("there")).state == "committed"
    assert amount(both) == 100 - 5 - 4
    here, there = (both.plain.get(id_).steps["account"].results["price"] for id_ in ("here", "there"))
    assert (here["value"], there["value"], there["rate"]) == (5, 4, Decimal("1.10"))
    local, mailed = seen
    assert mailed._replace(group="here", message_id=local.message_id, data=local.data, deadline=local.deadline) == local
    histories = [both.types(id_) for id_ in ("here", "there")]
    assert histories[0] == [type_ for type_ in histories[1] if type_ != "Sent"]
    assert both.s.work("prices").counts().due == 0


@pytest.mark.req("G24", "G23", "G38", "G44")
def test_needs_checks_and_undo_go_by_mail_too(world: World) -> None:
    world.s.work(BOX)
    seen: list[tuple[str, str]] = []

    def clerk(message: Any) -> Any:
        seen.append((type(message).__name__, message.step))
        return {"value": False if message.step == "last" else 3} if isinstance(message, Produce) else None

    g = Group("all")
    text = "UPDATE account SET amount = amount + :n.value WHERE id = 1"
    g.update("x", text, target="shop", needs=[Need("n", "work:prices")], undo=Handler("work:prices"))
    update(g, "y", 2, 7)
    g.empty("last", depends_on=["x", "y"], checks=[ask("work:prices")])
    with serving(world, clerk):
        outcome = world.run(g)
    assert (outcome.state, outcome.failed_step, outcome.reason) == ("rolled_back", "last", "check_false")
    assert seen == [("Produce", "x/n"), ("Produce", "last"), ("Undo", "x")]
    assert world.accounts() == [(1, "anna", 103), *ACCOUNTS[1:]]  # its undo handler left that


@pytest.mark.req("G24", "G26")
def test_an_answer_is_given_by_hand(world: World) -> None:
    box, groups = world.s.work(BOX), world.plain
    with Running(groups):
        groups.submit(priced("g"))
        claim = claimed(box)
        message = claim.entry.data["message"]
        assert claim.entry.key == {"message_id": message["message_id"]}
        assert (message["kind"], message["group"], message["step"], message["recipe"]) == (
            "produce", "g", "account", "price",
        )  # fmt: skip
        assert mail.read(message).data.rows == ((100,),)  # type: ignore[union-attr]
        for wrong in (5, {"a b": 1}, {"value": object()}, ["value"]):
            with pytest.raises(InvalidInput) as caught:
                groups.answer(message["message_id"], wrong)  # type: ignore[arg-type]
            assert caught.value.code == "payload_type"
        with pytest.raises(InvalidInput) as caught:
            groups.answer(message["message_id"], {"value": "x" * 600_000})
        assert caught.value.code == "data_too_large"
        for unknown in ("g/0", "nobody/0", "", "g", 7, "a b/c"):
            for call in (groups.ack, lambda id_: groups.answer(id_, {"value": 1})):
                with pytest.raises(NotFound) as missing:
                    call(unknown)  # type: ignore[arg-type]
                assert missing.value.code == "message"
        groups.ack(message["message_id"])
        groups.answer(message["message_id"], {"value": 30})
        claim.done()
        assert groups.wait("g").state == "committed"
        groups.answer(message["message_id"], {"value": 31})
    assert amount(world) == 70
    assert "Acked" in world.types("g")


@pytest.mark.req("G24", "G19")
@pytest.mark.parametrize("how", ["refuses", "raises", "refuses for now"])
def test_a_handler_there_fails_a_step_as_one_here(world: World, how: str) -> None:
    world.s.work(WorkDeclaration("prices", key=mail.KEY, data=mail.DATA, poll_s=0.05, retry_delay_s=0.01))
    seen: list[str] = []

    def price(message: Produce) -> Any:
        seen.append(message.message_id)
        if how == "raises":
            raise ValueError("no price")
        if how == "refuses" or len(seen) < 3:
            return Refused("no price", retryable=how != "refuses")
        return {"value": 1}

    with serving(world, price):
        outcome = world.run(priced("g"))
    assert len(set(seen)) == 1
    if how == "refuses for now":
        assert (outcome.state, len(seen)) == ("committed", 3)
    else:
        assert (outcome.state, outcome.reason) == ("aborted", "recipe_error")
        assert "no price" in outcome.detail


@pytest.mark.req("G24", "G25", "RG11")
def test_a_journal_that_is_not_there_or_has_other_columns_is_no_handler(world: World) -> None:
    world.s.work(WorkDeclaration("mails", key={"order": "int"}, data={"to": "text"}))
    for name in ("work:nowhere", "work:mails", "work:", "work:No Name", "work:../x"):
        with pytest.raises(InvalidGroup) as caught:
            world.plain.submit(priced("g", name))
        assert caught.value.code == "unknown_handler", name
    with pytest.raises(NotFound):
        world.plain.get("g")
    g = Group("g")
    g.empty("a", recipes=[Recipe("r", handler="work:prices")])
    with strandline.connect("memory:") as s, pytest.raises(InvalidGroup) as nowhere:
        s.groups().submit(g)
    assert nowhere.value.code == "unknown_handler"


@pytest.mark.req("G24")
def test_data_that_a_journal_does_not_take_is_a_recipe_error(world: World) -> None:
    world.s.work(WorkDeclaration("prices", key=mail.KEY, data=mail.DATA, data_bytes_max=100))
    outcome = world.run(priced("g"))
    assert (outcome.state, outcome.reason) == ("aborted", "recipe_error")
    assert "data" in outcome.detail


# ---------------------------------------------------------------- time


@pytest.mark.req("G20", "G24", "S12")
def test_no_answer_in_time_and_one_that_comes_late(world: World) -> None:
    box, groups = world.s.work(BOX), world.plain
    g = priced("g", timeout_s=0.5)
    g.empty("e", recipes=[Recipe("r", handler="work:prices", timeout_s=20)])
    with Running(groups):
        groups.submit(g)
        messages = {claim.entry.data["message"]["step"]: claim for claim in (claimed(box), claimed(box))}
        late = messages["account"].entry.data["message"]["message_id"]
        until(lambda: answers(groups, "g") or groups.get("g").state != "running")
        groups.answer(late, {"value": 1})
        outcome = groups.wait("g")
    assert (outcome.state, outcome.reason, outcome.failed_step) == ("aborted", "recipe_timeout", "account")
    assert outcome.steps["e"].reason == "cancelled"
    assert answers(groups, "g")[0]["answer"] == {"reason": "no answer in time", "timed_out": True}
    assert amount(world) == 100


@pytest.mark.req("G20", "G24")
@pytest.mark.parametrize("answered", [True, False])
def test_an_answer_that_came_while_no_processor_ran_counts_however_late_it_is_heard(
    world: World, answered: bool
) -> None:
    """The next one starts after the time-out: an answer that is there by then is in the history before it."""
    now = [time.time_ns() // 1000]
    world.s.close()
    world.s = strandline.connect(world.journal_url, clock=lambda: now[0])
    box, groups = world.s.work(BOX), world.plain
    with Running(groups):
        groups.submit(priced("g", timeout_s=60))
        claim = claimed(box)
        claim.done()
    now[0] += 61_000_000
    if answered:
        groups.answer(claim.entry.data["message"]["message_id"], {"value": 10})
    groups.processor().run_until_idle()
    outcome = groups.get("g")
    if answered:
        assert (outcome.state, amount(world)) == ("committed", 90)
    else:
        assert (outcome.state, outcome.reason, amount(world)) == ("aborted", "recipe_timeout", 100)
    assert box.counts().due == 0  # it was not asked again


@pytest.mark.req("G20")
def test_a_clock_that_was_ahead_holds_no_time_out_back(world: World) -> None:
    """Somebody whose clock is an hour ahead wrote into the partitions: the log's time stands still for an hour."""
    world.s.work(BOX)
    with strandline.connect(world.journal_url, clock=lambda: time.time_ns() // 1000 + 3_600_000_000) as ahead:
        for n in range(64):
            ahead.journal.append(f"a|{n}", [strandline.Event("A", {})])
    began = time.monotonic()
    outcome = world.run(priced("g", timeout_s=0.2))
    assert (outcome.state, outcome.reason) == ("aborted", "recipe_timeout")
    assert time.monotonic() - began < 15


@pytest.mark.req("G46", "G24")
@pytest.mark.parametrize("how", ["cancel", "deadline"])
def test_a_group_that_waits_for_an_answer_is_cancelled(world: World, how: str) -> None:
    box, groups = world.s.work(BOX), world.plain
    with Running(groups):
        groups.submit(priced("g", timeout_s=1000, deadline_s=1.0 if how == "deadline" else None))
        claimed(box)
        if how == "cancel":
            groups.cancel("g")
        outcome = groups.wait("g", 10)
    assert (outcome.state, outcome.reason) == ("aborted", "cancelled" if how == "cancel" else "deadline")


# ---------------------------------------------------------------- processes that end


@pytest.mark.req("G24", "G72", "G74")
def test_a_processor_that_stops_leaves_a_group_that_waits_to_the_next(world: World) -> None:
    box, groups = world.s.work(BOX), world.plain
    with Running(groups):
        groups.submit(priced("g", timeout_s=1000))
        claim = claimed(box)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert groups.get("g").state == "running"
    with Running(groups):
        groups.answer(claim.entry.data["message"]["message_id"], {"value": 10})
        assert groups.wait("g").state == "committed"
    assert (amount(world), box.counts().due) == (90, 0)
    assert world.types("g").count("Asked") == 1


class _Crash(BaseException):
    pass


def _crash() -> None:
    raise _Crash


@pytest.mark.req("G24", "G21", "G72", "S48")
@pytest.mark.parametrize("point", ["asked.recorded", "message.sent", "inbox.copied"])
def test_a_processor_ends_in_the_middle_of_asking(world: World, point: str) -> None:
    """Before the message is in the journal, after it, and before its answer is deleted from the inbox."""
    box, groups, hang = world.s.work(BOX), world.plain, threading.Event()
    seen: list[str] = []

    def price(message: Produce) -> Any:
        seen.append(message.message_id)
        return {"value": 10}

    groups.submit(priced("g", timeout_s=20))
    if point == "message.sent":
        points.at(point, hang.wait)  # it was sent, and nobody knows
        with Running(groups):
            until(lambda: box.counts().due)
    with serving(world, price):
        if point != "message.sent":
            points.at(point, _crash)
            with pytest.raises(_Crash):
                groups.processor().run_until_idle()
        points.clear()
        groups.processor().run_until_idle()
    hang.set()
    outcome = groups.get("g")
    assert (outcome.state, amount(world)) == ("committed", 90), outcome
    assert len(set(seen)) == 1
    assert [payload["answer"] for payload in answers(groups, "g") if not payload.get("late")] == [
        {"results": {"value": 10}}
    ]
    assert box.counts()[:4] == (0, 0, 0, 0)


@pytest.mark.req("G24", "G21")
def test_a_worker_that_dies_with_a_message_is_followed_by_another(world: World) -> None:
    """It had claimed and answered, and not said done: the message comes again, its second answer changes nothing."""
    box = world.s.work(WorkDeclaration("prices", key=mail.KEY, data=mail.DATA, poll_s=0.05, lease_s=0.2))
    groups = world.plain
    g = priced("g")
    g.empty("e", recipes=[Recipe("r", handler="work:prices", timeout_s=20)], depends_on=["take"])
    with Running(groups):
        groups.submit(g)
        claim = claimed(box)
        groups.answer(claim.entry.data["message"]["message_id"], {"value": 10})
        again = claimed(box)
        if again.entry.data["message"]["step"] == "e":
            again.release()
            again = claimed(box)
        with serving(world, lambda message: {"value": 77 if message.step == "account" else 1}):
            assert groups.wait("g").state == "committed"
    assert amount(world) == 90
    assert sorted(payload["answer"]["results"]["value"] for payload in answers(groups, "g")) in ([1, 10], [1, 10, 77])


# ---------------------------------------------------------------- hooks


@pytest.mark.req("G66", "G67", "G70", "G21", "G24")
@pytest.mark.parametrize("ack", [False, True])
def test_hooks_add_work(world: World, ack: bool) -> None:
    box, groups = world.s.work(BOX), world.plain
    g = Group("g", post_hook=Hook("work:prices", ack=ack, timeout_s=20))
    update(g, "x", 1, 1, pre_hook=Hook("work:prices"))
    with Running(groups):
        groups.submit(g)
        told = {claim.entry.data["message"]["step"]: claim for claim in (claimed(box), claimed(box))}
        assert groups.wait("g").state == "committed"
        last = mail.read(told["group/post"].entry.data["message"])
        assert (last.end, last.when, last.group) == ("committed", "post", "g")  # type: ignore[union-attr]
        if ack:
            assert not groups.load("g").over  # type: ignore[union-attr]
            groups.ack(last.message_id)
        until(lambda: (history := groups.load("g")) is not None and history.over)
    assert world.types("g").count("HookDone") == 2
    assert not [payload for _, payload, _ in groups.history("g") if payload.get("gave_up")]


@pytest.mark.req("G67", "G21")
def test_a_hook_that_wants_an_ack_is_told_until_it_gives_one(world: World) -> None:
    world.s.work(WorkDeclaration("prices", key=mail.KEY, data=mail.DATA, poll_s=0.05, retry_delay_s=0.01))
    told: list[Any] = []

    def moody(message: Any) -> None:
        told.append(message.message_id)
        if len(told) < 3:
            raise RuntimeError("not now")

    g = Group("g", post_hook=Hook("work:prices", ack=True, timeout_s=20))
    update(g, "x", 1, 1)
    with serving(world, moody):
        assert world.run(g).state == "committed"
    assert (len(told), len(set(told))) == (3, 1)
    quiet = Group("quiet", post_hook=Hook("work:prices", ack=True, timeout_s=0.1))
    update(quiet, "x", 1, 1)
    assert world.run(quiet).state == "committed"  # nobody is there: given up, and nothing changed


@pytest.mark.req("G44", "G24")
def test_an_undo_handler_that_does_not_answer_is_asked_again(world: World) -> None:
    box = world.s.work(BOX)
    g = Group("g")
    update(g, "x", 1, 1, undo=Handler("work:prices", timeout_s=0.3))
    g.empty("last", depends_on=["x"], success="1 = 2")
    groups = world.plain
    with Running(groups):
        groups.submit(g)
        first = claimed(box)
        first.done()
        second = claimed(box)
        message = mail.read(second.entry.data["message"])
        assert isinstance(message, Undo)
        assert second.entry.key == first.entry.key
        groups.answer(message.message_id, {})
        assert groups.wait("g").state == "rolled_back"
