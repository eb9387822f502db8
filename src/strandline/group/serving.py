"""The other side of a work journal: a process that calls handlers with messages of groups, and answers.

    Worker(s, {"prices": groups.answering(price)}).run()      serves `work:prices`
    strandline group handlers shop:HANDLERS --as shop@2       serves `shop/…`, to groups on that version alone

A message may come again (its process died before the answer was in the inbox, its claim lapsed): it has the same
`message_id` then, and the first answer counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, Final, Protocol

from strandline.errors import InvalidInput, NotFound
from strandline.group import lease as leases
from strandline.group.core.parts import HookMessage, Produced, Refused, StartMessage, Stop
from strandline.group.handlers import Callee, HandlerAnswer, called, check_handlers, inside
from strandline.group.history import History
from strandline.group.mail import Message, read
from strandline.group.names import stream_key
from strandline.journal.journal import Journal

_log: Final = logging.getLogger("strandline.group")


class Answers(Protocol):
    """The part of `Groups` that a server needs."""

    stream: str

    def answer(self, message_id: str, results: Mapping[str, Any] | Produced | Refused) -> None: ...

    def ack(self, message_id: str) -> None: ...


class ServedClaim(Protocol):
    """A claimed entry of a work journal."""

    @property
    def entry(self) -> Any: ...

    def fail(self, text: str = "") -> None: ...


class HandlerServer:
    """A handler for a `Worker`, which calls it for each entry. It has one handler for all messages, or handlers by
    name."""

    def __init__(self, groups: Answers, handlers: Callee | Mapping[str, Callee]) -> None:
        check_handlers(handlers if isinstance(handlers, Mapping) else {"": handlers})
        self._groups, self._handlers = groups, handlers
        self._started: dict[tuple[str, str], Any] = {}
        """Handlers that groups started, by group and name."""
        self._lock = Lock()

    def __call__(self, claim: ServedClaim) -> None:
        made = claim.entry.data["message"]
        message = read(made)
        with inside(self._groups.stream):
            answer = called(lambda message: self._called(made, message), message)
        try:
            if isinstance(message, HookMessage):
                self._told(claim, message, answer, ack=made["ack"])
            elif answer.results is None and answer.retryable:
                claim.fail(answer.reason)
            elif not isinstance(message, Stop):
                self._answer(message, answer)
        except NotFound as error:  # the history of its group is gone
            _log.info("message %s: %s", message.message_id, error)

    def _told(self, claim: ServedClaim, message: HookMessage, answer: HandlerAnswer, *, ack: bool) -> None:
        if answer.results is None:
            _log.warning("hook %s of group %s: %s", message.step, message.group, answer.reason)
        if ack:
            claim.fail(answer.reason) if answer.results is None else self._groups.ack(message.message_id)

    def _answer(self, message: Message, answer: HandlerAnswer) -> None:
        try:
            self._groups.answer(
                message.message_id, Refused(answer.reason) if answer.results is None else Produced(answer.results)
            )
        except InvalidInput as error:
            self._groups.answer(message.message_id, Refused(error.message))

    # ------------------------------------------------------------ handlers

    def _called(self, made: Mapping[str, Any], message: Message) -> Any:
        if not isinstance(self._handlers, Mapping):
            return self._handlers(message)
        if isinstance(message, StartMessage):
            self._start(message)
            return None
        if isinstance(message, Stop):
            with self._lock:
                started = self._started.pop((message.group, message.name), None)
            stop = getattr(started, "stop", None)
            return stop() if stop is not None else None
        if "start" in made:
            return self._start(_start_of(made["start"]))(message)
        return self._named(made["handler"])(message)

    def _start(self, start: StartMessage) -> Callee:
        """Return the handler that a group started. Start it again if this process is not the one that did."""
        with self._lock:
            known = self._started.get((start.group, start.name))
            if known is None:
                known = self._started[start.group, start.name] = self._named(start.factory)(start.props)
        callee: Callee = known
        return callee

    def _named(self, path: str) -> Callee:
        handlers = self._handlers
        name = path.rpartition("/")[2]
        if not isinstance(handlers, Mapping) or name not in handlers:
            known = ", ".join(sorted(handlers)) if isinstance(handlers, Mapping) else ""
            raise NotFound(
                f"there is no handler {name!r} among those served; known are: {known or 'none'}",
                code="handler",
                hint="load a version that has it",
            )
        return handlers[name]


def _start_of(made: Mapping[str, Any]) -> StartMessage:
    start = read(made)
    if not isinstance(start, StartMessage):
        raise TypeError(start)
    return start


class CodeWatch:
    """Watches whether a stream is done with a version of code: another is in force, and no open group is on this
    one."""

    def __init__(self, journal: Journal, stream: str, load: Callable[[str], History | None], code: str) -> None:
        self._journal, self._stream, self._load, self._code = journal, stream, load, code
        self._in_force: dict[str, str] = {}
        self._read_to = -1
        self.seen = False
        """True if this version was ever loaded, as far as the last look saw."""
        self._ended_at = 0
        """The place in the stream at which another version took its place."""

    def over(self) -> bool:
        said = leases.said(self._journal, self._stream)
        self.seen = self.seen or self._code in said.replaced  # this version came and went between two looks
        if said.done_to > self._read_to:
            self._see(said.done_to, dict(said.code))
        for event in self._journal.read(stream_key(self._stream), from_=self._read_to + 1):
            if event.type == "LoadCode":
                self._see(event.seq_nr, {**self._in_force, event.payload["name"]: event.payload["code"]})
            self._read_to = event.seq_nr
        if not self.seen or self._code in self._in_force.values() or said.done_to < self._ended_at:
            return False
        codes = [code for place in said.open.values() for code in place.code.values()]
        for history in map(self._load, said.open):
            codes += history.code.values() if history is not None else ()
        return self._code not in codes

    def _see(self, place: int, in_force: dict[str, str]) -> None:
        if self._code in self._in_force.values() and self._code not in in_force.values():
            self._ended_at = place
        self._in_force, self._read_to = in_force, place
        self.seen = self.seen or self._code in in_force.values()
