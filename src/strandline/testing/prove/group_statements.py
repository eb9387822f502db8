"""The statements that groups of random programs are made of, each with what it does to a database of dictionaries.

A database is tables by name; a table is rows by key; a row is values by column. `SQL` and `CELLS` have the statements
by name: their text for the product, and a function for the model. Written from what SQL and CQL say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Row = dict[str, Any]
Database = dict[str, dict[tuple[Any, ...], Row]]
Spec = Mapping[str, Any]
"""A step, as plain data."""

KEYS: Final = {"account": ("id",), "pair": ("a", "b"), "seat": ("id",), "loose": ("a",)}
COLUMNS: Final = {
    "account": ("id", "name", "amount"),
    "pair": ("a", "b", "n"),
    "seat": ("id", "who"),
    "loose": ("a", "n"),
}
VALUES: Final[Row] = {"id": 1, "k": 1, "b": 1, "name": "x"}
"""What a statement is given where a step says nothing."""
EXTRA: Final = 5
"""The default of a column that the table of accounts gets later."""
MOST: Final = 500
"""What a CHECK of the table allows as an amount is less."""


class StepFails(Exception):
    """A step fails, for one of the reasons of the specification."""

    def __init__(self, reason: str, *, asked: bool = False) -> None:
        """`asked`: a handler had a say in it; its statement was done."""
        super().__init__(reason)
        self.reason, self.asked = reason, asked


@dataclass
class RowChange:
    """One row before and after a statement."""

    table: str
    key: tuple[Any, ...]
    before: Row | None
    after: Row | None


@dataclass
class Effects:
    """The rows that a statement changed and returned."""

    rows: list[Row] = field(default_factory=list)
    affected: int | None = None
    changes: list[RowChange] = field(default_factory=list)
    columns: tuple[str, ...] = ()
    """Those that it can change in a row that was there."""
    saved: tuple[str, ...] = ()
    """Those that are saved of such a row, if there are more."""


@dataclass(frozen=True)
class ProgramStatement:
    """One of them. `wants` is what its `:v` may be; `gives` are the columns that it returns."""

    kind: str
    text: str
    table: str
    does: Callable[[Database, Spec, Any], Effects]
    exact: tuple[str, ...] = ()
    """The values that are the key of the row which it touches; none: it may touch any row of the table."""
    wants: str = ""
    gives: tuple[str, ...] = ()
    reads: str = ""
    """Another table that it reads."""

    @property
    def writes(self) -> bool:
        return self.kind != "query"


def value_of(statement: ProgramStatement, spec: Spec) -> Any:
    """Return the value of `:v`, where no step gives it."""
    return [spec["id"], spec["id"] + 2] if statement.wants == "list" else spec["k"]


# ---------------------------------------------------------------- what statements do


def _applied(db: Database, table: str, changes: Iterable[RowChange]) -> None:
    """All of them, or `StepFails` where a constraint does not hold."""
    rows = dict(db[table])
    defaults = db.get("defaults", {}).get((table,), {})
    for one in changes:
        if one.after is None:
            rows.pop(one.key, None)
        else:
            one.after = rows[one.key] = {**(defaults if one.before is None else {}), **one.after}
    if table == "account" and any(row["amount"] is not None and row["amount"] >= MOST for row in rows.values()):
        raise StepFails("statement")
    named = [row["who"] for row in rows.values() if row["who"] is not None] if table == "seat" else []
    if len(named) != len(set(named)):
        raise StepFails("statement")
    db[table] = rows


def _updated(
    db: Database, table: str, where: Callable[[Row], bool], new: Callable[[Row], Row], columns: tuple[str, ...],
    returning: tuple[str, ...] = (),
) -> Effects:  # fmt: skip
    changes = [RowChange(table, key, row, {**row, **new(row)}) for key, row in db[table].items() if where(row)]
    _applied(db, table, changes)
    rows = [{name: (one.after or {})[name] for name in returning} for one in changes] if returning else []
    return Effects(rows, len(changes), changes, columns)


def _deleted(db: Database, table: str, where: Callable[[Row], bool], returning: tuple[str, ...] = ()) -> Effects:
    changes = [RowChange(table, key, row, None) for key, row in db[table].items() if where(row)]
    _applied(db, table, changes)
    rows = [{name: (one.before or {})[name] for name in returning} for one in changes] if returning else []
    return Effects(rows, len(changes), changes, COLUMNS[table])


def _inserted(
    db: Database, table: str, rows: list[Row], conflict: Callable[[Row, Row], Row | None] | None = None,
    columns: tuple[str, ...] = (),
) -> Effects:  # fmt: skip
    """`conflict` makes the new row of the one that is there and the given one; None leaves it alone."""
    changes = []
    for row in rows:
        key = tuple(row[name] for name in KEYS[table])
        if None in key:  # SQLite: NULL is not NULL
            key = (*key, max((other[-1] for other in db[table] if None in other), default=0) + 1)
        old = db[table].get(key)
        if old is None:
            changes.append(RowChange(table, key, None, row))
        elif conflict is None:
            raise StepFails("statement")
        elif (new := conflict(old, row)) is not None:
            changes.append(RowChange(table, key, old, new))
    _applied(db, table, changes)
    return Effects([], len(changes), changes, columns, COLUMNS[table])


def _selected(db: Database, table: str, where: Callable[[Row], bool], *columns: str) -> Effects:
    found = [row for _, row in sorted(db[table].items()) if where(row)]
    return Effects([{name: row[name] for name in columns} for row in found])


def _sum(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other


def _more(value: Any, than: int) -> bool:
    return value is not None and bool(value > than)


def _account(s: Spec) -> Row:
    return {"id": s["id"], "name": s["name"], "amount": s["k"]}


def _is(s: Spec, column: str = "id") -> Callable[[Row], bool]:
    return lambda row: bool(row[column] == s["id"])


_SET = "UPDATE account SET"
_NEW = "INSERT INTO account (id, name, amount) VALUES (:id, :name, :k)"

SQL: Final[dict[str, ProgramStatement]] = {
    "one": ProgramStatement(
        "query", "SELECT id, name, amount FROM account WHERE id = :id", "account",
        lambda db, s, v: _selected(db, "account", _is(s), "id", "name", "amount"),
        ("id",), gives=("id", "name", "amount"),
    ),
    "count": ProgramStatement(
        "query", "SELECT count(*) FROM account WHERE amount > :k", "account",
        lambda db, s, v: Effects([{"count": sum(_more(row["amount"], s["k"]) for row in db["account"].values())}]),
        gives=("count",),
    ),
    "ids": ProgramStatement(
        "query", "SELECT id, amount FROM account WHERE amount > :k ORDER BY id", "account",
        lambda db, s, v: _selected(db, "account", lambda row: _more(row["amount"], s["k"]), "id", "amount"),
        gives=("id", "amount"),
    ),
    "pairs": ProgramStatement(
        "query", "SELECT a, b, n FROM pair WHERE a = :id ORDER BY b", "pair",
        lambda db, s, v: _selected(db, "pair", _is(s, "a"), "a", "b", "n"), gives=("a", "b", "n"),
    ),
    "add": ProgramStatement(
        "update", f"{_SET} amount = amount + :k WHERE id = :id", "account",
        lambda db, s, v: _updated(db, "account", _is(s), lambda row: {"amount": _sum(row["amount"], s["k"])},
                                  ("amount",)),
        ("id",),
    ),
    "add_returning": ProgramStatement(
        "update", f"{_SET} amount = amount + :k WHERE id = :id RETURNING id, amount", "account",
        lambda db, s, v: _updated(db, "account", _is(s), lambda row: {"amount": _sum(row["amount"], s["k"])},
                                  ("amount",), ("id", "amount")),
        ("id",), gives=("id", "amount"),
    ),
    "name": ProgramStatement(
        "update", f"{_SET} name = :name WHERE id = :id", "account",
        lambda db, s, v: _updated(db, "account", _is(s), lambda row: {"name": s["name"]}, ("name",)), ("id",),
    ),
    "both": ProgramStatement(
        "update", f"{_SET} name = :name, amount = :k WHERE id = :id", "account",
        lambda db, s, v: _updated(db, "account", _is(s), lambda row: {"name": s["name"], "amount": s["k"]},
                                  ("name", "amount")),
        ("id",),
    ),
    "add_all": ProgramStatement(
        "update", f"{_SET} amount = amount + :k WHERE id <= :id", "account",
        lambda db, s, v: _updated(db, "account", lambda row: row["id"] <= s["id"],
                                  lambda row: {"amount": _sum(row["amount"], s["k"])}, ("amount",)),
    ),
    "leave": ProgramStatement(
        "update", f"{_SET} amount = 0 WHERE amount > :k", "account",
        lambda db, s, v: _updated(db, "account", lambda row: _more(row["amount"], s["k"]), lambda row: {"amount": 0},
                                  ("amount",)),
    ),
    "put": ProgramStatement(
        "update", f"{_SET} amount = :v WHERE id = :id", "account",
        lambda db, s, v: _updated(db, "account", _is(s), lambda row: {"amount": v}, ("amount",)),
        ("id",), wants="value",
    ),
    "new": ProgramStatement(
        "insert", _NEW, "account", lambda db, s, v: _inserted(db, "account", [_account(s)]), ("id",)
    ),
    "new_of": ProgramStatement(
        "insert", "INSERT INTO account (id, name, amount) VALUES (:id, :name, :v)", "account",
        lambda db, s, v: _inserted(db, "account", [{**_account(s), "amount": v}]), ("id",), wants="value",
    ),
    "new_two": ProgramStatement(
        "insert", "INSERT INTO account (id, name, amount) VALUES (:id, :name, :k), (:id2, :name, 1)", "account",
        lambda db, s, v: _inserted(db, "account", [_account(s), {"id": s["id"] + 1, "name": s["name"], "amount": 1}]),
        ("id",),
    ),
    "up": ProgramStatement(
        "insert", f"{_NEW} ON CONFLICT (id) DO UPDATE SET amount = account.amount + excluded.amount", "account",
        lambda db, s, v: _inserted(db, "account", [_account(s)],
                                   lambda old, new: {**old, "amount": _sum(old["amount"], new["amount"])},
                                   ("amount",)),
        ("id",),
    ),
    "up_where": ProgramStatement(
        "insert", f"{_NEW} ON CONFLICT (id) DO UPDATE SET amount = excluded.amount WHERE account.amount > 20",
        "account",
        lambda db, s, v: _inserted(db, "account", [_account(s)],
                                   lambda old, new: {**old, "amount": new["amount"]} if _more(old["amount"], 20)
                                   else None, ("amount",)),
        ("id",),
    ),
    "up_not": ProgramStatement(
        "insert", f"{_NEW} ON CONFLICT (id) DO NOTHING", "account",
        lambda db, s, v: _inserted(db, "account", [_account(s)], lambda old, new: None), ("id",),
    ),
    "copy": ProgramStatement(
        "insert", "INSERT INTO pair (a, b, n) SELECT id, CAST(:k AS integer), amount FROM account WHERE id <= :id",
        "pair",
        lambda db, s, v: _inserted(db, "pair", [{"a": row["id"], "b": s["k"], "n": row["amount"]}
                                                for row in db["account"].values() if row["id"] <= s["id"]]),
        reads="account",
    ),
    "gone": ProgramStatement(
        "delete", "DELETE FROM account WHERE id = :id", "account",
        lambda db, s, v: _deleted(db, "account", _is(s)), ("id",),
    ),
    "gone_returning": ProgramStatement(
        "delete", "DELETE FROM account WHERE amount > :k RETURNING id, amount", "account",
        lambda db, s, v: _deleted(db, "account", lambda row: _more(row["amount"], s["k"]), ("id", "amount")),
        gives=("id",),
    ),
    "gone_in": ProgramStatement(
        "delete", "DELETE FROM account WHERE id IN :v", "account",
        lambda db, s, v: _deleted(db, "account", lambda row: row["id"] in v), wants="list",
    ),
    "pair_add": ProgramStatement(
        "update", "UPDATE pair SET n = n + :k WHERE a = :id", "pair",
        lambda db, s, v: _updated(db, "pair", _is(s, "a"), lambda row: {"n": _sum(row["n"], s["k"])}, ("n",)),
    ),
    "pair_gone": ProgramStatement(
        "delete", "DELETE FROM pair WHERE a = :id", "pair", lambda db, s, v: _deleted(db, "pair", _is(s, "a"))
    ),
    "sit": ProgramStatement(
        "insert", "INSERT INTO seat (id, who) VALUES (:id, :name)", "seat",
        lambda db, s, v: _inserted(db, "seat", [{"id": s["id"], "who": s["name"]}]),
    ),
    "move": ProgramStatement(
        "update", "UPDATE seat SET who = :name WHERE id = :id", "seat",
        lambda db, s, v: _updated(db, "seat", _is(s), lambda row: {"who": s["name"]}, ("who",)),
    ),
    "stand": ProgramStatement(
        "delete", "DELETE FROM seat WHERE id = :id", "seat", lambda db, s, v: _deleted(db, "seat", _is(s))
    ),
}  # fmt: skip
"""Of SQLite and PostgreSQL."""
LOOSE: Final[dict[str, ProgramStatement]] = {
    "loose_add": ProgramStatement(
        "update", "UPDATE loose SET n = n + :k WHERE n < 400", "loose",
        lambda db, s, v: _updated(db, "loose", lambda row: row["n"] < 400, lambda row: {"n": row["n"] + s["k"]},
                                  ("n",)),
    ),
    "loose_gone": ProgramStatement(
        "delete", "DELETE FROM loose WHERE n > :k", "loose",
        lambda db, s, v: _deleted(db, "loose", lambda row: _more(row["n"], s["k"])),
    ),
    "loose_new": ProgramStatement(
        "insert", "INSERT INTO loose (a, n) VALUES (NULL, :k)", "loose",
        lambda db, s, v: _inserted(db, "loose", [{"a": None, "n": s["k"]}]),
    ),
}  # fmt: skip
"""Of SQLite, whose primary keys may be NULL."""


# ---------------------------------------------------------------- the same where the last write of a cell wins


def _set(db: Database, table: str, key: tuple[Any, ...], given: Row, *, whole: bool = False) -> Effects:
    """An upsert of cells; a row is there as long as one of its cells is."""
    old = db[table].get(key)
    named = dict(zip(KEYS[table], key, strict=True))
    new = {**dict.fromkeys(COLUMNS[table]), **(old or {}), **named, **given}
    left = any(new[name] is not None for name in COLUMNS[table] if name not in KEYS[table])
    if left:
        db[table][key] = new
    else:
        db[table].pop(key, None)
    affected = 1 if whole or old is not None else 0
    return Effects([], affected, [RowChange(table, key, old, new if left else None)], tuple(given))


def _cleared(db: Database, table: str, where: Callable[[Row], bool]) -> Effects:
    changes = [RowChange(table, key, row, None) for key, row in db[table].items() if where(row)]
    for one in changes:
        del db[table][one.key]
    return Effects([], len(changes), changes, tuple(name for name in COLUMNS[table] if name not in KEYS[table]))


CELLS: Final[dict[str, ProgramStatement]] = {
    "one": SQL["one"],
    "pairs": ProgramStatement(
        "query", "SELECT a, b, n FROM pair WHERE a = :id", "pair",
        lambda db, s, v: _selected(db, "pair", _is(s, "a"), "a", "b", "n"), gives=("a", "b", "n"),
    ),
    "name": ProgramStatement(
        "update", f"{_SET} name = :name WHERE id = :id", "account",
        lambda db, s, v: _set(db, "account", (s["id"],), {"name": s["name"]}), ("id",),
    ),
    "both": ProgramStatement(
        "update", f"{_SET} name = :name, amount = :k WHERE id = :id", "account",
        lambda db, s, v: _set(db, "account", (s["id"],), {"name": s["name"], "amount": s["k"]}), ("id",),
    ),
    "put": ProgramStatement(
        "update", f"{_SET} amount = :v WHERE id = :id", "account",
        lambda db, s, v: _set(db, "account", (s["id"],), {"amount": v}), ("id",), wants="value",
    ),
    "new": ProgramStatement(
        "insert", _NEW, "account",
        lambda db, s, v: _set(db, "account", (s["id"],), {"name": s["name"], "amount": s["k"]}, whole=True), ("id",),
    ),
    "gone": ProgramStatement(
        "delete", "DELETE FROM account WHERE id = :id", "account",
        lambda db, s, v: _cleared(db, "account", _is(s)), ("id",),
    ),
    "pair_put": ProgramStatement(
        "insert", "INSERT INTO pair (a, b, n) VALUES (:id, :b, :k)", "pair",
        lambda db, s, v: _set(db, "pair", (s["id"], s["b"]), {"n": s["k"]}, whole=True), ("id",),
    ),
    "pair_gone": ProgramStatement(
        "delete", "DELETE FROM pair WHERE a = :id", "pair", lambda db, s, v: _cleared(db, "pair", _is(s, "a")), ("id",),
    ),
}  # fmt: skip
"""Of targets without transactions."""


# ---------------------------------------------------------------- expressions


def _only(rows: list[Row], column: str) -> Any:
    if len(rows) != 1:
        raise StepFails("check_error")
    return rows[0][column]


def _first(rows: list[Row], column: str) -> Any:
    if not rows:
        raise StepFails("check_error")
    return rows[0][column]


def _ordered(value: Any) -> Any:
    if value is None:
        raise StepFails("check_error")
    return value


@dataclass(frozen=True)
class ProgramExpression:
    """One of the product's language, and the same in Python."""

    text: str
    of: Callable[[list[Row]], Any]
    column: str = ""
    """That the rows must have."""
    gives: str = ""
    """`value`, `list`, or `verdict`."""


