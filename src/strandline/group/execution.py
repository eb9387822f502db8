"""One group on its way: forward, and back if a step fails. What it does is in its record before anybody relies on it.

The log is written before a message goes to a handler or hook, before an irreversible step, and when it is decided;
steps on SQL targets take what is not in the log along in their own commits. Whoever resumes a group runs the same code:
what its history knows is not done again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import orjson

from strandline.errors import InvalidInput, StrandlineError, Unavailable
from strandline.group import cell_steps
from strandline.group.checks import Check, Verdict, decided, verdict
from strandline.group.core.encoding import decoded, encoded
from strandline.group.core.parts import IDENTITY, Data, Hook, Produce, Recipe, StartHandler, Told
from strandline.group.core.perform import Job, StepFailed, perform
from strandline.group.core.runner import Runner
from strandline.group.core.schedule import Schedule
from strandline.group.core.scope import Scope
from strandline.group.handlers import Answer, Callee, Handlers, in_time
from strandline.group.history import ENDS, PAGE_BYTES, History, result
from strandline.group.plan import POST, PRE, GroupPlan, Planned
from strandline.group.points import reached
from strandline.group.record import Lease, Record
from strandline.group.settings import GroupSettings
from strandline.group.target import CellTarget, Done, Failed, Limits, Owner, SqlTarget, StepId, Work
from strandline.group.times import Times

WAIT_LEAST_S, WAIT_MOST_S = 0.1, 5.0
T = TypeVar("T")
FINAL: Final = "never"


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
    lease: Lease
    clock: Callable[[], int]
    pool: Executor
    times: Times
    changed: Callable[[], None]
    """Something happened after a group's end that the processor should look at."""


