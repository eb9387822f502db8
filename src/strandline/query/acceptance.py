"""A table that decides whether an event is the next one of its key, for queries by slices and by tag and for
projections.

`last` is the newest (life, seq_nr) of the key that is done; `prev` is the number of the event before the one judged.
"Deleted": the head has this life and delete_to >= prev. The first row that fits decides.

     1  key parked in this life, event newer than `last`                          waits
     2  `last` known, (life, seq_nr) <= `last`                                    duplicate
     3  from the ordered query, with the strandline, at or below the position     duplicate
     4  `last` of this life and prev <= `last`; of an earlier one and prev = 0    accepted
     5  `last` known, deleted                                                     accepted, unseen in between
     6  `last` known, otherwise                                                   rejected
     7  no `last`, at or below the line, not from look-back                       duplicate; late if no strandline
     8  no `last`, prev = 0, or deleted                                           accepted
     9  no `last`, the event before it is in the store, at or below the line      accepted: its row was forgotten
    10  no `last`, otherwise                                                      rejected

Rows 5, 8, 9 and 10 need the store's facts about the key. Without them the answer is `LOOK`. Only the head has deletions
and the life: an event whose own life has ended is `GONE`, in every row of the table.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple

from strandline.store.scans import LAST_KEY
from strandline.values.heads import SEQ_NR_MAX

Place = tuple[int, Any, Any]
"""Where an event stands in the order of its source: (timestamp, seq_nr, key) by slices, (timestamp, key, seq_nr) by
tag. Texts compare as their bytes in UTF-8 do.
"""


def end_of(timestamp: int) -> Place:
    """Return the place behind everything at this time, by slices."""
    return (timestamp, SEQ_NR_MAX, LAST_KEY)


class Acceptance(Enum):
    """The answer of the table."""

    ACCEPTED = "accepted"
    UNSEEN = "unseen"
    """Accepted; events between `last` and this one were deleted before the consumer saw them."""
    DUPLICATE = "duplicate"
    LATE = "late"
    """Taken for a duplicate, without proof: its time is below the line, and its key is forgotten."""
    WAITS = "waits"
    REJECTED = "rejected"
    GONE = "gone"
    LOOK = "look"


class Way(Enum):
    """The way by which an event came."""

    ORDERED = "ordered"
    LOOK_BACK = "look-back"
    BACK_TRACK = "back-track"
    FEED = "feed"


class Last(NamedTuple):
    """The newest event of a key that is done. A parked key waits behind it."""

    life: int
    seq_nr: int
    parked: bool = False


class Candidate(NamedTuple):
    """The fields of an event that the table reads. In a query by tag they are the numbers under the tag, and `prev` is
    one less than the event's.
    """

    life: int
    seq_nr: int
    prev: int
    place: Place


class StoreFacts(NamedTuple):
    """The store's facts about an event's key: its life (None if it has no head), delete_to, and the place of the event
    before.
    """

    life: int | None
    delete_to: int = 0
    before: Place | None = None
    """Where the event before stands; None if it is not in the store."""

    def ended(self, life: int) -> bool:
        """Return whether this life is over."""
        return self.life is None or self.life > life

    def deleted(self, event: Candidate) -> bool:
        """Return whether all before the event was deleted."""
        return self.life == event.life and self.delete_to >= event.prev


NOTHING_DONE: Final = -1


def judge(
    event: Candidate,
    last: Last | None,
    *,
    way: Way = Way.ORDERED,
    position: int = NOTHING_DONE,
    line: Place = (NOTHING_DONE, 0, ""),
    strandline: bool = True,
    facts: StoreFacts | None = None,
) -> Acceptance:
    """Return the table's answer. `position` is that of the event's slice, `line` the place up to which keys may be
    forgotten.
    """
    if last is not None:
        return _known(event, last, way, position, strandline, facts)
    if way is Way.ORDERED and strandline and event.place[0] <= position:
        return Acceptance.DUPLICATE
    if way is not Way.LOOK_BACK and event.place <= line:
        return Acceptance.DUPLICATE if strandline else Acceptance.LATE
    if event.prev == 0:
        return Acceptance.ACCEPTED
    if facts is None:
        return Acceptance.LOOK
    if facts.ended(event.life):
        return Acceptance.GONE
    if facts.deleted(event):
        return Acceptance.ACCEPTED
    forgotten = facts.before is not None and facts.before <= line
    return Acceptance.ACCEPTED if forgotten else Acceptance.REJECTED


def _known(
    event: Candidate, last: Last, way: Way, position: int, strandline: bool, facts: StoreFacts | None
) -> Acceptance:
    newer = (event.life, event.seq_nr) > (last.life, last.seq_nr)
    if last.parked and newer and event.life == last.life:
        return Acceptance.WAITS
    if not newer:
        return Acceptance.DUPLICATE
    if way is Way.ORDERED and strandline and event.place[0] <= position:
        return Acceptance.DUPLICATE
    if event.prev <= last.seq_nr if event.life == last.life else event.prev == 0:
        return Acceptance.ACCEPTED
    if facts is None:
        return Acceptance.LOOK
    if facts.ended(event.life):
        return Acceptance.GONE
    if facts.deleted(event):
        return Acceptance.UNSEEN if event.life == last.life else Acceptance.ACCEPTED
    return Acceptance.REJECTED
