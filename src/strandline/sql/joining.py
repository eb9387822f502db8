"""The errors for a caller's transaction that cannot be joined, the same for both dialects."""

from __future__ import annotations

from strandline.errors import InvalidInput, invalid


def tx_unknown(tx: object, allowed: str) -> InvalidInput:
    """Return the error for an object that is no connection, cursor or transaction."""
    return invalid(
        "tx_foreign", "tx", "no transaction that can be joined", allowed=f"{allowed}, or what has one as raw", got=tx
    )


def tx_idle(where: str) -> InvalidInput:
    """Return the error for a connection that commits each statement at once: it has no transaction to join."""
    return InvalidInput(
        f"tx for {where}: no transaction is open on this connection, so the call would be committed at once",
        code="tx_idle",
        hint="execute BEGIN first and commit afterwards, or leave tx out",
        field="tx",
    )


def tx_foreign(
    where: str,
    why: str = "its database does not have these tables",
    hint: str = "give an open transaction of that database, or leave tx out",
) -> InvalidInput:
    """Return the error for a transaction of another database than that of the tables, or of the wrong kind."""
    return InvalidInput(f"tx for {where}: {why}", code="tx_foreign", hint=hint, field="tx")
