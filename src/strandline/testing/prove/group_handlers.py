"""What stands between a processor and the world of a program: kills at named points, and handlers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any, Final, Protocol

from strandline.group.core.parts import Refused
from strandline.testing.prove.group_model import ModelGroupEnd
from strandline.testing.prove.group_statements import Spec
from strandline.testing.prove.group_steps import ProgramStep, answer_of
from strandline.testing.prove.program import Difference

DEADLINE_S: Final = 0.4
"""Of a group with a handler that lets its time pass."""


class HandlerWorld(Protocol):
    """The part of a run that knows what handlers do."""

    groups: Any

    def step(self, group: str, step: str) -> ProgramStep: ...

    def foreign(self, call: Spec) -> None: ...

    def lock(self, on: Any, seconds: float) -> None: ...


class ProgramHandlers:
    """The handlers, what they were asked and told, and what they must have been."""

    def __init__(self, run: HandlerWorld) -> None:
        self._run = run
        self._lock = threading.Lock()
        self.late = threading.Event()
        self.calls: Counter[str] = Counter()
        self.steps: dict[str, tuple[str, str]] = {}
        self.undone: set[tuple[str, str]] = set()
        self.hooks: dict[str, set[tuple[Any, ...]]] = {}
        self.saved: set[str] = set()
        """Messages whose answers were in the log when a processor was killed."""
        self._foreign: set[tuple[str, str]] = set()
        self.again: list[str] = []

    def asked(self, message: Any) -> Any:
        with self._lock:
            self.calls[message.message_id] += 1
            self.steps[message.message_id] = (message.group, message.step)
            if message.message_id in self.saved:
                self.again.append(f"{message.step} of {message.group}")
        how = self._run.step(message.group, message.step).asks or {}
        return self._act(how, message)

    def _act(self, how: Spec, message: Any) -> Any:
        do = how.get("do")
        if do == "raise":
            raise RuntimeError("no")
        if do == "refuse" or (do == "refuse_once" and message.attempt == 1):
            return Refused("busy", retryable=True)
        if do == "late":
            self.late.wait(0.1)
        if do in ("cancel", "deadline"):
            self._stopped(message.group, do)
        if do == "lock":
            self._run.lock(how.get("on"), how.get("seconds") or 0.1)
        with self._lock:
            first = (message.group, message.step) not in self._foreign
            self._foreign.add((message.group, message.step))
            if do == "foreign" and first:
                self._run.foreign(how.get("call") or {})
        return {"value": answer_of(how)}

    def _stopped(self, group: str, do: str) -> None:
        """Cancel a group and answer when it knows; or let its time pass."""
        groups = self._run.groups
        if do == "deadline":
            self.late.wait(DEADLINE_S + 0.05)
            return
        groups.cancel(group)
        until = time.monotonic() + 10
        while time.monotonic() < until and not self.late.is_set():
            if any(type_ == "Cancelled" for type_, _, _ in groups.history(group)):
                return
            time.sleep(0.005)

    def undo(self, message: Any) -> None:
        with self._lock:
            self.undone.add((message.group, message.step))

    def hook(self, message: Any) -> None:
        with self._lock:
            told = (message.step, message.when, message.succeeded, message.end)
            self.hooks.setdefault(message.group, set()).add(told)

    def check(self, group: str, end: ModelGroupEnd) -> None:
        with self._lock:
            if self.again:
                raise Difference("asked again", f"{self.again}: its answer was in the log")
            undone = {step for id_, step in self.undone if id_ == group}
            hooks = self.hooks.get(group, set())
            asked = Counter(
                step for id_, step in self.steps.values() if id_ == group and not self._run.step(group, step).optional
            )
        if undone != end.undone_by_handler:
            raise Difference("undo handler", f"{undone} of {group}, not {end.undone_by_handler}")
        hooks = {told for told in hooks if told[0] not in end.loose}
        if hooks != {told for told in end.hooks if told[0] not in end.loose}:
            raise Difference("hooks", f"{sorted(map(str, hooks))} of {group}, not {sorted(map(str, end.hooks))}")
        if asked != Counter(dict.fromkeys(end.asked, 1)):
            raise Difference("asked", f"{dict(asked)} of {group}, not {end.asked}")
