"""The histories that tests leave, cut after every event and gone on with by the decision alone.

What comes of an action is what the whole history says; what it does not tell succeeds. However early it is cut, the
rest leads to an end of the same kind. A shape of group and history that was cut already is passed over.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from strandline.group import turn
from strandline.group.actions import Action, Ask, Run
from strandline.group.core.step import StepFailed
from strandline.group.decide import message_id
from strandline.group.groups import Groups, Handle
from strandline.group.history import ENDS, History, HistoryEvent
from strandline.group.names import group_key
from strandline.group.plan import GroupPlan, shape_of
from strandline.group.stored_plan import planned_again
from strandline.group.target import Done, Rows
from tests.group.pure_world import World, check, folded, run

EVENTS_MAX, PAGES_MAX = 60, 3
_known: set[bytes] = set()


@dataclass
class Told(World):
    """What a whole history says of what is outside of its group."""

    whole: History = field(default_factory=lambda: History(""))
    intents: dict[str, list[HistoryEvent]] = field(default_factory=dict)
    """What was written before a step of a target without transactions: pages, and the intent."""
    ran: frozenset[str] = frozenset()
    """Steps of which it was found out that they ran."""

    def at(self, entries: Iterable[HistoryEvent]) -> Told:
        there = World.at(self, entries)
        return Told(
            done=there.done | self.ran, undone=there.undone, whole=self.whole, intents=self.intents, ran=self.ran
        )

    def outcome(self, step: str) -> Done:
        state = self.whole.step(step)
        if state.data is not None:
            return Done(state.data.affected or 0, Rows(state.data.columns, state.data.rows))
        if state.reason is not None:
            raise StepFailed(state.reason, state.detail or "")
        return Done(1)

    def carry_out(self, action: Action, plan: GroupPlan, history: History) -> Iterator[tuple[str, dict[str, Any]]]:
        if isinstance(action, Ask):
            message = message_id(history, action.step, action.recipe)
            question = self.whole.questions.get(message)
            asked = {"step": action.step, "recipe": action.recipe, "message_id": message, "timeout_s": 30, "asked": 0}
            yield "Asked", asked
            answer = {"results": {"value": True}} if question is None else question.answer
            if answer is not None and not answer.get("timed_out"):
                yield "Answered", {"message_id": message, "answer": answer}
            return
        if isinstance(action, Run) and action.segment in self.intents and action.segment not in history.intents:
            for entry in self.intents[action.segment]:
                yield entry.type, dict(entry.payload)
        yield from super().carry_out(action, plan, history)


class Cuts:
    """The groups that a test submits, for their histories to be cut at its end."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Groups, bool]] = {}

    def watch(self, groups: Groups) -> Groups:
        """Take note of what is submitted here, and whether it is run in segments."""
        submit = groups.submit

        def submitted(*given: Any) -> Handle:
            handle = submit(*given)
            self._seen[handle.id] = (groups, turn.SEGMENTS)
            return handle

        groups.submit = submitted  # type: ignore[assignment,method-assign]
        return groups

    def check(self) -> None:
        while self._seen:
            id_, (groups, segments) = self._seen.popitem()
            _check(groups, id_, segments)


def _check(groups: Groups, id_: str, segments: bool) -> None:
    """Cut the history of a group that has ended after every event. `segments`: whether it was run in segments."""
    read = list(groups.journal.read(group_key(id_)))
    entries = [HistoryEvent(event.seq_nr, event.type, event.payload) for event in read]
    began = next((n for n, entry in enumerate(entries) if entry.type == "Started"), len(entries))
    pages = sum(entry.type == "Page" for entry in entries)
    if len(entries) - began > EVENTS_MAX or pages > PAGES_MAX or began == len(entries):
        return
    whole, _ = folded(entries, id_, read[0].life)
    marks = [[entry.type, entry.payload.get("step"), entry.payload.get("reason")] for entry in entries]
    shape = orjson.dumps([segments, marks, shape_of(whole.definition), whole.plan.get("segments")])
    if whole.state not in ENDS or shape in _known:
        return
    _known.add(shape)
    plan = planned_again(whole.definition, whole.plan)
    plan = plan if segments else plan.step_by_step()
    told, rng = _told(plan, whole, entries), random.Random(id_)
    outside = [entry for entry in entries if entry.type == "Cancelled" or entry.payload.get("reason") == "deadline"]
    for cut in range(began + 1, len(entries) + 1):
        again, more = folded(entries[:cut], id_, read[0].life)
        for entry in outside if whole.state != "committed" and again.decided is None else ():
            if entry.n > again.last and entry.type in ("Cancelled", "Failed"):
                more.append(HistoryEvent(again.last + 1, entry.type, {**entry.payload, "at": 1}))
                again.apply(more[-1])
        ahead = rng.choice([0, 1, 3]) if whole.state == "committed" else 0  # so many were done, and are not in the log
        there = told.at(entries[: cut + ahead])
        run(plan, there, again, more, rng, resumed=True)
        for entry in entries[cut:]:
            if entry.type == "Resolved" and entry.payload["step"] in again.undo_failed:
                more.append(HistoryEvent(again.last + 1, entry.type, entry.payload))
                again.apply(more[-1])
                run(plan, there, again, more, rng, resumed=True)
        where = (id_, cut, again.state, whole.state, [entry.type for entry in more])
        assert again.state in ENDS, where
        assert (again.state == "committed") == (whole.state == "committed"), where
        assert again.over, where
        assert len(set(there.told)) == len(there.told), where
        types = [entry.type for entry in more]
        assert types.count("Decided") == types.count("Ended") == 1, where
        check(plan, there, again)


def _told(plan: GroupPlan, whole: History, entries: Iterable[HistoryEvent]) -> Told:
    intents, pages = dict[str, list[HistoryEvent]](), dict[str, list[HistoryEvent]]()
    for entry in entries:
        step = str(entry.payload.get("step"))
        if entry.type == "Page":
            pages.setdefault(step, []).append(entry)
        elif entry.type == "Intent" and "cells" in entry.payload:
            intents[step] = [*pages.pop(step, ()), entry]
        elif entry.type == "Result":
            pages.pop(step, None)
    found = {name for segment, ran in whole.voided.items() if ran for name in plan.segments.steps[segment]}
    return Told(whole=whole, intents=intents, ran=frozenset(found))
