"""What comes next of a group: one decision about its plan and its history, and the only place that decides about time.

Pure: no clock, no thread, no input or output. The time is given (microseconds since the group started), and nothing but
the history tells what happened; so a group goes forward, goes back, and is resumed after a crash by the same decision.

    a handler that the group starts         Ask, before anything else
    a step whose needs are met              its pre-hook; Run of its segment, which is one transaction with what lies
                                            between its steps; Ask for each question; RecipeDone for each recipe;
                                            Checked once every verdict is in; its post-hook
    an irreversible step                    Run once all others have succeeded
    the last segment                        Run, which decides the group, too
    all steps have succeeded                Decide(commit), then End(committed)
    a failure: a step, cancel, deadline     nothing starts any more; who asks by mail stops waiting; once nothing runs
                                            here, Decide(rollback)
    going back, all behind a segment are    Void if nobody knows whether it ran; UndoIntent; Undo, or its rollback step,
    back                                    or its handler; UndoResult. One that failed holds back those before it
    all segments are back                   execute_on_failure in its order, then End(rolled_back | aborted)
    a question past its time                Answered: no answer in time
    a hook that is queued                   Send; HookDone when its time is over

An answer counts if it is in the history before the time-out is.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import deque
from collections.abc import Container, Iterator
from typing import Any, Final, Literal

from strandline.group.actions import Action, Ask, Decide, End, Note, Run, Send, UndoSegment, Void
from strandline.group.core.parts import SUCCESS, Handler, Hook, StartHandler
from strandline.group.core.schedule import Schedule
from strandline.group.core.step import StepFailed, StepState
from strandline.group.following import Following, failed_note
from strandline.group.history import ENDS, History, Payload, Question
from strandline.group.plan import POST, PRE, GroupPlan, Planned
from strandline.group.settings import GroupSettings

SECOND_US: Final = 1_000_000
NO_ANSWER: Final[Payload] = {"reason": "no answer in time", "timed_out": True}


def message_id(history: History, *parts: str) -> str:
    """Return the id of a message: the same for every delivery, also after a crash; another in another life of the
    id."""
    text = "\0".join((history.id, str(history.life), history.hash, *parts))
    return f"{history.id}/{hashlib.sha256(text.encode()).hexdigest()[:32]}"


class Course(Following):
    """The decision about one group, kept while it runs, so that each event costs only what it concerns.

    The driver carries out the actions that `decide` returns and applies the notes among them to the history. It reports
    applied events by `heard` and finished actions by `done`.
    """

    def __init__(
        self, plan: GroupPlan, history: History, settings: GroupSettings, unsure: Container[str] = frozenset()
    ) -> None:
        """`unsure`: segments that may have been sent although the history has no event of it."""
        super().__init__(history)
        self.plan, self._settings, self.unsure = plan, settings, unsure
        self.under: set[Action] = set()
        """The actions that are under way here."""
        self.running = 0
        """The number of them that are statements."""
        own = plan.group.pre_hook
        self._own = own if isinstance(own, StartHandler) and history.decided is None else None
        self._asks: dict[str, Ask] = {}
        """The questions that are under way here, by message."""
        self._to_send = deque(message for message, hook in history.hooks.items() if not hook.done)
        self._times: list[tuple[int, str]] = []
        """Times at which to look again at a step (its name), or at a hook (its message's id)."""
        self._failed_at: int | None = None
        self._deadline = int((plan.group.deadline_s or settings.deadline_s) * SECOND_US)
        self._look: dict[str, None] = {}
        """Steps that have news since the last decision."""
        self._owners: dict[str, list[str]] = {}
        """Rollback steps that run, and the steps that each of them undoes."""
        self._active: dict[str, None] = {}
        """Steps that may start and are not done; going back, segments and rollback steps."""
        self._succeeded: set[str] = set()
        self._held_back: str | None = None
        """A step that runs once all others have succeeded."""
        self._back_done = 0
        for name in (*plan.steps, *plan.rollback):
            history.step(name)
        self._order: Schedule | None = self._begin_back() if history.decided == "rollback" else None

    # ------------------------------------------------------------ what is told

    def heard(self, type_: str, payload: Payload) -> None:
        """Take note of an event that was applied to the history."""
        if type_ == "HookQueued":
            self._to_send.append(payload["message_id"])
        elif type_ == "Answered" and not payload.get("late"):
            self.under.discard(self._asks.pop(payload["message_id"], None))
        elif type_ == "Resolved" or (type_ == "Decided" and payload["decision"] == "rollback"):
            self._order = self._begin_back()
        name = payload.get("step", payload.get("segment"))
        if name is None and "message_id" in payload:
            question = self.history.questions.get(payload["message_id"])
            name = None if question is None else question.step
        if name is not None:
            self._new(name)

    def done(self, action: Action) -> None:
        """Note that an action is over, whatever its result."""
        if action in self.under:
            self.under.remove(action)
            self.running -= isinstance(action, Run)
        if isinstance(action, Ask):
            self._asks.pop(message_id(self.history, action.step, action.recipe), None)
            self._new(action.step)
        elif isinstance(action, (Run, Void, UndoSegment)):
            for name in self.plan.segments.steps.get(action.segment, (action.segment,)):
                self._new(name)

    def _new(self, name: str) -> None:
        """Consider a step in the next decision, because there is news of it."""
        for one in (*self._owners.get(name, ()), name, self.plan.segments.of.get(name, name)):
            if one in self._active:
                self._look[one] = None

    # ------------------------------------------------------------ the decision

    @property
    def _schedule(self) -> Schedule:
        """Return which steps may start; this is made when the first step is asked for."""
        if self._order is None:
            self._order = Schedule(self.plan.wants())
        return self._order

    def decide(self, now: int) -> list[Action]:
        """Return the next actions that are not under way here. The caller applies the notes
        before the next decision.
        """
        found = self._sends(now)
        while self._times and self._times[0][0] <= now:
            _, what = heapq.heappop(self._times)
            hook = self.history.hooks.get(what)
            if hook is not None:
                found += [] if hook.done else [Note("HookDone", {"message_id": what, "gave_up": True})]
            else:
                self._new(what)
        found += self._next(now)
        fresh: list[Action] = []
        for action in found:
            if not isinstance(action, Note):
                if action in self.under:
                    continue
                self.under.add(action)
                self.running += isinstance(action, Run)
            if isinstance(action, Ask):
                self._asks[message_id(self.history, action.step, action.recipe)] = action
            fresh.append(action)
        return fresh

    @property
    def wake_at(self) -> int | None:
        """Return when to decide again if there is no news before."""
        times = [self._times[0][0]] if self._times else []
        history = self.history
        if history.decided is None and history.failure is None and not history.final:
            times.append(self._deadline)
        return min(times, default=None)

    @property
    def waits_for_operator(self) -> bool:
        """Return whether an undo has failed, and nothing else is under way."""
        return bool(self.history.undo_failed) and all(isinstance(action, Send) for action in self.under)

    def _next(self, now: int) -> list[Action]:
        history = self.history
        if history.state in ENDS:
            return []
        if history.decided == "commit":
            return self._ended("committed")
        if history.decided == "rollback":
            return self._back(now)
        if self._own is not None and history.failure is None:
            return self._start(self._own, now)
        last = self.plan.segments.last
        if last is not None and history.failure is not None and not self.running and self._may_have_run(last):
            return [Run(last)] if self.is_committed(last) else [Void(last)]
        if history.failure is None and not history.final and now >= self._deadline:
            seconds = self._deadline / SECOND_US
            return [Note("Failed", {"reason": "deadline", "detail": f"not done within {seconds:g} s"})]
        if history.failure is not None:
            return self._stopping(now)
        return self._forward(now)

    def _may_have_run(self, last: str) -> bool:
        """Return whether the last segment is or may be committed. If so, its group cannot go back now."""
        if self.is_committed(last):
            return True
        others = (name for name, one in self.plan.steps.items() if one.plan is not None and name not in self._of(last))
        began = all(self.history.step(name).data is not None for name in others)
        return began and last in self.unsure and last not in self.history.voided

    def is_committed(self, last: str) -> bool:
        """Return whether the last segment is known to have run: it cannot be undone."""
        done = (name for name in self._of(last) if self.history.step(name).data is not None)
        return self.history.voided.get(last, False) or any(name not in self.history.gone for name in done)

    def stops(self, segment: str, now: int) -> bool:
        """Return whether the group has failed, so that a segment which runs does not go on. What is committed in the
        last segment counts, and only that one is too late at the deadline."""
        last = segment == self.plan.segments.last
        failed = self.history.failure is not None or (last and now >= self._deadline)
        return failed and not (last and self.is_committed(segment))

    def _of(self, segment: str) -> tuple[str, ...]:
        """Return the steps of a segment; a rollback step is alone."""
        return self.plan.segments.steps.get(segment, (segment,))

    def _sends(self, now: int) -> list[Action]:
        found: list[Action] = []
        while self._to_send:
            message = self._to_send.popleft()
            seconds = self.history.hooks[message].payload.get("timeout_s") or self._settings.answer_timeout_s
            heapq.heappush(self._times, (now + int(seconds * SECOND_US), message))
            found.append(Send(message))
        return found

    def _start(self, own: StartHandler, now: int) -> list[Action]:
        """Start the group's own handler before the group goes forward."""
        found: list[Action] = []
        answer = self.answer(Ask(PRE, "start", own.factory, None, "start"), now, found)
        if answer is None:
            return found
        if "results" in answer:
            self._own = None
            return self._next(now)
        reason = {"reason": "recipe_error", "detail": f"{own.name} did not start: {answer['reason']}"}
        return [Note("Failed", {"step": PRE, **reason})]

    def _looked_at(self) -> Iterator[str]:
        """Yield the names of steps to consider, until none is left. Considering one may add more."""
        while True:
            while (name := self._schedule.take()) is not None:
                self._active[name] = self._look[name] = None
            if not self._look:
                return
            name = next(iter(self._look))
            del self._look[name]
            if name in self._active:
                yield name

    # ------------------------------------------------------------ forward

    def _forward(self, now: int) -> list[Action]:
        found: list[Action] = []
        for name in self._looked_at():
            found += self._step(self.plan.steps[name], now)
        if not found and len(self._succeeded) == len(self.plan.steps):
            return [Note("Decided", {"decision": "commit"})]
        return found

    def _step(self, one: Planned, now: int) -> list[Action]:
        """Return what comes next of a step whose needs are met."""
        name, state = one.name, self.history.step(one.name)
        for recipe in state.results:
            self._schedule.saved(name, recipe)
        if one.step.pre_hook is not None and (note := self._hook(one.step.pre_hook, name, "pre")):
            return [note]
        if one.plan is not None and state.data is None:
            segment = self.plan.segments.of[name]
            if (one.undo == "never" or segment == self.plan.segments.last) and self._others_open(segment):
                self._held_back = name
                return []
            return [Run(segment)]
        found, is_decided, is_done = self.follow(one, state, now)
        if is_decided:
            self._schedule.decided(name)
        if not is_done:
            return found
        if one.step.post_hook is not None and (note := self._hook(one.step.post_hook, name, "post", succeeded=True)):
            return [note]
        del self._active[name]
        self._succeeded.add(name)
        self._schedule.decided(name)
        if self._held_back is not None:
            self._look[self._held_back] = None
        return []

    def _others_open(self, segment: str) -> bool:
        """Return whether a step of another segment has not succeeded yet."""
        mine = self._of(segment)
        return len(self._succeeded - {*mine}) < len(self.plan.steps) - len(mine)

    def _hook(self, hook: Hook, step: str, when: str, *, succeeded: bool | None = None, end: str | None = None) -> Any:
        """Return the note that queues a hook's message; None if it is queued."""
        message = message_id(self.history, step, when)
        if message in self.history.hooks:
            return None
        payload = {
            "message_id": message, "step": step, "when": when, "handler": hook.handler, "ack": hook.ack,
            "timeout_s": hook.timeout_s, "succeeded": succeeded, "end": end, "n": self.history.last + 1,
        }  # fmt: skip
        return Note("HookQueued", payload)

    # ------------------------------------------------------------ questions

    def answer(self, ask: Ask, now: int, found: list[Action]) -> Payload | None:
        """Return the answer to a question. If it is still to come, return None and add to `found`
        what has to be done for it.
        """
        message = message_id(self.history, ask.step, ask.recipe)
        question = self.history.questions.get(message)
        if question is not None and question.answered:
            return question.answer
        known = question is not None and (question.box is not None or ask in self.under)
        if question is None or not known:
            found.append(ask)
            return None
        until = self._until(question)
        if now >= until:
            found.append(Note("Answered", {"message_id": message, "answer": NO_ANSWER}))
        elif ask not in self.under:
            found.append(ask)
        else:
            heapq.heappush(self._times, (until, ask.step))
        return None

    def _until(self, question: Question) -> int:
        """Return how long to wait for an answer. A group that has failed waits no longer than for a statement."""
        until = question.asked + int(question.timeout_s * SECOND_US)
        if self._failed_at is not None and question.box is None and self.history.decided is None:
            until = min(until, self._failed_at + int(self._settings.statement_timeout_s * SECOND_US))
        return until

    # ------------------------------------------------------------ it has failed

    def _stopping(self, now: int) -> list[Action]:
        """Return the next actions of a failed group: no step starts, and steps that run here come to their end."""
        history = self.history
        if self._failed_at is None:
            self._failed_at = now
            self._look.update(self._active)
        if self.running:
            return []
        found: list[Action] = []
        while self._look:
            name = next(iter(self._look))
            del self._look[name]
            if name not in self._active:
                continue
            one, state = self.plan.steps[name], history.step(name)
            if state.reason is not None:
                hook = one.step.post_hook
                note = None if hook is None else self._hook(hook, name, "post", succeeded=False)
                found += [note] if note is not None else []
                del self._active[name]
                continue
            if one.plan is not None and state.data is None:
                del self._active[name]  # its statement never ran
                continue
            found += self._given_up(one, state, now)
        if not found and not self._active and not self.running and history.failure is not None:
            return [Decide(*history.failure)]
        return found

    def _given_up(self, one: Planned, state: StepState, now: int) -> list[Action]:
        """Return what follows of an unfinished step after its group failed: answers are kept, but
        no handler is asked.
        """
        questions = [ask for ask in self.under if isinstance(ask, Ask) and ask.step == one.name]
        known = {ask: self.history.questions.get(message_id(self.history, ask.step, ask.recipe)) for ask in questions}
        followed, _, done = self.follow(one, state, now)
        notes: list[Action] = [action for action in followed if isinstance(action, Note)]
        if notes:
            return notes
        open_ = [question for question in known.values() if question is None or not question.answered]
        if any(question is None or question.box is None for question in open_):
            return []
        if open_ or (not done and any(self._is_mail(ask) for ask in followed)):
            return [failed_note(one, StepFailed("cancelled", "the group has failed"))]
        if one.step.post_hook is not None and (done or known or state.data is not None):
            note = self._hook(one.step.post_hook, one.name, "post", succeeded=done)
            if note is not None:
                return [note]
        del self._active[one.name]
        return []

    def _is_mail(self, action: Action) -> bool:
        if not isinstance(action, Ask):
            return False
        question = self.history.questions.get(message_id(self.history, action.step, action.recipe))
        return question is not None and question.box is not None

    # ------------------------------------------------------------ back

    def _begin_back(self) -> Schedule:
        """Begin to go back. Each segment waits until the segments behind it are undone."""
        of = self.plan.segments.of
        wants: dict[str, list[tuple[str, str]]] = {of[name]: [] for name in reversed(self.plan.steps)}
        for name, needs in self.plan.wants().items():
            for need in {of[need] for need, _ in needs} - {of[name]}:
                wants[need].append((of[name], SUCCESS))
        self._active, self._look, self._owners, self._asks = {}, {}, {}, {}
        self.under = {action for action in self.under if not isinstance(action, Ask)}
        self._back_done = 0
        self._asked = {question.step for question in self.history.questions.values()}
        failed = self.plan.group.steps.get(self.history.failed_step or "")
        self._on_failure = list(failed.execute_on_failure) if failed is not None else []
        self._undoing = {one.step.undo for one in self.plan.steps.values() if isinstance(one.step.undo, str)}
        return Schedule(wants)

    def _back(self, now: int) -> list[Action]:
        found: list[Action] = []
        for name in self._looked_at():
            found += self._undo(name, now)
        if found or self._back_done < len(self.plan.segments.steps):
            return found
        return self._after_undo(now)

    def _undo(self, name: str, now: int) -> list[Action]:
        """Return the next actions of a segment on its way back; none if the undo of a step in it has failed."""
        history, steps = self.history, self._of(name)
        known = {step: history.undo[step].state for step in steps if step in history.undo}
        if "undo_failed" in known.values():
            return []
        if name not in self.plan.steps:  # a rollback step that the failed step calls for
            return [] if known.get(name) == "undone" else self._rolled(name, name, now)
        given = [step for step in steps if self.plan.steps[step].undo in ("automatic", "step", "handler")]
        ran = {step: self._ran(self.plan.steps[step]) for step in given if step not in known}
        if None in ran.values():
            return [Void(name)]
        if any(ran.values()):
            return [Note("UndoIntent", {"step": step}) for step in given if ran.get(step)]
        left = [step for step in reversed(steps) if known.get(step, "undone") != "undone"]
        if not left:
            del self._active[name]
            self._back_done += 1
            self._schedule.decided(name)
            return []
        if gone := [step for step in left if step in history.gone]:
            return [note for step in gone for note in self._result(step)]
        one = self.plan.steps[left[0]]
        if one.undo == "automatic":
            return [UndoSegment(name)]
        if history.undo[one.name].how == "accept_current":
            return self._result(one.name)
        return self._by_handler(one, now) if one.undo == "handler" else self._rolled(name, str(one.step.undo), now)

    def _result(self, name: str, by: str | None = None, failed: str | None = None) -> list[Action]:
        payload: dict[str, Any] = {"step": name, "state": "undone"}
        if by is not None:
            payload["by"] = by
        if failed is not None:
            payload |= {"state": "undo_failed", "detail": failed[:10_000]}
        return [Note("UndoResult", payload)]

    def _ran(self, one: Planned) -> bool | None:
        """Return whether a step ran and is to be undone; None if nobody knows."""
        history, name = self.history, one.name
        state = history.step(name)
        if not one.writes:
            return name in self._asked or bool(state.results) or state.data is not None
        if state.data is not None or name in history.intents or state.attempts > 0:
            return True
        segment = self.plan.segments.of[name]
        together = self._of(segment)
        if segment in history.voided or one.sql_target is None:
            return history.voided.get(segment, False)
        if any(other in history.gone for other in together):
            return False
        if any(history.step(other).data is not None for other in together):
            return True  # steps of one transaction ran together
        return None if segment in self.unsure else False

    def _by_handler(self, one: Planned, now: int) -> list[Action]:
        handler = one.step.undo
        if not isinstance(handler, Handler):
            raise TypeError(handler)
        found: list[Action] = []
        ask = Ask(one.name, "undo", handler.name, handler.timeout_s, "undo")
        answer = self.answer(ask, now, found)
        if answer is None:
            return found
        if "results" in answer:
            return self._result(one.name)
        if self.history.questions[message_id(self.history, one.name, "undo")].tries <= self._settings.undo_retries:
            return [ask]
        return self._result(one.name, failed=answer["reason"])

    def _rolled(self, name: str, by: str, now: int) -> list[Action]:
        """Undo a step by a rollback step. Each runs once, and does nothing if the data that it needs was never made."""
        job, states = self.plan.rollback[by], self.history.steps
        state = self.history.step(by)
        missing = any(
            source.kind == "result" and source.recipe not in self.history.step(source.name).results
            for source in job.sources.values()
        )
        if by in self.history.put_back or missing or any(not self._finished(need) for need, _ in job.wants):
            return self._result(name, by)
        owners = self._owners.setdefault(by, [])
        if name not in owners:
            owners.append(name)
        if state.reason is not None:
            detail = f": {state.detail}" if state.detail else ""
            return self._result(name, by, f"{by}: {state.reason}{detail}")
        if job.plan is not None and state.data is None:
            return [Run(by)]
        found, _, done = self.follow(job, states[by], now)
        return self._result(name, by) if done else found

    def _finished(self, name: str) -> bool:
        """Return whether a step got far enough to have its data."""
        one = self.plan.steps.get(name)
        if one is None or one.plan is None:
            return name in self.history.steps
        return self.history.step(name).data is not None

    def _after_undo(self, now: int) -> list[Action]:
        """Return what comes after all undo: rollback steps of the failed step, one after the other; then the end."""
        history = self.history
        while self._on_failure:
            name = self._on_failure[0]
            known = history.undo.get(name)
            if name in self._undoing or (known is not None and known.state == "undone"):
                self._active.pop(name, None)
                self._on_failure.pop(0)
                continue
            if known is not None and known.state == "undo_failed":
                return []
            if known is not None and known.how == "accept_current":
                return self._result(name, name)
            self._active[name] = None
            return self._rolled(name, name, now)
        ran = bool(history.undo)
        return self._ended("rolled_back" if ran else "aborted")

    def _ended(self, end: Literal["committed", "rolled_back", "aborted"]) -> list[Action]:
        hook = self.plan.group.post_hook
        if isinstance(hook, Hook) and (note := self._hook(hook, POST, "post", succeeded=end == "committed", end=end)):
            return [note]
        return [End(end)]
