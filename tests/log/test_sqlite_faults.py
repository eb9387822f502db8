"""A SQLite log when the disk fails, is full, or somebody damages the file; and how large its WAL gets."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from strandline.backends.sqlite.log import SqliteLog
from strandline.errors import Corrupt, InvalidInput, MissingEvent, Unavailable
from strandline.fold import Duplicate, EventsAppended
from strandline.log.committer import Committer
from strandline.record import BadHeader, BadValue, Content, Record, decode_header, read_contents
from strandline.settings import MIB, Settings
from strandline.testing.log_contract import draft_of, everything
from strandline.values.actions import Append
from tests.log.shim import Shim, shim

KEY = "order|42"
PARTITION = 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def layer() -> Iterator[Shim]:
    with shim() as made:
        yield made


def draft(*payloads: Any, **given: Any) -> Any:
    return draft_of(given.pop("key", KEY), *payloads, partitions=8, **given)


def failing(call: str, file: str, number: int, *, after: int = 0) -> Any:
    """An I/O error, from the given call on that file, for good."""
    passed = [0]

    def fault(now: str, on: str) -> None:
        if (now, on) == (call, file):
            passed[0] += 1
            if passed[0] > after:
                error = apsw.exception_for(number)
                raise error

    return fault


# ---------------------------------------------------------------- I/O errors


@pytest.mark.req("RA11", "RA3")
@pytest.mark.parametrize("call", [("sync", apsw.SQLITE_IOERR_FSYNC), ("write", apsw.SQLITE_IOERR_WRITE)])
def test_after_an_io_error_nothing_is_written_until_the_log_is_opened_again(
    path: Path, layer: Shim, call: tuple[str, int]
) -> None:
    log = SqliteLog(path, vfs=layer.name)
    log.append([draft("one")])
    layer.fault = failing(call[0], "wal", call[1])
    unknown = draft("perhaps", append_id="7" * 32)
    with pytest.raises(Unavailable) as failed:
        log.append([unknown])
    assert (failed.value.code, failed.value.applied) == ("log_failed", "unknown")
    layer.fault = lambda call, file: None  # the disk is well again; the log does not believe it
    syncs = layer.calls["sync", "wal"]
    for _ in range(2):
        with pytest.raises(Unavailable) as refused:
            log.append([draft("later")])
        assert (refused.value.code, refused.value.applied) == ("log_failed", "no")
    assert layer.calls["sync", "wal"] == syncs
    assert len(everything(log, PARTITION)) == 1  # reading goes on
    log.close()
    log = SqliteLog(path)
    (again,) = log.append([unknown])
    assert isinstance(again.effect, (EventsAppended, Duplicate))
    assert [record.first for record in everything(log, PARTITION)] == [1, 2]
    log.close()


@pytest.mark.req("RA11", "RA10", "RA1")
def test_an_fsync_error_under_eight_writers(path: Path, layer: Shim) -> None:
    """EIO at the third sync: the members of that commit are unknown, later ones refused; what was said holds."""
    log = SqliteLog(path, vfs=layer.name)
    committer = Committer(log, Settings())
    layer.fault = failing("sync", "wal", apsw.SQLITE_IOERR_FSYNC, after=2)
    outcomes: dict[str, str] = {}

    def write(writer: int) -> None:
        for number in range(20):
            append_id = f"{writer:016x}{number:016x}"
            try:
                committer.append(draft(append_id, key=f"order|{writer}", append_id=append_id))
                outcomes[append_id] = "ok"
            except Unavailable as error:
                outcomes[append_id] = error.applied if error.code == "log_failed" else error.code

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    committer.close()
    log.close()
    log = SqliteLog(path)
    found = [decode_header(record.header) for partition in range(8) for record in everything(log, partition)]
    ids = [action.append_id for action in found if isinstance(action, Append)]
    assert len(ids) == len(set(ids))
    by_outcome = {
        word: {id_ for id_, outcome in outcomes.items() if outcome == word} for word in ("ok", "no", "unknown")
    }
    assert by_outcome["ok"] <= set(ids)
    assert not by_outcome["no"] & set(ids)
    assert set(ids) <= by_outcome["ok"] | by_outcome["unknown"]
    log.close()


@pytest.mark.req("RA11")
def test_an_io_error_of_a_checkpoint_stops_the_log_but_not_the_commit_before_it(path: Path, layer: Shim) -> None:
    log = SqliteLog(path, vfs=layer.name, settings=Settings(wal_bytes_max=4 * MIB))
    layer.fault = failing("sync", "main", apsw.SQLITE_IOERR_FSYNC)
    acknowledged = 0

    def write() -> None:
        nonlocal acknowledged
        for _ in range(1000):
            log.append([draft(bytes(5000))])
            acknowledged += 1

    with pytest.raises(Unavailable) as refused:
        write()
    assert (refused.value.code, refused.value.applied) == ("log_failed", "no")
    assert len(everything(log, PARTITION)) == acknowledged > 0
    log.close()
    log = SqliteLog(path)
    assert len(everything(log, PARTITION)) == acknowledged
    log.close()


# ---------------------------------------------------------------- no space


@pytest.mark.req("RS7", "RA2")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_a_full_disk_refuses_and_goes_on_when_there_is_space(path: Path, number: int) -> None:
    """In a process of its own: a limit for files stands for the end of the disk (EFBIG), a small tmpfs for ENOSPC."""
    if number == errno.EFBIG:
        _in_child(_limited, path)
    else:
        _in_child(_on_tmpfs, path)


def _in_child(work: Any, path: Path) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = work(path)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 77:
        pytest.skip("this machine does not let us mount a tmpfs")
    assert code == 0


def _limited(path: Path) -> int:
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    log = SqliteLog(path)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    return _fill_and_recover(log, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard)))


def _on_tmpfs(path: Path) -> int:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    place = path.parent / "small"
    place.mkdir()
    clone_newns, ms_private = 0x20000, 0x44000
    if os.geteuid() != 0 or libc.unshare(clone_newns) or libc.mount(b"none", b"/", None, ms_private, None):
        return 77
    if libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, b"size=1m"):
        return 77
    log = SqliteLog(place / "log.db")

    def grow() -> None:
        libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 32, b"size=64m")  # MS_REMOUNT

    return _fill_and_recover(log, grow)


def _fill_and_recover(log: SqliteLog, grow: Any) -> int:
    acknowledged = refused = 0
    for number in range(2000):
        try:
            log.append([draft(number, bytes(2000))])
            acknowledged += 1
        except Unavailable as error:
            if (error.code, error.applied) != ("no_space", "no"):
                return 2
            refused += 1
            if refused == 5:
                break
    if not acknowledged or refused < 5 or len(everything(log, PARTITION)) != acknowledged:
        return 3
    grow()
    for _ in range(50):
        log.append([draft(bytes(2000))])
    if [record.first for record in everything(log, PARTITION)][-1] != 2 * acknowledged + 50:
        return 4
    return 0 if len(everything(log, PARTITION)) == acknowledged + 50 else 5


# ---------------------------------------------------------------- busy


@pytest.mark.req("J42")
def test_a_file_that_stays_busy_is_a_timeout(path: Path) -> None:
    log = SqliteLog(path, settings=Settings(append_timeout_s=0.2))
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable) as refused:
        log.append([draft()])
    assert (refused.value.code, refused.value.applied) == ("timeout", "no")
    other.execute("ROLLBACK")
    other.close()
    assert log.append([draft()])[0].effect == EventsAppended(1, 1, 0, 1)
    log.close()


@pytest.mark.req("J42")
def test_close_does_not_wait_for_ever_for_a_commit_that_hangs(path: Path) -> None:
    log = SqliteLog(path, settings=Settings(append_timeout_s=0.1))
    with log._database.write():
        started = time.monotonic()
        log.close()
        assert time.monotonic() - started < 2
    with pytest.raises(InvalidInput):
        log.append([draft()])


# ---------------------------------------------------------------- damage


@pytest.mark.req("RA12")
@pytest.mark.parametrize("column", ["header", "value"])
def test_a_flipped_bit_is_seen_and_the_record_still_given(path: Path, column: str) -> None:
    log = SqliteLog(path)
    log.append([draft(number, bytes(20)) for number in range(3)])
    log.close()
    connection = apsw.Connection(str(path))
    stored = connection.execute(f"SELECT {column} FROM action WHERE seq = 2").get
    for bit in range(0, 8 * len(stored), 37):
        damaged = bytearray(stored)
        damaged[bit // 8] ^= 1 << bit % 8
        connection.execute(f"UPDATE action SET {column} = ? WHERE seq = 2", (bytes(damaged),))
        log = SqliteLog(path)
        records = everything(log, PARTITION)
        log.close()
        assert len(records) == 3
        with pytest.raises((BadHeader, BadValue)):
            contents_of(records[1])
    connection.close()


def contents_of(record: Record) -> list[Content]:
    action = decode_header(record.header)
    assert isinstance(action, Append)
    return read_contents(action, record.value)


@pytest.mark.req("RA12", "RA5")
def test_a_lost_record_is_found_by_who_reads(path: Path) -> None:
    log = SqliteLog(path)
    log.append([draft(number) for number in range(300)])
    with log._database.write() as transaction:
        transaction.raw.execute("DELETE FROM action WHERE seq IN (100, 101)")
    with pytest.raises(MissingEvent) as missing:
        log.read(PARTITION, after=50)
    assert missing.value.facts == {"partition": PARTITION, "first": 99, "last": 100}
    assert len(log.read(PARTITION, after=100).records) == 199
    log.close()


@pytest.mark.req("RA11")
def test_opening_looks_at_the_tail(path: Path) -> None:
    log = SqliteLog(path)
    log.append([draft("one")])
    log.append([draft("two")])
    log.close()
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE latest SET seq = 1")
    connection.close()
    with pytest.raises(Corrupt) as found:
        SqliteLog(path)
    assert (found.value.code, found.value.partition, found.value.offset) == ("fold", PARTITION, 1)


def test_a_damaged_page_is_corrupt(path: Path) -> None:
    log = SqliteLog(path)
    log.append([draft(bytes(3000)) for _ in range(200)])
    log.close()
    content = bytearray(path.read_bytes())
    for page in range(20, 30):
        content[page * 4096 : page * 4096 + 100] = bytes(100)
    path.write_bytes(content)
    log = SqliteLog(path)
    with pytest.raises(Corrupt) as found:
        everything(log, PARTITION)
    assert found.value.code == "digest"
    log.close()


# ---------------------------------------------------------------- the write-ahead log


@pytest.mark.req("RJ14")
def test_the_wal_stays_small_while_readers_come_and_go(path: Path) -> None:
    settings = Settings(wal_bytes_max=4 * MIB)
    log = SqliteLog(path, settings=settings)
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            log.read(PARTITION, after=-1, limit=50, bytes_max=20_000)

    largest = 0
    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for _ in range(120):
                log.append([draft(bytes(10_000)) for _ in range(10)])
                largest = max(largest, Path(f"{path}-wal").stat().st_size)
        finally:
            stop.set()
        for reader in readers:
            reader.result()
    assert MIB / 8 < largest < settings.wal_bytes_max
    log.close()


@pytest.mark.req("RJ14")
def test_a_reader_that_left_a_cursor_half_read_keeps_nothing_open(path: Path) -> None:
    log = SqliteLog(path)
    log.append([draft(bytes(1000)) for _ in range(50)])
    with log._database.connection() as connection:
        next(iter(connection.execute("SELECT * FROM action")))
    found, written = log._database.writer.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
    assert found == written
    log.close()
