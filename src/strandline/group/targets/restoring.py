"""Decides how to put rows back. Pure. Each row that a step changed has three images: before, after, and as it is now.

    now is            what is done
    as before         nothing
    as after          the row is put back: inserted, removed, or its changed columns set
    another           somebody else wrote it since: `fail`, `keep_current` or `overwrite` decides

Only the columns that the step can change are compared and put back, the others are their writers'; a row that the step
inserted or removed is compared whole. Values are compared as they are encoded: 1 is not 1.0, NaN is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import orjson

from strandline.group.points import reached
from strandline.group.target import Image, OnConflict, RowConflict

T = TypeVar("T")
Row = tuple[Any, ...]


class Back(NamedTuple):
    """One row to put back."""

    how: Literal["insert", "update", "delete"]
    key: Row
    row: Row
    """All columns of the before-image; of a `delete`, of the after-image."""


class Restoration(NamedTuple):
    rows: list[Back]
    conflicts: list[RowConflict]


def keys_of(*images: Image) -> list[Row]:
    """Return all keys in these images, each once."""
    found = {place(row[: image.keys]): row[: image.keys] for image in images for row in image.rows}
    return list(found.values())


def place(key: Sequence[Any]) -> bytes:
    """Return a key in a form that can be a key of a dictionary."""
    return orjson.dumps(key)


def restoration(
    before: Image,
    after: Image,
    current: Mapping[bytes, Row | None],
    changed: Sequence[str],
    on_conflict: OnConflict,
) -> Restoration:
    """Return what to do to each row; with `fail`, conflicts mean that nothing is to be done at all. `current`: the rows
    as they are, by `place`."""
    compared = [number for number, name in enumerate(before.columns or after.columns) if name in changed]
    olds, news = _by_key(before), _by_key(after)
    made = Restoration([], [])
    for key in keys_of(before, after):
        old, new = olds.get(place(key)), news.get(place(key))
        now = current.get(place(key))
        whole = old is None or new is None
        if _same(now, old, compared, whole):
            continue
        if not _same(now, new, compared, whole):
            reached("group.row_gone_meanwhile" if now is None else "group.row_written_by_others")
            made.conflicts.append(RowConflict(key, old, new, now))
            if on_conflict != "overwrite":
                continue
        if old is None:
            made.rows.append(Back("delete", key, new or ()))
        else:
            made.rows.append(Back("update" if now is not None else "insert", key, old))
    return made


def in_order(rows: Sequence[Back]) -> list[list[Back]]:
    """Return the rows that are put back in one way together; those that make room come first."""
    removed, added = ([row for row in rows if row.how == how] for how in ("delete", "insert"))
    return [removed, *([row] for row in rows if row.how == "update"), added]


def batched(items: Sequence[T], size: int) -> list[tuple[T, ...]]:
    """Return items in tuples of at most this size."""
    return [tuple(items[start : start + size]) for start in range(0, len(items), size)]


def _by_key(image: Image) -> dict[bytes, Row]:
    return {place(row[: image.keys]): row for row in image.rows}


def _same(one: Row | None, other: Row | None, compared: Sequence[int], whole: bool) -> bool:
    if one is None or other is None:
        return one is other
    if not whole:
        one, other = tuple(one[n] for n in compared), tuple(other[n] for n in compared)
    return orjson.dumps(one) == orjson.dumps(other)
