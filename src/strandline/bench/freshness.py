"""freshness: from acknowledgement to visible in the store, beside an empty micro-batch of such a Spark session.

The pipeline runs in a process of its own and has nothing to do. One event is appended, the clock starts when the append
returns and stops when the partition's pointer has reached its offset; then a random pause. The empty micro-batch is one
row from a Python source into a sink that does nothing, batch after batch, in a session that is started as the
pipeline's is, its JVM included. `p50` has the checkpoint that every query of Spark has; `p50-without-checkpoint` has
none, which is the stricter figure. The pipeline's own batches are plain jobs of Spark.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from strandline.bench.cases import PAYLOAD_BYTES, Case, CaseSettings, RoundFigure
from strandline.bench.child import Child, in_child

MASTER = "local[2]"
# Spark offers this for few sinks, since a restart would repeat batches.
UNLOGGED = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "60000",
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
SAMPLES, WARM_UP, QUICK_SAMPLES, QUICK_WARM_UP = 34, 30, 3, 1
PAUSE_LEAST_S, PAUSE_MOST_S, QUICK_PAUSE_MOST_S, WARM_UP_PAUSE_S = 0.2, 1.5, 0.3, 0.1
POLL_S = 0.001
START_WAIT_S, VISIBLE_WAIT_S = 180.0, 30.0


def pipeline_in_child(url: str) -> dict[str, Any]:
    """Carry until it is told."""
    from strandline.pipeline.replicate import run

    stop = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    summary = run(url, stop=stop, master=MASTER)
    return {"events": summary.events}


def append_in_child(url: str, samples: int, warm_up: int, pause_most_s: float) -> dict[str, Any]:
    """Append into the idle system, again and again; how long each took to be visible."""
    import strandline

    payload = os.urandom(PAYLOAD_BYTES)
    random_ = random.Random(samples)
    times: list[float] = []
    with strandline.connect(url) as s, Child("freshness:pipeline_in_child", url=url) as pipeline:

        def visible_after_s(deadline_s: float) -> float:
            place = s.journal.append(
                strandline.Key("order", f"{random_.getrandbits(64):x}"), [strandline.Event("OrderPlaced", payload)]
            )
            from_s = time.perf_counter()
            while s.store.pointers()[place.partition].offset < place.offset:
                if time.perf_counter() - from_s > deadline_s:
                    raise RuntimeError(f"not in the store after {deadline_s} s")
                if not pipeline.process.alive:
                    raise pipeline.failure()
                time.sleep(POLL_S)
            return time.perf_counter() - from_s

        start_s = visible_after_s(START_WAIT_S)
        for _ in range(warm_up):
            time.sleep(WARM_UP_PAUSE_S)
            visible_after_s(VISIBLE_WAIT_S)
        for _ in range(samples):
            time.sleep(random_.uniform(PAUSE_LEAST_S, pause_most_s))
            times.append(visible_after_s(VISIBLE_WAIT_S) * 1000)
        pipeline.stop()
        carried = pipeline.answer()
    return {**_spread(times), "start_s": start_s, "events": carried["events"]}


def empty_batches_in_child(samples: int, warm_up: int, checkpoint: bool) -> dict[str, Any]:
    """Return how long Spark takes for each of many micro-batches with one row, from its own progress reports."""
    from strandline.bench import one_row
    from strandline.pipeline import session

    spark = session.start(MASTER, short=True)  # as `pipeline.run` starts its own
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", warm_up + samples + 10)
    spark.dataSource.register(one_row.OneRow)
    try:
        batches = _empty_batches(spark, samples, warm_up, {} if checkpoint else UNLOGGED)
    finally:
        spark.stop()
    return {
        **_spread([batch["triggerExecution"] for batch in batches]),
        "parts_ms": {part: median(batch.get(part, 0.0) for batch in batches) for part in batches[0]},
    }


def _empty_batches(spark: Any, samples: int, warm_up: int, options: dict[str, str]) -> list[dict[str, float]]:
    from strandline.bench import one_row

    with tempfile.TemporaryDirectory() as folder:
        writer = spark.readStream.format(one_row.NAME).load().writeStream.format("noop").options(**options)
        query = writer.option("checkpointLocation", folder).trigger(processingTime="0 seconds").start()
        while query.isActive and len(query.recentProgress) < warm_up + samples:
            query.awaitTermination(0.2)
        batches = [dict(progress["durationMs"]) for progress in query.recentProgress]
        query.stop()
    return batches[warm_up : warm_up + samples]


def _spread(times_ms: list[float]) -> dict[str, Any]:
    tenths = quantiles(times_ms, n=10)
    return {"p50_ms": median(times_ms), "p90_ms": tenths[8], "least_ms": min(times_ms), "samples_ms": times_ms}


def _effort(plan: CaseSettings) -> dict[str, int]:
    if plan.quick:
        return {"samples": QUICK_SAMPLES, "warm_up": QUICK_WARM_UP}
    return {"samples": SAMPLES, "warm_up": WARM_UP}


def _ours(plan: CaseSettings) -> RoundFigure:
    pause_most_s = QUICK_PAUSE_MOST_S if plan.quick else PAUSE_MOST_S
    url = f"sqlite:{Path(plan.folder) / 'ours'}"
    answer = in_child("freshness:append_in_child", url=url, pause_most_s=pause_most_s, **_effort(plan))
    return RoundFigure(answer["p50_ms"], answer)


def _theirs(checkpoint: bool, plan: CaseSettings) -> RoundFigure:
    answer = in_child("freshness:empty_batches_in_child", checkpoint=checkpoint, **_effort(plan))
    return RoundFigure(answer["p50_ms"], answer)


def _case(name: str, *, checkpoint: bool) -> Case:
    return Case(
        f"freshness/{name}", "micro-batch", "ms", 0.6, _ours, partial(_theirs, checkpoint), rate=False,
        on_demand=not checkpoint,
        settings={
            "samples_a_round": SAMPLES, "warm_up": WARM_UP, "pause_s": [PAUSE_LEAST_S, PAUSE_MOST_S], "master": MASTER,
            "checkpoint": checkpoint,
        },
    )  # fmt: skip


CASES = [_case("p50", checkpoint=True), _case("p50-without-checkpoint", checkpoint=False)]
