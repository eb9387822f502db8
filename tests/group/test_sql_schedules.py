"""What happens between two statements of a step: others write, the process stops or dies, answers are lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from strandline.errors import LeaseLost, StrandlineError, Unavailable, Unsupported
from strandline.group.target import Done, Failed, Limits, Undone
from strandline.group.targets.changes import Changes
from strandline.settings import Settings
from tests.group.conftest import ACCOUNTS
from tests.group.target_rooms import SqliteRoom, Stage


def accounts(stage: Stage) -> list[Any]:
    return stage.room.execute("SELECT id, name, amount FROM account ORDER BY id")


class Stopped(BaseException):
    """The process ends here."""


def between(stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], object]) -> None:
    """Do this before the first call of that name in a step's transaction."""
    changing = stage.target.changing
    left = [act]

    class Watched:
        def __init__(self, changes: Changes) -> None:
            self._changes = changes

        def __getattr__(self, called: str) -> Any:
            found = getattr(self._changes, called)

            def call(*arguments: Any) -> Any:
                if (called == name or arguments[:1] == (name,)) and left:
                    left.pop()()
                return found(*arguments)

            return call

    monkeypatch.setattr(
        stage.target, "changing", lambda limits, work: changing(limits, lambda changes: work(Watched(changes)))
    )


POINTS = ["gate", "image", "change", "add_barrier"]


@pytest.mark.req("G71", "G72", "RG3", "RG4")
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    "text",
    [
        "UPDATE account SET amount = amount + 1 WHERE id < 3",
        "UPDATE account SET amount = amount + 1 WHERE id = 1",
        "DELETE FROM account",
    ],
)
def test_who_dies_inside_a_step_has_done_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, point: str, text: str
) -> None:
    def die() -> None:
        raise Stopped

    work = stage.segment(text)
    with monkeypatch.context() as patch:
        between(stage, patch, point, die)
        with pytest.raises(Stopped):
            stage.ran(work)
    assert accounts(stage) == ACCOUNTS
    done = stage.ran(work)
    assert isinstance(done, Done)
    assert not stage.again
    with monkeypatch.context() as patch:
        between(stage, patch, "put", die)
        with pytest.raises(Stopped):
            stage.undo()
    assert accounts(stage) != ACCOUNTS
    assert isinstance(stage.undo(), Undone)
    assert accounts(stage) == ACCOUNTS


