"""rebuild: events per second of a projection that is built anew by Spark, beside a plain host that goes one by one.

Both count the events of each key in a table, exactly once. Spark has two cores and lists of 1,000, of which the handler
adds up each key's events before it writes them, as lists allow; its session is there before the clock starts. The plain
host is one process with one range, its events one by one, a hundred a transaction:
of these it is shown fewer, as its pace does not depend on how many there are.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from functools import partial
from typing import Any
from uuid import uuid4

from strandline.bench.cases import Case, CaseSettings, RoundFigure
from strandline.bench.child import in_child
from strandline.bench.project import MANY_EVENTS, MANY_KEYS, many, prepare_many, seconds_until_saved
from strandline.sql.statements import statement

MASTER = "local[2]"
LIST, RANGES = 1000, 4
ONE_BY_ONE, QUICK_ONE_BY_ONE = 30_000, 1000
WAIT_S = 900.0


class CountPerKey:
    """Counts the events of each key, in a table of its own. It travels to tasks."""

    def __init__(self, url: str) -> None:
        dialect = "sqlite" if url.startswith("sqlite") else "postgres"
        self.create, self.sum = (
            statement("strandline.bench", f"{name}_{dialect}") for name in ("create_count", "sum_counts")
        )
        self._one, self._some = (
            statement("strandline.bench", f"{name}_{dialect}") for name in ("count_event", "count_events")
        )

    def handle(self, tx: Any, what: Any) -> None:
        if isinstance(what, list):
            tx.executemany(self._some, list(Counter([str(event.key) for event in what]).items()))
        else:
            tx.execute(self._one, (str(what.key),))


def _total(s: Any, counts: CountPerKey) -> int:
    with s.open_offsets().store.closed_after() as store, store.database.write() as tx:
        tx.raw.execute(counts.create)
        ((total,),) = list(tx.raw.execute(counts.sum))
    return int(total or 0)


def rebuild_in_child(where: dict[str, Any], events: int) -> dict[str, Any]:
    """A new generation of a projection that has done all of it already."""
    import strandline
    from strandline.pipeline import rebuild, session

    counts, name, source = CountPerKey(where["url"]), f"counts-{uuid4().hex[:8]}", strandline.BySlices("order")
    with strandline.connect(**where) as s:
        before = _total(s, counts)
        host = strandline.Host(s, [strandline.Projection(name, source, counts, start="now")])
        thread = threading.Thread(target=host.run)
        thread.start()
        host.ready.wait(WAIT_S)
        host.stop()
        thread.join()
        spark = session.start(MASTER, short=True)
        try:
            spark.sparkContext.parallelize(range(2), 2).map(str).collect()
            built = strandline.Projection(name, source, counts, generation=2, group_size=LIST, page_size=LIST)
            from_s = time.perf_counter()
            rebuild(**where, projection=built, ranges=RANGES, spark=spark)
            seconds = time.perf_counter() - from_s
        finally:
            session.end()
        counted = _total(s, counts) - before
    if counted != events:
        raise RuntimeError(f"{counted} events were counted, not {events}")
    return {"events_per_s": events / seconds}


def one_by_one_in_child(where: dict[str, Any], events: int) -> dict[str, Any]:
    """A plain host, from the beginning, until so many are done."""
    import strandline

    counts = CountPerKey(where["url"])
    with strandline.connect(**where) as s:
        _total(s, counts)
        name = f"counts-{uuid4().hex[:8]}"
        projection = strandline.Projection(name, strandline.BySlices("order"), counts, page_size=LIST)
        seconds = seconds_until_saved(s, projection, events)
    return {"events_per_s": events / seconds}


def _ours(plan: CaseSettings) -> RoundFigure:
    where = json.loads((plan.shared / "where.json").read_bytes())
    answer = in_child("rebuild:rebuild_in_child", where=where, events=many(plan))
    return RoundFigure(answer["events_per_s"], answer)


def _theirs(plan: CaseSettings) -> RoundFigure:
    where = json.loads((plan.shared / "where.json").read_bytes())
    events = QUICK_ONE_BY_ONE if plan.quick else ONE_BY_ONE
    answer = in_child("rebuild:one_by_one_in_child", where=where, events=events)
    return RoundFigure(answer["events_per_s"], answer)


def _case(on: str, target: float) -> Case:
    return Case(
        f"rebuild/{on}", "one-by-one", "events/s", target, _ours, _theirs, on=on, prepare=partial(prepare_many, on),
        settings={
            "events": MANY_EVENTS, "keys": MANY_KEYS, "list": LIST, "ranges": RANGES, "master": MASTER,
            "one_by_one": ONE_BY_ONE,
        },
    )  # fmt: skip


CASES = [_case("postgres", 4.0), _case("sqlite", 1.0)]
