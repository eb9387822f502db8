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
    "append.answered_from_its_id",
    "append.id_of_other_events",
    "append.without_its_numbers",
    "append_many.behind_a_failed_commit",
    "carry.all_is_there",
    "carry.changed_nothing",
    "carry.cut_by_bytes",
    "carry.ends_a_purge_that_was_killed",
    "carry.moved_meanwhile",
    "carry.part_is_there",
    "carry.plain_ones_looked_at",
    "feed.away",
    "heads.folded_anew",
    "heads.hidden_by_an_ended_life",
    "heads.key_dropped",
    "heads.not_caught_up",
    "heads.own_before_what_lies_between",
    "judge.log_read_for_a_verdict",
    "keys.evicted_within_a_page",
    "keys.forgotten",
    "log.key_was_not_new",
    "phases.appended_and_removed_at_once",
    "phases.key_removed_twice_at_once",
    "read.backwards_carried_meanwhile",
    "read.backwards_in_a_gap",
    "read.backwards_past_the_buffer",
    "read.event_not_there",
    "read.journal_changed",
    "read.page_beyond_its_end",
    "read.planned_again",
    "read.tail_read_twice",
    "read.trimmed_meanwhile",
    "read.trimmed_past_the_buffer",
    "recover.no_snapshot_since_the_delete",
    "recover.planned_again",
    "replay.carried_past_the_cut",
    "replay.head_ahead_of_the_pointer",
    "slices.judged_one_by_one",
    "slices.looked_back",
    "slices.read_ahead",
    "slices.store_asked_of_the_key",
    "store.large_bodies_apart",
    "store.page_cut_by_bytes",
    "store.view_begun_and_purged_at_once",
    "tag.buckets_kept_for_the_next_page",
    "tag.hole_that_stays",
    "tag.key_forgotten",
    "tag.life_ended_before_a_hole",
    "tag.numbered_before",
    "tag.page_ends_within_its_buckets",
    "tail.buffer_full",
    "tail.life_ended",
    "tail.oldest_let_go",
    "work.added_over_an_expired_one",
    "work.dead_letter_has_expired",
    "work.done_after_the_lease",
    "work.done_too_late",
    "work.entry_behind_a_lapsed_one_shown",
    "work.expired_behind_one_that_ends",
    "work.folded_into_the_one_behind",
    "work.lapse_found_by_an_add",
    "work.lease_was_renewed",
    "work.let_in_behind_a_dead_or_expired_one",
    "work.pass_ended_before_slow_entries",
    "work.settings_changed_by_another",
    "work.stale_add",
    "work.table_emptied_as_a_whole",
)

told: Callable[[str], None] | None = None
"""Set by `strandline.testing`."""


def reached(point: str) -> None:
    """This thread is at a named place."""
    if told is not None:
        told(point)
