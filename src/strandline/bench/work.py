"""work: entries added, drained, handed to a worker, and woken for, beside two queues on PostgreSQL and bare SQLite.

Entries have a key and a few bytes of data, and nothing is done with them. Ours, pgqueuer and procrastinate run in one
process each, on the same server, as durable as it is set up. pgqueuer has batches of 100 and drains in its own mode
for that; procrastinate has its worker with `concurrency` 100. Draining is timed from the first claim to the last done.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from strandline.bench import fresh
from strandline.bench.cases import Case, CaseSettings, RoundFigure
from strandline.bench.child import in_child

ENTRIES, QUICK_ENTRIES = 20_000, 300
SLOW_ENTRIES = 1_000
BATCH, LIMIT, CONCURRENCY = 1_000, 100, 50
WAKES, QUICK_WAKES = 60, 3
WAKE_NOW_LIMIT_MS, WAKE_AT_LIMIT_MS = 10.0, 20.0
LATER, QUICK_LATER = 1_000_000, 500
HELD_S, QUICK_HELD_S = 300.0, 2.0
MONTH_US = 30 * 86_400 * 10**6


def declaration(**settings: Any) -> Any:
    from strandline import WorkDeclaration

    return WorkDeclaration("jobs", key={"number": "int"}, data={"text": "text"}, **settings)


def adds(first: int, count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"key": {"number": number}, "data": {"text": f"job {number}"}, **more} for number in range(first, first + count)
    ]


def fill(work: Any, entries: int, **more: Any) -> float:
    """Add so many in batches; how long it took."""
    began = time.perf_counter()
    for first in range(0, entries, BATCH):
        work.add_many(adds(first, min(BATCH, entries - first), **more))
    return time.perf_counter() - began


def drain(work: Any, entries: int, limit: int = LIMIT) -> float:
    """Claim and end so many by one cursor; how long it took."""
    cursor, count = work.cursor("bench"), 0
    done: list[Any] = []
    began = time.perf_counter()
    while count < entries:
        done = cursor.claim(limit, done=done).claims
        count += len(done)
    work.done_many(done)
    return time.perf_counter() - began


def ours_in_child(where: dict[str, Any], entries: int, limit: int) -> dict[str, Any]:
    """Added in batches, drained by a cursor loop."""
    import strandline

    with strandline.connect(**where) as s:
        work = s.work(declaration())
        added_s = fill(work, entries)
        drained_s = drain(work, entries, limit)
    return {"added_per_s": entries / added_s, "drained_per_s": entries / drained_s}


def worker_in_child(where: dict[str, Any], entries: int) -> dict[str, Any]:
    """Drain the entries through a worker."""
    import strandline

    with strandline.connect(**where) as s:
        work = s.work(declaration())
        fill(work, entries)
        left = [entries]
        worker: Any = None

        def handle(_: Any) -> None:
            left[0] -= 1
            if not left[0]:
                worker.stop()

        worker = strandline.Worker(s, {"jobs": handle}, concurrency=CONCURRENCY)
        began = time.perf_counter()
        worker.run()
        spent_s = time.perf_counter() - began
        if any(work.counts()):
            raise RuntimeError(f"not all was done: {work.counts()}")
    return {"drained_per_s": entries / spent_s}


def wakes_in_child(where: dict[str, Any], samples: int, ahead_us: int) -> dict[str, Any]:
    """An idle worker: how long after the committed add, or after the entry's date, its handler is called."""
    import strandline

    called: list[float] = []
    delays: list[float] = []
    with strandline.connect(**where) as s, strandline.connect(**where) as other:
        work = other.work(declaration())
        from threading import Event, Thread

        arrived = Event()

        def handle(_: Any) -> None:
            called.append(time.perf_counter())
            arrived.set()

        worker = strandline.Worker(s, {"jobs": handle}, concurrency=1)
        thread = Thread(target=worker.run)
        thread.start()
        for number in range(samples + 2):
            time.sleep(0.15)
            arrived.clear()
            (add,) = adds(number, 1)
            if ahead_us:
                add["process_date"] = round(time.time() * 10**6) + ahead_us
            work.add(**add)
            due = time.perf_counter()
            if ahead_us:
                due += (add["process_date"] - time.time() * 10**6) / 10**6
            if not arrived.wait(10):
                raise RuntimeError("the worker was not woken")
            delays.append((called[-1] - due) * 1000)
        worker.stop()
        thread.join()
    delays = sorted(delays[2:])
    hundredths = quantiles(delays, n=100, method="inclusive") if len(delays) > 1 else delays * 99
    return {"p50_ms": median(delays), "p90_ms": hundredths[89], "p99_ms": hundredths[98], "most_ms": delays[-1]}


