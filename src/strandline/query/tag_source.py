"""The protocol by which a query by tag reads its store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from strandline.query.feed import FeedPage
from strandline.query.tag_offset import TagView
from strandline.values.tag_rows import Place


class TagSource(Protocol):
    """The view of one tag. Rows come as `TagRow` or as plain tuples of its fields."""

    of: TagView
    bucket_us: int
    """How long a bucket is."""

    def page(self, after: Place, to: int, limit: int) -> FeedPage:
        """Return rows after a place, up to a timestamp, in order of their places."""

    def numbered(self, key: str, life: int, first: int, last: int, limit: int) -> Sequence[Any]:
        """Return rows of a key and life with these numbers, in their order, at most so many, from any bucket."""

    def there(self, places: Sequence[Place]) -> set[Place]:
        """Return which of these places have a row."""

    def ended(self, key: str, life: int) -> bool:
        """Return whether a life of a key is over: its rows were purged, or are about to be."""

    def strandline(self) -> int:
        """Return the bound, read now."""

    def strandline_within(self, age_s: float) -> int:
        """Return the bound, read at most so long ago."""

    def now(self) -> int:
        """Return the store's clock, in microseconds."""
