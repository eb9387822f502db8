"""replay: events per second of `spark.read` on `local[2]`, beside one process that reads the same rows by time.

All events are in the store. Ours is the format `strandline` into Spark's sink `noop`, all columns: every event gets to
the JVM. The bare process reads the columns of table `journal` that an event is made of, partition by partition in the
order of timestamps, through a cursor of the server's, in binary, and makes nothing of them. Each side reads once before
its clock starts: Spark starts its Python processes then.

`memory` watches every Python process (driver, planner, workers) while ten million events are read, beside a limit of
500 MB (10^6 bytes). It runs on demand.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

from strandline.bench import fresh
from strandline.bench.cases import Case, CaseSettings, RoundFigure
from strandline.bench.child import in_child
from strandline.bench.replicate import MASTER

EVENTS, QUICK_EVENTS = 960_000, 2000
MEMORY_EVENTS, MEMORY_LIMIT_MB = 10_000_000, 500.0
CALL_EVENTS = 100
PAGE = 2000
PARTITIONS = 8


def spark_in_child(url: str) -> dict[str, Any]:
    """Read everything, twice; how long the second time took, and what it cost."""
    from strandline.bench.spent import Spent
    from strandline.pipeline import replay, session

    spark = session.start(MASTER)
    spent = Spent({"url": url})
    frame = replay(spark, url)
    frame.write.format("noop").mode("overwrite").save()
    from_s, cpu_s = time.perf_counter(), spent.seconds()
    frame.write.format("noop").mode("overwrite").save()
    seconds, cpu = time.perf_counter() - from_s, spent.seconds() - cpu_s
    events = frame.count()
    session.end()
    return {"events": events, "seconds": seconds, "cpu_us_per_event": cpu * 1e6 / events}


def bare_in_child(url: str) -> dict[str, Any]:
    """Read the rows by time, with the bare driver."""
    import psycopg

    from strandline.sql.statements import statement

    text = statement("strandline.bench", "events_by_time")
    with psycopg.connect(url) as connection:
        for _ in range(2):
            from_s, events = time.perf_counter(), 0
            for partition in range(PARTITIONS):
                with connection.cursor("by_time", binary=True) as cursor:
                    cursor.execute(text, (partition,))
                    while rows := cursor.fetchmany(PAGE):
                        events += len(rows)
            seconds = time.perf_counter() - from_s
    return {"events": events, "seconds": seconds}


def watched_in_child(url: str) -> dict[str, Any]:
    """Read everything once; the peak of each Python process of it."""
    from strandline.bench.memory import MemoryWatch
    from strandline.pipeline import replay, session

    watch = MemoryWatch()
    with watch:
        events = _observed(replay(session.start(MASTER), url))
        session.end()
    return {"events": events, "peaks_mb": watch.peaks_mb}


def _observed(frame: Any) -> int:
    """Send every column of every event to the JVM, and count them on their way."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

    count = Observation("events")
    counted = frame.observe(count, F.count(F.lit(1)).alias("events"))
    counted.write.format("noop").mode("overwrite").save()
    return int(count.get["events"])


def _events(plan: CaseSettings, most: int = EVENTS) -> int:
    return QUICK_EVENTS if plan.quick else most


def _prepare(events_a_key: int, plan: CaseSettings, most: int = EVENTS) -> None:
    """A store that has everything."""
    url, events = fresh.create_database(plan.servers["postgres"]), _events(plan, most)
    (plan.shared / "url.json").write_text(json.dumps(url), encoding="utf-8")
    call = min(events_a_key, CALL_EVENTS)
    where = {"url": url, "partitions": PARTITIONS}
    in_child("fill:fill_in_child", where=where, keys=events // events_a_key, appends=events // call, events=call)
    in_child("replicate:carry_in_child", where=where)
    fresh.settle(url)


def _side(function: str, plan: CaseSettings) -> RoundFigure:
    answer = in_child(f"replay:{function}", url=json.loads((plan.shared / "url.json").read_bytes()))
    if answer["events"] != _events(plan):
        raise RuntimeError(f"{answer['events']} events were read, not {_events(plan)}")
    return RoundFigure(answer["events"] / answer["seconds"], answer)


def _peak(plan: CaseSettings) -> RoundFigure:
    answer = in_child("replay:watched_in_child", url=json.loads((plan.shared / "url.json").read_bytes()))
    if answer["events"] != _events(plan, MEMORY_EVENTS):
        raise RuntimeError(f"{answer['events']} events were read, not {_events(plan, MEMORY_EVENTS)}")
    return RoundFigure(max(answer["peaks_mb"].values()), answer)


def _case(name: str, events_a_key: int, target: float) -> Case:
    return Case(
        f"replay/{name}", "bare-driver", "events/s", target,
        partial(_side, "spark_in_child"), partial(_side, "bare_in_child"),
        on="postgres", prepare=partial(_prepare, events_a_key),
        settings={"events": EVENTS, "events_a_key": events_a_key, "master": MASTER},
    )  # fmt: skip


MEMORY = Case(
    "replay/memory", "limit", "MB", 1.0, _peak, MEMORY_LIMIT_MB, on="postgres", rate=False, rounds=1, on_demand=True,
    prepare=partial(_prepare, 1000, most=MEMORY_EVENTS),
    settings={"events": MEMORY_EVENTS, "events_a_key": 1000, "master": MASTER},
)  # fmt: skip
CASES = [_case("one-event-a-key", 1, 0.7), _case("thousand-a-key", 1000, 0.8), MEMORY]
