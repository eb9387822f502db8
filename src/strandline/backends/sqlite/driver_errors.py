"""What an error of the SQLite library means to a caller: one table.

    library                              error                        applied
    busy, locked, protocol, interrupted  Unavailable.timeout          no
    full, or a write that found no space Unavailable.no_space         no
    I/O error from COMMIT                Unavailable.log_failed       unknown; the connection is dead
    I/O error in another write           Unavailable.log_failed       no; the connection is dead
    I/O error in a read                  Unavailable.away             no
    read-only, cannot open, permission   Unavailable.away             no
    corrupt                              Corrupt.digest               no
    not a database                       SchemaMismatch.foreign_file  no
    trigger log_replaced                 SchemaMismatch.log_replaced  no
    constraint                           Corrupt.conflict             no
    schema changed under a statement     SchemaMismatch.version       no
    closed by another thread             InvalidInput.closed          no

Anything else is a bug of ours and passes as it is.
"""

from __future__ import annotations

import errno
from typing import Any, Literal

import apsw

from strandline.errors import Corrupt, SchemaMismatch, StrandlineError, Unavailable, closed
from strandline.log.refusals import replaced

Doing = Literal["read", "write", "commit"]

_BUSY = (apsw.BusyError, apsw.LockedError, apsw.ProtocolError, apsw.InterruptError)
_AWAY = (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError, apsw.AuthError)
_CLOSED = (apsw.ConnectionClosedError, apsw.CursorClosedError)
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# After a sync that failed for lack of space it is unknown, too, what reached the disk.
_WRITES = {apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_SHMSIZE, apsw.SQLITE_IOERR_SHMMAP, apsw.SQLITE_IOERR_TRUNCATE}


def outcome_of(
    error: apsw.Error, path: object, doing: Doing, connection: apsw.Connection | None = None
) -> StrandlineError | None:
    """Return our error for an error of the library; None for one that only a bug can cause."""
    if isinstance(error, _CLOSED):
        return closed(path)
    errno_ = 0 if connection is None else connection.system_errno
    facts: dict[str, Any] = {"path": str(path)}
    if isinstance(error, _BUSY):
        return Unavailable(
            f"{path} is busy: {error}",
            code="timeout",
            hint="another process held it for longer than append_timeout_s; call again",
            **facts,
        )
    if isinstance(error, apsw.FullError) or (_extended(error) in _WRITES and errno_ in _NO_SPACE):
        return Unavailable(f"no space for {path}", code="no_space", hint="free some space; no restart needed", **facts)
    if isinstance(error, apsw.IOError):
        return _io_error(error, path, doing, facts)
    if isinstance(error, _AWAY):
        hint = "check that the file is there and that this user may write it and its folder"
        return Unavailable(f"cannot use {path}: {error}", code="away", hint=hint, **facts)
    if isinstance(error, apsw.CorruptError):
        hint = "restore log and store from one backup"
        return Corrupt(f"{path} is damaged: {error}", code="digest", hint=hint, **facts)
    if isinstance(error, apsw.NotADBError):
        return SchemaMismatch(f"{path} is no SQLite database", code="foreign_file", hint="give another path", **facts)
    if isinstance(error, apsw.ConstraintError) and str(error) == "log_replaced":
        return replaced(path)
    if isinstance(error, apsw.ConstraintError):
        hint = "nothing was written; if it stays so, restore log and store from one backup"
        return Corrupt(f"another row stands at a place in {path}: {error}", code="conflict", hint=hint, **facts)
    if isinstance(error, apsw.SchemaChangeError):
        hint = "the schema was changed under this process: connect again"
        return SchemaMismatch(f"{path}: {error}", code="version", hint=hint, **facts)
    return None


def _io_error(error: apsw.IOError, path: object, doing: Doing, facts: dict[str, Any]) -> Unavailable:
    message = f"I/O error on {path} while it was {'read' if doing == 'read' else 'written'}: {error}"
    if doing == "read":
        return Unavailable(message, code="away", hint="check the disk and the system's log", **facts)
    return Unavailable(
        message,
        code="log_failed",
        hint="check the disk, then connect again; retry with the append id, or read the head, to learn the outcome",
        applied="unknown" if doing == "commit" else "no",
        **facts,
    )


def kills(error: apsw.Error, outcome: StrandlineError | None) -> bool:
    """Return whether nothing may be written through this connection any more."""
    return isinstance(error, apsw.IOError) and outcome is not None and outcome.code == "log_failed"


def _extended(error: apsw.Error) -> int:
    return int(getattr(error, "extendedresult", 0) or 0)
