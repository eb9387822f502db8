"""Pages of projections: all of them, and one with its ranges, parked keys and dead letters."""

from __future__ import annotations

from typing import Any, Final

import orjson

from strandline.server.console.desk import ConsoleDesk, Found, PageQuery, whole
from strandline.server.console.drawing import line
from strandline.server.console.history import span_of
from strandline.server.console.texts import seconds

LETTERS: Final = 100


def projections_page(desk: ConsoleDesk, given: PageQuery) -> Found:
    """Return a row for every projection; with `state` only those with a problem, or those that are paused."""
    found = [_row(one) for one in desk.s.projections.statuses()]
    wanted = given.get("state")
    shown = [row for row in found if not wanted or wanted in row["marks"]]
    samples = desk.history.samples()
    span_s, span = span_of(samples)
    for row in shown:
        values = _lags(samples, row["name"], row["generation"])
        row["picture"] = line(values, span_s, f"How far {row['name']} was behind, {span}")
    return {"rows": shown, "all": len(found), "state": wanted}


def _row(one: Any) -> dict[str, Any]:
    failed = sum(each.state == "failed" for each in one.ranges)
    parked, letters = sum(each.parked for each in one.ranges), sum(each.dead_letters for each in one.ranges)
    state = "failed" if failed else "paused" if one.paused else "running" if one.hosts else "no host"
    marks = {"paused"} if one.paused else set()
    if failed or parked or letters:
        marks.add("wrong")
    return {
        "name": one.name, "generation": one.generation, "role": one.state, "state": state, "marks": marks,
        "source": source_text(one.source), "behind_s": None if one.at_start else one.behind_store_s,
        "ranges": len(one.ranges),
        "failed": failed, "parked": parked, "letters": letters, "hosts": one.hosts,
    }  # fmt: skip


def source_text(written: str) -> str:
    """Return a source as a person reads it: slices of order, types Placed Paid, tags blue; or tag blue."""
    kind, name, *chosen = orjson.loads(written)
    if kind == "tag":
        return f"tag {name}"
    named = [f"{what} {' '.join(part)}" for what, part in zip(("types", "tags"), chosen, strict=False) if part]
    return ", ".join([f"slices of {name}", *named])


def _lags(samples: Any, name: str, generation: int) -> list[tuple[float, float]]:
    at = f"{name} {generation}"
    return [(one.at, one.projections.get(at) or 0.0) for one in samples if at in one.projections]


def projection_page(desk: ConsoleDesk, given: PageQuery) -> Found:
    """Return one generation of a projection."""
    projections = desk.s.projections
    name, generation = given.get("name"), whole(given.values, "generation")
    status = projections.status(name, generation=generation)
    samples = desk.history.samples()
    values, (span_s, span) = _lags(samples, name, generation), span_of(samples)
    row = _row(status)
    others = [(other, state) for found, other, state in projections.list() if found == name and other != generation]
    return {
        "one": status, "row": row, "others": others, "span": span,
        "picture": line(values, span_s, f"How far {name} was behind, {span}"),
        "most": seconds(max((value for _, value in values), default=0.0)), "some": len(values) > 1,
        "parked": projections.parked(name, generation=generation)[:LETTERS],
        "letters": projections.dead_letters(name, generation=generation, limit=LETTERS),
        "target": {"name": name, "generation": generation},
    }  # fmt: skip
