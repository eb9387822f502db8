"""Sends a group's questions and hook messages to handlers, in this process or through work journals.

A question is in the log before it goes out. Both ways look the same in the history. A hook is a question without an
answer. Calls of handlers and posts of messages run in the threads of `handlers`. Waiting for an answer holds no thread.

    Asked ──▶ (by mail: Sent) ──▶ Answered      a processor that resumes the group calls a local handler again

Late and second answers are recorded, and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import orjson

from strandline.errors import InvalidInput, Unavailable
from strandline.group.actions import Ask, Send
from strandline.group.core.encoding import encoded
from strandline.group.core.parts import Data, HookMessage, Produce, StartHandler, StartMessage, Stop, Undo
from strandline.group.core.step import given
from strandline.group.decide import message_id
from strandline.group.handlers import Callee, HandlerAnswer
from strandline.group.history import ENDS, PAGE_BYTES
from strandline.group.mail import WORK, Message, box_of, code_named, written
from strandline.group.plan import PRE
from strandline.group.points import reached
from strandline.group.settings import WAIT_LEAST_S, WAIT_MOST_S

if TYPE_CHECKING:
    from strandline.group.driver import Drive

SECOND_US: Final = 1_000_000


class Messages:
    """The messages of one group, and the handler that the group starts in this process."""

    def __init__(self, drive: Drive) -> None:
        self._drive, self._handlers = drive, drive.shared.handlers
        own = drive.plan.group.pre_hook
        self._start = own if isinstance(own, StartHandler) else None
        self._started: Callee | None = None
        self._starting = Lock()
        self.calls: dict[str, str] = {}
        """Messages to handlers of this process that are waited for, and the handler of each."""

    def _id(self, *parts: str) -> str:
        return message_id(self._drive.history, *parts)

    def _is_over(self) -> bool:
        return self._drive.history.state in ENDS

    # ------------------------------------------------------------ the way to a handler

    def _way(self, handler: str) -> str | HandlerAnswer | None:
        """Return the work journal that leads to a handler; None for one of this process; an answer if there is none."""
        if self._start is not None and self._start.name == handler:
            handler = self._start.factory
        if handler in self._handlers.registry:
            return None
        if handler.startswith(WORK):
            return handler.removeprefix(WORK)
        name = code_named(handler) or handler
        code = self._drive.history.code.get(name)
        missing = f"nothing before this group in its stream loads {name!r}: groups.load_code({name!r}, VERSION)"
        return HandlerAnswer(None, missing) if code is None else box_of(code)

    def _is_own(self, handler: str) -> bool:
        return self._start is not None and self._start.name == handler

    def _callee(self, handler: str) -> Callee:
        """Return a handler of this process. The one that the group starts is started once more after a crash."""
        return self._ask_own if self._is_own(handler) else self._handlers.registry[handler]

    def _ask_own(self, message: Message) -> Any:
        return self._own()(message)

    def _own(self) -> Callee:
        """Return the handler that the group starts. It is called in a thread of the handlers."""
        start = self._start_message("")
        with self._starting:
            if self._started is None:
                self._started = self._handlers.registry[start.factory](dict(start.props))
            return self._started

    def _begin(self, _: StartMessage) -> None:
        """Start the group's own handler, in a thread of the handlers; end it if the group did not wait for it."""
        self._own()
        if self._is_over():
            self._stop(None)

    def _deliver(
        self, way: str | HandlerAnswer | None, handler: str, message: Message, until: int,
        then: Callable[[HandlerAnswer], None], *, ack: bool = False,
    ) -> None:  # fmt: skip
        """Call a handler, or post its message until this time (microseconds since the group started)."""
        if isinstance(way, HandlerAnswer):
            then(way)
        elif way is not None:
            self._post(way, handler, message, until, then, ack, WAIT_LEAST_S)
        else:
            callee = self._begin if isinstance(message, StartMessage) else self._callee(handler)
            self._handlers.run(callee, message).add_done_callback(lambda done: then(done.result()))

    def _post(
        self, box: str, handler: str, message: Message, until: int, then: Callable[[HandlerAnswer], None], ack: bool,
        wait_s: float,
    ) -> None:  # fmt: skip
        """Put a message into a work journal, in a thread of the handlers; again while its database is away."""
        start = self._start_message(message.message_id) if self._is_own(handler) else None
        made, away = written(message, handler, start, ack=ack), list[Unavailable]()

        def post(_: Any) -> None:
            try:
                self._drive.shared.boxes(box).add({"message_id": message.message_id}, {"message": made})
            except Unavailable as error:
                if error.retryable:
                    away.append(error)
                raise
            reached("message.sent")
            with self._drive.lock:
                if message.message_id in self._drive.history.questions and not self._is_over():
                    self._drive.add("Sent", {"message_id": message.message_id})

        def posted(answer: HandlerAnswer) -> None:
            if away and self._drive.now() < until:
                longer_s = min(2 * wait_s, WAIT_MOST_S)
                self._drive.later(wait_s, partial(self._post, box, handler, message, until, then, ack, longer_s))
            else:
                then(answer)

        self._handlers.run(post, message).add_done_callback(lambda done: posted(done.result()))

    # ------------------------------------------------------------ questions

    def ask(self, asks: Sequence[Ask]) -> None:
        """Ask the questions that were not asked yet. All of them go into the log first, in one append."""
        drive = self._drive
        with drive.lock:
            if drive.history.failure is not None and drive.history.decided is None:
                for one in asks:
                    drive.course.done(one)
                return
            for one in asks:
                self._record(one)
        drive.record.flush()
        if any(one.kind == "undo" for one in asks):
            reached("undo.before")
        reached("asked.recorded")
        for one in asks:
            self._send_question(one)

    def _record(self, ask: Ask) -> None:
        drive, message, way = self._drive, self._id(ask.step, ask.recipe), self._way(ask.handler)
        known = drive.history.questions.get(message)
        if known is not None and not known.answered and known.box is not None:
            return
        payload: dict[str, Any] = {
            "step": ask.step, "recipe": ask.recipe, "message_id": message,
            "timeout_s": ask.timeout_s or drive.shared.settings.answer_timeout_s, "asked": drive.now(),
        }  # fmt: skip
        if isinstance(way, str):
            payload["box"] = way
        drive.add("Asked", payload)

    def _send_question(self, ask: Ask) -> None:
        drive, id_ = self._drive, self._id(ask.step, ask.recipe)
        question = drive.history.questions[id_]
        until = question.asked + int(question.timeout_s * SECOND_US)
        message = self._question(ask, id_, drive.shared.clock() + until - drive.now())
        if question.box is None:
            with drive.lock:
                self.calls[id_] = ask.handler
        elif question.sent:
            return

        def answered(answer: HandlerAnswer) -> None:
            """Take the result of a call. The answer to a posted message comes later, unless posting it failed."""
            if question.box is None or answer.results is None:
                drive.go_on(partial(self._answered, ask, message, 1, answer))

        self._deliver(question.box or self._way(ask.handler), ask.handler, message, until, answered)

    def _question(self, ask: Ask, id_: str, deadline: int) -> Message:
        history, plan = self._drive.history, self._drive.plan
        if ask.kind == "start":
            return self._start_message(id_)
        one = plan.step(ask.step)
        if ask.kind == "produce":
            return Produce(given(one, history.steps), history.id, ask.step, ask.recipe, id_, 1, deadline)
        data = history.step(ask.step).data
        known = (data is not None or one.plan is None) and all(
            question.answer is not None and not question.answer.get("timed_out")
            for other, question in history.questions.items()
            if question.step == ask.step and other != id_
        )
        return Undo(history.id, ask.step, "done" if known else "unknown", data or Data(), id_)

    def _start_message(self, id_: str) -> StartMessage:
        if self._start is None:
            raise TypeError(self._drive.id)
        return StartMessage(self._drive.id, self._start.name, self._start.factory, self._start.props, id_)

    def _answered(self, ask: Ask, message: Message, attempt: int, answer: HandlerAnswer) -> None:
        drive, id_ = self._drive, message.message_id
        question = drive.history.questions.get(id_)
        waited = question is not None and not question.answered and (question.box is not None or id_ in self.calls)
        if waited and answer.retryable and attempt <= drive.shared.settings.retries:
            reached("group.handler_refused_for_now")
            wait_s = min(WAIT_LEAST_S * 2 ** (attempt - 1), WAIT_MOST_S)
            again = message._replace(attempt=attempt + 1) if isinstance(message, Produce) else message
            drive.later(wait_s, partial(self._call_again, ask, again, attempt + 1))
            return
        with drive.lock:
            if question is not None and not self._is_over():
                late = not waited or question.answered
                payload = {"message_id": id_, "answer": kept_answer(answer)}
                drive.add("Answered", {**payload, "late": True} if late else payload)
                self.calls.pop(id_, None)
        reached("answered")

    def _call_again(self, ask: Ask, message: Message, attempt: int) -> None:
        call = self._handlers.run(self._callee(ask.handler), message)
        call.add_done_callback(
            lambda done: self._drive.go_on(partial(self._answered, ask, message, attempt, done.result()))
        )

    def timed_out(self, message: str) -> None:
        """Note that no answer came in time. The caller holds the lock."""
        if (handler := self.calls.pop(message, None)) is not None:
            reached("group.no_answer_in_time")
            self._handlers.hung[message] = handler

    def hear(self, message: Mapping[str, Any]) -> None:
        """Put an answer or an ack into the history, before it is deleted from the inbox."""
        drive, id_ = self._drive, message["message_id"]
        with drive.lock:
            question, hook = drive.history.questions.get(id_), drive.history.hooks.get(id_)
            if message["type"] == "Ack":
                if hook is not None:
                    self._hook_done(id_)
                elif question is not None and not self._is_over() and not question.acked:
                    drive.add("Acked", {"message_id": id_})
            elif question is not None and not self._is_over():
                payload = {"message_id": id_, "answer": message["answer"]}
                late = question.answered or question.box is None
                drive.add("Answered", {**payload, "late": True} if late else payload)
        drive.record.flush()

    # ------------------------------------------------------------ hooks

    def send(self, action: Send) -> None:
        """Send a message to a hook, once it is in the log."""
        self._drive.record.flush()
        reached("hook.queued")
        self._tell(action.message_id, 1)
        with self._drive.lock:
            self._drive.course.done(action)

    def _tell(self, id_: str, attempt: int) -> None:
        hook, settings = self._drive.history.hooks[id_], self._drive.shared.settings
        payload, way = hook.payload, self._way(hook.payload["handler"])
        fields = {name: payload[name] for name in ("step", "when", "n", "succeeded", "end")}
        told = HookMessage(group=self._drive.id, message_id=id_, **fields)

        def returned(answer: HandlerAnswer) -> None:
            failed = answer.results is None
            again = way is None and payload["ack"] and failed and attempt <= settings.retries
            if again and not hook.done:
                self._tell(id_, attempt + 1)
            elif way is None or failed or not payload["ack"]:  # else it is over with `groups.ack`
                with self._drive.lock:
                    self._hook_done(id_, gave_up=way is not None and failed)
                self._drive.shared.host.changed()

        until = self._drive.now() + int((payload["timeout_s"] or settings.answer_timeout_s) * SECOND_US)
        self._deliver(way, payload["handler"], told, until, returned, ack=payload["ack"])
        reached("hook.sent")

    def _hook_done(self, id_: str, *, gave_up: bool = False) -> None:
        if not self._drive.history.hooks[id_].done:
            self._drive.add("HookDone", {"message_id": id_, "gave_up": gave_up})

    def stop_handlers(self) -> None:
        """End what this group started."""
        asked = self._drive.history.questions.get(self._id(PRE, "start"))
        if self._start is None or asked is None:
            return
        message = Stop(self._drive.id, self._start.name, self._id(PRE, "stop"))
        until = self._drive.now() + int(self._drive.shared.settings.answer_timeout_s * SECOND_US)
        if asked.box is not None:
            self._post(asked.box, self._start.factory, message, until, lambda _: None, False, WAIT_LEAST_S)
        else:
            self._handlers.run(self._stop, message)

    def _stop(self, _: Stop | None) -> None:
        """End the group's own handler, in a thread of the handlers."""
        if (stop := getattr(self._started, "stop", None)) is not None:
            stop()


def kept_answer(answer: HandlerAnswer) -> dict[str, Any]:
    """Return an answer as the history keeps it. If it cannot keep the results, return a refusal with the reason."""
    try:
        made = written_answer(answer)
        if len(orjson.dumps(made)) <= PAGE_BYTES:
            return made
        return written_answer(HandlerAnswer(None, f"an answer of more than {PAGE_BYTES:,} bytes"))
    except (InvalidInput, orjson.JSONEncodeError, RecursionError, ValueError) as error:
        return written_answer(HandlerAnswer(None, str(error)))


def written_answer(answer: HandlerAnswer) -> dict[str, Any]:
    """Return an answer as JSON; `InvalidInput.payload_type` for results that cannot be kept."""
    if answer.results is not None:
        made = {"results": encoded(answer.results)}
        orjson.dumps(made)
        return made
    return {"reason": answer.reason, "timed_out": answer.timed_out}
