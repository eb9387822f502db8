# ruff: noqa: S608 - the tables are our own
"""Situations of groups that chance would hardly bring together: each has tables of its own, a few groups, and says what
must be there afterwards, whatever came in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from strandline.errors import InvalidGroup
from strandline.group.checks import ask, is_true
from strandline.group.core.parts import Dep, HookMessage, Recipe
from strandline.group.definition import Group
from strandline.testing.prove.group_world import SqliteShop, SqlShop
from strandline.testing.prove.program import Difference

SQLITE, POSTGRES = "sqlite", "postgres"
SLOW_S: Final = 0.15
"""So long a group holds what another one waits for."""
UNDONE: Final = ("aborted", "rolled_back")


class SituatedRun(Protocol):
    """The part of a run that runs groups."""

    groups: Any
    kills: Any
    situated: Callable[[Any], Any]
    """The handler `situated`."""

    def processed(self) -> None: ...

    def do_run(self, kills: list[Any], parallel: int | None) -> None: ...

    def one_run(self) -> bool: ...

    def do_new_process(self, abandoned: bool) -> None: ...


@dataclass(frozen=True)
class Situation:
    """On which kinds of targets; its tables; what happens."""

    kinds: tuple[str, ...]
    tables: tuple[str, ...]
    happens: Callable[[SituatedRun, SqlShop, str, str], None]
    """Given who runs groups, the shop, its name, and a prefix for ids."""


def failing(id_: str, on: str, verb: str, text: str) -> Group:
    """A group that changes something, asks a handler, and fails then: all must be as before."""
    made = Group(id_)
    getattr(made, verb)("changes", text, target=on)
    made.empty("asks", depends_on=["changes"], recipes=[Recipe("r", handler="situated")])
    made.empty("fails", depends_on=[Dep("asks", "r")], checks=[is_true("1 = 2")])
    return made


def _ended(run: SituatedRun, id_: str, *states: str) -> None:
    outcome = run.groups.get(id_)
    if outcome.state not in states:
        raise Difference("situation", f"{id_} is {outcome.state}, {outcome.reason} ({outcome.detail}), not {states}")


def _same(shop: SqlShop, query: str, wanted: Sequence[tuple[Any, ...]]) -> None:
    found = [tuple(row) for row in shop.execute(query)]
    if found != list(wanted):
        raise Difference("situation", f"{query} gives {found}, not {wanted}")


def _filled(shop: SqlShop, table: str, rows: str) -> None:
    shop.execute(f"DELETE FROM {table}")
    shop.execute(f"INSERT INTO {table} VALUES {rows}")


# ---------------------------------------------------------------- what happens


def sampled(run: SituatedRun, shop: SqlShop, on: str, id_: str) -> None:
    """Rows that are drawn anew each time: what is saved and what is changed are the same rows, or nothing is done."""
    _filled(shop, "sampled", ", ".join(f"({n}, {n})" for n in range(1, 9)))
    drawn = "(SELECT id FROM sampled TABLESAMPLE BERNOULLI (50))"
    run.groups.submit(failing(f"{id_}d", on, "delete", f"DELETE FROM sampled WHERE id IN {drawn}"))
    run.groups.submit(failing(f"{id_}u", on, "update", f"UPDATE sampled SET n = 0 WHERE id IN {drawn}"))
    run.processed()
    _same(shop, "SELECT id, n FROM sampled ORDER BY id", [(n, n) for n in range(1, 9)])
    _ended(run, f"{id_}d", *UNDONE)
    _ended(run, f"{id_}u", *UNDONE)


def replaced(run: SituatedRun, shop: SqlShop, on: str, id_: str) -> None:
    """A table whose declaration lets a change remove another row, which nobody saves."""
    _filled(shop, "replacing", "(1, 'x'), (2, 'y')")
    for verb, text in (
        ("insert", "INSERT INTO replacing (id, who) VALUES (3, 'x')"),
        ("update", "UPDATE replacing SET who = 'x' WHERE id = 2"),
    ):
        with suppress(InvalidGroup):
            run.groups.submit(failing(f"{id_}{verb}", on, verb, text))
            raise Difference("situation", f"{text} was taken")
    _same(shop, "SELECT id, who FROM replacing ORDER BY id", [(1, "x"), (2, "y")])


def asked_and_written(run: SituatedRun, shop: SqlShop, on: str, id_: str) -> None:
    """A query that writes."""
    shop.execute("DELETE FROM told")
    made = failing(id_, on, "query", "SELECT tells() AS n")
    run.groups.submit(made)
    run.processed()
    _ended(run, id_, *UNDONE)
    _same(shop, "SELECT id FROM told", [])


def unreadable(run: SituatedRun, shop: SqlShop, on: str, id_: str) -> None:
    """Submit what no group can read and no log can keep: one group ends, and those behind it run."""
    _filled(shop, "odd", "(1, 'x'), (2, CAST(x'ff' AS text))")
    circular: list[Any] = []
    circular.append(circular)
    run.situated = lambda message: {"value": circular}
    reads = Group(f"{id_}q")
    reads.query("reads", "SELECT who FROM odd ORDER BY id", target=on)
    returns = Group(f"{id_}r")
    returns.update("returns", "UPDATE odd SET id = id WHERE id > 0 RETURNING who", target=on, irreversible=True)
    behind = Group(f"{id_}w")
    behind.update("writes", "UPDATE odd SET who = 'y' WHERE id = 1", target=on)
    circles = failing(f"{id_}c", on, "update", "UPDATE odd SET who = 'z' WHERE id = 1")
    for made in (reads, returns, circles, behind):
        run.groups.submit(made)
    run.processed()
    for one in ("q", "r", "c"):
        _ended(run, f"{id_}{one}", *UNDONE)
    _ended(run, f"{id_}w", "committed")
    _same(shop, "SELECT who FROM odd WHERE id = 1", [("y",)])


def away_later(run: SituatedRun, shop: SqlShop, on: str, id_: str) -> None:
    """A target goes away while a group runs: those that begin meanwhile wait."""
    _filled(shop, "waiting", "(1, 0)")

    def leaves(_: object) -> Any:
        if isinstance(shop, SqliteShop):
            shop.leave(SLOW_S)
        return {"value": 1}

    run.situated = leaves
    first = Group(f"{id_}a")
    first.empty("asks", recipes=[Recipe("r", handler="situated")])
    run.groups.submit(first)
    for n in range(3):
        made = Group(f"{id_}b{n}")
        made.update("adds", "UPDATE waiting SET n = n + 1 WHERE id = 1", target=on)
        run.groups.submit(made)
    run.processed()
    for one in ("a", "b0", "b1", "b2"):
        _ended(run, f"{id_}{one}", "committed")
    _same(shop, "SELECT n FROM waiting", [(3,)])


def coupled(run: SituatedRun, shop: SqlShop, on: str, id_: str) -> None:
    """Rows that a constraint on some rows couples: who needs the place of another waits until that one has ended."""
    _filled(shop, "coupled", "(1, 'x', 1), (2, 'x', 0)")
    run.do_run([], 8)

    def slow(_: object) -> Any:
        time.sleep(SLOW_S)
        return {"value": 1}

    run.situated = slow
    run.groups.submit(failing(f"{id_}a", on, "update", "UPDATE coupled SET mark = 0 WHERE id = 1"))
    behind = Group(f"{id_}b")
    behind.update("takes", "UPDATE coupled SET mark = 1 WHERE id = 2", target=on)
    run.groups.submit(behind)
    run.processed()
    _ended(run, f"{id_}a", "rolled_back")
    _ended(run, f"{id_}b", *UNDONE)
    _same(shop, "SELECT id, mark FROM coupled ORDER BY id", [(1, 1), (2, 0)])


def other_zone(run: SituatedRun, shop: SqlShop, on: str, id_: str) -> None:
    """A processor with another time zone undoes what the one before did."""
    _filled(shop, "timed", "(1, '2026-01-01 00:00:00+00')")
    name = shop.execute("SELECT current_database()")[0][0]

    def moves(_: object) -> Any:
        shop.execute(f"ALTER DATABASE {name} SET timezone = 'Asia/Tokyo'")
        return {"value": 1}

    run.situated = moves
    run.kills.plan([["undo.before", 1]])
    try:
        run.groups.submit(failing(id_, on, "update", "UPDATE timed SET at = at + interval '1 hour' WHERE id = 1"))
        run.processed()
    finally:
        run.kills.plan([])
        shop.execute(f"ALTER DATABASE {name} RESET timezone")
    _ended(run, id_, "rolled_back")
    _same(shop, "SELECT extract(epoch FROM at)::bigint FROM timed", [(1_767_225_600,)])


def swapped(run: SituatedRun, shop: SqlShop, on: str, id_: str) -> None:
    """Rows that change places under a constraint that is checked at the end of the statement."""
    _filled(shop, "swapped", "(1, 1), (2, 2)")
    run.groups.submit(failing(id_, on, "update", "UPDATE swapped SET pos = 3 - pos"))
    run.processed()
    _ended(run, id_, "rolled_back")
    _same(shop, "SELECT id, pos FROM swapped ORDER BY id", [(1, 1), (2, 2)])


def stuck(run: SituatedRun, shop: SqlShop, on: str, id_: str) -> None:
    """A group whose undo failed keeps the rows that it changed, and no others of its table, though it looked for them
    in all of it."""
    _filled(shop, "stuck", "(1, 5), (2, 1)")

    def meddles(_: object) -> Any:
        shop.execute("UPDATE stuck SET n = 9 WHERE id = 1")
        return {"value": 1}

    run.situated = meddles
    scans = failing(f"{id_}a", on, "update", "UPDATE stuck SET n = n + 1 WHERE n > 2")
    scans.on_conflict = "fail"
    run.groups.submit(scans)
    run.processed()
    for n in (1, 2):
        made = Group(f"{id_}b{n}")
        made.update("sets", f"UPDATE stuck SET n = {n} WHERE id = {n}", target=on)
        run.groups.submit(made)
    run.processed()
    _ended(run, f"{id_}a", "rollback_failed")
    _ended(run, f"{id_}b2", "committed")
    _same(shop, "SELECT id, n FROM stuck ORDER BY id", [(1, 9), (2, 2)])
    run.groups.resolve(f"{id_}a", "changes", "accept_current")
    run.processed()
    _ended(run, f"{id_}a", "rolled_back")
    _ended(run, f"{id_}b1", "committed")
    _same(shop, "SELECT id, n FROM stuck ORDER BY id", [(1, 1), (2, 2)])


def doubted(run: SituatedRun, shop: SqlShop, on: str, id_: str) -> None:
    """A group is cancelled while nobody knows whether its first transaction ran: whoever goes on asks the target."""
    _filled(shop, "doubted", "(1, 5)")
    run.kills.plan([["step.done", 1]])  # it is committed, and nobody has written that down
    try:
        run.groups.submit(failing(id_, on, "update", "UPDATE doubted SET n = 6 WHERE id = 1"))
        killed = run.one_run()
    finally:
        run.kills.plan([])
    if killed:
        run.do_new_process(True)
        run.groups.cancel(id_)
        run.processed()
    _ended(run, id_, "rolled_back")
    _same(shop, "SELECT n FROM doubted", [(5,)])


def told_late(run: SituatedRun, shop: SqlShop, on: str, id_: str) -> None:
    """A step ends when its group has failed already: its post-hook is told that."""
    told = list[Any]()

    def answers(message: Any) -> Any:
        if isinstance(message, HookMessage):
            told.append((message.step, message.when, message.succeeded))
            return None
        if message.step == "fails":
            return {"value": False}
        time.sleep(SLOW_S)
        return {"value": 1}

    run.situated = answers
    made = Group(id_)
    made.empty("late", recipes=[Recipe("r", handler="situated")], post_hook="situated")
    made.empty("fails", checks=[ask("situated")])
    run.groups.submit(made)
    run.processed()
    _ended(run, id_, "aborted")
    if told != [("late", "post", True)]:
        raise Difference("situation", f"hooks were told {told}")


COUPLED: Final = "CREATE TABLE coupled (id integer PRIMARY KEY, owner text, mark integer)"
SITUATIONS: Final[dict[str, Situation]] = {
    "sampled": Situation((POSTGRES,), ("CREATE TABLE sampled (id integer PRIMARY KEY, n integer)",), sampled),
    "replaced": Situation(
        (SQLITE,), ("CREATE TABLE replacing (id integer PRIMARY KEY, who text UNIQUE ON CONFLICT REPLACE)",), replaced
    ),
    "asked_and_written": Situation(
        (POSTGRES,),
        (
            "CREATE TABLE told (id integer)",
            "CREATE FUNCTION tells() RETURNS integer LANGUAGE sql AS 'INSERT INTO told VALUES (1) RETURNING 1'",
        ),
        asked_and_written,
    ),
    "unreadable": Situation((SQLITE,), ("CREATE TABLE odd (id integer PRIMARY KEY, who text)",), unreadable),
    "away_later": Situation((SQLITE,), ("CREATE TABLE waiting (id integer PRIMARY KEY, n integer)",), away_later),
    "coupled": Situation(
        (SQLITE, POSTGRES), (COUPLED, "CREATE UNIQUE INDEX coupled_owner ON coupled (owner) WHERE mark > 0"), coupled
    ),
    "excluded": Situation(
        (POSTGRES,), (f"{COUPLED[:-1]}, EXCLUDE USING btree (owner WITH =) WHERE (mark > 0))",), coupled
    ),
    "stuck": Situation((SQLITE, POSTGRES), ("CREATE TABLE stuck (id integer PRIMARY KEY, n integer)",), stuck),
    "doubted": Situation((SQLITE, POSTGRES), ("CREATE TABLE doubted (id integer PRIMARY KEY, n integer)",), doubted),
    "told_late": Situation((SQLITE,), ("CREATE TABLE unused (id integer PRIMARY KEY)",), told_late),
    "other_zone": Situation((POSTGRES,), ("CREATE TABLE timed (id integer PRIMARY KEY, at timestamptz)",), other_zone),
    "swapped": Situation(
        (POSTGRES,),
        ("CREATE TABLE swapped (id integer PRIMARY KEY, pos integer UNIQUE DEFERRABLE INITIALLY IMMEDIATE)",),
        swapped,
    ),
}
"""By name."""


def situations_of(kind: str) -> list[str]:
    """Return the situations of a kind of targets."""
    return [name for name, one in SITUATIONS.items() if kind in one.kinds]
