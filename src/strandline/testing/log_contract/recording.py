"""What every log keeps, whether it folds by itself or not: records, in order, with one timestamp each."""

# ruff: noqa: S101
from __future__ import annotations

from itertools import pairwise

import pytest

from strandline.log.api import Recorded
from strandline.log.cursor import PartitionCursor
from strandline.record import Record
from strandline.testing.log_contract.made import (
    HOUR_US,
    KEY,
    PARTITIONS,
    Opened,
    delete_of,
    draft_of,
    everything,
    in_threads,
    keys_in,
    kinds,
    mark_in,
    partition_for,
    purge_of,
    timed,
)


class RecordingContract:
    """Records and their order, places and times."""

    durable = True

    @pytest.mark.req("J25", "RA5")
    def test_a_record_is_what_was_given_at_the_place_that_was_told(self, opened: Opened) -> None:
        log = opened(partitions=PARTITIONS)
        partition = partition_for(KEY)
        (other,) = keys_in((partition + 1) % PARTITIONS, 1)
        drafts = [draft_of(KEY, "a", b"b"), draft_of(other), mark_in(partition), mark_in(partition, key=KEY)]
        drafts += [delete_of(KEY, 1, life=1), purge_of(KEY)]
        answers = log.append(drafts)
        for draft, answer in zip(drafts, answers, strict=True):
            assert answer.place is not None
            assert answer.place.partition == draft.partition
            (record,) = log.read(draft.partition, after=answer.place.offset - 1, to=answer.place.offset).records
            assert (record.offset, record.key) == (answer.place.offset, draft.action.key)
            assert (record.header, record.value) == (draft.header, draft.value)
        assert kinds(everything(log, partition)) == ["Append", "Mark", "Mark", "Delete", "Purge"]

    @pytest.mark.req("RA1", "RA4")
    def test_what_many_threads_were_told_is_there_in_their_order(self, opened: Opened) -> None:
        log = opened(partitions=PARTITIONS)
        writers, appends = 6, 30

        def write(writer: int) -> list[Recorded]:
            return [log.append([draft_of(f"order|{writer}", writer, number)])[0] for number in range(appends)]

        outcomes = in_threads(write, writers)
        for writer, answers in enumerate(outcomes):
            key = f"order|{writer}"
            found = [record.offset for record in everything(log, partition_for(key)) if record.key == key]
            assert found == [answer.place.offset for answer in answers if answer.place is not None]
            assert len(found) == appends

    @pytest.mark.req("J26", "RA6")
    def test_timestamps_grow_and_are_the_same_wherever_one_starts(self, opened: Opened) -> None:
        log = opened(partitions=PARTITIONS)
        (key,) = keys_in(1, 1)
        for number in range(20):
            log.append([draft_of(key, number), mark_in(1)])
        before = timed(log, 1)
        ahead = before[-1].timestamp + HOUR_US
        log.append([mark_in(1, at_least=ahead), mark_in(1, at_least=5), draft_of(key), draft_of(key)])
        records = timed(log, 1)
        timestamps = [record.timestamp for record in records]
        assert all(later > earlier for earlier, later in pairwise(timestamps))
        assert timestamps[len(before) :] == [ahead, ahead + 1, ahead + 2, ahead + 3]
        for page in (1, 3, 7):
            for start, record in enumerate(records):
                cursor = PartitionCursor(log, 1, record.offset, record.timestamp)
                found: list[Record] = []
                while got := cursor.read(to=records[-1].offset, limit=page, key=key if page == 7 else None):
                    found += got
                assert [r for r in found if r.key == key] == [r for r in records[start + 1 :] if r.key == key]
                if start > 5:
                    break

    @pytest.mark.req("RA1", "RA5", "RA6")
    def test_a_log_that_is_opened_again_is_the_same(self, opened: Opened) -> None:
        if not self.durable:
            pytest.skip("this log ends with its process")
        log = opened(partitions=PARTITIONS)
        log.append([draft_of(KEY, "a", "b"), draft_of("order|7"), mark_in(0), draft_of(KEY)])
        before = [timed(log, partition) for partition in range(PARTITIONS)]
        log_id = log.log_id
        log.close()
        log = opened(partitions=PARTITIONS)
        assert log.log_id == log_id
        assert [timed(log, partition) for partition in range(PARTITIONS)] == before
        (answer,) = log.append([draft_of(KEY)])
        assert answer.place is not None
        assert answer.place.offset > before[partition_for(KEY)][-1].offset
