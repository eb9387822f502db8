"""What a projection is: a name, a source of events, a handler, and settings. All of it is checked when it is made."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, Unpack

import orjson

from strandline.errors import invalid
from strandline.journal import checks
from strandline.plain_calls import check_plain, check_takes
from strandline.projection.settings import GivenProjectionSettings, ProjectionSettings
from strandline.query.filter import Filter

_NAME: Final = re.compile(r"[a-z][a-z0-9_.-]{0,99}")
_LIST: Final = re.compile(r"(collections\.abc\.|typing\.)?(list|List|Sequence|Iterable|Collection)\b")
_ONE: Final = ("DeliveredEvent", "RecordedEvent")
_HOOKS: Final = {"start": ("context",), "stop": ("context",), "on_switch": ("tx", "old", "new")}


@dataclass(frozen=True, slots=True, init=False)
class BySlices:
    """The events of an entity type, in any number of ranges of slices; `filter` as for a query by slices."""

    entity_type: str
    filter: Filter | None

    def __init__(self, entity_type: str, *, filter: object = None) -> None:  # noqa: A002 (the name of the setting)
        object.__setattr__(self, "entity_type", checks.entity_type(entity_type))
        object.__setattr__(self, "filter", Filter.of(filter))

    @property
    def text(self) -> str:
        """Return the source as text for the offset store. Different texts are different sources."""
        chosen = self.filter or Filter()
        parts = [None if part is None else sorted(part) for part in chosen]
        return orjson.dumps(["slices", self.entity_type, *parts]).decode()


@dataclass(frozen=True, slots=True, init=False)
class ByTag:
    """The events of all keys that have a tag, in one range. `BySlices` with a tag in its filter allows more ranges."""

    tag: str

    def __init__(self, tag: str) -> None:
        object.__setattr__(self, "tag", checks.tag(tag))

    @property
    def filter(self) -> None:
        return None

    @property
    def text(self) -> str:
        """Return the source as text for the offset store. Different texts are different sources."""
        return orjson.dumps(["tag", self.tag]).decode()


class EventHandler(Protocol):
    """The handler that a user writes: `handle` alone, as a function, is enough.

    handle(tx, event)          or with lists handle(tx, events); at least once the same without `tx`
    start(context)             if it is there: called once per claim, before the first event
    stop(context)              called afterwards, also after a failure
    on_switch(tx, old, new)    called as this generation takes another's place, in the transaction that makes it so
    """

    @property
    def handle(self) -> Callable[..., Any]: ...


@dataclass(frozen=True, slots=True)
class Context:
    """The argument of `start` and `stop`."""

    projection: str
    generation: int
    lo: int
    hi: int
    rebuilding: bool = False
    """True until the generation serves. Until then the handler should have no effects outside of `tx`."""


class Projection:
    """A handler for the events of a source.

        Projection("totals", BySlices("order"), handle)                          exactly once, event by event
        Projection("totals", BySlices("order"), handle, group_size=500)          in lists
        Projection("mails", BySlices("order"), send, delivery="at_least_once", on_failure="park")
        Projection("blue", ByTag("blue"), handle)                                the events with a tag, in one range

    `handle(tx, event)` writes through `tx`, in the transaction that saves the offset. See `ProjectionSettings`.
    """

    def __init__(
        self,
        name: str,
        source: BySlices | ByTag,
        handler: EventHandler | Callable[..., Any],
        **settings: Unpack[GivenProjectionSettings],
    ) -> None:
        self.name, self.source = projection_name(name), source
        if not isinstance(source, BySlices | ByTag):
            raise invalid("setting", "source", "no source of events", allowed="BySlices(…) or ByTag(…)", got=source)
        self.settings = ProjectionSettings.of(settings)
        if isinstance(source, ByTag) and not self.settings.use_strandline:
            allowed, hint = (
                "true with ByTag",
                'use BySlices(…, filter={"tags": …}): rows of a tag come from the pipeline',
            )
            raise invalid("setting", "use_strandline", "false with a tag", allowed=allowed, got=False, hint=hint)
        if self.settings.feed and (isinstance(source, ByTag) or not self.settings.use_strandline):
            allowed, hint = "false with ByTag, or without the strandline", "a feed knows no numbers of a tag"
            raise invalid("setting", "feed", "not for this source", allowed=allowed, got=True, hint=hint)
        self.handler = handler
        self.handle = _handle_of(handler, exactly_once=self.exactly_once, grouped=self.settings.grouped)
        _check_hooks(handler)

    @property
    def generation(self) -> int:
        return self.settings.generation

    @property
    def exactly_once(self) -> bool:
        return self.settings.delivery == "exactly_once"

    def started(self, context: Context) -> None:
        """Call the handler's `start`, if it has one."""
        _call(self.handler, "start", context)

    def stopped(self, context: Context) -> None:
        """Call the handler's `stop`, if it has one."""
        _call(self.handler, "stop", context)

    def switched(self, tx: Any, old: int, new: int) -> None:
        """Call the handler's `on_switch`, if it has one."""
        _call(self.handler, "on_switch", tx, old, new)

    def __repr__(self) -> str:
        return f"<Projection {self.name} of {self.source.text}>"


def projection_name(name: object) -> str:
    """Return a name that a projection can have."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        allowed = "a small letter, then up to 99 of a-z 0-9 _ . -"
        raise invalid("projection_name", "name", "no name of a projection", allowed=allowed, got=name)
    return name


def _handle_of(handler: object, *, exactly_once: bool, grouped: bool) -> Callable[..., Any]:
    handle = getattr(handler, "handle", handler)
    if not callable(handle):
        raise invalid("handler", "handler", "cannot be called", allowed="a function, or what has handle", got=handler)
    if isinstance(handler, type):
        raise invalid("handler", "handler", "is a class", allowed="an object of it", got=handler)
    check_plain(handle, "handler")
    if exactly_once:
        check_takes(handle, 2, "handler", 'handle(tx, event); handle(event) with delivery="at_least_once"')
    else:
        check_takes(handle, 1, "handler", "handle(event) with this delivery; handle(tx, event) if exactly once")
    lists = _takes_lists(handle, 1 if exactly_once else 0)
    if lists is not None and lists is not grouped:
        wrong = "takes a list, and gets single events" if lists else "takes one event, and group_size gives it lists"
        allowed = "handle(…, events) with group_size, handle(…, event) without"
        raise invalid("handler", "handler", wrong, allowed=allowed, got=handler)
    return handle


def _takes_lists(handle: Callable[..., Any], at: int) -> bool | None:
    """Return whether a handler takes lists, by the type or name of its parameter; None if neither tells."""
    try:
        taken = list(inspect.signature(handle).parameters.values())[at]
    except (TypeError, ValueError, IndexError):
        return None
    said = taken.annotation if isinstance(taken.annotation, str) else getattr(taken.annotation, "__name__", "")
    if _LIST.match(said):
        return True
    if said in _ONE or taken.name == "event":
        return False
    return True if taken.name == "events" else None


def _check_hooks(handler: object) -> None:
    """Refuse hooks that cannot be called: else they would fail only when a range begins, ends or switches."""
    for name, arguments in _HOOKS.items():
        hook = getattr(handler, name, None)
        if callable(hook):
            field, allowed = f"handler.{name}", f"{name}({', '.join(arguments)})"
            check_plain(hook, field)
            check_takes(hook, len(arguments), field, allowed)


def _call(handler: object, name: str, *what: Any) -> None:
    hook = getattr(handler, name, None)
    if callable(hook):
        hook(*what)
