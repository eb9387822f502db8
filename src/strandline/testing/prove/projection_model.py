"""What a projection should have done, from `docs/spec/projections.md`: every event of its source is in one place.

    handed over    once (exactly once), or again after a failure alone (at least once); in the order of its key
    dead letter    its handler failed as often as the settings say, or an operator skipped it
    waits          its key is parked, at it or before it
    blocked        its range failed there, or before it

Plain Python over plain lists; it shares no code with the product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Place = tuple[str, int, int]
"""Of an event: key, life, number in the journal."""


class Due(NamedTuple):
    """An event of the source, as the journal's model has it."""

    place: Place
    number: int
    """Under which the source counts it."""
    timestamp: int
    order: tuple[Any, ...]
    content: str
    slice: int
    passes: bool
    """Whether the filter of the source lets it through."""


class Handed(NamedTuple):
    """An event that a handler was called for, and that counts."""

    place: Place
    content: str
    upsets: int
    """How often something had gone wrong by then."""


class Shown(NamedTuple):
    """A generation as the product shows it."""

    letters: Mapping[Place, str]
    """By event, why."""
    parked: Mapping[tuple[str, int], int]
    """The last number done of each key that waits."""
    failed: Mapping[tuple[int, int], Place | None]
    """By range, the event at which it failed."""


@dataclass
class Book:
    """The facts about one generation of a projection since it began, or was begun anew."""

    exactly_once: bool
    tries: int = 1
    """So often an event is tried at least until it is set aside."""
    parked_max: int = 1000
    after: int = 0
    """What lies at or below this time counts as done."""
    handed: list[Handed] = field(default_factory=list)
    failures: Counter[Place] = field(default_factory=Counter)
    """How often the handler failed at an event."""
    late: set[Place] = field(default_factory=set)
    """Events that were dead letters, or of keys that waited: they may be handed over late."""
    skipped: set[Place] = field(default_factory=set)
    """What an operator skipped."""
    failures_before: Counter[Place] = field(default_factory=Counter)
    """Before it was begun anew."""
    discarded: set[Place] = field(default_factory=set)

    def saw(self, shown: Shown) -> None:
        """Remember what may come late."""
        self.late |= {place for place, reason in shown.letters.items() if reason != "parked"}

    def carry_over(self, before: Book) -> None:
        """It was begun anew: dead letters and parked keys may have stayed."""
        self.failures_before, self.late = before.failures, set(before.late)
        self.skipped, self.discarded = set(before.skipped), set(before.discarded)

    # ------------------------------------------------------------ what is wrong

    def wrong(self, ever: Mapping[Place, Due], there: Collection[Place], shown: Shown) -> Iterator[tuple[str, str]]:
        """Give what is wrong once nothing is left to be done. `ever` was recorded, `there` is in the store."""
        yield from self.wrong_handed(ever)
        yield from self.wrong_letters(ever, shown)
        done = {one.place for one in self.handed}
        for place in there:
            due = ever[place]
            if place in done or not due.passes or due.timestamp <= self.after:
                if place in done and self.exactly_once and place in shown.letters:
                    yield "letter of a done one", f"{place} was handed over, and is a dead letter"
                continue
            waits = shown.parked.get(place[:2])
            if place in shown.letters or place in self.discarded or (waits is not None and place[2] > waits):
                continue
            if not self._blocked(due, ever, shown):
                yield "lost", f"{place} was never handed over"

    def wrong_handed(self, ever: Mapping[Place, Due]) -> Iterator[tuple[str, str]]:
        """Give what is wrong at any time: an event invented, repeated without a reason, or out of its key's order."""
        before: dict[Place, int] = {}
        last: dict[str, tuple[int, int]] = {}
        for place, content, upsets in self.handed:
            due = ever.get(place)
            if due is None or due.content != content or not due.passes:
                yield "invented", f"{place} was handed over as {content}, not {due}"
            if place in before and (self.exactly_once or before[place] == upsets):
                yield "repeated", f"{place} was handed over again"
            elif place not in before and place not in self.late and place[1:] < last.get(place[0], (0, 0)):
                yield "order", f"{place} was handed over behind {last[place[0]]}"
            elif place not in self.late and place not in before:
                last[place[0]] = place[1:]
            before[place] = upsets

    def wrong_letters(self, ever: Mapping[Place, Due], shown: Shown) -> Iterator[tuple[str, str]]:
        """Each dead letter has its reason."""
        for place, reason in shown.letters.items():
            if reason == "operator":
                if place not in self.skipped:
                    yield "letter", f"{place} is skipped by nobody"
            elif self.failures[place] < self.tries:
                yield "letter", f"{place} is {reason}, and failed {self.failures[place]} times, not {self.tries}"
        if len(shown.parked) > self.parked_max:
            yield "parked", f"{len(shown.parked)} keys are parked, of {self.parked_max} that may be"
        for (key, life), done in shown.parked.items():
            if not any(place[:2] == (key, life) for place in [*self.failures, *shown.letters]):
                yield "parked", f"{key} is parked behind {done}, and never failed"

    def _blocked(self, due: Due, ever: Mapping[Place, Due], shown: Shown) -> bool:
        for (lo, hi), place in shown.failed.items():
            if lo <= due.slice <= hi and place is not None and place in ever and due.order >= ever[place].order:
                return True
        return False


def wrong_switch(
    theirs: Collection[Place], mine: Collection[Place], aside: Collection[Place], there: Collection[Place]
) -> Iterator[tuple[str, str]]:
    """As a generation takes another's place it has done exactly what that one has, but for what is set aside (P88)."""
    for place in sorted(set(mine) - set(theirs) - set(aside)):
        yield "switch ahead", f"{place} was handed over to the new generation alone"
    for place in sorted(set(theirs) - set(mine) - set(aside)):
        if place in there:
            yield "switch behind", f"{place} was not handed over to the new generation"
