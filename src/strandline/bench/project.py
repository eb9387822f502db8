"""project: events per second of an exactly-once projection that updates one row per event, in one process.

Ours gets lists of 500: one transaction has their effects and offsets, each event still once. Beside eventsourcing,
doing for each event what its projection runner does: the view's row and the tracking record in one transaction, on
notifications that are selected in pages. `at-least-once` is a handler that only counts, without a transaction around
it, beside ours exactly once. `latency-p50` and `feed-p50` are from an append's acknowledgement to its handler's return,
writer and host in one process, with a pipeline beside them or with the live feed, beside a limit. `memory` is the peak
of a host that projects a million events of 100,000 keys.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from contextlib import ExitStack, closing
from functools import partial
from statistics import median
from typing import Any, Literal
from uuid import uuid4

from strandline.bench import fresh, tags
from strandline.bench.cases import PAYLOAD_BYTES, Case, CaseSettings, RoundFigure
from strandline.bench.child import Child, in_child
from strandline.sql.statements import statement

EVENTS, QUICK_EVENTS, KEYS = 60_000, 1000, 2000
LIST = 500
WAIT_S = 600.0
LOOK_S = 0.02
LATENCY_MS, FEED_MS, MEMORY_MB = 400.0, 20.0, 300.0
SAMPLES, WARM_UP, QUICK_SAMPLES, QUICK_WARM_UP = 34, 10, 3, 1
PAUSE_LEAST_S, PAUSE_MOST_S = 0.05, 0.4
MANY_EVENTS, MANY_KEYS, QUICK_MANY = 1_000_000, 100_000, 5000


def _sql(name: str, url: str) -> str:
    return statement("strandline.bench", f"{name}_{'sqlite' if url.startswith('sqlite') else 'postgres'}")


def seconds_until_saved(s: Any, projection: Any, events: int) -> float:
    """Return how long a host takes until so many events are committed. Calls of a handler count for nothing: its
    transaction may still be refused."""
    import strandline

    host = strandline.Host(s, [projection])
    thread = threading.Thread(target=host.run)
    from_s = time.perf_counter()
    thread.start()
    try:
        host.ready.wait(WAIT_S)
        with s.open_offsets().store.closed_after() as store:
            while (saved := _saved(store, projection.name)) < events:
                if time.perf_counter() - from_s > WAIT_S:
                    raise RuntimeError(f"{saved} events were saved after {WAIT_S:g} s, not {events}")
                time.sleep(LOOK_S)
        return time.perf_counter() - from_s
    finally:
        host.stop()
        thread.join()


def _saved(store: Any, name: str) -> int:
    """Return how many events are saved, as the ranges count them with each save."""
    with store.look(store.find(name).id) as (tx, row):
        return sum(json.loads(found.counts).get("accepted", 0) for found in store.ranges(tx, row))


def project_in_child(
    where: dict[str, Any], events: int, delivery: Literal["exactly_once", "at_least_once"]
) -> dict[str, Any]:
    """Run a projection over all events, and check the sum."""
    import strandline

    url = where["url"]
    count_one, table, total = _sql("count_event", url), _sql("create_count", url), _sql("sum_counts", url)

    def handle(tx: Any, found: list[Any]) -> None:
        tx.executemany(count_one, [(str(event.key),) for event in found])

    with strandline.connect(**where) as s:
        with s.open_offsets().store.database.write() as tx:
            raw: Any = tx.raw
            raw.execute(table)
        handler = handle if delivery == "exactly_once" else len
        name = f"counts-{uuid4().hex[:8]}"
        projection = strandline.Projection(
            name, strandline.BySlices("order"), handler, delivery=delivery, group_size=LIST, page_size=1000,
            refresh_interval_s=0.01,
        )  # fmt: skip
        seconds = seconds_until_saved(s, projection, events)
        with s.open_offsets().store.database.read() as tx:
            raw = tx.raw
            ((kept,),) = list(raw.execute(total))
    if delivery == "exactly_once" and int(kept) % events:
        raise RuntimeError(f"the sum is {kept}, not {events}")
    return {"events_per_s": events / seconds}


def runner_in_child(where: dict[str, Any], events: int) -> dict[str, Any]:
    """Do what the peer's runner does for each event, on as many notifications."""
    from eventsourcing.persistence import StoredEvent, Tracking

    from strandline.bench import peer

    url = where["url"]
    ids = [uuid4() for _ in range(KEYS)]
    payload = os.urandom(PAYLOAD_BYTES)
    with peer.recorder(url) as (recorder, settings), closing(peer.tracking(recorder)) as view:
        for start in range(0, events, 500):
            recorder.insert_events([
                StoredEvent(ids[at % KEYS], at // KEYS + 1, "order:OrderPlaced", payload)
                for at in range(start, min(start + 500, events))
            ])  # fmt: skip
        view.recorder.create_table()
        view.execute(_sql("create_count", url))
        update = _sql("count_event", url)
        from_s = time.perf_counter()
        count, start_id = 0, 1
        while page := recorder.select_notifications(start=start_id, limit=500):
            for notification in page:
                view.handle(update, str(notification.originator_id), Tracking("orders", notification.id))
                count += 1
            start_id = page[-1].id + 1
        seconds = time.perf_counter() - from_s
    if count != events:
        raise RuntimeError(f"{count} notifications came, not {events}")
    return {"events_per_s": count / seconds, **settings}


def latency_in_child(url: str, feed: bool, samples: int, warm_up: int) -> dict[str, Any]:
    """Append now and then; how long until the handler has returned, after the append has."""
    import strandline

    returned: dict[str, float] = {}
    came = threading.Event()

    def handle(tx: Any, event: Any) -> None:
        returned[str(event.key)] = time.perf_counter()
        came.set()

    payload, random_, times = os.urandom(PAYLOAD_BYTES), random.Random(samples), []
    with strandline.connect(url) as s, ExitStack() as running:
        if not feed:
            pipeline = running.enter_context(Child("freshness:pipeline_in_child", url=url))
        host = strandline.Host(s, [strandline.Projection("seen", strandline.BySlices("order"), handle, feed=feed)])
        thread = threading.Thread(target=host.run)
        thread.start()
        running.callback(thread.join)
        running.callback(host.stop)
        for number in range(warm_up + samples):
            key = strandline.Key("order", f"{random_.getrandbits(64):x}")
            s.journal.append(key, [strandline.Event("OrderPlaced", payload)])
            from_s = time.perf_counter()
            while str(key) not in returned:
                came.clear()
                if time.perf_counter() - from_s > WAIT_S:
                    raise RuntimeError(f"not handled after {WAIT_S} s")
                came.wait(0.1)
            if number >= warm_up:
                times.append(max(0.0, returned[str(key)] - from_s) * 1000)
            time.sleep(random_.uniform(PAUSE_LEAST_S, PAUSE_MOST_S))
        if not feed:
            pipeline.stop()
            pipeline.answer()
    return {"p50_ms": median(times), "most_ms": max(times), "samples_ms": times}


def _latency(feed: bool, plan: CaseSettings) -> RoundFigure:
    effort = (QUICK_SAMPLES, QUICK_WARM_UP) if plan.quick else (SAMPLES, WARM_UP)
    url = f"sqlite:{plan.folder}/ours"
    answer = in_child("project:latency_in_child", url=url, feed=feed, samples=effort[0], warm_up=effort[1])
    return RoundFigure(answer["p50_ms"], answer)


def fill_many_in_child(where: dict[str, Any], events: int, keys: int) -> dict[str, Any]:
    """A log with so many events, ten a call, all of it carried and below the strandline."""
    import strandline
    from strandline.bench.fill import fill_in_child
    from strandline.testing import carry

    fill_in_child(where, keys, events // 10, 10)
    with strandline.connect(**where) as s:
        carry(s)
    return {}


def prepare_many(on: str, plan: CaseSettings) -> None:
    """Many events, for all rounds."""
    where = tags.where_of(on, plan)
    (plan.shared / "where.json").write_text(json.dumps(where), encoding="utf-8")
    in_child("project:fill_many_in_child", where=where, events=many(plan), keys=min(MANY_KEYS, many(plan) // 10))


def many(plan: CaseSettings) -> int:
    return QUICK_MANY if plan.quick else MANY_EVENTS


def _memory(plan: CaseSettings) -> RoundFigure:
    where = json.loads((plan.shared / "where.json").read_bytes())
    answer = in_child("project:project_in_child", where=where, events=many(plan), delivery="exactly_once")
    return RoundFigure(answer["peak_rss_mb"], answer)


def _events(plan: CaseSettings) -> int:
    return QUICK_EVENTS if plan.quick else EVENTS


def _prepare(on: str, plan: CaseSettings) -> None:
    where = tags.where_of(on, plan)
    (plan.shared / "where.json").write_text(json.dumps(where), encoding="utf-8")
    in_child("tags:fill_and_carry_in_child", where=where, events=_events(plan), tags=0)


def _ours(delivery: str, plan: CaseSettings) -> RoundFigure:
    where = json.loads((plan.shared / "where.json").read_bytes())
    answer = in_child("project:project_in_child", where=where, events=_events(plan), delivery=delivery)
    return RoundFigure(answer["events_per_s"], answer)


def _peer(on: str, plan: CaseSettings) -> RoundFigure:
    with fresh.journal(on, plan) as where:
        answer = in_child("project:runner_in_child", where=where, events=_events(plan))
    return RoundFigure(answer["events_per_s"], answer)


def _case(name: str, on: str, peer: str, target: float, delivery: str, theirs: Any) -> Case:
    return Case(
        f"project/{name}", peer, "events/s", target, partial(_ours, delivery), theirs, on=on,
        prepare=partial(_prepare, on), settings={"events": EVENTS, "list": LIST},
    )  # fmt: skip


CASES = [
    _case("sqlite", "sqlite", "eventsourcing", 5.0, "exactly_once", partial(_peer, "sqlite")),
    _case("postgres", "postgres", "eventsourcing", 20.0, "exactly_once", partial(_peer, "postgres")),
    _case("at-least-once", "postgres", "exactly-once", 1.0, "at_least_once", partial(_ours, "exactly_once")),
    Case(
        "project/latency-p50", "limit", "ms", 1.0, partial(_latency, False), LATENCY_MS, rate=False,
        settings={"samples_a_round": SAMPLES, "pause_s": [PAUSE_LEAST_S, PAUSE_MOST_S], "pipeline": "local[2]"},
    ),
    Case(
        "project/feed-p50", "limit", "ms", 1.0, partial(_latency, True), FEED_MS, rate=False,
        settings={"samples_a_round": SAMPLES, "pause_s": [PAUSE_LEAST_S, PAUSE_MOST_S], "pipeline": "none"},
    ),
    Case(
        "project/memory", "limit", "MB", 1.0, _memory, MEMORY_MB, rate=False, rounds=1,
        prepare=partial(prepare_many, "sqlite"), settings={"events": MANY_EVENTS, "keys": MANY_KEYS, "list": LIST},
    ),
]  # fmt: skip
