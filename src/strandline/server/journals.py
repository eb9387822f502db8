"""Routes of journals: append, read, head, delete, purge, and lists of keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final

from starlette.responses import Response

from strandline.errors import StrandlineError, invalid, unknown
from strandline.server.answers import json_response, problem_of
from strandline.server.calls import HttpCall
from strandline.server.fields import FIELDS, KEY, OBJECT, HttpField, whole
from strandline.server.routes import LINES_MEDIA, HttpRoute
from strandline.server.streams import lines_of
from strandline.values.answers import KEEP
from strandline.values.event_json import event_of
from strandline.values.heads import SEQ_NR_MAX
from strandline.values.keys import Key, key_digest

_ETAG: Final = re.compile(r'"?([0-9]{1,19})"?')
MANY_MEMBERS: Final = ("key", "events", "expected", "first", "append_id", "expire_after_s", "headers")
NUMBER: Final = {"type": ["integer", "null"]}
ANSWERED: Final = ("key", "first", "last", "partition", "offset", "timestamp", "duplicate")
APPENDED: Final = {
    "type": "object",
    "required": list(ANSWERED),
    "properties": {
        "key": {"type": "string"},
        "first": NUMBER,
        "last": NUMBER,
        "partition": {"type": "integer"},
        "offset": {"type": "integer"},
        "timestamp": NUMBER,
        "duplicate": {"type": "boolean"},
    },
}


# ---------------------------------------------------------------- record


async def append(
    call: HttpCall,
    key: str,
    events: Any,
    first: Any = None,
    expire_after_s: Any = KEEP,
    headers: Any = None,
    numbers: Any = True,
) -> Response:
    """Record events in one append; answer when they are durable."""
    given = call.request.given
    appended = await call.app.aio.journal.append(
        key,
        _events(events, "events"),
        expected=_expected(given.get("if-match")),
        first=first,
        append_id=given.get("idempotency-key"),
        expire_after=_expiry(expire_after_s),
        headers=headers,
        numbers=numbers,
    )
    etag = {} if appended.last is None else {"ETag": f'"{appended.last}"'}
    told = {name: getattr(appended, name) for name in ANSWERED}
    return json_response({**told, "key": str(appended.key)}, headers=etag)


async def append_many(call: HttpCall, appends: Any) -> object:
    """Record many appends in few commits; each succeeds or fails on its own, and has its answer or its error."""
    if not isinstance(appends, list) or not appends:
        raise invalid("events_type", "appends", "no list of appends", allowed="a list of objects", got=appends)
    listed = [_one_of_many(call, one, f"appends[{index}]") for index, one in enumerate(appends)]
    answers = await call.app.aio.journal.append_many(listed)
    return {
        "results": [
            {"error": problem_of(answer, "")} if isinstance(answer, StrandlineError) else {"appended": answer}
            for answer in answers
        ]
    }


def _one_of_many(call: HttpCall, one: Any, field: str) -> tuple[str, Any, dict[str, Any]]:
    if not isinstance(one, Mapping):
        raise invalid("events_type", field, "no JSON object", allowed=f"an object of {' '.join(MANY_MEMBERS)}", got=one)
    for name in one:
        if name not in MANY_MEMBERS:
            raise unknown(f"{field} field", name, MANY_MEMBERS)
    key = str(Key.of(one.get("key")))  # type: ignore[arg-type]
    call.require("append", key.partition("|")[0])
    options = {name: one[name] for name in ("expected", "first", "append_id", "headers") if name in one}
    if "expire_after_s" in one:
        options["expire_after"] = _expiry(one["expire_after_s"])
    return key, _events(one.get("events"), f"{field}.events"), options


def _events(given: Any, field: str) -> Any:
    """Return the events of a list; return any other value as it is, for the journal to refuse."""
    if not isinstance(given, list):
        raise invalid("events_type", field, "no list of events", allowed="a list of objects", got=given)
    return [event_of(one, f"{field}[{index}]") for index, one in enumerate(given)]


def _expected(etag: str | None) -> int | None:
    if etag is None:
        return None
    match = _ETAG.fullmatch(etag.strip())
    if match is None or int(match[1]) > SEQ_NR_MAX:
        raise invalid("seq_nr_range", "If-Match", "not a number", allowed='"0" or the last seq_nr, as "7"', got=etag)
    return int(match[1])


def _expiry(seconds: Any) -> Any:
    if seconds is None or seconds is KEEP:
        return seconds
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise invalid("expire_after", "expire_after_s", "no number", allowed="seconds, or null", got=seconds)
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        return timedelta.max


# ---------------------------------------------------------------- remove


async def delete(call: HttpCall, key: str, to: int, reset: bool = False, why: str | None = None) -> object:
    """Remove the events of a key up to a number."""
    journal = call.app.s.journal
    done = await call.act(
        "journal.delete", key, lambda: journal.delete(key, to=to, reset=reset), why=why, look=lambda: journal.head(key)
    )
    return {"deleted": done}


async def purge(call: HttpCall, key: str, why: str | None = None) -> object:
    """Remove the whole journal of a key. The record of it names the key by its digest alone."""
    journal = call.app.s.journal
    known = str(Key.of(key))

    def look() -> object:
        head = journal.head(known)
        return None if head is None else {"life": head.life, "seq_nr": head.seq_nr, "delete_to": head.delete_to}

    named = f"key digest {key_digest(known).hex()}"
    done = await call.act("journal.purge", named, lambda: journal.purge(known), why=why, look=look)
    return {"purged": done}


# ---------------------------------------------------------------- read


async def read(
    call: HttpCall, key: str, from_: int = 1, to: int | None = None, limit: int | None = None, backwards: bool = False
) -> Response:
    """Show the events of a key in order."""
    journal = call.app.s.journal
    return await lines_of(call, partial(journal.read, key, from_=from_, to=to, limit=limit, backwards=backwards))


async def head(call: HttpCall, key: str) -> Response:
    """Show the head of a key; null for a key without a journal. If-Match takes its ETag."""
    found = await call.app.aio.journal.head(key)
    return json_response(found, headers={"ETag": f'"{0 if found is None else found.seq_nr}"'})


async def entity_types(call: HttpCall) -> object:
    """List the entity types that the store has."""
    return {"entity_types": await call.app.aio.journal.entity_types()}


async def keys(call: HttpCall, entity_type: str, after: str | None = None, limit: int = 1000) -> object:
    """List keys of an entity type that the store has, in the order of their slices."""
    found = await call.app.aio.journal.keys(entity_type, after=after, limit=limit)
    return {"keys": found}


def routes() -> list[HttpRoute]:
    """Return the routes of this part."""
    number = whole("A seq_nr, included.", 1, SEQ_NR_MAX, code="seq_nr_range")
    bounds = {
        "from": number,
        "to": number,
        "limit": whole("At most so many.", 1, SEQ_NR_MAX, code="limit_range"),
        "after": HttpField(KEY, "Go on after this key."),
    }
    listed = {"type": "object", "required": ["keys"], "properties": {"keys": {"type": "array"}}}
    maybe = {"type": ["object", "null"]}
    own = {"appends": HttpField({"type": "array", "minItems": 1, "items": _many_schema()}, "Each stands for itself.")}
    return [
        HttpRoute(
            "POST", "/journals/{key}/events", append, "Append events to a key.", scope="append",
            body=("events", "first", "expire_after_s", "headers", "numbers"), needs=("events",),
            headers=("If-Match", "Idempotency-Key"), answer=APPENDED,
        ),
        HttpRoute(
            "POST", "/append", append_many, "Append to many keys.", scope="append", each_type=True, body=("appends",),
            needs=("appends",), fields=own,
            answer={"type": "object", "required": ["results"], "properties": {"results": {"type": "array"}}},
        ),
        HttpRoute(
            "GET", "/journals/{key}/events", read, "Read the events of a key.", scope="read",
            query=("from", "to", "limit", "backwards"), fields=bounds, answer=OBJECT, media=(LINES_MEDIA,),
        ),
        HttpRoute("GET", "/journals/{key}", head, "Show the head of a key.", scope="read", answer=maybe),
        HttpRoute(
            "DELETE", "/journals/{key}/events", delete, "Remove events up to a number.", scope="admin",
            query=("to", "reset", "why"), needs=("to",), fields=bounds, answer=OBJECT,
        ),
        HttpRoute(
            "DELETE", "/journals/{key}", purge, "Remove a whole journal.", scope="admin", query=("why",), answer=OBJECT
        ),
        HttpRoute("GET", "/keys", entity_types, "List entity types.", scope="read", answer=OBJECT),
        HttpRoute(
            "GET", "/keys/{entity_type}", keys, "List keys.", scope="read", query=("after", "limit"),
            fields={"after": bounds["after"]}, answer=listed,
        ),
    ]  # fmt: skip


def _many_schema() -> dict[str, Any]:
    members: dict[str, Any] = {name: FIELDS[name].schema for name in MANY_MEMBERS if name in FIELDS}
    members["expected"] = {"type": "integer", "minimum": 0, "maximum": SEQ_NR_MAX}
    return {"type": "object", "required": ["key", "events"], "additionalProperties": False, "properties": members}