class Forward:
    """A group going forward. It is the host of its steps."""

    def __init__(self, shared: Shared, record: Record, plan: GroupPlan, *, resumed: bool) -> None:
        self.shared, self.record, self.plan = shared, record, plan
        self.history: History = record.history
        self.attempted: set[str] = set(plan.steps) if resumed else set()
        """Steps whose statement may have been sent."""
        self.failure: tuple[str | None, str, str] | None = None
        self._own_handlers: dict[str, Callee] = {}
        self._final = False
        """An irreversible step was sent: from there on it goes forward only."""
        self._runner: Runner | None = None
        self.hooks_until: dict[str, float] = {}
        for name in (*plan.steps, *plan.rollback):
            self.history.step(name)

    # ------------------------------------------------------------ going forward

    def forward(self) -> None:
        """Run all steps; afterwards `failure` says why it has to go back, if it has."""
        self._final = any(
            one.undo == FINAL and self.history.step(name).attempts for name, one in self.plan.steps.items()
        )
        if self.history.cancelled:
            self.fail(None, "cancelled", "")
        self._start_handler()
        runner = self._runner = Runner(Schedule(self.plan.wants()), self._step, self.shared.pool)
        if self.failure is None:
            left_s = self._seconds - (self.shared.clock() - self.history.started) / 1e6
            deadline = time.monotonic() + max(0.0, min(left_s, self._seconds))
            if left_s <= 0:
                self._past_deadline()
            runner.run(deadline, self._past_deadline)
        if self.failure is None and set(runner.schedule.state.values()) != {"succeeded"}:
            raise RuntimeError(f"group {self.history.id} has steps that never started: {runner.schedule.state}")

    def fail(self, step: str | None, reason: str, detail: str) -> bool:
        """Say why the group fails; the first reason counts, and none once it is decided or final."""
        with self.record.lock:
            if self.failure is not None or self.history.decided is not None:
                return False
            if self._final and step is None:
                return False
            self.failure = (step, reason, detail)
        if self._runner is not None:
            self._runner.stop()
        return True

    def _past_deadline(self) -> None:
        self.fail(None, "deadline", f"not done within {self._seconds:g} s")

    @property
    def _seconds(self) -> float:
        return self.plan.group.deadline_s or self.shared.settings.deadline_s

    def _start_handler(self) -> None:
        """A `StartHandler` is waited for; where it fails the group is aborted."""
        start = self.plan.group.pre_hook
        if not isinstance(start, StartHandler) or self.failure is not None:
            return
        started: list[Any] = []
        factory = self.shared.handlers.registry.get(start.factory)

        def make(props: Any) -> None:
            if factory is None:
                raise LookupError(f"there is no handler {start.factory!r}")
            started.append(factory(props))

        call = self.shared.handlers.call("make", dict(start.props), {"make": make})
        answer = in_time(call, time.monotonic() + self.shared.settings.answer_timeout_s)
        if answer.results is None or not started:
            self.fail(PRE, "recipe_error", f"{start.name} did not start: {answer.reason}")
        else:
            self._own_handlers[start.name] = started[0]

    def stop_handlers(self) -> None:
        """End what this group started."""
        for handler in self._own_handlers.values():
            stop = getattr(handler, "stop", None)
            if stop is not None:
                self.shared.handlers.call("stop", None, {"stop": _without_message(stop)})
        self._own_handlers = {}

    def _step(self, name: str) -> bool:
        """Do a step; whether it succeeded."""
        job, state = self.plan.steps[name], self.history.step(name)
        if state.reason is not None:  # it failed before a crash
            self.fail(name, state.reason, state.detail)
            return False
        if self.failure is not None:
            return False
        if self._runner is not None:
            for recipe in state.results:  # saved before a crash
                self._runner.saved(name, recipe)
        try:
            self._tell(job.step.pre_hook, name, "pre")
            perform(job, state, self.history.steps, self, lambda: self._decided(name))
        except StepFailed as failed:
            with self.record.lock:
                if state.reason is None:
                    payload = {
                        "step": name,
                        "at": self.shared.clock(),
                        "reason": failed.reason,
                        "detail": failed.detail,
                    }
                    self.record.add("Result", {**payload, "unknown": failed.unknown})
            self.fail(name, failed.reason, failed.detail)
        self._tell(job.step.post_hook, name, "post", state.reason is None)
        return state.reason is None

    def _decided(self, name: str) -> None:
        if self._runner is not None:
            self._runner.decided(name)

    # ------------------------------------------------------------ host: statements

    def execute(self, job: Job, values: Mapping[str, Any]) -> Data:
        one = self.plan.steps.get(job.name) or self.plan.rollback[job.name]
        if one.plan is None or one.target is None:
            return Data()
        if one.undo == FINAL:
            return self._execute_last(one, values)
        started = self.shared.clock()
        reached("step.before")
        done = self._query(one, values) if not one.writes else self._write(one, values, self._retries(one))
        reached("step.done")
        self.record.add_all(result(one.name, done, self.shared.clock(), query=not one.writes, started=started))
        reached("step.recorded")
        return self.history.step(one.name).data or Data()

    def _execute_last(self, one: Planned, values: Mapping[str, Any]) -> Data:
        """An irreversible step: alone, with everything in the log, and until the answer is definite."""
        if self._runner is not None and not self._runner.alone():
            raise StepFailed("cancelled", "the group has failed")
        with self.record.lock:
            if self.failure is not None:
                raise StepFailed("cancelled", "the group has failed")
            self._final = True
            self.record.add("Intent", {"step": one.name, "at": self.shared.clock()})
        self.record.flush()
        done = self._write(one, values, None)
        self.record.add_all(result(one.name, done, self.shared.clock()))
        return self.history.step(one.name).data or Data()

    def _retries(self, one: Planned) -> int:
        return self.shared.settings.retries if one.step.retries is None else one.step.retries

    def limits(self, one: Planned) -> Limits:
        settings = self.shared.settings
        timeout_s = one.step.timeout_s or settings.statement_timeout_s
        return Limits(timeout_s, settings.rows_max, settings.image_bytes_max)

    def _query(self, one: Planned, values: Mapping[str, Any]) -> Done:
        target = self.shared.targets[one.target or ""].target
        if one.plan is None:
            raise TypeError(one)
        plan = one.plan
        return Done(0, self._tried(lambda: target.query(plan, values, self.limits(one)), self._retries(one)))

    def work(self, one: Planned, values: Mapping[str, Any], events: bytes) -> Work:
        """A step as its target wants it."""
        if one.plan is None:
            raise TypeError(one)
        return Work(
            self.step_id(one.name),
            one.plan,
            values,
            self.shared.lease.fence,
            undo=one.undo == "automatic",
            each=each_of(self.history, one),
            events=events,
            limits=self.limits(one),
        )

    def step_id(self, step: str) -> StepId:
        return StepId(self.history.id, self.history.life, self.history.hash, step)

    def _write(self, one: Planned, values: Mapping[str, Any], retries: int | None) -> Done:
        opened = self.shared.targets[one.target or ""]
        target = opened.target
        if isinstance(target, CellTarget):

            def tried(call: Callable[[], T | Failed]) -> T:
                return self._tried(call, retries)

            work, ahead_s = self.work(one, values, b""), self.shared.settings.clock_ahead_max_s
            return cell_steps.write(target, work, self.record, self.shared.times, tried, ahead_s)
        self.attempted.add(one.name)

        def run() -> Done | Failed:
            events, to = self.record.carried()
            done = target.run(opened.owner, self.work(one, values, events))
            if isinstance(done, Done):
                self.record.committed(to)
            return done

        return self._tried(run, retries)

    def _tried(self, call: Callable[[], T | Failed], retries: int | None) -> T:
        """Call, and again where that may help: so often, or (None) until the answer is definite."""
        wait_s, tries, unknown = WAIT_LEAST_S, 0, False
        while True:
            self.shared.lease.check()
            try:
                answer = call()
            except Unavailable as error:
                unknown = unknown or error.applied == "unknown"
                answer = Failed("statement", error.message, retry=error.retryable)
            if not isinstance(answer, Failed):
                return answer
            tries += 1
            if not answer.retry or (retries is not None and tries > retries):
                raise StepFailed(answer.reason, answer.detail, unknown=unknown)
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, WAIT_MOST_S)

    # ------------------------------------------------------------ host: recipes and checks

    def save(self, job: Job, recipe: str, results: Mapping[str, Any]) -> None:
        payload: dict[str, Any] = {"step": job.name, "recipe": recipe, "at": self.shared.clock()}
        if recipe != IDENTITY:
            try:
                payload["results"] = encoded(results)
                size = len(orjson.dumps(payload["results"]))
            except (InvalidInput, orjson.JSONEncodeError) as error:
                raise StepFailed("recipe_error", f"{recipe}: {error}") from None
            if size > PAGE_BYTES:
                raise StepFailed("too_large", f"{recipe}: {size:,} bytes of results; at most {PAGE_BYTES:,}")
        self.record.add("RecipeDone", payload)
        if self._runner is not None:
            self._runner.saved(job.name, recipe)

    def ask(self, job: Job, recipe: Recipe, data: Data) -> Callable[[], Mapping[str, Any]]:
        answered = self._asked(job.name, recipe.name, recipe.handler or "", data, recipe.timeout_s)

        def results() -> Mapping[str, Any]:
            answer = answered()
            if answer.results is None:
                reason = "recipe_timeout" if answer.timed_out else "recipe_error"
                raise StepFailed(reason, f"{recipe.name}: {answer.reason}")
            return answer.results

        return results

    def _asked(
        self, step: str, recipe: str, handler: str, data: Data, timeout_s: float | None, what: Any = None
    ) -> Callable[[], Answer]:
        """Ask a handler, unless its answer is saved; what is given waits for the answer, and saves it."""
        message_id = self.message_id(step, recipe)
        question = self.history.questions.get(message_id)
        if question is not None and question.answered and question.answer is not None:
            saved = _read(question.answer)
            return lambda: saved
        seconds = timeout_s or self.shared.settings.answer_timeout_s
        self.record.add("Asked", {"step": step, "recipe": recipe, "message_id": message_id, "timeout_s": seconds})
        self.record.flush()
        reached("asked.recorded")
        until = time.monotonic() + seconds
        deadline = self.shared.clock() + int(seconds * 1e6)
        message = what or Produce(data, self.history.id, step, recipe, message_id, 1, deadline)
        call = self.shared.handlers.call(handler, message, self._own_handlers)

        def answered() -> Answer:
            answer, attempt, wait_s, calling = in_time(call, until), 1, WAIT_LEAST_S, call
            while answer.retryable and attempt <= self.shared.settings.retries and time.monotonic() + wait_s < until:
                time.sleep(wait_s)
                attempt, wait_s = attempt + 1, min(2 * wait_s, WAIT_MOST_S)
                again = message._replace(attempt=attempt) if isinstance(message, Produce) else message
                calling = self.shared.handlers.call(handler, again, self._own_handlers)
                answer = in_time(calling, until)
            if answer.timed_out:
                self.shared.handlers.hung[message_id] = handler
                calling.add_done_callback(lambda done: self._late(message_id, done.result()))
            answer = self._save_answer(message_id, answer)
            reached("answered")
            return answer

        return answered

    def asked(
        self, step: str, recipe: str, handler: str, message: Any, timeout_s: float | None, *, again: bool = False
    ) -> Answer:
        """Ask a handler, and wait for its answer; `again` forgets one that was no result."""
        if again:
            self.history.questions.pop(self.message_id(step, recipe), None)
        return self._asked(step, recipe, handler, Data(), timeout_s, message)()

    def _save_answer(self, message_id: str, answer: Answer) -> Answer:
        try:
            made = _written(answer)
        except (InvalidInput, orjson.JSONEncodeError) as error:
            answer = Answer(None, str(error))
            made = _written(answer)
        if len(orjson.dumps(made)) > PAGE_BYTES:
            answer = Answer(None, f"an answer of more than {PAGE_BYTES:,} bytes")
            made = _written(answer)
        self.record.add("Answered", {"message_id": message_id, "answer": made})
        return answer

    def _late(self, message_id: str, answer: Answer) -> None:
        """An answer after its time: recorded while the group runs, and without effect."""
        with self.record.lock:
            if self.history.state not in ENDS:
                try:
                    self.record.add("Answered", {"message_id": message_id, "answer": _written(answer), "late": True})
                except StrandlineError:
                    return

    def decide(self, job: Job, data: Data, scope: Scope, decided: Callable[[], None]) -> None:
        one = self.plan.steps.get(job.name) or self.plan.rollback[job.name]
        state = self.history.step(job.name)
        if not one.checks or state.success is not None:
            return
        verdicts: dict[int, Verdict] = {}
        asks: list[tuple[int, Check, Callable[[], Answer]]] = []
        for n, check in enumerate(one.checks):
            if check.kind == "ask":
                answered = self._asked(job.name, f"success{n}", check.handler or "", data, check.timeout_s)
                asks.append((n, check, answered))
            else:
                verdicts[n] = verdict(check, scope, data.affected if one.writes else None)
        asks.sort(key=lambda ask: ask[1].optimistic)
        for n, check, answered in asks:
            if check.optimistic and all(found.value for found in verdicts.values()):
                decided()
            verdicts[n] = _of_answer(answered())
        self._record_verdicts(job.name, one.checks, [verdicts[n] for n in range(len(one.checks))])

    def _record_verdicts(self, step: str, checks: tuple[Check, ...], verdicts: list[Verdict]) -> None:
        listed = [
            {"check": check.kind, "value": found.value, "reason": found.reason, "detail": found.detail}
            for check, found in zip(checks, verdicts, strict=True)
        ]
        wrong = next((found for found in verdicts if not found.value), None)
        payload: dict[str, Any] = {"step": step, "at": self.shared.clock(), "verdicts": listed}
        payload["success"] = wrong is None
        if wrong is not None:
            payload |= {"reason": wrong.reason or "check_false", "detail": wrong.detail}
        self.record.add("Checked", payload)
        if wrong is not None:
            raise StepFailed(wrong.reason or "check_false", wrong.detail)

    # ------------------------------------------------------------ hooks

    def message_id(self, *parts: str) -> str:
        """The same for every delivery of a message, before and after a crash; another in another life of the id."""
        text = "\0".join((self.history.id, str(self.history.life), self.history.hash, *parts))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _tell(self, hook: Hook | None, step: str, when: str, succeeded: bool | None = None) -> None:
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
        call = self.shared.handlers.call(payload["handler"], told, self._own_handlers)
        reached("hook.sent")

        def returned(answer: Answer) -> None:
            again = payload["ack"] and answer.results is None and attempt <= self.shared.settings.retries
            if again and time.monotonic() < self.hooks_until[message_id]:
                self._send(message_id, payload, attempt + 1)
            else:
                self._hook_done(message_id)

        call.add_done_callback(lambda done: returned(done.result()))

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


