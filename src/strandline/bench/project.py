"""project: events per second of an exactly-once projection that updates one row per event, in one process.

Ours gets lists of 500: one transaction has their effects and offsets, each event still once. Beside eventsourcing,
doing for each event what its projection runner does: the view's row and the tracking record in one transaction, on
notifications that are selected in pages. `at-least-once` is a handler that only counts, without a transaction around
it, beside ours exactly once.
"""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import closing
from functools import partial
from typing import Any
from uuid import uuid4

from strandline.bench import fresh, tags
from strandline.bench.cases import PAYLOAD_BYTES, Case, Plan, Sample
from strandline.bench.child import in_child
from strandline.sql.statements import statement

EVENTS, QUICK_EVENTS, KEYS = 10_000, 1000, 2000
LIST = 500
WAIT_S = 600.0


def _sql(name: str, url: str) -> str:
    return statement("strandline.bench", f"{name}_{'sqlite' if url.startswith('sqlite') else 'postgres'}")


def project_in_child(where: dict[str, Any], events: int, delivery: str) -> dict[str, Any]:
    """Run a projection over all events, and check the sum."""
    import strandline

    url = where["url"]
    count_one, table, total = _sql("count_event", url), _sql("create_count", url), _sql("sum_counts", url)
    seen = [0]
    done = threading.Event()

    def handle(tx: Any, found: list[Any]) -> None:
        tx.executemany(count_one, [(str(event.key),) for event in found])
        counted(found)

    def counted(found: list[Any]) -> None:
        seen[0] += len(found)
        if seen[0] >= events:
            done.set()

    with strandline.connect(**where) as s:
        with s.open_offsets().store.database.write() as tx:
            raw: Any = tx.raw
            raw.execute(table)
        handler = handle if delivery == "exactly_once" else counted
        name = f"counts-{uuid4().hex[:8]}"
        projection = strandline.Projection(
            name, strandline.BySlices("order"), handler, delivery=delivery, group_size=LIST, page_size=1000,
            refresh_interval_s=0.01,
        )  # fmt: skip
        host = strandline.Host(s, [projection])
        thread = threading.Thread(target=host.run)
        from_s = time.perf_counter()
        thread.start()
        if not done.wait(WAIT_S):
            raise RuntimeError(f"{seen[0]} events were handled, not {events}")
        host.stop()
        thread.join()
        seconds = time.perf_counter() - from_s
        with s.open_offsets().store.database.read() as tx:
            raw = tx.raw
            ((kept,),) = list(raw.execute(total))
    if delivery == "exactly_once" and int(kept) % events:
        raise RuntimeError(f"the sum is {kept}, not {events}")
    return {"events_per_s": events / seconds}


def runner_in_child(where: dict[str, Any], events: int) -> dict[str, Any]:
    """What the peer's runner does for each event, on as many notifications."""
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


def _events(plan: Plan) -> int:
    return QUICK_EVENTS if plan.quick else EVENTS


def _prepare(on: str, plan: Plan) -> None:
    where = tags.where_of(on, plan)
    (plan.shared / "where.json").write_text(json.dumps(where), encoding="utf-8")
    in_child("tags:fill_and_carry_in_child", where=where, events=_events(plan), tags=0)


def _ours(delivery: str, plan: Plan) -> Sample:
    where = json.loads((plan.shared / "where.json").read_bytes())
    answer = in_child("project:project_in_child", where=where, events=_events(plan), delivery=delivery)
    return Sample(answer["events_per_s"], answer)


def _peer(on: str, plan: Plan) -> Sample:
    with fresh.journal(on, plan) as where:
        answer = in_child("project:runner_in_child", where=where, events=_events(plan))
    return Sample(answer["events_per_s"], answer)


def _case(name: str, on: str, peer: str, target: float, delivery: str, theirs: Any) -> Case:
    return Case(
        f"project/{name}", peer, "events/s", target, partial(_ours, delivery), theirs, on=on,
        prepare=partial(_prepare, on), settings={"events": EVENTS, "list": LIST},
    )  # fmt: skip


CASES = [
    _case("sqlite", "sqlite", "eventsourcing", 5.0, "exactly_once", partial(_peer, "sqlite")),
    _case("postgres", "postgres", "eventsourcing", 20.0, "exactly_once", partial(_peer, "postgres")),
    _case("at-least-once", "postgres", "exactly-once", 1.0, "at_least_once", partial(_ours, "exactly_once")),
]
