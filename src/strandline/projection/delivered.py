"""An event as a handler gets it."""

from __future__ import annotations

from typing import Final
from uuid import UUID, uuid5

from strandline.query.query_row import QueryRow
from strandline.values.events import EventCells, Life, RecordedEvent

_IDS: Final = UUID("5f6b1f6e-6f0c-5d0b-9a51-0f3f2a9c7d11")


class DeliveredEvent(RecordedEvent):
    """An event that a projection hands over. Its row is decoded when an attribute is first read."""

    __slots__ = ("_found", "_projection", "_row")

    def __init__(self, life: Life, row: QueryRow, projection: str) -> None:
        self._life, self._row, self._projection = life, row, projection
        self._found: EventCells | None = None

    @property
    def _cells(self) -> EventCells:  # type: ignore[override]
        if self._found is None:
            self._found = self._row.cells
        return self._found

    def derived_id(self, n: int = 0) -> UUID:
        """Return an id that is the same at every delivery, and differs between projections and between values of `n`. A
        handler that appends gives it as the append id: the append is then stored once, however often the event is
        delivered.
        """
        return uuid5(_IDS, f"{self._projection}\0{self._life.key}\0{self.life}\0{self.seq_nr}\0{n}")
