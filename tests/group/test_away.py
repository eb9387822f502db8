"""Targets that are away: when a stream is taken over, later, or for good. Only their own groups wait, and those behind
them on their rows.

    takeover while one is away          others run; it comes back: fenced, barrier rows read, `Taken`, in stream order
    a step was done there before        it is not done twice, and nothing of it is lost
    another takeover meanwhile          who waits loses its lease; the next one goes on
    stop, cancel, another message       stop is prompt; a group that nobody began is cancelled at once, others later
    two names for one database          a name that is away holds the rows of the other
    1,000 groups wait                   they are listed with the lease, and the stream goes on
    away in the middle                  whoever undoes there waits, in nobody's way
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier
from typing import Any
from urllib.parse import quote

import apsw
import pytest

from strandline.errors import LeaseLost, Unavailable
from strandline.group import advance, fences, turn
from strandline.group.checks import ask
from strandline.group.core.parts import Recipe
from strandline.group.definition import Group
from strandline.group.driver import Drive
from strandline.group.groups import Groups
from strandline.group.lease import said, take
from strandline.group.names import group_key
from strandline.group.targets import sql
from strandline.group.times import Times
from strandline.testing import points
from strandline.testing.lww import LwwTarget
from strandline.values.events import Event
from tests.group.target_rooms import Stage
from tests.group.worlds import PostgresShop, Running, SqliteShop, World, update


class _Crash(BaseException):
    pass


def crash() -> None:
    raise _Crash


class GoneFile:
    """A SQLite file whose folder is elsewhere for a while, as that of a disk which is not mounted."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._elsewhere = folder / "disk", folder / "elsewhere"
        self._folder.mkdir()
        self.shop = SqliteShop(self._folder / "moody.db")
        self.url = self.shop.url

    def leave(self) -> None:
        self._folder.rename(self._elsewhere)

    def come_back(self) -> None:
        self._elsewhere.rename(self._folder)

    def close(self) -> None:
        self.shop.close()


class LockedFile:
    """A SQLite file in which another program has begun to write."""

    def __init__(self, folder: Path) -> None:
        self.shop = SqliteShop(folder / "moody.db")
        self.url = self.shop.url
        self._other = apsw.Connection(str(folder / "moody.db"))

    def leave(self) -> None:
        self._other.execute("BEGIN IMMEDIATE")

    def come_back(self) -> None:
        self._other.execute("ROLLBACK")

    def close(self) -> None:
        self._other.close()
        self.shop.close()


class UnreachableServer:
    """A PostgreSQL whose socket is not there for a while; whoever was connected is not any more."""

    def __init__(self, url: str) -> None:
        self.shop = PostgresShop(url)
        self.direct = url
        (folder,) = self.shop.execute("SHOW unix_socket_directories")[0]
        self._folder = Path(tempfile.mkdtemp(prefix="s"))
        self._socket, self._real = self._folder / ".s.PGSQL.5432", Path(folder) / ".s.PGSQL.5432"
        self.come_back()
        self.url = f"{url.partition('?')[0]}?host={quote(str(self._folder), safe='/')}&application_name=moody"

    def leave(self) -> None:
        self._socket.unlink()
        self.shop.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'moody'")

    def come_back(self) -> None:
        self._socket.symlink_to(self._real)

    def close(self) -> None:
        self.shop.close()
        shutil.rmtree(self._folder)


