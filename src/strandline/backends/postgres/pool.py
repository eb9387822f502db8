"""A few connections to one database, opened when they are needed and kept while they are good.

No settings and no locks outlast a transaction, and statements are prepared only where no pooler is seen
(`round_trips`). So any statement may come over any of them, and a pooler in transaction mode may stand between them
and the server.
"""

from __future__ import annotations

import logging
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from threading import Condition, RLock
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from strandline import forks
from strandline.backends.postgres.binary import register
from strandline.backends.postgres.driver_errors import Doing, lost, outcome_of
from strandline.backends.postgres.round_trips import Connection
from strandline.errors import (
    StrandlineError,
    Unavailable,
    closed,
    meaning,
    no_answer,
    unreachable,
    unusable_files,
    used_after_fork,
)
from strandline.settings import Settings
from strandline.urls import Url, is_loopback

CONNECTIONS_MAX: Final = 10
CONNECT_LEAST_S: Final = 2
KEPT_ALIVE: Final = {"keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}

_logger: Final = logging.getLogger(__name__)


class Pool:
    """Connections of one process. Safe to share between threads; refused after a fork."""

    def __init__(self, url: Url, settings: Settings, connections_max: int = CONNECTIONS_MAX) -> None:
        self.where = str(url)
        self._connections_max = connections_max
        self._secret = url.password
        self._timeout_s = settings.append_timeout_s
        self._arguments = _arguments(url, settings)
        self._generation = forks.generation
        self._lock = RLock()  # Condition's own way in is Python, and could be interrupted half-way
        self._free = Condition(self._lock)
        self._idle: list[Connection] = []
        self._count = 0
        self._closed = False
        self._lost = False  # a connection was lost, and none was made since

    def take(self) -> tuple[Connection, bool]:
        """Return a connection for the caller alone, and whether it was used before."""
        self.check()
        deadline = time.monotonic() + self._timeout_s
        with self._lock:
            while not self._idle and self._count >= self._connections_max:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not self._free.wait(left_s):
                    raise Unavailable(
                        f"{self.where}: all {self._connections_max} connections of this process are busy",
                        code="timeout",
                        hint="call again; use fewer threads",
                    )
            while self._idle:
                quiet = self._idle[-1].quiet  # a caller that is interrupted here has not taken the connection yet
                connection = self._idle.pop()
                if quiet:
                    connection.timeout_s = self._timeout_s
                    return connection, True
                connection.close()
                self._count -= 1
                self._note_lost("the server closed it")
            self._count += 1
        try:
            return self.connect(), False
        except BaseException:
            self._gone()
            raise

    def give_back(self, connection: Connection) -> None:
        """Take a connection back. A connection that is in a transaction or broken is closed."""
        if not connection.closed and connection.pgconn.transaction_status == TransactionStatus.IDLE:
            with self._lock:
                if not self._closed:
                    self._idle.append(connection)
                    self._free.notify()
                    return
        with suppress(psycopg.Error):
            connection.close()
        self._gone()

    def undo(self, connection: Connection) -> None:
        """Leave the transaction that a connection is in, if it still can be left."""
        if connection.closed or connection.pgconn.transaction_status == TransactionStatus.IDLE:
            return
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            with suppress(psycopg.Error):
                connection.close()

    def translated(self, error: psycopg.Error, doing: Doing) -> Exception:
        """Return our error for an error of the driver. After a lost connection, idle connections are not trusted
        either."""
        outcome = outcome_of(error, self.where, doing, secret=self._secret)
        if lost(error):
            self._close_idle()
            self._note_lost(outcome or type(error).__name__)
        return outcome or error

    def _note_lost(self, why: object) -> None:
        self._lost = True
        _logger.info("%s: a connection was lost: %s", self.where, why)

    def check(self) -> None:
        """Refuse a call after `close`, or in a forked child."""
        if forks.generation != self._generation:
            raise used_after_fork(self.where)
        if self._closed:
            raise closed(self.where)

    def close(self) -> None:
        """Close idle connections now, and others when they are given back. A second call does nothing."""
        if forks.generation != self._generation:
            return  # the connections are the parent's
        with self._lock:
            self._closed = True
        self._close_idle()

    def connect(self) -> Connection:
        """Return a new connection, which the caller closes or gives to the pool."""
        try:
            connection = Connection.connect(**self._arguments)
        except psycopg.Error as error:
            raise self._translated_connect(error) from None
        connection.timeout_s = self._timeout_s
        register(connection)
        if self._lost:
            self._lost = False
            _logger.info("%s: connected again", self.where)
        return connection

    def _translated_connect(self, error: psycopg.Error) -> StrandlineError | psycopg.Error:
        # libpq says only in words why a server refused a login, or that there is no server.
        text = str(error)
        if error.sqlstate is None:
            if found := re.search(_FILE, text):
                return unusable_files({_FILES[found[1]]: found[2]}, found[0])
            if told := meaning(text, _NOT_THERE):
                why, hint = told
                return unreachable("PostgreSQL", self.where, why or no_answer(self._arguments["connect_timeout"]), hint)
            if told := meaning(text, _REFUSED):
                why, error.sqlstate = told
                return outcome_of(error, self.where, "connect", f"PostgreSQL refuses the connection: {why}") or error
        return outcome_of(error, self.where, "connect", secret=self._secret) or error

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(psycopg.Error):
                connection.close()
            self._gone()

    def _gone(self) -> None:
        with self._lock:
            self._count -= 1
            self._free.notify()


_FILE: Final = r'(root certificate|certificate|private key) file "(.*?)".*'
_FILES: Final = {"root certificate": "sslrootcert", "certificate": "sslcert", "private key": "sslkey"}
"""The names that libpq gives the files of TLS, and the parameters that name these files."""
_NOT_THERE: Final = [
    (
        "does not support SSL",
        "it does not speak TLS",
        "switch ssl on in its postgresql.conf; ?sslmode=disable needs none, where nobody else can listen",
    ),
    (
        "certificate verify failed",
        "its certificate cannot be verified",
        "give ?sslrootcert=FILE with the authority that signed it",
    ),
    (
        'certificate for (".*) does not match host name (".*")',
        r"its certificate is for \1, not for \2",
        "give the host by a name that its certificate has",
    ),
    (
        "valid client certificate|alert .*(certificate|unknown ca)",
        "it takes nobody without a certificate that it trusts",
        "give ?sslcert=FILE&sslkey=FILE, signed by an authority that the server trusts",
    ),
    (r'invalid (\w+) value: "(.*)"', r"there is no \1 \2", r"mend ?\1= in the URL"),
    ("Connection refused", "the connection is refused", ""),
    ("resolve host|translate host name", "no such host", ""),
    ("No such file or directory", "no such socket", ""),
    ("invalid response to SSL|unexpected message", "what answers there is not PostgreSQL", ""),
    ("closed the connection", "it closes every connection", ""),
    ("timeout expired", "", ""),
]
"""What libpq says of a server, what that means, and what to do if it is not to start or find it."""
_ROOTS: Final = Path("~/.postgresql/root.crt")
"""The file in which libpq looks for certificate authorities."""
_REFUSED: Final = [
    (
        'password authentication failed for user (".*?")',
        r"the password of \1 is wrong, or there is no such user",
        "28P01",
    ),
    ("no password supplied", "it asks for a password", "28P01"),
    ('role (".*?") does not exist', r"there is no user \1", "28000"),
    ('role (".*?") is not permitted to log in', r"user \1 may not log in", "28000"),
    ("pg_hba.conf .*no encryption", "its pg_hba.conf does not let this user in from here without TLS", "28000"),
    ("no pg_hba.conf entry|pg_hba.conf rejects", "its pg_hba.conf does not let this user in from here", "28000"),
    ("authentication failed", "it could not authenticate this user", "28000"),
    ('database (".*?") does not exist', r"there is no database \1", "3D000"),
    ("too many clients|remaining connection slots", "all connections that it allows are in use", "53300"),
]
"""What libpq says of a server that lets nobody in, what that means, and the state that says what to do."""


def _arguments(url: Url, settings: Settings) -> dict[str, Any]:
    parameters = {name: value for name, value in url.parameters.items() if name != "schema"}
    if len(url.hosts) > 1:
        parameters.setdefault("target_session_attrs", "read-write")  # of several servers the one that takes writes
    if url.hosts:
        parameters["host"] = ",".join(host.name for host in url.hosts)
        parameters["port"] = ",".join(str(host.port or "") for host in url.hosts)
    parameters |= _tls(url)
    named = {"dbname": url.name, "user": url.user, "password": url.password or None}
    timeout_s = max(CONNECT_LEAST_S, int(settings.append_timeout_s))
    return {
        "application_name": "strandline",
        **parameters,
        **{name: value for name, value in named.items() if value is not None},
        **KEPT_ALIVE,
        "client_encoding": "utf8",
        "connect_timeout": timeout_s,
        "tcp_user_timeout": timeout_s * 1000,
        "autocommit": True,
        "prepare_threshold": None,
        "cursor_factory": psycopg.RawCursor,
    }


def _tls(url: Url) -> dict[str, str]:
    """Return the TLS parameters: for another machine, TLS with names checked, unless the URL or libpq's environment
    decides."""
    names = [host.name for host in url.hosts] or url.parameters["host"].split(",")
    here = all(name.startswith(("/", "@")) or is_loopback(name) for name in names)  # a path is that of a socket
    if here or "sslmode" in url.parameters or "PGSSLMODE" in os.environ:
        return {}
    if "sslrootcert" in url.parameters or "PGSSLROOTCERT" in os.environ or _ROOTS.expanduser().exists():
        return {"sslmode": "verify-full"}
    return {"sslmode": "verify-full", "sslrootcert": "system"}
