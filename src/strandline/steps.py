"""The steps of a schema: named, done in order, recorded when done, and compared at every start.

A package keeps its steps as files. A step that was released is never changed; a change is a new step, and `strandline
schema upgrade` alone applies it to a schema that exists. This is what all SQL back-ends say of that alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from strandline.errors import SchemaMismatch

Kind = Literal["log", "store", "work"]
REMEDY_UPGRADE = "strandline schema upgrade"
REMEDY_PROGRAM = "use the strandline that wrote it, or a newer one"
REMEDY_BACKUP = "restore a backup"


class Description(NamedTuple):
    """What a schema says of itself: steps done, steps that this program knows, and what creation fixed."""

    done: list[str]
    known: list[str]
    fixed: dict[str, str]


def check_done(kind: Kind, done: list[str], known: list[str]) -> None:
    """`SchemaMismatch.version` unless the steps done are those known, in their order."""
    refuse_unknown(kind, done, known)
    if done != known:
        missing = [name for name in known if name not in done]
        raise mismatch(kind, f"lacks {', '.join(missing) or 'the order of its steps'}", done, known, REMEDY_UPGRADE)


def refuse_unknown(kind: Kind, done: Sequence[str], known: Sequence[str]) -> None:
    """`SchemaMismatch.version` if a newer program did a step."""
    unknown = [name for name in done if name not in known]
    if unknown:
        wrong = f"has steps that this program does not know: {', '.join(unknown)}"
        raise mismatch(kind, wrong, done, known, REMEDY_PROGRAM)


def mismatch(kind: Kind, wrong: str, done: Sequence[str], known: Sequence[str], remedy: str) -> SchemaMismatch:
    """The error for a schema that is not this program's."""
    return SchemaMismatch(
        f"the schema of this {kind} {wrong}",
        code="version",
        hint=remedy,
        found=list(done),
        known=list(known),
        remedy=remedy,
    )


def check_fixed(name: str, stored: object, given: object) -> None:
    """`SchemaMismatch.setting` if a value was given and is not the stored one."""
    if given is not None and given != stored:
        raise SchemaMismatch(
            f"{name} is {stored}, fixed at creation; given {given}",
            code="setting",
            hint=f"leave {name} out, or give {stored}",
            setting=name,
            stored=stored,
            given=given,
        )
