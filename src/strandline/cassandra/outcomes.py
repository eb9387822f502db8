"""The driver's errors in our own words, in one place.

    not applied     unavailable (not enough replicas were there to begin with), overloaded, refused, away
    unknown         a time-out or a failure of a write: some replicas may have it

What is unknown is written again with the same values and timestamps, which changes nothing.
"""

from __future__ import annotations

from typing import Any

from cassandra import (
    AuthenticationFailed,
    DriverException,
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    RequestExecutionException,
    Unauthorized,
    WriteFailure,
    WriteTimeout,
)
from cassandra import Unavailable as NotEnoughReplicas
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage, SyntaxException

from strandline.errors import Applied, SchemaMismatch, StrandlineError, Unavailable

FAILURES = (DriverException, RequestExecutionException, NoHostAvailable, ConnectionException, OSError)
"""All that a call of the driver may raise because of the cluster."""


def outcome_of(error: BaseException, keyspace: str, *, writing: bool) -> StrandlineError:
    """What an error of the driver means. Neither user nor password is ever in it."""
    applied: Applied = "unknown" if writing else "no"
    facts: dict[str, Any] = {"keyspace": keyspace}
    if isinstance(error, NoHostAvailable):
        return _no_host(error, keyspace, writing=writing)
    if isinstance(error, (OperationTimedOut, WriteTimeout, ReadTimeout)):
        hint = "the cluster is slow: look at its load; the same call may be made again"
        said = _said(error)
        return Unavailable(
            f"Cassandra did not answer in time: {said}", code="timeout", hint=hint, applied=applied, **facts
        )
    if isinstance(error, OverloadedErrorMessage):
        return Unavailable("Cassandra is overloaded", code="overloaded", hint="call again in a moment", **facts)
    if isinstance(error, NotEnoughReplicas):
        return Unavailable(
            f"{error.alive_replicas} of {error.required_replicas} needed replicas are alive",
            code="away",
            hint="start the nodes that are down; `nodetool status` names them",
            **facts,
        )
    if isinstance(error, (WriteFailure, ReadFailure)):
        hint = "a replica failed: see the log of the nodes"
        return Unavailable(f"Cassandra failed: {_said(error)}", code="away", hint=hint, applied=applied, **facts)
    if isinstance(error, (AuthenticationFailed, Unauthorized)):
        return refused(keyspace)
    if isinstance(error, (InvalidRequest, SyntaxException)):
        return SchemaMismatch(
            f"Cassandra refuses a statement: {_said(error)}",
            code="version",
            hint="the keyspace is not what this program made, or was changed: `strandline schema show`",
            **facts,
        )
    if isinstance(error, IsBootstrappingErrorMessage):
        return Unavailable("the node is starting", code="away", hint="call again in a moment", **facts)
    return Unavailable(
        f"Cassandra is away: {_said(error)}", code="away", hint="check host and port, and that it runs",
        applied=applied, **facts,
    )  # fmt: skip


def refused(keyspace: str) -> Unavailable:
    """Wrong credentials, or rights that are missing; which of both, the server's log says."""
    return Unavailable(
        "Cassandra refuses this user",
        code="away",
        hint="check user and password in the URL, and what was granted to the user on the keyspace",
        keyspace=keyspace,
    )


def _no_host(error: NoHostAvailable, keyspace: str, *, writing: bool) -> StrandlineError:
    """No node could take it: as the last of them said, or away if they said nothing of their own."""
    found = list(error.errors.values()) if isinstance(error.errors, dict) else list(error.errors or ())
    for inner in found:
        if isinstance(inner, AuthenticationFailed) or "AuthenticationFailed" in type(inner).__name__:
            return refused(keyspace)
    for inner in found:
        if isinstance(inner, (NotEnoughReplicas, WriteTimeout, ReadTimeout, OperationTimedOut, OverloadedErrorMessage)):
            return outcome_of(inner, keyspace, writing=writing)
    # A connection that broke may have taken the write with it.
    sent = any(isinstance(inner, ConnectionException) for inner in found)
    return Unavailable(
        "no Cassandra node can be reached",
        code="away",
        hint="check hosts and port in the URL, and that the nodes run",
        applied="unknown" if writing and sent else "no",
        keyspace=keyspace,
    )


def _said(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300]
