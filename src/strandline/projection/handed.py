"""An event as a handler gets it."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID, uuid5

from strandline.values.events import Life, RecordedEvent

_IDS: Final = UUID("5f6b1f6e-6f0c-5d0b-9a51-0f3f2a9c7d11")


class HandedEvent(RecordedEvent):
    """An event that a projection hands over."""

    __slots__ = ("_projection",)

    def __init__(self, life: Life, cells: tuple[Any, ...], projection: str) -> None:
        super().__init__(life, cells)
        self._projection = projection

    def derived_id(self, n: int = 0) -> UUID:
        """The same at every delivery, another for each projection and n.

        Given as the append id of what a handler appends, it is stored once, however often the event is handed over.
        """
        return uuid5(_IDS, f"{self._projection}\0{self._life.key}\0{self.life}\0{self.seq_nr}\0{n}")
