# ruff: noqa: N999 - the name of the command
"""import: events per second of `frame.write.format("strandline")` on `local[2]`, beside `append_many` in one process.

Both record the same number of events of 150 bytes into an empty journal, ten to a key, each under an id of its own and
none of them twice. Spark's DataFrame is made of numbers while it is written; its session is there, and has recorded
once, before the clock starts. `append_many` gets lists of 5,000 appends that were made before.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from strandline.bench import fresh
from strandline.bench.cases import PAYLOAD_BYTES, Case, CaseSettings, RoundFigure
from strandline.bench.child import in_child
from strandline.bench.replicate import MASTER

EVENTS, QUICK_EVENTS = 1_000_000, 2000
EVENTS_A_KEY, CALL = 10, 5000
WARM = 200


def spark_in_child(where: dict[str, Any], events: int) -> dict[str, Any]:
    """Record a DataFrame; how long that took, and what it cost."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

    import strandline
    from strandline.bench.spent import Spent
    from strandline.pipeline import append_frame, session

    with strandline.connect(**where) as s:
        spark = session.start(MASTER)

        def record(first: int, count: int) -> None:
            number, text = F.col("id"), F.col("id").cast("string")
            frame = spark.range(first, first + count, numPartitions=2).select(
                F.concat(F.lit("order|"), F.floor(number / EVENTS_A_KEY).cast("string")).alias("key"),
                F.lit("Placed").alias("type"),
                F.rpad(text, PAYLOAD_BYTES, "x").cast("binary").alias("payload"),
                text.alias("append_id"),
            )
            append_frame(frame, **where)

        record(events, WARM)
        spent = Spent(where)
        from_s, cpu_s = time.perf_counter(), spent.seconds()
        record(0, events)
        seconds, cpu = time.perf_counter() - from_s, spent.seconds() - cpu_s
        session.end()
        recorded = _recorded(s)
    return {"events": recorded - WARM, "seconds": seconds, "cpu_us_per_event": cpu * 1e6 / events}


def append_many_in_child(where: dict[str, Any], events: int) -> dict[str, Any]:
    """Record the same by `append_many`."""
    import strandline

    def appends(first: int) -> list[Any]:
        return [
            (
                f"order|{number // EVENTS_A_KEY}",
                [strandline.Event("Placed", str(number).ljust(PAYLOAD_BYTES, "x").encode())],
                {"append_id": str(number)},
            )
            for number in range(first, min(first + CALL, events))
        ]

    with strandline.connect(**where) as s:
        seconds = 0.0
        for first in range(0, events, CALL):
            call = appends(first)
            from_s = time.perf_counter()
            s.journal.append_many(call)
            seconds += time.perf_counter() - from_s
        return {"events": _recorded(s), "seconds": seconds}


def _recorded(s: Any) -> int:
    """How many appends the log has: offsets of SQL logs count from 0, without a hole."""
    return sum(newest + 1 for newest in s.log.newest())


def _side(function: str, on: str, plan: CaseSettings) -> RoundFigure:
    events = QUICK_EVENTS if plan.quick else EVENTS
    with fresh.journal(on, plan) as where:
        answer = in_child(f"import:{function}", where=where, events=events)
    if answer["events"] != events:
        raise RuntimeError(f"{answer['events']} events were recorded, not {events}")
    return RoundFigure(events / answer["seconds"], answer)


def _case(on: str) -> Case:
    return Case(
        f"import/{on}", "append_many", "events/s", 1.0,
        partial(_side, "spark_in_child", on), partial(_side, "append_many_in_child", on), on=on,
        settings={"events": EVENTS, "events_a_key": EVENTS_A_KEY, "master": MASTER, "call": CALL},
    )  # fmt: skip


CASES = [_case("sqlite"), _case("postgres")]
