"""Schedules that lie between statements: a write whose answer is lost, a log or target away in the wrong moment,
rows that are still needed, clocks that differ."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread, Timer, current_thread, main_thread
from typing import Any

import pytest

import strandline
from strandline.errors import LeaseLost, Unavailable
from strandline.group import lease as leases
from strandline.group import mail
from strandline.group.checks import ask
from strandline.group.core.parts import Handler, Recipe, StartHandler
from strandline.group.definition import Group
from strandline.group.groups import Groups
from strandline.group.inbox import Inbox
from strandline.group.lease import said, take
from strandline.group.record import GroupRecord
from strandline.group.turn import Turn
from strandline.testing import points
from strandline.work.declaration import WorkDeclaration
from tests.group.worlds import ACCOUNTS, Running, SqliteShop, World, update

HOUR_US = 3_600_000_000


class _Crash(BaseException):
    pass


def crash() -> None:
    raise _Crash


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(SqliteShop(tmp_path / "shop.db"), f"sqlite:{tmp_path / 'j'}")
    yield made
    points.clear()
    made.close()


def run_until_idle(groups: Groups) -> None:
    """It comes to its end, and that within some seconds."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            groups.processor().run_until_idle()
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it goes on and on"
    if errors:
        raise errors[0]


def away(applied: Any = "no") -> Unavailable:
    return Unavailable("away for a moment", code="away", hint="wait", applied=applied)


# ---------------------------------------------------------------- the lease, and the log


@pytest.mark.req("G74", "G75")
def test_a_beat_whose_answer_is_lost_is_no_lost_lease(world: World) -> None:
    journal = world.s.journal
    lease = take(journal, "default", 30, lambda: 1, lambda _: True)
    assert lease is not None
    real = journal.append_reserved

    def lost(*args: Any, **more: Any) -> Any:
        real(*args, **more)
        journal.append_reserved = real  # type: ignore[method-assign]
        raise away("unknown")

    journal.append_reserved = lost  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        lease.beat()
    lease.beat()
    lease.check()
    other = leases.StreamLease(journal, "default", 30, said(journal, "default"), "other", 1)
    with pytest.raises(LeaseLost):
        lease.beat()
    other.release()
    lease.release()
    assert said(journal, "default").fence == other.fence


