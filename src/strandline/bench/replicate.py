"""replicate: events per second of the pipeline, beside bare processes that write the same rows into the same tables.

The log is filled before any clock starts. The pipeline carries it on Spark; its rate is that from the end of its first
micro-batch to the end of its last. What it is compared with is told in `floor`.

`scale-cores` compares what an event costs in processor time, of all processes, on one core and on two. `scale-rows`
compares how long an event takes into a store with a hundred thousand events and into one with ten million.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from strandline.bench import fresh
from strandline.bench.cases import Case, CaseSettings, RoundFigure
from strandline.bench.child import in_child

MASTER = "local[2]"
ACTIONS, KEYS = 960_000, 10_000
CASSANDRA_ACTIONS = 240_000
QUICK_ACTIONS, QUICK_KEYS, QUICK_BATCH = 1600, 100, 100
ROWS_FEW, ROWS_MANY, ROWS_MORE = 100_000, 10_000_000, 640_000
QUICK_ROWS_FEW, QUICK_ROWS_MANY, QUICK_ROWS_MORE = 400, 800, 1600
ROWS_A_CALL = 10


def pipeline_in_child(where: dict[str, Any], master: str = MASTER) -> dict[str, Any]:
    """Carry the whole log; when each micro-batch ended, how many events were in it, and what all of them cost."""
    from strandline.bench.spent import Spent
    from strandline.pipeline import log_ranges
    from strandline.pipeline.progress import Progress
    from strandline.pipeline.replicate import run

    if where.get("batch_actions_max") == QUICK_BATCH:
        vars(log_ranges)["GO_ON_S"] = 0.0  # so short a log would be one batch

    batches: list[tuple[float, int, list[int], float]] = []
    spent = Spent(where)

    def took(progress: Progress) -> None:
        if progress.events:  # what carries marks at the end is no part of it
            pointers = [partition.pointer for partition in progress.partitions]
            batches.append((time.perf_counter(), progress.events, pointers, spent.seconds()))

    from_s = time.perf_counter()
    summary = run(**where, once=True, progress=took, master=master, schema="create")  # often into a new store
    to_s = time.perf_counter()
    seconds = [ended[0] - before[0] for before, ended in pairwise(batches)]
    steady = sum(events for _, events, _, _ in batches[1:])
    return {
        "events_per_s": steady / sum(seconds),
        "cpu_us_per_event": (batches[-1][3] - batches[0][3]) * 1e6 / steady,
        "us_per_event": sum(seconds) * 1e6 / steady,
        "events": summary.events,
        "steady_events": steady,
        "batch_seconds": seconds,
        "pointers": [pointers for _, _, pointers, _ in batches],
        "first_batch_after_s": batches[0][0] - from_s,
        "whole_run_s": to_s - from_s,
    }


def _actions(on: str, plan: CaseSettings) -> int:
    if plan.quick:
        return QUICK_ACTIONS
    return CASSANDRA_ACTIONS if on == "kafka-cassandra" else ACTIONS


def _settings(plan: CaseSettings) -> dict[str, Any]:
    """Batches so small that there are several of them."""
    return {"batch_actions_max": QUICK_BATCH} if plan.quick else {}


def _check(answer: dict[str, Any], wanted: int) -> None:
    if answer["events"] != wanted:
        raise RuntimeError(f"{answer['events']} events were carried, not {wanted}")


# ---------------------------------------------------------------- a log, and each round a new store


def _prepare(on: str, plan: CaseSettings) -> None:
    """Fill a log. What its first store is, is of no matter: a SQLite file for those on servers."""
    actions, keys = _actions(on, plan), QUICK_KEYS if plan.quick else KEYS
    where: dict[str, Any] = {"url": f"sqlite:{plan.shared}/journal"}
    if on != "sqlite":
        log = fresh.log(on.partition("-")[0], plan)
        where = {"log": log, "store": f"sqlite:{plan.shared}/store.db", **fresh.ONE_NODE}
        (plan.shared / "log.json").write_text(json.dumps(log), encoding="utf-8")
    in_child("fill:fill_in_child", where=where, keys=keys, appends=actions, events=1)
    if on == "kafka-cassandra" and not plan.quick:
        _side("floor:two_in_child", on, {}, plan)  # a JVM is slow at first, and nobody shall pay for it


@contextmanager
def filled(on: str, plan: CaseSettings) -> Iterator[dict[str, Any]]:
    """The log, as it was filled, with an empty store."""
    if on == "sqlite":
        folder = shutil.copytree(plan.shared / "journal", Path(plan.folder) / "journal")
        yield {"url": f"sqlite:{folder}"}
    else:
        log = json.loads((plan.shared / "log.json").read_bytes())
        with fresh.store(on.rpartition("-")[2], plan) as store:
            yield {"log": log, "store": store, **(fresh.ONE_NODE if "kafka" in on else {})}


def _side(function: str, on: str, work: dict[str, Any], plan: CaseSettings) -> RoundFigure:
    with filled(on, plan) as where:
        answer = in_child(function, where={**where, **_settings(plan)}, **work)
    _check(answer, _actions(on, plan))
    return RoundFigure(answer["events_per_s"], answer)


def _cost(master: str, plan: CaseSettings) -> RoundFigure:
    sample = _side("replicate:pipeline_in_child", "postgres", {"master": master}, plan)
    return RoundFigure(sample.details["cpu_us_per_event"], sample.details)


def _case(name: str, on: str, peer: str, target: float, *, floor: str = "two_in_child", actions: int = ACTIONS) -> Case:
    return Case(
        f"replicate/{name}", peer, "events/s", target,
        partial(_side, "replicate:pipeline_in_child", on, {}), partial(_side, f"floor:{floor}", on, {}),
        on=on, prepare=partial(_prepare, on),
        settings={"actions": actions, "events_a_call": 1, "keys": KEYS, "master": MASTER},
    )  # fmt: skip


# ---------------------------------------------------------------- a store that has more or less in it


def carry_in_child(where: dict[str, Any]) -> dict[str, Any]:
    """The pipeline's work, in this process."""
    import strandline
    from strandline.testing import carry

    with strandline.connect(**where) as s:
        return {"events": carry(s).events}


