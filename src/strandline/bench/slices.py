"""slices: events per second of a current query by slices of 200,000 events, payloads touched.

Beside eventsourcing, which selects as many notifications, in pages of the size that its own applications use.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

from strandline.bench import tags
from strandline.bench.cases import PAYLOAD_BYTES, Case, Plan, Sample
from strandline.bench.child import in_child


def current_in_child(where: dict[str, Any], events: int) -> dict[str, Any]:
    """A current query of all slices through the public interface."""
    import strandline

    with strandline.connect(**where) as s:
        next(iter(s.by_slices("order", 0, 1023)))
        from_s = time.perf_counter()
        count = size = 0
        for event in s.by_slices("order", 0, 1023, page_size=1000):
            count += 1
            size += len(event.payload)
        seconds = time.perf_counter() - from_s
    if (count, size) != (events, events * PAYLOAD_BYTES):
        raise RuntimeError(f"{count} events with {size} bytes came, not {events}")
    return {"events_per_s": count / seconds, "us_per_event": seconds * 1e6 / count}


def _prepare(on: str, plan: Plan) -> None:
    where = tags.where_of(on, plan)
    (plan.shared / "where.json").write_text(json.dumps(where), encoding="utf-8")
    in_child("tags:fill_and_carry_in_child", where=where, events=tags.events_of(plan), tags=0)


def _ours(plan: Plan) -> Sample:
    where = json.loads((plan.shared / "where.json").read_bytes())
    answer = in_child("slices:current_in_child", where=where, events=tags.events_of(plan))
    return Sample(answer["events_per_s"], answer)


def _case(on: str) -> Case:
    return Case(
        f"slices/{on}", "eventsourcing", "events/s", 1.5, _ours, partial(tags.peer_of, on), on=on,
        prepare=partial(_prepare, on), settings={"events": tags.EVENTS, "keys": tags.KEYS, "page_size": 1000},
    )  # fmt: skip


CASES = [_case("sqlite"), _case("postgres")]
