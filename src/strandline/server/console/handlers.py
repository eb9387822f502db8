"""The console's answers: pages, their live regions, acts, login and logout, static files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import orjson
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from strandline.errors import StrandlineError, invalid
from strandline.server import browsers
from strandline.server.answers import problem_of
from strandline.server.application import ServerApp
from strandline.server.calls import HttpCall
from strandline.server.console.acts import act_of, checked_target, checked_values
from strandline.server.console.desk import ConsoleDesk
from strandline.server.console.journals import journal_csv
from strandline.server.console.pages import ConsolePage, given_of, page_at
from strandline.server.console.rendering import STATIC, LiveRegion, live_regions, page, templates
from strandline.server.console.texts import query, segment
from strandline.server.frame import FrameError, no_path
from strandline.server.routes import EVENTS_MEDIA
from strandline.server.sessions import COOKIE

LIVE_S: Final = 2.0
RETRY_MS: Final = 1000
MEDIA: Final = {".css": "text/css", ".mjs": "text/javascript", ".svg": "image/svg+xml"}
_desks: WeakKeyDictionary[ServerApp, ConsoleDesk] = WeakKeyDictionary()


def desk_of(app: ServerApp) -> ConsoleDesk:
    """Return the console's objects of a server; the first call starts its history."""
    desk = _desks.get(app)
    if desk is None:
        desk = _desks[app] = ConsoleDesk(app.s, app.groups, show_payloads=app.show_payloads)
        desk.history.start()
        app.ending.callback(desk.history.stop)
        app.ending.callback(_desks.pop, app)
    return desk


