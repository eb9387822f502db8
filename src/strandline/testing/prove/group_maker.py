"""Makes programs of event groups at random."""

from __future__ import annotations

import random
from typing import Any, Final

from strandline.testing.prove.group_building import REFUSED
from strandline.testing.prove.group_situations import situations_of
from strandline.testing.prove.group_statements import AFFECTED, EXPRESSIONS, ProgramStatement
from strandline.testing.prove.group_steps import statements_of
from strandline.testing.prove.group_world import MODELLED
from strandline.testing.prove.program import Call, Program

KINDS: Final[dict[str, list[dict[str, str]]]] = {
    "sqlite": [{"a": "sqlite", "b": "sqlite"}, {"a": "sqlite", "b": "sqlite"}, {"a": "sqlite", "b": "lww"}],
    "memory": [{"a": "sqlite", "b": "sqlite"}],
    "inexact": [{"a": "sqlite", "b": "sqlite"}, {"a": "lww", "b": "lww"}],
    "postgres": [{"a": "postgres", "b": "postgres"}, {"a": "postgres", "b": "sqlite"}],
    "last-write-wins": [{"a": "lww", "b": "lww"}, {"a": "lww", "b": "sqlite"}],
    "inexact-last-write-wins": [{"a": "lww", "b": "lww"}, {"a": "lww", "b": "sqlite"}],
    "kafka-cassandra": [{"a": "cassandra", "b": "cassandra"}, {"a": "cassandra", "b": "sqlite"}],
}
"""By what a program runs on: the databases, by name."""
POINTS: Final = (
    "fence.raised", "group.taken", "group.started", "step.before", "step.before", "step.done", "step.done",
    "step.recorded", "intent.recorded", "step.written", "asked.recorded", "answered", "hook.queued", "hook.sent",
    "decided", "undo.before", "undo.sent", "undo.done", "rollback.step", "undo.recorded", "ended", "progress.recorded",
)  # fmt: skip
"""At which a processor is killed."""
LEASE_S: Final = 0.3
"""Where processors take over from each other."""
CALLS: Final = {
    "submit": 24, "run": 10, "foreign": 5, "cancel": 2, "again": 3, "clock": 2, "new_process": 2, "alter": 3,
    "refused": 2, "race": 0.5, "graph": 1, "away": 1,
}  # fmt: skip
"""How often each is made."""
GRAPHS: Final = 8
SITUATED: Final = 0.3
"""Of the programs, at whose end there is a situation."""
NAMES: Final = ("x", "y", "it's", "z")


