"""Heads and ended lives as Cassandra keeps them: where they stand, and many of them at a time.

Both are partitioned by the key's slice, so the states of a batch of keys are a few hundred queries, not one per key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from strandline.backends.cassandra import Session
from strandline.store.sql_rows import HEAD_COLUMNS, ended_row, head_row, key_place, state_of
from strandline.values.heads import Ended, Head, State
from strandline.values.keys import key_digest, slice_of

KEYS_A_QUERY: Final = 100
NO_EXPIRY: Final = -1
_EXPIRY: Final = slice(7, 9)
"""Where a head's columns may be None: expire_after_us, expire_at."""
_NOTHING: Final = (None,) * 4
_T = TypeVar("_T")


class KeyRows(NamedTuple):
    """What the tables have of a key: its head row, whatever an ended life says of it, and its last ended life."""

    head: Head | None
    ended: Ended | None

    @property
    def state(self) -> State:
        """A head that an ended life covers is none."""
        if self.ended is not None and (self.head is None or self.head.life <= self.ended.life):
            return self.ended
        return self.head


def find(session: Session, key: str) -> KeyRows:
    """Both rows of one key, asked for at the same time."""
    queries = (("head", key_place(key)), ("ended", (slice_of(key), key_digest(key))))
    heads, lives = session.each(queries)
    return KeyRows(head_of(heads[0]) if heads else None, ended_of(key, lives[0]) if lives else None)


def find_heads(session: Session, keys: Iterable[str]) -> dict[str, Head]:
    """The head rows of these keys that are there."""
    queries = (("heads", (*place, some)) for place, some in _by_place(keys))
    rows = (row for rows in session.each(queries) for row in rows)
    return {row[0]: head for row in rows if (head := head_of(row)) is not None}


def find_ended(session: Session, keys: Iterable[str]) -> dict[str, Ended]:
    """The last ended lives of these keys."""
    digests: dict[bytes, str] = {}
    by_slice: defaultdict[int, list[bytes]] = defaultdict(list)
    for key in keys:
        digest = key_digest(key)
        digests[digest] = key
        by_slice[slice_of(key)].append(digest)
    queries = (("ended_of", (slice_, some)) for slice_, all_ in by_slice.items() for some in _chunks(all_))
    rows = (row for rows in session.each(queries) for row in rows)
    return {key: ended_of(key, row) for row in rows if (key := digests[row[0]])}


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


def head_values(key: str, head: Head) -> list[Any]:
    """The values of a head's row: place, columns, digest."""
    values = list(head_row(key, head))
    values[3 + _EXPIRY.start : 3 + _EXPIRY.stop] = [
        NO_EXPIRY if value is None else value for value in values[3 + _EXPIRY.start : 3 + _EXPIRY.stop]
    ]
    return values


def head_of(row: Sequence[Any]) -> Head | None:
    """The head in a row of key, columns, digest, `hidden_to`; a row that only hides has none yet."""
    key, *columns, digest, hidden_to = row
    if columns[4] is None:  # log_offset
        return None
    columns[_EXPIRY] = [None if value == NO_EXPIRY else value for value in columns[_EXPIRY]]
    head = state_of((key, *columns, digest, *_NOTHING))
    if isinstance(head, Head) and hidden_to is not None and hidden_to > head.delete_to:
        head = head._replace(delete_to=hidden_to)
    return head if isinstance(head, Head) else None


def ended_values(key: str, ended: Ended) -> tuple[Any, ...]:
    """The values of an ended life's row."""
    return (slice_of(key), *ended_row(key, ended))


def ended_of(key: str, row: Sequence[Any]) -> Ended:
    """The ended life in a row of key digest, columns, digest."""
    found = state_of((key, *(None,) * (HEAD_COLUMNS + 1), *row[1:]))
    if not isinstance(found, Ended):
        raise TypeError(row)
    return found
