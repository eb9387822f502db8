"""Routes as data: what a path takes, answers and needs. The server's table and its OpenAPI document are made of these.

    HttpRoute("GET", "/journals/{key}/events", read, scope="read", summary="…", query=("from", "to"), answer=EVENTS)

A value has one name everywhere (`fields.FIELDS`): there stand its JSON schema and how a query string writes it.
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
    """With names in braces, each of which is one segment: a key's `/` is written %2F there."""
    handle: Handler
    """Called with an `HttpCall` and with the values that the request gave, by name."""
    summary: str
    scope: str | None = None
    """What the token must have. None: any valid token."""
    each_type: bool = False
    """Whether the handler asks for the scope itself, once for each entity type that the body names."""
    open: bool = False
    """Whether it answers without a token."""
    query: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    """Members of the JSON object that it takes; without any, it takes no body."""
    needs: tuple[str, ...] = ()
    """Those of them that must be given."""
    headers: tuple[str, ...] = ()
    """Request headers that it heeds, by their names in `fields.HEADERS`."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """`HttpField` by name, where a name means something else than in `fields.FIELDS`."""
    answer: JsonSchema = field(default_factory=dict)
    media: tuple[str, ...] = (JSON_MEDIA,)
    reads_body: bool = False
    """Whether the handler reads a body that is no JSON itself, with `call.form`."""
    refusal: Callable[[Request, Exception, str], Response] | None = None
    """Returns an error as a response, by its request id, where that is no JSON: a page for people."""
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

    They are taken apart before they are decoded: a %2F in a key is part of the key.
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
