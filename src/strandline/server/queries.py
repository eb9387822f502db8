"""Routes of queries: by tag and by slices, each up to the present or live; and the status."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from starlette.responses import Response

from strandline.errors import invalid
from strandline.journal import checks
from strandline.server.calls import HttpCall
from strandline.server.fields import OBJECT
from strandline.server.routes import EVENTS_MEDIA, LINES_MEDIA, HttpRoute
from strandline.server.streams import LIVE_EVENTS, lines_of, live_events

LAST_ID: Final = "last-event-id"


async def by_tag(
    call: HttpCall, tag: str, after: str | None = None, from_: Any = None, to: Any = None, limit: int | None = None
) -> Response:
    """Send the events with a tag, of all keys, that are in the store now."""
    s = call.app.s
    return await lines_of(call, partial(_limited, partial(s.by_tag, tag, after=after, from_=from_, to=to), limit))


async def live_by_tag(call: HttpCall, tag: str, after: str | None = None, from_: Any = None) -> Response:
    """Send the events with a tag, those in the store and new ones, without end."""
    s = call.app.s
    _check_place(after, from_)

    def opens(place: Any) -> Any:
        return s.by_tag(tag, after=place, from_=from_ if place is None else None, page_size=LIVE_EVENTS)

    return await live_events(call, opens, call.request.headers.get(LAST_ID) or after)


async def by_slices(
    call: HttpCall,
    entity_type: str,
    slices: tuple[int, int],
    after: str | None = None,
    from_: Any = None,
    to: Any = None,
    types: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
    limit: int | None = None,
) -> Response:
    """Show the events of an entity type in a range of slices that are in the store now."""
    opens = partial(call.app.s.by_slices, entity_type, *slices, after=after, from_=from_, to=to)
    return await lines_of(call, partial(_limited, partial(opens, filter=_filter(types, tags)), limit))


async def live_by_slices(
    call: HttpCall,
    entity_type: str,
    slices: tuple[int, int],
    after: str | None = None,
    from_: Any = None,
    types: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
) -> Response:
    """Send the events of an entity type in a range of slices, without end."""
    s, chosen = call.app.s, _filter(types, tags)
    _check_place(after, from_)

    def opens(place: Any) -> Any:
        begin = from_ if place is None else None
        return s.by_slices(
            entity_type, *slices, after=place, from_=begin, filter=chosen, page_size=LIVE_EVENTS
        )  # fmt: skip

    return await live_events(call, opens, call.request.headers.get(LAST_ID) or after)


def _check_place(after: str | None, from_: Any) -> None:
    """Refuse `after` and `from` together. `Last-Event-ID` may come with either, because a client that connects again
    repeats its address.
    """
    if after is not None and from_ is not None:
        raise invalid("offset_ambiguous", "after", "given with from", allowed="one of after and from", got=after)


def _filter(types: Sequence[str] | None, tags: Sequence[str] | None) -> Any:
    given = {"types": types, "tags": tags}
    return {name: value for name, value in given.items() if value is not None} or None


def _limited(opens: Any, limit: int | None) -> Iterator[Any]:
    most = None if limit is None else checks.limit(limit)
    feed = opens()
    return iter(feed) if most is None else _first_of(feed, most)


def _first_of(feed: Any, limit: int) -> Iterator[Any]:
    with feed:
        yield from islice(feed, limit)


async def status(call: HttpCall) -> object:
    """Show how far the store is behind the log, which pipeline carries, and what an operator should look at."""
    return (await call.app.aio.status()).to_dict()


def routes() -> list[HttpRoute]:
    """Return the routes of this part."""
    place, bounds, chosen = ("after", "from"), ("to", "limit"), ("types", "tags")
    live: dict[str, Any] = {"headers": ("Last-Event-ID",), "media": (EVENTS_MEDIA,), "answer": {"type": "string"}}
    now: dict[str, Any] = {"media": (LINES_MEDIA,), "answer": OBJECT}
    slices = "/slices/{entity_type}/{slices}"
    return [
        HttpRoute("GET", "/tags/{tag}/events", by_tag, "Events with a tag.", "read", query=(*place, *bounds), **now),
        HttpRoute("GET", "/tags/{tag}/live", live_by_tag, "The same, live.", "read", query=place, **live),
        HttpRoute(
            "GET", f"{slices}/events", by_slices, "Events by slices.", "read", query=(*place, *bounds, *chosen), **now
        ),
        HttpRoute("GET", f"{slices}/live", live_by_slices, "The same, live.", "read", query=(*place, *chosen), **live),
        HttpRoute("GET", "/status", status, "How log, store and what stands on them are.", "read", answer=OBJECT),
    ]
