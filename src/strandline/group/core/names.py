"""Names in groups, and what is wrong with a definition."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from strandline.errors import CycleFound, InvalidGroup, InvalidInput, NotInvertible, shown

NAMES: Final = "letters, digits and _, 1 to 64 of them, no digit first"
IDS: Final = "1 to 200 of A-Z a-z 0-9 . _ : ~ -"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_ID: Final = re.compile(r"[A-Za-z0-9._:~-]{1,200}")


class Problem(NamedTuple):
    """Something wrong with a definition: where, and what."""

    code: str
    step: str | None
    text: str
    position: int | None = None

    def __str__(self) -> str:
        return f"{self.step}: {self.text}" if self.step else self.text


def is_name(value: object) -> bool:
    """Return whether this may name a step, a recipe, a result or a target."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def is_id(value: object) -> bool:
    """Return whether this may be a group's id, or a stream."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def bad_name(value: object, what: str, step: str | None = None) -> Problem:
    return Problem("name", step, f"{what} {shown(value)!r} is no name: give {NAMES}")


def bad_id(value: object, what: str) -> Problem:
    return Problem("name", None, f"{what} {shown(value)!r} is no {what}: give {IDS}")


def of_error(error: InvalidInput, step: str | None) -> Problem:
    """Return the error of another part as a problem of the definition."""
    return Problem(error.code, step, error.message, error.facts.get("column"))


def refusal(problems: list[Problem], group: object) -> InvalidGroup:
    """Return one error for all problems. Its class and code are those of the problems, where they are of one class."""
    codes = {problem.code for problem in problems}
    lines = "".join(f"\n  {problem}" for problem in problems)
    message = f"group {shown(group)!r} cannot be accepted:{lines}"
    facts: dict[str, Any] = {"problems": tuple(problems)}
    hint = "mend what is listed; nothing was recorded"
    if codes == {"cycle"}:
        return CycleFound(message, code="cycle", hint=hint, **facts)
    if codes == {"not_invertible"}:
        return NotInvertible(message, code="not_invertible", hint=hint, **facts)
    first = problems[0].code
    return InvalidGroup(message, code=first if first in InvalidGroup.codes else "value", hint=hint, **facts)
