"""The read plan: which events a key's journal has, and where they are read from. Pure: values in, values out.

    mark m        where the log ended when the read began
    pointer p     how far the store is;  h  the store's state of the key, taken after p
    (p, m]        the unreplicated tail, folded on h by headers alone:  H, and the appends accepted in H's life

    H none            nothing to read
    start             max(from_, H.delete_to + 1)
    end               min(to, H.seq_nr)
    from the store    start..h.seq_nr, if H is of h's life
    from the tail     what the tail appended above that

The store may be ahead of p, key by key; the fold passes over what its state already has. Nothing may be shown before
the tail was searched: its last action may be a Delete or a Purge.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from strandline.journal.tail import KeyTail
from strandline.values.heads import SEQ_NR_MAX, Head, State


class ReadPlan(NamedTuple):
    """A plan of a read: `start`..`end` of `head`'s life, first what the store has of it (`stored`), then the tail."""

    key: str
    partition: int
    mark: int
    head: Head | None
    stored: Head | None
    """The store's head, if it is of the same life."""
    tail: KeyTail | None
    start: int
    end: int
    state: State
    """The state that `head` is part of."""

    def narrowed(self, from_: int) -> ReadPlan:
        """Return the plan for a part of the read."""
        return self._replace(start=max(self.start, from_))


def plan(
    key: str, partition: int, mark: int, state: State, tail: KeyTail | None, *, from_: int = 1, to: int = SEQ_NR_MAX
) -> ReadPlan:
    """Return the plan from the store's state and the tail folded on it: none where the pointer has passed the mark."""
    final = tail.state if tail is not None else state
    head = final if isinstance(final, Head) else None
    if head is None:
        return ReadPlan(key, partition, mark, None, None, None, from_, 0, final)
    stored = state if isinstance(state, Head) and state.life == head.life else None
    start, end = max(from_, head.delete_to + 1), min(to, head.seq_nr)
    return ReadPlan(key, partition, mark, head, stored, tail, start, end, final)


def chained_down(rows: Iterable[tuple[Any, ...]], wanted: int) -> tuple[int, int]:
    """Follow the chain from `wanted` down through rows, the last one first: return its length in them, and the next
    number.

    Each event names the one before it. Where no event above is known, `wanted` is only an upper bound.
    """
    count = 0
    for seq_nr, prev, _, _ in rows:
        if seq_nr != wanted or prev >= seq_nr:
            break
        wanted = prev
        count += 1
    return count, wanted


def chained(rows: Iterable[tuple[Any, ...]], wanted: int) -> tuple[int, int]:
    """Return the number wanted after these rows, and the number of an event that the chain names but is missing, or
    0."""
    for seq_nr, prev, _, _ in rows:
        if not prev < wanted <= seq_nr:
            return wanted, prev
        wanted = seq_nr + 1
    return wanted, 0
