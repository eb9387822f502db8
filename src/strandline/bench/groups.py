"""groups: event groups beside the bare statements, one after the other beside side by side, and expressions.

`bare`: groups per second of three steps in a chain (two writes and a read), durable, all or nothing, eight at a time,
beside the same statements by the bare driver, each in a transaction of its own, in eight threads. They are
submitted by eight threads to a processor that runs; the time is from the first call to the end of the last group.

`two-databases`: groups of a debit on one database and a credit on another, durable and with their undo prepared, beside
the same two statements by the bare driver, each in a transaction of its own.

`dbos`: the same groups beside workflows of DBOS with the same three statements, each a transaction of its data source
with its checkpoint, run by eight threads. A workflow is durable, too; it has no undo, and no order among workflows. It
runs only if it is named.

`disjoint`: the time of a thousand groups on different rows one after the other, beside their time with eight at once.

`expression`: the median time to evaluate the seed's examples once they are compiled, beside 2 µs.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from threading import Thread
from typing import Any

from strandline import extras
from strandline.bench import fresh
from strandline.bench.cases import Case, CaseSettings, RoundFigure
from strandline.bench.child import in_child

THREADS = 8
GROUPS, QUICK_GROUPS = 2000, 40
DISJOINT, QUICK_DISJOINT = 1000, 40
EVALUATIONS, QUICK_EVALUATIONS = 200_000, 1000
TAKE = "UPDATE account SET amount = amount - 1 WHERE id = :id"
GIVE = "UPDATE account SET amount = amount + 1 WHERE id = :id"
LOOK = "SELECT amount FROM account WHERE id = :id"
EXAMPLES = (
    "user_name.size > 10", "count = 1", "user.is_active == true", "is_active", "column1 != null && column2 = 'Foo'",
)  # fmt: skip


def groups_in_child(
    journal: dict[str, Any], target: str, groups: int, parallel: int, other: str | None = None
) -> dict[str, Any]:
    """Submit groups, each on two rows of its own, to a processor that runs, and wait for the last."""
    import strandline

    targets = {"shop": target} if other is None else {"shop": target, "bank": other}
    for place in targets.values():
        make_accounts(place, groups)
    _group = _in_one if other is None else _between
    with strandline.connect(**journal) as s:
        made = s.groups(targets=targets, parallel_groups=parallel)
        processor = made.processor()
        running = Thread(target=processor.run)
        running.start()
        made.submit(_group(groups)).wait(60)
        from_s = time.perf_counter()
        with ThreadPoolExecutor(THREADS) as pool:
            handles = list(pool.map(lambda n: made.submit(_group(n)), range(groups)))
        submitted_s = time.perf_counter() - from_s
        for handle in handles:
            handle.wait(600)
        seconds = time.perf_counter() - from_s
        processor.stop()
        running.join()
        ended = {made.get(f"g{n}").state for n in range(0, groups, max(1, groups // 50))}
    if ended != {"committed"}:
        raise RuntimeError(f"groups ended as {ended}")
    return {"groups_per_s": groups / seconds, "seconds": seconds, "submitted_per_s": groups / submitted_s}


def _between(n: int) -> Any:
    from strandline.group.definition import Group

    g = Group(f"g{n}")
    g.update("take", TAKE, {"id": 2 * n}, target="shop")
    g.update("give", GIVE, {"id": 2 * n + 1}, target="bank", depends_on=["take"])
    return g


def _in_one(n: int) -> Any:
    from strandline.group.definition import Group

    g = Group(f"g{n}")
    g.update("take", TAKE, {"id": 2 * n}, target="shop")
    g.update("give", GIVE, {"id": 2 * n + 1}, target="shop", depends_on=["take"])
    g.query("look", LOOK, {"id": 2 * n + 1}, target="shop", depends_on=["give"], success="amount = 101")
    return g


def bare_in_child(target: str, groups: int) -> dict[str, Any]:
    """Run the statements by the bare driver, each in its own transaction, a connection for each thread."""
    import psycopg

    make_accounts(target, groups)
    texts = [text.replace(":id", "%s") for text in (TAKE, GIVE, LOOK)]

    def work(numbers: range) -> None:
        with psycopg.connect(target, autocommit=True) as connection:
            for n in numbers:
                connection.execute(texts[0], (2 * n,))
                connection.execute(texts[1], (2 * n + 1,))
                found = connection.execute(texts[2], (2 * n + 1,)).fetchone()
                if found != (101,):
                    raise RuntimeError(f"{found} where 101 is meant")

    from_s = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, [range(thread, groups, THREADS) for thread in range(THREADS)]))
    seconds = time.perf_counter() - from_s
    return {"groups_per_s": groups / seconds}


def bare_between_in_child(target: str, other: str, groups: int) -> dict[str, Any]:
    """Run the debits and credits by the bare driver, two connections for each thread."""
    import psycopg

    for place in (target, other):
        make_accounts(place, groups)
    take, give = (text.replace(":id", "%s") for text in (TAKE, GIVE))

    def work(numbers: range) -> None:
        with psycopg.connect(target, autocommit=True) as one, psycopg.connect(other, autocommit=True) as two:
            for n in numbers:
                one.execute(take, (2 * n,))
                two.execute(give, (2 * n + 1,))

    from_s = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, [range(thread, groups, THREADS) for thread in range(THREADS)]))
    return {"groups_per_s": groups / (time.perf_counter() - from_s)}


def dbos_in_child(target: str, system: str, groups: int) -> dict[str, Any]:
    """Run the statements as transactions of a durable workflow."""
    import sqlalchemy
    from dbos import DBOS, SetWorkflowID, SQLAlchemyDatasource

    make_accounts(target, groups)
    urls = [url.replace("postgresql://", "postgresql+psycopg://", 1) for url in (system, target)]
    pool = {"pool_size": 2 * THREADS, "max_overflow": 0}
    DBOS(config={"name": "bench", "system_database_url": urls[0], "log_level": "ERROR", "db_engine_kwargs": pool})
    shop = SQLAlchemyDatasource.create(urls[1], engine_kwargs=pool)

    def step(text: str) -> Any:
        @shop.transaction(name=text, isolation_level="REPEATABLE READ")
        def executed(id_: int) -> Any:
            found = shop.sql_session().execute(sqlalchemy.text(text), {"id": id_})
            return found.scalar() if found.returns_rows else None

        return executed

    take, give, look = step(TAKE), step(GIVE), step(LOOK)

    @DBOS.workflow()
    def move(n: int) -> None:
        take(2 * n)
        give(2 * n + 1)
        if (found := look(2 * n + 1)) != 101:
            raise RuntimeError(f"{found} where 101 is meant")

    def run(n: int) -> None:
        with SetWorkflowID(f"g{n}"):
            move(n)

    DBOS.launch()
    try:
        run(groups)
        from_s = time.perf_counter()
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(run, range(groups)))
        seconds = time.perf_counter() - from_s
    finally:
        DBOS.destroy()
    return {"groups_per_s": groups / seconds}


def make_accounts(target: str, groups: int) -> None:
    """A table with two rows for each group."""
    import psycopg

    with psycopg.connect(target, autocommit=True) as connection:
        connection.execute("CREATE TABLE account (id bigint PRIMARY KEY, amount bigint)")
        connection.execute("INSERT INTO account SELECT n, 100 FROM generate_series(0, %s) n", (2 * groups + 1,))
        connection.execute("ANALYZE account")


def expressions_in_child(times: int) -> dict[str, Any]:
    """Evaluate each example so often; the median of all, in microseconds."""
    from strandline.group.core.expression import compiled
    from strandline.group.core.scope import Scope

    row = {"user_name": "abcdefghijkl", "is_active": True, "count": 1, "column1": 1, "column2": "Foo"}
    scope = Scope([row], tables=["users"])
    found = []
    for text in EXAMPLES:
        expression = compiled(text)
        for _ in range(20):
            from_s = time.perf_counter()
            for _ in range(times // 100):
                expression(scope)
            found.append((time.perf_counter() - from_s) * 1e6 / (times // 100))
    return {"us": median(found)}


def _ours(plan: CaseSettings) -> RoundFigure:
    count = QUICK_GROUPS if plan.quick else GROUPS
    target = fresh.create_database(plan.servers["postgres"])
    with fresh.journal("postgres", plan) as where:
        details = in_child("groups:groups_in_child", journal=where, target=target, groups=count, parallel=THREADS)
    return RoundFigure(details.pop("groups_per_s"), details)


def _bare(plan: CaseSettings) -> RoundFigure:
    count = QUICK_GROUPS if plan.quick else GROUPS
    target = fresh.create_database(plan.servers["postgres"])
    details = in_child("groups:bare_in_child", target=target, groups=count)
    return RoundFigure(details.pop("groups_per_s"), details)


def _ours_between(plan: CaseSettings) -> RoundFigure:
    count = QUICK_GROUPS if plan.quick else GROUPS
    target, other = (fresh.create_database(plan.servers["postgres"]) for _ in range(2))
    with fresh.journal("postgres", plan) as where:
        details = in_child(
            "groups:groups_in_child", journal=where, target=target, groups=count, parallel=THREADS, other=other
        )
    return RoundFigure(details.pop("groups_per_s"), details)


def _bare_between(plan: CaseSettings) -> RoundFigure:
    count = QUICK_GROUPS if plan.quick else GROUPS
    target, other = (fresh.create_database(plan.servers["postgres"]) for _ in range(2))
    details = in_child("groups:bare_between_in_child", target=target, other=other, groups=count)
    return RoundFigure(details.pop("groups_per_s"), details)


def _dbos(plan: CaseSettings) -> RoundFigure:
    extras.check("dev", "dbos")
    count = QUICK_GROUPS if plan.quick else GROUPS
    target, system = (fresh.create_database(plan.servers["postgres"]) for _ in range(2))
    details = in_child("groups:dbos_in_child", target=target, system=system, groups=count)
    return RoundFigure(details.pop("groups_per_s"), details)


def _disjoint(plan: CaseSettings, parallel: int) -> RoundFigure:
    count = QUICK_DISJOINT if plan.quick else DISJOINT
    target = fresh.create_database(plan.servers["postgres"])
    with fresh.journal("postgres", plan) as where:
        details = in_child("groups:groups_in_child", journal=where, target=target, groups=count, parallel=parallel)
    return RoundFigure(details.pop("seconds"), details)


def _at_once(plan: CaseSettings) -> RoundFigure:
    return _disjoint(plan, THREADS)


def _in_turn(plan: CaseSettings) -> RoundFigure:
    return _disjoint(plan, 1)


def _expressions(plan: CaseSettings) -> RoundFigure:
    details = in_child("groups:expressions_in_child", times=QUICK_EVALUATIONS if plan.quick else EVALUATIONS)
    return RoundFigure(details.pop("us"), details)


CASES = [
    Case(
        "groups/bare", "bare-statements", "groups/s", 0.3, _ours, _bare, on="postgres",
        settings={"groups": GROUPS, "threads": THREADS},
    ),
    Case(
        "groups/two-databases", "bare-statements", "groups/s", 0.15, _ours_between, _bare_between, on="postgres",
        settings={"groups": GROUPS, "threads": THREADS},
    ),
    Case(
        "groups/dbos", "dbos", "groups/s", 10.0, _ours, _dbos, on="postgres", on_demand=True,
        settings={"groups": GROUPS, "threads": THREADS},
    ),
    Case(
        "groups/disjoint", "one-by-one", "s", 1.5, _at_once, _in_turn, on="postgres", rate=False,
        settings={"groups": DISJOINT, "parallel_groups": THREADS},
    ),
    Case("groups/expression", "limit", "µs", 1.0, _expressions, 2.0, rate=False, settings={"examples": len(EXAMPLES)}),
]  # fmt: skip
