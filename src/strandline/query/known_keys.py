"""What a query remembers of the keys that it has met: few words each, and of no more keys than it may."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from strandline.query.recently_used import RecentlyUsed
from strandline.values.events import Life
from strandline.values.tag_rows import Place


class KnownKey:
    """How far a key is in a query: the last number that was handed out, and where its row is."""

    __slots__ = ("delivered", "first", "life", "number", "seq_nr", "timestamp")

    def __init__(self, life: Life, number: int, timestamp: int = 0, seq_nr: int = 0, *, first: int = 1) -> None:
        self.life, self.number, self.timestamp, self.seq_nr = life, number, timestamp, seq_nr
        self.first = first
        """The least number that counts as handed out."""
        self.delivered = bool(timestamp)

    @property
    def place(self) -> Place | None:
        """Where its last row is; None if this query has not met one."""
        return (self.timestamp, self.life.key, self.seq_nr) if self.timestamp else None


class KnownKeys(RecentlyUsed[KnownKey]):
    """Keys by their written form. Those that the caller named are never forgotten."""

    def __init__(self, most: int, always: dict[str, KnownKey] | None = None) -> None:
        super().__init__(most)
        self._always = always or {}
        self.forgot = False
        """Whether any was forgotten: a key that is not here may have been met before."""

    def get(self, key: str) -> KnownKey | None:
        """What is known of a key."""
        found = self._young.get(key)
        if found is None:
            found = self._always.get(key) if self._always else None
            return found or super().get(key)
        return found

    @property
    def young(self) -> dict[str, KnownKey]:
        """Those that were used lately, until the next one is set. A key that is not there may be known all the same."""
        return self._young

    def __setitem__(self, key: str, known: KnownKey) -> None:
        if self._always and key in self._always:
            self._always[key] = known
            return
        old = self._old
        super().__setitem__(key, known)
        if self._old is not old:
            self.forgot = self.forgot or bool(old)

    def known(self) -> Iterator[tuple[str, KnownKey]]:
        """All of them."""
        yield from self._always.items()
        yield from self._old.items()
        yield from self._young.items()

    def keep_all(self) -> None:
        """Forget none but those that `forget_before` names: whoever reads again must know what was handed out."""
        self._half = sys.maxsize

    def forget_before(self, timestamp: int) -> None:
        """Forget the keys whose last row is older."""
        for key in [key for key, known in self._young.items() if known.timestamp < timestamp]:
            self.forget(key)
