"""A part's database: the interface to the tables of a log, a store, a work journal, of projections and groups.

    part          tables and statements that belong together, in a package of their own (`Part`)
    Database      a part's tables in one SQLite file or one PostgreSQL schema; other parts may stand beside them
    Transaction   statements that see one moment, or are done as a whole

    with database.read() as tx:                          # one moment
        waiting = tx.rows("waiting", (now, limit))       # `waiting` in the files of the part's package
    with database.write() as tx:                         # committed at the end, undone by any exception
        tx.execute("add_entry", (key, date))
    with database.join(caller) as tx:                    # in the caller's own transaction, who commits it
        tx.execute("add_entry", (key, date))

**Statements** stand in files of the part's package, `sql/TABLE.sql`, one for each table or subject: each has a name, a
dialect in brackets where the dialects differ, and a comment that says what it is for (`sql/sections.py`):

    -- name: waiting
    -- Entries that wait, by their date.
    SELECT key, date FROM {schema}.work_entry WHERE date <= $1::bigint ORDER BY date LIMIT $2;

`{schema}.` goes before every table (SQLite leaves it out), `$1` is the first value (SQLite says `?1`), and `$1::bigint`
its type. SQLite leaves out types and `FOR UPDATE`: a transaction that writes a file locks all of it. A value without a
type is sent to PostgreSQL as what it is in Python: bigint, text, bytea, boolean, double precision. A list is an array
there (`$1::bigint[]`) and a JSON text in SQLite (`json_each(?1)`).

**Steps** make and change the tables; they stand in the same files (`sql/steps.py`).
Names of tables begin with the part's kind (`work_entry`), so that parts can share a file or schema; each part has its
own steps and settings there. PostgreSQL's `text` is followed by `{by_bytes}` where it is sorted or compared by order.

Errors are ours (`Unavailable`, `Corrupt`, `SchemaMismatch`), translated once by each back-end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Literal, NamedTuple, Protocol

Dialect = Literal["sqlite", "postgres"]
Isolation = Literal["read_committed", "repeatable_read", "serializable"]
LONG_S: Final = 600.0
"""The time-out of statements that may touch a whole journal."""
Declared = Callable[[str, Dialect], str | None]
"""Finds statements that follow from declarations, by name and dialect; None if there is none."""


def undeclared(name: str, dialect: Dialect) -> str | None:
    """Return nothing, for parts whose statements are all in files."""
    return None


DATABASE_ID: Final = "database_id"
"""The setting whose value identifies a part's tables, whichever path or URL leads to them."""
TEMPLATE: Final = "template"
"""The name of the set of tables that all other sets are copied from (`Part.sets`)."""


class Part(NamedTuple):
    """Tables and statements that belong together."""

    kind: str
    """The kind of the part, such as log, store or work."""
    package: str
    """The package whose folder `sql` has its statements and steps."""
    pragmas: Mapping[str, str] = {}
    """Pragmas that a SQLite file needs before anything is in it, such as `{"auto_vacuum": "incremental"}`."""

    prepared: bool = False
    """Whether its transactions prepare their statements on a server, with plans that do not depend on values."""

    declared: Declared = undeclared
    """Finds the part's statements that are in no file."""
    also: tuple[str, ...] = ()
    """Packages whose steps come after its own, each with the package's name before it. Their statements are
    `PACKAGE/NAME`."""

    connections: int = 10
    """How many connections to a server a process has, for each time that it opens the part."""

    sets: bool = False
    """Whether it makes tables at run time, in sets with names of their own, each like those of the set `template`. Its
    statement `sets` names them; `made` names, for each of their tables, the table of the template that it is like. A
    step with `{1}` for the name of a set is done for the template, then for every set that is there; on a server `gate`
    locks out all other processes meanwhile."""

    @property
    def prefix(self) -> str:
        """The prefix of its tables of steps and settings."""
        return "" if self.kind == "store" else f"{self.kind}_"


