"""What somebody is given who follows a log that does not fold: all records, and its own ones early."""

# ruff: noqa: S101
from __future__ import annotations

import time
from typing import cast

import pytest

from strandline.errors import StrandlineError
from strandline.log.api import Follower, Recorded, UnfoldedLog
from strandline.record import Record
from strandline.testing.log_contract.made import PARTITIONS, Opened, draft_of, everything, in_threads, mark_in

DEADLINE_S = 30.0


class FollowingContract:
    """Followers, and what they are told of records of their own log."""

    @pytest.mark.req("J65")
    def test_a_follower_is_given_every_record_once_without_its_value(self, opened: Opened) -> None:
        log = cast(UnfoldedLog, opened(partitions=PARTITIONS))
        follower = log.follow([-1] * PARTITIONS, lambda _: None)
        log.append([draft_of(f"order|{number}", number) for number in range(20)])
        wanted = _headers(log)
        assert sorted(_followed(follower, wanted)) == sorted(wanted)
        follower.close()

    @pytest.mark.req("J65", "J66")
    def test_who_follows_is_told_of_own_records_as_all_will_read_them_before_their_sender_is(
        self, opened: Opened
    ) -> None:
        log = cast(UnfoldedLog, opened(partitions=PARTITIONS))
        told: list[Record] = []
        follower = log.follow([-1] * PARTITIONS, told.append)

        def send(writer: int) -> list[bool]:
            known: list[bool] = []

            def answered(recorded: Recorded | None, error: StrandlineError | None) -> None:
                place = recorded.place if recorded is not None else None
                known.append(place is not None and any(record[:2] == place[:2] for record in told))

            for number in range(10):
                log.send(draft_of(f"order|{writer}", number), answered)
                log.send(mark_in(number % PARTITIONS), answered)
            deadline = time.monotonic() + DEADLINE_S
            while len(known) < 20:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            return known

        assert all(all(known) for known in in_threads(send, 3))
        assert sorted(told) == sorted(_headers(log))
        follower.close()
        log.append([mark_in(0)])
        assert len(told) == 60

    @pytest.mark.req("J65")
    def test_what_whoever_follows_has_moved_past_may_be_left_out_and_nothing_else(self, opened: Opened) -> None:
        log = cast(UnfoldedLog, opened(partitions=PARTITIONS))
        after = [-1] * PARTITIONS
        follower = log.follow(after, lambda _: None)
        log.append([draft_of(f"order|{number}") for number in range(20)])
        after[:] = log.newest()
        passed = list(after)
        log.append([draft_of(f"order|{number}") for number in range(20)])
        wanted = [record for record in _headers(log) if record.offset > passed[record.partition]]
        found = _followed(follower, wanted)
        assert len(found) == len(set(found))
        follower.close()


def _followed(follower: Follower, wanted: list[Record]) -> list[Record]:
    """Return the records that come until all wanted ones have come."""
    found: list[Record] = []
    deadline = time.monotonic() + DEADLINE_S
    while not set(wanted) <= set(found):
        assert time.monotonic() < deadline
        for partition, page in follower.poll(1.0):
            assert all(record.partition == partition and record.offset < page.position for record in page.records)
            found += page.records
    return found


def _headers(log: UnfoldedLog) -> list[Record]:
    """All that is in the log, values left out."""
    records = [record for partition in range(PARTITIONS) for record in everything(log, partition)]
    return [record._replace(value=None) for record in records]
