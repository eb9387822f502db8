"""Failures: how an error travels from a Spark task to the driver, as text in its result row."""

from __future__ import annotations

import orjson

import strandline.errors
from strandline.errors import StrandlineError


class TaskFailed(Exception):
    """A task failed with an error that is not one of ours: a bug, or a library's."""


def to_text(error: BaseException) -> str:
    """An error as text. Facts that JSON cannot carry come as their text."""
    if not isinstance(error, StrandlineError):
        return orjson.dumps({"class": type(error).__name__, "message": str(error)}).decode()
    said = {
        "class": type(error).__name__,
        "message": error.message,
        "code": error.code,
        "hint": error.hint,
        "applied": error.applied,
        "facts": error.facts,
    }
    return orjson.dumps(said, default=str).decode()


def from_text(text: str) -> Exception:
    """The error that `to_text` was given; one that is not ours becomes `TaskFailed`."""
    said = orjson.loads(text)
    cls = getattr(strandline.errors, said["class"], None)
    if isinstance(cls, type) and issubclass(cls, StrandlineError) and "code" in said:
        return cls(said["message"], code=said["code"], hint=said["hint"], applied=said["applied"], **said["facts"])
    return TaskFailed(f"{said['class']}: {said['message']}")