EXPRESSIONS: Final[dict[str, ProgramExpression]] = {
    one.text: one
    for one in (
        ProgramExpression("amount", lambda rows: _only(rows, "amount"), "amount", "value"),
        ProgramExpression("first.amount", lambda rows: _first(rows, "amount"), "amount", "value"),
        ProgramExpression("row_count * 2 + 1", lambda rows: len(rows) * 2 + 1, "", "value"),
        ProgramExpression("count - 3", lambda rows: _only(rows, "count") - 3, "count", "value"),
        ProgramExpression("rows.id", lambda rows: [row["id"] for row in rows], "id", "list"),
        ProgramExpression("amount >= 0", lambda rows: _ordered(_only(rows, "amount")) >= 0, "amount", "verdict"),
        ProgramExpression("amount != null", lambda rows: _only(rows, "amount") is not None, "amount", "verdict"),
        ProgramExpression("row_count < 3", lambda rows: len(rows) < 3, "", "verdict"),
        ProgramExpression("row_count > 0", lambda rows: len(rows) > 0, "", "verdict"),
        ProgramExpression("count > 2 || count == 0", lambda rows: _only(rows, "count") > 2 or _only(rows, "count") == 0,
                   "count", "verdict"),
        ProgramExpression("amount", lambda rows: _only(rows, "amount"), "amount", "value"),
        ProgramExpression("row_count", len, "", "odd"),
        ProgramExpression("1 = 2", lambda rows: False, "", "verdict"),
        ProgramExpression("1 = 1", lambda rows: True, "", "verdict"),
    )
}  # fmt: skip
"""By their text. What is `odd` is no verdict, and used as one."""
AFFECTED: Final[dict[str, Callable[[int, int], bool]]] = {
    "affected_rows_equal": lambda one, other: one == other,
    "affected_rows_less_than": lambda one, other: one < other,
    "affected_rows_at_least": lambda one, other: one >= other,
}
