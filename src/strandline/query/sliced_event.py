"""An event as a query by slices hands it out."""

from __future__ import annotations

from typing import Any

from strandline.query.rich_offset import RichOffset, Shown
from strandline.values.events import Life, RecordedEvent


class SlicedEvent(RecordedEvent):
    """A recorded event, with its place in a query by slices."""

    __slots__ = ("_at",)

    def __init__(self, life: Life, cells: tuple[Any, ...], at: tuple[RichOffset, int, Shown]) -> None:
        """`at`: where the query began, the time of the place, and what was shown at that time."""
        self._life, self._cells, self._at = life, cells, at

    @property
    def offset(self) -> RichOffset:
        start, timestamp, shown = self._at
        return RichOffset(start.entity_type, start.history, timestamp, shown)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {**super().to_dict(), "offset": str(self.offset)}
