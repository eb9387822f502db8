"""A transaction of an SQL target, as a segment and its undo use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from strandline.group.statements.api import Dialect, Plan
from strandline.group.statements.binding import Bound
from strandline.group.target import Failed, Rows

Row = tuple[Any, ...]
Ask = Callable[[str, Sequence[Any]], list[Row]]
"""Returns the rows of a named statement of a target's catalogue."""


class SqlWords(NamedTuple):
    """The texts that differ between the dialects of SQL."""

    dialect: Dialect
    lock: str = ""
    """Text behind a query whose rows are to stay as they are."""
    lock_of: str = ""
    """The same, of one table: a text with a place for its name."""
    same: str = "="
    """The sign by which a column of a key is compared."""
    overriding: str = ""
    """Text between columns and values of an INSERT that brings its own identity."""


class SqlRefused(Exception):
    """The database, or this program, refuses a statement of the user's. Nothing was changed."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.detail)
        self.failed = failed


class Collided(SqlRefused):
    """A row cannot be put back yet, because of a constraint."""


class Changed(NamedTuple):
    affected: int
    rows: Rows
    """The rows of the user's own RETURNING."""
    ours: tuple[Row, ...]
    """The last columns, which are ours, encoded."""


class Call(NamedTuple):
    """A call of `Changes` that is going to be made."""

    name: Literal["own", "image", "change", "query"]
    arguments: tuple[Any, ...]


class Changes(Protocol):
    """A transaction of a target."""

    def hold(self, table: str) -> None:
        """Keep others from altering this table until the transaction has ended. It is called before anything else."""

    def ahead(self, calls: Sequence[Call]) -> None:
        """Announce the calls that come next, in order; a server is sent all at once. Errors come with the calls."""

    def last(self, name: str, values: Sequence[Any]) -> None:
        """As `count`, for the last statement before the commit: it may be sent together with the commit."""

    def own(self, name: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a named statement of ours."""

    def count(self, name: str, values: Sequence[Any] = ()) -> int:
        """Execute a named statement of ours that changes rows, and return their number."""

    def limit(self, timeout_s: float) -> None:
        """Give each statement that follows this time."""

    def query(self, statement: Bound, plan: Plan, rows_max: int) -> Rows:
        """Execute the user's query, which changes nothing. `SqlRefused` for more rows than these."""

    def image(self, statement: Bound) -> list[Row]:
        """Return the rows of an image, encoded."""

    def change(self, statement: Bound, ours: int, plan: Plan) -> Changed:
        """Execute the user's statement. The last `ours` columns that it returns are ours."""

    def zone(self) -> str:
        """Return the time zone in which values of images are told; "" where values have none."""

    def restore(self, zone: str) -> None:
        """Prepare to put rows back: values are told in this zone, constraints are checked at the end."""

    def put(self, statement: Bound) -> int:
        """Execute a statement that puts a row back, with encoded values; how many rows it changed. May be `Collided`.

        Where it is, the transaction is as before it.
        """
