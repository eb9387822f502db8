"""Event groups as plain Python: one after the other, applied to dictionaries; each as a whole or not at all.

Written from `docs/spec/groups.md`. A group is a list of steps as plain data; `ProgramStep.all_of` leaves out what makes
no sense, so that any list is a group. Steps run in their order. The product may run steps side by side that do not
depend on each other: which of several wrong ones fails first is then its choice, and the model follows it (`told`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from strandline.testing.prove.group_statements import (
    AFFECTED,
    COLUMNS,
    EXPRESSIONS,
    EXTRA,
    KEYS,
    VALUES,
    Database,
    Effects,
    Row,
    RowChange,
    Spec,
    StepFails,
    value_of,
)
from strandline.testing.prove.group_steps import Place, ProgramStep, answer_of, meet, statements_of

STOPS: Final = {"cancel": "cancelled", "deadline": "deadline"}
GIVES_NO_ANSWER: Final = {"raise": "error", "refuse": "error", "late": "timeout"}


@dataclass
class ModelStepEnd:
    """The state that a step must show. A None in `state` is not compared."""

    state: str | None = "skipped"
    affected: int | None = None
    rows: list[Row] | None = None
    result: Any = None
    has_result: bool = False
    reason: str | None = None
    verdicts: list[bool] = field(default_factory=list)
    ran: bool = False
    """Something of it was executed or asked."""


@dataclass
class ModelGroupEnd:
    """The state that a group must show."""

    state: str
    failed_step: str | None = None
    reason: str | None = None
    steps: dict[str, ModelStepEnd] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    """How often a handler is called, by step."""
    undone_by_handler: set[str] = field(default_factory=set)
    hooks: set[tuple[Any, ...]] = field(default_factory=set)
    loose: set[str] = field(default_factory=set)
    """Steps of which nobody can say how far they came."""
    unsure: bool = False
    """Steps that ran side by side with the one that failed may have run, or not."""
    states: frozenset[str] = frozenset()
    """How it may have ended, where that depends on such steps."""


class GroupIsCancelled(Exception):
    """By its own handler, or by time."""


# ---------------------------------------------------------------- the model


@dataclass
class GroupModel:
    """The databases, and the groups that are open, in the order of the stream."""

    kinds: dict[str, str]
    on_conflict: str = "fail"
    databases: dict[str, Database] = field(default_factory=dict)
    triggers: set[str] = field(default_factory=set)
    """Targets whose table of accounts has triggers."""
    extra: set[str] = field(default_factory=set)
    """Targets whose table of accounts has one more column."""
    foreign_cells: dict[tuple[Any, ...], int] = field(default_factory=dict)
    """When somebody else last wrote a cell."""
    removals: dict[tuple[Any, ...], int] = field(default_factory=dict)
    """When somebody else removed the cells under the first column of a key."""
    now: int = 0

    def add_column(self, on: str) -> None:
        """Its values differ from the default, as if somebody had written them."""
        self.extra.add(on)
        for row in self.databases[on]["account"].values():
            row["extra"] = row["id"] * 10
        self.databases[on]["defaults"] = {("account",): {"extra": EXTRA}}

    def foreign(self, spec: Spec) -> None:
        """Somebody else executes a statement; one that fails has no effect."""
        statement = statements_of(self.kinds, spec.get("on")).get(spec.get("op") or "")
        if statement is None:
            return
        values = {key: spec.get(key) if spec.get(key) is not None else value for key, value in VALUES.items()}
        self.now += 1
        if statement.kind == "delete":
            self.removals[spec["on"], statement.table, values["id"]] = self.now
        try:
            effect = statement.does(self.databases[spec["on"]], values, value_of(statement, values))
        except StepFails:
            return
        for change in effect.changes:
            for column in effect.columns:
                if statement.kind != "delete":
                    self.foreign_cells[spec["on"], change.table, change.key, column] = self.now


class ModelGroup:
    """One group on its way through the model."""

    def __init__(self, model: GroupModel, spec: Spec) -> None:
        self.model = model
        self.chain = bool(spec.get("chain", True))
        self.steps = ProgramStep.all_of(spec.get("steps") or [], model.kinds, chain=self.chain)
        self.conflict = spec.get("conflict") or None
        self.on_conflict = self.conflict or model.on_conflict
        self.post = bool(spec.get("post"))
        self.seen = {one.name: ModelStepEnd() for one in self.steps}
        self.end = ModelGroupEnd("committed", steps=self.seen)
        self.done: list[tuple[ProgramStep, Effects | None]] = []
        """What is to be undone."""
        self.stuck: ProgramStep | None = None
        self.unsaved = frozenset[str]()
        """Steps after which nothing can fail, as `explain` says (G92)."""
        self._away: str | None = None
        """A target that somebody locked for a while."""
        self._told: Any = None
        self._wrote: dict[tuple[Any, ...], int] = {}
        """When it last wrote each cell."""
        self._rolled = False

    @property
    def whole(self) -> bool:
        """Whether it is one transaction (G92)."""
        targets = {one.on for one in self.steps if one.statement is not None}
        told = any(one.asks is not None or one.pre or one.post for one in self.steps)
        given = any(one.undo is not None or one.final for one in self.steps)
        sql = all(self.model.kinds.get(on or "") in ("sqlite", "postgres") for on in targets)
        return len(targets) == 1 and sql and not told and not given

    def _is_automatic(self, one: ProgramStep) -> bool:
        """Whether a step saves rows, so that it can be undone by itself."""
        return one.writes and one.undo is None and not one.final and not self.whole and one.name not in self.unsaved

    def is_in_triggers(self) -> bool:
        """Whether a step that saves rows writes a table with triggers."""
        return any(
            self._is_automatic(one) and one.on in self.model.triggers
            and one.statement is not None and one.statement.table == "account" for one in self.steps
        )  # fmt: skip

    def kept(self) -> list[Place]:
        """Return what the group holds while it waits for an operator: the rows of steps that are not undone."""
        found: list[Place] = []
        for one, effect in self.done:
            if effect is None or one.undo is not None:
                found += one.places() if one.writes else []
            else:
                found += [(one.on or "", change.table, change.key, True) for change in effect.changes]
        return found

    def asks(self, what: str) -> bool:
        """Whether a handler does this."""
        return any((one.asks or {}).get("do") == what for one in self.steps)

    def places(self) -> list[Place]:
        """Return the places that the group may touch."""
        every = [place for one in self.steps for place in one.places()]
        for one in self.steps:
            backs = [*one.on_failure, *([one.undo] if isinstance(one.undo, dict) else [])]
            every += [(spec.get("on", one.on), "account", (spec.get("id") or 1,), True) for spec in backs]
        return every

    # ------------------------------------------------------------ forward

    def run(self, told: Any) -> None:
        """From the start to the end, or until an undo fails. `told` is what the product says became of it."""
        self._told = told
        before = deepcopy(self.model.databases)
        wrong: dict[str, StepFails] = {}
        cancelled = ""
        for one in self.steps:
            if any(self._is_behind(one, name, rows=not failed.asked) for name, failed in wrong.items()):
                continue
            try:
                self._step(one)
            except StepFails as failed:
                wrong[one.name] = failed
                self.seen[one.name].reason = failed.reason
            except GroupIsCancelled as error:
                cancelled = str(error)
                self.end.loose.add(one.name)
            if self.chain and (wrong or cancelled):
                break
        if cancelled:
            self._fails(None, cancelled)
            if cancelled == "deadline":  # by a real clock: it may have come earlier
                self.end.unsure, self.end.states = True, frozenset({"rolled_back", "aborted"})
        elif not wrong:
            self._told_end()
        elif self.chain:
            ((name, first),) = wrong.items()
            self._fails(name, first.reason)
        else:
            self._fails_side_by_side(wrong, told, before)

    def _is_behind(self, one: ProgramStep, name: str, *, rows: bool = True) -> bool:
        """Whether a step waits for another: by what it needs, or by rows (for its statement, not for its handlers)."""
        names = {name}
        for other in self.steps:
            if other is one:
                break
            if other.name not in names and self._follows(other, names, rows=rows):
                names.add(other.name)
        return self._follows(one, names, rows=rows)

    def _follows(self, one: ProgramStep, names: set[str], *, rows: bool) -> bool:
        needed = {*one.needs, one.from_}
        before = [other for other in self.steps[: self.steps.index(one)] if other.name in names]
        return bool(needed & names) or any(rows and meet(one.places(), other.places()) for other in before)

    def _step(self, one: ProgramStep) -> None:
        seen = self.seen[one.name]
        self.hook(one, "pre", None)
        self._execute(one, seen)
        if one.expression is not None:
            try:
                self._result(seen, one.expression.of(seen.rows or []))
            except StepFails:
                raise StepFails("recipe_error") from None
        if one.ask is not None:
            with suppress(*[StepFails] * one.optional):
                self._result(seen, self._asked(one, one.ask, "recipe"))
        wrong = None
        for check in one.checks:
            verdict = self._verdict(one, check, seen)
            seen.verdicts.append(verdict is None)
            wrong = wrong or verdict
        if wrong is not None:
            raise StepFails(wrong, asked=one.asks is not None)
        seen.state = "succeeded"
        self.hook(one, "post", True)

    def _execute(self, one: ProgramStep, seen: ModelStepEnd) -> None:
        if one.statement is None or one.on is None:
            self.done.append((one, None))
            return
        db = self.model.databases[one.on]
        if self._away == one.on and self._told_away(one):
            seen.state = "failed"
            raise StepFails("statement")
        if self._is_automatic(one) and one.statement.table == "account" and one.on in self.model.triggers:
            seen.state = "failed"
            raise StepFails("schema_changed")
        value = self.seen[one.from_].result if one.from_ is not None else value_of(one.statement, one.spec)
        key = tuple(one.spec[name] for name in one.statement.exact)
        if one.must == "absent" and key in db[one.statement.table]:
            seen.state = "failed"
            raise StepFails("not_applied")
        kept = dict(db[one.statement.table])
        try:
            effect = one.statement.does(db, one.spec, value)
            if one.must == "exist" and effect.affected == 0:
                db[one.statement.table] = kept
                raise StepFails("not_applied")
            if self._is_automatic(one) and any(None in change.key for change in effect.changes):
                db[one.statement.table] = kept
                raise StepFails("statement")  # G55: such rows cannot be told from each other
        except StepFails:
            seen.state = "failed"
            raise
        seen.ran, seen.affected, seen.rows = True, effect.affected, effect.rows
        if not one.writes:
            seen.affected = None
        self.done.append((one, effect))
        self.model.now += 1
        for change in effect.changes:
            for column in effect.columns or COLUMNS[change.table]:
                self._wrote[one.on, change.table, change.key, column] = self.model.now

    def _told_away(self, one: ProgramStep) -> bool:
        """Whether a step failed because its target was locked for too long: that is a matter of time."""
        told = self._told
        return told is not None and (told.failed_step, told.reason) == (one.name, "statement")

    def _result(self, seen: ModelStepEnd, value: Any) -> None:
        seen.ran, seen.has_result, seen.result = True, True, value

    def _asked(self, one: ProgramStep, ask: Spec, what: str) -> Any:
        """The answer of a handler."""
        self.seen[one.name].ran = True
        calls = {"refuse": 1 + ask.get("retries", 3), "refuse_once": 2}.get(ask["do"], 1)
        if not one.optional:  # nobody waits for that one
            self.end.asked[one.name] = calls
        if ask["do"] == "foreign":
            self.model.foreign(ask.get("call") or {})
        if ask["do"] == "lock":
            self._away = ask.get("on")
        if ask["do"] in STOPS:
            raise GroupIsCancelled(STOPS[ask["do"]])
        if ask["do"] in GIVES_NO_ANSWER:
            raise StepFails(f"{what}_{GIVES_NO_ANSWER[ask['do']]}", asked=True)
        return answer_of(ask)

    def _verdict(self, one: ProgramStep, check: Any, seen: ModelStepEnd) -> str | None:
        """Why a check does not hold."""
        try:
            if isinstance(check, dict):
                value = self._asked(one, check["ask"], "check")
            elif isinstance(check, list):
                value = AFFECTED[check[0]](seen.affected or 0, check[1])
            else:
                value = EXPRESSIONS[check].of(seen.rows or [])
        except StepFails as failed:
            return failed.reason
        if value is True or value == "true":
            return None
        return "check_false" if value is False or value == "false" else "check_error"

    def hook(self, one: ProgramStep, when: str, succeeded: bool | None) -> None:
        if getattr(one, when):
            self.end.hooks.add((one.name, when, succeeded, None))

    # ------------------------------------------------------------ ends

    def _told_end(self) -> None:
        if self.post:
            self.end.hooks.add(("group/post", "post", self.end.state == "committed", self.end.state))

    def _fails(self, name: str | None, reason: str) -> None:
        """Undo what was done, from the last step to the first."""
        self.end.failed_step, self.end.reason = name, reason
        self._say_failed(name)
        self.go_back(None)

    def _say_failed(self, name: str | None) -> None:
        self.end.loose |= {one.name for one in self.steps if one.optional}
        for one in self.steps:
            seen = self.seen[one.name]
            if one.name == name:
                seen.state = "failed"
                self.hook(one, "post", False)
            elif one.statement is None and seen.state == "succeeded":
                seen.state = None if not seen.has_result else "succeeded"

    def go_back(self, how: str | None) -> None:
        """Undo what is left to be undone. `how` an operator resolves the step that is stuck."""
        while self.done:
            one, effect = self.done[-1]
            if self._is_to_be_undone(one):
                self._rolled = True
                if not self._undo(one, effect, how):
                    self.stuck, self.end.state = one, "rollback_failed"
                    self.seen[one.name].state = "undo_failed"
                    return
                self.seen[one.name].state = "undone"
            how, self.stuck = None, None
            self.done.pop()
        self._after_undo()

    def _is_to_be_undone(self, one: ProgramStep) -> bool:
        return one.writes or (one.undo is not None and self.seen[one.name].ran)

    def _after_undo(self) -> None:
        failed = next((one for one in self.steps if one.name == self.end.failed_step), None)
        for spec in failed.on_failure if failed is not None else ():
            self._rolled = True
            self.model.foreign({**spec})
        self.end.state = "rolled_back" if self._rolled else "aborted"
        self._told_end()

    def _undo(self, one: ProgramStep, effect: Effects | None, how: str | None) -> bool:
        if how == "accept_current":
            return True
        if one.undo == "handler":
            self.end.undone_by_handler.add(one.name)
            return True
        if isinstance(one.undo, dict):
            self.model.foreign({"on": one.on, **one.undo})
            return True
        if effect is None or one.on is None:
            return True
        policy = "overwrite" if how == "force" else self.on_conflict
        if self.model.kinds[one.on] == "lww":
            return self._cells_back(one.on, effect, policy)
        return self._rows_back(self.model.databases[one.on], effect, policy)

    def _rows_back(self, db: Database, effect: Effects, policy: str) -> bool:
        """G53, row by row: all of a step, or nothing of it."""
        back: list[RowChange] = []
        for one in effect.changes:
            now = db[one.table].get(one.key)
            if _alike(now, one.before, one, effect.columns):
                continue
            if not _alike(now, one.after, one, effect.columns):
                if policy == "fail":
                    return False
                if policy == "keep_current":
                    continue
                whole = {*effect.saved, *effect.columns, *KEYS[one.table]} >= set(one.before or ())
                if now is None and one.before is not None and one.after is not None and not whole:
                    return False
            back.append(one)
        for one in back:
            now = db[one.table].get(one.key)
            if one.before is None:
                db[one.table].pop(one.key, None)
            elif now is None or one.after is None:
                db[one.table][one.key] = one.before
            else:
                db[one.table][one.key] = {**now, **{name: one.before[name] for name in effect.columns}}
        return True

    def _cells_back(self, on: str, effect: Effects, policy: str) -> bool:
        """G53 where cells have write times: what others wrote later is theirs. Each cell of a row gets what it was
        before the group, with whichever of its steps the row is undone first."""
        db = self.model.databases[on]
        firsts = [(one, self._firsts(on, one)) for one in effect.changes]
        if policy == "fail" and any(self._is_theirs(place) for _, first in firsts for place in first):
            return False
        for one, first in firsts:
            named = dict(zip(KEYS[one.table], one.key, strict=True))
            row = {**dict.fromkeys(COLUMNS[one.table]), **(db[one.table].get(one.key) or {}), **named}
            for place, value in first.items():
                if not self._is_removed(place) and (policy == "overwrite" or not self._is_theirs(place)):
                    row[place[3]] = value
                    self._wrote[place] = self.model.now + 1
            if any(row[name] is not None for name in _columns(one.table)):
                db[one.table][one.key] = row
            else:
                db[one.table].pop(one.key, None)
        self.model.now += 1
        return True

    def _firsts(self, on: str, change: RowChange) -> dict[tuple[Any, ...], Any]:
        """Return the value that each cell of a written row had before the group wrote it."""
        found: dict[tuple[Any, ...], Any] = {}
        for one, effect in self.done:
            if effect is None or one.on != on or one.undo is not None:
                continue
            for other in effect.changes:
                if (other.table, other.key) == (change.table, change.key):
                    for name in effect.columns:
                        found.setdefault((on, other.table, other.key, name), (other.before or {}).get(name))
        return found

    def _is_removed(self, place: tuple[Any, ...]) -> bool:
        """Whether somebody removed a cell last. That has no write time which could be read, so it stays as it is."""
        on, table, key, _ = place
        when = self.model.removals.get((on, table, key[0]), 0)
        return when > max(self._wrote.get(place, 0), self.model.foreign_cells.get(place, 0))

    def _is_theirs(self, place: tuple[Any, ...]) -> bool:
        return self.model.foreign_cells.get(place, 0) > self._wrote.get(place, 0) and not self._is_removed(place)

    # ------------------------------------------------------------ side by side

    def _fails_side_by_side(self, wrong: Mapping[str, StepFails], told: Any, before: dict[str, Database]) -> None:
        """One of those that are wrong fails first; what else ran beside it, nobody can say."""
        name = told.failed_step if told is not None and told.failed_step in wrong else next(iter(wrong))
        self.end.failed_step, self.end.reason, self.end.unsure = name, wrong[name].reason, True
        self.model.databases.clear()
        self.model.databases.update(before)
        failed = next(one for one in self.steps if one.name == name)
        others = [one for one in self.steps if self._is_to_be_undone(one) and one is not failed]
        ran = [one for one in others if not self._is_behind(one, name, rows=False)]
        sure = any(self.seen[one.name].ran and self._is_behind(failed, one.name) for one in ran)
        sure = sure or (self.seen[name].ran and self._is_to_be_undone(failed))
        self.seen[name].state = "undone" if self.seen[name].ran and self._is_to_be_undone(failed) else "failed"
        for spec in failed.on_failure:
            self.model.foreign({**spec})
        sure = sure or bool(failed.on_failure)
        self.end.states = frozenset({"rolled_back"} if sure else {"rolled_back", "aborted"} if ran else {"aborted"})
        self.end.state = "rolled_back" if sure or told is None else told.state


def _columns(table: str) -> Iterator[str]:
    return (name for name in COLUMNS[table] if name not in KEYS[table])


def _alike(now: Row | None, other: Row | None, change: RowChange, columns: tuple[str, ...]) -> bool:
    """Whether a row is as it was: by what the statement can change, or whole, where it came or went."""
    if now is None or other is None:
        return now is other
    whole = change.before is None or change.after is None
    return all(now[name] == other[name] for name in (now if whole else columns))
