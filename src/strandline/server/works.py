"""Routes of work journals: add, claim, done, fail for workers; requeue, drop, pause for operators, with a record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from strandline import aio
from strandline.errors import invalid
from strandline.server.calls import HttpCall
from strandline.server.fields import (
    OBJECT,
    WAIT_MAX_S,
    HttpField,
    duration_number,
    duration_or_none,
    text,
    wait_seconds,
    whole,
)
from strandline.server.routes import HttpRoute
from strandline.server.watches import WatchedWork
from strandline.values.heads import SEQ_NR_MAX
from strandline.values.payloads import parse_json
from strandline.values.written import time_of
from strandline.work.journal import WorkJournal

ONE: Final = "/work/{journal}"
CLAIM: Final = "/work/{journal}/claims/{id}/{fence}"
LOOK_S: Final = 2.0
"""How often a waiting claim checks that its client is still there. It looks for entries whenever one may be due."""
_DATE: Final = HttpField({"type": ["string", "integer", "null"]}, "RFC 3339 with a zone, or microseconds since 1970.")
FIELDS: Final[Mapping[str, HttpField]] = {
    "journal": text("The work journal.", minLength=1, maxLength=200),
    "key": HttpField(OBJECT, "The key's columns."),
    "data": HttpField(OBJECT, "The data's columns."),
    "adds": HttpField({"type": "array", "items": OBJECT, "minItems": 1}, "Each with key, data and the rest."),
    "priority": HttpField({"type": ["integer", "null"], "minimum": 0, "maximum": 255}, "Smallest first."),
    "insertion_date": _DATE,
    "process_date": _DATE,
    "expiration_date": _DATE,
    "delay_s": HttpField({"type": ["number", "null"], "minimum": 0}, "Not before so many seconds from now."),
    "owner": text("Who claims.", minLength=1, maxLength=200),
    "wait_s": duration_number("How long to wait for an entry where none is due.", 0, WAIT_MAX_S),
    "id": whole("The entry's id.", 0, SEQ_NR_MAX, code="limit_range"),
    "fence": whole("The claim's fence, as it was handed out.", 0, SEQ_NR_MAX, code="limit_range"),
    "dead_id": whole("The dead letter's id.", 0, SEQ_NR_MAX, code="limit_range"),
    "after": whole("Go on after this id.", 0, SEQ_NR_MAX, code="limit_range"),
    "text": text("Why it failed."),
    "reason": text("Why."),
    "status": text("W: waiting, P: processing.", enum=["W", "P"]),
    "columns": HttpField({"type": "string"}, "The key's columns, as a JSON object."),
}
"""What names mean here."""
DATES: Final = ("insertion_date", "process_date", "expiration_date")
ADD: Final = ("key", "data", "priority", *DATES)


async def _watched(call: HttpCall, journal: str) -> WatchedWork:
    known = call.app.work_journals
    if journal not in known:
        opened = await call.app.aio.work(journal)
        known.setdefault(journal, WatchedWork(opened))
    return known[journal]


async def _opened(call: HttpCall, journal: str) -> aio.WorkJournal:
    return (await _watched(call, journal)).work


# ---------------------------------------------------------------- hand out


async def add_work(call: HttpCall, journal: str, **given: Any) -> object:
    """Add an entry, or merge it with the waiting entry of its key. It is durable when this answers."""
    id_ = call.request.headers.get("idempotency-key")
    work = await _opened(call, journal)
    taken = await call.run(_add_arguments, work._plain, given)
    return await work.add(**taken, id=id_)


async def add_many_work(call: HttpCall, journal: str, adds: Any) -> object:
    """Add several entries: all of them, or none."""
    work = await _opened(call, journal)
    for index, one in enumerate(adds):
        if not isinstance(one, dict):
            raise invalid(
                "column", f"adds[{index}]", "no JSON object", allowed=f"an object of {' '.join(ADD)}", got=one
            )
    return {"added": await work.add_many([_add_arguments(work._plain, one) for one in adds])}


def _add_arguments(work: WorkJournal, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an add: columns from their JSON form, dates as times."""
    taken = dict(given)
    delay_s = taken.pop("delay_s", None)
    if delay_s is not None:
        if taken.get("process_date") is not None:
            raise invalid("option", "delay_s", "given with process_date", allowed="one of them", got=delay_s)
        taken["process_date"] = duration_or_none(delay_s, "delay_s")
    for name in DATES:
        if isinstance(taken.get(name), str):
            taken[name] = time_of(taken[name], name)
    taken.setdefault("key", None)
    taken.setdefault("data", None)
    return taken


async def claim_work(
    call: HttpCall, journal: str, owner: str | None = None, limit: int = 1, wait_s: float = 0
) -> object:
    """Claim the most urgent due entries, each under a lease; if none is due, wait for one without holding a thread."""
    until = time.monotonic() + wait_seconds(wait_s)
    watched = await _watched(call, journal)
    work = watched.work
    cursor = work.cursor(owner or call.who)
    while True:
        batch = await cursor.claim(limit)
        left_s = until - time.monotonic()
        if batch.claims or left_s <= 0 or call.app.stopping.is_set() or await call.request.is_disconnected():
            break
        await watched.due(min(left_s, LOOK_S))
    entries = [{"entry": claim.entry, "id": claim.entry.id, "fence": claim.fence} for claim in batch.claims]
    return {
        "claims": entries,
        "lease_s": work.settings.lease_s,
        "next_date": batch.next_date,
        "paused": batch.paused,
    }


