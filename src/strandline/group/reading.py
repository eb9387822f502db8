"""From JSON to a group: every field checked, and everything that is wrong with it told at once."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final, get_args

from strandline.errors import CycleFound, InvalidInput, shown
from strandline.group.checks import Check
from strandline.group.core.encoding import decoded
from strandline.group.core.expression import compiled
from strandline.group.core.names import Problem, of_error, refusal
from strandline.group.core.parts import Dep, Handler, Hook, Kind, Need, Recipe, StartHandler
from strandline.group.definition import FORM, Group
from strandline.group.problems import unknown_fields

KINDS: Final = get_args(Kind)
_GROUP: Final = frozenset({"form", "id", "deadline_s", "on_conflict", "pre_hook", "post_hook", "steps"})
_PARTS: Final[dict[str, type[Any]]] = {
    "depends_on": Dep, "recipes": Recipe, "needs": Need, "checks": Check, "pre_hook": Hook, "post_hook": Hook,
    "undo": Handler,
}  # fmt: skip
"""Of a step; in the plural where there are many. The name of an undo is a step's."""


def read(cls: type[Group], made: Any, *, checked: bool = False) -> Group:
    """A group from JSON values; `InvalidGroup` with all problems."""
    if not isinstance(made, dict) or made.get("form", FORM) != FORM:
        raise refusal([Problem("value", None, f"not a group of form {FORM}")], "?")
    given = dict(made)
    group = cls(given.get("id", ""), deadline_s=given.get("deadline_s"), on_conflict=given.get("on_conflict"))
    group.slips += unknown_fields(given, _GROUP, None)
    pre, post, steps = given.get("pre_hook"), given.get("post_hook"), given.get("steps")
    group.pre_hook = _part(StartHandler if isinstance(pre, dict) and "factory" in pre else Hook, pre, None, group.slips)
    group.post_hook = _part(Hook, post, None, group.slips)
    for step in steps if isinstance(steps, list) else []:
        _add(group, step)
    if problems := group.slips if checked else group.problems():
        raise refusal(problems, group.id)
    return group


def _add(group: Group, made: Any) -> None:
    if not isinstance(made, dict) or made.get("kind") not in KINDS:
        group.slips.append(Problem("value", None, f"not a step: {shown(made)}; kinds are {', '.join(KINDS)}"))
        return
    given = {name: value for name, value in made.items() if value is not None}
    kind, name, statement = given.pop("kind"), given.pop("name", ""), given.pop("statement", None)
    label = name if isinstance(name, str) else None
    for field in _PARTS.keys() & given.keys():
        part, value = _PARTS[field], given[field]
        if part not in (Hook, Handler):
            parts = [_part(part, one, label, group.slips) for one in (value if isinstance(value, list) else [value])]
            given[field] = [one for one in parts if one is not None]
        elif part is Hook or isinstance(value, dict):
            given[field] = _part(part, value, label, group.slips)
    try:
        values = decoded(given.pop("values", {}))
        given["touches"] = [(one[0], one[1], decoded(one[2])) for one in given.get("touches", [])]
        method = getattr(group, kind)
        more = {} if kind == "empty" else {"statement": statement, "values": values}
        method(name=name, **more, **given)
    except CycleFound as error:
        group.slips.extend(error.problems)
    except InvalidInput as error:
        group.slips.append(of_error(error, label))
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        group.slips.append(Problem("value", label, f"cannot be read: {error}"))


def _part(part: type[Any], made: Any, step: str | None, slips: list[Problem]) -> Any:
    """A part of a group from its JSON; a plain text stands for its first field."""
    if made is None:
        return None
    names = [one.name for one in fields(part)]
    if not isinstance(made, (str, dict)):
        slips.append(Problem("value", step, f"not a {part.__name__}: {shown(made)}"))
        return None
    given = {names[0]: made} if isinstance(made, str) else dict(made)
    slips += unknown_fields(given, frozenset(names), step)
    try:
        for name in {"values", "props"} & given.keys():
            given[name] = decoded(given[name])
        if given.get("expression") is not None:
            compiled(given["expression"])
        return part(**given)
    except InvalidInput as error:
        slips.append(of_error(error, step))
    except (TypeError, ValueError, KeyError) as error:
        slips.append(Problem("value", step, f"not a {part.__name__}: {error}"))
    return None
