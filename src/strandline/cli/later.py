"""Commands of the specification that are still to come: who tries one is told so."""

from __future__ import annotations

from strandline import __version__
from strandline.errors import InvalidInput

LATER = frozenset(
    "backup verify token serve prove".split()
    + [f"pipeline {name}" for name in ("reconcile", "archive", "sweep")]
    + ["schema repartition"]
)


def to_come(group: str, name: str) -> InvalidInput | None:
    """The error for a command that a later version has; None for any other. `group` is all that stands before it."""
    if f"{group} {name}".partition(" ")[2] not in LATER:
        return None
    return InvalidInput(
        f"{group} {name}: comes with a later version; this is {__version__}",
        code="option",
        hint=f"what there is today: `{group} --help`",
        field="command",
    )
