"""The bounded memory of keys that a query or a projection has met.

    hold(keys of a page) ──▶ the page is judged ──▶ hold(keys of the next page) ──▶ …
      └ keys are forgotten here, and nowhere else: those that were used longest ago

The keys of a page stay until the next page. So each of them is either known throughout, or was unknown when the page
began: then `hold` returns it, and the store can be asked about all unknown keys at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from strandline.points import reached

V = TypeVar("V")


class KeyMemory(Generic[V]):
    """At most `most` keys, or those of one page if they are more.

    There are two tables, a young and an old one. The keys that a page uses move into the young table. Once it holds
    half of `most`, it becomes the old table, and the keys of the former old table are forgotten.
    """

    def __init__(self, most: int) -> None:
        self._most, self._half = most, max(1, most // 2)
        self.young: dict[str, V] = {}
        """The keys used lately, among them all known keys of the page that is held."""
        self._old: dict[str, V] = {}
        self.forgot = False
        """Whether any key was forgotten: then an unknown key may have been met before."""

    def hold(self, keys: Iterable[str]) -> list[str]:
        """Keep the known keys of a page until the next call; return the keys that are unknown."""
        wanted = dict.fromkeys(keys)
        absent = [key for key in wanted if key not in self.young]
        found = {key: self._old.pop(key) for key in absent if key in self._old} if self._old else {}
        if len(self.young) + len(absent) > self._half:
            kept = {key: self.young.pop(key) for key in wanted if key in self.young}
            if self._old:
                reached("keys.evicted_within_a_page")
            self._forget_old()
            self._old, self.young = self.young, kept
        self.young.update(found)
        if len(self._old) + len(self.young) + len(absent) - len(found) > self._most:
            self._forget_old()
        return [key for key in absent if key not in found] if found else absent

    def _forget_old(self) -> None:
        if self._old:
            self.forgot = True
            reached("keys.forgotten")
        self._old = {}

    def get(self, key: str) -> V | None:
        """Return the value of a key; None if it is unknown."""
        found = self.young.get(key)
        return self._old.get(key) if found is None else found

    def __setitem__(self, key: str, value: V) -> None:
        self.young[key] = value

    def forget(self, key: str) -> None:
        """Forget a key."""
        self.young.pop(key, None)
        self._old.pop(key, None)

    def __len__(self) -> int:
        return len(self.young) + len(self._old.keys() - self.young.keys())
