"""slices: events per second of a current query by slices of 200,000 events, payloads touched.

Beside eventsourcing, which selects as many notifications, in pages of the size that its own applications use. `flat`:
pages per second from the start of a backlog of ten million events, beside a backlog of ten thousand.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from functools import partial
from typing import Any
from uuid import uuid4

from strandline.bench import tags
from strandline.bench.cases import PAYLOAD_BYTES, Case, CaseSettings, RoundFigure
from strandline.bench.child import in_child

BACKLOG, SMALL, QUICK_BACKLOG = 10_000_000, 10_000, 20_000
PAGE, AT_ONCE = 500, 20_000


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


def _prepare(on: str, plan: CaseSettings) -> None:
    where = tags.where_of(on, plan)
    (plan.shared / "where.json").write_text(json.dumps(where), encoding="utf-8")
    in_child("tags:fill_and_carry_in_child", where=where, events=tags.events_of(plan), tags=0)


def _ours(plan: CaseSettings) -> RoundFigure:
    where = json.loads((plan.shared / "where.json").read_bytes())
    answer = in_child("slices:current_in_child", where=where, events=tags.events_of(plan))
    return RoundFigure(answer["events_per_s"], answer)


# ---------------------------------------------------------------- flat


def backlog_in_child(where: dict[str, Any], events: int) -> dict[str, Any]:
    """A store with so many events, one a key, written as a pipeline would; what they were made from is not there.

    Keys grow with time: else each would be written to another place of an index of gigabytes.
    """
    import strandline
    from strandline.log.api import ActionDraft
    from strandline.record import encode_header
    from strandline.rows import KeyRun, PartitionBatch
    from strandline.values.actions import Mark
    from strandline.values.events import EventRow, Life, plain_body
    from strandline.values.keys import partition_of
    from strandline.values.payloads import BYTES
    from strandline.values.tuples import new_tuple

    payload, append_id, began = os.urandom(PAYLOAD_BYTES), bytes(16), time.time_ns() // 1000
    with strandline.connect(**where) as s:
        waiting: list[list[EventRow]] = [[] for _ in range(s.log.partitions)]

        def write(partition: int, timestamp: int) -> None:
            mark = Mark(None, uuid4().hex)
            s.log.append([ActionDraft(partition, mark, encode_header(mark))])
            seen, rows = s.store.pointers()[partition], waiting[partition]
            new = seen._replace(offset=s.log.newest()[partition], timestamp=timestamp, last_action_at=timestamp)
            s.store.write(PartitionBatch(new, cuts=[KeyRun("order|0", None, timestamp, events=rows)]), seen)
            waiting[partition] = []

        for number in range(events):
            life, timestamp = Life(f"order|{number:08d}", 1), began + number
            partition = partition_of(life.slice, s.log.partitions)
            body = plain_body(1, 0, (partition, 0, timestamp), append_id, ("OrderPlaced", ()), BYTES, payload)
            digest = zlib.crc32(body, life.seed)
            row = (life.key, 1, 0, 1, 0, "order", life.slice, partition, timestamp, body, digest)
            waiting[partition].append(new_tuple(EventRow, row))
            if len(waiting[partition]) == AT_ONCE:
                write(partition, timestamp)
        for partition in range(s.log.partitions):
            write(partition, began + events)
    return {"events": events}


def pages_in_child(where: dict[str, Any], pages: int) -> dict[str, Any]:
    """The first pages of it, of all slices."""
    import strandline

    with strandline.connect(**where) as s:
        next(iter(s.by_slices("order", 0, 1023)))
        from_s = time.perf_counter()
        for count, event in enumerate(s.by_slices("order", 0, 1023, page_size=PAGE), 1):
            if len(event.payload) != PAYLOAD_BYTES:
                raise RuntimeError("another event")
            if count == pages * PAGE:
                break
        seconds = time.perf_counter() - from_s
    if count != pages * PAGE:
        raise RuntimeError(f"{count} events came, not {pages * PAGE}")
    return {"pages_per_s": pages / seconds, "ms_per_page": seconds * 1000 / pages}


def _prepare_flat(plan: CaseSettings) -> None:
    for name, events in (("large", QUICK_BACKLOG if plan.quick else BACKLOG), ("small", SMALL)):
        in_child("slices:backlog_in_child", where={"url": f"sqlite:{plan.shared}/{name}"}, events=events)


def _pages(name: str, plan: CaseSettings) -> RoundFigure:
    where = {"url": f"sqlite:{plan.shared}/{name}"}
    answer = in_child("slices:pages_in_child", where=where, pages=SMALL // PAGE - 1)
    return RoundFigure(answer["pages_per_s"], answer)


def _case(on: str) -> Case:
    return Case(
        f"slices/{on}", "eventsourcing", "events/s", 1.5, _ours, partial(tags.peer_of, on), on=on,
        prepare=partial(_prepare, on), settings={"events": tags.EVENTS, "keys": tags.KEYS, "page_size": 1000},
    )  # fmt: skip


CASES = [
    _case("sqlite"),
    _case("postgres"),
    Case(
        "slices/flat", "small", "pages/s", 0.8, partial(_pages, "large"), partial(_pages, "small"),
        prepare=_prepare_flat, on_demand=True,
        settings={"backlog": BACKLOG, "small": SMALL, "page_size": PAGE},
    ),
]  # fmt: skip
