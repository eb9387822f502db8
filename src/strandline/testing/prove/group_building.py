"""Groups of random programs as the product takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from strandline.errors import CycleFound
from strandline.group.checks import Check, ask, is_true
from strandline.group.core.parts import Dep, Handler, Hook, Recipe
from strandline.group.definition import Group
from strandline.testing.prove.group_handlers import DEADLINE_S
from strandline.testing.prove.group_model import ModelGroup, ModelGroupEnd
from strandline.testing.prove.group_statements import Spec, value_of
from strandline.testing.prove.group_steps import ProgramStep, statements_of
from strandline.testing.prove.program import Difference

SOLO: Final = ("foreign", "cancel", "deadline", "lock")
"""What a handler does that other groups could see: such a group runs alone."""
LATE_S: Final = 0.03
"""So long an answer is waited for that comes too late."""
BUSY_S: Final = 0.05
"""So long a statement is tried on a target that somebody else has locked."""


class SubmittedGroup:
    """A group that was submitted, and has not ended as far as the model goes."""

    def __init__(self, id_: str, spec: Spec, made: Group, going: ModelGroup) -> None:
        self.id, self.spec, self.made, self.going = id_, spec, made, going
        self.cancelled = False
        self.end: ModelGroupEnd | None = None

    @property
    def solo(self) -> bool:
        return any(self.going.asks(what) for what in SOLO)


def group_of(id_: str, going: ModelGroup) -> Group:
    """The group as the product takes it."""
    deadline_s = DEADLINE_S if going.asks("deadline") else None
    hook = Hook("hook") if going.post else None
    made = Group(id_, on_conflict=going.conflict, post_hook=hook, deadline_s=deadline_s)
    for one in going.steps:
        backs = [(f"{one.name}_fail{n}", spec) for n, spec in enumerate(one.on_failure)]
        undo: Any = None
        if isinstance(one.undo, dict):
            backs.append((f"{one.name}_back", {"on": one.on, **one.undo}))
            undo = f"{one.name}_back"
        elif one.undo == "handler":
            undo = Handler("undo")
        for name, spec in backs:
            statement = statements_of(going.model.kinds, spec["on"])["name"]
            values = {"id": spec.get("id") or 1, "name": spec.get("name") or "x"}
            made.update(name, statement.text, values, target=spec["on"], is_rollback=True)
        failing = [name for name, _ in backs if name != undo]
        _add(going, made, one, undo, failing)
    return made


def _add(going: ModelGroup, made: Group, one: ProgramStep, undo: Any, failing: list[str]) -> None:
    needed = {name: None for name in (*one.needs, one.from_) if name is not None}
    more: dict[str, Any] = {"depends_on": [_dep(going, name) for name in needed]}
    if one.expression is not None:
        more["recipes"] = [Recipe("r", expression=one.expression.text)]
    elif one.ask is not None:
        more["recipes"] = [Recipe("r", handler="asked", timeout_s=_patience(one.ask), optional=one.optional)]
    more["checks"] = [_check(check) for check in one.checks]
    more |= {"must_exist": True} if one.must == "exist" else {}
    more |= {"must_not_exist": True} if one.must == "absent" else {}
    more |= {"undo": undo} if undo is not None else {}
    more |= {"execute_on_failure": failing} if failing else {}
    more |= {"irreversible": True} if one.final else {}
    more |= {"pre_hook": "hook"} if one.pre else {}
    more |= {"post_hook": "hook"} if one.post else {}
    more |= {"timeout_s": BUSY_S, "retries": 1} if one.statement is not None and going.asks("lock") else {}
    if one.statement is None:
        made.empty(one.name, **more)
        return
    text, values = one.statement.text, one.values(value_of(one.statement, one.spec))
    if one.from_ is not None:
        text, _ = text.replace(":v", f":{one.from_}.r.value"), values.pop("v", None)
    getattr(made, "statement" if one.plain else one.statement.kind)(one.name, text, values, target=one.on, **more)


def _dep(going: ModelGroup, name: str) -> Dep:
    """All of a step: what has no recipe is over with its success."""
    (one,) = [each for each in going.steps if each.name == name]
    has = one.expression is not None or (one.ask is not None and not one.optional)
    return Dep(name, "r" if has else None)


def _check(check: Any) -> Check:
    if isinstance(check, dict):
        return ask("asked", timeout_s=_patience(check["ask"]))
    if isinstance(check, list):
        return Check(check[0], n=check[1])
    return is_true(check)


def _patience(ask: Spec) -> float | None:
    return LATE_S if ask.get("do") == "late" else None


# ---------------------------------------------------------------- what is refused

ONE: Final = "UPDATE account SET amount = 1 WHERE id = 1"
UP: Final = "INSERT INTO account (id, name) VALUES"
SQL_KINDS: Final = ("sqlite", "postgres")
REFUSED: Final[dict[str, tuple[str, str, dict[str, Any], str, tuple[str, ...]]]] = {
    "no target": ("update", ONE, {"target": None}, "unknown_target", ()),
    "another target": ("update", ONE, {"target": "elsewhere"}, "unknown_target", ()),
    "another verb": ("insert", ONE, {}, "statement_kind", ()),
    "two statements": ("update", f"{ONE}; {ONE}", {}, "statement_count", SQL_KINDS),
    "no handler": ("update", ONE, {"post_hook": "nobody"}, "unknown_handler", ()),
    "no step": ("update", ONE, {"depends_on": ["nobody"]}, "unknown_step", ()),
    "no value": ("update", "UPDATE account SET amount = :k WHERE id = 1", {}, "parameter_missing", ()),
    "own table": ("delete", "DELETE FROM strandline_barrier", {}, "table_unsafe", ("sqlite",)),
    "truncate": ("statement", "TRUNCATE account", {}, "not_invertible", ("postgres",)),
    "DDL": ("statement", "CREATE TABLE more (id integer)", {}, "not_invertible", SQL_KINDS),
    "key": ("update", "UPDATE account SET id = 9 WHERE id = 1", {}, "not_invertible", SQL_KINDS),
    "from": ("update", "UPDATE account SET amount = 1 FROM pair WHERE pair.a = account.id", {}, "not_invertible",
             SQL_KINDS),
    "using": ("delete", "DELETE FROM account USING pair WHERE pair.a = account.id", {}, "not_invertible",
              ("postgres",)),
    "keys elsewhere": ("insert", "INSERT INTO account (name) VALUES ('x') ON CONFLICT (id) DO UPDATE SET amount = 1",
                       {}, "not_invertible", SQL_KINDS),
    "another key": ("insert", "INSERT INTO seat (id, who) VALUES (9, 'x') ON CONFLICT (who) DO UPDATE SET who = 'y'",
                    {}, "not_invertible", SQL_KINDS),
    "replace": ("insert", "INSERT OR REPLACE INTO account (id, name) VALUES (1, 'x')", {}, "not_invertible",
                ("sqlite",)),
    "random": ("update", "UPDATE account SET amount = 1 WHERE id = abs(random()) % 3", {}, "not_invertible",
               ("sqlite",)),
    "with": ("statement", "WITH gone AS (DELETE FROM account WHERE id = 1 RETURNING id) SELECT id FROM gone", {},
             "not_invertible", ("postgres",)),
}  # fmt: skip
"""By name, of a step that must be undone by itself: kind, text, options, the code that is told, kinds of targets."""


def refused(what: str, on: str, kind: str) -> tuple[Group, str] | None:
    """A group that makes no sense on a kind of target, and the code that is told."""
    verb, text, more, code, kinds = REFUSED[what]
    if kinds and kind not in kinds:
        return None
    made = Group(f"refused-{what.replace(' ', '-')}")
    getattr(made, verb)("x", text, **{"target": on, **more})
    made.empty("asks", depends_on=["x"], checks=[ask("asked")])
    return made, code


# ---------------------------------------------------------------- cycles


def graph_of(id_: str, edges: list[Any]) -> Group | None:
    """A group of empty steps. What closes a cycle is refused by the call that closes it, and nothing else
    is. None for one with undos: those were no rollback steps."""
    made, needs, given = Group(id_), dict[str, list[str]](), False
    for number, others, undo in edges:
        name, wanted = f"e{number}", [f"e{other}" for other in others]
        more = {} if undo is None or undo == number else {"undo": f"e{undo}"}
        if name in made.steps:
            continue
        tried = {**needs, name: [*needs.get(name, []), *wanted]}
        closes = any(name in reached_from(other, needs) for other in wanted)
        if more:
            closes = closes or more["undo"] in reached_from(name, tried)
            tried[more["undo"]] = [*tried.get(more["undo"], []), name]
        try:
            made.empty(name, depends_on=wanted, **more)
            closed = False
        except CycleFound:
            closed = True
        if closed != closes:
            raise Difference("graph", f"{name} on {wanted}, {more} closes a cycle: {closes}, not {closed}; {needs}")
        if not closed:
            needs, given = tried, given or bool(more)
    for name in sorted({other for wanted in needs.values() for other in wanted} - made.steps.keys()):
        made.empty(name)
    return None if given else made


def reached_from(name: str, needs: Mapping[str, list[str]]) -> set[str]:
    """All that a step is behind, and the step."""
    found, left = set[str](), [name]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += needs.get(one, [])
    return found
