"""A filter of events by type and by tag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from strandline.errors import invalid
from strandline.values.events import RecordedEvent


class Filter(NamedTuple):
    """The types and the tags of events that pass. None lets all pass."""

    types: frozenset[str] | None = None
    tags: frozenset[str] | None = None

    def passes(self, event: RecordedEvent) -> bool:
        """Return whether an event passes. No payload is decoded for it."""
        if self.types is not None and event.type not in self.types:
            return False
        return self.tags is None or not self.tags.isdisjoint(event.tags)

    @classmethod
    def of(cls, given: object) -> Filter | None:
        """Return a filter as callers give it: {"types": [...], "tags": [...]}."""
        if given is None or isinstance(given, Filter):
            return given
        allowed = '{"types": texts, "tags": texts}'
        if not isinstance(given, Mapping) or not given or not given.keys() <= {"types", "tags"}:
            raise invalid("setting", "filter", "no filter", allowed=allowed, got=given)
        parts = {}
        for name, words in given.items():
            listed = [words] if isinstance(words, str) else words
            good = isinstance(listed, Iterable) and not isinstance(listed, bytes | Mapping)
            parts[name] = frozenset(listed) if good else frozenset()
            if not parts[name] or not all(isinstance(word, str) for word in parts[name]):
                raise invalid("setting", f"filter.{name}", "no texts", allowed=allowed, got=words)
        return cls(**parts)
