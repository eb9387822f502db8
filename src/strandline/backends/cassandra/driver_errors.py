"""The driver's errors in our own words, in one place.

    not applied     unavailable (not enough replicas were there to begin with), overloaded, refused, away
    unknown         a time-out or a failure of a write: some replicas may have it

What is unknown is written again with the same values and timestamps, which changes nothing.
"""

from __future__ import annotations

from typing import Any, Final

from cassandra import (
    AuthenticationFailed,
    DriverException,
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    RequestExecutionException,
    Unauthorized,
    UnresolvableContactPoints,
    WriteFailure,
    WriteTimeout,
)
from cassandra import Unavailable as NotEnoughReplicas
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionBusy, ConnectionException
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage, SyntaxException

from strandline.backends.cassandra.address import wants_tls
from strandline.errors import Applied, SchemaMismatch, StrandlineError, Unavailable, meaning, no_answer, unreachable
from strandline.urls import Url

FAILURES = (DriverException, RequestExecutionException, NoHostAvailable, ConnectionException, OSError)
"""The errors that a call of the driver may raise because of the cluster."""


def outcome_of(error: BaseException, url: Url, *, writing: bool) -> StrandlineError:
    """Translate an error of the driver. No password is ever in the result."""
    applied: Applied = "unknown" if writing else "no"
    facts: dict[str, Any] = {"keyspace": url.name}
    if isinstance(error, NoHostAvailable):
        return _no_host(error, url, writing=writing)
    if isinstance(error, (OperationTimedOut, WriteTimeout, ReadTimeout)):
        hint = "the cluster is slow: look at its load; the same call may be made again"
        return Unavailable(
            f"{url}: Cassandra did not answer in time", code="timeout", hint=hint, applied=applied, **facts
        )
    if isinstance(error, OverloadedErrorMessage):
        return _overloaded(url)
    if isinstance(error, NotEnoughReplicas):
        return Unavailable(
            f"{url}: {error.alive_replicas} of {error.required_replicas} needed replicas are alive",
            code="away",
            hint="start the nodes that are down; `nodetool status` names them",
            **facts,
        )
    if isinstance(error, ReadFailure) and "TOMBSTONES" in str(error):
        return Unavailable(
            f"{url}: Cassandra refuses to read past so many removed rows",
            code="away",
            hint="let it compact the table, or raise its tombstone_failure_threshold",
            tombstones=True,
            **facts,
        )
    if isinstance(error, (WriteFailure, ReadFailure)):
        hint = "a replica failed: see the log of the nodes"
        return Unavailable(
            f"{url}: Cassandra failed: {_text_of(error)}", code="away", hint=hint, applied=applied, **facts
        )
    if isinstance(error, (AuthenticationFailed, Unauthorized)):
        return refused(url)
    if isinstance(error, (InvalidRequest, SyntaxException)):
        return SchemaMismatch(
            f"{url}: Cassandra refuses a statement: {_text_of(error)}",
            code="version",
            hint="the keyspace is not what this program made, or was changed: `strandline schema show`",
            **facts,
        )
    if isinstance(error, IsBootstrappingErrorMessage):
        return Unavailable(f"{url}: the node is starting", code="away", hint="call again in a moment", **facts)
    return Unavailable(
        f"{url}: Cassandra is away: {_text_of(error)}", code="away", hint="check host and port, and that it runs",
        applied=applied, **facts,
    )  # fmt: skip


def is_busy(error: BaseException) -> bool:
    """Return whether nothing was sent because earlier requests are still unsent: the network or the node is slow."""
    found = _inner(error)
    return bool(found) and all(isinstance(inner, ConnectionBusy) for inner in found)


