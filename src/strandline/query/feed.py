"""The bounded feed: what all queries over the store share.

    bound ──▶ page up to it ──▶ judged by the query ──▶ events, as they are asked for
      ▲                │ no more
      └── live: wait ──┘

A page is read when its first row is asked for. Between pages no statement is open, and at most two pages are in memory.
A current query takes its bound once, at its first read, and ends there. A live query goes on when the bound has moved,
and waits while the store is away. `close` ends every wait.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Event as Flag
from typing import Any, Final, Generic, NamedTuple, TypeVar

from strandline.closed_at_end import ClosedAtEnd
from strandline.errors import Unavailable
from strandline.points import reached

PAGE_BYTES: Final = 8 * 2**20
"""A page ends when its events have this many bytes."""
RETRY_LEAST_S: Final = 0.1
RETRY_MOST_S: Final = 5.0

E = TypeVar("E")
T = TypeVar("T")


class FeedPage(NamedTuple):
    """Rows in the order of a query, and whether there are more rows up to the bound."""

    rows: Sequence[Any]
    more: bool


class QueryClosed(Exception):
    """The query was closed while it waited."""


class Pace:
    """The clock and the waits of a query. Tests give one that plays a schedule instead."""

    def __init__(self) -> None:
        self._end = Flag()

    def now_s(self) -> float:
        """Return the seconds of a monotonic clock."""
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        """Wait; `QueryClosed` if the query is closed meanwhile."""
        if self._end.wait(seconds):
            raise QueryClosed

    def end(self) -> None:
        """End this wait and all later ones."""
        self._end.set()

    @property
    def ended(self) -> bool:
        return self._end.is_set()


class Feed(ClosedAtEnd, Generic[E]):
    """The events of a query: an iterator, and a context manager that ends it."""

    def __init__(self, *, live: bool, pace: Pace | None = None) -> None:
        self._live = live
        self._pace = pace or Pace()
        self._last: E | None = None
        self._closed = False
        self._events = self._delivered()
        self.back_tracks = 0
        """How often a query without the strandline read the rows behind its place again."""
        self.retries = 0
        """How often a live query asked again because the store was away."""

    @property
    @abstractmethod
    def resume_offset(self) -> Any:
        """The offset behind the last event that was handed out; None at the start of a query without offset."""

    @abstractmethod
    def _pages(self) -> Iterator[Iterable[E]]:
        """Yield the events, page by page."""

    def _delivered(self) -> Iterator[E]:
        try:
            for page in self._pages():
                for event in page:
                    if self._closed:
                        return
                    self._last = event
                    yield event
        except QueryClosed:
            return

    def __iter__(self) -> Iterator[E]:
        return self._events

    def __next__(self) -> E:
        return next(self._events)

    def close(self) -> None:
        """End the query, also from another thread. Twice is harmless."""
        self._closed = True
        self._pace.end()

    def _ask(self, call: Callable[[], T]) -> T:
        """Return the store's answer. While the store is away, a live query asks again; a current one raises
        `Unavailable` with the offset to resume at.
        """
        pause_s = RETRY_LEAST_S
        while True:
            try:
                return call()
            except Unavailable as error:
                if not (self._live and error.retryable):
                    error.facts["resume_offset"] = self.resume_offset
                    raise
            reached("feed.away")
            self.retries += 1
            self._pace.pause(pause_s)
            pause_s = min(2 * pause_s, RETRY_MOST_S)

    def _bounded(
        self,
        read: Callable[[Any, int], FeedPage],
        place: Any,
        place_of: Callable[[Any], Any],
        *,
        bound: Callable[[], int],
        moved: Callable[[], int],
        to: int,
        pause_s: Callable[[], float],
    ) -> Iterator[Sequence[Any]]:
        """Yield pages after `place`: `read` gives one, up to a timestamp.

        `bound` is read before the rows; `moved` may be a little older, and is asked again after `pause_s`. If the bound
        goes back, because the store was restored from a backup, the query waits until it has caught up.
        """
        done_to = min(self._ask(bound), to)
        while True:
            rows, more = self._ask(lambda: read(place, done_to))  # noqa: B023 (called at once)
            if rows:
                place = place_of(rows[-1])
                yield rows
            if more:
                continue
            if not self._live or done_to >= to:
                return
            while (now := min(self._ask(moved), to)) <= done_to:
                self._pace.pause(pause_s())
            done_to = now
