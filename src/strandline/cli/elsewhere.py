"""Commands that only a checkout has. The error says so."""

from __future__ import annotations

from strandline.errors import InvalidInput

CHECKOUT = frozenset({"bench", "demo", "servers"})


def of_a_checkout(group: str, name: str) -> InvalidInput | None:
    """Return the error for a command that only a checkout has; None for any other. `group` has the words before the
    command.
    """
    if name not in CHECKOUT or " " in group:
        return None
    return InvalidInput(
        f"{group} {name}: the installed package does not have it; a checkout of the repository does",
        code="option",
        hint="in a checkout: `make setup`, then `.venv/bin/strandline` has all commands",
        field="command",
    )
