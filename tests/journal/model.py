"""What a journal should say, kept as plainly as can be: one object per key, no log, no store, no fold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Life:
    """A key from its first append, or reset, to its purge."""

    number: int
    seq_nr: int = 0
    delete_to: int = 0
    events: list[tuple[int, int, Any]] = field(default_factory=list)
    """seq_nr, prev_seq_nr, payload of what is still there."""


@dataclass
class Model:
    """One key. Each call answers as the Journal should: what it returns, or "conflict"."""

    life: Life | None = None
    ended: int = 0

    def append(self, payloads: list[Any], *, expected: int | None = None, first: int | None = None) -> Any:
        at = self.life.seq_nr if self.life else 0
        if expected is not None and expected != at:
            return ("conflict", at)
        if self.life and first is not None and first <= self.life.seq_nr:
            return ("conflict", at)
        if self.life is None:
            self.life = Life(self.ended + 1, (first or 1) - 1, (first or 1) - 1)
        life = self.life
        number = first or life.seq_nr + 1
        begin, prev = number, life.seq_nr
        for payload in payloads:
            life.events.append((number, prev, payload))
            prev, number = number, number + 1
        life.seq_nr = number - 1
        return (begin, number - 1)

    def delete(self, to: int, *, reset: bool = False) -> int | None:
        if self.life is None:
            if not reset:
                return None
            self.life = Life(self.ended + 1, to, to)
            return to
        life = self.life
        life.delete_to = max(life.delete_to, min(to, life.seq_nr))
        life.events = [event for event in life.events if event[0] > life.delete_to]
        return life.delete_to

    def purge(self) -> None:
        if self.life is not None:
            self.ended, self.life = self.life.number, None

    def read(
        self, from_: int = 1, to: int | None = None, *, limit: int | None = None, backwards: bool = False
    ) -> list[tuple[int, int, Any]]:
        kept = self.life.events if self.life else []
        found = [event for event in kept if from_ <= event[0] and (to is None or event[0] <= to)]
        return (found[::-1] if backwards else found)[:limit]

    def head(self) -> tuple[int, int, int] | None:
        """seq_nr, delete_to, life."""
        return (self.life.seq_nr, self.life.delete_to, self.life.number) if self.life else None
