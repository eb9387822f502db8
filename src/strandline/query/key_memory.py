"""What a query or a projection remembers of the keys that it has met: of no more of them than it may.

    hold(keys of a page) ──▶ the page is judged ──▶ hold(keys of the next page) ──▶ …
      └ keys are forgotten here, and nowhere else: those that were used longest ago

What a page needs stays until the next page. So each of its keys is either known all the while, or was unknown when the
page began: then `hold` names it, and what the store says of it can be looked up for all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from strandline.points import reached

V = TypeVar("V")


class KeyMemory(Generic[V]):
    """At most `most` keys, or those of one page if they are more.

    Two tables take turns. What a page uses moves into the young one. Once that holds half of all it becomes the old
    one, and the keys that the old one had are forgotten.
    """

    def __init__(self, most: int) -> None:
        self._most, self._half = most, max(1, most // 2)
        self.young: dict[str, V] = {}
        """What was used lately. What is known of a key of the page that is held is here."""
        self._old: dict[str, V] = {}
        self.forgot = False
        """Whether any was forgotten: a key that is not here may have been met before."""

    def hold(self, keys: Iterable[str]) -> list[str]:
        """Keep what is known of the keys of a page until the next call; of which of them nothing is known."""
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
        """Return what is known of a key."""
        found = self.young.get(key)
        return self._old.get(key) if found is None else found

    def __setitem__(self, key: str, value: V) -> None:
        self.young[key] = value

    def forget(self, key: str) -> None:
        """Forget one."""
        self.young.pop(key, None)
        self._old.pop(key, None)

    def __len__(self) -> int:
        return len(self.young) + len(self._old.keys() - self.young.keys())
