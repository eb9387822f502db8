"""The steps of a schema: named, done in order, recorded when done, and compared at every start.

A step is a section of the file of its table (`sql/sections.py`), `-- step: NNN_name (sqlite)`; the numbers say in which
order steps are done. A step that was released is never changed; a change is a new step, and `strandline schema
upgrade` alone applies it to a schema that exists. Steps add tables, columns and indexes, and change data. The tables
found are compared with what all steps make together.

A step marked `additive` promises that programs which do not know it go on
working beside it: it only adds, and a row may leave out the columns that it adds to an existing table. The mark is
recorded with the step, so that an older program knows it, too. This module has what is the same for all back-ends.

Tables that are made at run time, in sets (`Part.sets`), are made like those of a template, which is in the database: so
even an older program makes new sets as the newest step has them. A step on them has `{1}` for the name of a set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from strandline.errors import SchemaMismatch
from strandline.fold import FOLD_VERSION, FoldRules
from strandline.settings import APPEND_IDS_KEPT_DEFAULT, SEGMENT_SIZE_DEFAULT, Settings
from strandline.sql.api import TEMPLATE, Dialect
from strandline.sql.sections import sections

Kind = str
"""The parts that have steps."""
REMEDY_UPGRADE = "strandline schema upgrade"
REMEDY_PROGRAM = "use the strandline that wrote it, or a newer one"
REMEDY_BACKUP = "restore a backup"

_TYPES: Final = {
    "bigint": "INTEGER", "integer": "INTEGER", "boolean": "INTEGER", "double precision": "REAL", "text": "TEXT",
    "bytea": "BLOB",
}  # fmt: skip
"""PostgreSQL's types as SQLite has them."""
_TYPED: Final = re.compile(rf"^( +\w+ )({'|'.join(_TYPES)})\b", re.MULTILINE)
_TABLE_END: Final = re.compile(r"^\)(?: WITH \([^)]*\))?( \{rowless\})?;", re.MULTILINE)

Columns = Mapping[str, set[tuple[object, ...]]]
"""Columns by table: each with its name, and whatever else a back-end compares."""


class SchemaStep(NamedTuple):
    """A change of a schema."""

    name: str
    script: str
    additive: bool = False


class StepDone(NamedTuple):
    """A step that was done, as the schema records it."""

    name: str
    additive: bool


class Description(NamedTuple):
    """The description of a schema: steps done, steps that this program knows, and settings that creation fixed."""

    done: list[str]
    known: list[str]
    fixed: dict[str, str]


def steps_of(package: str, also: Sequence[str], folder: str, dialect: Dialect | None = None) -> tuple[SchemaStep, ...]:
    """Return the steps of a part: those of its own package, then those of other packages, with the package before the
    name."""
    steps = steps_in(package, folder, dialect)
    for other in also:
        named = other.rpartition(".")[2]
        steps += tuple(step._replace(name=f"{named}.{step.name}") for step in steps_in(other, folder, dialect))
    return steps


@cache
def steps_in(package: str, folder: str, dialect: Dialect | None = None) -> tuple[SchemaStep, ...]:
    """Return the steps that a package keeps in a folder, in order: those for all dialects, and those for this one."""
    found = [one for one in sections(package, folder).values() if one.kind == "step" and one.dialect in {None, dialect}]
    found.sort(key=lambda one: one.name)
    return tuple(SchemaStep(one.name, _read(one.text, one.dialect, dialect), one.additive) for one in found)


def _read(script: str, written_for: str | None, dialect: Dialect | None) -> str:
    """Return a step as a dialect reads it. A step for both dialects has PostgreSQL's types, and `{rowless}` after
    tables that are WITHOUT ROWID in SQLite."""
    if written_for is not None or dialect is None:
        return script
    if dialect == "postgres":
        return script.replace(" {rowless}", "")
    script = _TYPED.sub(lambda found: found[1] + _TYPES[found[2]], script.replace(" {by_bytes}", ""))
    return _TABLE_END.sub(lambda found: ") STRICT, WITHOUT ROWID;" if found[1] else ") STRICT;", script)


