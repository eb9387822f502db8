"""Processes that are killed while they use a store. Run as a program, so that no store is open where it forks.

python -m tests.store.killed carry FOLDER SEED KILLS    carry a tape, killed at random moments, again and again
python -m tests.store.killed create FOLDER              create a store, killed before each statement in turn
python -m tests.store.killed creators FOLDER COUNT      create one store from many processes at once
python -m tests.store.killed hold FILE                  take the lease, say so, and wait to be killed
python -m tests.store.killed fork FILE                  take the lease, fork a child that lives on, and end
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from strandline.errors import StrandlineError
from strandline.testing.store_contract import random_tape
from strandline.testing.tape import Tape
from tests.store.stores import open_store, tables

ACTIONS, KEYS, PARTITIONS = 2000, 40, 2


def big_tape(seed: int) -> Tape:
    """The tape that is carried."""
    return random_tape(seed, actions=ACTIONS, keys=KEYS, partitions=PARTITIONS)


def carry_all(path: Path, tape: Tape, size: int) -> None:
    """What a pipeline does from its start to the end of the tape."""
    store = open_store(path, partitions=PARTITIONS)
    lease = store.lease().take(f"process {os.getpid()}")
    tape.carry(store, fence=lease.fence, size=size)
    lease.release()
    store.close()


def _child(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def _ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def carry(folder: Path, seed: int, kills: int) -> None:
    """Kill until enough attempts died in their work; each next one goes on from the pointers, with other batches.

    A store that was carried to its end before that is left as it is, and another one begun.
    """
    chance = random.Random(seed)
    tape = big_tape(seed)
    start = time.monotonic()
    carry_all(folder / "whole.db", tape, 20)
    long = time.monotonic() - start
    killed = stores = 0
    while killed < kills:
        stores += 1
        path = folder / f"{stores}.db"
        while True:
            size = chance.randint(5, 40)
            child = _child(lambda path=path, size=size: carry_all(path, tape, size))  # type: ignore[misc]
            time.sleep(chance.random() * long / 4)
            os.kill(child, signal.SIGKILL)
            code = _ended(child)
            if code == 0:
                break
            if code != -signal.SIGKILL:
                sys.exit(f"an attempt ended with {code}")
            killed += 1
            if killed > 20 * kills:
                sys.exit("never done")
    sys.stdout.write(f"{killed} killed, {stores} stores\n")


def create(folder: Path) -> None:
    """Die before the n-th statement of creation, for each n; the next start must complete it."""
    whole = folder / "whole.db"
    open_store(whole).close()
    expected = _schema(whole)
    for point in range(1000):
        path = folder / f"{point}.db"
        code = _ended(_child(lambda path=path, point=point: _create_until(path, point)))  # type: ignore[misc]
        again = _ended(_child(lambda path=path: open_store(path).close()))  # type: ignore[misc]
        if again or _schema(path) != expected or any(tables(path).values()):
            sys.exit(f"statement {point}: {again}")
        if code == 0:
            sys.stdout.write(f"{point} points\n")
            return
        if code != 9:
            sys.exit(f"statement {point} ended with {code}")


def _create_until(path: Path, point: int) -> None:
    left = [point]

    def before(cursor: object, statement: str, bindings: object) -> bool:
        if left[0] == 0:
            os._exit(9)
        left[0] -= 1
        return True

    apsw.connection_hooks.append(lambda connection: setattr(connection, "exec_trace", before))
    open_store(path).close()


def _schema(path: Path) -> list[object]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        found = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()
        return [
            *found,
            *connection.execute(
                "SELECT * FROM setting WHERE name NOT IN ('database_id', 'history_id') ORDER BY name"
            ).fetchall(),
        ]
    finally:
        connection.close()


def creators(folder: Path, count: int) -> None:
    """All start at once; the log's id of the first holds, and the others are told."""
    path = folder / "new" / "store.db"
    children = [_child(lambda: open_store(path).close()) for _ in range(count)]
    codes = [_ended(child) for child in children]
    if any(codes):
        sys.exit(f"creators ended with {codes}")
    others = [_child(lambda index=index: _refused(path, index)) for index in range(count)]  # type: ignore[misc]
    codes = [_ended(child) for child in others]
    if any(codes):
        sys.exit(f"others ended with {codes}")
    sys.stdout.write(f"{count} created\n")


def _refused(path: Path, index: int) -> None:
    try:
        open_store(path, log_id=f"other-{index}")
    except StrandlineError as error:
        if error.name == "SchemaMismatch.log_replaced":
            return
    os._exit(2)


def hold(path: Path) -> None:
    """Hold the lease until killed."""
    open_store(path).lease().take("the one that is killed")
    sys.stdout.write("held\n")
    sys.stdout.flush()
    signal.pause()


def fork(path: Path) -> None:
    """Take the lease, and leave a child behind that knows of it."""
    store = open_store(path)
    lease = store.lease().take("the parent")
    child = os.fork()
    if child == 0:
        try:
            lease.check()
        except StrandlineError as error:
            sys.stdout.write(f"{error.name}\n")
        try:
            store.lease().holder()
        except StrandlineError as error:
            sys.stdout.write(f"{error.name}\n")
        sys.stdout.write(f"{os.getpid()}\n")
        sys.stdout.flush()
        signal.pause()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    name, place, *more = sys.argv[1:]
    programs: dict[str, Callable[..., None]] = {
        "carry": carry, "create": create, "creators": creators, "hold": hold, "fork": fork,
    }  # fmt: skip
    programs[name](Path(place), *map(int, more))
