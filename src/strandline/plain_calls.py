"""Handlers are plain functions: one that is async, or has a yield, would return at once and do nothing."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from strandline.errors import invalid, shown, text_of

OURS = str(Path(__file__).parent)
PLAIN = "a plain function: it is called in a thread"


def check_plain(handler: Callable[..., Any], field: str, hint: str = "") -> None:
    """Refuse a function, or a callable object, whose call does nothing by itself."""
    called = handler if inspect.isroutine(handler) or isinstance(handler, partial) else type(handler).__call__
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise invalid("handler", field, "is async", allowed=PLAIN, got=handler, hint=hint)
    if inspect.isgeneratorfunction(called):
        raise invalid("handler", field, "has a yield", allowed=PLAIN, got=handler)


def told(error: BaseException) -> str:
    """Return the text of an error that a handler raised, with the last line outside of this library in its
    traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(OURS)]
    at = f" at {theirs[-1].filename}:{theirs[-1].lineno}" if theirs else ""
    return shown(": ".join(filter(None, (type(error).__name__, text_of(error)))), 300) + at


def check_takes(handler: Callable[..., Any], count: int, field: str, allowed: str) -> None:
    """Refuse a function that cannot be called with so many arguments, if it says what it takes."""
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return  # some built-in functions do not tell their arguments
    try:
        signature.bind(*[None] * count)
    except TypeError:
        raise invalid("handler", field, f"takes {signature}", allowed=allowed, got=handler) from None


def check_ran(result: object) -> None:
    """Raise `TypeError` if what a handler returned is still to be run, as a lambda around an async function does."""
    if result is None or not (inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return
    close = getattr(result, "close", None)
    if close is not None:
        close()  # without a warning that nobody awaited it
    raise TypeError(f"the handler returned a {type(result).__name__}, which nobody runs: nothing was done")