def _found_with(call: HttpCall, one: ConsolePage, values: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Add the values that every template uses."""
    base = f"{call.prefix}/console"
    token, session = call.token, call.session
    return {
        **found, "base": base, "page": one, "values": values, "admin": token is not None and "admin" in token.scopes,
        "who": "" if token is None else token.name, "csrf": "" if session is None else session.csrf,
        "at": _address(call, base),
    }  # fmt: skip


def _address(call: HttpCall, base: str) -> str:
    """Return the address of a page below the console's own, as the browser sent it: a key's slash is %2F there."""
    scope = call.request.scope
    path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1").removeprefix(base)
    asked = scope.get("query_string", b"").decode("latin-1")
    return f"{path}?{asked}" if asked else path


async def show(one: ConsolePage, call: HttpCall, **values: Any) -> Response:
    """Answer with a page."""
    found = await _loaded(one, call, values)
    return HTMLResponse(await call.run(page, one.template, _found_with(call, one, values, found)))


async def _loaded(one: ConsolePage, call: HttpCall, values: dict[str, Any]) -> dict[str, Any]:
    desk = desk_of(call.app)
    admin = call.token is not None and "admin" in call.token.scopes
    values = {name.rstrip("_"): value for name, value in values.items()}
    return await call.run(one.load, desk, given_of(desk, values, admin=admin))


async def find(call: HttpCall, key: str) -> Response:
    """Redirect to the page of a key that was typed in, or of an entity type if the text is not a key."""
    written = key.strip()
    at = f"/journals/{segment(written)}" if "|" in written else f"/journals{query(entity_type=written)}"
    return RedirectResponse(f"{call.prefix}/console{at}", 303)


# ---------------------------------------------------------------- live


async def live(call: HttpCall, at: str) -> Response:
    """Stream the regions of a page that have changed, as long as the page is open."""
    one, values = page_at(at)
    if one.scope is not None:
        call.require(one.scope, values.get("key", "").partition("|")[0] or None)
    return StreamingResponse(_regions(one, call, values), media_type=EVENTS_MEDIA)


async def _regions(one: ConsolePage, call: HttpCall, values: dict[str, str]) -> AsyncIterator[bytes]:
    sent: dict[str, str] = {}
    cookie, quiet_s = call.request.cookies.get(COOKIE, ""), 0.0
    yield f"retry: {RETRY_MS}\n\n".encode()
    while not call.app.stopping.is_set() and (call.session is None or call.app.sessions.find(cookie) is not None):
        try:
            regions = await _now(one, call, values)
        except (StrandlineError, FrameError) as error:
            message = error.message if isinstance(error, StrandlineError) else error.detail
            yield b"event: trouble\ndata: " + orjson.dumps({"message": message}) + b"\n\n"
        else:
            changed = [region for region in regions if sent.get(region.name) != region.version]
            sent |= {region.name: region.version for region in changed}
            quiet_s = 0.0 if changed else quiet_s + LIVE_S
            yield b"data: " + orjson.dumps([region._asdict() for region in changed]) + b"\n\n"
        try:
            await asyncio.wait_for(call.app.stopping.wait(), LIVE_S)
        except TimeoutError:
            continue


async def _now(one: ConsolePage, call: HttpCall, values: dict[str, str]) -> list[LiveRegion]:
    found = await _loaded(one, call, values)
    return await call.run(live_regions, one.template, _found_with(call, one, values, found))


# ---------------------------------------------------------------- acts


async def ask(call: HttpCall, act: str, values: str) -> Response:
    """Answer with the page that an operator confirms an act on: its explanation, the state of the
    object, its fields.
    """
    chosen, desk = act_of(act), desk_of(call.app)
    given = checked_target(chosen, _object(values))
    count = await call.run(chosen.counts, desk, given) if chosen.counts is not None else ""
    made = templates().get_template("ask.html")
    who = "" if call.token is None else call.token.name
    return HTMLResponse(made.render(act=chosen, values=given, on=chosen.on(given), count=count, who=who))


def _object(text: str) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise invalid("option", "values", "no JSON object", allowed="values by name", got=text)
    return found


async def do_act(call: HttpCall, act: str, values: Any, why: str = "") -> dict[str, Any]:
    """Do an act and record it."""
    call.require("admin")
    chosen, desk = act_of(act), desk_of(call.app)
    if not why.strip():
        raise invalid("option", "why", "missing", allowed="a reason, for whoever reads the record", got=why)
    given = checked_values(chosen, values) | {"why": why}
    do, look = partial(chosen.do, desk, given), partial(chosen.look, desk, given)
    said = await call.act(chosen.name, chosen.on(given), do, why=why, look=look)
    return {"done": f"{chosen.title}: {said}"}


# ---------------------------------------------------------------- in and out


async def login_page(call: HttpCall) -> Response:
    """Answer with the page that asks for a token."""
    return _login(call, "")


def _login(call: HttpCall, problem: str, status: int = 200) -> Response:
    made = templates().get_template("login.html")
    return HTMLResponse(made.render(base=f"{call.prefix}/console", problem=problem), status)


async def login(call: HttpCall) -> Response:
    """Open a session for a token that was typed in, and go to the first page."""
    try:
        return await browsers.login(call)
    except FrameError as error:
        if error.status != 401:
            raise
        return _login(call, "This is no valid token.", 401)


async def first_page(call: HttpCall) -> Response:
    """Redirect to the console."""
    return RedirectResponse(f"{call.prefix}/console", 303)


# ---------------------------------------------------------------- files, errors


async def static(call: HttpCall, version: str, file: str) -> Response:
    """Answer with a file of the console; its address changes with it, so a browser may keep it."""
    found = {path.name: path for path in STATIC.iterdir()}.get(file)
    if found is None:
        raise no_path()
    headers = {"Cache-Control": "private, max-age=31536000, immutable"}
    return Response(found.read_bytes(), headers=headers, media_type=MEDIA[found.suffix])


async def events_csv(call: HttpCall, key: str, **values: Any) -> Response:
    """Answer with a key's events as CSV."""
    desk = desk_of(call.app)
    text = await call.run(journal_csv, desk, given_of(desk, {"key": key, **values}, admin=False))
    headers = {"Content-Disposition": 'attachment; filename="events.csv"'}
    return Response(text, headers=headers, media_type="text/csv")


def problem_page(request: Request, error: Exception, request_id: str) -> Response:
    """Return an error as a page; without a session redirect to the login."""
    base = f"{str(request.scope.get('root_path', '')).rstrip('/')}/console"
    problem = problem_of(error, request_id)
    if problem["status"] == 401:
        return RedirectResponse(f"{base}/login", 303)
    html = templates().get_template("problem.html").render(base=base, problem=problem)
    return HTMLResponse(html, problem["status"])