@pytest.mark.req("G53", "RG2")
@pytest.mark.parametrize("point", POINTS)
def test_who_writes_between_image_and_change_waits_or_comes_first(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Whichever it is: the step's before-image is what was there when it changed the rows."""
    outside = stage.room.another()
    other = threading.Thread(target=outside, args=("UPDATE account SET amount = 1000, name = 'theirs' WHERE id = 1",))

    def write() -> None:
        other.start()
        other.join(0.2)

    between(stage, monkeypatch, point, write)
    done = stage.done("UPDATE account SET amount = amount + 1 WHERE id < 3")
    other.join()
    before = {row[0]: row[1] for row in done.before.rows}
    after = {row[0]: row[1] for row in done.after.rows}
    assert {key: int(after[key]) - int(before[key]) for key in before} == dict.fromkeys(before, 1)
    first = int(next(iter(before.values()))) == 1000
    assert accounts(stage)[0] == (1, "theirs", 1001 if first else 1000)
    undone = stage.undo(on_conflict="keep_current")
    assert isinstance(undone, Undone)
    assert len(undone.kept) == (not first)
    assert accounts(stage)[:2] == [(1, "theirs", 1000), (2, "bert", 20)]


@pytest.mark.req("G53", "RG2")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
def test_who_holds_the_row_is_waited_for_and_was_first(stage: Stage) -> None:
    done: list[Any] = []
    step = threading.Thread(
        target=lambda: done.append(stage.run("UPDATE account SET amount = amount + 1 WHERE id = 1"))
    )
    with stage.room.outside.transaction():
        stage.room.execute("UPDATE account SET amount = 1000 WHERE id = 1")
        step.start()
        step.join(0.3)
        assert not done
    step.join()
    assert done[0].before.rows == (("1", "1000"),)
    assert done[0].after.rows == (("1", "1001"),)
    assert isinstance(stage.undo(), Undone)
    assert accounts(stage)[0] == (1, "anna", 1000)


@pytest.mark.req("G53", "G62")
def test_a_row_that_appears_meanwhile_is_changed_with_its_image_or_not_at_all(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = stage.room.another()
    other = threading.Thread(target=outside, args=("INSERT INTO account VALUES (9, 'late', 90)",))

    def write() -> None:
        other.start()
        other.join(0.2)

    between(stage, monkeypatch, "change", write)
    done = stage.done("UPDATE account SET amount = 0")
    other.join()
    assert done.affected == len(done.before.rows)
    assert isinstance(stage.undo(), Undone)
    assert accounts(stage) == [*ACCOUNTS, (9, "late", 90)]


@pytest.mark.req("G75", "G76")
def test_a_fence_raised_meanwhile_is_waited_for_or_stops_the_step(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    taker = stage.room.again()
    thread = threading.Thread(target=lambda: taker.raise_fence(stage.owner, 2))

    def take_over() -> None:
        thread.start()
        thread.join(0.2)

    between(stage, monkeypatch, "image", take_over)
    done = stage.run("UPDATE account SET amount = 0 WHERE id = 1")
    thread.join()
    assert isinstance(done, Done), "it had read the fence: who raises it waits"
    with pytest.raises(LeaseLost):
        stage.run("UPDATE account SET amount = 5 WHERE id = 1")
    assert accounts(stage)[0][2] == 0
    taker.close()


STOPPED = """
import sys, os, signal
from tests.group.target_rooms import opened, Stage
room = opened({room!r}, {place!r})
stage = Stage.__new__(Stage)
stage.room, stage.target, stage.fence, stage.segments = room, room.target, 1, {{}}
stage.owner = stage.target.own("history", "default", shared=False)
work = stage.segment("UPDATE account SET amount = 777 WHERE id = 1", step="late")
changing = stage.target.changing
def stopping(limits, do):
    def act(changes):
        add = changes.last
        def last(name, values):
            print("stopped", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
            return add(name, values)
        changes.last = last
        return do(changes)
    return changing(limits, act)
stage.target.changing = stopping
try:
    print(stage.ran(work))
except BaseException as error:
    print(type(error).__name__)
"""


@pytest.mark.req("G75", "G76", "RG6", "RG7")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
def test_a_process_stopped_inside_a_step_past_its_fence_changes_nothing(stage: Stage) -> None:
    """It wakes up when another processor has the stream, has voided the step and goes on."""
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED.format(room="postgres", place=stage.room.place)],
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "stopped\n"
        started = time.monotonic()
        stage.target.raise_fence(stage.owner, 2)
        assert time.monotonic() - started < 15, "the server ends what a stopped client holds"
        stage.fence = 2
        late = stage.segment("UPDATE account SET amount = 777 WHERE id = 1", step="late")
        assert stage.target.void(stage.owner, late.id, 2)
        assert isinstance(stage.run("UPDATE account SET amount = 1 WHERE id = 1"), Done)
        os.kill(process.pid, signal.SIGCONT)
        said = process.stdout.read()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
    assert said.strip() in {"Unavailable", "LeaseLost"}
    assert accounts(stage)[0][2] == 1


@pytest.mark.req("G76")
def test_a_process_stopped_inside_a_step_of_sqlite_is_waited_for(tmp_path: Path) -> None:
    room = SqliteRoom(tmp_path / "shop.db")
    room.execute("CREATE TABLE account (id integer PRIMARY KEY, name text, amount integer)")
    room.execute("INSERT INTO account VALUES (1, 'anna', 10)")
    stage = Stage(room)
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED.format(room="sqlite", place=str(tmp_path / "shop.db"))],
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "stopped\n"
        work = stage.segment("UPDATE account SET amount = 1 WHERE id = 1", limits=Limits(timeout_s=0.3))
        with pytest.raises(Unavailable):
            stage.ran(work)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert isinstance(stage.ran(work), Done)
        assert accounts(stage) == [(1, "anna", 1)], "what it had not committed is gone"
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
        room.close()


@pytest.mark.req("G5", "G6")
def test_a_statement_that_takes_too_long_changes_nothing(stage: Stage) -> None:
    slow = {
        "sqlite": "UPDATE account SET amount = (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT count(*) FROM n)",
        "postgres": "UPDATE account SET name = pg_sleep(5)::text",
    }[stage.room.dialect]
    found = stage.run(slow, limits=Limits(timeout_s=0.2))
    assert isinstance(found, Failed)
    assert (found.reason, found.retry) == ("statement", True)
    assert accounts(stage) == ACCOUNTS


@pytest.mark.req("G91")
def test_a_target_is_refused_after_close_and_in_a_forked_child(stage: Stage) -> None:
    made = stage.room.again()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            made.tables(["account"])
            os.write(writing, b"answered")
        except StrandlineError as error:
            os.write(writing, error.name.encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"Unsupported.used_after_fork"
    made.close()
    made.close()
    with pytest.raises(StrandlineError) as caught:
        made.tables(["account"])
    assert caught.value.name == "InvalidInput.closed"


@pytest.mark.req("G91")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
def test_a_server_that_forgets_what_it_acknowledged_is_refused(room: Any) -> None:
    """As one of a journal is; it can be accepted."""
    user = room.execute("SELECT current_user")[0][0]
    room.execute(f'ALTER ROLE "{user}" SET synchronous_commit = off')
    try:
        careful, relaxed = room.again(), room.again(settings=Settings.of({"accept_power_loss": True}))
        with pytest.raises(Unsupported) as caught:
            careful.own("h", "s", shared=False)
        assert caught.value.name == "Unsupported.postgres_unsafe"
        assert room.execute("SELECT to_regclass('strandline.strandline_target')") == [(None,)]
        with pytest.warns(RuntimeWarning, match="synchronous_commit is off"):
            relaxed.own("h", "s", shared=False)
        careful.close()
        relaxed.close()
    finally:
        room.execute(f'ALTER ROLE "{user}" RESET synchronous_commit')


@pytest.mark.req("G91")
def test_a_file_keeps_its_own_modes_and_another_library_is_refused(tmp_path: Path) -> None:
    from strandline.group.targets.sqlite import SqliteTarget

    path = tmp_path / "theirs.db"
    script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA application_id = 7');"
    script += (
        "c.execute('PRAGMA journal_mode = delete'); c.execute('CREATE TABLE t (a INTEGER PRIMARY KEY)'); c.commit()"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    target = SqliteTarget(path)
    target.own("h", "s", shared=False)
    target.close()
    look = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
    look += "print(c.execute('PRAGMA application_id').fetchone(), c.execute('PRAGMA journal_mode').fetchone())"
    found = subprocess.run([sys.executable, "-c", look, str(path)], check=True, capture_output=True, text=True).stdout
    assert found.strip() == "(7,) ('delete',)"
    import sqlite3

    theirs = sqlite3.connect(path)
    theirs.execute("SELECT * FROM t").fetchall()
    try:
        with pytest.raises(Unsupported) as caught:
            SqliteTarget(path)
        assert caught.value.name == "Unsupported.second_library"
    finally:
        theirs.close()


@pytest.mark.req("G91")
def test_a_file_that_another_thread_opens_meanwhile_is_no_other_librarys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from strandline.backends.sqlite import files
    from strandline.group.targets.sqlite import SqliteTarget

    path, opened, first = tmp_path / "theirs.db", [], [True]
    apsw.Connection(str(path)).execute("CREATE TABLE t (a)").connection.close()
    look, other = files._open_in_library, threading.Thread(target=lambda: opened.append(SqliteTarget(path)))

    def look_while_it_is_opened() -> Any:
        found = look()
        if first:
            first.clear()
            other.start()
            other.join(0.3)
        return found

    monkeypatch.setattr(files, "_open_in_library", look_while_it_is_opened)
    opened.append(SqliteTarget(path))
    other.join(20)
    assert len(opened) == 2
    for target in opened:
        target.close()


@pytest.mark.req("G6", "S40", "RG5")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
@pytest.mark.parametrize("committed", [True, False], ids=["committed", "not committed"])
def test_a_lost_answer_to_the_commit_is_found_by_running_the_step_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    from strandline.group.targets import postgres as module

    commit = module._PostgresChanges.commit

    def lost(self: Any) -> None:
        if committed:
            commit(self)
        else:
            self._connection.close()
        raise psycopg.OperationalError("the connection broke")

    work = stage.segment("UPDATE account SET amount = amount + 1 WHERE id = 1")
    with monkeypatch.context() as patch:
        patch.setattr(module._PostgresChanges, "commit", lost)
        with pytest.raises(Unavailable) as caught:
            stage.ran(work)
    assert caught.value.applied == "unknown"
    found = stage.ran(work)
    assert isinstance(found, Done)
    assert stage.again == committed
    assert accounts(stage)[0][2] == 11
    assert not stage.target.void(stage.owner, work.id, 1)


@pytest.mark.req("G6", "G72")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
@pytest.mark.parametrize("point", ["image", "change", "add_barrier"])
def test_a_connection_that_is_ended_inside_a_step_leaves_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    ours = "datname = current_database() AND pid <> pg_backend_pid()"

    def end() -> None:
        stage.room.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")

    work = stage.segment("UPDATE account SET amount = amount + 1 WHERE id < 3")
    with monkeypatch.context() as patch:
        between(stage, patch, point, end)
        try:
            found = stage.ran(work)  # or it finds another connection by itself
        except Unavailable:
            found = stage.ran(work)
    assert isinstance(found, Done)
    assert [row[2] for row in accounts(stage)] == [11, 21, None]
