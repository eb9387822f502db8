"""Converts heads and ended lives to rows and back, and makes the state of a key from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from strandline.points import reached
from strandline.store.tables import EndedRow, HeadRow
from strandline.values.heads import EndedLife, Head, State, remembered_in, remembered_values
from strandline.values.keys import key_digest, slice_of
from strandline.values.tuples import new_tuple


def key_place(key: str) -> tuple[str, int, str]:
    """Return the place of a key's head row: entity type, slice, key."""
    return key.partition("|")[0], slice_of(key), key


def head_row(key: str, head: Head) -> HeadRow:
    """Return the row of a head."""
    (seq_nr, delete_to, life, partition, offset, created, updated, expire_after_us, expire_at, segment_size, _, prev,
     removed_to, given, generated) = head  # fmt: skip
    remembered = orjson.dumps(remembered_values(given, generated)).decode()
    return new_tuple(HeadRow, (
        key.partition("|")[0], slice_of(key), key, seq_nr, delete_to, life, partition, offset, created, updated,
        expire_after_us, expire_at, segment_size, prev, removed_to, remembered,
    ))  # fmt: skip


def head_in(row: Sequence[Any], archive_life: int | None = None, archive_to: int | None = None) -> Head:
    """Return the head in a row. An `archived_to` of another life is left out."""
    (_, _, _, seq_nr, delete_to, life, partition, offset, created, updated, expire_after_us, expire_at, segment_size,
     prev, removed_to, text) = row  # fmt: skip
    given, generated = remembered_in(*orjson.loads(text))
    return new_tuple(Head, (
        seq_nr, delete_to, life, partition, offset, created, updated, expire_after_us, expire_at, segment_size,
        archive_to or 0 if archive_life == life else 0, prev, removed_to,
        given, generated,
    ))  # fmt: skip


def ended_row(key: str, ended: EndedLife) -> EndedRow:
    """Return the row of an ended life. It contains neither the key nor any of its data."""
    return EndedRow(slice_of(key), key_digest(key), *ended)


def ended_in(row: Sequence[Any]) -> EndedLife:
    """Return the ended life in a row."""
    return EndedLife(*row[2:5])


def ended_place(key: str) -> tuple[int, bytes]:
    """Return the place of a key's row in the table of ended lives."""
    return slice_of(key), key_digest(key)


def state_of(head: Head | None, ended: EndedLife | None) -> State:
    """Return the state of a key. A head that an ended life covers does not count."""
    if ended is not None and (head is None or head.life <= ended.life):
        if head is not None:
            reached("heads.hidden_by_an_ended_life")
        return ended
    return head
