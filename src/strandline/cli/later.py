"""Commands that are not here: those of a later version, and those of a checkout alone. The error says which."""

from __future__ import annotations

from strandline import __version__
from strandline.errors import InvalidInput

LATER = frozenset(["schema repartition"])

CHECKOUT = frozenset({"bench", "demo", "servers"})


def to_come(group: str, name: str) -> InvalidInput | None:
    """Return the error for a command that is elsewhere; None for any other. `group` is all that stands before it."""
    if name in CHECKOUT and " " not in group:
        return InvalidInput(
            f"{group} {name}: the installed package does not have it; a checkout of the repository does",
            code="option",
            hint="in a checkout: `make setup`, then `.venv/bin/strandline` has all commands",
            field="command",
        )
    if f"{group} {name}".partition(" ")[2] not in LATER:
        return None
    return InvalidInput(
        f"{group} {name}: comes with a later version; this is {__version__}",
        code="option",
        hint=f"what there is today: `{group} --help`",
        field="command",
    )
