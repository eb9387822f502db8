"""Several statements and their answers in one round trip: libpq's pipeline, without the machinery of a cursor.

An append waits for the server twice, however many statements it has; through cursors the same takes twice the time.
Either all statements before an error were executed and none after it, or the connection is lost and nobody knows.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import psycopg
from psycopg import errors
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGresult

from strandline.postgres.arrays import Binary

_READ: Final = select.POLLIN | select.POLLPRI | select.POLLHUP | select.POLLERR
_DONE: Final = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY)


class Lost(psycopg.OperationalError):
    """The connection broke: what was sent may or may not have been executed."""


class TimedOut(Lost):
    """The server did not answer in time. The connection must not be used any more."""


class Sent(NamedTuple):
    """A statement with its parameters, all in binary form."""

    statement: bytes
    parameters: Sequence[Binary] = ()


class Connection(psycopg.Connection[tuple[object, ...]]):
    """A connection whose every wait ends: `TimedOut` after `timeout_s`."""

    timeout_s: float = 10.0

    def wait(self, gen, interval=0.1, timeout=None):  # type: ignore[no-untyped-def]
        """As in psycopg, but never for ever."""
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
    def quiet(self) -> bool:
        """Whether the server said nothing since the last answer: what it says unasked is that it ends."""
        try:
            poll = select.poll()
            poll.register(self.pgconn.socket, _READ)
        except psycopg.OperationalError:
            return False
        return not poll.poll(0)

    def give_up(self) -> None:
        """Ask the server to stop what it does, and close."""
        with suppress(psycopg.Error):  # a server that cannot be told notices when it answers
            self.cancel_safe(timeout=1.0)
        self.close()

    def exchange(self, statements: Sequence[Sent]) -> list[PGresult]:
        """Send all, then wait for all; the answer of each, in binary form.

        An error of the server is raised as psycopg does; `Lost` if the connection broke.
        """
        pgconn = self.pgconn
        try:
            pgconn.enter_pipeline_mode()
            for statement, parameters in statements:
                pgconn.send_query_params(
                    statement,
                    parameters,
                    [parameter.oid for parameter in parameters],
                    [Format.BINARY] * len(parameters),
                    Format.BINARY,
                )
            pgconn.pipeline_sync()
            answers = self._answers()
            pgconn.exit_pipeline_mode()
        except Lost:
            raise
        except psycopg.OperationalError as error:
            self.close()
            raise Lost(str(error)) from None
        for answer in answers:
            if answer.status not in _DONE:
                raise errors.error_from_result(answer)
        return answers

    def _answers(self) -> list[PGresult]:
        pgconn = self.pgconn
        deadline = time.monotonic() + self.timeout_s
        poll = select.poll()
        poll.register(pgconn.socket, _READ)
        if pgconn.flush():
            # The server may want to be read before it reads on.
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
            elif answer.status == ExecStatus.PIPELINE_SYNC:
                return answers
            else:
                answers.append(answer)

    def _until(self, poll: select.poll, deadline: float) -> None:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not poll.poll(left_s * 1000):
            self.give_up()
            raise TimedOut(f"no answer within {self.timeout_s:g} s")
