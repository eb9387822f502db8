"""A SQLite store whose writer dies: at every statement, at any moment, while it is created, while it has the lease."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread, Timer
from typing import Any

import pytest

from strandline.backends.sqlite.file_lease import FileLock
from strandline.errors import Conflict, LeaseHeld
from strandline.store.scans import quarantined, snapshots_of
from strandline.store.sql_store import SqlStore
from strandline.testing.faults import Crash
from strandline.testing.store_contract import random_tape
from strandline.testing.store_contract.made import snapshot
from strandline.testing.tape import Tape
from tests.store.reading import expected, read
from tests.store.stores import file_of, open_store, tables

KEY = "order|42"


def run(*arguments: object) -> str:
    """Run a program of `tests.store.killed` to its end."""
    done = subprocess.run(_command(*arguments), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tests.store.killed", *map(str, arguments)]


class DiesAt:
    """Lets so many statements of a connection pass, and then none."""

    def __init__(self, statements: int) -> None:
        self.left = statements
        self.fired = False

    def __call__(self, cursor: object, statement: str, bindings: object) -> bool:
        if statement.startswith("ROLLBACK"):  # what the operating system does for the dead
            return True
        if self.left == 0:
            self.fired = True
            raise Crash
        self.left -= 1
        return True


def _dying(store: SqlStore, statements: int) -> DiesAt:
    hook = DiesAt(statements)
    file_of(store).writer.exec_trace = hook
    return hook


@pytest.mark.req("RJ5", "J74", "J77", "J78")
def test_die_at_every_statement(tmp_path: Path) -> None:
    tape = Tape()
    tape.append(KEY, ["a", "b", "c"])
    tape.append("order|7", ["x"], damaged="digest")
    tape.delete(KEY, 2, 1)
    tape.append(KEY, ["d"], expire_after_us=5)
    tape.purge(KEY)
    tape.append(KEY, ["e", "f"])
    tape.purge("order|7")
    tape.delete(KEY, 1, 2)
    whole = open_store(tmp_path / "whole.db")
    tape.carry(whole, size=4)
    whole.close()
    for point in range(1000):
        path = tmp_path / f"{point}.db"
        store = open_store(path)
        hook = _dying(store, point)
        with contextlib.suppress(Crash):
            tape.carry(store, size=4)
        file_of(store).writer.exec_trace = None
        for key in tape.all_keys():
            assert read(store, tape, key) == expected(tape, key, 3), (point, key)
        store.close()
        store = open_store(path)
        tape.carry(store, size=4)
        store.close()
        assert tables(path) == tables(tmp_path / "whole.db"), point
        if not hook.fired:
            assert point > 20
            return
    raise AssertionError("the sweep has no end")


WORK: dict[str, Callable[[SqlStore], object]] = {
    "take_lease": lambda store: store.lease().take("me").release(),
    "save_snapshot": lambda store: store.save(snapshot(2), 0),
    "resolve": lambda store: Tape().resolve(store, quarantined(store)[0].offset, "skip"),
    "delete_snapshots": lambda store: store.remove(KEY, 1, to=9),
}


@pytest.mark.parametrize("work", WORK)
def test_die_at_every_statement_of_other_writes(tmp_path: Path, work: str) -> None:
    """All or nothing; and the same call again gives what it gives without a crash."""
    tape = Tape()
    tape.append(KEY, ["a", "b"])
    tape.append(KEY, ["c"], damaged="digest")
    tape.append(KEY, ["d"])
    found: list[Any] = []
    for point in range(100):
        path = tmp_path / f"{point}.db"
        store = open_store(path)
        tape.carry(store)
        store.save(snapshot(1), 0)
        before = tables(path)
        hook = _dying(store, point)
        try:
            WORK[work](store)
        except Crash:
            assert tables(path) == before
        file_of(store).writer.exec_trace = None
        if not hook.fired:
            assert point >= 3
            assert tables(path) == found[0]
            assert work == "take_lease" or found[0] != before
            store.close()
            return
        WORK[work](store)
        found.append(tables(path))
        assert found[0] == found[-1]
        store.close()
    raise AssertionError("the sweep has no end")


@pytest.mark.req("RJ5", "J74")
@pytest.mark.parametrize("seed", [1, 2])
def test_kill_at_random_moments(tmp_path: Path, seed: int) -> None:
    said = run("carry", tmp_path, seed, 12).split()
    assert int(said[0]) >= 12
    unkilled = tables(tmp_path / "whole.db")
    unkilled["pointer"] = [row[:4] for row in unkilled["pointer"]]  # the revision counts batches
    assert len(unkilled["journal"]) > 200
    for number in range(1, int(said[2]) + 1):
        found = tables(tmp_path / f"{number}.db")
        found["pointer"] = [row[:4] for row in found["pointer"]]
        assert found == unkilled


@pytest.mark.req("RJ12", "J108")
def test_a_creation_killed_anywhere_is_completed_by_the_next_start(tmp_path: Path) -> None:
    said = run("create", tmp_path)
    assert int(said.split()[0]) > 20, said


@pytest.mark.req("RJ12", "J108")
def test_many_creators_make_one_schema(tmp_path: Path) -> None:
    assert run("creators", tmp_path, 8) == "8 created\n"


@pytest.mark.req("RR3", "J83")
def test_death_frees_the_lease(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with subprocess.Popen(_command("hold", path), stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        store = open_store(path)
        held = store.lease().holder()
        assert held is not None
        assert held[0] == "the one that is killed"
        with pytest.raises(LeaseHeld) as refused:
            store.lease().take("me")
        assert (refused.value.holder, refused.value.since) == held
        assert (tmp_path / "pipeline.lock").read_text() == "the one that is killed\n"
        holder.kill()
    assert store.lease().holder() is None
    lease = store.lease().take("me")
    assert lease.fence == 2
    assert [pointer.fence for pointer in store.pointers()] == [2]
    store.close()


@pytest.mark.req("RR3")
def test_a_holder_that_has_just_taken_the_lock_is_named(tmp_path: Path) -> None:
    store, other = open_store(tmp_path / "store.db"), open_store(tmp_path / "store.db")
    lock = FileLock(tmp_path / "pipeline.lock")
    assert lock.take()

    def take() -> None:
        lock.drop()
        store.lease().take("the quick one")

    later = Timer(0.05, take)
    later.start()
    held = other.lease().holder()
    assert held is not None
    assert held[0] == "the quick one"
    later.join()
    store.close()
    assert lock.take()
    assert other.lease().holder() == ("another process", 0), "it never said who it is"
    lock.drop()
    other.close()


@pytest.mark.req("RA15", "RR3")
def test_a_forked_child_has_no_part_in_the_lease(tmp_path: Path) -> None:
    path = tmp_path / "alone.db"
    with subprocess.Popen(_command("fork", path), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        said = [parent.stdout.readline().strip() for _ in range(3)]
        child = int(said.pop())
        try:
            assert said == ["Unsupported.used_after_fork"] * 2
            assert parent.wait(10) == -signal.SIGKILL
            store = open_store(path)
            deadline = time.monotonic() + 5
            while store.lease().holder() is not None and time.monotonic() < deadline:
                time.sleep(0.01)
            lease = store.lease().take("me")
            assert lease.fence == 2
            assert (tmp_path / "alone.db.lock").exists()
            store.close()
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.req("RR3")
def test_closing_a_store_gives_its_lease_back(tmp_path: Path) -> None:
    store, other = open_store(tmp_path / "store.db"), open_store(tmp_path / "store.db")
    store.lease().take("me")
    with pytest.raises(LeaseHeld):
        other.lease().take("you")
    store.close()
    assert other.lease().holder() is None
    other.lease().take("you").release()
    other.close()


@pytest.mark.req("J105", "RJ6")
def test_a_snapshot_waits_for_a_purge_that_is_being_written(tmp_path: Path) -> None:
    """Two connections: the save comes after the purge's transaction began, so it must see the ended life."""
    path = tmp_path / "store.db"
    tape = random_tape(3, actions=20, keys=2)
    tape.append(KEY)
    store, late = open_store(path), open_store(path)
    tape.carry(store)
    tape.purge(KEY)
    started = []

    def save_now(cursor: object, statement: str, bindings: object) -> bool:
        if statement.startswith("INSERT INTO ended"):
            started.append(Thread(target=_saved, args=(late, refused)))
            started[0].start()
        return True

    refused: list[str] = []
    file_of(store).writer.exec_trace = save_now
    tape.carry(store)
    file_of(store).writer.exec_trace = None
    started[0].join(30)
    assert refused == ["Conflict.life_ended"]
    assert snapshots_of(store, KEY, 1) == []
    store.close()
    late.close()


def _saved(store: SqlStore, refused: list[str]) -> None:
    try:
        store.save(snapshot(1), 0)
    except Conflict as error:
        refused.append(error.name)
