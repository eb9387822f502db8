"""Reads the schema of a user's table from PostgreSQL's catalogue."""

from __future__ import annotations

from typing import Any, Literal

from strandline.group.statements.api import ForeignKey, TargetColumn, TargetTable
from strandline.group.statements.lexer import columns_in
from strandline.group.statements.texts import named
from strandline.group.targets.changes import Ask


def table_of(ask: Ask, asked: str) -> TargetTable | None:
    """Return a table by the name that a statement gives it; None if there is none such, or if it has a point in it."""
    found = ask("target_table", (named(asked),))
    if not found or "." in found[0][1] + found[0][2]:
        return None
    oid, schema, name, plain, has_heirs, inherits, root = found[0]
    columns = tuple(
        TargetColumn(column, kind, computed, identity, always, collation=collation or "")
        for column, kind, computed, identity, always, collation in ask("target_columns", (oid,))
    )
    indexes = ask("target_indexes", (oid,))
    names = [column.name for column in columns]
    foreign = [(*row[:2], _foreign_key(row[2:])) for row in ask("target_foreign", (oid,))]
    return TargetTable(
        name=f"{schema}.{name}",
        columns=columns,
        key=next((tuple(told) for is_key, told, _ in indexes if is_key), ()),
        what="table" if plain else "view",
        unique=tuple(
            tuple(told) if text is None else columns_in(text, names, "postgres")
            for is_key, told, text in indexes
            if not is_key
        ),
        foreign=tuple(key for is_child, _, key in foreign if is_child),
        children=tuple(key for _, is_parent, key in foreign if is_parent),
        unsafe=(
            *(f"has the {what} {trigger}" for what, trigger in ask("target_triggers", (oid,))),
            *["has tables that inherit from it"] * has_heirs,
        ),
        part_of=root or "",
        inherits=has_heirs or inherits,
    )


def _foreign_key(row: tuple[Any, ...]) -> ForeignKey:
    child, columns, parent, parent_columns, on_delete, on_update = row
    actions: tuple[tuple[Literal["delete", "update"], bool], ...] = (("delete", on_delete), ("update", on_update))
    carried = tuple(verb for verb, carries in actions if carries)
    return ForeignKey(child, tuple(columns), parent, tuple(parent_columns), carried)
