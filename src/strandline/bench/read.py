"""read: events per second of one key with 2,000 events, beside eventsourcing on SQLite and PostgreSQL.

Both journals are written one event a call. A round reads the whole journal again and again for a fixed time and
touches every event's payload. In `half-in-log` the pipeline's work is done for the first half only, so that a read
joins store and log.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

from strandline.bench import fresh
from strandline.bench.cases import PAYLOAD_BYTES, Case, CaseSettings, RoundFigure
from strandline.bench.child import in_child

EVENTS = 2000
READ_S, QUICK_READ_S = 2.0, 0.1
WARM_UP_READS = 3


def count_reads(read: Callable[[], int], quick: bool) -> dict[str, Any]:
    """Events per second of whole reads; each must give every byte that was written."""
    for _ in range(WARM_UP_READS):
        _check(read())
    times: list[float] = []
    ends = time.perf_counter() + (QUICK_READ_S if quick else READ_S)
    while not times or time.perf_counter() < ends:
        from_s = time.perf_counter()
        got = read()
        times.append(time.perf_counter() - from_s)
        _check(got)
    return {"events_per_s": EVENTS * len(times) / sum(times), "reads": len(times), "slowest_read_s": max(times)}


def _check(got: int) -> None:
    if got != EVENTS * PAYLOAD_BYTES:
        raise RuntimeError(f"a read gave {got} bytes of payload, not {EVENTS * PAYLOAD_BYTES}")


def ours_in_child(where: dict[str, Any], carried: int, quick: bool) -> dict[str, Any]:
    """Through the public Journal; `carried` of the events are in the store, the rest in the log."""
    import strandline
    from strandline.testing import carry

    payload = os.urandom(PAYLOAD_BYTES)
    key = strandline.Key("order", uuid4().hex)
    with strandline.connect(**where) as s:
        for _ in range(EVENTS):
            last = s.journal.append(key, [strandline.Event("OrderPlaced", payload)])
        carry(s, partition=last.partition, limit=carried)
        lag = last.offset - s.store.pointers()[last.partition].offset
        if lag != EVENTS - carried:
            raise RuntimeError(f"{lag} events are not replicated, not {EVENTS - carried}")

        def read() -> int:
            return sum(len(event.payload) for event in s.journal.read(key))

        return count_reads(read, quick)


def theirs_in_child(where: dict[str, Any], quick: bool) -> dict[str, Any]:
    """Through the peer's recorder, which has everything in one table."""
    from eventsourcing.persistence import StoredEvent

    from strandline.bench import peer

    payload = os.urandom(PAYLOAD_BYTES)
    originator_id = uuid4()
    with peer.recorder(where["url"]) as (recorder, settings):
        for version in range(1, EVENTS + 1):
            recorder.insert_events([StoredEvent(originator_id, version, "order:OrderPlaced", payload)])

        def read() -> int:
            return sum(len(stored.state) for stored in recorder.select_events(originator_id))

        return {**count_reads(read, quick), **settings}


def _side(function: str, on: str, work: dict[str, int], plan: CaseSettings) -> RoundFigure:
    with fresh.journal(on, plan) as where:
        answer = in_child(function, where=where, quick=plan.quick, **work)
    return RoundFigure(answer["events_per_s"], answer)


def _case(name: str, *, carried: int, target: float, on: str = "sqlite") -> Case:
    return Case(
        f"read/{name}", "eventsourcing", "events/s", target,
        partial(_side, "read:ours_in_child", on, {"carried": carried}),
        partial(_side, "read:theirs_in_child", on, {}),
        on=on, settings={"events": EVENTS, "carried": carried, "read_s": READ_S},
    )  # fmt: skip


CASES = [
    _case("replicated", carried=EVENTS, target=2.0),
    _case("half-in-log", carried=EVENTS // 2, target=1.0),
    _case("postgres", carried=EVENTS, target=2.0, on="postgres"),
]
