"""From JSON to a group: every field checked, and everything that is wrong with it told at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from strandline.errors import CycleFound, InvalidInput, shown
from strandline.group.checks import Check
from strandline.group.core.encoding import decoded
from strandline.group.core.expression import compiled
from strandline.group.core.names import Problem, of_error, refusal
from strandline.group.core.parts import Dep, Handler, Hook, Need, Recipe, StartHandler

if TYPE_CHECKING:
    from strandline.group.definition import Group

FORM: Final = 1
KINDS: Final = ("query", "insert", "update", "delete", "statement", "empty")
_GROUP: Final = frozenset({"form", "id", "deadline_s", "on_conflict", "pre_hook", "post_hook", "steps"})
_LISTS: Final[dict[str, type[Any]]] = {"depends_on": Dep, "recipes": Recipe, "needs": Need, "checks": Check}
_HOOKS: Final = ("pre_hook", "post_hook")


def read(cls: type[Group], made: Any, *, checked: bool = False) -> Group:
    """A group from JSON values; `InvalidGroup` with all problems."""
    found: list[Problem] = []
    if not isinstance(made, dict) or made.get("form", FORM) != FORM:
        raise refusal([Problem("value", None, f"not a group of form {FORM}")], "?")
    found += _unknown(made, _GROUP, None)
    group = cls(
        made.get("id", ""),
        deadline_s=made.get("deadline_s"),
        on_conflict=made.get("on_conflict"),
        pre_hook=_part(StartHandler if _starts(made.get("pre_hook")) else Hook, made.get("pre_hook"), None, found),
        post_hook=_part(Hook, made.get("post_hook"), None, found),
    )
    steps = made.get("steps", [])
    for step in steps if isinstance(steps, list) else []:
        _add(group, step, found)
    if not checked:
        found += group.problems()
    if found:
        raise refusal(found, group.id)
    return group


def _add(group: Group, made: Any, found: list[Problem]) -> None:
    if not isinstance(made, dict) or made.get("kind") not in KINDS:
        found.append(Problem("value", None, f"not a step: {shown(made)}; kinds are {', '.join(KINDS)}"))
        return
    given = dict(made)
    kind, name, statement = given.pop("kind"), given.pop("name", ""), given.pop("statement", None)
    label = name if isinstance(name, str) else None
    for field, part in _LISTS.items():
        if field in given:
            listed = given[field] if isinstance(given[field], list) else [given[field]]
            parts = [_part(part, one, label, found) for one in listed]
            given[field] = [one for one in parts if one is not None]
    for field in _HOOKS:
        given[field] = _part(Hook, given.get(field), label, found)
    if isinstance(given.get("undo"), dict):
        given["undo"] = _part(Handler, given["undo"], label, found)
    try:
        values = decoded(given.pop("values", {}))
        given["touches"] = [(one[0], one[1], decoded(one[2])) for one in given.get("touches", [])]
        more = {"name": name} | given
        method = getattr(group, kind)
        method(**more) if kind == "empty" else method(statement=statement, values=values, **more)
    except CycleFound as error:
        found.extend(error.problems)
    except InvalidInput as error:
        found.append(of_error(error, label))
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        found.append(Problem("value", label, f"cannot be read: {error}"))


def _part(part: type[Any], made: Any, step: str | None, found: list[Problem]) -> Any:
    """A part of a step from its JSON; a plain text stands for its first field."""
    names = [one.name for one in fields(part)]
    if made is None:
        return None
    if isinstance(made, str):
        made = {names[0]: made}
    if not isinstance(made, dict):
        found.append(Problem("value", step, f"not a {part.__name__}: {shown(made)}"))
        return None
    found += _unknown(made, frozenset(names), step)
    given = {name: value for name, value in made.items() if name in names}
    try:
        for name in ("values", "props"):
            if name in given:
                given[name] = decoded(given[name])
        if given.get("expression") is not None:
            compiled(given["expression"])
        return part(**given)
    except InvalidInput as error:
        found.append(of_error(error, step))
    except (TypeError, ValueError, KeyError) as error:
        found.append(Problem("value", step, f"not a {part.__name__}: {error}"))
    return None


def _unknown(made: Mapping[str, Any], known: frozenset[str], step: str | None) -> list[Problem]:
    return [
        Problem("setting", step, f"unknown field {shown(name)!r}; known: {' '.join(sorted(known))}")
        for name in made
        if name not in known
    ]


def _starts(made: Any) -> bool:
    return isinstance(made, dict) and "factory" in made
