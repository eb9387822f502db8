"""Whom a group asks and tells: handlers and hooks, in this process or through work journals, and what they answer.

A question is in the log before it goes out, its answer before anybody relies on it; both look the same in the history,
wherever the handler is. What has a saved answer is not asked again.

    asked ──▶ (by mail: sent) ──▶ answered      a local one by its time-out here, or asked again by who resumes;
                             └──▶ timed out     by mail: once the log says that no answer came in time

Answers after that, and second ones, are recorded and change nothing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from threading import Condition
from typing import Any, Final

import orjson

from strandline.errors import InvalidInput, StrandlineError, Unavailable
from strandline.group.core.encoding import decoded, encoded
from strandline.group.core.parts import Data, Hook, Produce, Start, StartHandler, Told
from strandline.group.core.perform import StepFailed
from strandline.group.handlers import Answer, Callee, Handlers, in_time
from strandline.group.history import ENDS, PAGE_BYTES, History, Question
from strandline.group.mail import WORK, Mail, Message, box_of, code_named, written
from strandline.group.plan import POST, GroupPlan
from strandline.group.points import reached
from strandline.group.record import Lease, Record
from strandline.group.settings import WAIT_LEAST_S, WAIT_MOST_S, GroupSettings
from strandline.group.step_threads import StepThreads
from strandline.group.target import CellTarget, Owner, SqlTarget
from strandline.group.times import Times

LOOK_S: Final = 0.25
"""Who waits for an answer by mail looks so often whether it is to stop."""
PATIENCE_S: Final = 5.0
"""So much longer than its time-out an answer is waited for where the log's clock is behind."""
NO_ANSWER: Final = Answer(None, "no answer in time", timed_out=True)


class Paused(Exception):
    """The processor stops while an answer, or a target, is to come: the group is left as it is, for who resumes it."""


@dataclass(slots=True)
class OpenTarget:
    """A target that is open, and whose it is."""

    target: SqlTarget | CellTarget
    owner: Owner


@dataclass(slots=True)
class Shared:
    """What the groups of one processor share."""

    settings: GroupSettings
    targets: Mapping[str, OpenTarget]
    handlers: Handlers
    mail: Mail
    lease: Lease
    clock: Callable[[], int]
    pool: StepThreads
    asking_pool: Executor
    """For steps that ask somebody."""
    waits: Callable[[str, int], None]
    """So many more steps of a group wait for an answer by mail, or for a target that is away."""
    times: Times
    changed: Callable[[], None]
    """Something happened after a group's end that the processor should look at."""