@pytest.fixture(params=["gone", "locked", "postgres"])
def moody(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A database with three seats that leaves and comes back."""
    made: Any
    if request.param == "postgres":
        made = UnreachableServer(request.getfixturevalue("shop"))
    else:
        made = GoneFile(tmp_path) if request.param == "gone" else LockedFile(tmp_path)
    made.shop.execute("CREATE TABLE seat (id integer PRIMARY KEY, who text)")
    for n in (1, 2, 3):
        made.shop.execute("INSERT INTO seat VALUES ($1, '')", (n,))
    yield made
    made.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(SqliteShop(tmp_path / "shop.db"), f"sqlite:{tmp_path / 'j'}")
    yield made
    points.clear()
    made.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fences, "WAIT_MOST_S", 0.2)
    monkeypatch.setattr(fences, "FIRST_TRY_S", 0.3)


def both(world: World, moody: Any, **more: Any) -> Groups:
    """Groups on both, which have opened nothing yet."""
    return world.groups(targets={"moody": moody.url, "shop": world.shop.url}, **more)


def sit(id_: str, seat: int, **more: Any) -> Group:
    g = Group(id_)
    step(g, seat, **more)
    return g


def step(g: Group, seat: int, name: str = "sit", target: str = "moody", **more: Any) -> None:
    g.update(name, "UPDATE seat SET who = who || :who WHERE id = :id", {"who": g.id, "id": seat}, target=target, **more)


def give(id_: str, account: int, amount: int = 1) -> Group:
    g = Group(id_)
    update(g, "give", account, amount)
    return g


def seats(moody: Any) -> list[str]:
    return [who for (who,) in moody.shop.execute("SELECT who FROM seat ORDER BY id")]


def until(true: Callable[[], Any], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def states(groups: Groups, *ids: str) -> list[str]:
    return [groups.get(id_).state for id_ in ids]


# ---------------------------------------------------------------- taking over


@pytest.mark.req("G75", "G63", "G84", "RG7")
def test_a_target_that_is_away_holds_up_only_its_own_groups(world: World, moody: Any) -> None:
    groups = both(world, moody)
    mixed = Group("m")
    update(mixed, "give", 2, 10)
    step(mixed, 2, depends_on=["give"])
    behind = Group("behind")
    behind.update("double", "UPDATE account SET amount = amount * 2 WHERE id = 2", target="shop")
    for g in (sit("a", 1), give("x", 1), mixed, behind, sit("b", 1), give("y", 1)):
        groups.submit(g)
    moody.leave()
    fresh = both(world, moody)
    with Running(fresh) as running:
        assert [fresh.wait(id_).state for id_ in ("x", "y")] == ["committed", "committed"]
        assert states(fresh, "a", "m", "behind", "b") == ["queued"] * 4
        assert "target moody" in str(fresh.get("a").waits_for)
        assert "target moody" in str(fresh.get("m").waits_for)
        assert said(world.s.journal, "default").away.keys() == {"moody"}
        fresh.submit(give("z", 1))
        assert fresh.wait("z").state == "committed"
        moody.come_back()
        assert [fresh.wait(id_).state for id_ in ("a", "m", "behind", "b")] == ["committed"] * 4
        until(lambda: not said(world.s.journal, "default").away)
        assert running.error is None
    assert seats(moody) == ["ab", "m", ""]
    assert world.accounts()[:2] == [(1, "anna", 103), (2, "bert", 120)]


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.req("G75", "G72", "G76", "RG3")
@pytest.mark.parametrize("fails", [False, True])
def test_what_was_done_before_the_takeover_is_found_when_the_target_is_back(
    world: World, moody: Any, fails: bool
) -> None:
    groups = both(world, moody)
    g = sit("a", 1)
    g.empty("last", depends_on=["sit"], success="1 = 2" if fails else None)
    groups.submit(g)
    points.at("step.done", crash)
    with pytest.raises(_Crash):
        groups.processor().run_until_idle()
    points.clear()
    assert seats(moody)[0] == "a"
    groups.close()
    moody.leave()
    fresh = both(world, moody)
    fresh.submit(give("x", 1))
    with Running(fresh):
        assert fresh.wait("x").state == "committed"
        assert [type_ for type_, _, _ in fresh.history("a")] == ["Defined", "Taken"]
        moody.come_back()
        assert fresh.wait("a").state == ("rolled_back" if fails else "committed")
    assert seats(moody)[0] == ("" if fails else "a")
    types = [type_ for type_, _, _ in fresh.history("a")]
    assert types[:5] == ["Defined", "Taken", "Taken", "Started", "Result"]
    assert types.count("Result") == 1


@pytest.mark.req("G75", "G74")
def test_another_takeover_while_the_first_taker_waits(world: World, moody: Any) -> None:
    groups = both(world, moody)
    for g in (sit("a", 1), sit("b", 1)):
        groups.submit(g)
    groups.close()
    moody.leave()
    first, second = both(world, moody, lease_s=1), both(world, moody, lease_s=1)
    one = Running(first)
    one.__enter__()
    until(lambda: said(world.s.journal, "default").away)
    assert one.processor.lease is not None
    one.processor.lease._over.set()  # its beat is still
    with Running(second) as two:
        until(lambda: said(world.s.journal, "default").fence == 2 and said(world.s.journal, "default").away)
        moody.come_back()
        assert [second.wait(id_).state for id_ in ("a", "b")] == ["committed", "committed"]
        assert two.error is None
    with pytest.raises(LeaseLost):
        one.__exit__()
    assert seats(moody)[0] == "ab"


@pytest.mark.req("G75")
def test_stop_is_prompt_while_a_target_is_away(world: World, moody: Any) -> None:
    groups = both(world, moody)
    groups.submit(sit("a", 1))
    groups.close()
    moody.leave()
    fresh = both(world, moody)
    with Running(fresh):
        until(lambda: said(world.s.journal, "default").away)
        began = time.monotonic()
    assert time.monotonic() - began < 1
    assert said(world.s.journal, "default").holder is None
    moody.come_back()
    fresh.processor().run_until_idle()
    assert seats(moody)[0] == "a"


@pytest.mark.req("G75", "G72", "S49")
@pytest.mark.parametrize("away", [False, True])
def test_an_event_of_the_one_before_that_comes_in_at_the_last_moment_counts(
    world: World, away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the log is away for a moment just then."""
    groups = world.plain
    groups.submit(give("x", 1))
    real = groups.load

    def gone(id_: str) -> Any:
        monkeypatch.setattr(groups, "load", real)
        raise Unavailable("away for a moment", code="away", hint="wait")

    def late(id_: str) -> Any:
        history = real(id_)
        monkeypatch.setattr(groups, "load", gone if away else real)
        started = Event("Started", {"fence": 0, "place": 1, "at": 7})
        world.s.journal.append_reserved(group_key(id_), [started], expected=1)
        return history

    monkeypatch.setattr(groups, "load", late)
    groups.processor().run_until_idle()
    assert (groups.get("x").state, groups.get("x").started) == ("committed", 7)


@pytest.mark.req("G75", "G25")
def test_a_user_who_is_not_let_in_ends_the_processor_before_it_begins(world: World, shop: str) -> None:
    groups = world.plain
    groups.submit(give("x", 1))
    wrong = world.groups(targets={"shop": world.shop.url, "other": shop.replace("postgres@", "nobody_we_know@")})
    with pytest.raises(Unavailable) as caught:
        wrong.processor().run_until_idle()
    assert not caught.value.retryable
    assert groups.get("x").state == "queued"


@pytest.mark.req("G75")
def test_nobody_waits_for_a_target_that_no_group_needs(world: World, tmp_path: Path) -> None:
    groups = world.groups(targets={"shop": world.shop.url, "other": f"sqlite:{tmp_path / 'none.db'}"})
    groups.submit(give("x", 1))
    groups.processor().run_until_idle()
    assert groups.get("x").state == "committed"


@pytest.mark.req("G75", "G89")
def test_a_target_without_transactions_is_waited_for_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no fence; its groups are taken over when it is there, so that the histories have all intents."""
    cells = world.groups(targets={"cells": "lww:away", "shop": world.shop.url})
    target: Any = cells.targets.target("cells")
    assert isinstance(target, LwwTarget)
    target.create("CREATE TABLE seat (id int, who text, PRIMARY KEY (id))")
    target.execute("INSERT INTO seat (id, who) VALUES (1, 'nobody')")
    g = Group("a")
    g.update("sit", "UPDATE seat SET who = 'a' WHERE id = 1", target="cells")
    for one in (g, give("x", 1)):
        cells.submit(one)
    fresh = world.groups(targets={"cells": "lww:away", "shop": world.shop.url})
    back = cut_off(fresh, monkeypatch, "cells")
    with Running(fresh):
        assert fresh.wait("x").state == "committed"
        assert [type_ for type_, _, _ in fresh.history("a")] == ["Defined"]
        back()
        assert fresh.wait("a").state == "committed"
    assert [type_ for type_, _, _ in fresh.history("a")][:2] == ["Defined", "Taken"]
    assert target.execute("SELECT who FROM seat WHERE id = 1") == [("a",)]


@pytest.mark.req("G75")
def test_a_fence_that_waits_for_a_statement_is_tried_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one before is in the middle of a long one, which holds the row."""
    monkeypatch.setattr(sql, "OURS_S", 0.2)
    room = stage.room
    if room.dialect == "sqlite":
        room.execute("BEGIN IMMEDIATE")
    else:
        room.execute("BEGIN")
        room.execute("SELECT fence FROM strandline.strandline_target FOR SHARE")
    with pytest.raises(Unavailable) as caught:
        stage.target.raise_fence(stage.owner, 2)
    assert caught.value.retryable
    room.execute("ROLLBACK")
    stage.target.raise_fence(stage.owner, 2)


# ---------------------------------------------------------------- submit, cancel


@pytest.mark.req("G85", "RG10")
def test_a_submit_to_a_target_that_is_away_is_refused(
    world: World, moody: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "OURS_S", 0.2)
    moody.leave()
    groups = both(world, moody)
    with pytest.raises(Unavailable) as caught:
        groups.submit(sit("a", 1))
    assert caught.value.code == ("timeout" if isinstance(moody, LockedFile) else "away")
    assert groups.load("a") is None
    groups.submit(give("x", 1))
    moody.come_back()
    groups.submit(sit("a", 1))


@pytest.mark.req("G46", "G75")
def test_a_group_on_a_target_that_is_away_is_cancelled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that nobody has begun, at once; one that the processor before may have begun when that can be known."""
    submitter, groups = world.groups(), world.groups()
    submitter.submit(give("old", 1))
    back = cut_off(groups, monkeypatch, "shop")
    with Running(groups):
        until(lambda: said(world.s.journal, "default").away)
        submitter.submit(give("new", 2))
        for id_ in ("old", "new"):
            submitter.cancel(id_)
        assert (submitter.wait("new").reason, submitter.get("old").state) == ("cancelled", "queued")
        back()
        assert (submitter.wait("old").state, submitter.get("old").reason) == ("aborted", "cancelled")
    assert world.accounts()[0] == (1, "anna", 100)


def cut_off(groups: Groups, monkeypatch: pytest.MonkeyPatch, *names: str) -> Callable[[], None]:
    """These targets are away for these groups alone, until what is given is called."""
    real, away = groups.targets._open, set(names)

    def opened(name: str, given: Any) -> Any:
        if name in away:
            raise Unavailable("no host answers", code="away", hint="")
        return real(name, given)

    monkeypatch.setattr(groups.targets, "_open", opened)
    return away.clear


# ---------------------------------------------------------------- two names for one database


@pytest.mark.req("G75", "G63", "G62")
@pytest.mark.parametrize("known", [True, False])
def test_a_name_that_is_away_holds_the_rows_of_its_other_name(
    world: World, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """Where no history says which database a name led to, the order is kept from when that is known."""
    targets = {"shop": world.shop.url, "also": world.shop.url}
    submitter, groups = world.groups(targets=targets), world.groups(targets=targets)
    text = "UPDATE account SET name = name || :id WHERE id = :n"
    for id_, target, account in (("a", "also", 1), ("b", "shop", 1), ("c", "shop", 2)):
        g = Group(id_)
        g.update("x", text, {"id": id_, "n": account}, target=target)
        submitter.submit(g)
    if not known:
        monkeypatch.setattr(Drive, "identity", lambda one, target: target)
    back = cut_off(groups, monkeypatch, "also")
    with Running(groups):
        assert groups.wait("c").state == "committed"
        if known:
            assert states(groups, "a", "b") == ["queued", "queued"]
        else:
            assert groups.wait("b").state == "committed"
        back()
        assert [groups.wait(id_).state for id_ in ("a", "b")] == ["committed", "committed"]
    assert world.accounts()[:2] == [(1, "annaab" if known else "annaba", 100), (2, "bertc", 50)]


# ---------------------------------------------------------------- how far it came


@pytest.mark.req("G63", "G74", "G75", "G84")
def test_more_groups_than_the_look_ahead_run_beside_one_that_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is listed with the lease, with its place; whoever takes over then knows it."""
    for module in (advance, turn):
        monkeypatch.setattr(module, "LOOK_AHEAD", 4)
    targets = {"shop": world.shop.url, "also": world.shop.url}
    submitter, groups = world.groups(targets=targets), world.groups(targets=targets, lease_s=1)
    waits = Group("waits")
    waits.update("x", "UPDATE account SET name = name || 'w' WHERE id = 1", target="also")
    behind = Group("behind")
    behind.update("x", "UPDATE account SET name = name || 'b' WHERE id = 1", target="shop")
    for g in (waits, give("first", 2), behind, *(give(f"g{n}", 2) for n in range(10))):
        submitter.submit(g)
    cut_off(groups, monkeypatch, "also")
    with Running(groups):
        assert groups.wait("g9").state == "committed"
        assert states(groups, "waits", "behind") == ["queued", "queued"]
        until(lambda: "group waits" in str(groups.get("behind").waits_for))
        listed = [(one.id, one.place) for one in groups.list("open").groups]
        assert listed == [("waits", 1), ("behind", 3)]
    assert list(said(world.s.journal, "default").open) == ["waits", "behind"]
    submitter.processor().run_until_idle()
    assert world.accounts()[0][1] == "annawb"
    assert [submitter.get(id_).place for id_ in ("waits", "behind")] == [1, 3]


@pytest.mark.req("G47", "G74", "RG1")
def test_a_group_that_is_resolved_is_listed_until_it_is_over(world: World) -> None:
    """The processor dies while it undoes: the next one finds the group, though it is before done_to."""

    def meddle(message: Any) -> dict[str, Any]:
        world.shop.execute("UPDATE account SET amount = 7 WHERE id = 1")
        return {"value": False}

    world.handlers["meddle"] = meddle
    stuck = give("stuck", 1)
    stuck.empty("e", depends_on=["give"], checks=[ask("meddle")])
    groups = world.plain
    for g in (stuck, give("x", 2)):
        groups.submit(g)
    groups.processor().run_until_idle()
    assert (groups.get("stuck").state, said(world.s.journal, "default").done_to) == ("rollback_failed", 2)
    groups.resolve("stuck", "give", "force")
    points.at("undo.before", crash)
    with pytest.raises(_Crash):
        groups.processor().run_until_idle()
    points.clear()
    groups.processor().run_until_idle()
    assert groups.get("stuck").state == "rolled_back"
    assert world.accounts()[0] == (1, "anna", 100)


@pytest.mark.req("G74", "G75")
def test_what_no_beat_has_said_counts_for_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither how far it came, which moves the look-ahead, nor the horizon of timestamps."""
    lease = take(world.s.journal, "default", 30, lambda: 1000, lambda _: True)
    assert lease is not None
    times, ahead = Times(lease, lambda: 1000), advance.Advance(world.s.journal, lease)
    real = lease._append

    def away(more: Any) -> None:
        raise Unavailable("the log is away", code="away", hint="")

    monkeypatch.setattr(lease, "_append", away)
    for _ in range(2):
        with pytest.raises(Unavailable):
            times.next(0)
    room = ahead.room
    ahead.over(1)
    with pytest.raises(Unavailable):
        ahead.tick((), ())
    assert ahead.room == room
    monkeypatch.setattr(lease, "_append", real)
    assert times.next(0) == 1000
    assert ahead.room == room + 1
    assert said(world.s.journal, "default").horizon > 1000
    lease.release()


# ---------------------------------------------------------------- away in the middle


@pytest.mark.req("G47", "G61", "RG8")
def test_groups_that_wait_to_undo_are_in_nobodys_way(world: World, moody: Any) -> None:
    """Two at a time, with two steps at a time: two groups undo two branches on a target that went away."""

    def leave(message: Any) -> dict[str, Any]:
        if together.wait() == 0:
            moody.leave()
        together.wait()
        return {"value": False}

    world.handlers["leave"] = leave
    together = Barrier(2, timeout=20)
    groups = both(world, moody, parallel_groups=2, parallel_steps=2, retries=0, statement_timeout_s=0.2)
    for id_, seat in (("a", 1), ("b", 3)):
        g = Group(id_)
        step(g, seat)
        step(g, seat + 10, name="again")
        g.empty("last", depends_on=["sit", "again"], checks=[ask("leave")])
        groups.submit(g)
    with Running(groups):
        until(lambda: states(groups, "a", "b") == ["rolling_back", "rolling_back"])
        for n in range(3):
            g = give(f"x{n}", 1)
            update(g, "more", 2, 1)
            groups.submit(g)
        assert [groups.wait(f"x{n}").state for n in range(3)] == ["committed"] * 3
        assert states(groups, "a", "b") == ["rolling_back", "rolling_back"]
        began = time.monotonic()
    assert time.monotonic() - began < 2, "stop does not wait for the target"
    moody.come_back()
    groups.processor().run_until_idle()
    assert states(groups, "a", "b") == ["rolled_back", "rolled_back"]
    assert seats(moody) == ["", "", ""]


# ---------------------------------------------------------------- away after the start


@pytest.mark.req("G75", "G61", "RG8")
def test_groups_that_begin_while_a_target_is_gone_wait_for_it(world: World, moody: Any) -> None:
    """With the settings that ship: they are behind one on its row when it leaves."""

    def leave(message: Any) -> None:
        moody.leave()

    world.handlers["leave"] = leave
    groups = both(world, moody)
    first = sit("first", 1)
    first.empty("leaves", depends_on=["sit"], recipes=[Recipe("r", handler="leave")])
    queued = [sit(f"q{n}", 1) for n in range(12)]
    for g in (first, *queued):
        groups.submit(g)
    with Running(groups):
        assert groups.wait("first").state == "committed"
        groups.submit(give("x", 1))
        assert groups.wait("x").state == "committed"
        if not isinstance(moody, LockedFile):  # there a statement waits for the lock
            until(lambda: said(world.s.journal, "default").away)
            assert {groups.get(g.id).state for g in queued} == {"queued"}
        moody.come_back()
        assert {groups.wait(g.id).state for g in queued} == {"committed"}
    assert seats(moody)[0] == "".join(g.id for g in (first, *queued))
