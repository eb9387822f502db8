"""Whom a group asks and tells: handlers and hooks, in this process or through work journals.

A question is in the log before it goes out; both ways look the same in the history. A hook is a question that nobody
waits for. Handlers are called, and messages are posted, in the threads of `handlers`; nobody holds a thread while an
answer is to come.

    Asked ──▶ (by mail: Sent) ──▶ Answered      a local one is called again by whoever resumes the group

Answers after that, and second ones, are recorded and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from strandline.errors import InvalidInput, Unavailable
from strandline.group.core.encoding import encoded
from strandline.group.core.parts import Data, HookMessage, Produce, StartHandler, StartMessage, Stop, Undo
from strandline.group.core.step import given
from strandline.group.decide import Ask, Course, Send, message_id, not_started
from strandline.group.decide import Start as StartAction
from strandline.group.handlers import Callee, HandlerAnswer, Handlers
from strandline.group.history import ENDS, PAGE_BYTES, History, Payload
from strandline.group.mail import WORK, Boxes, Message, box_of, code_named, written
from strandline.group.plan import PRE, GroupPlan
from strandline.group.points import reached
from strandline.group.record import GroupRecord
from strandline.group.settings import WAIT_LEAST_S, WAIT_MOST_S, GroupSettings

if TYPE_CHECKING:
    from threading import RLock

SECOND_US: Final = 1_000_000


@dataclass(slots=True)
class Correspondents:
    """Whom all groups of a processor ask."""

    handlers: Handlers
    boxes: Boxes
    settings: GroupSettings
    clock: Callable[[], int]


class Messages:
    """The messages of one group. The driver is what it is a part of."""

    plan: GroupPlan
    history: History
    record: GroupRecord
    course: Course
    lock: RLock

    def __init__(self, whom: Correspondents) -> None:
        self.whom = whom
        self.own_handlers: dict[str, Callee] = {}
        """Those that it started, in this process."""
        self.calls: dict[str, str] = {}
        """Messages to handlers of this process that are waited for, and whom they went to."""

    # What the driver does.

    def now(self) -> int:
        """Microseconds since the group started."""
        raise NotImplementedError

    def add(self, type_: str, payload: Payload) -> None:
        """Make an event. The lock is held."""
        raise NotImplementedError

    def go_on(self, work: Callable[[], None] | None = None) -> None:
        """Do this in a thread of the pool, and then what comes next."""
        raise NotImplementedError

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """The same after a while, in which nobody holds a thread."""
        raise NotImplementedError

    def changed(self) -> None:
        """Something happened that the processor should look at."""
        raise NotImplementedError

    def message_id(self, *parts: str) -> str:
        return message_id(self.history, *parts)

    # ------------------------------------------------------------ whom

    @property
    def starts_here(self) -> bool:
        """Whether it starts a handler of its own in this process."""
        own = self.plan.group.pre_hook
        return isinstance(own, StartHandler) and self.way(own.factory) is None

    def way(self, handler: str) -> str | HandlerAnswer | None:
        """The work journal that leads to a handler; None for one of this process; an answer if there is no way."""
        start = self.plan.group.pre_hook
        if isinstance(start, StartHandler) and handler == start.name:
            if handler in self.own_handlers:
                return None
            handler = start.factory
        if handler in self.whom.handlers.registry:
            return None
        if handler.startswith(WORK):
            return handler.removeprefix(WORK)
        name = code_named(handler)
        if name is None:
            return None
        code = self.history.code.get(name)
        missing = f"NotFound.code: nothing before this group in its stream loads {name!r} (load_code)"
        return HandlerAnswer(None, missing) if code is None else box_of(code)

    # ------------------------------------------------------------ questions

    def ask(self, asks: Sequence[Ask]) -> None:
        """Ask, unless that was done: first all of it is in the log, at once."""
        with self.lock:
            if self.history.failure is not None and self.history.decided is None:
                for one in asks:
                    self.course.done(one)
                return
            for one in asks:
                self._asked(one)
        self.record.flush()
        if any(one.kind == "undo" for one in asks):
            reached("undo.before")
        reached("asked.recorded")
        for one in asks:
            self._deliver(one)

    def _asked(self, ask: Ask) -> None:
        message, way = self.message_id(ask.step, ask.recipe), self.way(ask.handler)
        known = self.history.questions.get(message)
        if known is not None and not known.answered and known.box is not None:
            return
        payload: dict[str, Any] = {
            "step": ask.step, "recipe": ask.recipe, "message_id": message,
            "timeout_s": ask.timeout_s or self.whom.settings.answer_timeout_s, "asked": self.now(),
        }  # fmt: skip
        if isinstance(way, str):
            payload["box"] = way
        self.add("Asked", payload)

    def _deliver(self, ask: Ask) -> None:
        message_id_ = self.message_id(ask.step, ask.recipe)
        question = self.history.questions[message_id_]
        left_s = (question.asked + question.timeout_s * SECOND_US - self.now()) / SECOND_US
        message = self._message(ask, message_id_, self.whom.clock() + int(left_s * SECOND_US))
        if question.box is not None:
            if not question.sent:
                self._post(question.box, message_id_, ask.handler, message, self.now() + int(left_s * SECOND_US))
            return None
        way = self.way(ask.handler)
        with self.lock:
            self.calls[message_id_] = ask.handler
        if isinstance(way, HandlerAnswer):
            return self._returned(ask, message, 1, way)
        self._call(ask, message, 1)
        return None

    def _message(self, ask: Ask, message: str, deadline: int) -> Message:
        if ask.kind == "start":
            start = cast(StartHandler, self.plan.group.pre_hook)
            return StartMessage(self.history.id, start.name, start.factory, start.props, message)
        if ask.kind == "undo":
            return self._undo_message(ask, message)
        one = self.plan.steps.get(ask.step) or self.plan.rollback[ask.step]
        return Produce(given(one, self.history.steps), self.history.id, ask.step, ask.recipe, message, 1, deadline)

    def _undo_message(self, ask: Ask, message: str) -> Undo:
        data = self.history.step(ask.step).data
        one = self.plan.steps[ask.step]
        known = (data is not None or one.plan is None) and all(
            question.answer is not None and not question.answer.get("timed_out")
            for other, question in self.history.questions.items()
            if question.step == ask.step and other != message
        )
        return Undo(self.history.id, ask.step, "done" if known else "unknown", data or Data(), message)

    def _call(self, ask: Ask, message: Message, attempt: int) -> None:
        call = self.whom.handlers.call(ask.handler, message, self.own_handlers)
        call.add_done_callback(lambda done: self._returned(ask, message, attempt, done.result()))

    def _returned(self, ask: Ask, message: Message, attempt: int, answer: HandlerAnswer) -> None:
        """In the thread of the handler."""
        self.go_on(partial(self._answered, ask, message, attempt, answer))

    def _answered(self, ask: Ask, message: Message, attempt: int, answer: HandlerAnswer) -> None:
        question = self.history.questions.get(message.message_id)
        if question is None or question.answered or message.message_id not in self.calls:
            self._late(message.message_id, answer)
            return
        if answer.retryable and attempt <= self.whom.settings.retries:
            reached("group.handler_refused_for_now")
            wait_s = min(WAIT_LEAST_S * 2 ** (attempt - 1), WAIT_MOST_S)
            again = message._replace(attempt=attempt + 1) if isinstance(message, Produce) else message
            self.later(wait_s, partial(self._call, ask, again, attempt + 1))
            return
        with self.lock:
            if not question.answered:
                self.calls.pop(message.message_id, None)
                self.add("Answered", {"message_id": message.message_id, "answer": kept_answer(answer)})
        reached("answered")

    def _late(self, message: str, answer: HandlerAnswer) -> None:
        """An answer after its time: recorded while the group runs, and without effect."""
        with self.lock:
            if self.history.state not in ENDS and message in self.history.questions:
                self.add("Answered", {"message_id": message, "answer": kept_answer(answer), "late": True})

    def timed_out(self, message: str) -> None:
        """No answer came in time. The lock is held."""
        if (handler := self.calls.pop(message, None)) is not None:
            reached("group.no_answer_in_time")
            self.whom.handlers.hung[message] = handler

    # ------------------------------------------------------------ by mail

    def _post(
        self, box: str, message_id_: str, handler: str, message: Message, until: int, *, ack: bool = False,
        then: Callable[[HandlerAnswer], None] | None = None, wait_s: float | None = None,
    ) -> None:  # fmt: skip
        """Put a message into a work journal, in a thread of the handlers; again while its database is away."""
        start = self.plan.group.pre_hook
        started = None
        if isinstance(start, StartHandler) and handler == start.name:
            started = StartMessage(self.history.id, start.name, start.factory, start.props, message_id_)
        waited_s = WAIT_LEAST_S if wait_s is None else wait_s
        made, away = written(message, handler, started, ack=ack), list[Unavailable]()

        def post(_: Any) -> None:
            try:
                self.whom.boxes(box).add({"message_id": message_id_}, {"message": made})
            except Unavailable as error:
                if error.retryable:
                    away.append(error)
                raise
            reached("message.sent")
            with self.lock:
                if message_id_ in self.history.questions and self.history.state not in ENDS:
                    self.add("Sent", {"message_id": message_id_})

        def posted(done: Future[HandlerAnswer]) -> None:
            if away and self.now() < until:
                again = partial(
                    self._post, box, message_id_, handler, message, until, ack=ack, then=then,
                    wait_s=min(2 * waited_s, WAIT_MOST_S),
                )  # fmt: skip
                self.later(waited_s, again)
            elif then is not None:
                then(done.result())
            elif done.result().results is None:
                self.go_on(partial(self._not_sent, message_id_, done.result()))

        self.whom.handlers.run(post, message).add_done_callback(posted)

    def _not_sent(self, message: str, answer: HandlerAnswer) -> None:
        with self.lock:
            question = self.history.questions.get(message)
            if question is not None and not question.answered and self.history.state not in ENDS:
                self.add("Answered", {"message_id": message, "answer": kept_answer(answer)})

    def hear(self, message: Mapping[str, Any]) -> None:
        """An answer or an ack from the inbox: into the history, before it is deleted there."""
        message_id_ = message["message_id"]
        with self.lock:
            question, hook = self.history.questions.get(message_id_), self.history.hooks.get(message_id_)
            open_ = self.history.state not in ENDS
            if message["type"] == "Ack":
                if hook is not None:
                    self._hook_done(message_id_)
                elif question is not None and open_ and not question.acked:
                    self.add("Acked", {"message_id": message_id_})
            elif question is not None and open_:
                payload = {"message_id": message_id_, "answer": message["answer"]}
                late = question.answered or question.box is None
                self.add("Answered", {**payload, "late": True} if late else payload)
        self.record.flush()

    # ------------------------------------------------------------ hooks

    def send(self, action: Send) -> None:
        """Tell a hook, once its message is in the log."""
        self.record.flush()
        reached("hook.queued")
        self._send(action.message_id, 1)
        with self.lock:
            self.course.done(action)

    def _send(self, message: str, attempt: int) -> None:
        payload = self.history.hooks[message].payload
        told = HookMessage(
            self.history.id, payload["step"], payload["when"], payload["n"], message, payload["succeeded"],
            payload["end"],
        )  # fmt: skip
        handler, way = payload["handler"], self.way(payload["handler"])
        if isinstance(way, HandlerAnswer):
            return self._hook_over(message, gave_up=True)

        def returned(answer: HandlerAnswer) -> None:
            failed = answer.results is None
            again = way is None and payload["ack"] and failed and attempt <= self.whom.settings.retries
            if again and not self.history.hooks[message].done:
                self._send(message, attempt + 1)
            elif way is None or failed or not payload["ack"]:  # else it is over with `groups.ack`
                self._hook_over(message, gave_up=way is not None and failed)

        if way is not None:
            seconds = payload["timeout_s"] or self.whom.settings.answer_timeout_s
            until = self.now() + int(seconds * SECOND_US)
            self._post(way, message, handler, told, until, ack=payload["ack"], then=returned)
        else:
            call = self.whom.handlers.call(handler, told, self.own_handlers)
            call.add_done_callback(lambda done: returned(done.result()))
        reached("hook.sent")
        return None

    def _hook_over(self, message: str, *, gave_up: bool) -> None:
        with self.lock:
            self._hook_done(message, gave_up=gave_up)
        self.changed()

    def _hook_done(self, message: str, *, gave_up: bool = False) -> None:
        if not self.history.hooks[message].done:
            self.add("HookDone", {"message_id": message, "gave_up": gave_up})

    # ------------------------------------------------------------ handlers that a group starts

    def start(self, action: StartAction) -> None:
        """Start the group's own handler; the group goes on once that is done, or has taken too long."""
        own = cast(StartHandler, self.plan.group.pre_hook)
        factory, started = self.whom.handlers.registry.get(own.factory), list[Any]()

        def make(props: Any) -> None:
            if factory is None:
                raise LookupError(f"there is no handler {own.factory!r}")
            started.append(factory(props))

        def over(answer: HandlerAnswer) -> None:
            with self.lock:
                if action not in self.course.under:
                    return
                self.calls.pop(own.name, None)
                self.course.started = True
                if answer.results is not None and started:
                    self.own_handlers[own.name] = started[0]
                elif self.history.failure is None and self.history.decided is None:
                    note = not_started(own.name, answer.reason)
                    self.add(note.type, note.payload)
                self.course.done(action)

        with self.lock:
            self.calls[own.name] = own.factory
        late = HandlerAnswer(None, "no answer in time", timed_out=True)
        self.later(self.whom.settings.answer_timeout_s, partial(over, late))
        call = self.whom.handlers.run(make, dict(own.props))
        call.add_done_callback(lambda done: self.go_on(partial(over, done.result())))

    def stop_handlers(self) -> None:
        """End what this group started."""
        start, asked = self.plan.group.pre_hook, self.history.questions.get(self.message_id(PRE, "start"))
        if isinstance(start, StartHandler) and asked is not None and asked.box is not None:
            message = self.message_id(PRE, "stop")
            stop = Stop(self.history.id, start.name, message)
            until = self.now() + int(self.whom.settings.answer_timeout_s * SECOND_US)
            self._post(asked.box, message, start.factory, stop, until)
        for handler in self.own_handlers.values():
            stopping = getattr(handler, "stop", None)
            if stopping is not None:
                self.whom.handlers.run(lambda stop: stop(), stopping)
        self.own_handlers = {}


def kept_answer(answer: HandlerAnswer) -> dict[str, Any]:
    """An answer as the history keeps it: for results that it cannot keep, why."""
    try:
        made = written_answer(answer)
        if len(orjson.dumps(made)) <= PAGE_BYTES:
            return made
        return written_answer(HandlerAnswer(None, f"an answer of more than {PAGE_BYTES:,} bytes"))
    except (InvalidInput, orjson.JSONEncodeError, RecursionError, ValueError) as error:
        return written_answer(HandlerAnswer(None, str(error)))


def written_answer(answer: HandlerAnswer) -> dict[str, Any]:
    """An answer as JSON; `InvalidInput.payload_type` for results that cannot be kept."""
    if answer.results is not None:
        made = {"results": encoded(answer.results)}
        orjson.dumps(made)
        return made
    return {"reason": answer.reason, "timed_out": answer.timed_out}
