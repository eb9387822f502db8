"""Routes as data: the values, the answer and the scope of each path. The server's table and its OpenAPI document are
made of these.

    HttpRoute("GET", "/journals/{key}/events", read, scope="read", summary="…", query=("from", "to"), answer=EVENTS)

A value has the same name in all routes; `fields.FIELDS` has its JSON schema and its form in a query string.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from strandline.server.frame import no_method, no_path

JsonSchema = Mapping[str, Any]
Handler = Callable[..., Awaitable[Any]]
JSON_MEDIA: Final = "application/json"
LINES_MEDIA: Final = "application/x-ndjson"
EVENTS_MEDIA: Final = "text/event-stream"


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """One method of one path."""

    method: str
    path: str
    """The path, with names in braces. Each name is one segment: a key's `/` is written %2F there."""
    handle: Handler
    """The function that answers, called with an `HttpCall` and with the request's values by name."""
    summary: str
    scope: str | None = None
    """The scope that the token must have; None for any valid token."""
    each_type: bool = False
    """Whether the handler itself checks the scope, once for each entity type in the body."""
    open: bool = False
    """Whether the route needs no token."""
    query: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    """The members of the JSON object that it takes; if empty, it takes no body."""
    needs: tuple[str, ...] = ()
    """The members that must be given."""
    headers: tuple[str, ...] = ()
    """The request headers that it uses, by their names in `fields.HEADERS`."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The fields of names that have another meaning here than in `fields.FIELDS`."""
    answer: JsonSchema = field(default_factory=dict)
    media: tuple[str, ...] = (JSON_MEDIA,)
    reads_body: bool = False
    """Whether the handler itself reads the body, which is not JSON, with `call.form`."""
    refusal: Callable[[Request, Exception, str], Response] | None = None
    """Returns the response for an error and its request id, if that is a page for people and not JSON."""
    in_document: bool = True
    """Whether the OpenAPI document has it: pages of the console are not for programs."""


class FoundRoute(NamedTuple):
    """A route, and the segments of a path that are its values."""

    route: HttpRoute
    values: dict[str, str]


class RouteTable:
    """Finds the route of a request."""

    def __init__(self, routes: Iterable[HttpRoute]) -> None:
        self.routes = tuple(routes)
        self._by_shape: dict[int, list[tuple[tuple[str, ...], dict[str, HttpRoute]]]] = {}
        for route in self.routes:
            pattern = tuple(route.path.split("/")[1:])
            known = self._by_shape.setdefault(len(pattern), [])
            methods = next((methods for other, methods in known if other == pattern), None)
            if methods is None:
                methods = {}
                known.append((pattern, methods))
            methods[route.method] = route
        for known in self._by_shape.values():  # literal segments before names
            known.sort(key=lambda one: [segment.startswith("{") for segment in one[0]])

    def find(self, method: str, segments: list[str]) -> FoundRoute:
        """Return the route of a method and of the segments of a path; `FrameError` 404 or 405."""
        for pattern, methods in self._by_shape.get(len(segments), ()):
            values = _matched(pattern, segments)
            if values is None:
                continue
            route = methods.get("GET" if method == "HEAD" else method)
            if route is None:
                raise no_method(method, sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
            return FoundRoute(route, values)
        raise no_path()


def _matched(pattern: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    values = {}
    for wanted, given in zip(pattern, segments, strict=True):
        if wanted.startswith("{"):
            if not given:
                return None
            values[wanted[1:-1]] = given
        elif wanted != given:
            return None
    return values


def segments_of(scope: Mapping[str, Any]) -> list[str]:
    """Return the segments of a request's path, below the prefix where this application is mounted.

    The path is split before it is decoded: a %2F in a key is part of the key.
    """
    raw = scope.get("raw_path")
    if raw is None:
        segments = scope["path"].split("/")
    else:
        written = raw.decode("latin-1").split("/")
        segments = [unquote(segment, errors="replace") if "%" in segment else segment for segment in written]
    prefix = scope.get("root_path", "").rstrip("/")
    skipped = prefix.count("/")
    below = segments[skipped:] if "/".join(segments[: skipped + 1]) == prefix else segments
    return below[1:] or [""]