def _store_of(events: int, url: str, plan: CaseSettings) -> None:
    """A log and a store with so many events, dealt out to the same keys."""
    where, keys = {"url": url}, QUICK_KEYS if plan.quick else KEYS
    in_child("fill:fill_in_child", where=where, keys=keys, appends=events // ROWS_A_CALL, events=ROWS_A_CALL)
    _check(in_child("replicate:carry_in_child", where=where), events)


def _prepare_many(plan: CaseSettings) -> None:
    url = fresh.create_database(plan.servers["postgres"])
    (plan.shared / "url.json").write_text(json.dumps(url), encoding="utf-8")
    _store_of(QUICK_ROWS_MANY if plan.quick else ROWS_MANY, url, plan)


def _into_many(plan: CaseSettings) -> RoundFigure:
    return _add(json.loads((plan.shared / "url.json").read_bytes()), plan)


def _into_few(plan: CaseSettings) -> RoundFigure:
    with fresh.store("postgres", plan) as url:
        _store_of(QUICK_ROWS_FEW if plan.quick else ROWS_FEW, url, plan)
        return _add(url, plan)


def _add(url: str, plan: CaseSettings) -> RoundFigure:
    """Append more, and see how long it takes to carry that."""
    appends, keys = (QUICK_ROWS_MORE, QUICK_KEYS) if plan.quick else (ROWS_MORE, KEYS)
    in_child("fill:fill_in_child", where={"url": url}, keys=keys, appends=appends, events=1)
    fresh.settle(url)
    answer = in_child("replicate:pipeline_in_child", where={"url": url, **_settings(plan)})
    _check(answer, appends)
    return RoundFigure(answer["us_per_event"], answer)


CASES = [
    _case("sqlite", "sqlite", "bare-insert", 0.75, floor="one_in_child"),
    _case("postgres-postgres", "postgres", "two-bare", 0.65),
    _case("kafka-postgres", "kafka-postgres", "two-bare", 0.65),
    _case("kafka-cassandra", "kafka-cassandra", "two-bare", 0.6, actions=CASSANDRA_ACTIONS),
    Case(
        "replicate/scale-cores", "one-core", "µs/event", 0.9, partial(_cost, "local[2]"), partial(_cost, "local[1]"),
        on="postgres", prepare=partial(_prepare, "postgres"), rate=False,
        settings={"actions": ACTIONS, "events_a_call": 1, "keys": KEYS, "masters": ["local[1]", "local[2]"]},
    ),
    Case(
        "replicate/scale-rows", "few-rows", "µs/event", 0.8, _into_many, _into_few,
        on="postgres", prepare=_prepare_many, rate=False, on_demand=True,
        settings={
            "many": ROWS_MANY, "few": ROWS_FEW, "actions": ROWS_MORE, "events_a_call": 1, "keys": KEYS,
            "master": MASTER,
        },
    ),
]  # fmt: skip