def not_opened(error: BaseException, url: Url, timeout_s: float) -> StrandlineError:
    """Return the error for a session that could not be opened: no node answers, or the nodes refuse the login."""
    if isinstance(error, UnresolvableContactPoints):
        return unreachable("Cassandra", str(url), "no such host")
    if isinstance(error, NoHostAvailable) and not isinstance(error.errors, dict):  # nodes that no policy would use
        wrong = f"it has no data centre {url.parameters.get('datacenter', '')}"
        return unreachable("Cassandra", str(url), wrong, "mend ?datacenter= in the URL")
    found = _inner(error)
    if any(_is_of_user(inner) for inner in found):
        return refused(url)
    if any(isinstance(inner, OperationTimedOut) or "timed out" in str(inner) for inner in found):
        return unreachable("Cassandra", str(url), no_answer(timeout_s))
    told = meaning("\n".join(map(str, found)), (*(_TLS_REASONS if wants_tls(url) else _PLAIN_REASONS), *_REASONS))
    if told is not None:
        return unreachable("Cassandra", str(url), *told)
    return outcome_of(error, url, writing=False)


_TLS_REASONS: Final = [
    (
        "certificate is not valid for '([^']*)'",
        r"its certificate is not for \1",
        "give each host by a name that its certificate has; a node that the URL does not name needs its address there",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "its certificate cannot be verified",
        "give ?cafile=FILE with the authority that signed it",
    ),
    (
        r"Last error: (?!.*ALERT_).*(SSL: |EOF occurred|Connection reset)",  # before a session of TLS begins
        "this port does not speak TLS",
        "give a port with TLS; on this machine ?tls=off needs none",
    ),
    (
        # The driver's errors after a session of TLS began: the timing decides which one comes.
        r"ALERT_\w*(CERTIFICATE|UNKNOWN_CA)|EOF occurred|Connection reset|Broken pipe|closed",
        "it takes nobody without a certificate that it trusts",
        "give ?certfile=FILE&keyfile=FILE, signed by an authority that the nodes trust",
    ),
]
_PLAIN_REASONS: Final = [
    ("Connection reset|closed", "it closes every connection", "does it ask for TLS? give ?tls=on&cafile=FILE"),
]
_REASONS: Final = [
    ("Connection refused", "the connection is refused", ""),
    ("protocol version", "what answers there is not Cassandra", ""),
]
"""What the driver says of a node, what that means, and what to do if it is not to start or find it."""


def refused(url: Url) -> Unavailable:
    """Return the error for wrong credentials or missing rights. Only the server's log says which of the two it is."""
    return Unavailable(
        f"{url}: Cassandra refuses this user",
        code="away",
        hint="check user and password in the URL, and what was granted to the user on the keyspace",
        keyspace=url.name,
        denied=True,
    )


def _no_host(error: NoHostAvailable, url: Url, *, writing: bool) -> StrandlineError:
    """Return the error for a request that no node took: the last node's error, or `away` if no node answered."""
    if is_busy(error):
        return _overloaded(url)
    found = _inner(error)
    if any(_is_of_user(inner) for inner in found):
        return refused(url)
    for inner in found:
        if isinstance(inner, (NotEnoughReplicas, WriteTimeout, ReadTimeout, OperationTimedOut, OverloadedErrorMessage)):
            return outcome_of(inner, url, writing=writing)
    # A connection that broke may have taken the write with it.
    sent = any(isinstance(inner, ConnectionException) for inner in found)
    return Unavailable(
        f"{url}: no Cassandra node can be reached",
        code="away",
        hint="check hosts and port in the URL, and that the nodes run",
        applied="unknown" if writing and sent else "no",
        keyspace=url.name,
    )


def _overloaded(url: Url) -> Unavailable:
    return Unavailable(
        f"{url}: Cassandra is overloaded", code="overloaded", hint="call again in a moment", keyspace=url.name
    )


def _inner(error: BaseException) -> list[BaseException]:
    """Return the errors of each node, or the driver's own."""
    if not isinstance(error, NoHostAvailable):
        return [error]
    return list(error.errors.values()) if isinstance(error.errors, dict) else []


def _is_of_user(error: BaseException) -> bool:
    return isinstance(error, AuthenticationFailed) or "AuthenticationFailed" in type(error).__name__


def _text_of(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300]
