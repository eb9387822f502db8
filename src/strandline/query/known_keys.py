"""The keys that a query has met, with the place of each, in a bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from strandline.query.key_memory import KeyMemory
from strandline.values.events import Life
from strandline.values.tag_rows import Place


class KnownKey:
    """The place of a key in a query: the last number that was handed out, and where its row is."""

    __slots__ = ("delivered", "first", "life", "number", "seq_nr", "timestamp")

    def __init__(self, life: Life, number: int, timestamp: int = 0, seq_nr: int = 0, *, first: int = 1) -> None:
        self.life, self.number, self.timestamp, self.seq_nr = life, number, timestamp, seq_nr
        self.first = first
        """The least number that counts as handed out."""
        self.delivered = bool(timestamp)

    @property
    def place(self) -> Place | None:
        """The place of the key's last row; None if this query has not met one."""
        return (self.timestamp, self.life.key, self.seq_nr) if self.timestamp else None


class KnownKeys(KeyMemory[KnownKey]):
    """Keys by their written form. Keys that the caller named are never forgotten."""

    def __init__(self, most: int, always: dict[str, KnownKey] | None = None) -> None:
        super().__init__(most)
        self._always = always or {}

    def hold(self, keys: Iterable[str]) -> list[str]:
        unknown = super().hold(keys)
        if self._always:
            self.young.update({key: self._always[key] for key in unknown if key in self._always})
            unknown = [key for key in unknown if key not in self._always]
        return unknown

    def get(self, key: str) -> KnownKey | None:
        return super().get(key) or self._always.get(key)

    def __setitem__(self, key: str, known: KnownKey) -> None:
        super().__setitem__(key, known)
        if key in self._always:
            self._always[key] = known

    def known(self) -> Iterator[tuple[str, KnownKey]]:
        """Yield all known keys."""
        yield from self._always.items()
        yield from self._old.items()
        yield from self.young.items()

    def forget_before(self, timestamp: int) -> None:
        """Forget the keys whose last row is older."""
        for key in [key for key, known in self.young.items() if known.timestamp < timestamp]:
            self.forget(key)
