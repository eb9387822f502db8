"""A task's error reaches the driver whole."""

from __future__ import annotations

from strandline.errors import LeaseLost, SeqNrConflict, Unavailable
from strandline.pipeline.failures import TaskFailed, from_text, to_text


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
