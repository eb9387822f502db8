"""append: acknowledged appends per second, beside eventsourcing on SQLite; both sync every commit.

Writers are threads of one process. Each works on a journal of its own, there an aggregate, and takes a new one, with a
fresh UUID, after 100 events; in the cases `…-new-keys`, which run on demand, with every call. A round warms up, then
counts for a fixed time what was acknowledged within it. What a caller hands over (events, identifiers) is made inside
that time on both sides.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from strandline.bench.cases import PAYLOAD_BYTES, Case, Plan, Sample
from strandline.bench.child import in_child

WARM_UP_S, COUNT_S = 0.5, 3.0
QUICK_WARM_UP_S, QUICK_COUNT_S = 0.05, 0.2
JOURNAL_EVENTS = 100


class Journals:
    """What one writer writes to: which journal, and from which number on."""

    def __init__(self, events: int, journal_events: int) -> None:
        self._events, self._journal_events, self._left = events, journal_events, 0
        self._id = uuid4()
        self._next = 1

    def next(self) -> tuple[UUID, int]:
        """The journal of the next call, and the number of its first event."""
        if self._left < self._events:
            self._id, self._next, self._left = uuid4(), 1, max(self._journal_events, self._events)
        first, self._next = self._next, self._next + self._events
        self._left -= self._events
        return self._id, first


def count_calls(
    call: Callable[[Journals], None], writers: int, events: int, journal_events: int, quick: bool
) -> dict[str, Any]:
    """How many calls ended within the time, when `writers` threads make them one after the other."""
    warm_up_s, count_s = (QUICK_WARM_UP_S, QUICK_COUNT_S) if quick else (WARM_UP_S, COUNT_S)
    done = [0] * writers
    failed: list[BaseException] = []
    running = True
    start = threading.Barrier(writers + 1)

    def write(writer: int) -> None:
        journals = Journals(events, journal_events)
        start.wait()
        try:
            while running:
                call(journals)
                done[writer] += 1
        except Exception as error:  # noqa: BLE001 (a round with a failed call gives no figure, whatever failed)
            failed.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    start.wait()
    time.sleep(warm_up_s)
    before, from_s = sum(done), time.perf_counter()
    time.sleep(count_s)
    after, to_s = sum(done), time.perf_counter()
    running = False
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return {
        "calls_per_s": (after - before) / (to_s - from_s),
        "calls": after - before,
        "seconds": to_s - from_s,
        "slowest_writer_calls": min(done),
        "fastest_writer_calls": max(done),
    }


def ours_in_child(folder: str, writers: int, events: int, journal_events: int, quick: bool) -> dict[str, Any]:
    """Through the public Journal, as any service would."""
    import strandline

    payload = os.urandom(PAYLOAD_BYTES)
    with strandline.connect(f"sqlite:{folder}/ours") as s:
        journal = s.journal

        def call(journals: Journals) -> None:
            order, _ = journals.next()
            journal.append(
                strandline.Key("order", order.hex), [strandline.Event("OrderPlaced", payload) for _ in range(events)]
            )

        return count_calls(call, writers, events, journal_events, quick)


def theirs_in_child(folder: str, writers: int, events: int, journal_events: int, quick: bool) -> dict[str, Any]:
    """Through the peer's recorder: as many stored events a call, with the versions that come next."""
    from eventsourcing.persistence import StoredEvent

    from strandline.bench import peer

    payload = os.urandom(PAYLOAD_BYTES)
    with peer.recorder(folder) as recorder:

        def call(journals: Journals) -> None:
            order, first = journals.next()
            recorder.insert_events(
                [StoredEvent(order, version, "order:OrderPlaced", payload) for version in range(first, first + events)]
            )

        return {**count_calls(call, writers, events, journal_events, quick), **peer.settings()}


def _side(function: str, work: dict[str, int], plan: Plan) -> Sample:
    answer = in_child(f"append:{function}", folder=str(plan.folder), quick=plan.quick, **work)
    return Sample(answer["calls_per_s"] * work["events"], answer)


def _case(name: str, *, writers: int, events: int = 1, target: float, new_keys: bool = False) -> Case:
    work = {"writers": writers, "events": events, "journal_events": 1 if new_keys else JOURNAL_EVENTS}
    ours, theirs = (partial(_side, f"{side}_in_child", work) for side in ("ours", "theirs"))
    return Case(
        f"append/{name}", "eventsourcing", "appends/s" if events == 1 else "events/s", target, ours, theirs,
        on_demand=new_keys, settings={**work, "warm_up_s": WARM_UP_S, "count_s": COUNT_S},
    )  # fmt: skip


CASES = [
    _case("1-writer", writers=1, target=1.0),
    _case("16-writers", writers=16, target=5.0),
    _case("64-writers", writers=64, target=7.0),
    _case("500-a-call", writers=1, events=500, target=1.5),
    _case("1-writer-new-keys", writers=1, target=1.0, new_keys=True),
    _case("16-writers-new-keys", writers=16, target=5.0, new_keys=True),
    _case("64-writers-new-keys", writers=64, target=7.0, new_keys=True),
]
