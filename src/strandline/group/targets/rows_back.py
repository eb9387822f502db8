"""Puts back the rows that a step changed, in a transaction, by their images. `restoring` decides about each row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from strandline.group.statements import texts
from strandline.group.statements.api import TargetTable
from strandline.group.statements.binding import Bound
from strandline.group.statements.binding import place as parameter
from strandline.group.target import Done, Failed, NotUndone, OnConflict, RowConflict, Undone
from strandline.group.targets.changes import Changes, Collided, Row, SqlRefused, SqlWords
from strandline.group.targets.restoring import Back, Restoration, batched, in_order, keys_of, place, restoration

ROWS_AT_ONCE: Final = 100
VALUES_AT_ONCE: Final = 30_000


class RowsBack:
    """The undo of one step."""

    def __init__(
        self, changes: Changes, words: SqlWords, table: TargetTable, changed: Sequence[str], done: Done
    ) -> None:
        """`table` is as it is now, `changed` are the columns that the step could change."""
        self._changes, self._words, self._table, self._changed, self._done = changes, words, table, changed, done
        self._columns = done.before.columns
        self._at_once = max(1, min(ROWS_AT_ONCE, VALUES_AT_ONCE // len(self._columns)))
        """The number of rows that one statement has values for."""

    def undone(self, on_conflict: OnConflict) -> Undone | NotUndone:
        """Put the rows back, or say why not. `SqlRefused` for what the database refuses: nothing may be kept then."""
        self._changes.restore(self._done.zone)
        made = self._restoration(on_conflict)
        if made.conflicts and on_conflict == "fail":
            return NotUndone("rows were changed by others since", tuple(made.conflicts))
        parts = not {one.name for one in self._table.columns if not one.generated} <= set(self._columns)
        gone = [one for one in made.conflicts if parts and one.before is not None and one.current is None]
        if gone and on_conflict == "overwrite":
            return NotUndone(
                "others removed a row of which only changed columns were saved: insert it and retry, or accept_current",
                tuple(gone),
            )
        if children := self._children(made.rows):
            return NotUndone("rows of others refer to rows that would be removed", tuple(children))
        self._put(made.rows)
        return Undone(restored=len(made.rows), kept=tuple(made.conflicts) if on_conflict == "keep_current" else ())

    def _restoration(self, on_conflict: OnConflict) -> Restoration:
        before, after = self._done.before, self._done.after
        return restoration(before, after, self._current(keys_of(before, after)), self._changed, on_conflict)

    def _put(self, rows: Sequence[Back]) -> None:
        pending = [part for alike in in_order(rows) for part in batched(alike, self._at_once)]
        while pending:
            left: list[tuple[Back, ...]] = []
            for part in pending:
                try:
                    self._changes.put(self._back(part))
                except Collided as error:  # with a row that has to make room first
                    collided = error
                    left += [(row,) for row in part]
            if left == pending:
                raise SqlRefused(collided.failed)
            pending = left
        still = {place(row.key) for row in self._restoration("overwrite").rows} if rows else set[bytes]()
        if wrong := still & {place(row.key) for row in rows}:
            what = f"{self._table.name}: the row {wrong.pop().decode()} is not as it was after it was put back"
            raise SqlRefused(Failed("statement", f"{what}: see triggers and rules of this table"))

    def _back(self, rows: Sequence[Back]) -> Bound:
        """Return the statement that puts rows back, all in one way; several at once may refer to each other."""
        table, how, columns = self._table, rows[0].how, self._columns
        if how == "insert":
            given = any(column.identity for column in table.columns)
            values = [value for row in rows for value in row.row]
            text = texts.insert(
                table.name, columns, self._marks(len(values), len(columns)), self._words.overriding * given
            )
            return Bound(text, tuple(values))
        keys = [row.key for row in rows]
        if how == "delete":
            return Bound(texts.remove(table.name, self._are(keys)), tuple(chain(*keys)))
        changed = [name for name in self._changed if name in columns]
        (back,) = rows
        if not changed:
            return Bound(texts.remove(table.name, "1 = 0"), ())
        places = [parameter(len(back.key) + n + 1, self._words.dialect) for n in range(len(changed))]
        text = texts.put_back(table.name, changed, places, self._are(keys))
        return Bound(text, (*back.key, *(back.row[columns.index(name)] for name in changed)))

    def _marks(self, count: int, size: int) -> list[tuple[str, ...]]:
        """Return so many places for values, in tuples of this size."""
        return batched([parameter(n + 1, self._words.dialect) for n in range(count)], size)

    def _are(self, keys: Sequence[Row]) -> str:
        """Return the condition of the rows that have one of these keys, whose values come first."""
        key = self._table.key
        marks = self._marks(len(keys) * len(key), len(key))
        return " OR ".join(f"({texts.equal(key, mark, self._words.same)})" for mark in marks)

    def _current(self, keys: Sequence[Row]) -> dict[bytes, Row | None]:
        """Return the rows with these keys as they are now, and lock them."""
        found: dict[bytes, Row | None] = {place(key): None for key in keys}
        head = self._select(self._columns, self._table.name)
        for part in batched(keys, self._at_once):
            text = f"{head} WHERE {self._are(part)}{self._words.lock}"
            for row in self._changes.image(Bound(text, tuple(chain(*part)))):
                found[place(row[: len(self._table.key)])] = row
        return found

    def _select(self, columns: Sequence[str], table: str) -> str:
        return texts.select(columns, texts.named(table), cast=texts.CAST[self._words.dialect])

    def _children(self, rows: Sequence[Back]) -> list[RowConflict]:
        """Return rows of others that would go with an inserted row, by a foreign key, if it were removed."""
        found = []
        for child in self._table.children:
            if "delete" not in child.carries_on:
                continue
            (marks,) = self._marks(len(child.columns), len(child.columns))
            text = f"{self._select(child.columns, child.child)} WHERE {texts.equal(child.columns, marks)} LIMIT 1"
            for back in rows:
                if back.how == "delete":
                    values: tuple[Any, ...] = tuple(
                        back.row[self._columns.index(name)] for name in child.parent_columns
                    )
                    if hit := self._changes.image(Bound(text, values)):
                        found.append(RowConflict(back.key, None, back.row, hit[0]))
        return found