def later_in_child(where: dict[str, Any], entries: int, later: int) -> dict[str, Any]:
    """Drained while so many wait for next month; what filling left to do for the server is done before."""
    import strandline

    with strandline.connect(**where) as s:
        work = s.work(declaration())
        for first in range(0, later, 10_000):
            date = round(time.time() * 10**6) + MONTH_US
            work.add_many(adds(10**9 + first, min(10_000, later - first), process_date=date, priority=0))
        fill(work, entries)
        settle(where["url"])
        spent_s = drain(work, entries)
    return {"drained_per_s": entries / spent_s, "later": later}


def settle(url: str) -> None:
    """Let the server write and count what was added, so that it does not do so while something else is measured."""
    import psycopg

    with psycopg.connect(url.partition("&schema")[0], autocommit=True) as connection:
        for command in ("VACUUM (ANALYZE)", "CHECKPOINT"):
            connection.execute(command.encode())


def held_in_child(where: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Added and drained in turn while a transaction holds a snapshot: the rate before, and in the last fifth."""
    import psycopg

    import strandline

    with strandline.connect(**where) as s:
        work = s.work(declaration())
        fill(work, 5_000)
        clean = 5_000 / drain(work, 5_000)
        rates: list[tuple[float, float]] = []
        most = 0
        with psycopg.connect(where["url"].partition("&schema")[0]) as holder:
            holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            holder.execute("SELECT 1")
            began = time.perf_counter()
            while (now := time.perf_counter() - began) < seconds:
                fill(work, 2_000)
                rates.append((now, 2_000 / drain(work, 2_000)))
                work.tick()
                most = max(most, sum(table.bytes for table in work.tables()))
    last = [rate for at, rate in rates if at >= seconds * 0.8] or [rates[-1][1]]
    return {"clean_per_s": clean, "held_per_s": median(last), "bytes_most": most}


# ---------------------------------------------------------------- peers


def pgqueuer_in_child(url: str, entries: int, only_add: bool) -> dict[str, Any]:
    """pgqueuer with batches of 100, by psycopg."""
    return asyncio.run(_pgqueuer(url, entries, only_add))


async def _pgqueuer(url: str, entries: int, only_add: bool) -> dict[str, Any]:
    import psycopg
    from pgqueuer import PgQueuer, PsycopgDriver, Queries
    from pgqueuer.types import QueueExecutionMode

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        driver = PsycopgDriver(connection)
        queries = Queries(driver)
        await queries.install()
        began = time.perf_counter()
        for first in range(0, entries, BATCH):
            count = min(BATCH, entries - first)
            payloads: list[bytes | None] = [f"job {number}".encode() for number in range(first, first + count)]
            await queries.enqueue(["jobs"] * count, payloads, [0] * count)
        added_s = time.perf_counter() - began
        if only_add:
            return {"added_per_s": entries / added_s}
        queue = PgQueuer(driver)
        done = 0

        @queue.entrypoint("jobs")
        async def jobs(_: Any) -> None:
            nonlocal done
            done += 1

        began = time.perf_counter()
        await queue.run(batch_size=LIMIT, mode=QueueExecutionMode.drain)
        spent_s = time.perf_counter() - began
        if done != entries:
            raise RuntimeError(f"pgqueuer did {done} of {entries}")
    return {"added_per_s": entries / added_s, "drained_per_s": entries / spent_s}


def procrastinate_in_child(url: str, entries: int) -> dict[str, Any]:
    """procrastinate's worker until nothing waits."""
    return asyncio.run(_procrastinate(url, entries))


async def _procrastinate(url: str, entries: int) -> dict[str, Any]:
    import procrastinate

    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
    done = 0

    @app.task(name="jobs")
    async def jobs(number: int) -> None:
        nonlocal done
        done += 1

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        began = time.perf_counter()
        given: list[Any] = [{"number": number} for number in range(entries)]
        await jobs.batch_defer_async(*given)
        added_s = time.perf_counter() - began
        began = time.perf_counter()
        await app.run_worker_async(
            wait=False, concurrency=LIMIT, install_signal_handlers=False, listen_notify=False, delete_jobs="always"
        )
        spent_s = time.perf_counter() - began
    if done != entries:
        raise RuntimeError(f"procrastinate did {done} of {entries}")
    return {"added_per_s": entries / added_s, "drained_per_s": entries / spent_s}


def bare_sqlite_in_child(folder: str, entries: int, limit: int) -> dict[str, Any]:
    """The row writes and commits of ours, into the same tables, by a loop that does nothing else."""
    import apsw

    from strandline.sql.statements import sqlite_text, statement
    from strandline.sql.steps import steps_in

    def sql(name: str) -> str:
        return statement("strandline.work", f"{name}@template", "sqlite")

    connection = apsw.Connection(str(Path(folder) / "bare.db"))
    for pragma, value in (
        ("auto_vacuum", "incremental"), ("journal_mode", "wal"), ("synchronous", "full"), ("secure_delete", "on"),
    ):  # fmt: skip
        connection.pragma(pragma, value)
    cursor = connection.cursor()
    for step in steps_in("strandline.work", "sql", "sqlite"):
        for _ in cursor.execute(sqlite_text(step.script)):
            pass
    numbers = range(1, entries + 1)
    with connection:
        data = b'{"text":"job 1234"}'
        cursor.executemany(
            sql("insert_entry"),
            ((1, 1, n, n, n.to_bytes(16, "big"), b'{"number":1234}', 1, 20, 1, 1, 1, 0, 0, data) for n in numbers),
        )
        cursor.executemany(sql("insert_order"), ((1, 1, 0, 20, 1, n, 0, len(data)) for n in numbers))
    done: list[tuple[int, int, int]] = []
    count = 0
    began = time.perf_counter()
    while count < entries or done:
        cursor.execute("BEGIN IMMEDIATE")
        ended = cursor.executemany(sql("end"), done).fetchall()
        cursor.executemany(sql("end_entry"), ended).fetchall()
        rows: list[Any] = cursor.execute(sql("choose"), (1, 0, 200, 1, limit)).fetchall()
        done = [(row[1], entries + count + place, 1) for place, row in enumerate(rows)]
        cursor.executemany(sql("remove_order"), [(1, 0, 20, 1, row[1]) for row in rows])
        cursor.executemany(sql("start"), [(1, 1, id_, "P", fence, "w", 1, 1, 1, 1, 0, 0, 3) for id_, fence, _ in done])
        cursor.execute("COMMIT")
        count += len(rows)
    return {"drained_per_s": entries / (time.perf_counter() - began)}


# ---------------------------------------------------------------- cases


def _entries(plan: CaseSettings, most: int = ENTRIES) -> int:
    return QUICK_ENTRIES if plan.quick else most


def _ours(
    plan: CaseSettings, *, on: str, value: str = "drained_per_s", limit: int = LIMIT, most: int = ENTRIES
) -> RoundFigure:
    with fresh.journal(on, plan) as where:
        answer = in_child("work:ours_in_child", where=where, entries=_entries(plan, most), limit=limit)
    return RoundFigure(answer[value], answer)


def _worker(plan: CaseSettings) -> RoundFigure:
    with fresh.journal("postgres", plan) as where:
        answer = in_child("work:worker_in_child", where=where, entries=_entries(plan))
    return RoundFigure(answer["drained_per_s"], answer)


def _pgqueuer_side(plan: CaseSettings, *, value: str = "drained_per_s") -> RoundFigure:
    with fresh.journal("postgres", plan) as where:
        arguments = {"entries": _entries(plan), "only_add": value == "added_per_s"}
        answer = in_child("work:pgqueuer_in_child", url=where["url"], **arguments)
    return RoundFigure(answer[value], answer)


def _procrastinate_side(plan: CaseSettings) -> RoundFigure:
    with fresh.journal("postgres", plan) as where:
        answer = in_child("work:procrastinate_in_child", url=where["url"], entries=_entries(plan, SLOW_ENTRIES))
    return RoundFigure(answer["drained_per_s"], answer)


def _bare_sqlite(plan: CaseSettings, *, limit: int, most: int) -> RoundFigure:
    answer = in_child("work:bare_sqlite_in_child", folder=str(plan.folder), entries=_entries(plan, most), limit=limit)
    return RoundFigure(answer["drained_per_s"], answer)


def _wakes(plan: CaseSettings, *, ahead_us: int, value: str) -> RoundFigure:
    samples = QUICK_WAKES if plan.quick else WAKES
    with fresh.journal("postgres", plan) as where:
        answer = in_child("work:wakes_in_child", where=where, samples=samples, ahead_us=ahead_us)
    return RoundFigure(answer[value], answer)


def _later(plan: CaseSettings, *, later: bool) -> RoundFigure:
    count = (QUICK_LATER if plan.quick else LATER) if later else 0
    with fresh.journal("postgres", plan) as where:
        answer = in_child("work:later_in_child", where=where, entries=_entries(plan), later=count)
    return RoundFigure(answer["drained_per_s"], answer)


def _held(plan: CaseSettings, *, value: str) -> RoundFigure:
    seconds = QUICK_HELD_S if plan.quick else HELD_S
    if value == "clean_per_s":
        seconds = 0.1  # what comes before the snapshot is what counts
    with fresh.journal("postgres", plan) as where:
        answer = in_child("work:held_in_child", where=where, seconds=seconds)
    return RoundFigure(answer[value], answer)


_ON_PG: dict[str, Any] = {"on": "postgres"}
CASES = [
    Case("work/drain", "pgqueuer", "entries/s", 2.0, partial(_ours, on="postgres"), _pgqueuer_side, **_ON_PG),
    Case("work/drain-procrastinate", "procrastinate", "entries/s", 20.0, partial(_ours, on="postgres"),
         _procrastinate_side, rounds=1, **_ON_PG),
    Case("work/worker", "pgqueuer", "entries/s", 1.0, _worker, _pgqueuer_side, **_ON_PG),
    Case("work/add", "pgqueuer", "entries/s", 1.0, partial(_ours, on="postgres", value="added_per_s"),
         partial(_pgqueuer_side, value="added_per_s"), **_ON_PG),
    Case("work/sqlite-drain", "apsw", "entries/s", 0.5, partial(_ours, on="sqlite"),
         partial(_bare_sqlite, limit=LIMIT, most=ENTRIES)),
    Case("work/sqlite-one-by-one", "apsw", "entries/s", 0.5, partial(_ours, on="sqlite", limit=1, most=SLOW_ENTRIES),
         partial(_bare_sqlite, limit=1, most=SLOW_ENTRIES)),
    Case("work/wake-now-p50", "limit", "ms", 1.0, partial(_wakes, ahead_us=0, value="p50_ms"), WAKE_NOW_LIMIT_MS,
         rate=False, **_ON_PG),
    Case("work/wake-at-date-p99", "limit", "ms", 1.0, partial(_wakes, ahead_us=200_000, value="p99_ms"),
         WAKE_AT_LIMIT_MS, rate=False, **_ON_PG),
    Case("work/million-later", "none-later", "entries/s", 0.9, partial(_later, later=True),
         partial(_later, later=False), rounds=1, on_demand=True, **_ON_PG),
    Case("work/drain-snapshot-held", "clean", "entries/s", 0.9, partial(_held, value="held_per_s"),
         partial(_held, value="clean_per_s"), rounds=1, on_demand=True, **_ON_PG),
]  # fmt: skip
