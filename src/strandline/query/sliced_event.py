"""An event as a query by slices hands it out."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any, Final, Union

from strandline.query.rich_offset import RichOffset, Shown
from strandline.values.events import BODY_VERSION, EventCells, Life, RecordedEvent, placed_cells
from strandline.values.payloads import BYTES, JSON

Before = Union["SlicedEvent", tuple[Any, Any], RichOffset]
"""The rows of an event's time that come before it, as a linked list that ends at the start of the query. A link is the
event before, or a pair of the list before and a row. So the offset of an event costs nothing until it is asked for.
"""
_BRIEF: Final = struct.Struct("<BqqB10xq28xI").unpack_from  # version, seq_nr, prev_seq_nr, form, timestamp, payload_at


class SlicedEvent(RecordedEvent):
    """A recorded event, with its place in a query by slices. Its body is decoded at the first use."""

    __slots__ = ("_before", "_row")

    def __init__(self, life: Life, row: Sequence[Any], before: Before) -> None:
        self._life, self._row, self._before = life, row, before

    @property
    def _cells(self) -> EventCells:  # type: ignore[override]
        timestamp, seq_nr, _, _, prev, body, digest = self._row
        return placed_cells(timestamp, seq_nr, prev, body, digest)

    @property
    def seq_nr(self) -> int:
        return self._row[1]  # type: ignore[no-any-return]

    @property
    def prev_seq_nr(self) -> int:
        return self._row[4]  # type: ignore[no-any-return]

    @property
    def payload(self) -> Any:
        # As in `RecordedEvent`, with the time checked, too. It is inlined because a reader of many events calls it for
        # each.
        timestamp, seq_nr, _, _, prev, body, digest = self._row
        try:
            if zlib.crc32(body, self._life.seed) == digest:
                version, number, before, form, at, payload_at = _BRIEF(body)
                if number == seq_nr and before == prev and at == timestamp and form <= JSON and version == BODY_VERSION:
                    data = body[payload_at:]
                    return data if form == BYTES else self._loaded(data)
        except (TypeError, struct.error):
            pass
        raise self._damage()

    @property
    def offset(self) -> RichOffset:
        return offset_at(self._row[0], self)

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON values."""
        return {**super().to_dict(), "offset": str(self.offset)}


class EarlierEvent(SlicedEvent):
    """An event that was found by looking back: it lies before the place of the query, and does not move it."""

    __slots__ = ("_offset",)

    def __init__(self, life: Life, row: Sequence[Any], offset: RichOffset) -> None:
        super().__init__(life, row, offset)
        self._offset = offset

    @property
    def offset(self) -> RichOffset:
        return self._offset


def offset_at(timestamp: int, passed: Before) -> RichOffset:
    """Return the offset behind these rows of a time."""
    rows: list[Any] = []
    while not isinstance(passed, RichOffset):
        passed, row = passed if isinstance(passed, tuple) else (passed._before, passed._row)
        rows.append(row)
    shown: Shown = passed.shown if timestamp == passed.timestamp else None
    for _, seq_nr, key, life, *_ in reversed(rows):
        shown = (shown, key, life, seq_nr)
    return RichOffset(passed.entity_type, passed.history, timestamp, shown)
