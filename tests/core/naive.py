"""The fold once more, from the text of the specification, without heads.

A key is a list of everything that was ever accepted for it. Each question (where does it stand, what was deleted, which
ids are remembered) is answered by going through that list. Slow, and written to share nothing with the product but the
actions and places that go in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from strandline.values.actions import Action, Append, Delete, Mark, Place, Purge

LARGEST = 9_223_372_036_854_775_807


@dataclass
class Happened:
    """Something that was accepted, in the life in which it was."""

    what: str  # append, reset, delete, purge
    life: int
    place: Place
    numbers: list[int] = field(default_factory=list)  # of the events; of a reset or delete the number it went up to
    action: Action | None = None


@dataclass
class NaiveKey:
    """One key: its whole past, and the events that are still there as life, seq_nr, prev_seq_nr."""

    segment_size: int
    past: list[Happened] = field(default_factory=list)
    events: list[tuple[int, int, int]] = field(default_factory=list)

    # ---------------------------------------------------------------- questions

    def life(self) -> int:
        """The number of the life that goes on; 0 if none does."""
        return self.past[-1].life if self.past and self.past[-1].what != "purge" else 0

    def lives_ended(self) -> int:
        return sum(1 for one in self.past if one.what == "purge")

    def this_life(self) -> list[Happened]:
        return [one for one in self.past if one.life == self.life()]

    def number(self) -> int:
        """Where the key stands."""
        given = [one.numbers[-1] for one in self.this_life() if one.what in ("append", "reset")]
        return given[-1] if given else 0

    def deleted_to(self) -> int:
        born = self.this_life()[0]
        start = born.numbers[0] - 1 if born.what == "append" else born.numbers[0]
        return max([start, *(one.numbers[0] for one in self.this_life() if one.what == "delete")])

    def appends(self) -> list[tuple[Append, Happened]]:
        return [(one.action, one) for one in self.this_life() if isinstance(one.action, Append)]

    def remembered(self) -> list[tuple[Append, Happened]]:
        given = [(action, one) for action, one in self.appends() if action.id_given]
        generated = [(action, one) for action, one in self.appends() if not action.id_given]
        return given[-32:] + generated[-1:]

    def expire_after(self) -> int | None:
        said = [action.expire_after_us for action, _ in self.appends() if action.expire_after_us != -1]
        return said[-1] if said and said[-1] > 0 else None

    def expire_at(self) -> int | None:
        after = self.expire_after()
        return None if after is None else self.appends()[-1][1].place.timestamp + after

    def head(self) -> dict[str, Any] | None:
        """What a head says, from the past; None if no life goes on."""
        life = self.this_life()
        if not self.life():
            return None
        return {
            "seq_nr": self.number(),
            "delete_to": self.deleted_to(),
            "life": self.life(),
            "partition": life[-1].place.partition,
            "offset": life[-1].place.offset,
            "created": life[0].place.timestamp,
            "updated": life[-1].place.timestamp,
            "expire_after_us": self.expire_after(),
            "expire_at": self.expire_at(),
            "segment_size": self.segment_size,
            "removed_to": self.deleted_to(),
            "prev": self.number(),
            "ids": {(action.append_id, one.numbers[0], one.numbers[-1]) for action, one in self.remembered()},
        }

    # ---------------------------------------------------------------- what happens

    def apply(self, action: Action, place: Place) -> str:
        """Do it; the answer is what a caller could be told."""
        if self.past and place.offset <= self.past[-1].place.offset:
            return "passed over"
        if isinstance(action, Append):
            return self.append(action, place)
        if isinstance(action, Delete):
            return self.delete(action, place)
        if isinstance(action, Purge):
            return self.purge(action, place)
        assert isinstance(action, Mark)
        return "nothing"

    def append(self, action: Append, place: Place) -> str:
        lives, stands = self.life() > 0, self.number()
        for earlier, one in self.remembered():
            if earlier.append_id == action.append_id:
                same = earlier.digest == action.digest
                return f"as before {one.numbers[0]}..{one.numbers[-1]}" if same else f"id reused, at {stands}"
        if action.expected is not None and action.expected != stands:
            return f"not expected, at {stands}"
        begin = action.first or (max(stands, self.deleted_to()) + 1 if lives else 1)
        if lives and begin <= max(stands, self.deleted_to()):
            return f"first taken, at {stands}"
        numbers = [begin + index for index in range(len(action.events))]
        if numbers[-1] > LARGEST:
            return f"out of range, at {stands}"
        if lives:
            full = -(-max(stands, self.deleted_to()) // self.segment_size)  # segments that were begun
            needed = -(-begin // self.segment_size)
            if needed - full - 1 > 100:
                return f"out of range, at {stands}"
        life = self.life() or self.lives_ended() + 1
        before = stands if lives else begin - 1
        for number in numbers:
            self.events.append((life, number, before))
            before = number
        self.past.append(Happened("append", life, place, numbers, action))
        return f"appended {numbers[0]}..{numbers[-1]} in {life}"

    def delete(self, action: Delete, place: Place) -> str:
        if action.life is not None and action.life != self.life():
            return "nothing"
        if not self.life():
            self.past.append(Happened("reset", self.lives_ended() + 1, place, [action.to]))
            return "nothing"
        to = max(self.deleted_to(), min(action.to, self.number()))
        self.past.append(Happened("delete", self.life(), place, [to]))
        self.events = [event for event in self.events if event[1] > to]
        return f"deleted to {to}"

    def purge(self, action: Purge, place: Place) -> str:
        if not self.life() or action.if_offset not in (None, self.past[-1].place.offset):
            return "nothing"
        life, to = self.life(), self.number()
        self.past.append(Happened("purge", life, place))
        self.events = []
        return f"purged {life} up to {to}"
