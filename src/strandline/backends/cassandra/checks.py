"""The checks before a keyspace is used: they refuse a cluster that could lose what it acknowledged.

before 4.0; as a target before 5.0  never
periodic `commitlog_sync`           with `accept_power_loss`
no `durable_writes`                 with `accept_power_loss`
1 or 2 replicas                     with `accept_power_loss`
"""

from __future__ import annotations

from typing import Any, Final

from strandline.backends.cassandra.session import Session
from strandline.caller_warnings import caution
from strandline.errors import Unsupported, counted
from strandline.settings import Settings

VERSION_LEAST: Final = (4, 0)
TARGET_VERSION_LEAST: Final = (5, 0)
"""The least version of a target of event groups. Older ones do not tell when elements of a set or map were written, and
are not tested."""
REPLICAS_LEAST: Final = 3
_PACKAGE: Final = "strandline.backends.cassandra"
_RAISE: Final = "ALTER KEYSPACE … WITH replication of 3, then nodetool repair"


def check_nodes(session: Session, settings: Settings, least: tuple[int, int] = VERSION_LEAST) -> tuple[str, int]:
    """Refuse a version or a commit log that is not safe; return the data centre and how many of its nodes are up."""
    answers = session.on_every_node("server", package=_PACKAGE)
    for address, rows in answers:
        check_version(address, str(rows[0][0]), least)
    for address, rows in session.on_every_node("commitlog_sync", package=_PACKAGE):
        check_commit_log(address, str(rows[0][0]) if rows else "unknown", settings)
    return str(answers[0][1][0][1]), len(answers)


def check_version(address: str, version: str, least: tuple[int, int] = VERSION_LEAST) -> None:
    """Refuse an older Cassandra: before 4.0 its settings cannot be read, and it gets no fixes any more."""
    if _numbers(version) < least:
        needed = f"{'.'.join(map(str, least))} or newer" + (" for a target of groups" if least > VERSION_LEAST else "")
        raise _unsafe(f"node {address} is Cassandra {version}", needed, "upgrade the nodes", found=version)


def check_commit_log(address: str, found: str, settings: Settings) -> None:
    """Refuse a commit log that is synced periodically, and not before a write is acknowledged."""
    if found not in ("batch", "group"):
        _accept_or_raise(settings, _unsafe(
            f"node {address} has commitlog_sync {found}: it acknowledges before the disk has it",
            "batch or group",
            "set commitlog_sync: group in cassandra.yaml of every node and restart them; or accept_power_loss=True",
            found=found,
        ))  # fmt: skip


def check_replicas(settings: Settings, replicas: int, *, durable: bool = True, new: bool = False) -> None:
    """Refuse a keyspace, existing or `new`, whose data one or two lost disks would lose."""
    if not durable:
        _accept_or_raise(settings, _unsafe(
            "durable_writes is false: what a node acknowledged is gone when it stops",
            "true",
            "ALTER KEYSPACE … WITH durable_writes = true; or accept_power_loss=True",
            found=False,
        ))  # fmt: skip
    if replicas < REPLICAS_LEAST:
        _accept_or_raise(settings, _unsafe(
            f"{counted(replicas, 'replica')} in this data centre: a lost disk loses acknowledged writes",
            f"{REPLICAS_LEAST} or more",
            f"{'give ?replication=3' if new else _RAISE}; or accept_power_loss=True",
            found=replicas,
        ))  # fmt: skip


def _accept_or_raise(settings: Settings, error: Unsupported) -> None:
    """Raise an error; or where power loss is accepted, warn at each start of what can be lost."""
    if not settings.accept_power_loss:
        raise error
    caution(f"accept_power_loss is on; {error.message}")


def check_room(replicas: int, nodes: int) -> None:
    """Refuse to create a keyspace with more replicas than nodes: nothing could ever be written."""
    if replicas > nodes:
        raise _unsafe(
            f"a new keyspace with {counted(replicas, 'replica')} needs as many nodes; "
            f"{nodes} {'is' if nodes == 1 else 'are'} up",
            counted(replicas, "node"),
            "start more nodes; on a machine of your own give ?replication=1 and accept_power_loss=True",
            found=nodes,
        )


def replicas_of(replication: dict[str, Any], datacenter: str) -> int:
    """Return how many replicas a keyspace has in a data centre."""
    text = replication.get(datacenter) or replication.get("replication_factor") or "0"
    return int(str(text).partition("/")[0])


def _numbers(version: str) -> tuple[int, int]:
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0].partition("-")[0]
    return int(major) if major.isdigit() else 0, int(minor) if minor.isdigit() else 0


def _unsafe(wrong: str, needed: str, hint: str, *, found: object) -> Unsupported:
    return Unsupported(f"{wrong}; needed: {needed}", code="cassandra_unsafe", hint=hint, found=found, needed=needed)