@pytest.mark.req("G72", "S49")
@pytest.mark.parametrize("call", ["read", "head", "delete_reserved"])
def test_a_log_that_is_away_for_a_moment_ends_no_processor(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    groups = world.plain
    left, real = [0], getattr(groups.journal, call)

    def moody(*args: Any, **more: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            raise away()
        return real(*args, **more)

    monkeypatch.setattr(groups.journal, call, moody)
    with Running(groups) as running:
        while not groups.near.running and running.error is None:
            time.sleep(0.01)
        for n in range(2):
            g = Group(f"g{n}")
            update(g, "x", 1, 1)
            groups.submit(g)
            left[0] = 2 if call == "read" else 1
            until = time.monotonic() + 3  # one that ended before reads no more
            while left[0] > 0 and time.monotonic() < until and running.error is None and call != "head":
                time.sleep(0.01)
        left[0] = 0
        for n in range(2):
            assert groups.wait(f"g{n}").state == "committed"
    assert world.accounts()[0][2] == 102


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.req("G75", "G72", "S49")
@pytest.mark.parametrize("times", [2, 8])
def test_a_target_that_goes_away_after_the_start_is_waited_for(world: World, times: int) -> None:
    """However often it is tried in vain: groups that have changed nothing do not fail."""
    groups = world.groups(retries=2)
    for id_ in ("one", "two"):
        g = Group(id_)
        update(g, "x", 1, 1)
        groups.submit(g)
    target: Any = groups.targets.target("shop")
    real, left = target.run_segment, [times]

    def moody(owner: Any, segment: Any, *more: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            raise away()
        return real(owner, segment, *more)

    target.run_segment = moody
    run_until_idle(groups)
    assert [groups.get(id_).state for id_ in ("one", "two")] == ["committed", "committed"]
    assert left == [0]


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.req("G75", "G72", "G20")
@pytest.mark.parametrize("news", ["timer", "cancel"])
def test_what_comes_while_a_group_that_was_put_aside_begins_anew(
    world: World, news: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it starts before its history is read, and a cancel that came meanwhile counts."""
    groups = world.groups()
    g = Group("g")
    update(g, "x", 1, 1)
    update(g, "y", 2, 1, depends_on=["x"])
    groups.submit(g)
    target: Any = groups.targets.target("shop")
    real, load, sent, came = target.run_segment, Turn.load, list[str](), list[str]()

    def moody(owner: Any, segment: Any, *more: Any) -> Any:
        sent.append(segment.id.step)
        if len(sent) == 1:
            raise away()
        return real(owner, segment, *more)

    def loaded(self: Turn, id_: str) -> Any:
        found = load(self, id_)
        if not came:
            came.append(news)
            drive = self._open[id_]
            if news == "cancel":
                drive.cancel()
            else:
                drive.woken()
                time.sleep(0.1)  # for what must not come
        return found

    target.run_segment = moody
    monkeypatch.setattr(Turn, "load", loaded)
    run_until_idle(groups)
    assert came == [news]
    assert groups.get("g").state == ("aborted" if news == "cancel" else "committed")
    assert sent == (["x"] if news == "cancel" else ["x", "x", "y"])


@pytest.mark.req("G72", "G75", "S49")
def test_what_is_due_is_done_though_the_log_is_away_just_then(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is tried again after a while."""
    groups = world.groups()
    g = Group("g")
    update(g, "x", 1, 1)
    groups.submit(g)
    target: Any = groups.targets.target("shop")
    real, look, fails = target.run_segment, Turn._look, ["target", "log"]

    def moody(*given: Any) -> Any:
        if fails[0] == "target":
            fails.pop(0)
            raise Unavailable("not now", code="timeout", hint="", applied="no")
        return real(*given)

    def looked(self: Turn, *, due: bool) -> None:
        if due and fails == ["log"]:
            fails[:] = [""]
            raise away()
        look(self, due=due)

    target.run_segment = moody
    monkeypatch.setattr(Turn, "_look", looked)
    run_until_idle(groups)
    assert fails == [""]
    assert groups.get("g").state == "committed"


@pytest.mark.req("G47", "G75", "S49")
@pytest.mark.parametrize("fails", [True, False])
def test_a_target_that_another_group_found_away_is_waited_for(world: World, fails: bool) -> None:
    """Whoever found it so: one group waits, the other one has changed something, is undone, and that waits, too."""
    lost, back, begun = Event(), Event(), Event()

    def off(message: Any) -> dict[str, Any]:
        begun.set()
        assert lost.wait(20)
        Timer(0.3, back.set).start()
        return {"value": not fails}

    world.handlers["off"] = off
    groups = world.groups(retries=1)
    a, b = Group("a"), Group("b")
    update(a, "x", 1, 1)
    update(b, "x", 2, 1)
    b.empty("e", depends_on=["x"], checks=[ask("off")])
    update(b, "y", 3, 1, depends_on=["e"], undo=Handler("off"))
    for g in (b, a):
        groups.submit(g)
    target: Any = groups.targets.target("shop")
    real, fence, sent, fenced = target.run_segment, target.raise_fence, list[str](), list[int]()

    def moody(owner: Any, segment: Any, *more: Any) -> Any:
        if segment.id.group == "a":
            assert begun.wait(20)
            sent.append("a")
            if len(sent) == 1:
                raise away()
        return real(owner, segment, *more)

    def raised(owner: Any, number: int) -> None:
        fenced.append(number)
        if len(fenced) > 1:
            lost.set()
            assert back.wait(20)
        fence(owner, number)

    target.run_segment, target.raise_fence = moody, raised
    run_until_idle(groups)
    assert [groups.get(id_).state for id_ in ("a", "b")] == ["committed", "rolled_back"]
    assert groups.get("b").reason == ("check_false" if fails else "statement")
    assert world.accounts() == [(1, "anna", 101), *ACCOUNTS[1:]]


@pytest.mark.req("G75", "G72", "S49")
def test_a_log_that_is_away_when_a_group_that_was_put_aside_begins_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where target and log are one server."""
    groups = world.groups()
    g = Group("g")
    update(g, "x", 1, 1)
    groups.submit(g)
    target: Any = groups.targets.target("shop")
    real, load, fails = target.run_segment, Turn.load, [away(), away(), away()]

    def moody(*given: Any) -> Any:
        if len(fails) == 3:
            raise fails.pop()
        return real(*given)

    def loaded(self: Turn, id_: str) -> Any:
        if fails:
            raise fails.pop()
        return load(self, id_)

    target.run_segment = moody
    monkeypatch.setattr(Turn, "load", loaded)
    run_until_idle(groups)
    assert groups.get("g").state == "committed"
    assert "Stuck" not in [type_ for type_, _, _ in groups.history("g")]


@pytest.mark.req("G75", "G72", "G47")
def test_a_group_of_which_a_step_is_tried_again_is_not_put_aside(world: World, tmp_path: Path) -> None:
    """Else that step would run while the group waits, and once more when it begins anew."""
    bank = SqliteShop(tmp_path / "bank.db")
    bank.execute("CREATE TABLE account (id integer PRIMARY KEY, amount integer)")
    bank.execute("INSERT INTO account VALUES (1, 0)")
    groups = world.groups(targets={"shop": world.shop.url, "bank": bank.url})
    g = Group("g")
    update(g, "x", 1, 1)
    g.update("y", "UPDATE account SET amount = 1 WHERE id = 1", target="bank")
    groups.submit(g)
    sent = list[str]()
    turned = Event()

    def moody(name: str, error: Unavailable, before: Event | None) -> None:
        target: Any = groups.targets.target(name)
        real = target.run_segment

        def run_segment(owner: Any, segment: Any, *more: Any) -> Any:
            sent.append(name)
            if sent.count(name) == 1:
                if before is not None:
                    assert before.wait(20)
                    time.sleep(0.02)  # until the other step's thread has left; it is tried again after 0.1 s
                else:
                    turned.set()
                raise error
            return real(owner, segment, *more)

        target.run_segment = run_segment

    moody("shop", away(), turned)
    moody("bank", Unavailable("not now", code="timeout", hint="", applied="no"), None)
    run_until_idle(groups)
    assert groups.get("g").state == "committed"
    assert sorted(sent) == ["bank", "bank", "shop", "shop"]
    bank.close()


# ---------------------------------------------------------------- who waits for whom


@pytest.mark.req("G47", "G61", "G84", "S57")
def test_nothing_is_left_to_do_where_all_waits_for_an_operator(world: World) -> None:
    """One whose undo failed, and one behind it on its rows."""

    def meddle(message: Any) -> dict[str, Any]:
        world.shop.execute("UPDATE account SET amount = 7 WHERE id = 1")
        return {"value": False}

    world.handlers["meddle"] = meddle
    stuck, behind = Group("stuck"), Group("behind")
    update(stuck, "x", 1, 1)
    stuck.empty("e", depends_on=["x"], checks=[ask("meddle")])
    update(behind, "x", 1, 1)
    for g in (stuck, behind):
        world.plain.submit(g)
    run_until_idle(world.plain)
    assert [world.plain.get(id_).state for id_ in ("stuck", "behind")] == ["rollback_failed", "queued"]
    assert "group stuck" in str(world.plain.get("behind").waits_for)
    world.plain.resolve("stuck", "x", "accept_current")
    run_until_idle(world.plain)
    assert [world.plain.get(id_).state for id_ in ("stuck", "behind")] == ["rolled_back", "committed"]


@pytest.mark.req("G61", "G41", "RG7")
def test_rows_of_a_rollback_step_that_is_still_to_run_stay_held(world: World) -> None:
    answers = [False, True]
    world.handlers["mood"] = lambda message: {"value": answers.pop(0) if len(answers) > 1 else answers[0]}
    stuck, behind = Group("stuck"), Group("behind")
    stuck.update(
        "mark", "UPDATE account SET name = 'marked ' || amount WHERE id = 3", target="shop", is_rollback=True,
        checks=[ask("mood")],
    )  # fmt: skip
    stuck.update("late", "UPDATE account SET name = 'late' WHERE id = 2", target="shop", is_rollback=True)
    stuck.empty("e", success="1 = 2", execute_on_failure=["mark", "late"])
    behind.update("x", "UPDATE account SET name = 'behind' WHERE id = 2", target="shop")
    for g in (stuck, behind):
        world.plain.submit(g)
    run_until_idle(world.plain)
    assert [world.plain.get(id_).state for id_ in ("stuck", "behind")] == ["rollback_failed", "queued"]
    world.plain.resolve("stuck", "mark", "accept_current")
    run_until_idle(world.plain)
    assert [world.plain.get(id_).state for id_ in ("stuck", "behind")] == ["rolled_back", "committed"]
    assert world.accounts()[1][1] == "behind"  # in the order of the stream


@pytest.mark.req("G46", "G59")
def test_a_group_that_was_defined_and_never_came_into_the_stream_is_cancelled(world: World) -> None:
    groups = world.plain
    g = Group("g")
    update(g, "x", 1, 1)
    points.at("group.defined", crash)
    with pytest.raises(_Crash):
        groups.submit(g)
    points.clear()
    groups.cancel("g")
    run_until_idle(groups)
    groups.submit(g)
    run_until_idle(groups)
    assert (groups.get("g").state, groups.get("g").reason) == ("aborted", "cancelled")
    assert world.accounts() == ACCOUNTS


# ---------------------------------------------------------------- resumed


@pytest.mark.req("G69", "G44", "G72")
def test_a_handler_that_a_group_started_undoes_after_a_crash(world: World) -> None:
    undone: list[Any] = []

    class Clerk:
        def __init__(self, props: Any) -> None:
            self.n = props["n"]

        def __call__(self, message: Any) -> None:
            undone.append((self.n, message.step))

    world.handlers["clerk"] = Clerk
    g = Group("g", pre_hook=StartHandler("mine", "clerk", {"n": 7}))
    update(g, "x", 1, 1, undo=Handler("mine"))
    g.empty("e", depends_on=["x"], success="1 = 2")
    world.plain.submit(g)
    points.at("undo.before", crash)
    with pytest.raises(_Crash):
        world.plain.processor().run_until_idle()
    points.clear()
    run_until_idle(world.plain)
    assert world.plain.get("g").state == "rolled_back"
    assert undone == [(7, "x")]


@pytest.mark.req("G46", "G72", "RG8")
def test_a_deadline_is_told_by_the_log_not_by_the_clock_of_who_resumes(world: World) -> None:
    box = world.s.work(WorkDeclaration("prices", key=mail.KEY, data=mail.DATA))
    g = Group("g", deadline_s=600)
    g.empty("a", recipes=[Recipe("r", handler="work:prices", timeout_s=3000)])
    with Running(world.plain):
        world.plain.submit(g)
        while box.counts().due == 0:
            time.sleep(0.01)
    (claim,) = box.cursor("w").claim(1).claims
    with strandline.connect(world.journal_url) as s:
        groups = s.groups(targets={"shop": world.shop.url})
        groups.clock = lambda: time.time_ns() // 1000 + HOUR_US
        with Running(groups):
            time.sleep(0.2)
            assert groups.get("g").state == "running"
            groups.answer(claim.entry.data["message"]["message_id"], {"value": 1})
            assert groups.wait("g").state == "committed"


# ---------------------------------------------------------------- in nobody's way


@pytest.mark.req("RG8", "G24", "G63")
def test_groups_that_wait_for_answers_hold_back_only_their_rows(world: World) -> None:
    """Two wait, with four steps each, where two groups may run, with two steps; then another process answers."""
    box = world.s.work(WorkDeclaration("prices", key=mail.KEY, data=mail.DATA))
    groups = world.groups(parallel_groups=2, parallel_steps=2)
    for row in (1, 2):
        slow = Group(f"slow{row}")
        update(slow, "x", row, 1)
        for n in range(4):
            slow.empty(f"e{n}", depends_on=["x"], recipes=[Recipe("r", handler="work:prices", timeout_s=60)])
        groups.submit(slow)
    other, behind = Group("other"), Group("behind")
    for n in range(4):
        other.query(f"q{n}", "SELECT amount FROM account WHERE id = 3", target="shop")
    other.update("x", "UPDATE account SET name = 'other' WHERE id = 3", target="shop")
    update(behind, "x", 1, 1)
    with Running(groups):
        for g in (other, behind):
            groups.submit(g)
        assert groups.wait("other", 10).state == "committed"
        assert groups.get("behind").state == "queued"
        while box.counts().due < 8:
            time.sleep(0.01)
        for claim in box.cursor("w").claim(100).claims:
            groups.answer(claim.entry.data["message"]["message_id"], {"value": 1})
        for id_ in ("slow1", "slow2", "behind"):
            assert groups.wait(id_).state == "committed"


@pytest.mark.req("G47", "G44")
def test_a_target_that_is_away_is_waited_for_by_rollback_steps_too(world: World) -> None:
    groups = world.groups(retries=0)
    g = Group("g")
    update(g, "x", 1, 1, undo="back")
    g.update("back", "UPDATE account SET amount = 100 WHERE id = 1", target="shop", is_rollback=True)
    g.empty("e", depends_on=["x"], success="1 = 2")
    target: Any = groups.targets.target("shop")
    real, left = target.run_segment, [3]

    def moody(owner: Any, segment: Any, *more: Any) -> Any:
        if segment.id.step == "back" and left[0]:
            left[0] -= 1
            raise away()
        return real(owner, segment, *more)

    target.run_segment = moody
    groups.submit(g)
    run_until_idle(groups)
    assert (groups.get("g").state, left) == ("rolled_back", [0])
    assert world.accounts() == ACCOUNTS


@pytest.mark.req("G24", "G72")
def test_a_database_of_work_journals_that_is_away_loses_no_group(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = world.plain
    groups.load_code("shop", "1")
    box = world.s.work(WorkDeclaration(mail.box_of("shop@1"), key=mail.KEY, data=mail.DATA))
    g = Group("g")
    g.empty("a", recipes=[Recipe("r", handler="shop/value", timeout_s=20)])
    groups.submit(g)
    real, left = groups._open_box, [2]

    def moody(name: str) -> Any:
        if left[0]:
            left[0] -= 1
            raise away()
        return real(name)

    monkeypatch.setattr(groups, "_open_box", moody)
    with Running(groups):
        while box.counts().due == 0:
            time.sleep(0.01)
        (claim,) = box.cursor("w").claim(1).claims
        groups.answer(claim.entry.data["message"]["message_id"], {"value": 1})
        assert groups.wait("g").state == "committed"
    assert left == [0]


@pytest.mark.req("G46")
def test_a_cancel_that_is_recorded_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last step ends in the moment in which the cancel is in the log."""
    inside, go = Event(), Event()

    def slow(message: Any) -> None:
        inside.set()
        go.wait(20)

    world.handlers["slow"] = slow
    groups = world.plain
    g = Group("g")
    update(g, "x", 1, 1, recipes=[Recipe("r", handler="slow")])
    real = GroupRecord.flush

    def flush(record: GroupRecord) -> None:
        cancelled = record.history.cancelled and not go.is_set()
        real(record)
        if cancelled:
            go.set()
            time.sleep(0.3)

    monkeypatch.setattr(GroupRecord, "flush", flush)
    with Running(groups):
        groups.submit(g)
        assert inside.wait(20)
        groups.cancel("g")
        outcome = groups.wait("g")
    assert (outcome.state, outcome.reason) == ("rolled_back", "cancelled")
    assert world.accounts() == ACCOUNTS


@pytest.mark.req("G72", "G74", "S48")
def test_a_log_that_is_away_while_a_stream_is_taken_over_ends_no_processor(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for the lease, takes it, or reads what was begun, tries again."""
    groups = world.plain
    g = Group("g")
    update(g, "x", 1, 1)
    groups.submit(g)
    held = take(groups.journal, "default", 30, lambda: 1, lambda _: True)
    assert held is not None
    failed = dict.fromkeys(("read", "append_reserved", "head"), 0)
    real = {call: getattr(groups.journal, call) for call in failed}

    def moody(call: str) -> Any:
        def called(*args: Any, **more: Any) -> Any:
            if current_thread() is not main_thread():
                failed[call] += 1
                if failed[call] in (1 if call == "head" else 2, 3, 4, 9):
                    raise away()
            return real[call](*args, **more)

        return called

    for call in failed:
        monkeypatch.setattr(groups.journal, call, moody(call))
    with Running(groups) as running:
        while failed["read"] < 6 and running.error is None:
            time.sleep(0.01)
        held.release()
        assert groups.wait("g").state == "committed"
    assert world.accounts()[0][2] == 101


@pytest.mark.req("G26")
def test_messages_are_read_once_however_long_one_of_them_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    groups, journal = world.plain, world.s.journal
    inbox, waits, read, acted = Inbox(journal, "default"), [True], [0], list[int]()
    real = journal.read

    def counted(*args: Any, **more: Any) -> Any:
        for event in real(*args, **more):
            read[0] += 1
            yield event

    def act(message: Any) -> bool:
        if message["n"] == 0 and waits[0]:
            return False
        acted.append(message["n"])
        return True

    monkeypatch.setattr(journal, "read", counted)
    for n in range(6):
        groups._tell("default", "Ack", {"group": "g", "message_id": "", "n": n})
        inbox.hear(act)
    assert (acted, read, inbox.waiting, inbox.is_empty()) == ([1, 2, 3, 4, 5], [6], True, False)
    again, seen = Inbox(journal, "default"), list[int]()

    def see(message: Any) -> bool:
        seen.append(message["n"])
        return False

    again.hear(see)
    assert seen == [0, 1, 2, 3, 4, 5], "a restart finds all that is behind one that waits"
    waits[0] = False
    inbox.hear(act)
    assert (acted[-1], inbox.waiting, inbox.is_empty()) == (0, False, True)
    assert list(real("group_inbox|default")) == []
