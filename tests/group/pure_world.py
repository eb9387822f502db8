"""What is outside of a group, played: its targets, handlers and hooks, with a driver around the decision alone."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from strandline.group.actions import Action, Ask, Decide, End, Note, Run, Send, UndoSegment, Void
from strandline.group.between import SegmentRun
from strandline.group.core.step import StepFailed
from strandline.group.decide import Course, message_id
from strandline.group.history import ENDS, History, HistoryEvent
from strandline.group.plan import GroupPlan
from strandline.group.settings import GroupSettings
from strandline.group.target import Done, Limits, Rows


@dataclass
class World:
    """What is outside of a group: a target, handlers, hooks."""

    refuses: frozenset[str] = frozenset()
    """Steps whose statement fails."""
    answers: dict[str, Any] = field(default_factory=dict)
    """By handler; None: it never answers."""
    fails_to_undo: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    """Barrier rows."""
    undone: set[str] = field(default_factory=set)
    told: list[str] = field(default_factory=list)

    def at(self, entries: Iterable[HistoryEvent]) -> World:
        """As it was when these events were all that is known."""
        there = World(self.refuses, self.answers, set(self.fails_to_undo))
        for entry in entries:
            if entry.type == "Result" and "reason" not in entry.payload and not entry.payload.get("gone"):
                there.done.add(entry.payload["step"])
            if entry.type == "UndoResult" and entry.payload["state"] == "undone":
                there.undone.add(entry.payload["step"])
        return there

    def carry_out(self, action: Action, plan: GroupPlan, history: History) -> Iterator[tuple[str, dict[str, Any]]]:
        """The events that come of an action; none for an answer that never comes."""
        if isinstance(action, Run):
            yield from self.run(action.segment, plan, history)
        elif isinstance(action, Ask):
            message = message_id(history, action.step, action.recipe)
            asked = {"step": action.step, "recipe": action.recipe, "message_id": message, "timeout_s": 30, "asked": 0}
            yield "Asked", asked
            if (answer := self.answers[action.handler]) is not None:
                yield "Answered", {"message_id": message, "answer": answer}
        elif isinstance(action, Send):
            self.told.append(action.message_id)
            yield "HookDone", {"message_id": action.message_id}
        elif isinstance(action, Void):
            steps = [name for name in plan.segments.steps[action.segment] if plan.steps[name].writes]
            yield "Voided", {"segment": action.segment, "ran": any(name in self.done for name in steps)}
        elif isinstance(action, UndoSegment):
            steps = [name for name in plan.segments.steps[action.segment] if plan.steps[name].undo == "automatic"]
            failed = [name for name in steps if name in self.fails_to_undo]
            self.undone |= set() if failed else set(steps)
            for name in failed[:1] or steps:
                yield "UndoResult", {"step": name, "state": "undo_failed" if failed else "undone"}
        elif isinstance(action, Decide):
            told = {"step": action.step, "reason": action.reason, "detail": action.detail}
            yield "Decided", {"decision": "rollback", **told}
        elif isinstance(action, End):
            yield "Ended", {"end": action.end}

    def outcome(self, step: str) -> Done:
        """What comes of a statement."""
        if step in self.refuses:
            raise StepFailed("statement", "")
        return Done(1, Rows(("n",), ((1,),)))

    def run(self, segment: str, plan: GroupPlan, history: History) -> Iterator[tuple[str, dict[str, Any]]]:
        """A transaction: all of it is done, or nothing."""
        one = SegmentRun(plan, history, segment, lambda step: Limits(), lambda: history.last, lambda: False)
        steps = [step.name for step in one.segment(1).steps]
        writing = {name for name in steps if name in plan.rollback or plan.steps[name].writes}
        try:
            if writing <= self.done:
                one.repeated({name: self.outcome(name) for name in steps})
            else:
                for name in steps:
                    one.values(name)
                    one.did(name, self.outcome(name))
        except StepFailed as failed:
            for type_, payload in one.undone(None if one.failed else failed):
                yield type_, dict(payload)
            return
        self.done |= set(steps)
        for type_, payload in one.done():
            yield type_, dict(payload)
        if segment == plan.segments.last:
            yield "Decided", {"decision": "commit"}


def begun(plan: GroupPlan) -> tuple[History, list[HistoryEvent]]:
    definition = plan.group.made()
    defined = {"hash": "h", "stream": "s", "identities": {}, "dialects": {}, "definition": definition, "plan": {}}
    return folded([HistoryEvent(1, "Defined", defined), HistoryEvent(2, "Started", {"fence": 1, "place": 1, "at": 1})])


def folded(entries: list[HistoryEvent], id_: str = "g", life: int = 1) -> tuple[History, list[HistoryEvent]]:
    history = History(id_, life)
    for entry in entries:
        history.apply(HistoryEvent(entry.n, entry.type, {"at": entry.n, **entry.payload}))
    return history, list(entries)


def run(
    plan: GroupPlan, world: World, history: History, entries: list[HistoryEvent], rng: random.Random, *,
    resumed: bool = False,
) -> History:  # fmt: skip
    """Go on to the end, or until only somebody else can help; actions come back in any order."""
    unsure = set(plan.segments.steps) if resumed else set[str]()
    course = Course(plan, history, GroupSettings(), unsure)
    under: list[Action] = []
    now = 0
    for _ in range(10_000):
        found = course.decide(now)
        for action in found:
            if isinstance(action, Note):
                apply(course, history, entries, action.type, action.payload)
        under += [action for action in found if not isinstance(action, Note)]
        if any(isinstance(action, Note) for action in found):
            continue
        if not under:
            if history.state in ENDS or course.waits_for_operator or course.wake_at is None:
                return history
            now = max(now, course.wake_at)
            continue
        action = under.pop(rng.randrange(len(under)))
        if isinstance(action, Run):
            unsure.add(action.segment)
        for type_, payload in world.carry_out(action, plan, history):
            apply(course, history, entries, type_, payload)
        if not isinstance(action, Ask):
            course.done(action)
    raise AssertionError("it goes on and on")


def apply(course: Course, history: History, entries: list[HistoryEvent], type_: str, payload: Any) -> None:
    entry = HistoryEvent(history.last + 1, type_, {"at": history.last + 1, **payload})
    history.apply(entry)
    entries.append(entry)
    course.heard(type_, payload)


def check(plan: GroupPlan, world: World, history: History) -> None:
    """All of it, or nothing."""
    writing = {name for name, one in plan.steps.items() if one.writes}
    if history.state == "committed":
        assert writing <= world.done
        assert not history.undo
        return
    assert history.state in ("rolled_back", "aborted"), history.failure
    automatic = {name for name in writing if plan.steps[name].undo == "automatic"}
    assert world.done & automatic == world.undone & automatic & world.done
    assert set(history.undo) >= world.done & writing
    assert all(undo.state == "undone" for undo in history.undo.values())
    for name, one in plan.steps.items():
        if one.undo == "step" and name in history.undo:
            assert one.step.undo in history.put_back
