"""Pages of event groups: streams, the groups of one, and a group with its graph, its timeline and its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from strandline.errors import NotFound, StrandlineError
from strandline.group.groups import Groups
from strandline.group.history import ENDS, History
from strandline.group.listing import STATES
from strandline.server.console.desk import ConsoleDesk, Found, PageQuery
from strandline.server.console.drawing import Bar, graph, timeline, took
from strandline.server.console.texts import payload_text

LISTED: Final = 50
ROWS: Final = 50
NAMED: Final = ("definition", "tables", "rows", "before", "after", "text", "values", "cells", "answer", "results")
"""What an event of a history may have of users' data: shown only if it is asked for."""


def groups_page(desk: ConsoleDesk, given: PageQuery) -> Found:
    """Return the streams, and the groups of one in a state."""
    streams = desk.s.streams()
    stream = given.get("stream") or (streams[0].stream if streams else "")
    state = given.get("state") or "open"
    found: Found = {"streams": streams, "stream": stream, "state": state, "states": ("all", *STATES), "groups": ()}
    if not streams:
        return {**found, "as_of": 0, "more": ""}
    listed = desk.groups(stream).list(None if state == "all" else state, given.get("after") or None, LISTED)
    return {**found, "groups": listed.groups, "as_of": listed.as_of, "more": listed.after or ""}


def group_page(desk: ConsoleDesk, given: PageQuery) -> Found:
    """Return a group: its state, its pictures, its steps with rows before and after, its history."""
    groups, id_ = desk.groups(given.get("stream")), given.get("id")
    history = groups.load(id_)
    if history is None:
        raise NotFound(f"there is no group {id_!r:.220}", code="group", hint="see the list of its stream")
    outcome = groups.get(id_)
    events = groups.history(id_)
    states = {
        name: (step.state, took(step.ended - step.started) if step.started and step.ended else "")
        for name, step in outcome.steps.items()
    }
    needs = needs_of(groups, history)
    bars = list(_bars(history, events))
    return {
        "one": outcome, "history": history, "over": outcome.state in ENDS, "payloads": given.payloads,
        "graph": graph(states, needs, f"Steps of {id_}") if states else "",
        "timeline": timeline(bars, f"When the steps of {id_} ran") if bars else "",
        "steps": [_step(name, step, history, needs.get(name, ()), given) for name, step in outcome.steps.items()],
        "events": [_event(n, *event, given) for n, event in enumerate(events, 1)],
        "failed": [name for name, step in outcome.steps.items() if step.state == "undo_failed"],
        "target": {"stream": groups.stream, "id": id_},
    }  # fmt: skip


def needs_of(groups: Groups, history: History) -> dict[str, list[str]]:
    """Return the steps that each step waits for: from the plan if it can be made, else from the definition alone."""
    try:
        plan = groups.plan_of(history)
    # the plan cannot be made, because a table or a program has changed
    except (StrandlineError, KeyError, TypeError, ValueError):
        return {step["name"]: _declared(step) for step in history.definition.get("steps", ())}
    every = {**plan.steps, **plan.rollback}
    return {name: [*dict.fromkeys([*(step for step, _ in one.wants), *one.order])] for name, one in every.items()}


def _declared(step: Mapping[str, Any]) -> list[str]:
    named = [one if isinstance(one, str) else one.get("step", "") for one in step.get("depends_on") or ()]
    return [name.partition(".")[0] for name in named]


def _bars(history: History, events: Sequence[tuple[str, Mapping[str, Any], int]]) -> Iterator[Bar]:
    """Return a bar for each step that ran, then one for each undo, from the event before it to its end."""
    for name, step in history.steps.items():
        if step.started:
            failed = step.state in ("failed", "unknown")
            yield Bar(name, step.started, step.ended or step.started, "failed" if failed else "succeeded")
    last = 0
    for type_, payload, timestamp in events:
        at = int(payload.get("at", timestamp))
        if type_ == "UndoResult":
            yield Bar(f"undo {payload['step']}", min(last or at, at), at, payload["state"], undo=True)
        if type_ in ("Decided", "UndoIntent", "UndoResult", "Resolved", "Voided"):
            last = at


def _step(name: str, step: Any, history: History, needs: Sequence[str], given: PageQuery) -> dict[str, Any]:
    images = history.images.get(name, {})
    row: dict[str, Any] = {
        "name": name, "state": step.state, "affected": step.affected, "reason": step.reason, "detail": step.detail,
        "started": step.started, "took": took(step.ended - step.started) if step.ended else "", "needs": needs,
        "rows": [], "before": None, "after": None, "conflicts": (), "has_rows": bool(step.rows or images),
    }  # fmt: skip
    if given.payloads:
        row |= {"rows": step.rows[:ROWS], "conflicts": [_conflict(one) for one in step.conflicts[:ROWS]]}
        row |= {what: _image(images[what]) for what in ("before", "after") if what in images}
    return row


def _image(image: Mapping[str, Any]) -> dict[str, Any]:
    rows = [[_cell(value) for value in row] for row in image["rows"][:ROWS]]
    return {"columns": image["columns"], "rows": rows, "more": max(0, len(image["rows"]) - ROWS)}


def _conflict(one: Mapping[str, Any]) -> dict[str, str]:
    """Return a row that others have changed: its key, and its values before the step, after it, and now."""
    return {
        name: ", ".join(map(_cell, value)) if isinstance(value, (list, tuple)) else _cell(value)
        for name, value in one.items()
    }


def _cell(value: Any) -> str:
    if isinstance(value, dict) and "v" in value:
        value = value["v"]
    return "NULL" if value is None else str(value)


def _event(n: int, type_: str, payload: Mapping[str, Any], timestamp: int, given: PageQuery) -> dict[str, Any]:
    hidden = () if given.payloads else NAMED
    told = {name: value for name, value in payload.items() if name not in hidden and name != "at"}
    return {"n": n, "type": type_, "at": timestamp, "told": payload_text(told) if told else ""}
