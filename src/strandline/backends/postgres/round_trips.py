"""Several statements and their answers in one round trip: libpq's pipeline, without the machinery of a cursor.

An append waits for the server twice, however many statements it has; through cursors the same takes twice the time.
Either all statements before an error were executed and none after it, or the connection is lost and the outcome is
unknown.

The server takes longer to parse and plan an append, or a look at a key, than to execute it. So statements are prepared,
unless there is a pooler: behind a pooler each transaction may reach another session. Plans rest on how large tables
are, so they are made anew every second.

A process that is stopped must not keep its locks. A server ends a transaction that is idle for too long, but none of
its time-outs counts in the middle of a COPY, or between the messages of one exchange. So within a transaction a request
either leaves this process in one system call (`AT_ONCE_BYTES`), or its first message is the large one, and while the
server waits for that message, its client counts as idle (`send`).
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import errors
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus
from psycopg.pq.abc import PGconn, PGresult

from strandline.backends.postgres.binary import Binary
from strandline.sql.statements import statement

PLANS_S: Final = 1.0
AT_ONCE_BYTES: Final = 16_000
"""How many bytes one system call sends, also under TLS, whose records have 16 KiB."""
THEIRS_MAX: Final = 200
"""How many statements of callers are prepared in a session at most."""
MESSAGE_BYTES: Final = 100
"""The bytes that a message has beside a statement and its parameters."""
_READ: Final = select.POLLIN | select.POLLPRI | select.POLLHUP | select.POLLERR
OTHER_SESSION: Final = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)
"""Errors that show a pooler: the session that answers lacks a prepared statement, or has it already."""
_DONE: Final = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY)


class Lost(psycopg.OperationalError):
    """The connection broke: what was sent may or may not have been executed."""


class TimedOut(Lost):
    """The server did not answer in time. The connection must not be used any more."""


class BinaryStatement(NamedTuple):
    """A statement with its parameters, all in binary form."""

    text: bytes
    parameters: Sequence[Binary | None] = ()
    often: bool = True
    """Whether the statement is worth preparing."""

    @property
    def size(self) -> int:
        """About how many bytes are sent."""
        return MESSAGE_BYTES + len(self.text) + sum(len(value) + 4 for value in self.parameters if value is not None)


DISCARD_PLANS: Final = BinaryStatement(b"DISCARD PLANS", often=False)


class Connection(psycopg.Connection[tuple[object, ...]]):
    """A connection whose every wait ends: `TimedOut` after `timeout_s`."""

    timeout_s: float = 10.0
    _direct: bool | None = None
    _plans_until = 0.0

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._names: dict[bytes, bytes] = {}
        self._theirs: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        """Statements that callers send themselves, with the types of their values. A statement that came only once has
        no name."""
        self.transformer = Transformer(self)

    def wait(self, gen, interval=0.1, timeout=None):  # type: ignore[no-untyped-def]
        """Wait as psycopg does, but never for ever."""
        started = time.monotonic()
        limit = self.timeout_s if timeout is None else timeout
        try:
            return super().wait(gen, interval, limit)
        except psycopg.OperationalError as error:
            if error.sqlstate is None and time.monotonic() - started >= limit:
                self.give_up()
                raise TimedOut(f"no answer within {limit:g} s") from None
            raise

    @property
    def raw(self) -> Connection:
        """The connection that other parts join."""
        return self

    @property
    def quiet(self) -> bool:
        """Return whether the server sent nothing since the last answer. A message without a request says that the
        session ends."""
        try:
            poll = select.poll()
            poll.register(self.pgconn.socket, _READ)
        except psycopg.OperationalError:
            return False
        return not poll.poll(0)

    def is_direct(self) -> bool:
        """Return whether the session that answers is the one that was opened. A pooler gives a session number of its
        own."""
        if self._direct is None:
            ask = statement("strandline.backends.postgres", "session").encode()
            try:
                (answer,) = self._round_trip(lambda pgconn: pgconn.send_query_params(ask, None))
                self._direct = answer.get_value(0, 0) == b"%d" % self.pgconn.backend_pid
            except psycopg.ProgrammingError:  # a server that does not number its sessions
                self._direct = False
        return self._direct

    def give_up(self) -> None:
        """Ask the server to stop what it does, and close."""
        with suppress(psycopg.Error):  # a server that this request does not reach notices when it answers
            self.cancel_safe(timeout=1.0)
        self.close()

    def cut(self) -> None:
        """End the session from another thread, whatever the session does. The thread that uses it gets an error."""
        with suppress(psycopg.Error):
            self.cancel_safe(timeout=1.0)
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self.pgconn.socket)) as same:
            same.shutdown(socket.SHUT_RDWR)  # its thread alone may close it

    def take_long(self, for_s: float) -> None:
        """Let statements take so long, until the connection is given back."""
        self.timeout_s = max(self.timeout_s, for_s)

    def exchange(self, statements: Sequence[BinaryStatement]) -> list[PGresult]:
        """Send all, then wait for all; the answer of each, in binary form.

        An error of the server is raised as psycopg does; `Lost` if the connection broke.
        """
        return self.start(statements)()

    def start(self, statements: Sequence[BinaryStatement]) -> Callable[[], list[PGresult]]:
        """Send all statements, and return a call that waits for the answers, before anything else is sent."""
        discard: int | None = None
        try:
            if self.is_direct():
                self._prepare(statements)
                if self.plans_are_old():
                    # BEGIN, which is never prepared, must stay the first of its transaction.
                    first = (number for number, sent in enumerate(statements) if sent.often)
                    discard = next(first, len(statements))
                    statements = (*statements[:discard], DISCARD_PLANS, *statements[discard:])
            self._begin(partial(self._send, statements))
        except OTHER_SESSION:
            self.meet_pooler()
            raise

        def answers() -> list[PGresult]:
            try:
                found = self._end()
            except OTHER_SESSION:
                self.meet_pooler()
                raise
            if discard is not None:
                del found[discard]
            return found

        return answers

    def plans_are_old(self) -> bool:
        """Return whether to discard plans now: once in a while."""
        if (now := time.monotonic()) < self._plans_until:
            return False
        self._plans_until = now + PLANS_S
        return True

    @property
    def has_prepared_theirs(self) -> bool:
        """Return whether any statement of a caller's is prepared."""
        return any(self._theirs.values())

    def name_for(self, text: bytes, types: tuple[int, ...], *, at_once: bool) -> tuple[bytes | None, bool]:
        """Return the name under which a caller's statement is prepared, and whether it is still to be prepared
        (`was_prepared`). None: it is not worth preparing. `at_once`: it is worth preparing at its first use. Nothing is
        prepared here, because a table may be locked, and only the caller's transaction has a time-out for that.
        """
        known = (text, types)
        name = self._theirs.get(known)
        if name:
            return name, False
        if name is None and not at_once:
            if len(self._theirs) < THEIRS_MAX:
                self._theirs[known] = b""
            return None, False
        return (name_of(repr(known).encode()), True) if self.is_direct() else (None, False)

    def was_prepared(self, text: bytes, types: tuple[int, ...], name: bytes) -> None:
        """Note that the server has prepared a statement of the caller's."""
        self._theirs[text, types] = name

    def send(self, statement: BinaryStatement) -> PGresult:
        """Execute one statement of a transaction that may hold locks, however large its parameters are."""
        text, parameters, often = statement
        formats = [Format.BINARY] * len(parameters)
        if often and text not in self._names and self.is_direct():
            self._prepare((statement,))
        try:
            if often and text in self._names:
                self.pgconn.send_query_prepared(self._names[text], parameters, formats, Format.BINARY)
            elif statement.size <= AT_ONCE_BYTES:
                self.pgconn.send_query_params(text, parameters, _types(parameters), formats, Format.BINARY)
            else:
                self._round_trip(lambda pgconn: pgconn.send_prepare(b"", text, _types(parameters)))
                self.pgconn.send_query_prepared(b"", parameters, formats, Format.BINARY)
        except psycopg.OperationalError as error:
            raise self._lost(error) from None
        return self._end()[-1]

    def send_each(self, statements: Iterable[BinaryStatement]) -> None:
        """Execute statements one after the other, in as few round trips as that allows."""
        group: list[BinaryStatement] = []
        size = 0
        for sent in statements:
            if group and size + sent.size > AT_ONCE_BYTES:
                self._round_trip(partial(self._send, group))
                group, size = [], 0
            if sent.size > AT_ONCE_BYTES:
                self.send(sent)
            else:
                group.append(sent)
                size += sent.size
        if group:
            self._round_trip(partial(self._send, group))

    def ask(self, statement: BinaryStatement) -> list[Any]:
        """Return the rows that one statement gives, as psycopg makes them."""
        return self.start_ask(statement)()

    def start_ask(self, statement: BinaryStatement) -> Callable[[], list[Any]]:
        """Send a statement, and return a call that waits for its rows."""
        answers = self.start((statement,))
        return lambda: self.rows_of(answers()[0])

    def rows_of(self, answer: PGresult) -> list[Any]:
        """Return the rows of an answer, as psycopg makes them."""
        self.transformer.set_pgresult(answer)
        return self.transformer.load_rows(0, answer.ntuples, tuple)

    def _send(self, statements: Sequence[BinaryStatement], pgconn: PGconn) -> None:
        for text, parameters, _ in statements:
            formats = [Format.BINARY] * len(parameters)
            name = self._names.get(text)
            if name is None:
                pgconn.send_query_params(text, parameters, _types(parameters), formats, Format.BINARY)
            else:
                pgconn.send_query_prepared(name, parameters, formats, Format.BINARY)

    def _prepare(self, statements: Sequence[BinaryStatement]) -> None:
        """Prepare those that are not prepared yet."""
        new = {text: parameters for text, parameters, often in statements if often and text not in self._names}
        if not new:
            return

        def send(pgconn: PGconn) -> None:
            for text, parameters in new.items():
                pgconn.send_prepare(name_of(text), text, _types(parameters))

        self._round_trip(send)
        self._names.update((text, name_of(text)) for text in new)

    def _round_trip(self, send: Callable[[PGconn], None]) -> list[PGresult]:
        self._begin(send)
        return self._end()

    def answers_to(self, send: Callable[[PGconn], None]) -> list[PGresult]:
        """Return the server's answers of one round trip: errors, too, and a mark for each statement left out."""
        self._begin(send)
        return self._all()

    def _all(self) -> list[PGresult]:
        try:
            answers = self._answers()
            self.pgconn.exit_pipeline_mode()
        except psycopg.OperationalError as error:
            raise self._lost(error) from None
        return answers

    def _begin(self, send: Callable[[PGconn], None]) -> None:
        try:
            self.pgconn.enter_pipeline_mode()
            send(self.pgconn)
            self.pgconn.pipeline_sync()
        except psycopg.OperationalError as error:
            raise self._lost(error) from None

    def _end(self) -> list[PGresult]:
        for answer in (answers := self._all()):
            if answer.status not in _DONE:
                raise errors.error_from_result(answer)
        return answers

    def meet_pooler(self) -> None:
        """Prepare nothing more: there is a pooler in between, although the session's number did not show it."""
        self._direct = False
        self._names.clear()
        self._theirs.clear()

    def _lost(self, error: psycopg.OperationalError) -> Lost:
        """Recognise a broken connection that libpq reports only in words."""
        if isinstance(error, Lost):
            return error
        self.close()
        return Lost(str(error))

    def _answers(self) -> list[PGresult]:
        pgconn = self.pgconn
        deadline = time.monotonic() + self.timeout_s
        poll = select.poll()
        poll.register(pgconn.socket, _READ)
        if pgconn.flush():
            # The server may need its output read before it reads on.
            poll.modify(pgconn.socket, _READ | select.POLLOUT)
            while pgconn.flush():
                self._until(poll, deadline)
                pgconn.consume_input()
            poll.modify(pgconn.socket, _READ)
        answers: list[PGresult] = []
        while True:
            while pgconn.is_busy():
                self._until(poll, deadline)
                pgconn.consume_input()
            answer = pgconn.get_result()
            if answer is None:  # the end of one statement's answers, or of the connection
                if pgconn.status == ConnStatus.BAD:
                    raise psycopg.OperationalError(pgconn.get_error_message())
                if pgconn.pipeline_status == PipelineStatus.OFF:
                    return answers
            elif answer.status == ExecStatus.PIPELINE_SYNC:
                return answers
            else:
                answers.append(answer)

    def _until(self, poll: select.poll, deadline: float) -> None:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not poll.poll(left_s * 1000):
            self.give_up()
            raise TimedOut(f"no answer within {self.timeout_s:g} s")


def name_of(text: bytes) -> bytes:
    """Return the name under which a statement is prepared. In every session the name stands for this statement
    alone."""
    return b"strandline_" + blake2b(text, digest_size=16).hexdigest().encode()


def _types(parameters: Sequence[Binary | None]) -> list[int]:
    return [0 if parameter is None else parameter.oid for parameter in parameters]
