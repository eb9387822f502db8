"""The threads that call handlers."""

from __future__ import annotations

import time
from collections import deque
from threading import Barrier
from typing import Any

import pytest

from strandline.group.handlers import Handlers


class SlowlyTaken(deque[Any]):
    """Who takes a call out is held up there."""

    def popleft(self) -> Any:
        found = super().popleft()
        time.sleep(0.02)
        return found


@pytest.mark.req("G26")
def test_no_call_waits_behind_another_while_a_thread_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second call comes while the only thread takes the first: it has a thread of its own, though that one hangs."""
    monkeypatch.setattr("strandline.group.handlers.deque", SlowlyTaken)
    handlers = Handlers({}, "default")

    def meet(together: Barrier) -> dict[str, int]:
        return {"n": together.wait()}

    handlers.run(meet, Barrier(1)).result(10)
    time.sleep(0.05)
    together = Barrier(2, timeout=10)
    answers = [handlers.run(meet, together)]
    time.sleep(0.005)
    answers.append(handlers.run(meet, together))
    assert sorted((answer.result(10).results or {})["n"] for answer in answers) == [0, 1]


@pytest.mark.req("G26")
def test_a_handler_that_exits_has_answered_and_costs_no_thread() -> None:
    def leave(message: Any) -> None:
        raise SystemExit(3)

    handlers = Handlers({}, "default")
    for _ in range(3):
        assert handlers.run(leave, None).result(5).reason == "SystemExit: 3"
