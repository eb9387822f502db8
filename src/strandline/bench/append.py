"""append: acknowledged appends per second, beside eventsourcing on SQLite and PostgreSQL; both sync every commit. On
Kafka, beside a bare producer with the same bytes and settings.

Writers are threads of one process. Each works on a journal of its own, there an aggregate, and takes a new one, with a
fresh UUID, after 100 events; in the cases `…-new-keys`, which run on demand, with every call. A round warms up, then
counts for a fixed time what was acknowledged within it. What a caller hands over (events, identifiers) is made inside
that time on both sides.

`futures` is one thread that keeps 1,000 appends on their way with `append_future`, to 64 journals in turns, beside our
own 64 threads that wait. `many-keys` gives 500 events of 500 journals to one call, on both sides.

`metrics-off` is a writer in whose process metrics and traces were started and stopped again, `metrics-on` one in which
they run, beside a writer in a process that never started them; both run on demand.

`kafka-64-writers` is answered by the brokers alone, `kafka-64-verdicts` with the numbers that the events got, as
everywhere else. `kafka-expected-p99` is how long a lone append with `expected` takes, beside a limit.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from statistics import quantiles
from typing import Any, Literal
from uuid import UUID, uuid4

from strandline.bench import fresh
from strandline.bench.cases import PAYLOAD_BYTES, Case, CaseSettings, RoundFigure
from strandline.bench.child import in_child

WARM_UP_S, COUNT_S = 0.5, 3.0
QUICK_WARM_UP_S, QUICK_COUNT_S = 0.05, 0.2
JOURNAL_EVENTS = 100
KAFKA_WORK = {"writers": 64, "events": 1, "journal_events": JOURNAL_EVENTS}
IN_FLIGHT = 1000
EXPECTED_LIMIT_MS = 100.0
EXPECTED, EXPECTED_WARM_UP, QUICK_EXPECTED = 500, 50, 5
EXPECTED_PAUSE_MOST_S = 0.02
Measured = Literal["never", "off", "on"]


class Journals:
    """The journals of one writer, each with the number to go on from."""

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
    """Return how many calls ended within the time, when `writers` threads make them one after the other."""
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
    while (after := sum(done)) == before and not failed:
        time.sleep(count_s)  # a short round on a cold server
    to_s = time.perf_counter()
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


def ours_in_child(
    where: dict[str, Any],
    writers: int,
    events: int,
    journal_events: int,
    quick: bool,
    numbers: bool = True,
    measured: Measured = "never",
) -> dict[str, Any]:
    """Through the public Journal, as any service would."""
    import strandline

    payload = os.urandom(PAYLOAD_BYTES)
    with _measured(measured), strandline.connect(**where) as s:
        journal = s.journal

        def call(journals: Journals) -> None:
            order, _ = journals.next()
            journal.append(
                strandline.Key("order", order.hex),
                [strandline.Event("OrderPlaced", payload) for _ in range(events)],
                numbers=numbers,
            )

        return count_calls(call, writers, events, journal_events, quick)


@contextmanager
def _measured(measured: Measured) -> Iterator[None]:
    """Count and trace what happens within, or until just before it, or not at all."""
    if measured == "never":
        yield
        return
    from strandline import metrics, tracing

    counted = metrics.start()
    tracing.start()
    try:
        if measured == "on":
            yield
    finally:
        tracing.stop()
        counted.stop()
    if measured == "off":
        yield


def theirs_in_child(
    where: dict[str, Any], writers: int, events: int, journal_events: int, quick: bool
) -> dict[str, Any]:
    """Through the peer's recorder: as many stored events a call, with the versions that come next."""
    from eventsourcing.persistence import StoredEvent

    from strandline.bench import peer

    payload = os.urandom(PAYLOAD_BYTES)
    with peer.recorder(where["url"], writers) as (recorder, settings):

        def call(journals: Journals) -> None:
            order, first = journals.next()
            recorder.insert_events(
                [StoredEvent(order, version, "order:OrderPlaced", payload) for version in range(first, first + events)]
            )

        return {**count_calls(call, writers, events, journal_events, quick), **settings}


