"""What an append to a log answers, and what it leaves behind."""

# ruff: noqa: S101
from __future__ import annotations

import random
from itertools import pairwise

import pytest

from strandline.fold import Duplicate, EventsAppended, EventsDeleted, LifePurged, RefusedAppend, fold
from strandline.log.api import Log, Recorded
from strandline.record import decode_header
from strandline.testing.clock import FakeClock
from strandline.testing.log_contract.made import (
    HOUR_US,
    KEY,
    PARTITIONS,
    Opened,
    delete_of,
    draft_of,
    everything,
    head_of,
    in_threads,
    keys_in,
    kinds,
    mark_in,
    partition_for,
    purge_of,
)
from strandline.values.actions import Place
from strandline.values.heads import EndedLife, Head, State

ID = "5" * 32


class AppendingContract:
    """Numbers, refusals, lives, timestamps."""

    durable = True
    """Whether a log that is opened again is the same log."""

    @pytest.fixture
    def log(self, opened: Opened) -> Log:
        return opened(partitions=PARTITIONS, segment_size=10)

    # ------------------------------------------------------------ records

    @pytest.mark.req("J25", "J27", "RA5")
    def test_one_action_is_one_record_with_what_the_fold_gave(self, log: Log) -> None:
        first, second = draft_of(KEY, "a", "b", "c"), draft_of(KEY, b"d")
        answers = [*log.append([first]), *log.append([second])]
        assert all(answer.folded for answer in answers)
        assert [answer.effect for answer in answers] == [EventsAppended(1, 3, 0, 1), EventsAppended(4, 4, 3, 1)]
        records = everything(log, partition_for(KEY))
        assert [record[:3] for record in records] == [answer.place for answer in answers]
        assert [(record.life, record.first, record.last) for record in records] == [(1, 1, 3), (1, 4, 4)]
        assert [(record.key, record.header, record.value) for record in records] == [
            (KEY, draft.header, draft.value) for draft in (first, second)
        ]

    @pytest.mark.req("J25", "J27")
    def test_every_kind_of_action_is_recorded_also_without_effect(self, log: Log) -> None:
        partition = partition_for(KEY)
        drafts = [draft_of(KEY), mark_in(partition, key=KEY), mark_in(partition), delete_of(KEY, 1, life=7)]
        drafts += [delete_of(KEY, 1, life=1), purge_of(KEY, if_offset=99), purge_of(KEY), purge_of(KEY)]
        answers = log.append(drafts)
        records = everything(log, partition)
        assert kinds(records) == ["Append", "Mark", "Mark", "Delete", "Delete", "Purge", "Purge", "Purge"]
        assert [answer.place for answer in answers] == [record[:3] for record in records]
        assert [record.value for record in records[1:]] == [None] * 7
        nothing = (None, None, None)
        beside = [(1, 1, 1), nothing, nothing, nothing, (1, None, 1), nothing, (1, None, None), nothing]
        assert [record[6:] for record in records] == beside
        effects = [answer.effect for answer in answers[1:]]
        assert effects == [None, None, None, EventsDeleted(1, 1, 1), None, LifePurged(1, 1), None]

    @pytest.mark.req("J27")
    def test_states_are_those_of_the_fold(self, opened: Opened) -> None:
        """Random actions: every answer, and what is recorded, is what a plain fold over the records gives."""
        log = opened(partitions=PARTITIONS, segment_size=3)
        assert log.rules is not None
        chance = random.Random(7)
        keys = [f"order|{index}" for index in range(6)]
        answers: list[tuple[str, Recorded]] = []
        for _ in range(150):
            drafts = []
            for _ in range(chance.randint(1, 4)):
                key = chance.choice(keys)
                made = (
                    draft_of(key, *range(chance.randint(1, 3))),
                    draft_of(key, expected=chance.randint(0, 4)),
                    draft_of(key, first=chance.randint(1, 30)),
                    draft_of(key, append_id=f"{chance.randint(0, 9):032x}"),
                    delete_of(key, chance.randint(1, 9), life=chance.choice([None, 1, 2])),
                    purge_of(key),
                )
                drafts.append(chance.choices(made, weights=(6, 3, 1, 3, 2, 1))[0])
            answers += zip([str(draft.action.key) for draft in drafts], log.append(drafts), strict=True)
        states: dict[str, State] = {}
        last: dict[str, State] = {}
        for partition in range(PARTITIONS):
            for record in everything(log, partition):
                action = decode_header(record.header)
                key = str(action.key)
                states[key], effect = fold(states.get(key), action, Place(*record[:3]), log.rules)
                assert not isinstance(effect, (RefusedAppend, Duplicate))
                if isinstance(effect, EventsAppended):
                    assert (record.life, record.first, record.last) == (effect.life, effect.first, effect.last)
        for key, answer in answers:
            last[key] = answer.state
        assert last == states
        assert {type(state) for state in states.values()} >= {Head}

    # ------------------------------------------------------------ refusals

    @pytest.mark.req("RA2", "J41", "RA10")
    def test_refused_ones_fail_alone_and_leave_nothing(self, log: Log) -> None:
        drafts = [draft_of(KEY, expected=5), draft_of(KEY, expected=0), draft_of(KEY, expected=0), draft_of(KEY)]
        drafts += [draft_of(KEY, first=1), draft_of(KEY, first=2000)]
        answers = log.append(drafts)
        assert [answer.place is None for answer in answers] == [True, False, True, False, True, True]
        assert [answer.effect for answer in answers if answer.place is None] == [
            RefusedAppend("expected", 0), RefusedAppend("expected", 1), RefusedAppend("first", 2),
            RefusedAppend("seq_nr_range", 2),
        ]  # fmt: skip
        records = everything(log, partition_for(KEY))
        assert [record.header for record in records] == [drafts[1].header, drafts[3].header]
        assert [record.offset for record in records] == [answer.place[1] for answer in answers if answer.place]

    @pytest.mark.req("RA2")
    def test_a_call_of_refused_ones_alone_changes_nothing(self, log: Log) -> None:
        log.append([draft_of(KEY)])
        before = log.newest(), everything(log, partition_for(KEY))
        answers = log.append([draft_of(KEY, expected=0), draft_of(KEY, first=1)])
        assert [answer.effect for answer in answers] == [RefusedAppend("expected", 1), RefusedAppend("first", 1)]
        assert (log.newest(), everything(log, partition_for(KEY))) == before
        assert log.append([draft_of(KEY, expected=1)])[0].effect == EventsAppended(2, 2, 1, 1)

    @pytest.mark.req("RA8", "J22")
    def test_the_same_append_again_gets_the_first_answer(self, log: Log) -> None:
        draft = draft_of(KEY, "a", "b", append_id=ID, expected=0)
        (first,) = log.append([draft])
        log.append([draft_of(KEY), draft_of(KEY)])
        (again,) = log.append([draft])
        assert again.place is None
        assert isinstance(again.effect, Duplicate)
        assert first.place is not None
        answer = again.effect.answer
        assert (answer.first, answer.last, answer.offset, answer.timestamp) == (1, 2, *first.place[1:])
        assert len(everything(log, partition_for(KEY))) == 3
        other = draft_of(KEY, "other", append_id=ID)
        assert log.append([other])[0].effect == RefusedAppend("append_id_reused", 4)
        in_one = log.append([draft_of(KEY, "x", append_id="6" * 32), draft_of(KEY, "x", append_id="6" * 32)])
        assert [type(answer.effect) for answer in in_one] == [EventsAppended, Duplicate]

    @pytest.mark.req("J22")
    def test_thirty_two_given_ids_are_remembered_and_one_generated(self, log: Log) -> None:
        given = [draft_of(KEY, index, append_id=f"{index:032x}") for index in range(33)]
        log.append(given)
        assert isinstance(log.append([given[1]])[0].effect, Duplicate)
        assert isinstance(log.append([given[0]])[0].effect, EventsAppended)
        generated = [draft_of(KEY, "generated"), draft_of(KEY, "generated too")]
        log.append(generated)
        assert isinstance(log.append([generated[1]])[0].effect, Duplicate)
        assert isinstance(log.append([generated[0]])[0].effect, EventsAppended)

    # ------------------------------------------------------------ lives

    def test_a_purge_ends_a_life_and_the_next_append_starts_one(self, log: Log) -> None:
        log.append([draft_of(KEY, "a", "b", append_id=ID)])
        (purged,) = log.append([purge_of(KEY)])
        assert purged.place is not None
        assert purged.state == EndedLife(1, partition_for(KEY), purged.place.offset)
        assert head_of(log, KEY) is None
        (again,) = log.append([draft_of(KEY, "a", "b", append_id=ID, expected=0)])
        assert again.effect == EventsAppended(1, 2, 0, 2)
        log.append([purge_of(KEY)])
        assert log.append([delete_of(KEY, 5)])[0].effect is None
        head = head_of(log, KEY)
        assert head is not None
        assert (head.life, head.seq_nr, head.delete_to) == (3, 5, 5)

    def test_heads_and_lives_outlast_the_log_that_wrote_them(self, opened: Opened) -> None:
        if not self.durable:
            pytest.skip("this log ends with its process")
        log = opened(partitions=PARTITIONS)
        log.append([draft_of(KEY, "a", "b", append_id=ID), draft_of("order|7"), purge_of("order|7")])
        head, log_id = head_of(log, KEY), log.log_id
        log.close()
        log = opened(partitions=PARTITIONS)
        assert log.log_id == log_id
        assert head_of(log, KEY) == head
        assert isinstance(log.append([draft_of(KEY, "a", "b", append_id=ID)])[0].effect, Duplicate)
        assert log.append([draft_of("order|7")])[0].effect == EventsAppended(1, 1, 0, 2)

    # ------------------------------------------------------------ time

    @pytest.mark.req("J26", "RA6")
    def test_timestamps_grow_whatever_the_clock_does(self, opened: Opened) -> None:
        clock = FakeClock()
        log = opened(partitions=PARTITIONS, clock=clock)
        keys = keys_in(1, 2)
        seen = []
        for step_s in (0, 0, 1.5, -3600, 0, 7200, -7200, 0.000001):
            clock.advance(step_s)
            seen += [answer.place for answer in log.append([draft_of(keys[0]), draft_of(keys[1])])]
        timestamps = [place.timestamp for place in seen if place is not None]
        start = FakeClock().now
        assert timestamps[:6] == [start, start + 1, start + 2, start + 3, start + 1_500_000, start + 1_500_001]
        assert timestamps[10] == start + 1_500_000 + HOUR_US
        assert all(later > earlier for earlier, later in pairwise(timestamps))
        assert [record.timestamp for record in everything(log, 1)] == timestamps
        assert [record.timestamp for record in everything(log, 1, page=3)] == timestamps

    @pytest.mark.req("J26")
    def test_a_mark_gets_the_time_that_it_asks_for_in_its_own_partition(self, opened: Opened) -> None:
        clock = FakeClock()
        log = opened(partitions=PARTITIONS, clock=clock)
        ahead = clock.now + HOUR_US
        log.append([mark_in(0)])
        marked, below, after = log.append([mark_in(0, at_least=ahead), mark_in(0, at_least=5), mark_in(0)])
        other = log.append([mark_in(1)])[0]
        assert [answer.place and answer.place.timestamp for answer in (marked, below, after, other)] == [
            ahead, ahead + 1, ahead + 2, clock.now,
        ]  # fmt: skip

    @pytest.mark.req("J26", "RA6", "RA5")
    def test_offsets_and_timestamps_go_on_after_restart_and_trim(self, opened: Opened) -> None:
        clock = FakeClock()
        log = opened(partitions=PARTITIONS, clock=clock)
        (last,) = log.append([mark_in(2), mark_in(2, at_least=clock.now + HOUR_US)])[1:]
        for _ in range(2):
            log.trim(2, to=log.newest()[2], pointer=log.newest()[2], keep_after=2**62)
            if self.durable:
                log.close()
                log = opened(partitions=PARTITIONS, clock=clock)
            clock.advance(-60)
            (again,) = log.append([mark_in(2)])
            assert last.place is not None
            assert again.place is not None
            assert (again.place.offset, again.place.timestamp) > (last.place.offset, last.place.timestamp)
            assert again.place.timestamp == last.place.timestamp + 1
            last = again

    # ------------------------------------------------------------ many writers

    @pytest.mark.req("RA9", "J37")
    def test_of_many_with_one_expected_exactly_one_wins(self, log: Log) -> None:
        rounds, writers = 20, 6

        def write(_: int) -> list[Recorded]:
            return [log.append([draft_of(KEY, expected=number)])[0] for number in range(rounds)]

        outcomes = in_threads(write, writers)
        for number in range(rounds):
            effects = [outcome[number].effect for outcome in outcomes]
            assert sum(isinstance(effect, EventsAppended) for effect in effects) == 1
            assert all(effect.actual > number for effect in effects if isinstance(effect, RefusedAppend))
        assert [record.first for record in everything(log, partition_for(KEY))] == list(range(1, rounds + 1))

    @pytest.mark.req("RA1", "RA4")
    def test_what_was_acknowledged_is_there_in_its_order(self, log: Log) -> None:
        writers, appends = 6, 30

        def write(writer: int) -> list[Recorded]:
            return [log.append([draft_of(f"order|{writer}", writer, number)])[0] for number in range(appends)]

        outcomes = in_threads(write, writers)
        for writer, answers in enumerate(outcomes):
            key = f"order|{writer}"
            found = [record for record in everything(log, partition_for(key)) if record.key == key]
            assert [record[:3] for record in found] == [answer.place for answer in answers]
            assert [record.first for record in found] == list(range(1, 2 * appends, 2))
