"""A part in one schema of a PostgreSQL database: reads of one statement each, and transactions.

What is committed is durable as far as the server says so (`checks`). One statement sees one moment. A connection that
broke while it was idle is replaced, and no caller notices; one that breaks in a call fails that call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg.pq.abc import PGresult

from strandline.backends.postgres import schema as schemas
from strandline.backends.postgres.binary import texts
from strandline.backends.postgres.checks import SETTINGS, ServerFacts, check_server
from strandline.backends.postgres.driver_errors import Doing, lost
from strandline.backends.postgres.joining import Sending, joined
from strandline.backends.postgres.notifications import Listener, PostgresWatch
from strandline.backends.postgres.pool import Pool
from strandline.backends.postgres.round_trips import BinaryStatement, Connection, TimedOut
from strandline.backends.postgres.schema import PostgresSchema
from strandline.errors import NO_JOURNAL, SchemaMismatch, Unavailable, invalid
from strandline.settings import Settings
from strandline.sql.api import DATABASE_ID, LONG_S, Dialect, Isolation, Part
from strandline.sql.statements import statement
from strandline.sql.steps import Description
from strandline.urls import Url

SCHEMA_DEFAULT: Final = "strandline"
SCHEMA_BYTES_MAX: Final = 63
SYSTEM_PREFIX: Final = "pg_"
BEGIN: Final = BinaryStatement(b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", often=False)
BEGINS: Final[Mapping[Isolation, BinaryStatement]] = {
    "read_committed": BEGIN,
    "repeatable_read": BinaryStatement(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE", often=False),
    "serializable": BinaryStatement(b"BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE", often=False),
}
BEGIN_READ: Final = BinaryStatement(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", often=False)
COMMIT: Final = BinaryStatement(b"COMMIT", often=False)
ROWS_AT_ONCE: Final = 1000
"""How many rows are sent with one statement, and how many bytes at most."""
BYTES_AT_ONCE: Final = 2**20
T = TypeVar("T")
Filling = Sequence[tuple[str, tuple[Any, ...]]]


def open_database(
    url: Url,
    part: Part,
    *,
    settings: Settings,
    fixed: Mapping[str, str] | None = None,
    clock: Callable[[], int] | None = None,
    filling: Filling = (),
    create: bool | None = None,
    advisory: bool = True,
) -> Database:
    """Open a part in a schema, or create it with its steps and what is `fixed` for ever.

    Nothing is created where the server is refused. `create` is `settings.schema == "create"` unless given; `filling`
    are statements of the part that creation ends with. Without `advisory` locks the row lock is used.
    """
    create = settings.schema == "create" if create is None else create and settings.schema == "create"
    pool = Pool(url, settings, part.connections)

    def opened(connection: Connection, server: ServerFacts, schema: PostgresSchema) -> Database:
        if not schemas.is_there(connection, schema) or not schemas.fixed_settings(connection, schema):
            if settings.schema == "create" and part.kind == "store":
                schemas.check_right_to_create(connection, schema)  # also checked where only the log is to be made first
            if not create:
                raise _no_schema(pool.where, schema)
            locks = advisory and server.advisory_locks
            schemas.create(connection, schema, fixed or {}, filling, advisory=locks)
        schemas.check(connection, schema)
        return Database(pool, schema, settings, schemas.fixed_settings(connection, schema), clock)

    try:
        return _first_connection(pool, url, part, settings, opened)
    except BaseException:
        pool.close()
        raise


def upgrade_database(url: Url, part: Part, *, settings: Settings) -> list[str]:
    """Do the missing steps of the schema; return their names. Only this changes a schema."""

    def upgraded(connection: Connection, server: ServerFacts, schema: PostgresSchema) -> list[str]:
        if not schemas.is_there(connection, schema):
            raise _no_schema(str(url), schema)
        return schemas.upgrade(connection, schema, advisory=server.advisory_locks)

    pool = Pool(url, settings)
    try:
        return _first_connection(pool, url, part, settings, upgraded)
    finally:
        pool.close()


def describe_database(url: Url, part: Part, *, settings: Settings) -> Description:
    """Describe a schema, also one that is older or newer than this program's. Changes nothing."""

    def described(connection: Connection, server: ServerFacts, schema: PostgresSchema) -> Description:
        if not schemas.is_there(connection, schema):
            raise _no_schema(str(url), schema)
        return schemas.describe(connection, schema)

    pool = Pool(url, settings)
    try:
        return _first_connection(pool, url, part, settings, described)
    finally:
        pool.close()


def roles_of(url: Url, part: Part, prefix: str) -> str:
    """Return the statements that make the roles of a journal and give them their rights on a part."""
    return PostgresSchema(schema_named(url), part).roles(prefix)


