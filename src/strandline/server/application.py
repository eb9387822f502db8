"""The server as an ASGI application: from a request to the handler of its route, and every refusal on the way.

    Host ─▶ Origin ─▶ path, method ─▶ token or session ─▶ rate ─▶ scope ─▶ CSRF ─▶ body ─▶ handler
     421      403      404, 405         401                429     403      403     4xx     2xx, 4xx, 503

No byte of a body is read before its sender is known. A bug is answered with 500 and a request id, and logged with it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from strandline import aio
from strandline.clock import now_us
from strandline.connect import Strandline
from strandline.errors import InvalidInput, StrandlineError, invalid, unknown
from strandline.group.groups import Groups
from strandline.server.admin_acts import AdminActs
from strandline.server.answers import SECURITY_HEADERS, json_response, problem_response
from strandline.server.bodies import BodyReader, check_framing, check_media
from strandline.server.calls import HttpCall, HttpRequest
from strandline.server.fields import field_of
from strandline.server.frame import FrameError, forbidden, unauthorized
from strandline.server.limits import HttpLimits, RequestMeter
from strandline.server.routes import HttpRoute, RouteTable, segments_of
from strandline.server.sessions import COOKIE, CSRF_HEADER, BrowserSession, BrowserSessions
from strandline.server.tokens import AccessToken, TokenFile
from strandline.server.watches import StrandlineWatch, WatchedWork

THREADS: Final = 16
"""So many calls of the plain API run at once; appends hold none of them."""
BY_ENTITY_TYPE: Final = frozenset({"append", "read"})
"""Scopes that a token may have for some entity types alone."""
SAFE: Final = frozenset({"GET", "HEAD"})
LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "[::1]")
KEYWORDS: Final = {"from": "from_", "not": "not_"}
"""Names that Python writes otherwise."""
_logger: Final = logging.getLogger("strandline.server")
_SECURITY_HEADERS: Final = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]


class ServerApp:
    """An ASGI application over one connection. It may be mounted in another one, under any prefix."""

    def __init__(
        self,
        s: Strandline,
        routes: Iterable[HttpRoute],
        *,
        tokens: TokenFile,
        hosts: Sequence[str],
        limits: HttpLimits,
        groups: Mapping[str, Groups],
        show_payloads: bool = False,
    ) -> None:
        self.s, self.tokens, self.limits = s, tokens, limits
        self.groups = dict(groups)
        """Streams of event groups that HTTP may submit to, by their names."""
        self.looked_at_groups: dict[str, Groups] = {}
        """Streams without registered groups, opened to look at."""
        self.work_journals: dict[str, WatchedWork] = {}
        """The work journals that requests have named; they are closed with the connection."""
        self.show_payloads = show_payloads
        """Whether the console shows payloads without being asked to."""
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="strandline-http")
        self.aio = aio.Strandline(s, self.threads)
        self.table = RouteTable(routes)
        self.sessions = BrowserSessions(tokens)
        self.acts = AdminActs(s.journal, now_us)
        self.meter = RequestMeter(limits)
        self.watch = StrandlineWatch(s, self.threads)
        self.ending = ExitStack()
        """The objects that parts have opened; they are closed at `close` or at the end of the lifespan."""
        self.stopping = asyncio.Event()
        """Set when the server is to end: open streams end then."""
        self._hosts = frozenset(host.lower() for host in hosts)
        self.bodies = BodyReader(limits.body_bytes_max or s.settings.append_bytes_max * 3 // 2, limits)

    # ------------------------------------------------------------ ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                self.stop()
                await asyncio.to_thread(self.ending.close)
                await send({"type": "lifespan.shutdown.complete"})
                return

    def stop(self) -> None:
        """End the open streams."""
        self.stopping.set()

    def close(self) -> None:
        """End the threads; the connection stays open. Twice is harmless."""
        self.ending.close()
        self.threads.shutdown(wait=False)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = HttpRequest(scope, receive)
        started = False

        async def told(message: Any) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                own = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(one for one in _SECURITY_HEADERS if one[0] not in own)]
            await send(message)

        with ExitStack() as held:
            try:
                response = await self._response(request, held)
                await response(scope, receive, told)
            except (FrameError, StrandlineError) as error:
                if started:
                    raise
                await _refused(request, error, secrets.token_hex(8))(scope, receive, told)
            except Exception as error:
                request_id = secrets.token_hex(8)
                _logger.exception("bug: %s %s, request_id %s", scope["method"], scope["path"], request_id)
                if started:
                    raise
                await _refused(request, error, request_id)(scope, receive, told)

    # ------------------------------------------------------------ from a request to its handler

    async def _response(self, request: HttpRequest, held: ExitStack) -> Response:
        self._check_sender(request)
        try:
            route, values = self.table.find(request.method, segments_of(request.scope))
        except FrameError:
            self._caller(request)  # a sender without a valid token does not learn which paths exist
            raise
        request.state.route = route
        call = HttpCall(self, request, route, None)
        if not route.open:
            call.token, call.session = self._caller(request)
            held.enter_context(self.meter.request_of(call.token.id))
            _check_scope(route, values, call.token)
            if call.session is not None and request.method not in SAFE:
                _check_csrf(request, call.session)
        given = {name: field_of(route, name).read(text, name) for name, text in values.items()}
        given |= self._query(request, route)
        check_framing(request, self.bodies.bytes_max)
        if route.body:
            given |= await self.bodies.read_members(request, route, held)
        elif route.reads_body:
            pass
        elif request.method not in SAFE and request.given.get("content-length", "0") != "0":
            check_media(request)
            if await self.bodies.read(request, held):
                raise invalid("option", "body", "not taken", allowed="no body", got="a body", hint="leave it out")
        answer = await route.handle(call, **{KEYWORDS.get(name, name): value for name, value in given.items()})
        return answer if isinstance(answer, Response) else json_response(answer)

    def _check_sender(self, request: HttpRequest) -> None:
        """Refuse requests that another site makes a browser send: under a foreign host name, or from a foreign page."""
        most = self.limits.header_bytes_max
        if sum(len(name) + len(value) + 4 for name, value in request.scope["headers"]) > most:
            detail = f"the headers are longer than {most} bytes"
            raise FrameError(431, "headers_too_large", detail, "send fewer or shorter headers", close=True)
        host = request.given.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if name.lower() not in self._hosts:
            hint = "use a name that the server knows, or start it with --allow-host NAME"
            raise FrameError(421, "host", f"this server is not called {host:.100}", hint)
        origin = request.given.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise FrameError(403, "origin", f"a page of {origin:.100} may not call this server", "call it from its own")

    def _caller(self, request: HttpRequest) -> tuple[AccessToken, BrowserSession | None]:
        given = request.given.get("authorization")
        if given is not None:
            scheme, _, text = given.partition(" ")
            token = self.tokens.find(text.strip()) if scheme.lower() == "bearer" else None
            if token is None:
                raise unauthorized()
            return token, None
        found = self.sessions.find(request.cookies.get(COOKIE, ""))
        if found is None:
            raise unauthorized()
        session, token = found
        return token, session

    def _query(self, request: HttpRequest, route: HttpRoute) -> dict[str, Any]:
        given = request.scope.get("query_string", b"")
        if not given:
            pairs = []
        else:
            try:
                pairs = parse_qsl(given.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
            except ValueError:
                raise InvalidInput(
                    "query: not readable; allowed NAME=VALUE in UTF-8, percent-encoded",
                    code="option",
                    hint="encode names and values, as curl --data-urlencode does",
                    field="query",
                ) from None
        values: dict[str, Any] = {}
        for name, text in pairs:
            if name not in route.query:
                raise unknown("query", name, route.query)
            if name in values:
                raise invalid("option", name, "twice", allowed="each name once", got=text)
            values[name] = field_of(route, name).read(text, name)
        for name in route.needs:
            if name in route.query and name not in values:
                raise invalid("option", name, "missing", allowed=" ".join(route.query), got="nothing")
        return values


def _refused(request: HttpRequest, error: Exception, request_id: str) -> Response:
    """Return an error in the form of its route: as JSON, or as a page."""
    route: HttpRoute | None = getattr(request.state, "route", None)
    refusal = None if route is None else route.refusal
    return problem_response(error, request_id) if refusal is None else refusal(request, error, request_id)


def _check_scope(route: HttpRoute, values: Mapping[str, str], token: AccessToken) -> None:
    """Refuse a token without the route's scope. The scopes to append and to read must hold for the
    path's entity type.
    """
    if route.scope is None:
        return
    if route.scope not in BY_ENTITY_TYPE or route.each_type:
        if route.scope not in token.scopes:
            raise forbidden(route.scope)
        return
    entity_type = values.get("entity_type") or values.get("key", "").partition("|")[0] or None
    if not token.allows(route.scope, entity_type):
        raise forbidden(route.scope, entity_type)


def _check_csrf(request: HttpRequest, session: BrowserSession) -> None:
    if not session.csrf_is(request.given.get(CSRF_HEADER, "")):
        raise FrameError(403, "csrf", "this request carries no CSRF value of its session", "load the page again")
