"""tags: queries by tag, and what tags cost the pipeline.

`live-…`: the pipeline runs in a process of its own, 1,000 events with a tag are appended a second, a live query in
another process stamps each as it comes; the time from acknowledgement to delivery, beside 400 ms and 1.5 s.

`current-…`: events per second of a current query of 200,000 events, payloads touched. On SQLite and PostgreSQL beside
eventsourcing, which selects as many notifications; on Cassandra beside one process that pages through the same rows
with the bare driver. `flat` compares what an event costs that is asked for in the middle of a view of ten million rows
with one in a view of a hundred thousand; it runs on demand, for minutes and some gigabytes.

`replicate-…`: events per second of the pipeline with so many tags an event, beside one process that inserts the same
rows into the same tables. `empty-buckets`: a current query of 100 events over a year of minutes, beside 150 ms.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import zlib
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any
from uuid import uuid4

from strandline.bench import fresh
from strandline.bench.cases import PAYLOAD_BYTES, Case, CaseSettings, RoundFigure
from strandline.bench.child import Child, in_child
from strandline.bench.replicate import filled

TAG = "paid"
EVENTS, QUICK_EVENTS, KEYS = 200_000, 2000, 10_000
RATE, LIVE_S, WARM_UP_S, QUICK_LIVE_S = 1000, 20.0, 10.0, 1.0
AT_ONCE = 10
START_WAIT_S = 180.0
YEAR_OF_MINUTES, FEW = 525_600, 100
APPENDS, QUICK_APPENDS, QUICK_BATCH = 480_000, 1600, 100
FLAT_SMALL, FLAT_LARGE, FLAT_BATCH, FLAT_CACHE_KIB = 100_000, 10_000_000, 200_000, 2**19


# ---------------------------------------------------------------- current


def fill_and_carry_in_child(where: dict[str, Any], events: int, tags: int = 1) -> dict[str, Any]:
    """A log with so many tagged events, ten a call, and all of it carried."""
    import strandline
    from strandline.bench.fill import fill_in_child
    from strandline.testing import carry

    fill_in_child(where, KEYS, events // AT_ONCE, AT_ONCE, [f"{TAG}{number}" for number in range(tags)])
    with strandline.connect(**where) as s:
        return {"events": carry(s).events}


def _mark(partition: int) -> Any:
    from strandline.log.api import ActionDraft
    from strandline.record import encode_header
    from strandline.values.actions import Mark

    mark = Mark(None, uuid4().hex)
    return ActionDraft(partition, mark, encode_header(mark))


def current_in_child(where: dict[str, Any], events: int) -> dict[str, Any]:
    """A current query through the public interface."""
    import strandline

    with strandline.connect(**where) as s:
        next(iter(s.by_tag(f"{TAG}0")))
        from_s = time.perf_counter()
        count = size = 0
        for event in s.by_tag(f"{TAG}0"):
            count += 1
            size += len(event.payload)
        seconds = time.perf_counter() - from_s
    if (count, size) != (events, events * PAYLOAD_BYTES):
        raise RuntimeError(f"{count} events with {size} bytes came, not {events}")
    return {"events_per_s": count / seconds, "us_per_event": seconds * 1e6 / count}


def notifications_in_child(where: dict[str, Any], events: int) -> dict[str, Any]:
    """The peer selects as many notifications, in pages of the size that its own applications use."""
    from eventsourcing.persistence import StoredEvent

    from strandline.bench import peer

    payload = os.urandom(PAYLOAD_BYTES)
    ids = [uuid4() for _ in range(KEYS)]
    with peer.recorder(where["url"]) as (recorder, settings):
        for start in range(0, events, 500):
            recorder.insert_events([
                StoredEvent(ids[at % KEYS], at // KEYS + 1, "order:OrderPlaced", payload)
                for at in range(start, min(start + 500, events))
            ])  # fmt: skip
        from_s = time.perf_counter()
        count = size = 0
        start_id = 1
        while page := recorder.select_notifications(start=start_id, limit=500):
            for notification in page:
                count += 1
                size += len(notification.state)
            start_id = page[-1].id + 1
        seconds = time.perf_counter() - from_s
    if (count, size) != (events, events * PAYLOAD_BYTES):
        raise RuntimeError(f"{count} notifications came, not {events}")
    return {"events_per_s": count / seconds, **settings}


def bare_in_child(where: dict[str, Any], events: int) -> dict[str, Any]:
    """The bare driver pages through the rows of the view, bucket by bucket, and touches each body."""
    from contextlib import closing

    from strandline.backends.cassandra import Session
    from strandline.urls import urls_of

    url = urls_of(None, where["log"], where["store"]).store
    with closing(Session(url, 60.0)) as session:
        from_s = time.perf_counter()
        count = size = 0
        for (bucket,) in session.rows("tag_buckets", (f"{TAG}0", -1, 2**62, 10_000)):
            place: tuple[Any, ...] = (-1, "", 0)
            while rows := session.rows("tag_in_bucket", (f"{TAG}0", bucket, *place, 2**62, 500)):
                for row in rows:
                    count += 1
                    size += len(row[11])
                place = rows[-1][2], rows[-1][3], rows[-1][9]
        seconds = time.perf_counter() - from_s
    if count != events or not size:
        raise RuntimeError(f"{count} rows came, not {events}")
    return {"events_per_s": count / seconds}


def events_of(plan: CaseSettings) -> int:
    return QUICK_EVENTS if plan.quick else EVENTS


def _prepare_current(on: str, plan: CaseSettings) -> None:
    where = where_of(on, plan)
    (plan.shared / "where.json").write_text(json.dumps(where), encoding="utf-8")
    in_child("tags:fill_and_carry_in_child", where=where, events=events_of(plan))


def where_of(on: str, plan: CaseSettings) -> dict[str, Any]:
    """A log and a store for all rounds; what is on servers goes with them."""
    if on == "sqlite":
        return {"url": f"sqlite:{plan.shared}/journal"}
    if on == "postgres":
        return {"url": fresh.create_database(plan.servers["postgres"])}
    store = f"{plan.servers['cassandra']}/bench_{uuid4().hex[:12]}?replication=1"
    return {"log": f"sqlite:{plan.shared}/log.db", "store": store, **fresh.ONE_NODE}


def _current(function: str, plan: CaseSettings) -> RoundFigure:
    where = json.loads((plan.shared / "where.json").read_bytes())
    answer = in_child(function, where=where, events=events_of(plan))
    return RoundFigure(answer["events_per_s"], answer)


def peer_of(on: str, plan: CaseSettings) -> RoundFigure:
    with fresh.journal(on, plan) as where:
        answer = in_child("tags:notifications_in_child", where=where, events=events_of(plan))
    return RoundFigure(answer["events_per_s"], answer)


# ---------------------------------------------------------------- flat


def rows_in_child(where: dict[str, Any], rows: int) -> dict[str, Any]:
    """A view of so many rows and nothing else: what a query reads, without the log that it would come from.

    The keys take turns, so that their index is written everywhere at once: it is kept in memory meanwhile.
    """
    import strandline
    from strandline.backends.sqlite.database import Database
    from strandline.store.sql_store import SqlStore
    from strandline.testing import carry
    from strandline.values.events import Life, plain_body
    from strandline.values.payloads import BYTES
    from strandline.values.tag_rows import row_digest

    payload, tag, start = os.urandom(PAYLOAD_BYTES), f"{TAG}0", time.time_ns() // 1000 - rows
    event, append_id = ("OrderPlaced", (tag,)), bytes(16)
    with strandline.connect(**where) as s:
        store = s.store
        if not isinstance(store, SqlStore) or not isinstance(store._database, Database):
            raise TypeError(store)
        store._database.writer.pragma("cache_size", -FLAT_CACHE_KIB)
        lives = [Life(f"order|{number:05d}", 1) for number in range(KEYS)]
        for first in range(0, rows, FLAT_BATCH):
            made = []
            for at in range(first, min(first + FLAT_BATCH, rows)):
                life, number, timestamp = lives[at % KEYS], at // KEYS + 1, start + at
                body = plain_body(number, number - 1, (0, at, timestamp), append_id, event, BYTES, payload)
                link = (timestamp - KEYS, number - 1) if number > 1 else (0, 0)
                place = (tag, timestamp // 3_600_000_000, timestamp, life.key, 1, number, *link)
                digest = zlib.crc32(body, life.seed)
                made.append((*place, row_digest(*place, number), number, number - 1, body, digest))
            with store._database.write() as tx:
                tx.many("put_tag_view", made)
        s.log.append([_mark(partition) for partition in range(s.log.partitions)])
        carry(s)
    return {"start": start}


def stretch_in_child(where: dict[str, Any], from_: int, events: int) -> dict[str, Any]:
    """So many events from a time on."""
    import strandline

    with strandline.connect(**where) as s:
        with s.by_tag(f"{TAG}0", from_=from_) as warm:
            next(warm)
        from_s = time.perf_counter()
        count = 0
        with s.by_tag(f"{TAG}0", from_=from_) as feed:
            for event in feed:
                count += bool(event.payload)
                if count == events:
                    break
        seconds = time.perf_counter() - from_s
    if count != events:
        raise RuntimeError(f"{count} events came, not {events}")
    return {"us_per_event": seconds * 1e6 / count}


def _flat_rows(plan: CaseSettings) -> tuple[int, int]:
    """Return how many rows the small view has, and the large one."""
    return (QUICK_EVENTS, 3 * QUICK_EVENTS) if plan.quick else (FLAT_SMALL, FLAT_LARGE)


def _prepare_flat(plan: CaseSettings) -> None:
    starts = []
    for rows in _flat_rows(plan):
        where = {"url": f"sqlite:{plan.shared}/{rows}"}
        starts.append(in_child("tags:rows_in_child", where=where, rows=rows)["start"])
    (plan.shared / "starts.json").write_text(json.dumps(starts), encoding="utf-8")


def _flat(large: bool, plan: CaseSettings) -> RoundFigure:
    rows = _flat_rows(plan)
    start = json.loads((plan.shared / "starts.json").read_bytes())[large]
    events = rows[0] // 2
    from_ = start + rows[large] // 2
    where = {"url": f"sqlite:{plan.shared}/{rows[large]}"}
    answer = in_child("tags:stretch_in_child", where=where, from_=from_, events=events)
    return RoundFigure(answer["us_per_event"], answer)


# ---------------------------------------------------------------- live


def live_in_child(url: str, seconds: float, warm_up_s: float) -> dict[str, Any]:
    """Append at a steady rate; how long each event took from its acknowledgement to a live query of another process."""
    import strandline

    payload = os.urandom(PAYLOAD_BYTES)
    acknowledged: dict[str, float] = {}
    keys = [strandline.Key("order", f"{number:05d}") for number in range(500)]
    with (
        strandline.connect(url) as s,
        Child("freshness:pipeline_in_child", url=url) as pipeline,
        Child("tags:follow_in_child", url=url) as reader,
    ):
        first = s.journal.append(keys[0], [strandline.Event("Started", payload)])
        deadline = time.monotonic() + START_WAIT_S
        while not s.wait_for_strandline(first, timeout_s=1):
            for child in (pipeline, reader):
                if not child.process.alive:
                    raise child.failure()
            if time.monotonic() > deadline:
                raise RuntimeError("the pipeline did not start")

        def stamped(place: str) -> Any:
            return lambda future: future.exception() or acknowledged.setdefault(place, time.monotonic())

        started = time.monotonic()
        measured_from = started + warm_up_s
        count = 0
        while (now := time.monotonic()) < measured_from + seconds:
            due = int((now - started) * RATE)
            while count < due:
                place = f"{count}"
                event = strandline.Event("OrderPaid", place.encode().ljust(PAYLOAD_BYTES), tags=(TAG,))
                s.journal.append_future(keys[count % 500], [event]).add_done_callback(stamped(place))
                count += 1
            time.sleep(0.001)
        last = s.journal.append(keys[0], [strandline.Event("Ended", b"end", tags=(TAG,))])
        s.wait_for_strandline(last, timeout_s=30)
        came = reader.answer()["came"]
        pipeline.stop()
        pipeline.answer()
    times = [(came[place] - at) * 1000 for place, at in acknowledged.items() if at >= measured_from and place in came]
    if len(came) < count or len(times) < 10:
        raise RuntimeError(f"{len(came)} of {count} events came")
    hundredths = quantiles(times, n=100)
    return {"p50_ms": hundredths[49], "p99_ms": hundredths[98], "most_ms": max(times), "events": count}


def follow_in_child(url: str) -> dict[str, Any]:
    """A live query; when each event came, by what its payload says."""
    import strandline

    came: dict[str, float] = {}
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    with strandline.connect(url) as s, s.by_tag(TAG, live=True) as events:
        for event in events:
            if event.type == "Ended":
                break
            came[event.payload.decode().strip()] = time.monotonic()
    return {"came": came}


def _live(figure: str, plan: CaseSettings) -> RoundFigure:
    seconds, warm_up = (QUICK_LIVE_S, QUICK_LIVE_S) if plan.quick else (LIVE_S, WARM_UP_S)
    answer = in_child(
        "tags:live_in_child", url=f"sqlite:{Path(plan.folder) / 'ours'}", seconds=seconds, warm_up_s=warm_up
    )
    return RoundFigure(answer[figure], answer)


# ---------------------------------------------------------------- empty buckets


def empty_buckets_in_child(where: dict[str, Any], fill: bool) -> dict[str, Any]:
    """100 events spread over a year, in buckets of a minute; how long a current query takes."""
    import strandline

    now = [time.time_ns() // 1000 - YEAR_OF_MINUTES * 60_000_000]
    if fill:
        with strandline.connect(**where, bucket_size="minute", clock=lambda: now[0]) as s:
            from strandline.testing import carry

            for number in range(FEW):
                s.journal.append(f"order|{number}", [strandline.Event("OrderPaid", b"x", tags=(TAG,))])
                now[0] += YEAR_OF_MINUTES // FEW * 60_000_000
            for partition in range(s.log.partitions):
                s.log.append([_mark(partition)])
            carry(s)
        return {}
    with strandline.connect(**where) as s:
        times = []
        for _ in range(5):
            from_s = time.perf_counter()
            if len(list(s.by_tag(TAG))) != FEW:
                raise RuntimeError("not all events came")
            times.append((time.perf_counter() - from_s) * 1000)
    return {"ms": sorted(times)[2], "all_ms": times}


def _prepare_buckets(plan: CaseSettings) -> None:
    where = where_of("cassandra", plan)
    (plan.shared / "where.json").write_text(json.dumps(where), encoding="utf-8")
    in_child("tags:empty_buckets_in_child", where=where, fill=True)


def _empty_buckets(plan: CaseSettings) -> RoundFigure:
    where = json.loads((plan.shared / "where.json").read_bytes())
    answer = in_child("tags:empty_buckets_in_child", where=where, fill=False)
    return RoundFigure(answer["ms"], answer)


# ---------------------------------------------------------------- what tags cost the pipeline


def _prepare_replicate(on: str, tags: int, plan: CaseSettings) -> None:
    """A log of events with so many tags each."""
    where: dict[str, Any] = {"url": f"sqlite:{plan.shared}/journal"}
    if on != "sqlite":
        log = fresh.log(on, plan)
        where = {"log": log, "store": f"sqlite:{plan.shared}/store.db"}
        (plan.shared / "log.json").write_text(json.dumps(log), encoding="utf-8")
    names = [f"{TAG}{number}" for number in range(tags)]
    in_child("fill:fill_in_child", where=where, keys=KEYS, appends=_appends(plan), events=1, tags=names)


def _appends(plan: CaseSettings) -> int:
    return QUICK_APPENDS if plan.quick else APPENDS


def _replicate(function: str, on: str, plan: CaseSettings) -> RoundFigure:
    settings = {"batch_actions_max": QUICK_BATCH} if plan.quick else {}
    with filled(on, plan) as where:
        answer = in_child(function, where={**where, **settings})
    if answer["events"] != _appends(plan):
        raise RuntimeError(f"{answer['events']} events were carried, not {_appends(plan)}")
    return RoundFigure(answer["events_per_s"], answer)


def _replicate_case(name: str, on: str, tags: int) -> Case:
    return Case(
        f"tags/{name}", "bare-insert", "events/s", 0.6, partial(_replicate, "replicate:pipeline_in_child", on),
        partial(_replicate, "floor:one_in_child", on), on=on, prepare=partial(_prepare_replicate, on, tags),
        settings={"actions": APPENDS, "keys": KEYS, "tags": tags, "master": "local[2]"},
    )  # fmt: skip


def _current_case(name: str, on: str, peer: str, target: float, theirs: Any) -> Case:
    return Case(
        f"tags/{name}", peer, "events/s", target, partial(_current, "tags:current_in_child"), theirs, on=on,
        prepare=partial(_prepare_current, on), settings={"events": EVENTS, "keys": KEYS, "events_a_call": AT_ONCE},
    )  # fmt: skip


def _live_case(name: str, figure: str, limit_ms: float) -> Case:
    return Case(
        f"tags/{name}", "limit", "ms", 1.0, partial(_live, figure), limit_ms, rate=False,
        settings={"appends_per_s": RATE, "seconds": LIVE_S, "warm_up_s": WARM_UP_S},
    )  # fmt: skip


CASES = [
    _live_case("live-p50", "p50_ms", 400.0),
    _live_case("live-p99", "p99_ms", 1500.0),
    _current_case("current-sqlite", "sqlite", "eventsourcing", 1.5, partial(peer_of, "sqlite")),
    _current_case("current-postgres", "postgres", "eventsourcing", 1.5, partial(peer_of, "postgres")),
    _current_case("current-cassandra", "cassandra", "bare-driver", 0.5, partial(_current, "tags:bare_in_child")),
    Case(
        "tags/flat", "small-view", "us/event", 0.8, partial(_flat, True), partial(_flat, False), prepare=_prepare_flat,
        rate=False, on_demand=True, settings={"rows": [FLAT_SMALL, FLAT_LARGE], "keys": KEYS},
    ),
    *[
        _replicate_case(f"replicate-{tags}-tag{'s' * (tags > 1)}" + ("-postgres" * (on == "postgres")), on, tags)
        for on in ("sqlite", "postgres")
        for tags in (1, 5)
    ],
    Case(
        "tags/empty-buckets", "limit", "ms", 1.0, _empty_buckets, 150.0, on="cassandra", prepare=_prepare_buckets,
        rate=False, settings={"events": FEW, "minutes": YEAR_OF_MINUTES},
    ),
]  # fmt: skip