def _first_connection(
    pool: Pool, url: Url, part: Part, settings: Settings, work: Callable[[Connection, ServerFacts, PostgresSchema], T]
) -> T:
    """Open a first connection, and check that the server is safe."""
    connection, _ = pool.take()
    try:
        server, name = checked_server(connection, pool.where, url, settings)
        return work(connection, server, PostgresSchema(name, part, server.collates))
    except psycopg.Error as error:
        raise pool.translated(error, "write") from error
    finally:
        pool.undo(connection)
        pool.give_back(connection)


def checked_server(connection: Connection, where: str, url: Url, settings: Settings) -> tuple[ServerFacts, str]:
    """Return what a server says of itself, and the name of the URL's schema; `Unsupported` for one that is not safe."""
    server = server_facts(connection)
    check_server(server, where, accept_power_loss=settings.accept_power_loss)
    return server, schema_named(url)


def schema_named(url: Url) -> str:
    """The name of a URL's schema."""
    name = url.parameters.get("schema", SCHEMA_DEFAULT)
    if not 1 <= len(name.encode()) <= SCHEMA_BYTES_MAX:
        raise invalid("url_parameter", "schema", "not a name", allowed=f"1..{SCHEMA_BYTES_MAX} bytes", got=name)
    if name.startswith(SYSTEM_PREFIX):
        raise invalid("url_parameter", "schema", "the server's own", allowed=f"not {SYSTEM_PREFIX}*", got=name,
                      hint="name another schema with ?schema=")  # fmt: skip
    return name