def each_of(history: History, one: Planned) -> tuple[Mapping[str, Any], ...] | None:
    """The values of each run of a step's statement; None for a step that runs it once."""
    if one.step.for_each is None:
        return None
    source = one.step.for_each.partition(".")[0]
    rows = history.step(source).results[IDENTITY]["rows"]
    wanted = {name: each.name for name, each in one.sources.items() if each.kind == "row"}
    try:
        return tuple({name: row[column] for name, column in wanted.items()} for row in rows)
    except KeyError as error:
        raise StepFailed("binding", f":row has no {error}") from None


def _without_message(stop: Callable[[], Any]) -> Callee:
    return lambda _: stop()


def _written(answer: Answer) -> dict[str, Any]:
    if answer.results is not None:
        made = {"results": encoded(answer.results)}
        orjson.dumps(made)
        return made
    return {"reason": answer.reason, "timed_out": answer.timed_out}


def _read(made: Mapping[str, Any]) -> Answer:
    if "results" in made:
        return Answer(decoded(made["results"]))
    return Answer(None, made["reason"], timed_out=made.get("timed_out", False))


def _of_answer(answer: Answer) -> Verdict:
    """What a handler's answer to a check says."""
    if answer.timed_out:
        return Verdict(False, "check_timeout", answer.reason)
    if answer.results is None:
        return Verdict(False, "check_error", answer.reason)
    if "value" not in answer.results:
        return Verdict(False, "check_error", "the answer has no value")
    return decided(answer.results["value"])