class GroupProgramMaker:
    """Makes calls at random."""

    def __init__(self, chance: random.Random, kinds: dict[str, str], *, takes_over: bool) -> None:
        self.chance, self.kinds, self.takes_over = chance, kinds, takes_over
        self._ids = chance.choice((3, 5, 8))

    def write(self, on: str | None = None, *, writes: bool = True) -> dict[str, Any]:
        """A statement on a target, with its values."""
        chance = self.chance
        on = on or chance.choice(sorted(self.kinds))
        statements = statements_of(self.kinds, on)
        names = [name for name, one in statements.items() if one.writes == writes]
        weights = [3.0 if statements[name].exact else 1.0 for name in names]
        return {"on": on, "op": chance.choices(names, weights)[0], **self.values()}

    def values(self) -> dict[str, Any]:
        chance = self.chance
        return {
            "id": chance.randint(1, self._ids), "k": chance.choice((1, 3, 20, 60, -30, 450)),
            "b": chance.randint(1, 3), "name": chance.choice(NAMES),
        }  # fmt: skip

    # ------------------------------------------------------------ groups

    def group(self) -> dict[str, Any]:
        chance = self.chance
        on = chance.choice((*sorted(self.kinds), None, None))
        asks = on is None or chance.random() < 0.4
        chain = chance.random() < 0.7
        fails = chance.random() < 0.4
        steps: list[dict[str, Any]] = []
        for number in range(chance.choice((1, 2, 3, 3, 4, 5, 7))):
            steps.append(self.step(number, on, steps, asks=asks, fails=fails, chain=chain))
        meddled = any((one.get("ask") or {}).get("do") == "foreign" for one in steps)
        if (fails and chance.random() < 0.7) or (meddled and chance.random() < 0.6):
            steps.append({"n": len(steps), "needs": [chance.randrange(len(steps))], "checks": ["1 = 2"]})
        if chance.random() < 0.1:
            steps.append({"n": len(steps), "final": True, **self.write(on), "needs": list(range(len(steps)))})
        made: dict[str, Any] = {"steps": steps, "chain": chain}
        if chance.random() < 0.5:
            made["conflict"] = chance.choice(("fail", "fail", "keep_current", "overwrite"))
            made["keep"] = chance.random() < 0.4
            made["resolve"] = [chance.choice(("retry", "force", "accept_current")) for _ in range(3)]
        if asks and chance.random() < 0.2:
            made["post"] = True
        if chance.random() < 0.3:
            made["kills"] = self.kills()
        return made

    def step(
        self, number: int, on: str | None, before: list[dict[str, Any]], *, asks: bool, fails: bool, chain: bool
    ) -> dict[str, Any]:
        chance = self.chance
        made: dict[str, Any] = {"n": number}
        kind = chance.random()
        if kind < 0.88:
            made |= self.write(on, writes=kind < 0.66)
        self._take(made, on, before)
        statement = statements_of(self.kinds, made.get("on")).get(made.get("op", ""))
        if before:
            made["needs"] = sorted({chance.randrange(number) for _ in range(chance.choice((0, 1, 1, 2)))})
        if statement is not None and statement.wants and before and "from" not in made:
            made["from"] = chance.randrange(number)
        made |= self.recipe(statement, before, asks=asks, chain=chain, fails=fails)
        if chance.random() < 0.3:
            made["checks"] = [self.check(statement, asks=asks and "ask" not in made, fails=fails)]
        if statement is not None and statement.writes:
            made["must"] = chance.choice(("exist", "absent", None, None, None, None))
            if asks and chance.random() < 0.1:
                made["undo"] = chance.choice(("handler", {"op": "name", "id": chance.randint(1, 3), "name": "back"}))
        made["plain"] = chance.random() < 0.15
        if fails and chance.random() < 0.1:
            made["failing"] = [{"op": "name", "on": self.name_of(on), "id": chance.randint(1, 3), "name": "failed"}]
        if asks and chance.random() < 0.15:
            made[chance.choice(("pre", "post"))] = True
        return made

    def _take(self, made: dict[str, Any], on: str | None, before: list[dict[str, Any]]) -> None:
        """Now and then: a statement that takes what a step before gives."""
        given = [(one["n"], _gives(one)) for one in before if _gives(one)]
        if given and self.chance.random() < 0.4:
            number, gives = self.chance.choice(given)
            where = self.name_of(on)
            wanting = [name for name, one in statements_of(self.kinds, where).items() if one.wants == gives]
            if wanting:
                made |= {"on": where, "op": self.chance.choice(wanting), **self.values(), "from": number}

    def meddled(self, before: list[dict[str, Any]]) -> dict[str, Any]:
        """Return what a foreign writer writes while a group runs: often where the group did."""
        made = self.write()
        written = [one for one in before if one.get("op") and "id" in one]
        if written and self.chance.random() < 0.7:
            one = self.chance.choice(written)
            names = ("name", "both", "gone", "put", "new", "leave", "pair_gone")
            known = [name for name in names if name in statements_of(self.kinds, one["on"])]
            made |= {"on": one["on"], "id": one["id"], "op": self.chance.choice(known)}
        return made

    def name_of(self, on: str | None) -> str:
        return on or self.chance.choice(sorted(self.kinds))

    def recipe(
        self, statement: ProgramStatement | None, before: list[dict[str, Any]], *, asks: bool, chain: bool, fails: bool
    ) -> dict[str, Any]:
        chance = self.chance
        if asks and chance.random() < 0.35:
            return {"ask": self.answer(before, chain=chain, fails=fails), "optional": chance.random() < 0.3}
        gives = () if statement is None else statement.gives
        fitting = [
            text for text, one in EXPRESSIONS.items()
            if one.gives in ("value", "list") and (one.column in gives or not one.column) and gives
        ]  # fmt: skip
        return {"e": chance.choice(fitting)} if fitting and chance.random() < 0.7 else {}

    def answer(self, before: list[dict[str, Any]], *, chain: bool, fails: bool) -> dict[str, Any]:
        """Return what a handler does. Where steps run side by side, no other step can see it."""
        chance = self.chance
        if chain and chance.random() < 0.45:
            return {"do": "foreign", "call": self.meddled(before), "v": chance.choice((2, 40))}
        if chain and chance.random() < 0.12:
            on = before[-1].get("on") if before and before[-1].get("on") else self.name_of(None)
            return {"do": "lock", "on": on, "seconds": chance.choice((0.05, 0.2)), "v": chance.choice((2, 40))}
        if (fails and chance.random() < 0.4) or chance.random() < 0.1:
            rare = ("cancel", "deadline", "late") if chain else ("late",)
            return {"do": chance.choice(("raise", "refuse", "raise", *rare))}
        return {"do": chance.choice(("answer", "answer", "refuse_once")), "v": chance.choice((2, 11, 40))}

    def check(self, statement: ProgramStatement | None, *, asks: bool, fails: bool) -> Any:
        chance = self.chance
        if asks and chance.random() < 0.3:
            values: tuple[Any, ...] = (True, True, "true") if not fails else (True, False, "false", 1, "yes")
            return {"ask": {"do": "answer", "v": chance.choice(values)}}
        if statement is not None and statement.writes and chance.random() < 0.6:
            return [chance.choice(sorted(AFFECTED)), chance.randrange(3)] if fails else ["affected_rows_at_least", 0]
        gives = () if statement is None else statement.gives
        fitting = [
            text for text, one in EXPRESSIONS.items()
            if one.gives in ("verdict", "odd") and (one.column in gives or not one.column)
            and (fails or text == "1 = 1" or one.column)
        ]  # fmt: skip
        return chance.choice(fitting)

    def kills(self) -> list[Any]:
        chance = self.chance
        return [[chance.choice(POINTS), chance.choice((1, 1, 2, 3, 5))] for _ in range(chance.choice((1, 1, 2, 3)))]

    # ------------------------------------------------------------ calls

    def call(self) -> Call:
        chance = self.chance
        name = chance.choices(*zip(*CALLS.items(), strict=True))[0]
        if name == "submit":
            return ["submit", {"group": self.group()}]
        if name == "run":
            kills = self.kills() if chance.random() < 0.4 else []
            how: dict[str, Any] = {"kills": kills, "parallel": chance.choice((None, None, 1, 8))}
            if self.takes_over and chance.random() < 0.8:
                how |= {"kills": [], "taken_over": [chance.choice(POINTS), chance.choice((1, 1, 2, 3))]}
            return ["run", how]
        if name == "foreign":
            return ["foreign", {"call": self.write()}]
        if name == "clock":
            return ["clock", {"seconds": chance.choice((-3600, -1, 1, 86_400 * 30))}]
        if name == "new_process":
            return ["new_process", {"abandoned": chance.random() < 0.5}]
        if name == "alter":
            return ["alter", {"on": self.name_of(None), "what": chance.choice(("column", "triggers"))}]
        if name == "refused":
            return ["refused", {"on": self.name_of(None), "what": chance.choice(sorted(REFUSED))}]
        if name == "graph":
            names = range(chance.choice((2, 3, 4, 6)))
            edges = [[chance.choice(names), [chance.choice(names) for _ in range(chance.choice((0, 1, 1, 2, 3)))],
                      chance.choice((None, None, *names))] for _ in range(10)]  # fmt: skip
            return ["graph", {"edges": edges}]
        if name == "away":
            return ["away", {"on": self.name_of(None), "seconds": chance.choice((0.01, 0.1))}]
        if name == "race":
            return ["race", {"on": self.name_of(None)}]
        return [name, {"nth": chance.randrange(5)}]


