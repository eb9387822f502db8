"""Tag offsets: the place of an event in a tag view, to go on from later."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from functools import total_ordering
from typing import Any, Final, NamedTuple
from zlib import crc32

import orjson

from strandline.errors import invalid
from strandline.values.tag_rows import Place, TagRow

PREFIX: Final = "t1."
OTHERS: Final = '["slices'
"""How offsets of queries by slices begin."""
_ALLOWED: Final = "the offset of an event of this query, or its text"


@total_ordering
class TagOffset:
    """The place behind which a query by tag goes on: strictly after it. It has its tag, its history, and the row's
    number.

    `str` gives a text that `TagOffset.parse` reads.
    """

    __slots__ = ("_life", "_of", "_place", "_tag_seq_nr")

    def __init__(self, of: TagView, place: Place, life: int, tag_seq_nr: int) -> None:
        self._of, self._place, self._life, self._tag_seq_nr = of, place, life, tag_seq_nr

    @property
    def tag(self) -> str:
        return self._of.tag

    @property
    def history_id(self) -> str:
        return self._of.history_id

    @property
    def timestamp(self) -> int:
        return self._place[0]

    @property
    def key(self) -> str:
        """The key of the row; empty if the offset stands before all rows of its time."""
        return self._place[1]

    @property
    def seq_nr(self) -> int:
        return self._place[2]

    @property
    def life(self) -> int:
        return self._life

    @property
    def tag_seq_nr(self) -> int:
        return self._tag_seq_nr

    @property
    def place(self) -> Place:
        return self._place

    @classmethod
    def of_row(cls, of: TagView, row: Any) -> TagOffset:
        """Return the offset of a row."""
        return cls(of, (row[2], row[3], row[9]), row[4], row[5])

    @classmethod
    def before(cls, of: TagView, timestamp: int) -> TagOffset:
        """Return the offset that stands before all rows of a time."""
        return cls(of, (timestamp, "", 0), 0, 0)

    @classmethod
    def parse(cls, text: str, field: str = "after") -> TagOffset:
        """Return the offset that a text stands for; `InvalidInput.offset_format` for any other text."""
        if not isinstance(text, str):
            raise invalid("offset_format", field, "not an offset", allowed=_ALLOWED, got=text)
        prefix, dot, packed = text.partition(".")
        if text.startswith(OTHERS):
            raise invalid("offset_foreign", field, "of another kind of query", allowed=_ALLOWED, got=text)
        try:
            data = urlsafe_b64decode(packed.encode("ascii"))
            if prefix + dot != PREFIX or crc32(data[4:]) != int.from_bytes(data[:4]):
                raise ValueError
            tag, history_id, timestamp, key, seq_nr, life, tag_seq_nr = orjson.loads(data[4:])
        except (BadBase64, ValueError):
            raise invalid("offset_format", field, "not an offset", allowed=_ALLOWED, got=text) from None
        return cls(TagView(tag, history_id), (timestamp, key, seq_nr), life, tag_seq_nr)

    def check(self, of: TagView, field: str = "after") -> TagOffset:
        """Return this offset; `InvalidInput.offset_foreign` if it is of another tag or history."""
        if self._of.tag != of.tag:
            raise invalid(
                "offset_foreign", field, f"of tag {self.tag!r}", allowed=f"an offset of tag {of.tag!r}", got=self
            )
        if self._of.history_id != of.history_id:
            raise invalid("offset_foreign", field, "of another history", allowed="an offset of this history", got=self)
        return self

    def __str__(self) -> str:
        data = orjson.dumps((*self._of, *self._place, self._life, self._tag_seq_nr))
        return PREFIX + urlsafe_b64encode(crc32(data).to_bytes(4) + data).decode()

    def __repr__(self) -> str:
        return f"TagOffset({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TagOffset) and (self._of, self._place) == (other._of, other._place)

    def __lt__(self, other: TagOffset) -> bool:
        return self._place < other._place

    def __hash__(self) -> int:
        return hash((self._of, self._place))

    def __reduce__(self) -> tuple[Any, ...]:
        return TagOffset.parse, (str(self),)


class TagView(NamedTuple):
    """The view that an offset belongs to."""

    tag: str
    history_id: str


def place_of(row: TagRow | Any) -> Place:
    """Return where a row is in its view."""
    return row[2], row[3], row[9]
