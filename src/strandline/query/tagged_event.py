"""An event as a query by tag hands it out."""

from __future__ import annotations

from typing import Any

from strandline.query.tag_offset import TagOffset, TagView
from strandline.values.events import Life, RecordedEvent


class TaggedEvent(RecordedEvent):
    """A recorded event, with its number under the tag and its place in the view."""

    __slots__ = ("_of", "_row")

    def __init__(self, of: TagView, life: Life, row: Any) -> None:
        self._of, self._row = of, row
        self._life, self._cells = life, row[9:]

    @property
    def tag(self) -> str:
        return self._of.tag

    @property
    def tag_seq_nr(self) -> int:
        """The event's number among the events of its key and life that have the tag, from 1."""
        return self._row[5]  # type: ignore[no-any-return]

    @property
    def offset(self) -> TagOffset:
        return TagOffset.of_row(self._of, self._row)

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON values."""
        return {**super().to_dict(), "tag": self.tag, "tag_seq_nr": self.tag_seq_nr, "offset": str(self.offset)}
