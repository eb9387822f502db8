"""What is refused of a caller's transaction, by both dialects alike."""

from __future__ import annotations

from strandline.errors import InvalidInput, invalid


def tx_unknown(tx: object, allowed: str) -> InvalidInput:
    """Nothing that a statement could be executed with."""
    return invalid(
        "tx_unknown", "tx", "not a transaction that can be joined", allowed=f"{allowed}, or what has one as raw", got=tx
    )


def tx_idle(where: str) -> InvalidInput:
    """A connection without an open transaction: what was done would be committed at once, whatever the caller does."""
    return InvalidInput(
        f"tx: this connection to {where} has no transaction open",
        code="tx_idle",
        hint="begin the transaction that this belongs to first",
        field="tx",
    )


def tx_foreign(where: str) -> InvalidInput:
    """A transaction of another database than that of the tables."""
    return InvalidInput(
        f"tx: its database does not have the tables of {where}",
        code="tx_foreign",
        hint="give a transaction of that database, or leave tx out",
        field="tx",
    )
