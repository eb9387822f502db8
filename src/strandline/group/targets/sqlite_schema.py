"""Reads the schema of a user's table from SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Literal

from strandline.group.statements.api import ForeignKey, TargetColumn, TargetTable
from strandline.group.statements.lexer import columns_in, tokens_of
from strandline.group.targets.changes import Ask


def table_of(ask: Ask, asked: str) -> TargetTable | None:
    """Return a table by the name that a statement gives it; None if there is none such."""
    schema, _, plain = asked.rpartition(".")
    found = ask("target_table", (plain,)) if schema.lower() in {"", "main"} else []
    if not found:
        return None
    name, what, text = found[0]
    columns = ask("target_columns", (name,))
    key = tuple(column for column, _, place, _ in sorted(columns, key=lambda row: row[2]) if place)
    unique, collations = _indexes(ask, name, [column for column, *_ in columns])
    foreign = _foreign_keys(ask)
    rowid = len(key) == 1 and next(kind for column, kind, *_ in columns if column == key[0]).upper() == "INTEGER"
    return TargetTable(
        name=name,
        columns=tuple(
            TargetColumn(column, kind, bool(computed), rowid and column == key[0], collation=collations.get(column, ""))
            for column, kind, _, computed in columns
        ),
        key=key,
        what="view" if what == "view" else "table",
        unique=unique,
        foreign=tuple(one for one in foreign if one.child.lower() == name.lower()),
        children=tuple(one for one in foreign if one.parent.lower() == name.lower()),
        unsafe=(
            *(f"has the trigger {trigger}" for (trigger,) in ask("target_triggers", (name,))),
            *(f"is declared with ON CONFLICT {how}" for how in _conflict_rules(text)),
        ),
    )


def _conflict_rules(text: str) -> list[str]:
    """Return the conflict clauses of a table's declaration, but for the default."""
    tokens = tokens_of(text, "sqlite")
    found = [three[2].text.upper() for three in zip(tokens, tokens[1:], tokens[2:], strict=False)
             if three[0].says("ON") and three[1].says("CONFLICT")]  # fmt: skip
    return [how for how in found if how != "ABORT"]


def _indexes(ask: Ask, name: str, columns: Sequence[str]) -> tuple[tuple[tuple[str, ...], ...], dict[str, str]]:
    """Return the columns of each unique index but the key's, and collations of the key that are not binary."""
    unique, collations = [], {}
    for (_, is_key, text), rows in groupby(ask("target_indexes", (name,)), key=lambda row: row[:3]):
        parts = [(column, collation) for *_, column, collation in rows]
        if is_key:
            collations = {column: collation for column, collation in parts if collation != "BINARY"}
        elif text is not None:
            unique.append(columns_in(text, columns, "sqlite"))
        else:
            unique.append(tuple(column for column, _ in parts))
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
