"""A rich offset: a time, and which events of that time were shown already.

All events below its timestamp are done. Of the events at that very time, those of a key in `seen` are done up to the
number given there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

import orjson

from strandline.errors import InvalidInput, invalid

_FORMAT: Final = "slices1"
Shown = tuple[Any, str, int, int] | None
"""The events of one time that were shown, as a linked list: (the list before, key, life, seq_nr). So an offset for each
of them costs little.
"""


class RichOffset:
    """The place of a query by slices. It has the entity type and the history, so that it is refused in another query or
    store.
    """

    __slots__ = ("entity_type", "history", "shown", "timestamp")

    def __init__(self, entity_type: str, history: str, timestamp: int, shown: Shown = None) -> None:
        self.entity_type, self.history, self.timestamp, self.shown = entity_type, history, timestamp, shown

    @classmethod
    def of(cls, entity_type: str, history: str, timestamp: int, seen: Mapping[str, tuple[int, int]]) -> Self:
        """Return the offset with these events shown: key -> (life, seq_nr)."""
        shown: Shown = None
        for key, (life, seq_nr) in seen.items():
            shown = (shown, key, life, seq_nr)
        return cls(entity_type, history, timestamp, shown)

    @property
    def seen(self) -> dict[str, tuple[int, int]]:
        """The events at `timestamp` that were shown: key -> (life, seq_nr)."""
        found: dict[str, tuple[int, int]] = {}
        shown = self.shown
        while shown is not None:
            shown, key, life, seq_nr = shown
            found.setdefault(key, (life, seq_nr))
        return dict(reversed(found.items()))

    def __str__(self) -> str:
        parts = [_FORMAT, self.entity_type, self.history, self.timestamp, self.seen]
        return orjson.dumps(parts).decode()

    def __repr__(self) -> str:
        return f"RichOffset({self!s})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RichOffset) and self._whole() == other._whole()

    def __hash__(self) -> int:
        return hash((self.entity_type, self.history, self.timestamp))

    def _whole(self) -> tuple[Any, ...]:
        return self.entity_type, self.history, self.timestamp, self.seen

    @classmethod
    def parse(cls, text: object) -> Self:
        """Parse its text form; `InvalidInput.offset_format` for anything else."""
        try:
            form, entity_type, history, timestamp, seen = orjson.loads(text)  # type: ignore[arg-type]
            pairs = {key: (life, seq_nr) for key, (life, seq_nr) in seen.items()}
        except (TypeError, ValueError, AttributeError, orjson.JSONDecodeError):
            raise _garbage(text) from None
        numbers = [timestamp, *(number for pair in pairs.values() for number in pair)]
        whole = all(type(number) is int and 0 <= number < 2**63 for number in numbers)
        if form != _FORMAT or not isinstance(entity_type, str) or not isinstance(history, str) or not whole:
            raise _garbage(text)
        return cls.of(entity_type, history, timestamp, pairs)

    @classmethod
    def checked(cls, given: object, entity_type: str, history: str) -> Self:
        """Return an offset as a caller gives it; `InvalidInput.offset_foreign` for one of another query or store."""
        offset = given if isinstance(given, cls) else cls.parse(given)
        for field, its, ours in (
            ("entity type", offset.entity_type, entity_type),
            ("history", offset.history, history),
        ):
            if its != ours:
                raise invalid("offset_foreign", "after", f"of another {field}", allowed=f"an offset of {ours}", got=its)
        return offset


def _garbage(text: object) -> InvalidInput:
    return invalid("offset_format", "after", "no offset", allowed="what a query by slices gave", got=text)
