"""What an error of psycopg or of the server means to a caller: one table.

    state                                      error                        applied
    no answer in time, 57014, 55P03, 25P03     Unavailable.timeout          no; unknown once COMMIT was sent
    connection lost, 08…, 57P…                 Unavailable.away             no; unknown once COMMIT was sent
    40001, 40P01: serialization, deadlock      Unavailable.serialization    no
    40003: a node was lost under a commit      Unavailable.away             unknown; no for reads
    26000, 42P05: prepared in another session  Unavailable.serialization    no
    53100: disk full                           Unavailable.no_space         no
    53…: connections, memory                   Unavailable.overloaded       no
    58…: the server's own I/O                  Unavailable.log_failed       no; unknown once COMMIT was sent
    25006: read only                           Unavailable.away             no
    28…, 42501, 3D000: user, rights, database  Unavailable.away             no
    XX001, XX002: corrupted                    Corrupt.digest               no
    23514: constraint log_replaced             SchemaMismatch.log_replaced  no
    23…: constraint                            Corrupt.conflict             no
    42P01, 42703, 3F000: table, column, schema SchemaMismatch.version       no
    42P07: somebody else's table               SchemaMismatch.foreign_file  no

Anything else is a bug of ours and passes as it is. No text of an error has a password in it.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import psycopg

from strandline.backends.postgres.round_trips import OTHER_SESSION, TimedOut
from strandline.errors import Applied, Corrupt, SchemaMismatch, StrandlineError, Unavailable
from strandline.log.refusals import replaced

Doing = Literal["connect", "read", "write", "commit"]

RETRY: Final = "call again"
RETRY_UNKNOWN: Final = "retry with an append id, or read the head, to learn the outcome"
_TIMEOUT: Final = {"57014", "55P03", "25P03", "25P04"}
_ENDED_BEFORE_COMMIT: Final = {"25P03", "25P04", "55P03"}
_SERIALIZATION: Final = {"40001", "40P01"}
_NOBODY_KNOWS: Final = "40003"
"""The state with which a cluster answers if it lost a node during a commit."""
_DENIED: Final = {"28000", "28P01", "42501"}
_SCHEMA: Final = {"42P01", "42703", "3F000"}
_HINTS: Final = {
    "28000": "check the user of the URL, and the server's pg_hba.conf; does that ask for TLS? give "
    "?sslmode=verify-full&sslrootcert=FILE",
    "28P01": "check user and password of the URL",
    "42501": "grant this user the right, or name a schema that it owns with ?schema=",
    "3D000": "create the database, or give the URL of one that is there",
    "25006": "this server is read only or a standby: give the URL of the primary",
}


def outcome_of(
    error: psycopg.Error, where: str, doing: Doing, why: str = "", *, secret: str | None = None
) -> StrandlineError | None:
    """Return our error for an error of the driver; None for one that only a bug can cause."""
    state = error.sqlstate or ""
    message = f"{where}: {why or _text(error, secret)}"
    facts: dict[str, Any] = {"sqlstate": state} if state else {}
    applied: Applied = "unknown" if doing == "commit" and state not in _ENDED_BEFORE_COMMIT else "no"
    if state == _NOBODY_KNOWS and doing != "read":
        applied = "unknown"  # this includes a statement that commits by itself
    retry = RETRY_UNKNOWN if applied == "unknown" else RETRY
    if isinstance(error, TimedOut) or state in _TIMEOUT:
        return Unavailable(message, code="timeout", hint=retry, applied=applied, **facts)
    if state in _SERIALIZATION or isinstance(error, OTHER_SESSION):
        return Unavailable(message, code="serialization", hint=RETRY, **facts)
    if state == "53100":
        return Unavailable(message, code="no_space", hint="free some space; no restart needed", **facts)
    if state.startswith("53"):
        return Unavailable(
            message, code="overloaded", hint="use fewer connections, or raise the server's limit", **facts
        )
    if state.startswith("58"):
        hint = f"check the server's disk and its log; {retry}"
        return Unavailable(message, code="log_failed", hint=hint, applied=applied, **facts)
    if state in _DENIED:
        facts["denied"] = True
    if state in _HINTS:
        return Unavailable(message, code="away", hint=_HINTS[state], **facts)
    if state in {"XX001", "XX002"}:
        return Corrupt(message, code="digest", hint="check the server's disk, and restore a backup", **facts)
    if error.diag.constraint_name == "log_replaced":
        return replaced(where)
    if state.startswith("23"):
        return Corrupt(
            message,
            code="conflict",
            hint="nothing was written; if it stays so, restore log and store from one backup",
            **facts,
        )
    if state in _SCHEMA:
        hint = "the schema was changed under this process: connect again"
        return SchemaMismatch(message, code="version", hint=hint, **facts)
    if state == "42P07":
        return SchemaMismatch(message, code="foreign_file", hint="name another schema with ?schema=", **facts)
    if state.startswith(("08", "57P", _NOBODY_KNOWS)) or (not state and isinstance(error, psycopg.OperationalError)):
        hint = f"check that the server runs and can be reached; {retry}"
        return Unavailable(message, code="away", hint=hint, applied=applied, **facts)
    return None


def lost(error: psycopg.Error) -> bool:
    """Return whether the session is lost or another one answers; then other connections of its age may be affected,
    too."""
    state = error.sqlstate or ""
    if isinstance(error, OTHER_SESSION) or state.startswith(("08", "57P")):
        return True
    return not state and isinstance(error, psycopg.OperationalError)


def _text(error: psycopg.Error, secret: str | None) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text.replace(secret, "***") if secret else text