def _gives(one: dict[str, Any]) -> str:
    return EXPRESSIONS[one["e"]].gives if one.get("e") else "value" if one.get("ask") else ""


def make(seed: int, on: str) -> Program:
    """The program of a seed. One of five has the shipped settings."""
    chance = random.Random(f"groups {on} {seed}")
    kinds = chance.choice(KINDS[on])
    settings: dict[str, Any] = {"kinds": kinds, "journal": journal_of(on, seed)}
    limits: dict[str, float] = {}
    if seed % 5 != 4:
        limits = {"group.settings.WAIT_LEAST_S": 0.002, "group.log_news.FOLLOW_S": 0.005}
        settings["parallel_groups"] = chance.choice((1, 2, 8))
        if chance.random() < 0.3:
            settings["on_conflict"] = chance.choice(("keep_current", "overwrite"))
    takes_over = bool(limits) and chance.random() < 0.3 and on != "kafka-cassandra"  # others are late by its clock
    if takes_over:
        settings["lease_s"] = limits["group.lease_s"] = LEASE_S
    modelled = {name: MODELLED.get(kind, kind) for name, kind in kinds.items()}
    maker = GroupProgramMaker(chance, modelled, takes_over=takes_over)
    most = 4 if on == "kafka-cassandra" else 9
    calls = [more for _ in range(chance.randint(2, most)) for more in _with_graphs(maker.call())]
    if chance.random() < SITUATED:
        calls.append(_situation(chance, modelled))
    return Program("groups", on, calls, settings, limits)


def _situation(chance: random.Random, kinds: dict[str, str]) -> Call:
    on = chance.choice(sorted(kinds))
    return ["situation", {"on": on, "name": chance.choice([*situations_of(kinds[on]), None])}]


def _with_graphs(call: Call) -> list[Call]:
    """A call; behind one of a graph some of larger graphs with undos, which cost nothing: they are never submitted."""
    if call[0] != "graph":
        return [call]
    chance = random.Random(repr(call))
    calls = [call]
    for _ in range(GRAPHS):
        names = range(chance.choice((4, 6, 8)))
        edges = [[chance.choice(names), [chance.choice(names) for _ in range(chance.choice((0, 1, 1, 2, 3)))],
                  chance.choice((None, *names))] for _ in range(30)]  # fmt: skip
        calls.append(["graph", {"edges": edges}])
    return calls


def journal_of(on: str, seed: int) -> str:
    """Where the histories of the groups are."""
    if on in ("inexact", "inexact-last-write-wins", "kafka-cassandra"):
        return on
    often = {"sqlite": 3, "postgres": 6}.get(on, 0)
    return on if often and seed % often == 0 else "memory"
