"""Group commit over a log: who is committed together, who waits, who is refused."""

# ruff: noqa: S101
from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from strandline.errors import InvalidInput, StrandlineError, Unavailable, Unsupported
from strandline.fold import EventsAppended, RefusedAppend
from strandline.log.api import ActionDraft, Log, Recorded
from strandline.log.committer import Committer, unchanged
from strandline.record import decode_header
from strandline.settings import Settings
from strandline.testing.log_contract.made import (
    KEY,
    PARTITIONS,
    Opened,
    draft_of,
    everything,
    in_threads,
    partition_for,
)
from strandline.values.actions import Append

DEADLINE_S = 30.0


class Gate:
    """A log whose appends wait, or fail, when a test wants it; it notes what came together."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.groups: list[list[ActionDraft]] = []
        self.open = threading.Event()
        self.open.set()
        self.threads: list[str] = []
        self.entered = threading.Semaphore(0)
        self.error: BaseException | None = None

    def append(self, drafts: Sequence[ActionDraft]) -> list[Recorded]:
        self.groups.append(list(drafts))
        self.threads.append(threading.current_thread().name)
        self.entered.release()
        if not self.open.wait(DEADLINE_S):
            raise TimeoutError("nobody opened the gate")
        if self.error is not None:
            raise self.error
        return self._log.append(drafts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it never came")
        time.sleep(0.001)


def assert_late(answer: Any, applied: str) -> None:
    """Its time was over, and it says what may have become of it."""
    error = answer.exception(DEADLINE_S / 10)
    assert (type(error), error.code, error.applied) == (Unavailable, "timeout", applied)
    assert ("append id" in error.hint) == (applied == "unknown")


class Held:
    """A committer with one commit under way, which waits at the gate."""

    def __init__(self, log: Log, **settings: Any) -> None:
        self.gate = Gate(log)
        self.committer = Committer(self.gate, Settings.of(settings))
        self.gate.open.clear()
        self.pool = ThreadPoolExecutor(80)
        self.first = self.submit(draft_of("order|first"))
        self.gate.entered.acquire(timeout=DEADLINE_S)

    def submit(self, draft: ActionDraft, timeout_s: float | None = None) -> Any:
        """Append in a thread of its own, and wait until it is queued."""
        queued = len(self.committer._queue)
        busy = self.committer._committing
        future = self.pool.submit(self.committer.append, draft, timeout_s)
        if busy:
            until(lambda: len(self.committer._queue) > queued or future.done())
        return future

    def close(self) -> None:
        self.gate.open.set()
        self.committer.close()
        self.pool.shutdown()


class CommittingContract:
    """The committer, over this log."""

    @pytest.fixture
    def hold(self, opened: Opened) -> Any:
        log = opened(partitions=PARTITIONS)
        held: list[Held] = []

        def hold(**settings: Any) -> Held:
            held.append(Held(log, **settings))
            return held[-1]

        yield hold
        for each in held:
            each.close()

    @pytest.mark.req("J41")
    def test_a_single_append_waits_for_nobody(self, opened: Opened) -> None:
        gate = Gate(opened(partitions=PARTITIONS))
        committer = Committer(gate, Settings())
        for number in range(3):
            assert committer.append(draft_of(KEY)).effect == EventsAppended(number + 1, number + 1, number, 1)
        assert [len(group) for group in gate.groups] == [1, 1, 1]
        committer.close()

    @pytest.mark.req("J41")
    def test_what_comes_during_a_commit_is_in_the_next(self, hold: Any) -> None:
        held = hold()
        drafts = [draft_of(f"order|{index % 7}") for index in range(64)]
        waiting = [held.submit(draft) for draft in drafts]
        held.gate.open.set()
        answers = [future.result(DEADLINE_S) for future in waiting]
        assert [len(group) for group in held.gate.groups] == [1, 64]
        assert held.gate.groups[1] == drafts
        assert all(answer.place for answer in answers)

    @pytest.mark.req("J41")
    @pytest.mark.parametrize(
        ("settings", "sizes"),
        [({"group_actions_max": 4}, [1, 4, 4, 2]), ({"group_bytes_max": 3000}, [1, 2, 2, 2, 2, 2]),
         ({"group_bytes_max": 1}, [1] * 11)],
    )  # fmt: skip
    def test_a_commit_has_its_limits(self, hold: Any, settings: dict[str, int], sizes: list[int]) -> None:
        held = hold(**settings)
        waiting = [held.submit(draft_of(KEY, bytes(1000))) for _ in range(10)]
        held.gate.open.set()
        numbers = [future.result(DEADLINE_S).effect.first for future in waiting]
        assert numbers == list(range(1, 11))
        assert [len(group) for group in held.gate.groups] == sizes

    @pytest.mark.req("J41", "J129")
    def test_what_comes_together_is_committed_together(self, hold: Any) -> None:
        """Four at most: two, and the three behind them with one more."""
        held = hold(group_actions_max=4)
        waiting = [held.submit(draft_of(KEY)) for _ in range(2)]
        many = held.pool.submit(held.committer.append_all, [draft_of(KEY) for _ in range(3)])
        until(lambda: len(held.committer._queue) == 3)
        last = held.submit(draft_of(KEY))
        held.gate.open.set()
        assert [one.effect.first for one in many.result(DEADLINE_S)] == [3, 4, 5]
        assert [one.result(DEADLINE_S).effect.first for one in (*waiting, last)] == [1, 2, 6]
        assert [len(group) for group in held.gate.groups] == [1, 2, 4]

    @pytest.mark.req("RA10", "J41")
    def test_a_refused_member_fails_alone(self, hold: Any) -> None:
        held = hold()
        waiting = [held.submit(draft_of(KEY, expected=expected)) for expected in (0, 0, 9, 1)]
        held.gate.open.set()
        effects = [future.result(DEADLINE_S).effect for future in waiting]
        assert effects == [
            EventsAppended(1, 1, 0, 1), RefusedAppend("expected", 1), RefusedAppend("expected", 1),
            EventsAppended(2, 2, 1, 1),
        ]  # fmt: skip
        assert len(held.gate.groups) == 2

    @pytest.mark.req("RA10", "RA2")
    @pytest.mark.parametrize("applied", ["no", "unknown"])
    def test_a_failed_commit_fails_all_its_members(self, hold: Any, applied: Any) -> None:
        held = hold()
        waiting = [held.submit(draft_of(KEY)) for _ in range(5)]
        future = held.committer.submit(draft_of(KEY), unchanged)
        held.gate.error = Unavailable("no luck", code="no_space", hint="try again", applied=applied, path="here")
        held.gate.open.set()
        raised = [waited.exception(DEADLINE_S) for waited in (held.first, *waiting, future)]
        assert [(type(error), error.code, error.applied, error.path) for error in raised] == [
            (Unavailable, "no_space", applied, "here")
        ] * 7
        assert len({id(error) for error in raised}) == 7
        held.gate.error = None
        assert held.committer.append(draft_of(KEY)).effect == EventsAppended(1, 1, 0, 1)
        assert len(everything(held.gate, partition_for(KEY))) == 1

    @pytest.mark.req("J41")
    def test_calls_of_one_thread_keep_their_order(self, opened: Opened) -> None:
        log = opened(partitions=PARTITIONS)
        committer = Committer(log, Settings(group_actions_max=3))

        def write(writer: int) -> list[Any]:
            return [committer.submit(draft_of(f"order|{writer}", number), unchanged) for number in range(40)]

        for futures in in_threads(write, 5):
            assert [future.result(DEADLINE_S).effect.first for future in futures] == list(range(1, 41))
        committer.close()

    @pytest.mark.req("J42")
    def test_a_full_queue_refuses(self, hold: Any) -> None:
        held = hold(append_queue_max=3)
        waiting = [held.submit(draft_of(KEY)) for _ in range(3)]
        for call in (held.committer.append, lambda draft: held.committer.submit(draft, unchanged)):
            with pytest.raises(Unavailable) as refused:
                call(draft_of(KEY, "too many"))
            assert (refused.value.code, refused.value.applied) == ("overloaded", "no")
        held.gate.open.set()
        assert [future.result(DEADLINE_S).effect.first for future in waiting] == [1, 2, 3]
        assert len(everything(held.gate, partition_for(KEY))) == 3

    @pytest.mark.req("J42")
    def test_past_its_time_a_queued_append_is_withdrawn(self, hold: Any) -> None:
        held = hold()
        late = held.submit(draft_of(KEY, "late"), 0.05)
        waiting = held.submit(draft_of(KEY, "waits"))
        error = late.exception(DEADLINE_S)
        assert (type(error), error.code, error.applied) == (Unavailable, "timeout", "no")
        held.gate.open.set()
        assert waiting.result(DEADLINE_S).effect == EventsAppended(1, 1, 0, 1)
        assert len(everything(held.gate, partition_for(KEY))) == 1

    @pytest.mark.req("J42")
    def test_who_gives_up_in_a_commit_is_unknown_and_holds_up_nobody(self, hold: Any) -> None:
        held = hold()
        gate, committer = held.gate, held.committer
        first = held.submit(draft_of(KEY, "first"))
        late = [held.submit(draft_of(KEY, number), 0.3) for number in range(2)]
        stays = held.submit(draft_of(KEY, "stays"))
        second = threading.Event()
        first_open, gate.open = gate.open, second
        first_open.set()
        gate.entered.acquire(timeout=DEADLINE_S)
        for future in late:
            error = future.exception(DEADLINE_S)
            assert (type(error), error.code, error.applied) == (Unavailable, "timeout", "unknown")
            assert "append id" in error.hint
        second.set()
        assert [future.result(DEADLINE_S).effect.first for future in (first, stays)] == [1, 4]
        assert committer.append(draft_of(KEY)).effect == EventsAppended(5, 5, 4, 1)

    @pytest.mark.req("J41", "J42")
    @pytest.mark.parametrize("where", ["a thread", "the main thread", "commit_in_thread"])
    def test_a_lone_caller_commits_in_its_own_thread(self, opened: Opened, where: str) -> None:
        """But in the main thread, where a signal could interrupt it in the midst of a commit."""
        gate = Gate(opened(partitions=PARTITIONS))
        committer = Committer(gate, Settings(commit_in_thread=where == "commit_in_thread"))
        calls: list[Callable[[], object]] = [
            lambda: committer.append(draft_of(KEY)),
            lambda: committer.append_all([draft_of(KEY), draft_of(KEY)]),
        ]

        def append() -> str:
            assert committer.append(draft_of(KEY)).effect == EventsAppended(1, 1, 0, 1)
            many = committer.append_all([draft_of(KEY), draft_of(KEY, expected=0), draft_of(KEY)])
            assert [one.effect for one in many] == [
                EventsAppended(2, 2, 1, 1), RefusedAppend("expected", 2), EventsAppended(3, 3, 2, 1),
            ]  # fmt: skip
            gate.error = Unavailable("no luck", code="no_space", hint="try again")
            for call in calls:
                with pytest.raises(Unavailable) as failed:
                    call()
                assert failed.value.code == "no_space"
            gate.error = None
            committer.submit(draft_of(KEY), unchanged).result(DEADLINE_S)
            return threading.current_thread().name

        if where == "the main thread":
            append()
            lone = "strandline-committer"
        else:
            with ThreadPoolExecutor(1) as pool:
                own = pool.submit(append).result(DEADLINE_S)
            lone = own if where == "a thread" else "strandline-committer"
        assert gate.threads == [lone] * 4 + ["strandline-committer"]
        committer.close()
        for call in calls:
            with pytest.raises(InvalidInput):
                call()

    @pytest.mark.req("J41", "RA4")
    def test_who_comes_while_a_lone_caller_commits_is_committed_next(self, hold: Any) -> None:
        held = hold()
        waiting = [held.submit(draft_of(KEY)) for _ in range(3)]
        many = held.pool.submit(held.committer.append_all, [draft_of(KEY), draft_of(KEY)])
        until(lambda: len(held.committer._queue) == 4)
        future = held.committer.submit(draft_of(KEY), unchanged)
        held.gate.open.set()
        assert [one.result(DEADLINE_S).effect.first for one in waiting] == [1, 2, 3]
        assert [one.effect.first for one in many.result(DEADLINE_S)] == [4, 5]
        assert future.result(DEADLINE_S).effect.first == 6
        assert len(held.gate.groups) == 2
        assert held.gate.threads[0] != held.gate.threads[1] == "strandline-committer"

    @pytest.mark.req("J42", "RA2", "RA3")
    @pytest.mark.parametrize("future", [False, True])
    def test_a_commit_that_hangs_bounds_everybody(self, opened: Opened, future: bool) -> None:
        """The first is in the commit, the second waits behind it. A future's commit is never in a caller's thread."""
        gate = Gate(opened(partitions=PARTITIONS))
        committer = Committer(gate, Settings(append_timeout_s=0.1, commit_in_thread=True))
        gate.open.clear()
        with ThreadPoolExecutor() as pool:

            def submit(draft: ActionDraft) -> Any:
                return committer.submit(draft, unchanged) if future else pool.submit(committer.append, draft)

            first = submit(draft_of(KEY, "under way"))
            gate.entered.acquire(timeout=DEADLINE_S)
            second = submit(draft_of(KEY, "queued"))
            try:
                assert_late(first, "unknown")
                assert_late(second, "no")
            finally:
                gate.open.set()
        assert committer.append(draft_of("order|after"), DEADLINE_S).place is not None
        assert len(everything(gate, partition_for(KEY))) == 1
        committer.close()

    @pytest.mark.req("J42")
    def test_a_future_is_answered_though_its_committer_is_forgotten(self, opened: Opened) -> None:
        log, before = opened(partitions=PARTITIONS), set(threading.enumerate())
        for number in range(5):
            future = Committer(log, Settings()).submit(draft_of(KEY, number), unchanged)
            assert future.result(DEADLINE_S).place is not None
        ours = {"strandline-committer", "strandline-futures"}
        until(lambda: not any(thread.name in ours for thread in set(threading.enumerate()) - before))

    @pytest.mark.req("J42", "J49")
    def test_a_commit_that_hangs_does_not_keep_close(self, hold: Any) -> None:
        held = hold(append_timeout_s=0.1, commit_in_thread=True)
        future = held.committer.submit(draft_of(KEY), unchanged)
        held.pool.submit(held.committer.close).result(DEADLINE_S / 10)
        assert_late(held.first, "unknown")
        assert_late(future, "no")
        held.gate.open.set()
        until(lambda: not held.committer._committing)
        assert everything(held.gate, partition_for(KEY)) == []

    @pytest.mark.req("J42", "RA2", "RA3")
    def test_giving_up_at_any_moment_loses_nobody(self, opened: Opened) -> None:
        gate = Gate(opened(partitions=PARTITIONS))
        committer = Committer(gate, Settings())
        outcomes: dict[str, str] = {}

        def write(writer: int) -> None:
            chance = random.Random(writer)
            for number in range(40):
                append_id = f"{writer:016x}{number:016x}"
                draft = draft_of(f"order|{writer}", number, append_id=append_id)
                try:
                    committer.append(draft, chance.choice([0.0, 0.0002, 0.001, 0.003, DEADLINE_S]))
                    outcomes[append_id] = "ok"
                except Unavailable as error:
                    outcomes[append_id] = error.applied

        in_threads(write, 16)
        assert committer.append(draft_of("order|last"), DEADLINE_S).place is not None
        assert committer._is_idle()
        found = [record for partition in range(PARTITIONS) for record in everything(gate, partition)]
        ids = Counter(
            action.append_id for record in found if isinstance(action := decode_header(record.header), Append)
        )
        for append_id, outcome in outcomes.items():
            assert ids[append_id] in {"ok": {1}, "no": {0}, "unknown": {0, 1}}[outcome]
        assert len(outcomes) == 16 * 40
        committer.close()

    @pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="needs a signal to interrupt a thread with")
    @pytest.mark.parametrize("before_it", [0, 2])
    def test_an_interrupted_caller_holds_up_nobody(self, hold: Any, before_it: int) -> None:
        def interrupt(number: int, frame: Any) -> None:
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGUSR1, interrupt)
        try:
            held = hold()
            others = [held.submit(draft_of(KEY)) for _ in range(before_it)]

            def interrupt_when_queued() -> None:
                until(lambda: len(held.committer._queue) > before_it)
                os.kill(os.getpid(), signal.SIGUSR1)

            held.pool.submit(interrupt_when_queued)
            with pytest.raises(KeyboardInterrupt):
                held.committer.append(draft_of("order|interrupted"))
        finally:
            signal.signal(signal.SIGUSR1, before)
        others.append(held.submit(draft_of(KEY)))
        held.gate.open.set()
        assert [future.result(DEADLINE_S).effect.first for future in others] == list(range(1, len(others) + 1))
        assert held.committer.append(draft_of(KEY)).place is not None

    @pytest.mark.req("J49")
    def test_close_finishes_what_is_queued(self, hold: Any) -> None:
        held = hold()
        waiting = [held.submit(draft_of(KEY)) for _ in range(3)]
        futures = [held.committer.submit(draft_of(KEY), unchanged) for _ in range(3)]
        closing = held.pool.submit(held.committer.close)
        until(lambda: held.committer._closed)
        with pytest.raises(InvalidInput) as refused:
            held.committer.append(draft_of(KEY))
        assert refused.value.code == "closed"
        held.gate.open.set()
        closing.result(DEADLINE_S)
        assert [future.result(0).effect.first for future in futures] == [4, 5, 6]
        assert [future.result(DEADLINE_S).effect.first for future in waiting] == [1, 2, 3]
        held.committer.close()

    @pytest.mark.req("RA15")
    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_a_forked_child_cannot_commit(self, hold: Any) -> None:
        held = hold()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                started = time.monotonic()
                held.committer.append(draft_of(KEY))
            except Unsupported as error:
                code = 0 if error.code == "used_after_fork" and time.monotonic() - started < 1 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        held.gate.open.set()
        assert held.first.result(DEADLINE_S).place is not None

    @pytest.mark.req("J41", "RA1", "RA4")
    def test_many_threads_are_all_answered(self, opened: Opened) -> None:
        log = opened(partitions=PARTITIONS)
        committer = Committer(log, Settings())
        writers, appends = 32, 20

        def write(writer: int) -> list[int]:
            key = f"order|{writer}"
            firsts = []
            for number in range(appends):
                answer = committer.append(draft_of(key, writer, number, expected=2 * number))
                if not isinstance(answer.effect, EventsAppended):
                    raise StrandlineError
                firsts.append(answer.effect.first)
            return firsts

        assert in_threads(write, writers) == [list(range(1, 2 * appends, 2))] * writers
        assert sum(len(everything(log, partition)) for partition in range(PARTITIONS)) == writers * appends
        committer.close()
