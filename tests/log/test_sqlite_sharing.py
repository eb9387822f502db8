"""Who else may not have a SQLite file open: another library, a forked child."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.backends.sqlite.files import OPEN_FILES
from strandline.backends.sqlite.log import SqliteLog
from strandline.errors import StrandlineError, Unsupported
from strandline.settings import Settings
from strandline.testing.log_contract import everything
from tests.log.test_sqlite_opening import SqliteLogs, filled


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders" / "log.db"


@pytest.mark.req("RJ13")
def test_a_second_library_is_refused_while_the_file_is_open(path: Path, tmp_path: Path) -> None:
    log = filled(path)
    link = tmp_path / "link.db"
    os.link(path, link)
    relative = os.path.relpath(path)
    for name in (path, str(path), os.fsencode(path), link, relative, f"file:{path}?mode=ro"):
        with pytest.raises(Unsupported) as refused:
            sqlite3.connect(name, uri=str(name).startswith("file:"))
        assert refused.value.code == "second_library"
    sqlite3.connect(":memory:").close()
    sqlite3.connect(tmp_path / "other.db").close()
    second = SqliteLog(path)
    log.close()
    with pytest.raises(Unsupported):
        sqlite3.connect(path)
    second.close()
    sqlite3.connect(path).close()


@pytest.mark.req("RA15")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_cannot_open_what_its_parent_had_open(path: Path) -> None:
    """Its library believes in locks that only the parent holds."""
    log = filled(path, 1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            SqliteLog(path)
        except Unsupported as error:
            code = 0 if error.code == "used_after_fork" and error.hint.startswith("start processes with spawn") else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    log.close()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            SqliteLog(path).close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.req("RA15")
def test_a_child_that_ends_normally_leaves_the_parents_file_alone(path: Path) -> None:
    """At the end of an interpreter everything is closed; what the parent opened is not."""
    program = f"""
import os, sys
from strandline.backends.sqlite.log import SqliteLog
from strandline.testing.log_contract import draft_of, everything
log = SqliteLog({str(path)!r})
log.append([draft_of("order|42", partitions=8)])
if os.fork() == 0:
    sys.exit(0)
os.wait()
assert os.path.getsize({str(path)!r} + "-wal") > 0
log.append([draft_of("order|42", partitions=8)])
assert len(everything(log, 4)) == 2
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    with SqliteLogs() as open_:
        assert len(everything(open_(path), 4)) == 2


def test_nothing_is_remembered_of_closed_files(path: Path) -> None:
    before = dict(OPEN_FILES._open)
    SqliteLog(path).close()
    with pytest.raises(StrandlineError):
        SqliteLog(path, settings=Settings(partitions=3))
    assert OPEN_FILES._open == before
