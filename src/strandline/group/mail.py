"""Handlers in other processes: messages to them are entries of work journals, their answers come into a stream's inbox.

    processor ──▶ work journal `prices` ──▶ worker ──▶ groups.answer ──▶ inbox of the stream ──▶ processor

A handler is named `work:<journal>` or `<code>/<handler>`. The latter is versioned code: a separate process serves it
(`strandline group handlers`) through the work journal of its version, and this process loads none of it. A message has
the same id at every delivery. The id is the entry's key, so a second delivery merges with a waiting one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final, Protocol

from strandline.errors import invalid
from strandline.group.core.encoding import decoded, encoded
from strandline.group.core.names import NAMES, is_name
from strandline.group.core.parts import Data, HookMessage, Produce, StartMessage, Stop, Undo

WORK: Final = "work:"
KEY: Final = {"message_id": "text"}
DATA: Final = {"message": "json"}
"""The columns of a work journal that takes messages."""
Message = Produce | Undo | HookMessage | StartMessage | Stop
_KINDS: Final[dict[str, type[Any]]] = {
    "produce": Produce,
    "undo": Undo,
    "told": HookMessage,
    "start": StartMessage,
    "stop": Stop,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


class Box(Protocol):
    """A work journal with these columns, open."""

    def add(self, key: Mapping[str, Any], data: Mapping[str, Any]) -> object:
        """Add an entry, or merge it with the one of its key that waits. Durable when this returns."""


Boxes = Callable[[str], Box]
"""It opens a work journal by name; `NotFound.work_journal` if there is none, or one with other columns."""


VERSION_MAX: Final = 64


def code_of(name: str, version: str) -> str:
    """Return the name of a version of code, as people call it: `shop@2`."""
    if not is_name(name):
        raise invalid("option", "name", "no name of code", allowed=NAMES, got=name)
    if not isinstance(version, str) or not 1 <= len(version) <= VERSION_MAX or not version.isprintable():
        raise invalid("option", "version", "no version", allowed=f"1 to {VERSION_MAX} characters", got=version)
    return f"{name}@{version}"


def box_of(code: str) -> str:
    """Return the work journal through which a version of code is served."""
    return f"code_{sha256(code.encode()).hexdigest()[:32]}"


def code_named(handler: str) -> str | None:
    """Return the code of a path `code/handler`; None for any other name."""
    code, slash, name = handler.partition("/")
    return code if slash and is_name(code) and is_name(name) else None


# ---------------------------------------------------------------- messages


def written(message: Message, handler: str, start: StartMessage | None = None, *, ack: bool = False) -> dict[str, Any]:
    """Return a message as JSON. `start`: how its handler is started, where a group starts it; `ack`: of a hook."""
    made: dict[str, Any] = {"kind": _NAMES[type(message)], "handler": handler, "ack": ack}
    made |= {name: encoded(value) for name, value in message._asdict().items()}
    return made if start is None else {**made, "start": written(start, handler)}


def read(made: Mapping[str, Any]) -> Message:
    """Return the message of an entry's data, `claim.entry.data["message"]`."""
    kind = _KINDS[made["kind"]]
    given = {name: decoded(made[name]) for name in kind._fields if name in made}
    if given.get("data") is not None:
        columns, rows, affected = given["data"]
        given["data"] = Data(tuple(columns), tuple(map(tuple, rows)), affected)
    message: Message = kind(**given)
    return message


def group_of(message_id: object) -> str:
    """Return the group of a message; "" for what is no id of a message."""
    return message_id.partition("/")[0] if isinstance(message_id, str) else ""
