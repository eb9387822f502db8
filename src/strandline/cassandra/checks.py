"""What is refused before a keyspace is used: a cluster that could lose what it acknowledged.

before 4.0                          never
periodic `commitlog_sync`           with `accept_power_loss`
no `durable_writes`                 with `accept_power_loss`
1 or 2 replicas                     with `accept_power_loss`
"""

from __future__ import annotations

from typing import Any, Final

from strandline.cassandra.session import Session
from strandline.errors import Unsupported, invalid
from strandline.settings import Settings

VERSION_LEAST: Final = (4, 0)
REPLICAS_LEAST: Final = 3
REPLICAS_MOST: Final = 15
_PACKAGE: Final = "strandline.cassandra"


def check_nodes(session: Session, settings: Settings) -> tuple[str, int]:
    """Refuse a version or a commit log that is not safe; the data centre and how many of its nodes are up."""
    answers = session.on_every_node("server", package=_PACKAGE)
    for address, rows in answers:
        version = str(rows[0][0])
        if _numbers(version) < VERSION_LEAST:
            raise _unsafe(f"node {address} is Cassandra {version}", "4.0 or newer", "upgrade the nodes", found=version)
    if not settings.accept_power_loss:
        for address, rows in session.on_every_node("commitlog_sync", package=_PACKAGE):
            found = str(rows[0][0]) if rows else "unknown"
            if found not in ("batch", "group"):
                raise _unsafe(
                    f"node {address} has commitlog_sync {found}: it acknowledges before the disk has it",
                    "batch or group",
                    "set commitlog_sync: group in cassandra.yaml of every node and restart them; "
                    "or accept_power_loss=True",
                    found=found,
                )
    return str(answers[0][1][0][1]), len(answers)


def check_replicas(settings: Settings, replicas: int, *, durable: bool = True) -> None:
    """Refuse a keyspace that one or two lost disks would lose."""
    if settings.accept_power_loss:
        return
    if not durable:
        raise _unsafe(
            "durable_writes is false: what a node acknowledged is gone when it stops",
            "true",
            "ALTER KEYSPACE … WITH durable_writes = true; or accept_power_loss=True",
            found=False,
        )
    if replicas < REPLICAS_LEAST:
        raise _unsafe(
            f"{replicas} replica{'s' * (replicas != 1)} in this data centre: a lost disk loses acknowledged writes",
            f"{REPLICAS_LEAST} or more",
            "ALTER KEYSPACE … WITH replication of 3, then nodetool repair; or accept_power_loss=True",
            found=replicas,
        )


def check_room(replicas: int, nodes: int) -> None:
    """Refuse to create a keyspace with more replicas than nodes: nothing could ever be written."""
    if replicas > nodes:
        raise _unsafe(
            f"a new keyspace with {replicas} replicas needs as many nodes; {nodes} {'is' if nodes == 1 else 'are'} up",
            f"{replicas} nodes",
            "start more nodes; on a machine of your own give ?replication=1 and accept_power_loss=True",
            found=nodes,
        )


def replicas_of(replication: dict[str, Any], datacenter: str) -> int:
    """How many replicas a keyspace has in a data centre."""
    text = replication.get(datacenter) or replication.get("replication_factor") or "0"
    return int(str(text).partition("/")[0])


def replication_given(text: str | None) -> int:
    """The parameter `replication` of a URL."""
    if text is None:
        return REPLICAS_LEAST
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= REPLICAS_MOST):
        raise invalid("url_parameter", "store", "replication", allowed=f"1..{REPLICAS_MOST}", got=text)
    return int(text)


def _numbers(version: str) -> tuple[int, int]:
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0].partition("-")[0]
    return int(major) if major.isdigit() else 0, int(minor) if minor.isdigit() else 0


def _unsafe(wrong: str, needed: str, hint: str, *, found: object) -> Unsupported:
    return Unsupported(f"{wrong}; needed: {needed}", code="cassandra_unsafe", hint=hint, found=found, needed=needed)