def missing_steps(kind: Kind, done: Sequence[StepDone], steps: Sequence[SchemaStep]) -> list[SchemaStep]:
    """Return the steps still to do; `SchemaMismatch.version` if a newer program did one that is not additive."""
    _refuse_unknown(kind, done, [step.name for step in steps])
    names = {step.name for step in done}
    return [step for step in steps if step.name not in names]


def check_schema(
    kind: Kind, done: Sequence[StepDone], steps: Sequence[SchemaStep], found: Columns, declared: Columns
) -> None:
    """Raise `SchemaMismatch.version` unless the steps done are those known and the columns are as these declare them.

    Additive steps of a newer program may stand beside them, with the columns that they added.
    """
    known = [step.name for step in steps]
    _refuse_unknown(kind, done, known)
    done_here = [step.name for step in done if step.name in known]
    if done_here != known:
        missing = ", ".join(name for name in known if name not in done_here)
        raise _mismatch(kind, f"lacks {missing or 'the order of its steps'}", done, known, REMEDY_UPGRADE)
    grown = len(done) > len(known)
    for table, columns in declared.items():
        there = found.get(table, set())
        if not (columns <= there if grown else columns == there):
            raise _mismatch(kind, f"has another table {table} than declared", done, known, REMEDY_BACKUP)


def in_sets(script: str, sets: Callable[[], Iterable[str]]) -> Iterator[str]:
    """Yield a step as it is executed: one on sets of tables for the template, then for each set that is there after
    that."""
    if not is_on_sets(script):
        yield script
        return
    yield in_template(script)
    for name in sets():
        yield script.replace("{1}", name)


def is_on_sets(script: str) -> bool:
    """Return whether a step changes sets of tables."""
    return "{1}" in script


def in_template(script: str) -> str:
    """Return a step as it is executed for the template alone."""
    return script.replace("{1}", TEMPLATE)


def with_made(declared: Columns, made: Iterable[tuple[str, str]]) -> Columns:
    """Return the declared columns, with those of tables made at run time, which have the columns of the template's."""
    return {**declared, **{table: declared[like] for table, like in made}}


def _refuse_unknown(kind: Kind, done: Sequence[StepDone], known: Sequence[str]) -> None:
    unknown = [step.name for step in done if step.name not in known and not step.additive]
    if unknown:
        wrong = f"has steps that this program does not know: {', '.join(unknown)}"
        raise _mismatch(kind, wrong, done, known, REMEDY_PROGRAM)


def _mismatch(kind: Kind, wrong: str, done: Sequence[StepDone], known: Sequence[str], remedy: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"the schema of this {kind} {wrong}",
        code="version",
        hint=remedy,
        found=[step.name for step in done],
        known=list(known),
        remedy=remedy,
    )


def rules_to_fix(settings: Settings) -> dict[str, str]:
    """Return the rules of the fold that a new log or store keeps."""
    return {
        "segment_size": str(settings.segment_size or SEGMENT_SIZE_DEFAULT),
        "append_ids_kept": str(settings.append_ids_kept or APPEND_IDS_KEPT_DEFAULT),
        "fold_version": str(FOLD_VERSION),
    }


def rules_in(texts: Mapping[str, str], settings: Settings) -> FoldRules:
    """Return the rules that a schema keeps. `SchemaMismatch` for another fold, or other settings than these."""
    version = int(texts["fold_version"])
    if version != FOLD_VERSION:
        raise SchemaMismatch(
            f"it was written with fold {version}; this program has fold {FOLD_VERSION}",
            code="fold_version",
            hint="use the strandline that wrote it",
            stored=version,
            given=FOLD_VERSION,
        )
    rules = FoldRules(int(texts["segment_size"]), int(texts["append_ids_kept"]))
    check_fixed("segment_size", rules.segment_size, settings.segment_size)
    check_fixed("append_ids_kept", rules.append_ids_kept, settings.append_ids_kept)
    return rules


def check_fixed(name: str, stored: object, given: object) -> None:
    """Raise `SchemaMismatch.setting` if a value was given and is not the stored one."""
    if given is not None and given != stored:
        raise SchemaMismatch(
            f"{name} is {stored}, fixed at creation; given {given}",
            code="setting",
            hint=f"leave {name} out, or give {stored}",
            setting=name,
            stored=stored,
            given=given,
        )