class Database:
    """A part in an open schema (`sql.api.Database`). `fixed` is what its creation fixed."""

    dialect: Dialect = "postgres"

    def __init__(
        self,
        pool: Pool,
        schema: PostgresSchema,
        settings: Settings,
        fixed: dict[str, str],
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._clock = clock
        self.fixed: Mapping[str, str] = fixed
        self.schema = schema
        self._pool = pool
        self.idle_timeout = texts([str(_idle_ms(schema.part.kind, settings))])
        """For how long a transaction may stop and keep its locks (ms)."""
        self.listener = Listener(self)
        """Receives notifications for all watches and waiting callers."""
        self._first = [BinaryStatement(schema.server("idle_timeout").encode(), (self.idle_timeout,))]
        """The statements with which transactions begin."""
        if schema.part.prepared:
            self._first.append(BinaryStatement(schema.server("generic_plans").encode()))

    @property
    def where(self) -> str:
        """The URL, as it may be printed."""
        return self._pool.where

    def rows(self, name: str, values: Sequence[Any] = (), *, often: bool = False) -> list[Any]:
        """Return the rows of one statement, of one moment. `often`: prepared; it says the types of all its values."""
        sent = self.schema.bind(name, values, often=often)
        if often:
            return self._read(lambda connection: connection.ask(sent))
        return self._read(lambda connection: connection.rows_of(connection.send(sent)))

    def rows_each(self, name: str, many: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return the rows of a statement for each of these values; it is prepared, and has the types of all values."""
        sent = [self.schema.bind(name, values, often=True) for values in many]
        return self._read(lambda connection: [connection.rows_of(answer) for answer in connection.exchange(sent)])

    def many(self, name: str, rows: Sequence[Sequence[Any]], *first: Any) -> list[Any]:
        """Return the rows of a statement that takes an array for each column; it is prepared."""
        return self.rows(name, (*first, *zip(*rows, strict=True)), often=True) if rows else []

    def now_us(self) -> int:
        """Return the server's clock, unless another was given."""
        if self._clock is not None:
            self.check()
            return self._clock()
        sent = BinaryStatement(self.schema.server("now").encode())
        return int(self._read(lambda connection: connection.ask(sent))[0][0])

    @contextmanager
    def asking(self, name: str, *values: Any) -> Iterator[Callable[[], list[Any]]]:
        """Send a query now and wait for it later: call the result, once. It keeps a connection until then."""
        connection, _ = self._pool.take()
        with ExitStack() as held:
            held.callback(self.end, connection)
            held.push(lambda kind, *_: connection.close() if kind else None)  # the server's answer may be on its way

            def again() -> list[Any]:
                held.close()  # given back first: another thread that lost its connection may wait for the place
                return self.rows(name, values, often=True)

            def rows() -> list[Any]:
                try:
                    return answer()
                except psycopg.Error as error:
                    if _broke_idle(error):
                        return again()
                    raise self._pool.translated(error, "read") from error

            try:
                answer = connection.start_ask(self.bind(name, *values))
            except psycopg.Error:
                answer = again  # another connection may work, or say what is wrong
            yield rows

    def _read(self, read: Callable[[Connection], list[Any]]) -> list[Any]:
        while True:
            connection, reused = self._pool.take()
            try:
                found = read(connection)
            except psycopg.Error as error:
                if reused and _broke_idle(error):
                    continue  # idle connections may be as old
                raise self._pool.translated(error, "read") from error
            finally:
                self._pool.undo(connection)
                self._pool.give_back(connection)
            return found

    def execute(self, statement: BinaryStatement) -> PGresult:
        """Execute one statement that is a transaction of its own. It is never repeated: see `Transaction.commit`."""
        connection, _ = self._pool.take()
        try:
            (answer,) = connection.exchange((statement,))
        except psycopg.Error as error:
            raise self._pool.translated(error, "commit") from error
        except BaseException:
            connection.close()  # in the middle of an answer
            raise
        finally:
            self.end(connection)
        return answer

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Open a transaction that reads: all statements see one moment."""
        transaction = self._begin(BEGIN_READ, *self._first)
        try:
            yield transaction
        except psycopg.Error as error:
            raise self._pool.translated(error, "read") from error
        finally:
            transaction.undo()

    @contextmanager
    def join(self, tx: object) -> Iterator[Transaction]:
        """Open a transaction within the caller's own, on a connection of the caller's to this database."""
        self.check()
        try:
            with joined(tx, self.schema.own("database_id"), self.fixed[DATABASE_ID], self.where) as connection:
                yield Transaction(self, connection)
        except psycopg.Error as error:
            raise self._pool.translated(error, "write") from error

    @contextmanager
    def write(self, *, isolation: Isolation = "read_committed") -> Iterator[Transaction]:
        """Open a transaction: committed at the end, undone by any exception."""
        transaction = self._begin(BEGINS[isolation], *self._first)
        try:
            yield transaction
        except psycopg.Error as error:
            transaction.undo()
            raise self._pool.translated(error, "write") from error
        except BaseException:
            transaction.undo()
            raise
        transaction.commit()

    def begin(self, *first: BinaryStatement) -> Begun:
        """Begin a transaction with these statements, in one round trip; one of them sets the `idle_timeout`.

        `commit` or `undo` must follow.
        """
        return self._begin(BEGIN, *first)

    def _begin(self, *first: BinaryStatement) -> Begun:
        while True:
            connection, reused = self._pool.take()
            try:
                answers = connection.exchange(first)
            except psycopg.Error as error:
                self._pool.undo(connection)
                self._pool.give_back(connection)
                if reused and _broke_idle(error):
                    continue
                raise self._pool.translated(error, "write") from error
            except BaseException:
                connection.close()  # in the middle of an answer
                self._pool.give_back(connection)
                raise
            return Begun(self, connection, answers[1:])

    def bind(self, name: str, *values: Any) -> BinaryStatement:
        """Return a named statement of the part for `begin` or `commit`; it says the types of all its values."""
        return self.schema.bind(name, values, often=True)

    def end(self, connection: Connection) -> None:
        """Note that a transaction is over."""
        self._pool.undo(connection)
        self._pool.give_back(connection)

    def translated(self, error: psycopg.Error, doing: Doing) -> Exception:
        """Return our error for one of the driver's."""
        return self._pool.translated(error, doing)

    def watch(self, channel: str, *, interval_s: float = 0.05) -> PostgresWatch:
        """Return a watch that is woken by commits which notify the channel."""
        self.check()
        return PostgresWatch(self.listener, self.channel(channel), interval_s)

    def channel(self, name: str) -> str:
        """Return the name of a channel of the part, in a database that others share."""
        return f"strandline_{self.fixed[DATABASE_ID]}_{name}"

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection beside the shared ones, to the caller alone."""
        connection = self._pool.connect()
        try:
            yield connection
        finally:
            connection.close()

    def check(self) -> None:
        """Refuse a call after `close`, or in a forked child."""
        self._pool.check()

    def close(self) -> None:
        """Close all connections. A second call does nothing."""
        self.listener.close()
        self._pool.close()


class Transaction:
    """Statements of a part on one connection (`sql.api.Transaction`)."""

    dialect: Dialect = "postgres"

    def __init__(self, database: Database, connection: Sending) -> None:
        self._database = database
        self._sending = connection

    @property
    def raw(self) -> psycopg.Connection[Any]:
        return self._sending.raw

    def rows(self, name: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of a named statement, as tuples."""
        return self._sending.rows_of(self._sending.send(self._bind(name, values)))

    def execute(self, name: str, values: Sequence[Any] = ()) -> int:
        """Execute a named statement; how many rows it changed."""
        return self._sending.send(self._bind(name, values)).command_tuples or 0

    def each(self, name: str, many: Iterable[Sequence[Any]]) -> None:
        """Execute a named statement with each of these values."""
        self._sending.send_each(self._bind(name, values) for values in many)

    def many(self, name: str, rows: Sequence[Sequence[Any]], *first: Any) -> list[Any]:
        """Execute a statement that takes an array for each column; it is prepared, and has the types of all values."""
        found: list[Any] = []
        for part in _parts(rows):
            sent = self._database.schema.bind(name, (*first, *zip(*part, strict=True)), often=True)
            found += self._sending.rows_of(self._sending.send(sent))
        return found

    def take_long(self, for_s: float = LONG_S) -> None:
        """Let statements take so long from now on: all locks are held that others could keep us waiting for."""
        self._sending.take_long(for_s)

    def notify(self, channel: str) -> None:
        """Wake the watches of a channel, once this transaction is committed."""
        text = self._database.schema.server("ring")
        self._sending.send(BinaryStatement(text.encode(), (texts([self._database.channel(channel)]),), often=False))

    def _bind(self, name: str, values: Sequence[Any]) -> BinaryStatement:
        schema = self._database.schema
        return schema.bind(name, values, often=schema.part.prepared)


def _parts(rows: Sequence[Sequence[Any]]) -> Iterator[Sequence[Sequence[Any]]]:
    """Yield rows as they are sent: many at a time, unless they are large."""
    for at in range(0, len(rows), ROWS_AT_ONCE):
        waiting = [rows[at : at + ROWS_AT_ONCE]]
        while waiting:
            part = waiting.pop()
            if len(part) > 1 and _bytes_in(part) > BYTES_AT_ONCE:
                half = len(part) // 2
                waiting += [part[half:], part[:half]]
            else:
                yield part


def _bytes_in(rows: Sequence[Sequence[Any]]) -> int:
    """Return the total size of the bytes values in rows, which alone can be large."""
    large = [number for number, value in enumerate(rows[0]) if isinstance(value, bytes)]
    return sum(len(row[number] or b"") for number in large for row in rows)


class Begun(Transaction):
    """A transaction between `begin` and `commit`. `answers` are the answers of the statements with which it began."""

    def __init__(self, database: Database, connection: Connection, answers: list[PGresult]) -> None:
        super().__init__(database, connection)
        self.answers = answers
        self._connection = connection
        self._over = False

    def commit(self, *last: BinaryStatement) -> None:
        """Execute these statements and make the transaction durable, in one round trip; on an error it is undone.

        `applied` of an error is "unknown" if COMMIT was sent and it is not known whether it was executed.
        """
        self._over = True
        try:
            answers = self._connection.exchange((*last, COMMIT))
            if answers[-1].command_status != b"COMMIT":
                raise Unavailable("the server undid the transaction", code="serialization", hint="call again")
        except psycopg.Error as error:
            raise self._database.translated(error, "commit") from error
        except BaseException as error:
            if not isinstance(error, Unavailable):
                self._connection.close()  # in the middle of an answer
            raise
        finally:
            self._database.end(self._connection)

    def undo(self) -> None:
        """Undo the transaction. Twice, or after `commit`, is harmless."""
        if not self._over:
            self._over = True
            self._database.end(self._connection)


def _idle_ms(kind: str, settings: Settings) -> int:
    """Return half of a caller's time-out; in a store, less than the lease, so that the next holder finds no locks."""
    idle_s = settings.append_timeout_s / 2
    return int(1000 * (min(idle_s, settings.lease_s * 2 / 3) if kind == "store" else idle_s))


def _broke_idle(error: psycopg.Error) -> bool:
    """Return whether a connection broke while it was idle. A server that is slow is slow on all connections."""
    return lost(error) and not isinstance(error, TimedOut)


def server_facts(connection: Connection) -> ServerFacts:
    """Ask a server for all that decides whether it may be used."""
    ((version, number, standby),) = connection.execute(statement("strandline.backends.postgres", "server")).fetchall()
    found = connection.execute(
        statement("strandline.backends.postgres", "server_settings"), (list(SETTINGS),)
    ).fetchall()
    settings = {str(name): str(value) for name, value in found}
    return ServerFacts(str(version), int(str(number)), bool(standby), settings)


def _no_schema(where: str, schema: PostgresSchema) -> SchemaMismatch:
    return SchemaMismatch(
        f"{where} has no {schema.part.kind} in schema {schema.name}",
        code="no_schema",
        hint=NO_JOURNAL,
        schema=schema.name,
        table=f"{schema.part.prefix}schema_step",
    )
