"""Reads heads and ended lives from Cassandra, many at a time.

Both are partitioned by the key's slice, so the states of a batch of keys are a few hundred queries, not one per key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from strandline.backends.cassandra import Session
from strandline.backends.cassandra.writing import values_in
from strandline.store.heads import ended_in, ended_place, head_in, key_place
from strandline.store.tables import ENDED, METAJOURNAL
from strandline.values.heads import EndedLife, Head

KEYS_A_QUERY: Final = 100
_KEY, _OFFSET, _BESIDE = METAJOURNAL.at("key"), METAJOURNAL.at("log_offset"), len(METAJOURNAL.columns) + 1
_T = TypeVar("_T")


class HeadRows(NamedTuple):
    """The rows of a key: its head row, even if an ended life covers it, and its last ended life."""

    head: Head | None
    ended: EndedLife | None


def find(session: Session, key: str) -> HeadRows:
    """Return both rows of one key, asked for at the same time."""
    queries = (("head", key_place(key)), ("ended", ended_place(key)))
    heads, lives = session.each(queries)
    return HeadRows(head_of(heads[0]) if heads else None, ended_of(lives[0]) if lives else None)


def find_heads(session: Session, keys: Iterable[str]) -> dict[str, Head]:
    """Return the head rows of these keys that are there."""
    queries = (("heads", (*place, some)) for place, some in _by_place(keys))
    rows = (row for rows in session.each(queries) for row in rows)
    return {row[_KEY]: head for row in rows if (head := head_of(row)) is not None}


def find_ended(session: Session, keys: Iterable[str]) -> dict[str, EndedLife]:
    """Return the last ended lives of these keys."""
    digests: dict[bytes, str] = {}
    by_slice: defaultdict[int, list[bytes]] = defaultdict(list)
    for key in keys:
        slice_, digest = ended_place(key)
        digests[digest] = key
        by_slice[slice_].append(digest)
    queries = (("ended_of", (slice_, some)) for slice_, all_ in by_slice.items() for some in _chunks(all_))
    rows = (row for rows in session.each(queries) for row in rows)
    return {digests[row[1]]: ended_of(row) for row in rows}


def _by_place(keys: Iterable[str]) -> Iterator[tuple[tuple[str, int], list[str]]]:
    places: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for key in keys:
        places[key_place(key)[:2]].append(key)
    for place, all_ in places.items():
        for some in _chunks(all_):
            yield place, some


def _chunks(items: list[_T]) -> Iterator[list[_T]]:
    for start in range(0, len(items), KEYS_A_QUERY):
        yield items[start : start + KEYS_A_QUERY]


# ---------------------------------------------------------------- rows


def head_of(row: Sequence[Any]) -> Head | None:
    """Return the head in a row of `metajournal`, with the archive's columns; None for a row that only hides events so
    far."""
    if row[_OFFSET] is None:
        return None
    hidden_to, archive_life, archive_to = row[_BESIDE:]
    head = head_in(METAJOURNAL.read(values_in(METAJOURNAL, row)), archive_life, archive_to)
    if hidden_to is not None and hidden_to > head.delete_to:
        head = head._replace(delete_to=hidden_to)
    return head


def ended_of(row: Sequence[Any]) -> EndedLife:
    """Return the ended life in a row."""
    return ended_in(ENDED.read(row))
