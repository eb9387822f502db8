"""What other processes do to a log, for tests. Run as a program: no log is open where it starts.

python -m tests.log.child expected FILE ROUNDS      append with `expected` 0, 1, 2 …, and print who won and who lost
python -m tests.log.child append FILE NAME COUNT    append to two partitions at once, and print the offsets
python -m tests.log.child forever FILE NAME         append until it is killed, and print what was acknowledged
python -m tests.log.child unanswered FILE ID        append with this id, and die between the commit and the answer
python -m tests.log.child create FILE               open it once, and print its id
python -m tests.log.child create-dying FOLDER       create logs, killed before each statement in turn
python -m tests.log.child later FILE PARTITION      wait for a line, then append a mark
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from strandline.backends.sqlite.log import SqliteLog
from strandline.fold import EventsAppended, RefusedAppend
from strandline.testing.log_contract.made import draft_of, keys_in, mark_in

KEY = "order|42"


def expected(path: Path, rounds: str) -> None:
    log = SqliteLog(path)
    for number in range(int(rounds)):
        effect = log.append([draft_of(KEY, os.getpid(), expected=number)])[0].effect
        if isinstance(effect, EventsAppended):
            print(number, "won", effect.first)
        elif isinstance(effect, RefusedAppend):
            print(number, "lost", effect.actual)
    log.close()


def append(path: Path, name: str, count: str) -> None:
    log = SqliteLog(path)
    keys = [f"{keys_in(1, 1)[0]}", f"{keys_in(3, 1)[0]}"]
    for number in range(int(count)):
        answers = log.append([draft_of(key, name, number) for key in (keys if int(name) % 2 else reversed(keys))])
        print(*[f"{answer.place.partition}:{answer.place.offset}" for answer in answers if answer.place])
    log.close()


def forever(path: Path, name: str) -> None:
    log = SqliteLog(path)
    number = 0
    while True:
        number += 1
        append_id = f"{int(name):016x}{number:016x}"
        os.write(1, f"sent {append_id}\n".encode())
        log.append([draft_of(f"order|{name}", append_id, "x" * (number % 2000), append_id=append_id)])
        os.write(1, f"done {append_id}\n".encode())


def unanswered(path: Path, append_id: str) -> None:
    log = SqliteLog(path)
    log.append([draft_of(KEY, "once", append_id=append_id)])
    os.kill(os.getpid(), signal.SIGKILL)


def create(path: Path) -> None:
    log = SqliteLog(path)
    print(log.log_id)
    log.close()


def create_dying(folder: Path) -> None:
    for deadly in range(1, 1000):
        path = folder / str(deadly) / "log.db"
        died = _in_child(lambda path=path, deadly=deadly: _create_and_die(path, deadly)) == -signal.SIGKILL  # type: ignore[misc]
        if _in_child(lambda path=path: _use(path)) != 0:  # type: ignore[misc]
            sys.exit(f"not usable after a kill before statement {deadly}")
        if not died:
            print(deadly)
            return


def _create_and_die(path: Path, deadly: int) -> None:
    steps = iter(range(1, 10**6))

    def trace(cursor: apsw.Cursor, statement: str, bindings: Any) -> bool:
        if next(steps) == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def hook(connection: apsw.Connection) -> None:
        connection.exec_trace = trace

    apsw.connection_hooks.append(hook)
    SqliteLog(path).close()


def _use(path: Path) -> None:
    log = SqliteLog(path)
    if log.append([draft_of(KEY, partitions=8)])[0].effect != EventsAppended(1, 1, 0, 1):
        sys.exit(2)
    log.close()


def _in_child(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def later(path: Path, partition: str) -> None:
    log = SqliteLog(path)
    print("ready", flush=True)
    sys.stdin.readline()
    log.append([mark_in(int(partition))])
    log.close()


if __name__ == "__main__":
    commands = {"create-dying": create_dying} | {
        function.__name__: function for function in (expected, append, forever, unanswered, create, later)
    }
    commands[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
