"""The plan of a group as its history stores it, in `Defined`. Newer and older programs run this stored plan, too.

    version, plans (how statements run and are undone, with the keys and columns that they rest on), the plan of each
    step, which steps come first because of the rows, which are one transaction, and the last of these

A program that resumes a group parses nothing and reads no schema. Facts that depend on the definition alone (generated
steps, dependencies, the sources of parameters) are worked out from the definition again.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Final

import orjson

from strandline.errors import SchemaMismatch
from strandline.group.core.encoding import decoded, encoded
from strandline.group.definition import Group
from strandline.group.plan import GroupPlan, GroupPlanner, shape_of
from strandline.group.statements import api
from strandline.group.statements.api import Plan, TargetTable

VERSION: Final = 1
"""The version of plans, of the rules by which statements are rewritten, and of those by which expressions are
evaluated: a group is resumed by a program that has the same."""
SHAPE_BYTES_MAX: Final = 64 * 1024
"""The most bytes of a definition and its plan that are remembered."""
PACKED_FROM: Final = 256 * 1024
"""Longer plans are compressed: one of 10,000 unlike statements fits into an append."""
_CLASSES: Final[tuple[type[Any], ...]] = (
    api.Plan, api.Statement, api.Template, api.Parameter, api.TargetTable, api.TargetColumn, api.ForeignKey,
    api.RowSet, api.Given, api.StatementProblem,
)  # fmt: skip


def stored(plan: GroupPlan) -> dict[str, Any]:
    """Return the plan as JSON values. Steps with the same statement share its plan, and plans share their tables."""
    tables: dict[TargetTable, int] = {}
    plans: dict[bytes, int] = {}
    of = {}
    for name, one in (*plan.steps.items(), *plan.rollback.items()):
        if one.plan is not None:
            of[name] = plans.setdefault(orjson.dumps(_written(one.plan, tables)), len(plans))
    parts = [[_written(table, {}) for table in tables], [*map(orjson.loads, plans)], of]
    text = orjson.dumps(parts)
    long = len(text) > PACKED_FROM
    return {"version": VERSION, "statements": base64.b64encode(zlib.compress(text, 1)).decode() if long else parts}


def planned_again(definition: Mapping[str, Any], known: Mapping[str, Any]) -> GroupPlan:
    """Return the plan of a group that was submitted, from its history.

    `SchemaMismatch.version` for one of another version.
    """
    if known["version"] != VERSION:
        raise SchemaMismatch(
            f"group {definition['id']} has a plan of version {known['version']}, this program knows {VERSION}",
            code="version",
            hint="run the stream with the program that is newer",
        )
    shape = orjson.dumps([shape_of(definition), known["statements"]])
    made = _of_shape(shape) if len(shape) <= SHAPE_BYTES_MAX else _of_shape.__wrapped__(shape)
    return made.with_values(definition).pinned(known)


@lru_cache(maxsize=256)
def _of_shape(shape: bytes) -> GroupPlan:
    """Read a plan. Groups of one kind differ in id and values alone: their plan is read once."""
    definition, parts = orjson.loads(shape)
    if isinstance(parts, str):
        parts = orjson.loads(zlib.decompress(base64.b64decode(parts)))
    tables = [_read(table, []) for table in parts[0]]
    plans: list[Plan] = [_read(one, tables) for one in parts[1]]
    of = parts[2]
    return GroupPlanner(Group.of(definition, checked=True), lambda one, _: plans[of[one.name]]).plan()


@cache
def _classes() -> Mapping[str, type[Any]]:
    """Return the classes of which a plan is made. Those of a dialect are loaded when the first plan is read."""
    from strandline.group.statements.cql import CqlShape, Relation, Selected
    from strandline.group.statements.sql import Shape

    return {kind.__name__: kind for kind in (*_CLASSES, Shape, CqlShape, Relation, Selected)}


def _written(part: Any, tables: dict[TargetTable, int]) -> Any:
    """Return a part of a plan as JSON: a tuple with names says what it `is`, and leaves out what has its default."""
    if isinstance(part, Plan) and part.table is not None:
        number = tables.setdefault(part.table, len(tables))
        return {**_written(part._replace(table=None), tables), "table": {"is": "number", "of": number}}
    if (kind := type(part)).__name__ in _classes():
        known = {name: value for name, value in part._asdict().items() if value != kind._field_defaults.get(name, kind)}
        return {"is": kind.__name__, **{name: _written(value, tables) for name, value in known.items()}}
    if isinstance(part, frozenset):
        return {"is": "frozenset", "of": sorted(part)}
    return [_written(one, tables) for one in part] if isinstance(part, tuple) else encoded(part)


def _read(made: Any, tables: list[TargetTable]) -> Any:
    if isinstance(made, list):
        return tuple(_read(one, tables) for one in made)
    if not isinstance(made, dict) or "is" not in made:
        return decoded(made)
    if made["is"] in ("frozenset", "number"):
        return tables[made["of"]] if made["is"] == "number" else frozenset(made["of"])
    return _classes()[made["is"]](**{name: _read(value, tables) for name, value in made.items() if name != "is"})
