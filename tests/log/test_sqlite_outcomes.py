"""The table that translates the library's errors."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any, cast

import apsw
import pytest

from strandline.backends.sqlite.driver_errors import kills, outcome_of

EIO, ENOSPC, EFBIG, EDQUOT = errno.EIO, errno.ENOSPC, errno.EFBIG, errno.EDQUOT

TABLE: list[tuple[int, Any, int, str, str, bool]] = [
    # extended result, doing, errno, name, applied, whether the connection is dead
    (apsw.SQLITE_BUSY, "write", 0, "Unavailable.timeout", "no", False),
    (apsw.SQLITE_BUSY, "commit", 0, "Unavailable.timeout", "no", False),
    (apsw.SQLITE_BUSY_SNAPSHOT, "write", 0, "Unavailable.timeout", "no", False),
    (apsw.SQLITE_LOCKED, "read", 0, "Unavailable.timeout", "no", False),
    (apsw.SQLITE_PROTOCOL, "read", 0, "Unavailable.timeout", "no", False),
    (apsw.SQLITE_INTERRUPT, "read", 0, "Unavailable.timeout", "no", False),
    (apsw.SQLITE_FULL, "write", ENOSPC, "Unavailable.no_space", "no", False),
    (apsw.SQLITE_FULL, "commit", ENOSPC, "Unavailable.no_space", "no", False),
    (apsw.SQLITE_IOERR_WRITE, "commit", ENOSPC, "Unavailable.no_space", "no", False),
    (apsw.SQLITE_IOERR_WRITE, "commit", EFBIG, "Unavailable.no_space", "no", False),
    (apsw.SQLITE_IOERR_WRITE, "write", EDQUOT, "Unavailable.no_space", "no", False),
    (apsw.SQLITE_IOERR_SHMSIZE, "read", ENOSPC, "Unavailable.no_space", "no", False),
    (apsw.SQLITE_IOERR_FSYNC, "commit", EIO, "Unavailable.log_failed", "unknown", True),
    (apsw.SQLITE_IOERR_FSYNC, "commit", ENOSPC, "Unavailable.log_failed", "unknown", True),
    (apsw.SQLITE_IOERR_WRITE, "commit", EIO, "Unavailable.log_failed", "unknown", True),
    (apsw.SQLITE_IOERR_WRITE, "write", EIO, "Unavailable.log_failed", "no", True),
    (apsw.SQLITE_IOERR_READ, "read", EIO, "Unavailable.away", "no", False),
    (apsw.SQLITE_READONLY, "write", 0, "Unavailable.away", "no", False),
    (apsw.SQLITE_READONLY_DBMOVED, "write", 0, "Unavailable.away", "no", False),
    (apsw.SQLITE_CANTOPEN, "read", 0, "Unavailable.away", "no", False),
    (apsw.SQLITE_PERM, "read", 0, "Unavailable.away", "no", False),
    (apsw.SQLITE_AUTH, "read", 0, "Unavailable.away", "no", False),
    (apsw.SQLITE_CORRUPT, "read", 0, "Corrupt.digest", "no", False),
    (apsw.SQLITE_CORRUPT, "commit", 0, "Corrupt.digest", "no", False),
    (apsw.SQLITE_NOTADB, "read", 0, "SchemaMismatch.foreign_file", "no", False),
    (apsw.SQLITE_CONSTRAINT_PRIMARYKEY, "write", 0, "Corrupt.conflict", "no", False),
    (apsw.SQLITE_SCHEMA, "write", 0, "SchemaMismatch.version", "no", False),
]


@pytest.mark.req("RA11", "RS7", "RS8")
@pytest.mark.parametrize(("result", "doing", "errno_", "name", "applied", "dead"), TABLE)
def test_each_error_of_the_library_has_one_meaning(
    result: int, doing: Any, errno_: int, name: str, applied: str, dead: bool
) -> None:
    error = apsw.exception_for(result)
    assert isinstance(error, apsw.Error)
    outcome = outcome_of(error, "orders/log.db", doing, cast(apsw.Connection, SimpleNamespace(system_errno=errno_)))
    assert outcome is not None
    assert (outcome.name, outcome.applied) == (name, applied)
    assert "orders/log.db" in outcome.message
    assert outcome.hint
    assert kills(error, outcome) is dead


@pytest.mark.parametrize("result", [apsw.SQLITE_MISUSE, apsw.SQLITE_ERROR, apsw.SQLITE_RANGE, apsw.SQLITE_TOOBIG])
def test_what_only_a_bug_can_cause_passes_as_it_is(result: int) -> None:
    error = apsw.exception_for(result)
    assert isinstance(error, apsw.Error)
    assert outcome_of(error, "log.db", "write") is None
