"""Statements of users, and ours beside them, in few round trips; answers come as text.

Values of users are converted by psycopg; our own values need no conversion. Our statements, and repeated ones of users,
are prepared unless a pooler stands in between. A process that is stopped must not keep its locks, but the server ends
only idle transactions (`round_trips`). So all messages within a transaction leave this process in one system call, or a
large message goes first and alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from psycopg import DataError, errors
from psycopg._queries import PostgresRawQuery
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult

from strandline.backends.postgres.round_trips import AT_ONCE_BYTES, MESSAGE_BYTES, Connection
from strandline.group.statements.binding import Bound

Row = tuple[Any, ...]
_TEXT, _BINARY = Format.TEXT, Format.BINARY
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class Answer:
    """The server's answer to one statement."""

    __slots__ = ("_connection", "_result")

    def __init__(self, connection: Connection, result: PGresult) -> None:
        self._connection = connection
        self._result = result

    @property
    def status(self) -> str:
        return (self._result.command_status or b"").decode()

    @property
    def affected(self) -> int:
        return self._result.command_tuples or 0

    def check(self) -> Answer:
        """Raise what the server said, as psycopg does."""
        if self._result.status not in _DONE:
            raise errors.error_from_result(self._result)
        return self

    def rows(self) -> list[Row]:
        return self._connection.rows_of(self._result)

    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple((self._result.fname(n) or b"").decode() for n in range(self._result.nfields))


class Unsent(Answer):
    """The answer in place of a statement that was not sent, because one of its values cannot be converted."""

    __slots__ = ("_wrong",)

    def __init__(self, wrong: DataError) -> None:
        self._wrong = wrong

    def check(self) -> Answer:
        raise self._wrong


class Ours(NamedTuple):
    """A statement of ours. With values it is prepared: the server knows of what types they are."""

    text: bytes
    values: tuple[str | int | bytes, ...] = ()


class _Sent(NamedTuple):
    text: bytes
    values: Sequence[Any]
    types: tuple[int, ...]
    formats: Sequence[Format]
    size: int
    name: bytes | None = None
    """The name under which it is prepared."""
    new: bool = False
    """Whether it is prepared now, within the transaction, which has a time-out."""


def answers(connection: Connection, asked: Sequence[Bound | Ours]) -> list[Answer]:
    """Execute statements in order; after one that fails the others are left out. Errors are in the answers."""
    ready: list[_Sent] = []
    unsent: list[Answer] = []
    prepared = set[bytes | None]()
    for one in asked:
        try:
            sent = _sent(connection, one)
        except DataError as error:
            unsent.append(Unsent(error))
            break
        ready.append(sent._replace(new=sent.new and sent.name not in prepared))
        prepared.add(sent.name)
    found: list[PGresult] = []
    group: list[_Sent] = []
    room = AT_ONCE_BYTES
    for sent in ready:
        size = sent.size
        if size > room:
            found += _small(connection, group)
            group, room = [], AT_ONCE_BYTES
        if size > AT_ONCE_BYTES:
            found += _large(connection, sent)
        else:
            group.append(sent)
            room -= size
        if found and found[-1].status not in _DONE:
            break
    else:
        found += _small(connection, group)
    made = [Answer(connection, result) for result in found]
    return made if found and found[-1].status not in _DONE else made + unsent


def converted(connection: Connection, one: Bound) -> PostgresRawQuery:
    """Return a statement with its values in the forms that are sent; `DataError` for a value that has none."""
    query = PostgresRawQuery(connection.transformer)
    try:
        query.convert(one.text, one.values)
    except (TypeError, ValueError, ArithmeticError) as error:  # of what is in a list: psycopg lets these through
        raise DataError(str(error)) from error
    return query


def _sent(connection: Connection, one: Bound | Ours) -> _Sent:
    if isinstance(one, Ours):
        text, given = one
        if not given:
            return _Sent(text, (), (), (), MESSAGE_BYTES + len(text))
        values: Sequence[Any] = [value if type(value) is bytes else str(value).encode() for value in given]
        formats: Sequence[Format] = [_BINARY if type(value) is bytes else _TEXT for value in given]
        types = (0,) * len(given)
    else:
        query = converted(connection, one)
        text, values, formats, types = query.query, query.params or (), query.formats or (), tuple(query.types)
    size = MESSAGE_BYTES + len(text) + sum([4 + len(value) for value in values if value is not None])
    if size > AT_ONCE_BYTES:
        return _Sent(text, values, types, formats, size)
    name = connection.name_for(text, types, at_once=isinstance(one, Ours))
    return _Sent(text, values, types, formats, size, *name)


def _small(connection: Connection, group: Sequence[_Sent]) -> list[PGresult]:
    def send(pgconn: PGconn) -> None:
        for text, values, types, formats, _, name, new in group:
            if name is None:
                pgconn.send_query_params(text, values, types, formats, _TEXT)
                continue
            if new:
                pgconn.send_prepare(name, text, types)
            pgconn.send_query_prepared(name, values, formats, _TEXT)

    found = iter(connection.answers_to(send) if group else ())
    return [_executed(connection, sent, answer, found) for sent, answer in zip(group, found, strict=False)]


def _executed(connection: Connection, sent: _Sent, answer: PGresult, more: Iterator[PGresult]) -> PGresult:
    """Return the answer to a statement. `answer` is the next one, which may be that to its preparation."""
    if not sent.new or sent.name is None:
        return answer
    executed = next(more)
    if answer.status not in _DONE:
        return answer
    connection.was_prepared(sent.text, sent.types, sent.name)
    return executed


def _large(connection: Connection, sent: _Sent) -> list[PGresult]:
    prepared = connection.answers_to(lambda pgconn: pgconn.send_prepare(b"", sent.text, sent.types))
    if prepared[-1].status not in _DONE:
        return prepared
    return connection.answers_to(lambda pgconn: pgconn.send_query_prepared(b"", sent.values, sent.formats, Format.TEXT))
