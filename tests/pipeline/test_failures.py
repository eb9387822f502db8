"""A task's error reaches the driver whole."""

from __future__ import annotations

import threading

import pytest

from strandline.errors import LeaseLost, SeqNrConflict, Unavailable
from strandline.pipeline.failures import TaskFailed, from_text, to_text
from strandline.pipeline.supervisor import Supervisor


def test_an_error_of_ours_comes_back_as_it_was() -> None:
    error = Unavailable("disk", code="no_space", hint="free some", applied="unknown", partition=3, raw=b"x")
    back = from_text(to_text(error))
    assert isinstance(back, Unavailable)
    assert (back.message, back.code, back.hint, back.applied) == ("disk", "no_space", "free some", "unknown")
    assert back.facts["partition"] == 3


def test_a_lost_lease_is_told_apart() -> None:
    assert isinstance(from_text(to_text(LeaseLost("gone"))), LeaseLost)
    assert isinstance(from_text(to_text(SeqNrConflict("x", code="first"))), SeqNrConflict)


def test_another_error_says_its_class() -> None:
    back = from_text(to_text(ZeroDivisionError("by zero")))
    assert isinstance(back, TaskFailed)
    assert "ZeroDivisionError: by zero" in str(back)


@pytest.mark.req("RR3")
def test_a_lease_that_was_lost_between_two_queries_ends_the_pipeline() -> None:
    """The keeper may find it while the driver waits before it starts the query again."""
    supervisor = object.__new__(Supervisor)
    supervisor._ending = threading.Event()
    supervisor.fatal = LeaseLost("another pipeline carries", hint="end this one")
    supervisor._ending.set()
    with pytest.raises(LeaseLost):
        supervisor._pass(None, broken=1)
