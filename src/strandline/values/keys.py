"""A key names a journal: `Key("order", "42")`, written `order|42`."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from strandline.errors import InvalidInput, invalid

SLICES = 1024
KEY_BYTES_MAX = 512


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """The name of a journal. It is kept byte for byte: no case folding, no Unicode normalisation, never a path."""

    entity_type: str
    entity_id: str

    def __post_init__(self) -> None:
        for field, part in (("entity_type", self.entity_type), ("entity_id", self.entity_id)):
            if not isinstance(part, str):
                raise invalid("key_type", f"key.{field}", "not text", allowed="text", got=part)
            if type(part) is not str:  # a member of a text enumeration is equal to its text, but not written like it
                object.__setattr__(self, field, str.__str__(part))
            if not part:
                raise invalid("invalid_key", f"key.{field}", "empty", allowed="1 character or more", got=part)
            if not part.isprintable() and (bad := _control(part)):
                raise invalid(
                    "invalid_key",
                    f"key.{field}",
                    f"control character U+{ord(bad):04X}",
                    allowed="text without control characters",
                    got=part,
                )
        if "|" in self.entity_type:
            raise invalid("invalid_key", "key.entity_type", "has a |", allowed="text without |", got=self.entity_type)
        try:
            size = len(self.entity_type.encode()) + 1 + len(self.entity_id.encode())
        except UnicodeEncodeError:
            raise invalid(
                "invalid_unicode", "key", "lone surrogate", allowed="text that UTF-8 can carry", got=str(self)
            ) from None
        if size > KEY_BYTES_MAX:
            raise invalid(
                "key_too_long", "key", f"{size} bytes", allowed=f"at most {KEY_BYTES_MAX} bytes of UTF-8", got=str(self)
            )

    def __str__(self) -> str:
        return f"{self.entity_type}|{self.entity_id}"

    @property
    def slice(self) -> int:
        return slice_of(str(self))

    def partition(self, partitions: int) -> int:
        return partition_of(self.slice, partitions)

    @classmethod
    def of(cls, key: Key | str) -> Key:
        """Return a key as callers give it: a `Key`, or its written form."""
        if isinstance(key, Key):
            return key
        if not isinstance(key, str) or "|" not in key:
            raise invalid("key_type", "key", "not a key", allowed='a Key, or text "type|id"', got=key)
        entity_type, _, entity_id = key.partition("|")
        return cls(entity_type, entity_id)

    @classmethod
    def kept(cls, written: str) -> Key:
        """Return the key of a row: it was checked when it was appended, and a damaged one is given as it is."""
        key = object.__new__(cls)
        entity_type, _, entity_id = str(written).partition("|")
        object.__setattr__(key, "entity_type", entity_type)
        object.__setattr__(key, "entity_id", entity_id)
        return key


def slice_of(written: str) -> int:
    """Return the slice of a written key, 0..1023: the same for ever, whatever the number of partitions."""
    return zlib.crc32(written.encode()) % SLICES


def partition_of(slice_: int, partitions: int) -> int:
    """Return the partition that holds a slice: each holds a contiguous run of them."""
    return slice_ * partitions // SLICES


@lru_cache(maxsize=65536)
def key_partition(written: str, partitions: int) -> int:
    """Return the partition of a written key."""
    return partition_of(slice_of(written), partitions)


def key_digest(written: str) -> bytes:
    """Return the digest that is kept of a purged key: 16 bytes that do not tell the key."""
    return blake2b(written.encode(), digest_size=16).digest()


def is_key(written: object) -> bool:
    """Return whether this is the written form of a key that could have been accepted."""
    try:
        return isinstance(written, str) and str(Key.of(written)) == written
    except InvalidInput:
        return False


def _control(text: str) -> str:
    return next((c for c in text if c < " " or "\x7f" <= c <= "\x9f"), "")
