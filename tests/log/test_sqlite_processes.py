"""One SQLite log, several processes: turns, kills, creation."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.backends.sqlite.log import SqliteLog
from strandline.fold import Duplicate
from strandline.record import decode_header
from strandline.settings import Settings
from strandline.testing.log_contract.made import PARTITIONS, draft_of, everything, head_of, partition_for
from strandline.values.actions import Append

KEY = "order|42"
DEADLINE_S = 120


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


def started(*arguments: object, **given: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.log.child", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2], **given)


def printed(process: subprocess.Popen[str]) -> list[list[str]]:
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    return [line.split() for line in out.splitlines()]


@pytest.fixture
def log(path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(path, settings=Settings(partitions=PARTITIONS))
    yield log
    log.close()


@pytest.mark.req("J37", "RA9", "J28")
def test_ten_writers_with_one_expected(log: SqliteLog, path: Path) -> None:
    rounds = 100
    outcomes = [printed(process) for process in [started("expected", path, rounds) for _ in range(10)]]
    assert all(len(lines) == rounds for lines in outcomes)
    for number in range(rounds):
        words = Counter(lines[number][1] for lines in outcomes)
        assert words == {"won": 1, "lost": 9}
        assert all(int(lines[number][2]) > number for lines in outcomes)
    assert [record.first for record in everything(log, partition_for(KEY))] == list(range(1, rounds + 1))


@pytest.mark.req("RA5", "J28", "RA6")
def test_commits_of_several_processes_cross_without_holes(log: SqliteLog, path: Path) -> None:
    writers, appends = 4, 60
    processes = [started("append", path, writer, appends) for writer in range(writers)]
    seen: dict[int, list[tuple[int, int]]] = {1: [], 3: []}
    deadline = time.monotonic() + DEADLINE_S
    while sum(map(len, seen.values())) < 2 * writers * appends:
        assert time.monotonic() < deadline
        log.wait({partition: found[-1][0] if found else -1 for partition, found in seen.items()}, 1)
        for partition, found in seen.items():
            page = log.read(partition, after=found[-1][0] if found else -1)
            found += [(record.offset, record.timestamp) for record in page.records]
    told = Counter(word for process in processes for line in printed(process) for word in line)
    for partition, found in seen.items():
        assert [record[1:3] for record in everything(log, partition)] == found
        assert [offset for offset, _ in found] == list(range(writers * appends))
        assert sorted(timestamp for _, timestamp in found) == [timestamp for _, timestamp in found]
        assert len({timestamp for _, timestamp in found}) == len(found)
    assert told == {f"{partition}:{offset}": 1 for partition, found in seen.items() for offset, _ in found}


@pytest.mark.req("J27", "RA9")
def test_what_others_wrote_is_seen_by_the_next_fold(path: Path) -> None:
    """Two logs on one file, in turn: heads in memory must not outlive the other's commit."""
    one, two = SqliteLog(path), SqliteLog(path)
    for number in range(0, 20, 2):
        assert one.append([draft_of(KEY, partitions=8, expected=number)])[0].place is not None
        assert two.append([draft_of(KEY, partitions=8, expected=number + 1)])[0].place is not None
        assert one.append([draft_of(KEY, partitions=8, expected=number + 1)])[0].place is None
    two.trim(4, to=10, pointer=10, keep_after=2**62)
    assert one.append([draft_of(KEY, partitions=8, expected=20)])[0].place is not None
    one.close()
    two.close()


@pytest.mark.req("RA8", "RA3", "J39")
def test_killed_between_commit_and_answer(log: SqliteLog, path: Path) -> None:
    append_id = "8" * 32
    process = started("unanswered", path, append_id)
    assert process.wait(DEADLINE_S) == -signal.SIGKILL
    assert process.stdout is not None
    process.stdout.close()
    (again,) = log.append([draft_of(KEY, "once", append_id=append_id)])
    assert isinstance(again.effect, Duplicate)
    (record,) = everything(log, partition_for(KEY))
    assert (again.effect.answer.offset, again.effect.answer.timestamp) == record[1:3]


@pytest.mark.req("RA1", "RA2", "RA3")
def test_killed_at_any_moment(log: SqliteLog, path: Path) -> None:
    """What was acknowledged is there once; the one under way once or not at all; nothing else."""
    chance = random.Random(5)
    told: list[str] = []
    for name in range(8):
        process = started("forever", path, name)
        assert process.stdout is not None
        told += [process.stdout.readline() for _ in range(chance.randint(2, 60))]
        time.sleep(chance.random() / 100)
        process.kill()
        told += process.stdout.readlines()
        process.stdout.close()
        process.wait()
    done = {line[5:37] for line in told if line.startswith("done ") and line.endswith("\n")}
    sent = {line[5:37] for line in told if line.startswith("sent ")}
    found = [decode_header(record.header) for partition in range(PARTITIONS) for record in everything(log, partition)]
    ids = Counter(action.append_id for action in found if isinstance(action, Append))
    assert set(ids.values()) == {1}
    assert done <= set(ids) <= sent
    assert len(sent - done) <= 8
    for name in range(8):
        numbers = [action.append_id for action in found if isinstance(action, Append) and action.key == f"order|{name}"]
        assert numbers == [f"{name:016x}{number:016x}" for number in range(1, len(numbers) + 1)]
        head = head_of(log, f"order|{name}")
        assert (head.seq_nr if head else 0) == 2 * len(numbers)


def test_waiting_for_another_process(log: SqliteLog, path: Path) -> None:
    process = started("later", path, 2, stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    assert not log.wait({2: -1}, 0.05)
    process.stdin.write("now\n")
    process.stdin.flush()
    assert log.wait({2: -1}, DEADLINE_S)
    printed(process)


@pytest.mark.req("J108", "RJ12", "J109")
def test_eight_creators_make_one_schema(tmp_path: Path) -> None:
    path = tmp_path / "orders" / "log.db"
    ids = [printed(process)[0][0] for process in [started("create", path) for _ in range(8)]]
    assert len(set(ids)) == 1
    SqliteLog(path).close()  # two that close at once leave SQLite's own files
    assert [file.name for file in path.parent.iterdir()] == ["log.db"]


@pytest.mark.req("J108", "RJ12")
def test_killed_before_each_statement_of_creation(tmp_path: Path) -> None:
    """The next start completes it."""
    ((statements,),) = printed(started("create-dying", tmp_path))
    assert int(statements) > 20
