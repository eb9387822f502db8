"""States of keys as JSON, each with a digest: the head of a key that lives, or what is left of one that was purged.

A state is trusted only if it is as it was written. If a state has another digest, or cannot be read, a writer makes it
anew from the store and the tail (`ActionDraft.known`), else the append of that writer fails. A log that follows another
log has no digest for the states of purged keys, because their names are not kept: these are trusted as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

import orjson

from strandline.values.heads import EndedLife, Head, State, remembered_in, remembered_values


class DamagedHead(Exception):
    """A stored head is not as it was written."""


def state_text(state: Head | EndedLife) -> str:
    """Return a state as one text."""
    if isinstance(state, EndedLife):
        return orjson.dumps(tuple(state)).decode()
    return orjson.dumps((*state[:-2], *remembered_values(state.given, state.generated))).decode()


def seeded_head(known: tuple[bytes, str | None, Head | EndedLife]) -> tuple[bytes, str, int | None]:
    """Return a key's digest, its state as text, and the digest of that text: None where the key's name is unknown."""
    digest, key, state = known
    text = state_text(state)
    return digest, text, None if key is None else state_digest(key, text)


def state_in(text: str | bytes) -> State:
    """Return the state that `state_text` wrote; `DamagedHead` if it is none."""
    try:
        fields = orjson.loads(text)
        if len(fields) == len(EndedLife._fields):
            return EndedLife(*fields)
        *numbers, given, generated = fields
        return Head._make((*numbers, *remembered_in(given, generated)))
    except (ValueError, TypeError):
        raise DamagedHead from None


def state_digest(key: str, text: str, beside: str = "()") -> int:
    """Return a checksum of the text of a key's state, and of what else the state is made from."""
    return crc32(f"{key} {beside} {text}".encode())


def states_in(found: Iterable[tuple[str, str, int | None]]) -> tuple[dict[str, State], set[str]]:
    """Return the states of keys, each found with its text and digest, and the keys whose state is damaged."""
    states: dict[str, State] = {}
    damaged: set[str] = set()
    for key, text, digest in found:
        try:
            if digest is not None and digest != state_digest(key, text):
                raise DamagedHead
            states[key] = state_in(text)
        except DamagedHead:
            damaged.add(key)
    return states, damaged
