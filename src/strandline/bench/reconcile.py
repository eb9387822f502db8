"""reconcile: events per second of a store without differences, beside one process that counts them and sums digests.

The store is a SQLite file whose log was trimmed up to the pointers, as it is a day after. Ours, `pipeline.reconcile` on
`local[2]`, reads every body, proves it by its digest and by its columns, follows every chain to its head, and
compares each tagged event with its row in the tag's view. A second line keeps the log, and compares it, too.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from strandline.bench.cases import Case, CaseSettings, RoundFigure
from strandline.bench.child import in_child
from strandline.bench.replicate import MASTER

EVENTS, QUICK_EVENTS = 400_000, 2000
KEYS, QUICK_KEYS = 20_000, 100
CALL_EVENTS = 10


def reconcile_in_child(url: str) -> dict[str, Any]:
    """Reconcile twice; how long the second time took."""
    from strandline.pipeline import reconcile, session

    spark = session.start(MASTER)
    try:
        reconcile(url, spark=spark)
        from_s = time.perf_counter()
        report = reconcile(url, spark=spark)
        seconds = time.perf_counter() - from_s
    finally:
        session.end()
    if report.findings or report.busy:
        raise RuntimeError(f"{len(report.findings)} differences in a store that has none")
    return {"events": report.events, "log_events": report.log_events, "seconds": seconds}


def count_in_child(url: str) -> dict[str, Any]:
    """Count the events and sum their digests, twice; how long the second time took."""
    import strandline
    from strandline.sql.statements import statement

    with strandline.connect(url) as s, s.store._database.read() as tx:  # type: ignore[attr-defined]
        for _ in range(2):
            from_s = time.perf_counter()
            ((events, _),) = list(tx.raw.execute(statement("strandline.bench", "count_and_sum")))
            seconds = time.perf_counter() - from_s
    return {"events": events, "seconds": seconds}


def trim_in_child(url: str) -> dict[str, Any]:
    """Trim the log up to the pointers."""
    import strandline

    with strandline.connect(url) as s:
        trimmed = [
            s.log.trim(pointer.partition, to=pointer.offset, pointer=pointer.offset, keep_after=2**62)
            for pointer in s.store.pointers()
        ]
    return {"trimmed": sum(trimmed)}


def _url(plan: CaseSettings) -> str:
    return f"sqlite:{plan.shared}/journal"


def prepare(plan: CaseSettings, *, trimmed: bool = True) -> None:
    """A store that has everything."""
    events, keys = (QUICK_EVENTS, QUICK_KEYS) if plan.quick else (EVENTS, KEYS)
    where = {"url": _url(plan)}
    in_child("fill:fill_in_child", where=where, keys=keys, appends=events // CALL_EVENTS, events=CALL_EVENTS)
    in_child("replicate:carry_in_child", where=where)
    if trimmed:
        in_child("reconcile:trim_in_child", url=_url(plan))


def _side(function: str, plan: CaseSettings) -> RoundFigure:
    answer = in_child(f"reconcile:{function}", url=_url(plan))
    if answer["events"] != (QUICK_EVENTS if plan.quick else EVENTS):
        raise RuntimeError(f"{answer['events']} events were compared")
    return RoundFigure(answer["events"] / answer["seconds"], answer)


def _case(name: str, *, trimmed: bool) -> Case:
    return Case(
        f"reconcile/{name}", "count-and-sum", "events/s", 0.5, partial(_side, "reconcile_in_child"),
        partial(_side, "count_in_child"), prepare=partial(prepare, trimmed=trimmed),
        settings={"events": EVENTS, "keys": KEYS, "master": MASTER},
    )  # fmt: skip


CASES = [_case("clean", trimmed=True), _case("clean-with-log", trimmed=False)]
