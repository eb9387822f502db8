"""Routes of event groups: submit a registered group by its name, show, cancel, resolve.

A group's statements are the server's own: HTTP gives a name and parameters. Only with the setting
`allow_adhoc_groups` may a caller give a whole group.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any, Final

import orjson

from strandline.errors import Unavailable, invalid
from strandline.group.definition import Group
from strandline.group.groups import HOW, Groups
from strandline.group.history import ENDS
from strandline.server.calls import HttpCall
from strandline.server.fields import OBJECT, WAIT_MAX_S, HttpField, duration_number, text, wait_seconds
from strandline.server.frame import FrameError
from strandline.server.routes import HttpRoute

STREAM: Final = "/groups/{stream}"
ONE: Final = "/groups/{stream}/{id}"
STREAMS_MAX: Final = 100
"""How many streams without registered groups are kept open at most."""
LOOK_LEAST_S, LOOK_MOST_S = 0.02, 0.5
FIELDS: Final = {
    "stream": text("The stream.", pattern="^[A-Za-z0-9._:~-]{1,200}$"),
    "id": text("The group's id.", minLength=1, maxLength=200),
    "name": text("The name that a function is registered under."),
    "parameters": HttpField(OBJECT, "Its arguments, by name."),
    "group": HttpField(OBJECT, "A whole group, where the setting allow_adhoc_groups allows it."),
    "state": text("A state, or `open`."),
    "after": text("Go on after this, as the last answer said."),
    "step": text("A step that could not be undone."),
    "how": text("What becomes of it.", enum=list(HOW)),
    "wait_s": duration_number("How long to wait for its end.", 0, WAIT_MAX_S),
}
"""The fields of these routes."""


async def _groups(call: HttpCall, stream: str) -> Groups:
    """Return the groups of a stream: the registered ones, or groups without targets, which can be
    shown and acted on.
    """
    known = call.app.groups.get(stream)
    if known is not None:
        return known
    looked = call.app.looked_at_groups
    if stream not in looked:
        if len(looked) >= STREAMS_MAX:
            looked.pop(next(iter(looked))).close()
        looked[stream] = await call.run(partial(call.app.s.groups, stream))
    return looked[stream]


async def submit_group(
    call: HttpCall, stream: str, name: str | None = None, parameters: Any = None, group: Any = None
) -> object:
    """Record a registered group, given by its name and parameters, at the end of its stream."""
    if (name is None) == (group is None):
        raise invalid("option", "name", "needed, or group", allowed="one of name and group", got="both or none")
    if group is not None and not call.app.s.settings.allow_adhoc_groups:
        raise FrameError(
            403,
            "adhoc_groups",
            "this server takes groups by a registered name alone",
            "give name and parameters; `strandline serve --set allow_adhoc_groups=true` takes whole groups",
        )
    groups = await _groups(call, stream)
    if group is not None:
        made: Group | str = await call.run(Group.from_json, orjson.dumps(group))
    else:
        made = str(name)
    handle = await call.run(groups.submit, made, None if group is not None else parameters)
    return {"id": handle.id, "stream": stream}


async def list_groups(
    call: HttpCall, stream: str, state: str | None = None, after: str | None = None, limit: int = 100
) -> object:
    """List groups of a stream."""
    return await call.run((await _groups(call, stream)).list, state, after, limit)


async def show_group(call: HttpCall, stream: str, id: str, wait_s: float = 0) -> object:  # noqa: A002
    """Show the state of a group; with `wait_s`, once the group has ended or that time is over."""
    seconds = wait_seconds(wait_s)
    groups, until, pause_s = await _groups(call, stream), time.monotonic() + seconds, LOOK_LEAST_S
    while True:
        outcome = await call.run(groups.get, id)
        left_s = until - time.monotonic()
        if outcome.state in ENDS or left_s <= 0 or call.app.stopping.is_set():
            return outcome
        if await call.request.is_disconnected():
            raise Unavailable("the client is gone", code="timeout", hint="call again")
        await asyncio.sleep(min(left_s, pause_s))
        pause_s = min(2 * pause_s, LOOK_MOST_S)


async def group_history(call: HttpCall, stream: str, id: str) -> object:  # noqa: A002
    """Show everything that is recorded of a group."""
    found = await call.run((await _groups(call, stream)).history, id)
    return {"events": [{"type": type_, "payload": payload, "timestamp": at} for type_, payload, at in found]}


async def cancel_group(call: HttpCall, stream: str, id: str, why: str | None = None) -> object:  # noqa: A002
    """Ask for a group to be undone, which has no effect once it has ended. Answer with its state."""
    groups = await _groups(call, stream)
    look = partial(_look, groups, id)
    return await call.act("group.cancel", f"{stream} {id}", partial(groups.cancel, id), why=why, look=look)


async def resolve_group(
    call: HttpCall, stream: str, id: str, step: str, how: str, why: str | None = None  # noqa: A002
) -> object:  # fmt: skip
    """Resolve a step that could not be undone."""
    groups = await _groups(call, stream)
    do = partial(groups.resolve, id, step, how)
    await call.act("group.resolve", f"{stream} {id} {step} {how}", do, why=why, look=partial(_look, groups, id))
    return {}


def _look(groups: Groups, id_: str) -> dict[str, Any]:
    outcome = groups.get(id_)
    return {"state": outcome.state, "failed_step": outcome.failed_step}


def routes() -> list[HttpRoute]:
    """Return the routes of this part."""

    def get(path: str, handle: Any, summary: str, *query: str) -> HttpRoute:
        return HttpRoute("GET", path, handle, summary, "group", query=query, fields=FIELDS, answer=OBJECT)

    def post(path: str, handle: Any, summary: str, *body: str, scope: str = "admin", **more: Any) -> HttpRoute:
        return HttpRoute("POST", path, handle, summary, scope, body=body, fields=FIELDS, answer=OBJECT, **more)

    return [
        post(STREAM, submit_group, "Submit a group.", "name", "parameters", "group", scope="group"),
        get(STREAM, list_groups, "List groups.", "state", "after", "limit"),
        get(ONE, show_group, "Show a group.", "wait_s"),
        get(f"{ONE}/history", group_history, "Show what is recorded of a group."),
        post(f"{ONE}/cancel", cancel_group, "Ask for it to be undone.", "why"),
        post(f"{ONE}/resolve", resolve_group, "Resolve a step.", "step", "how", "why", needs=("step", "how")),
    ]
