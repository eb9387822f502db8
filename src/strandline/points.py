"""Named places in the code, for tests: crash points between two durable writes, and rare paths.

Nothing happens at a place in production but a look at one global. Tests wait at crash points or end the process there
(`strandline.testing.points`); runs of random programs count how often each rare path was reached
(`strandline.testing.rare`), because a path that no run reaches is a path that nothing tests. A rare path is named
`PART.WHAT`, and is listed here, so that a run knows which ones it did not reach.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

RARE: Final = (
    "carry.changed_nothing",
    "carry.cut_by_bytes",
    "carry.moved_meanwhile",
    "feed.away",
    "heads.hidden_by_an_ended_life",
    "heads.not_caught_up",
    "judge.log_read_for_a_verdict",
    "keys.forgotten",
    "phases.appended_and_removed_at_once",
    "read.backwards_in_a_gap",
    "read.journal_changed",
    "read.planned_again",
    "read.tail_read_twice",
    "read.trimmed_meanwhile",
    "recover.planned_again",
    "slices.judged_one_by_one",
    "tag.key_forgotten",
    "tag.page_ends_within_its_buckets",
    "tail.buffer_full",
    "tail.life_ended",
)

told: Callable[[str], None] | None = None
"""Set by `strandline.testing`."""


def reached(point: str) -> None:
    """This thread is at a named place."""
    if told is not None:
        told(point)
