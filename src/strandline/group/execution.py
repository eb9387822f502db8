"""One group on its way: forward, and back if a step fails. What it does is in its record before anybody relies on it.

The log is written before a message goes to a handler or hook, before an irreversible step, and when it is decided;
steps on SQL targets take what is not in the log along in their own commits. Whoever resumes a group runs the same code:
what its history knows is not done again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

import orjson

from strandline.errors import InvalidInput, Unavailable
from strandline.group import cell_steps
from strandline.group.asking import Asking, Shared
from strandline.group.checks import Check, Verdict, decided, verdict
from strandline.group.core.encoding import encoded
from strandline.group.core.parts import IDENTITY, Data, Recipe, Start, StartHandler, Stop
from strandline.group.core.perform import Job, StepFailed, perform
from strandline.group.core.runner import Runner
from strandline.group.core.schedule import Schedule
from strandline.group.core.scope import Scope
from strandline.group.handlers import Answer, in_time
from strandline.group.history import PAGE_BYTES, History, result
from strandline.group.plan import PRE, GroupPlan, Planned
from strandline.group.points import reached
from strandline.group.record import Record
from strandline.group.settings import WAIT_LEAST_S, WAIT_MOST_S
from strandline.group.target import CellTarget, Done, Failed, Limits, SqlTarget, StepId, Work

T = TypeVar("T")
FINAL: Final = "never"


class Forward(Asking):
    """A group going forward. It is the host of its steps."""

    def __init__(self, shared: Shared, record: Record, plan: GroupPlan, *, resumed: bool) -> None:
        super().__init__(shared, record, plan)
        self.attempted: set[str] = set(plan.steps) if resumed else set()
        """Steps whose statement may have been sent."""
        self._final = any(one.undo == FINAL and self.history.step(name).attempts for name, one in plan.steps.items())
        """An irreversible step was sent: from there on it goes forward only."""
        self._runner: Runner | None = None
        self._deadline_at: float | None = None
        for name in (*plan.steps, *plan.rollback):
            self.history.step(name)

    # ------------------------------------------------------------ going forward

    def forward(self) -> None:
        """Run all steps; afterwards `failure` says why it has to go back, if it has."""
        if self.history.cancelled:
            self.fail(None, "cancelled", "")
        self._start_handler()
        runner = self._runner = Runner(Schedule(self.plan.wants()), self._step, self)
        if self.failure is None:
            left_s = self._seconds - self.history.ran_us / 1e6
            deadline = self._deadline_at = time.monotonic() + max(0.0, left_s)
            if left_s <= 0:
                self._past_deadline()
            runner.run(deadline, self._past_deadline)
        if self.failure is None and set(runner.schedule.state.values()) != {"succeeded"}:
            raise RuntimeError(f"group {self.history.id} has steps that never started: {runner.schedule.state}")

    def submit(self, do: Callable[[str], None], step: str, /) -> object:
        """A thread for a step. Those that ask somebody have others: who waits for an answer is in nobody's way."""
        return (self.shared.asking_pool if asks(self.plan.steps[step]) else self.shared.pool).submit(do, step)

    def fail(self, step: str | None, reason: str, detail: str) -> bool:
        """Say why the group fails; the first reason counts, and none once it is decided or final."""
        with self.record.lock:
            if self.failure is not None or self.history.decided is not None:
                return False
            if self._final and step is None:
                return False
            self.failure = (step, reason, detail)
        self._stop()
        return True

    def cancel(self) -> None:
        """Somebody wants it undone: it fails at once, and that is durable when this returns."""
        with self.record.lock:
            if self.history.decided is None and not self.history.cancelled:
                self.record.add("Cancelled", {"at": self.shared.clock()})
                if self.failure is None and not self._final:
                    self.failure = (None, "cancelled", "")
        self._stop()
        self.record.flush()

    def _stop(self) -> None:
        if self.failure is not None and self._runner is not None:
            self._runner.stop()

    def _past_deadline(self) -> None:
        self.fail(None, "deadline", f"not done within {self._seconds:g} s")

    def has_failed(self) -> bool:
        if self._deadline_at is not None and time.monotonic() >= self._deadline_at:
            self._past_deadline()
        return self.failure is not None

    @property
    def _seconds(self) -> float:
        return self.plan.group.deadline_s or self.shared.settings.deadline_s

    def _start_handler(self) -> None:
        """A `StartHandler` is waited for; where it fails the group is aborted."""
        start = self.plan.group.pre_hook
        if not isinstance(start, StartHandler) or self.failure is not None:
            return
        if self._way(start.factory) is not None:  # of another process: it is started there
            message_id = self.message_id(PRE, "start")
            made = Start(self.history.id, start.name, start.factory, start.props, message_id)
            try:
                answer = self.asked(PRE, "start", start.factory, made, None)
            except StepFailed:  # the group has failed meanwhile
                return
            if answer.results is None:
                self.fail(PRE, "recipe_error", f"{start.name} did not start: {answer.reason}")
            return
        started: list[Any] = []
        factory = self.shared.handlers.registry.get(start.factory)

        def make(props: Any) -> None:
            if factory is None:
                raise LookupError(f"there is no handler {start.factory!r}")
            started.append(factory(props))

        call = self.shared.handlers.run(make, dict(start.props))
        answer = in_time(call, time.monotonic() + self.shared.settings.answer_timeout_s)
        if answer.results is None or not started:
            self.fail(PRE, "recipe_error", f"{start.name} did not start: {answer.reason}")
        else:
            self.own_handlers[start.name] = started[0]

    def stop_handlers(self) -> None:
        """End what this group started."""
        start, asked = self.plan.group.pre_hook, self.history.questions.get(self.message_id(PRE, "start"))
        if isinstance(start, StartHandler) and asked is not None and asked.box is not None:
            message_id = self.message_id(PRE, "stop")
            until = time.monotonic() + self.shared.settings.answer_timeout_s
            self._post(asked.box, message_id, start.factory, Stop(self.history.id, start.name, message_id), until)
        for handler in self.own_handlers.values():
            stop = getattr(handler, "stop", None)
            if stop is not None:
                self.shared.handlers.run(lambda stop: stop(), stop)
        self.own_handlers = {}

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
            self.tell(job.step.pre_hook, name, "pre")
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
        self.tell(job.step.post_hook, name, "post", state.reason is None)
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
        reached("intent.recorded")
        done = self._write(one, values, None)
        reached("step.done")
        self.record.add_all(result(one.name, done, self.shared.clock()))
        reached("step.recorded")
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
            require="exists" if one.step.must_exist else "absent" if one.step.must_not_exist else "",
        )

    def step_id(self, step: str) -> StepId:
        return StepId(self.history.id, self.history.life, self.history.hash, step)

    def _write(self, one: Planned, values: Mapping[str, Any], retries: int | None) -> Done:
        opened = self.shared.targets[one.target or ""]
        if opened.target.dialect == "cassandra":

            def tried(call: Callable[[], T | Failed]) -> T:
                return self._tried(call, retries)

            work, ahead_s = self.work(one, values, b""), self.shared.settings.clock_ahead_max_s
            return cell_steps.write(
                cast(CellTarget, opened.target), work, self.record, self.shared.times, tried, ahead_s
            )
        target = cast(SqlTarget, opened.target)  # to ask for its methods takes long
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
            away = False
            try:
                answer = call()
            except Unavailable as error:
                away = True
                unknown = unknown or error.applied == "unknown"
                answer = Failed("statement", error.message, retry=error.retryable)
            if not isinstance(answer, Failed):
                return answer
            tries += 1
            if not answer.retry or (retries is not None and tries > retries):
                raise StepFailed(answer.reason, answer.detail, unknown=unknown, away=away)
            time.sleep(wait_s) if retries is not None else self.pause(wait_s)
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
        answered = self.question(job.name, recipe.name, recipe.handler or "", data, recipe.timeout_s)

        def results() -> Mapping[str, Any]:
            answer = answered()
            if answer.results is None:
                reason = "recipe_timeout" if answer.timed_out else "recipe_error"
                raise StepFailed(reason, f"{recipe.name}: {answer.reason}")
            return answer.results

        return results

    def decide(self, job: Job, data: Data, scope: Scope, decided: Callable[[], None]) -> None:
        one = self.plan.steps.get(job.name) or self.plan.rollback[job.name]
        state = self.history.step(job.name)
        if not one.checks or state.success is not None:
            return
        verdicts: dict[int, Verdict] = {}
        asks: list[tuple[int, Check, Callable[[], Answer]]] = []
        for n, check in enumerate(one.checks):
            if check.kind == "ask":
                answered = self.question(job.name, f"success{n}", check.handler or "", data, check.timeout_s)
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


def asks(one: Planned) -> bool:
    """Whether a step asks somebody."""
    return any(recipe.handler for recipe in one.recipes) or any(check.handler for check in one.checks)


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


def _of_answer(answer: Answer) -> Verdict:
    """What a handler's answer to a check says."""
    if answer.timed_out:
        return Verdict(False, "check_timeout", answer.reason)
    if answer.results is None:
        return Verdict(False, "check_error", answer.reason)
    if "value" not in answer.results:
        return Verdict(False, "check_error", "the answer has no value")
    return decided(answer.results["value"])
