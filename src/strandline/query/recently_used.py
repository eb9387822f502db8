"""A table that remembers what was used lately, and forgets the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class RecentlyUsed(Generic[V]):
    """At most `most` entries. Two tables take turns: what is used moves into the young one; the old one is forgotten.

    So at least the half that was used last is there, and nothing is moved about while there is room.
    """

    def __init__(self, most: int) -> None:
        self._half = max(1, most // 2)
        self._young: dict[str, V] = {}
        self._old: dict[str, V] = {}

    def get(self, key: str) -> V | None:
        """What is remembered of a key."""
        found = self._young.get(key)
        if found is None and self._old:
            found = self._old.pop(key, None)
            if found is not None:
                self[key] = found
        return found

    def used_last(self) -> Callable[[str], V | None]:
        """A look at the young ones alone, as quick as can be; it holds until a key is added or got."""
        return self._young.get

    def __setitem__(self, key: str, value: V) -> None:
        if len(self._young) >= self._half and key not in self._young:
            self._young, self._old = {}, self._young
        self._young[key] = value

    def forget(self, key: str) -> None:
        """Forget one."""
        self._young.pop(key, None)
        self._old.pop(key, None)

    def clear(self) -> None:
        """Forget all."""
        self._young, self._old = {}, {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old.keys() - self._young.keys())
