"""replicate: events per second of the pipeline, beside a bare process that inserts the same rows into the same tables.

The log is filled before any clock starts, and copied for each round. The pipeline carries it on Spark; its rate is that
from the end of its first micro-batch to the end of its last. The bare process has read, decoded and folded what it
writes before its clock starts, and then does nothing but `executemany` of the store's own statements: the same rows in
the same order, one transaction for each partition of each micro-batch, the pointer last, as durable. So it is the floor
under any pipeline that writes from one process.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from strandline.bench.cases import Case, Plan, Sample
from strandline.bench.child import in_child

MASTER = "local[2]"
ACTIONS, KEYS, ROUNDS = 480_000, 10_000, 3
QUICK_ACTIONS, QUICK_KEYS, QUICK_BATCH = 4000, 100, 100


def pipeline_in_child(url: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Carry the whole log; when each micro-batch ended, and how many events were in it."""
    from strandline.pipeline.progress import Progress
    from strandline.pipeline.replicate import run

    batches: list[tuple[float, int, list[int]]] = []

    def took(progress: Progress) -> None:
        if progress.events:  # what carries marks at the end is no part of it
            pointers = [partition.pointer for partition in progress.partitions]
            batches.append((time.perf_counter(), progress.events, pointers))

    from_s = time.perf_counter()
    summary = run(url, once=True, progress=took, master=MASTER, **settings)
    to_s = time.perf_counter()
    seconds = [ended - before for (before, _, _), (ended, _, _) in pairwise(batches)]
    steady = sum(events for _, events, _ in batches[1:])
    return {
        "events_per_s": steady / sum(seconds),
        "events": summary.events,
        "steady_events": steady,
        "batch_seconds": seconds,
        "pointers": [pointers for _, _, pointers in batches],
        "first_batch_after_s": batches[0][0] - from_s,
        "whole_run_s": to_s - from_s,
    }


class Transaction(NamedTuple):
    """All that is bound to the store's statements between a BEGIN and its COMMIT."""

    micro_batch: int
    events: list[Any]
    heads: list[Any]
    pointer: tuple[Any, ...]


def bare_in_child(url: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Insert what the pipeline would, transaction by transaction; only the inserts are on the clock."""
    import strandline
    from strandline.sqlite import open_database
    from strandline.statements import statement

    insert_event, set_head, set_pointer = (
        statement("strandline.store", name) for name in ("insert_event", "set_head", "set_pointer")
    )
    seconds: dict[int, float] = {}
    events: dict[int, int] = {}
    with strandline.connect(url, **settings) as s:
        path = Path(url.removeprefix("sqlite:")) / "store.db"
        database = open_database(path, kind="store", package="strandline.store", settings=s.settings)
        for micro_batch, rows, heads, pointer in transactions(s):
            from_s = time.perf_counter()
            with database.write() as connection:
                connection.executemany(insert_event, rows)
                connection.executemany(set_head, heads)
                connection.execute(set_pointer, pointer)
            seconds[micro_batch] = seconds.get(micro_batch, 0.0) + time.perf_counter() - from_s
            events[micro_batch] = events.get(micro_batch, 0) + len(rows)
        database.close()
        pointers = [pointer.offset for pointer in s.store.pointers()]
    steady = [number for number in events if number > 0]
    return {
        "events_per_s": sum(events[number] for number in steady) / sum(seconds[number] for number in steady),
        "events": sum(events.values()),
        "steady_events": sum(events[number] for number in steady),
        "batch_seconds": [seconds[number] for number in steady],
        "pointers": [pointers],
    }


def transactions(s: Any) -> Iterator[Transaction]:
    """The pipeline's transactions for a log that nobody carried yet, made by the same functions."""
    from strandline.carry import Range, decode, prepare
    from strandline.store.change import change_of
    from strandline.store.stored import head_row, pointer_row
    from strandline.values.heads import State

    states: dict[str, State] = {}
    pointers = s.store.pointers()
    newest = s.log.newest()
    span = s.settings.batch_actions_max
    micro_batch = 0
    while any(pointer.offset < end for pointer, end in zip(pointers, newest, strict=True)):
        for partition, end in enumerate(newest):
            seen = pointers[partition]
            if seen.offset >= end:
                continue
            to = min(seen.offset + span, end)
            page = s.log.read(partition, after=seen.offset, to=to, limit=span)
            decoded, _ = decode(page.records, s.log.partitions)
            range_ = Range(partition, seen.offset + 1, to + 1, page.records)
            batch = prepare(range_, decoded, seen, states, s.store.settings, seen.fence)
            states.update(batch.states)
            pointers[partition] = batch.pointer
            change = change_of(batch)
            heads = [head_row(key, head) for key, head in change.heads]
            yield Transaction(micro_batch, list(change.events), heads, pointer_row(batch.pointer))
        micro_batch += 1


def _settings(plan: Plan) -> dict[str, Any]:
    return {"batch_actions_max": QUICK_BATCH} if plan.quick else {}


def _prepare(plan: Plan) -> None:
    actions, keys = (QUICK_ACTIONS, QUICK_KEYS) if plan.quick else (ACTIONS, KEYS)
    in_child("fill:fill_in_child", url=f"sqlite:{plan.shared}/journal", keys=keys, appends=actions, events=1)


def _side(function: str, plan: Plan) -> Sample:
    folder = shutil.copytree(plan.shared / "journal", Path(plan.folder) / "journal")
    answer = in_child(f"replicate:{function}", url=f"sqlite:{folder}", settings=_settings(plan))
    wanted = QUICK_ACTIONS if plan.quick else ACTIONS
    if answer["events"] != wanted:
        raise RuntimeError(f"{answer['events']} events were carried, not {wanted}")
    return Sample(answer["events_per_s"], answer)


CASES = [
    Case(
        "replicate/sqlite", "bare-insert", "events/s", 0.75,
        lambda plan: _side("pipeline_in_child", plan), lambda plan: _side("bare_in_child", plan),
        prepare=_prepare, rounds=ROUNDS,
        settings={"actions": ACTIONS, "events_a_call": 1, "keys": KEYS, "master": MASTER},
    )
]  # fmt: skip