def futures_in_child(
    where: dict[str, Any], writers: int, events: int, journal_events: int, quick: bool, numbers: bool = True
) -> dict[str, Any]:
    """One thread with many appends on their way, to as many journals as `writers` would write to."""
    import strandline

    payload = os.urandom(PAYLOAD_BYTES)
    warm_up_s, count_s = (QUICK_WARM_UP_S, QUICK_COUNT_S) if quick else (WARM_UP_S, COUNT_S)
    turns = cycle([Journals(events, journal_events) for _ in range(writers)])
    on_their_way: deque[Future[Any]] = deque()
    with strandline.connect(**where) as s:
        append_future = s.journal.append_future

        def acknowledged_within(seconds: float) -> tuple[int, float]:
            count, from_s = 0, time.perf_counter()
            while (took_s := time.perf_counter() - from_s) < seconds or not count:
                order, _ = next(turns).next()
                placed = [strandline.Event("OrderPlaced", payload) for _ in range(events)]
                on_their_way.append(append_future(strandline.Key("order", order.hex), placed, numbers=numbers))
                if len(on_their_way) >= IN_FLIGHT:
                    on_their_way.popleft().result()
                    count += 1
            return count, took_s

        acknowledged_within(warm_up_s)
        calls, seconds = acknowledged_within(count_s)
        for last in on_their_way:
            last.result()
    return {"calls_per_s": calls / seconds, "calls": calls, "seconds": seconds}


def ours_many_in_child(
    where: dict[str, Any], writers: int, events: int, journal_events: int, quick: bool
) -> dict[str, Any]:
    """Through `append_many`: one event each for as many journals as there are events in a call."""
    import strandline

    payload = os.urandom(PAYLOAD_BYTES)
    keys = [Journals(1, journal_events) for _ in range(events)]
    with strandline.connect(**where) as s:

        def call(_: Journals) -> None:
            answers = s.journal.append_many(
                [
                    (strandline.Key("order", key.next()[0].hex), [strandline.Event("OrderPlaced", payload)])
                    for key in keys
                ]
            )
            for answer in answers:
                if not isinstance(answer, strandline.Appended):
                    raise answer

        return count_calls(call, writers, events, journal_events, quick)


def theirs_many_in_child(
    where: dict[str, Any], writers: int, events: int, journal_events: int, quick: bool
) -> dict[str, Any]:
    """Through the peer's recorder: as many stored events, each of another aggregate."""
    from eventsourcing.persistence import StoredEvent

    from strandline.bench import peer

    payload = os.urandom(PAYLOAD_BYTES)
    keys = [Journals(1, journal_events) for _ in range(events)]
    with peer.recorder(where["url"], writers) as (recorder, settings):

        def call(_: Journals) -> None:
            places = [key.next() for key in keys]
            recorder.insert_events(
                [StoredEvent(order, version, "order:OrderPlaced", payload) for order, version in places]
            )

        return {**count_calls(call, writers, events, journal_events, quick), **settings}


def expected_in_child(where: dict[str, Any], quick: bool) -> dict[str, Any]:
    """One writer that says for each append where the journal must be; how long each took, in an idle system."""
    import strandline

    payload = os.urandom(PAYLOAD_BYTES)
    samples, warm_up = (QUICK_EXPECTED, 1) if quick else (EXPECTED, EXPECTED_WARM_UP)
    random_ = random.Random(samples)
    journals = Journals(1, JOURNAL_EVENTS)
    times: list[float] = []
    with strandline.connect(**where) as s:
        for _ in range(warm_up + samples):
            order, first = journals.next()
            key, event = strandline.Key("order", order.hex), strandline.Event("OrderPlaced", payload)
            time.sleep(random_.uniform(0, EXPECTED_PAUSE_MOST_S))
            from_s = time.perf_counter()
            s.journal.append(key, [event], expected=first - 1)
            times.append((time.perf_counter() - from_s) * 1000)
    times = sorted(times[warm_up:])
    hundredths = quantiles(times, n=100, method="inclusive")
    return {"p50_ms": hundredths[49], "p90_ms": hundredths[89], "p99_ms": hundredths[98], "most_ms": times[-1]}


def _side(function: str, on: str, work: dict[str, Any], plan: CaseSettings) -> RoundFigure:
    with fresh.journal(on, plan) as where:
        answer = in_child(function, where=where, quick=plan.quick, **work)
    return RoundFigure(answer["calls_per_s"] * work["events"], answer)


def _case(
    name: str, *, writers: int, events: int = 1, target: float, new_keys: bool = False, on: str = "sqlite"
) -> Case:
    work = {"writers": writers, "events": events, "journal_events": 1 if new_keys else JOURNAL_EVENTS}
    return Case(
        f"append/{name}", "eventsourcing", "appends/s" if events == 1 else "events/s", target,
        partial(_side, "append:ours_in_child", on, work), partial(_side, "append:theirs_in_child", on, work),
        on=on, on_demand=new_keys, settings={**work, "warm_up_s": WARM_UP_S, "count_s": COUNT_S},
    )  # fmt: skip


