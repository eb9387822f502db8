"""Statements that follow from a table's declaration (`store/tables.py`), by the names that stores ask for.

    put_TABLE            SQL: a row, PostgreSQL: arrays of columns. Rows of heads and progress are replaced; other
                         rows never change, and the same one again is passed over. CQL: a row, then its write timestamp
    purge_TABLE          SQL: rows of a key and life
    delete_TABLE         SQL: rows of a key and life, from one number to another
    look_TABLE           rows with their digests: SQL by key (PostgreSQL: an array of keys), CQL by partition key
    first_TABLE          SQL: the first rows with their digests, so many, in the order of their places
    next_TABLE           SQL: those after a place
    remove_TABLE_row     the row at a place. CQL: first the write timestamp
    remove_TABLE_rows    CQL: rows of a partition key from one value of the next column to another
    remove_TABLE_all     CQL: rows of a partition key
    walk_TABLE           CQL: all rows between two tokens, the first excluded, without digests
    list_TABLE           CQL: the partition keys between two tokens
    pick_TABLE           CQL: the row at a place, without its digest

A statement of the same name in a file of the table's package counts instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from strandline.store.tables import DECLARED, Column, Table

Language = Literal["sqlite", "postgres", "cql"]
_REPLACED: Final = ("heads", "progress")
"""Phases whose rows change."""
_POSTGRES: Final = {"blob": "bytea"}


def declared(name: str, language: Language) -> str | None:
    """Return the statement of this name; None if no declaration has it."""
    verb, _, rest = name.rpartition("/")[2].partition("_")
    if verb == "remove":
        rest, _, what = rest.rpartition("_")
        verb = f"remove_{what}"
    table, make = DECLARED.get(rest), _MAKERS[language].get(verb)
    return None if table is None or make is None else make(table)


def _names(table: Table, *, cql: bool = False) -> list[str]:
    """Return the columns that are written, the digest last."""
    names = [column.name for column in table.columns if not (cql and column.sql_only)]
    return names if table.version is None else [*names, "digest"]


def _equal(names: Sequence[str]) -> str:
    return " AND ".join(f"{name} = ${number}" for number, name in enumerate(names, 1))


def _asked(names: Sequence[str]) -> str:
    return " AND ".join(f"{name} = ?" for name in names)


def _again(table: Table) -> str:
    place = ", ".join(table.place)
    if table.phase not in _REPLACED:
        return f"ON CONFLICT ({place}) DO NOTHING"
    changed = ", ".join(f"{name} = excluded.{name}" for name in _names(table) if name not in table.place)
    return f"ON CONFLICT ({place}) DO UPDATE SET {changed}"


def _array(column: Column, number: int) -> str:
    return f"${number}::{_POSTGRES.get(column.kind, column.kind)}[]"


def _put_sqlite(table: Table) -> str:
    names = _names(table)
    marks = ", ".join("?" * len(names))
    return f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks}) {_again(table)}"


def _put_postgres(table: Table) -> str:
    digest = [] if table.version is None else [Column("digest", "bigint")]
    arrays = ", ".join(_array(column, number) for number, column in enumerate([*table.columns, *digest], 1))
    names = ", ".join(_names(table))
    return f"INSERT INTO {{schema}}.{table.name} ({names}) SELECT * FROM unnest({arrays}) {_again(table)}"


def _put_cql(table: Table) -> str:
    names = _names(table, cql=True)
    marks = ", ".join("?" * len(names))
    time = "?" if table.time is not None else "1"
    return f"INSERT INTO keyspace.{table.name} ({', '.join(names)}) VALUES ({marks}) USING TIMESTAMP {time}"


def _look(table: Table, condition: str) -> str:
    return f"SELECT {', '.join(_names(table))} FROM {{schema}}.{table.name} WHERE {condition}"


def _first(table: Table) -> str:
    return f"SELECT {', '.join(_names(table))} FROM {{schema}}.{table.name} ORDER BY {', '.join(table.place)} LIMIT $1"


def _next(table: Table) -> str:
    kinds = {column.name: _POSTGRES.get(column.kind, column.kind) for column in table.columns}
    place = ", ".join(table.place)
    after = ", ".join(f"${number}::{kinds[name]}" for number, name in enumerate(table.place, 2))
    names = ", ".join(_names(table))
    return f"SELECT {names} FROM {{schema}}.{table.name} WHERE ({place}) > ({after}) ORDER BY {place} LIMIT $1"


def _look_cql(table: Table) -> str:
    where = _asked(table.place[: table.partitioned_by])
    return f"SELECT {', '.join(_names(table, cql=True))} FROM keyspace.{table.name} WHERE {where}"


def _remove(table: Table, condition: str) -> str:
    return f"DELETE FROM {{schema}}.{table.name} WHERE {condition}"


def _remove_cql(table: Table, condition: str) -> str:
    return f"DELETE FROM keyspace.{table.name} USING TIMESTAMP ? WHERE {condition}"


def _walk_cql(table: Table) -> str:
    names = ", ".join(column.name for column in table.columns if not column.sql_only)
    return f"SELECT {names} FROM keyspace.{table.name} WHERE {_between_tokens(table)}"


def _list_cql(table: Table) -> str:
    names = ", ".join(table.place[: table.partitioned_by])
    return f"SELECT DISTINCT {names} FROM keyspace.{table.name} WHERE {_between_tokens(table)}"


def _pick_cql(table: Table) -> str:
    names = ", ".join(column.name for column in table.columns if not column.sql_only)
    return f"SELECT {names} FROM keyspace.{table.name} WHERE {_asked(table.place)}"


def _between_tokens(table: Table) -> str:
    token = f"token({', '.join(table.place[: table.partitioned_by])})"
    return f"{token} > ? AND {token} <= ?"


def _stretch(table: Table) -> str:
    column = table.place[table.partitioned_by]
    return f"{_asked(table.place[: table.partitioned_by])} AND {column} >= ? AND {column} <= ?"


_SQL: Final[Mapping[str, Callable[[Table], str]]] = {
    "purge": lambda table: _remove(table, _equal(("key", "life"))),
    "delete": lambda table: _remove(table, f"{_equal(('key', 'life'))} AND seq_nr >= $3 AND seq_nr <= $4"),
    "remove_row": lambda table: _remove(table, _equal(table.place)),
    "first": _first,
    "next": _next,
}
_MAKERS: Final[Mapping[Language, Mapping[str, Callable[[Table], str]]]] = {
    "sqlite": {**_SQL, "put": _put_sqlite, "look": lambda table: _look(table, "key = $1")},
    "postgres": {**_SQL, "put": _put_postgres, "look": lambda table: _look(table, "key = ANY($1::text[])")},
    "cql": {
        "put": _put_cql,
        "look": _look_cql,
        "walk": _walk_cql,
        "list": _list_cql,
        "pick": _pick_cql,
        "remove_row": lambda table: _remove_cql(table, _asked(table.place)),
        "remove_rows": lambda table: _remove_cql(table, _stretch(table)),
        "remove_all": lambda table: _remove_cql(table, _asked(table.place[: table.partitioned_by])),
    },
}
