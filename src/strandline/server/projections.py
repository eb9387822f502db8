"""Routes of projections: their state, and the acts of operators. Each act is recorded."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from strandline.server.calls import HttpCall
from strandline.server.fields import KEY, OBJECT, SEQ_NR, TIME, HttpField, duration_number, text, truth, whole
from strandline.server.routes import HttpRoute, JsonSchema

LISTED: Final = {"type": "object", "required": ["projections"], "properties": {"projections": {"type": "array"}}}
ONE: Final = "/projections/{name}"
FIELDS: Final = {
    "name": text("The projection.", minLength=1, maxLength=200),
    "n": whole("How many ranges.", 1, 1024, code="slice_range"),
    "new": text("Its new name.", minLength=1, maxLength=200),
    "force": truth("Also if it has parked keys or dead letters that the other one has not."),
    "key": HttpField(KEY, "A key, `type|id`."),
    "to": HttpField(SEQ_NR, "A seq_nr of the key."),
    "seq_nr": HttpField(SEQ_NR, "The event's seq_nr."),
    "life": HttpField(SEQ_NR, "The event's life."),
    "time": HttpField(TIME.schema, "What lies at or below it counts as done."),
    "timeout_s": duration_number("How long to wait for the ranges to be released.", 0, 10),
}
"""What names mean here."""


async def list_projections(call: HttpCall) -> object:
    """Show the state of every projection."""
    return {"projections": await call.app.aio.projections.statuses()}


async def show_projection(call: HttpCall, name: str, generation: int | None = None) -> object:
    """Show how far a projection is, its hosts, and its problems."""
    return await call.app.aio.projections.status(name, generation=generation)


async def parked_keys(call: HttpCall, name: str, generation: int | None = None) -> object:
    """List the parked keys."""
    return {"keys": await call.app.aio.projections.parked(name, generation=generation)}


async def projection_dead_letters(
    call: HttpCall, name: str, generation: int | None = None, limit: int = 1000
) -> object:  # fmt: skip
    """List events that were not handled, by key."""
    found = await call.app.aio.projections.dead_letters(name, generation=generation, limit=limit)
    return {"dead_letters": found}


def _acting(verb: str, *taken: str) -> Any:
    """Return the handler of an act, which makes the call of the same name with the values `taken`."""

    async def act(call: HttpCall, name: str, why: str | None = None, **given: Any) -> object:
        projections = call.app.s.projections
        if "time" in given and isinstance(given["time"], str):
            given["time"] = TIME.read(given["time"], "time")
        if verb in WAITING:
            given.setdefault("timeout_s", 0)
        do = partial(getattr(projections, verb), name, *(given.pop(one) for one in taken), **given)
        done = await call.act(f"projection.{verb}", name, do, why=why, look=partial(_look, projections, name, verb))
        return {"done": done} if verb in WAITING else {}

    act.__name__ = f"{verb}_projection"
    return act


WAITING: Final = frozenset({"pause", "rescale", "switch"})
"""Acts that hosts take part in. Without `timeout_s` they answer at once, with whether they are done."""


def _look(projections: Any, name: str, verb: str) -> list[dict[str, Any]]:
    """Return the state of each generation of a projection, in short; an empty list after it was dropped or renamed."""
    found = [one for one in projections.statuses() if one.name == name]
    if not found and verb not in ("drop", "rename"):
        projections.status(name)
    return [
        {
            "generation": one.generation,
            "state": one.state,
            "paused": one.paused,
            "ranges": len(one.ranges),
            "wanted_ranges": one.wanted_ranges,
            "parked": sum(each.parked for each in one.ranges),
            "dead_letters": sum(each.dead_letters for each in one.ranges),
            "behind_store_s": one.behind_store_s,
        }
        for one in found
    ]


def _act(path: str, verb: str, summary: str, *needs: str, more: tuple[str, ...] = ()) -> HttpRoute:
    waits = ("timeout_s",) if verb in WAITING else ()
    body = (*needs, *more, *waits, "why")
    answer: JsonSchema = OBJECT
    return HttpRoute(
        "POST", f"{ONE}/{path}", _acting(verb, *needs), summary, "admin", body=body, needs=needs, fields=FIELDS,
        answer=answer,
    )  # fmt: skip


def routes() -> list[HttpRoute]:
    """Return the routes of this part."""
    at = ("generation",)
    return [
        HttpRoute("GET", "/projections", list_projections, "Show all projections.", "read", answer=LISTED),
        HttpRoute("GET", ONE, show_projection, "Show a projection.", "read", query=at, fields=FIELDS, answer=OBJECT),
        HttpRoute(
            "GET", f"{ONE}/parked", parked_keys, "List parked keys.", "read", query=at, fields=FIELDS, answer=OBJECT
        ),
        HttpRoute(
            "GET", f"{ONE}/dead-letters", projection_dead_letters, "List dead letters.", "read",
            query=("generation", "limit"), fields=FIELDS, answer=OBJECT,
        ),
        _act("pause", "pause", "Stop it, until it is resumed.", more=at),
        _act("resume", "resume", "Let it go on.", more=at),
        _act("rescale", "rescale", "Cut it into so many ranges.", "n", more=at),
        _act("switch", "switch", "Let a generation that was rebuilt serve.", "generation", more=("force",)),
        _act("skip", "skip", "Count a key as done up to a number.", "key", "to", more=at),
        _act("unpark", "unpark", "Hand over what waits of a key.", "key", more=at),
        _act("redeliver", "redeliver", "Hand a dead letter over again.", "key", "seq_nr", more=("life", *at)),
        _act("discard", "discard", "Remove a dead letter.", "key", "seq_nr", more=("life", *at)),
        _act("set-offset", "set_offset", "Go to a time.", "time", more=at),
        _act("reset", "reset", "Hand over everything again.", more=at),
        _act("rename", "rename", "Give it another name.", "new"),
        _act("drop", "drop", "Take all of it, or a generation that does not serve.", more=at),
    ]  # fmt: skip