def _measured_case(name: str, measured: Measured, *, target: float) -> Case:
    work = {"writers": 1, "events": 1, "journal_events": JOURNAL_EVENTS}
    return Case(
        f"append/{name}", "unmeasured", "appends/s", target,
        partial(_side, "append:ours_in_child", "sqlite", {**work, "measured": measured}),
        partial(_side, "append:ours_in_child", "sqlite", work),
        on="sqlite", on_demand=True, settings={**work, "warm_up_s": WARM_UP_S, "count_s": COUNT_S},
    )  # fmt: skip


def _many_case(name: str, *, target: float, on: str = "sqlite") -> Case:
    work = {"writers": 1, "events": 500, "journal_events": JOURNAL_EVENTS}
    return Case(
        f"append/{name}", "eventsourcing", "events/s", target,
        partial(_side, "append:ours_many_in_child", on, work), partial(_side, "append:theirs_many_in_child", on, work),
        on=on, settings={**work, "warm_up_s": WARM_UP_S, "count_s": COUNT_S},
    )  # fmt: skip


def _futures_case(name: str, *, on: str = "sqlite", numbers: bool = True) -> Case:
    work = {"writers": 64, "events": 1, "journal_events": JOURNAL_EVENTS, "numbers": numbers}
    return Case(
        f"append/{name}", "threads", "appends/s", 1.5,
        partial(_side, "append:futures_in_child", on, work), partial(_side, "append:ours_in_child", on, work),
        on=on, prepare=_warm_up if on == "kafka" else None,
        settings={**work, "in_flight": IN_FLIGHT, "warm_up_s": WARM_UP_S, "count_s": COUNT_S},
    )  # fmt: skip


def _warm_up(plan: CaseSettings) -> None:
    """A JVM is slow at first; nobody shall pay for it."""
    if not plan.quick:
        _side("bare_producer:produce_in_child", "kafka", KAFKA_WORK, plan)


def _kafka_case(name: str, *, numbers: bool, target: float) -> Case:
    ours = partial(_side, "append:ours_in_child", "kafka", {**KAFKA_WORK, "numbers": numbers})
    return Case(
        f"append/{name}", "confluent-kafka", "appends/s", target,
        ours, partial(_side, "bare_producer:produce_in_child", "kafka", KAFKA_WORK),
        on="kafka", prepare=_warm_up,
        settings={**KAFKA_WORK, "numbers": numbers, "warm_up_s": WARM_UP_S, "count_s": COUNT_S},
    )  # fmt: skip


def _expected(plan: CaseSettings) -> RoundFigure:
    with fresh.journal("kafka", plan) as where:
        answer = in_child("append:expected_in_child", where=where, quick=plan.quick)
    return RoundFigure(answer["p99_ms"], answer)


CASES = [
    _case("1-writer", writers=1, target=1.0),
    _case("16-writers", writers=16, target=5.0),
    _case("64-writers", writers=64, target=7.0),
    _case("500-a-call", writers=1, events=500, target=1.5),
    _many_case("many-keys", target=1.2),
    _futures_case("futures"),
    _case("1-writer-new-keys", writers=1, target=1.0, new_keys=True),
    _case("16-writers-new-keys", writers=16, target=5.0, new_keys=True),
    _case("64-writers-new-keys", writers=64, target=7.0, new_keys=True),
    _measured_case("metrics-off", "off", target=0.98),
    _measured_case("metrics-on", "on", target=0.8),
    _case("postgres-1-writer", writers=1, target=1.3, on="postgres"),
    _case("postgres-64-writers", writers=64, target=15.0, on="postgres"),
    _case("postgres-500-a-call", writers=1, events=500, target=3.0, on="postgres"),
    _many_case("postgres-many-keys", target=1.5, on="postgres"),
    _futures_case("postgres-futures", on="postgres"),
    _kafka_case("kafka-64-writers", numbers=False, target=0.6),
    _kafka_case("kafka-64-verdicts", numbers=True, target=0.4),
    _futures_case("kafka-futures", on="kafka", numbers=False),
    Case(
        "append/kafka-expected-p99", "limit", "ms", 1.0, _expected, EXPECTED_LIMIT_MS, on="kafka", prepare=_warm_up,
        rate=False,
        settings={"samples": EXPECTED, "warm_up": EXPECTED_WARM_UP, "pause_s": [0, EXPECTED_PAUSE_MOST_S]},
    ),
]  # fmt: skip