class Asking:
    """The messages of one group."""

    def __init__(self, shared: Shared, record: Record, plan: GroupPlan) -> None:
        self.shared, self.record, self.plan = shared, record, plan
        self.history: History = record.history
        self.failure: tuple[str | None, str, str] | None = None
        self.own_handlers: dict[str, Callee] = {}
        """Those that it started, in this process."""
        self.hooks_until: dict[str, float] = {}
        self._heard = Condition(record.lock)

    def message_id(self, *parts: str) -> str:
        """The same for every delivery of a message, before and after a crash; another in another life of the id."""
        text = "\0".join((self.history.id, str(self.history.life), self.history.hash, *parts))
        return f"{self.history.id}/{hashlib.sha256(text.encode()).hexdigest()[:32]}"

    # ------------------------------------------------------------ questions

    def asked(
        self, step: str, recipe: str, handler: str, message: Message, timeout_s: float | None, *, again: bool = False
    ) -> Answer:
        """Ask a handler, and wait for its answer; `again` forgets one that was no result."""
        if again:
            self.history.questions.pop(self.message_id(step, recipe), None)
        return self.question(step, recipe, handler, Data(), timeout_s, message)()

    def question(
        self, step: str, recipe: str, handler: str, data: Data, timeout_s: float | None, what: Message | None = None
    ) -> Callable[[], Answer]:
        """Ask a handler, unless its answer is saved; what is given waits for the answer, and saves it."""
        message_id = self.message_id(step, recipe)
        known = self.history.questions.get(message_id)
        if known is not None and known.answered and known.answer is not None:
            saved = read_answer(known.answer)
            return lambda: saved
        seconds = timeout_s or self.shared.settings.answer_timeout_s
        asked = {"step": step, "recipe": recipe, "message_id": message_id, "timeout_s": seconds}
        way = self._way(handler)

        def message(deadline: int) -> Message:
            return what or Produce(data, self.history.id, step, recipe, message_id, 1, deadline)

        if isinstance(way, str):
            if known is None:
                self._ask({**asked, "box": way})
            return self._by_mail(message_id, way, handler, message, known is None)
        self._ask(asked)
        return self._here(message_id, handler, message(self.shared.clock() + int(seconds * 1e6)), seconds, way)

    def _ask(self, payload: Mapping[str, Any]) -> None:
        self.record.add("Asked", payload)
        self.record.flush()
        reached("asked.recorded")

    def _way(self, handler: str) -> str | Answer | None:
        """The work journal that leads to a handler; None for one of this process; an answer if there is no way."""
        start = self.plan.group.pre_hook
        if isinstance(start, StartHandler) and handler == start.name:
            if handler in self.own_handlers:
                return None
            handler = start.factory
        if handler in self.shared.handlers.registry:
            return None
        if handler.startswith(WORK):
            return handler.removeprefix(WORK)
        name = code_named(handler)
        if name is None:
            return None
        code = self.history.code.get(name)
        missing = f"NotFound.code: nothing before this group in its stream loads {name!r} (load_code)"
        return Answer(None, missing) if code is None else box_of(code)

    def _here(
        self, message_id: str, handler: str, message: Message, seconds: float, known: Answer | None
    ) -> Callable[[], Answer]:
        """Ask a handler of this process."""
        until = time.monotonic() + seconds
        call: Future[Answer] = Future()
        if known is not None:
            call.set_result(known)
        else:
            call = self.shared.handlers.call(handler, message, self.own_handlers)

        def answered() -> Answer:
            answer, attempt, wait_s, calling = self._waited(call, until), 1, WAIT_LEAST_S, call
            while answer.retryable and attempt <= self.shared.settings.retries and time.monotonic() + wait_s < until:
                time.sleep(wait_s)
                attempt, wait_s = attempt + 1, min(2 * wait_s, WAIT_MOST_S)
                again = message._replace(attempt=attempt) if isinstance(message, Produce) else message
                calling = self.shared.handlers.call(handler, again, self.own_handlers)
                answer = self._waited(calling, until)
            if answer.timed_out:
                self.shared.handlers.hung[message_id] = handler
                calling.add_done_callback(lambda done: self._late(message_id, done.result()))
            answer = self._save_answer(message_id, answer)
            reached("answered")
            return answer

        return answered

    def _waited(self, call: Future[Answer], until: float) -> Answer:
        """A local answer. Of a group that has failed it is waited for no longer than a statement would be."""
        failed = self.history.decided is not None
        while not failed and not call.done() and (left_s := until - time.monotonic()) > 0:
            in_time(call, time.monotonic() + min(left_s, LOOK_S))
            if failed := self.has_failed():
                until = min(until, time.monotonic() + self.shared.settings.statement_timeout_s)
        return in_time(call, until)

    def _save_answer(self, message_id: str, answer: Answer) -> Answer:
        try:
            made = written_answer(answer)
        except (InvalidInput, orjson.JSONEncodeError) as error:
            answer = Answer(None, str(error))
            made = written_answer(answer)
        if len(orjson.dumps(made)) > PAGE_BYTES:
            answer = Answer(None, f"an answer of more than {PAGE_BYTES:,} bytes")
            made = written_answer(answer)
        self.record.add("Answered", {"message_id": message_id, "answer": made})
        return answer

    def _late(self, message_id: str, answer: Answer) -> None:
        """An answer after its time: recorded while the group runs, and without effect."""
        with self.record.lock:
            if self.history.state not in ENDS:
                try:
                    made = written_answer(answer)
                    self.record.add("Answered", {"message_id": message_id, "answer": made, "late": True})
                except StrandlineError:
                    return

    # ------------------------------------------------------------ by mail

    def _by_mail(
        self, message_id: str, box: str, handler: str, message: Callable[[int], Message], asked_now: bool
    ) -> Callable[[], Answer]:
        """Send a question to a work journal, unless that was done; the wait goes on after a crash."""
        question = self.history.questions[message_id]
        deadline, began = self._deadline(question), time.monotonic()
        sending: Future[Answer] | None = None
        if not question.sent:
            sending = self._post(box, message_id, handler, message(deadline), began + question.timeout_s)
        going_back = self.history.decided is not None

        def answered() -> Answer:
            self.shared.waits(self.history.id, 1)
            try:
                return waited()
            finally:
                self.shared.waits(self.history.id, -1)

        def waited() -> Answer:
            look_at = began + (question.timeout_s if asked_now else 0.0)
            patient_until = began + question.timeout_s + PATIENCE_S
            while True:
                not_sent = sending.result() if sending is not None and sending.done() else Answer({})
                with self._heard:
                    if question.answer is None and not_sent.results is not None:
                        self._heard.wait(min(max(0.0, look_at - time.monotonic()), LOOK_S))
                    if question.answer is not None:
                        return read_answer(question.answer)
                self.shared.lease.check()
                if self.shared.mail.stopping():
                    raise Paused
                if not going_back and self.has_failed():
                    raise StepFailed("cancelled", "the group has failed")
                if not_sent.results is None:
                    return self._unless_heard(message_id, question, not_sent)
                if (now := time.monotonic()) >= look_at:
                    try:
                        left_s = self.shared.mail.left_s(message_id, deadline, patient=now < patient_until)
                    except Unavailable:  # nobody knows while the log is away
                        left_s = LOOK_S
                    if left_s is None:
                        return self._unless_heard(message_id, question, NO_ANSWER)
                    look_at = now + max(WAIT_LEAST_S, min(left_s, patient_until - now))

        return answered

    def pause(self, seconds: float) -> None:
        """Wait before a target that is away is tried again: in nobody's way but on the group's rows."""
        until = time.monotonic() + seconds
        self.shared.waits(self.history.id, 1)
        try:
            with self.shared.pool.waiting():
                self._sleep(until)
        finally:
            self.shared.waits(self.history.id, -1)

    def _sleep(self, until: float) -> None:
        while (left_s := until - time.monotonic()) > 0:
            self.shared.lease.check()
            if self.shared.mail.stopping():
                raise Paused
            time.sleep(min(left_s, LOOK_S))

    def has_failed(self) -> bool:
        """Whether the group goes back as soon as nothing of it runs."""
        return self.failure is not None

    def _deadline(self, question: Question) -> int:
        """By the log's clock."""
        return (question.at or self.shared.clock()) + int(question.timeout_s * 1e6)

    def _unless_heard(self, message_id: str, question: Question, answer: Answer) -> Answer:
        with self._heard:
            saved = question.answer
            return self._save_answer(message_id, answer) if saved is None else read_answer(saved)

    def _post(
        self, box: str, message_id: str, handler: str, message: Message, until: float, *, ack: bool = False
    ) -> Future[Answer]:
        """Put a message into a work journal, in a thread of the handlers; the future is told whether that worked."""
        start = self.plan.group.pre_hook
        started = None
        if isinstance(start, StartHandler) and handler == start.name:
            started = Start(self.history.id, start.name, start.factory, start.props, message_id)
        made = written(message, handler, started, ack=ack)

        def post(_: Any) -> None:
            self.shared.mail.post(box, message_id, made, until)
            reached("message.sent")
            with self._heard:
                if message_id in self.history.questions and self.history.state not in ENDS:
                    self.record.add("Sent", {"message_id": message_id})

        return self.shared.handlers.run(post, message)

    def hear(self, message: Mapping[str, Any]) -> None:
        """An answer or an ack from the inbox: into the history, before it is deleted there."""
        message_id = message["message_id"]
        question, hook = self.history.questions.get(message_id), self.history.hooks.get(message_id)
        with self._heard:
            open_ = self.history.state not in ENDS
            if message["type"] == "Ack":
                if hook is not None:
                    self._hook_done(message_id)
                elif question is not None and open_ and not question.acked:
                    self.record.add("Acked", {"message_id": message_id})
            elif question is not None and open_:
                payload = {"message_id": message_id, "answer": message["answer"]}
                late = question.answered or question.box is None or message["at"] > self._deadline(question)
                self.record.add("Answered", {**payload, "late": True} if late else payload)
            self._heard.notify_all()
        self.record.flush()

    # ------------------------------------------------------------ hooks

    def tell(self, hook: Hook | None, step: str, when: str, succeeded: bool | None = None) -> None:
        """Tell a hook, once its message is in the log. Nobody waits for it."""
        if hook is None:
            return
        self.queue_hook(hook, step, when, succeeded)
        self.record.flush()
        reached("hook.queued")
        self.send_hooks()

    def queue_hook(
        self, hook: Hook, step: str, when: str, succeeded: bool | None = None, end: str | None = None
    ) -> None:
        message_id = self.message_id(step, when)
        with self.record.lock:
            if message_id not in self.history.hooks:
                payload = {
                    "message_id": message_id, "step": step, "when": when, "handler": hook.handler, "ack": hook.ack,
                    "timeout_s": hook.timeout_s, "succeeded": succeeded, "end": end, "n": self.history.last + 1,
                }  # fmt: skip
                self.record.add("HookQueued", payload)

    def send_hooks(self) -> None:
        """Send what is queued and was not sent by this process."""
        with self.record.lock:
            waiting = [
                (message_id, hook)
                for message_id, hook in self.history.hooks.items()
                if not hook.done and message_id not in self.hooks_until
            ]
            for message_id, hook in waiting:
                seconds = hook.payload.get("timeout_s") or self.shared.settings.answer_timeout_s
                self.hooks_until[message_id] = time.monotonic() + seconds
        for message_id, hook in waiting:
            self._send(message_id, hook.payload, 1)

    def _send(self, message_id: str, payload: Mapping[str, Any], attempt: int) -> None:
        told = Told(
            self.history.id, payload["step"], payload["when"], payload["n"], message_id,
            payload["succeeded"], payload["end"],
        )  # fmt: skip
        handler, way = payload["handler"], self._way(payload["handler"])
        if isinstance(way, Answer):
            return self._hook_done(message_id, gave_up=True)
        if way is not None:
            call = self._post(way, message_id, handler, told, self.hooks_until[message_id], ack=payload["ack"])
        else:
            call = self.shared.handlers.call(handler, told, self.own_handlers)
        reached("hook.sent")

        def returned(answer: Answer) -> None:
            failed = answer.results is None
            again = way is None and payload["ack"] and failed and attempt <= self.shared.settings.retries
            if again and time.monotonic() < self.hooks_until[message_id]:
                self._send(message_id, payload, attempt + 1)
            elif way is None or failed or not payload["ack"]:  # else it is over with `groups.ack`
                self._hook_done(message_id, gave_up=way is not None and failed)

        call.add_done_callback(lambda done: returned(done.result()))
        return None

    def _hook_done(self, message_id: str, gave_up: bool = False) -> None:
        with self.record.lock:
            if self.history.hooks[message_id].done:
                return
            self.record.add("HookDone", {"message_id": message_id, "gave_up": gave_up})
        self.shared.changed()

    def give_up_hooks(self) -> None:
        """Those that did not return in time are over; they changed nothing."""
        now = time.monotonic()
        for message_id, until in list(self.hooks_until.items()):
            if until <= now and not self.history.hooks[message_id].done:
                self._hook_done(message_id, gave_up=True)

    def queue_post(self, end: str) -> None:
        """The group's own post-hook, whatever the end."""
        hook = self.plan.group.post_hook
        if isinstance(hook, Hook):
            self.queue_hook(hook, POST, "post", end == "committed", end)


def written_answer(answer: Answer) -> dict[str, Any]:
    """An answer as JSON; `InvalidInput.payload_type` for results that cannot be kept."""
    if answer.results is not None:
        made = {"results": encoded(answer.results)}
        orjson.dumps(made)
        return made
    return {"reason": answer.reason, "timed_out": answer.timed_out}


def read_answer(made: Mapping[str, Any]) -> Answer:
    if "results" in made:
        return Answer(decoded(made["results"]))
    return Answer(None, made["reason"], timed_out=made.get("timed_out", False))
