"""Failures: how an error travels to the driver. A Spark task returns it as text in its result row. From the stream's
source it comes as text inside Spark's own error, which is pages long and does not have our classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

import orjson

import strandline.errors
from strandline.errors import StrandlineError

T = TypeVar("T")
CROSSING: Final = "strandline-error:"
_CROSSED: Final = re.compile(re.escape(CROSSING) + r"(\{.*\})$", re.MULTILINE)


class TaskFailed(Exception):
    """A task failed with an error that is not a `StrandlineError`: a bug, or a library's error."""


def to_text(error: BaseException) -> str:
    """Return an error as JSON text. Facts that JSON cannot hold become their text."""
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
    """Return the error that `to_text` was given; one that is not ours becomes `TaskFailed`."""
    said = orjson.loads(text)
    cls = getattr(strandline.errors, said["class"], None)
    if isinstance(cls, type) and issubclass(cls, StrandlineError) and "code" in said:
        return cls(said["message"], code=said["code"], hint=said["hint"], applied=said["applied"], **said["facts"])
    return TaskFailed(f"{said['class']}: {said['message']}")


def crossing(method: Callable[..., T]) -> Callable[..., T]:
    """Wrap a method that Spark calls in another process, so that `crossed` finds its error in Spark's text."""

    @wraps(method)
    def call(*args: Any) -> T:
        try:
            return method(*args)
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver decides
            raise TaskFailed(CROSSING + to_text(error)) from None

    return call


def crossed(text: str) -> Exception | None:
    """Return the error that a method wrapped by `crossing` raised, found in Spark's text of it;
    None if there is none.
    """
    found = _CROSSED.search(text)
    return from_text(found[1]) if found else None