class Transaction(Protocol):
    """Statements that see one moment, or are done as a whole. Only one thread uses it, and only inside its `with`."""

    dialect: Dialect

    @property
    def raw(self) -> object:
        """The driver's own connection, which other parts `join`."""

    def rows(self, name: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a named statement, as tuples."""

    def execute(self, name: str, values: Sequence[Any] = ()) -> int:
        """Execute a named statement; return how many rows it changed."""

    def each(self, name: str, many: Iterable[Sequence[Any]]) -> None:
        """Execute a named statement with each of these values, in order."""

    def many(self, name: str, rows: Sequence[Sequence[Any]], *first: Any) -> list[Any]:
        """Execute a statement for many rows, as fast as the dialect can; return the rows that it gives, in no order.

        SQLite executes it with `(*first, *row)` for each row. PostgreSQL executes it with `first` and then an array for
        each column of the rows, with as many rows at a time as are good for it; it is prepared there, and says the
        types of all its values (`unnest($1::text[], $2::bigint[])`). Without rows nothing is executed.
        """

    def take_long(self, for_s: float = LONG_S) -> None:
        """Let statements take so long from now on. Called once the transaction holds all locks for which it might
        wait."""

    def notify(self, channel: str) -> None:
        """Wake the watches of a channel, once this transaction is committed. SQLite needs nothing for it."""


class Watch(Protocol):
    """Tells that something may have been committed. A woken caller reads the tables, and does so after a time-out, too.

    with database.watch("work") as watch:
        while True:
            seen = watch.seen()
            ...                      # look into the tables; nothing to do
            watch.wait(seen, 5.0)    # comes back early if anything was committed after `seen`
    """

    def seen(self) -> int:
        """Return a number for this moment."""

    def wait(self, seen: int, timeout_s: float) -> bool:
        """Wait until something may have come after that moment; False after `timeout_s`."""

    def close(self) -> None:
        """Close the watch. A second call does nothing."""

    def __enter__(self) -> Watch: ...

    def __exit__(self, *_: object) -> None: ...


class Database(Protocol):
    """The tables of a part, opened. Safe to share between threads; refused after a fork."""

    dialect: Dialect
    fixed: Mapping[str, str]
    """What creation fixed, and `database_id`."""

    @property
    def where(self) -> str:
        """The file or URL, without a password."""

    def rows(self, name: str, values: Sequence[Any] = (), *, often: bool = False) -> list[Any]:
        """Return the rows of one statement, of one moment: quicker than `read`. `often`: prepare the statement."""

    def rows_each(self, name: str, many: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return a statement's rows for each of these values. Each answer is of its own moment; a server gets all in
        one round trip."""

    def many(self, name: str, rows: Sequence[Sequence[Any]], *first: Any) -> list[Any]:
        """Return a statement's rows for many rows (`Transaction.many`), of one moment, on a server in one statement."""

    def read(self) -> AbstractContextManager[Transaction]:
        """Open a transaction that reads: all statements see one moment."""

    def write(self, *, isolation: Isolation = "read_committed") -> AbstractContextManager[Transaction]:
        """Open a transaction: committed at the end, undone by any exception.

        SQLite: it holds the file's write lock, whatever the isolation. PostgreSQL: lock the rows that you decide by, or
        ask for another isolation, and repeat the transaction after `Unavailable.serialization`. "repeatable_read"
        refuses to change a row that another transaction changed meanwhile; "serializable" also refuses a result that no
        order of the transactions could give.
        """

    def join(self, tx: object) -> AbstractContextManager[Transaction]:
        """Work within the caller's own transaction, which the caller commits.

        `tx` is an open connection or cursor of psycopg or apsw, or has one as `raw`, whatever the caller makes of its
        rows. An exception undoes only what was done inside this context. `InvalidInput.tx_idle` for a connection in
        autocommit with no transaction open; `.tx_foreign` for anything else, for a database that does not have these
        tables, and on PostgreSQL for a transaction that is not READ COMMITTED.
        """

    def now_us(self) -> int:
        """Return the clock that all processes which share the tables use: the server's, if there is one."""

    def watch(self, channel: str, *, interval_s: float = 0.05) -> Watch:
        """Return a watch that commits wake: on a server those that notify the channel, in a file all of them.

        `interval_s` is how often a file is looked at, and how often a watch wakes where the server sends no
        notifications (no LISTEN, a pooler in between): `wait` then says True, so that the caller looks.
        """

    def check(self) -> None:
        """Refuse a call after `close` (`InvalidInput.closed`) or in a forked child (`Unsupported.used_after_fork`)."""

    def close(self) -> None:
        """Close all connections. A second call does nothing."""