def _of_claim(verb: str) -> Any:
    """Return the handler that ends or renews a claim, which its numbers name."""

    async def act(call: HttpCall, journal: str, id: int, fence: int, **given: Any) -> object:  # noqa: A002
        claim = await (await _opened(call, journal)).claim_of(id, fence)
        await getattr(claim, verb)(**given)
        return {"id": id, "fence": fence}

    act.__name__ = f"{verb}_work"
    return act


# ---------------------------------------------------------------- look


async def work_counts(call: HttpCall, journal: str) -> object:
    """Count entries and dead letters."""
    return await (await _opened(call, journal)).counts()


async def work_entries(
    call: HttpCall, journal: str, status: str | None = None, after: int = 0, limit: int = 1000
) -> object:
    """List entries in the order of their ids."""
    work = await _opened(call, journal)
    return {"entries": await work.entries(status=status, after=after, limit=limit)}


async def work_entry(call: HttpCall, journal: str, columns: str) -> object:
    """Show the entry of a key; null if there is none."""
    found = parse_json(columns, "columns")
    return await (await _opened(call, journal)).get(found)


def _letters(verb: str) -> Any:
    async def listed(call: HttpCall, journal: str, after: int = 0, limit: int = 1000) -> object:
        work = await _opened(call, journal)
        return {"dead_letters": await getattr(work, verb)(after=after, limit=limit)}

    listed.__name__ = f"{verb}_work"
    return listed


# ---------------------------------------------------------------- look after


def _acting(verb: str, *taken: str) -> Any:
    """Return the handler of an act on a work journal."""

    async def act(call: HttpCall, journal: str, why: str | None = None, **given: Any) -> object:
        work: WorkJournal = (await _opened(call, journal))._plain
        arguments = [given.pop(name) for name in taken]
        on = " ".join([journal, *map(str, arguments)])
        do: Callable[[], Any] = partial(getattr(work, verb), *arguments, **given)
        answer = await call.act(f"work.{verb}", on, do, why=why, look=work.counts)
        return {"done": answer}

    act.__name__ = f"{verb}_work_entry" if taken else f"{verb}_work"
    return act


def routes() -> list[HttpRoute]:
    """Return the routes of this part."""
    dead, entry = f"{ONE}/dead-letters/{{dead_id}}", f"{ONE}/entries/{{id}}"
    page = ("after", "limit")

    def get(path: str, handle: Any, summary: str, *query: str, **more: Any) -> HttpRoute:
        return HttpRoute("GET", path, handle, summary, "work", query=query, fields=FIELDS, **more)

    def post(path: str, handle: Any, summary: str, *body: str, scope: str = "work", **more: Any) -> HttpRoute:
        return HttpRoute("POST", path, handle, summary, scope, body=body, fields=FIELDS, answer=OBJECT, **more)

    return [
        get(ONE, work_counts, "Count entries.", answer=OBJECT),
        post(f"{ONE}/entries", add_work, "Add an entry.", *ADD, "delay_s", needs=("key", "data"),
             headers=("Idempotency-Key",)),
        post(f"{ONE}/adds", add_many_work, "Add several entries.", "adds", needs=("adds",)),
        get(f"{ONE}/entries", work_entries, "List entries.", "status", *page, answer=OBJECT),
        get(f"{ONE}/entry", work_entry, "Show the entry of a key.", "columns", needs=("columns",),
            answer={"type": ["object", "null"]}),
        post(f"{ONE}/claims", claim_work, "Claim entries.", "owner", "limit", "wait_s"),
        post(f"{CLAIM}/heartbeat", _of_claim("heartbeat"), "Keep a claim for another lease."),
        post(f"{CLAIM}/done", _of_claim("done"), "Say that a claimed entry is done."),
        post(f"{CLAIM}/fail", _of_claim("fail"), "Say that it failed.", "text", "delay_s"),
        post(f"{CLAIM}/release", _of_claim("release"), "Give it back as it was."),
        get(f"{ONE}/dead-letters", _letters("dead"), "List dead letters.", *page, answer=OBJECT),
        get(f"{ONE}/alerts", _letters("alerts"), "List those that nobody has acknowledged.", *page, answer=OBJECT),
        post(f"{dead}/requeue", _acting("requeue", "dead_id"), "Add a dead letter again.", "why", scope="admin"),
        post(f"{dead}/acknowledge", _acting("acknowledge", "dead_id"), "Lower its flag.", "why", scope="admin"),
        post(f"{entry}/drop", _acting("drop", "id"), "Remove an entry, whoever works on it.", "why", scope="admin"),
        post(f"{ONE}/pause", _acting("pause"), "Let claims come back empty.", "reason", "why", scope="admin"),
        post(f"{ONE}/resume", _acting("resume"), "End a pause.", "why", scope="admin"),
    ]  # fmt: skip
