"""Works out which steps must come before others because they touch the same rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from strandline.group.statements.api import Held


class TouchedRows:
    """The latest steps at each place: its last writer and the readers since then, also of the places below it."""

    def __init__(self) -> None:
        self._at: dict[tuple[Any, ...], tuple[list[str], list[str]]] = {}
        self._below: dict[tuple[Any, ...], tuple[dict[str, None], dict[str, None]]] = {}

    def before(self, step: str, holds: Iterable[Held]) -> list[str]:
        """Return the steps that must come before this one, which now is the last."""
        found: dict[str, None] = {}
        for one in holds:
            place = one.place
            for cut in range(1, len(place) + 1):
                writers, readers = self._at.get(place[:cut], ((), ()))
                found.update(dict.fromkeys(writers))
                if one.writes:
                    found.update(dict.fromkeys(readers))
            writers_below, readers_below = self._below.get(place, ({}, {}))
            found.update(writers_below)
            if one.writes:
                found.update(readers_below)
        for one in holds:
            self._touch(step, one)
        return list(found)

    def _touch(self, step: str, one: Held) -> None:
        place = one.place
        if one.writes:
            self._at[place] = ([step], [])
            self._below.pop(place, None)
        else:
            self._at.setdefault(place, ([], []))[1].append(step)
        for cut in range(1, len(place)):
            self._below.setdefault(place[:cut], ({}, {}))[0 if one.writes else 1][step] = None
