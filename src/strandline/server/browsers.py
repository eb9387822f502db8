"""The login of a browser: once, with a token in a form; from then on the browser has a cookie.

POST /login    token=…                         303 to the first page, with the cookie
GET /session                                   who it is, what the token may do, and the CSRF value of its requests
POST /logout   X-CSRF-Token: …                 the session ends
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response

from strandline.server.calls import HttpCall
from strandline.server.frame import FrameError, unauthorized
from strandline.server.routes import HttpRoute
from strandline.server.sessions import COOKIE, drop_cookie, set_cookie

FORM: Final = "application/x-www-form-urlencoded"


async def login(call: HttpCall) -> Response:
    """Open a session for the token of a form, and redirect to the first page."""
    media = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != FORM:
        raise FrameError(415, "media_type", f"Content-Type is {media or 'missing'}", f"send {FORM}", close=True)
    form = parse_qs((await call.form()).decode("ascii", "replace"), max_num_fields=10)
    token = call.app.tokens.find(form.get("token", [""])[0].strip())
    if token is None:
        raise unauthorized()
    cookie, _ = call.app.sessions.open(token)
    response = RedirectResponse(f"{call.prefix}/", 303)
    set_cookie(response, cookie, path=call.prefix, secure=call.secure)
    return response


async def session(call: HttpCall) -> object:
    """Answer with the name, the scopes and the CSRF value of the browser's session."""
    if call.session is None or call.token is None:
        raise unauthorized()
    token = call.token
    return {
        "name": token.name,
        "token": token.id,
        "scopes": token.scopes,
        "entity_types": token.entity_types,
        "expires": call.session.expires,
        "csrf": call.session.csrf,
    }


async def logout(call: HttpCall) -> Response:
    """End the session of a browser."""
    call.app.sessions.close(call.request.cookies.get(COOKIE, ""))
    response = Response(status_code=204)
    drop_cookie(response, path=call.prefix, secure=call.secure)
    return response


def routes() -> list[HttpRoute]:
    """Return the routes of this part."""
    return [
        HttpRoute("POST", "/login", login, "Log a browser in.", open=True, reads_body=True, in_document=False),
        HttpRoute("GET", "/session", session, "Show the browser's session.", in_document=False),
        HttpRoute("POST", "/logout", logout, "End the browser's session.", in_document=False),
    ]
