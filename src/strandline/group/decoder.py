"""The decoder makes the parts of a group from what a caller gives, in Python or as JSON, and collects all problems.

    in Python    parts as objects; a plain text where it can only be a name: a step's, a handler's
    as JSON      parts as objects of JSON; a plain text stands for the first field of any part

`problems` checks numbers, their limits, and conflicts between parts.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Final, NamedTuple

from strandline.errors import InvalidInput, received, shown
from strandline.group.checks import Check
from strandline.group.core.encoding import decoded
from strandline.group.core.expression import compiled
from strandline.group.core.names import Problem, of_error
from strandline.group.core.parts import Dep, Handler, Hook, Need, Recipe, StartHandler


class PartOfStep(NamedTuple):
    """The declaration of a field of a step."""

    kind: type[Any]
    words: str
    """Words that tell a caller what to give."""
    many: bool = False
    named: type[Any] | None = None
    """The class that a plain text is made into, in Python too; `str`: it stays a text."""


PARTS: Final[dict[str, PartOfStep]] = {
    "depends_on": PartOfStep(Dep, "a step's name, or Dep(…)", many=True, named=Dep),
    "recipes": PartOfStep(Recipe, "Recipe(…)", many=True),
    "needs": PartOfStep(Need, "Need(…)", many=True),
    "checks": PartOfStep(Check, "a check, e.g. affected_rows_equal(1)", many=True),
    "execute_on_failure": PartOfStep(str, "a step's name", many=True, named=str),
    "undo": PartOfStep(Handler, "a step's name, or Handler(…)", named=str),
    "pre_hook": PartOfStep(Hook, "a handler's name, or Hook(…)", named=Hook),
    "post_hook": PartOfStep(Hook, "a handler's name, or Hook(…)", named=Hook),
    "for_each": PartOfStep(str, "STEP.identity.rows", named=str),
}
START: Final = PartOfStep(StartHandler, "a handler's name, Hook(…), or StartHandler(…)")
PLACE: Final = "(TARGET, TABLE, {COLUMN: VALUE})"


class Decoder:
    """Decodes the parts of one step, or (`step` None) of the group. What is wrong goes into `problems`."""

    def __init__(self, step: object, problems: list[Problem], *, json: bool) -> None:
        self._step = step if isinstance(step, str) else None
        self._problems, self._json = problems, json

    def known(self, given: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """Return the given fields without unknown ones."""
        names = frozenset(names)
        for name in [name for name in given if name not in names]:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {' '.join(sorted(names))}"
            self._tell("setting", f"unknown field {shown(name)!r}; {hint}")
        return {name: value for name, value in given.items() if name in names}

    def options(self, given: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """Return the fields of a step; those that cannot be read are left out."""
        made = self.known(given, names)
        for name, part in PARTS.items():
            if name not in made:
                continue
            found = [self.part(name, part, one) for one in listed(made[name])] if part.many else []
            if part.many:
                made[name] = tuple(one for one in found if one is not None)
            elif made[name] is not None:
                made[name] = self.part(name, part, made[name])
        made["touches"] = tuple(place for one in listed(made.get("touches")) for place in self._place(one))
        return made

    def values(self, given: object) -> dict[str, Any]:
        """Return the values of a step, by name."""
        if given is not None and not isinstance(given, Mapping):
            self._tell("setting", f"values: {shown(given)} is no mapping; give {{'id': 7}} for :id in the statement")
        return dict(given) if isinstance(given, Mapping) else {}

    def part(self, name: str, part: PartOfStep, given: Any) -> Any:
        """Return a part of a step, or of the group; None if it cannot be read."""
        made = given
        if isinstance(given, str) and (part.named is not None or self._json):
            kind = part.named or part.kind
            made = given if kind is str else kind(given)
        elif self._json and isinstance(given, dict) and part.kind is not str:
            made = self._of_json(part.kind, given)
            if made is None:
                return None
        elif not isinstance(given, part.kind):
            return self._wrong(name, given, part.words)
        for field in _texts(type(made).__name__):
            value = getattr(made, field.name)
            if not isinstance(value, str) and not (value is None and field.default is None):
                return self._wrong(f"{type(made).__name__}: {field.name}", value, "text")
        self._read_expression(made)
        return made

    def _of_json(self, kind: type[Any], given: dict[str, Any]) -> Any:
        made = self.known(given, (one.name for one in fields(kind)))
        try:
            return kind(**{name: decoded(one) if name in ("values", "props") else one for name, one in made.items()})
        except InvalidInput as error:
            self._problems.append(of_error(error, self._step))
        except (TypeError, ValueError, KeyError) as error:
            self._tell("value", f"not a {kind.__name__}: {error}")
        return None

    def _read_expression(self, made: Any) -> None:
        """Read the expression of a part. In Python, one that cannot be read is refused by the call that has it."""
        try:
            if getattr(made, "expression", None) is not None:
                compiled(made.expression)
        except InvalidInput as error:
            if not self._json:
                raise
            self._problems.append(of_error(error, self._step))

    def _place(self, given: Any) -> Iterable[tuple[str, str, dict[str, Any]]]:
        fits = isinstance(given, (list, tuple)) and [isinstance(one, str) for one in given] == [True, True, False]
        if fits and isinstance(given[2], Mapping):
            yield given[0], given[1], dict(decoded(dict(given[2])) if self._json else given[2])
        else:
            self._wrong("touches", given, PLACE)

    def _wrong(self, what: str, value: object, wanted: str) -> None:
        if callable(value) and getattr(value, "__module__", "") == Check.__module__:
            wanted = f"{getattr(value, '__name__', '')}(…)"
        elif callable(value):
            wanted += "; a function is named here, and given to s.groups(handlers={NAME: function})"
        self._tell("value", f"{what}: {received(value)} is of another kind; give {wanted}")

    def _tell(self, code: str, text: str) -> None:
        self._problems.append(Problem(code, self._step, text))


def listed(given: Any) -> list[Any]:
    """Return what is given as a list. A single value becomes a list of one."""
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))
    return [] if given is None else list(given) if several else [given]


@cache
def _texts(kind: str) -> tuple[Any, ...]:
    """Return the fields of a part that are text, but for names that are checked as a step's is."""
    known = {one.__name__: one for one in (Dep, Recipe, Need, Check, Handler, Hook, StartHandler)}
    named = {"name"} if kind in ("Recipe", "Need") else set()
    found = fields(known[kind]) if kind in known else ()
    return tuple(one for one in found if one.type in ("str", "str | None") and one.name not in named)
