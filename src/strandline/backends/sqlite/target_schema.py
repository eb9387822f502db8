"""What a table of the user's is, as SQLite describes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Literal

from strandline.group.statements.api import Column, ForeignKey, Table

Ask = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""The rows of a named statement."""


def table_of(ask: Ask, asked: str) -> Table | None:
    """A table by the name that a statement gives it; None if there is none such."""
    schema, _, plain = asked.rpartition(".")
    found = ask("target_table", (plain,)) if schema.lower() in {"", "main"} else []
    if not found:
        return None
    name, what = found[0]
    columns = ask("target_columns", (name,))
    key = tuple(column for column, _, place, _ in sorted(columns, key=lambda row: row[2]) if place)
    unique, collations = _indexes(ask, name)
    foreign = _foreign_keys(ask)
    rowid = len(key) == 1 and next(kind for column, kind, *_ in columns if column == key[0]).upper() == "INTEGER"
    return Table(
        name=name,
        columns=tuple(
            Column(column, kind, bool(computed), rowid and column == key[0], collation=collations.get(column, ""))
            for column, kind, _, computed in columns
        ),
        key=key,
        what="view" if what == "view" else "table",
        unique=unique,
        foreign=tuple(one for one in foreign if one.child.lower() == name.lower()),
        children=tuple(one for one in foreign if one.parent.lower() == name.lower()),
        triggers=tuple(trigger for (trigger,) in ask("target_triggers", (name,))),
    )


def _indexes(ask: Ask, name: str) -> tuple[tuple[tuple[str, ...], ...], dict[str, str]]:
    """Columns of each unique index but the key's, and collations of the key that are not binary."""
    unique, collations = [], {}
    for (_, is_key), rows in groupby(ask("target_indexes", (name,)), key=lambda row: (row[0], row[1])):
        parts = [(column, collation) for _, _, column, collation in rows]
        if is_key:
            collations = {column: collation for column, collation in parts if collation != "BINARY"}
        else:
            plain = all(column is not None for column, _ in parts)
            unique.append(tuple(column for column, _ in parts) if plain else ())
    return tuple(unique), collations


def _foreign_keys(ask: Ask) -> list[ForeignKey]:
    made = []
    for (child, _, parent, on_delete, on_update), rows in groupby(
        ask("target_foreign", ()), key=lambda row: (row[0], row[1], row[3], row[5], row[6])
    ):
        pairs = [(column, other) for _, _, column, _, other, _, _ in rows]
        others = tuple(other for _, other in pairs)
        if None in others:
            keyed = sorted(ask("target_columns", (parent,)), key=lambda row: row[2])
            others = tuple(column for column, _, place, _ in keyed if place)
        actions: tuple[tuple[Literal["delete", "update"], str], ...] = (("delete", on_delete), ("update", on_update))
        carried = tuple(verb for verb, action in actions if _carries(action))
        made.append(ForeignKey(child, tuple(column for column, _ in pairs), parent, others, carried))
    return made


def _carries(action: str) -> bool:
    return action.upper() in {"CASCADE", "SET NULL", "SET DEFAULT"}
