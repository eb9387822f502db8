"""All servers by their names, several at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NoReturn

from strandline.errors import Unavailable
from strandline.servers.cassandra import CassandraServer
from strandline.servers.kafka import KafkaServer
from strandline.servers.postgres import PostgresServer
from strandline.servers.server import Server
from strandline.servers.spark import SparkCluster

SERVERS: dict[str, Callable[..., Server]] = {
    kind.name: kind for kind in (PostgresServer, KafkaServer, CassandraServer, SparkCluster)
}
WATCH_S = 0.2


@contextmanager
def running(names: Sequence[str], started: Callable[[Server, float], None]) -> Iterator[list[Server]]:
    """Servers, one after the other; `started` hears of each and of the seconds that it took. Leaving stops them all."""
    with ExitStack() as stack:
        servers: list[Server] = []
        for name in names:
            began = time.monotonic()
            servers.append(stack.enter_context(SERVERS[name]()))
            started(servers[-1], time.monotonic() - began)
        yield servers


def watch(servers: Sequence[Server], ended: Callable[[Unavailable], None]) -> NoReturn:
    """Wait until something is raised, for example by Ctrl-C. `ended` hears of each process that ended by itself, while
    others go on; that of the last one is raised."""
    processes = [process for server in servers for process in server.processes]
    while True:
        for process in [each for each in processes if not each.alive]:
            processes.remove(process)
            failure = process.failure("ended by itself")
            if not processes:
                raise failure
            ended(failure)
        time.sleep(WATCH_S)


def example(servers: Sequence[Server]) -> str | None:
    """Options that open a journal on these servers; None if they are not enough for one."""
    urls = {server.name: server.url for server in servers}
    log = f"{urls['kafka']}/shop" if "kafka" in urls else urls.get("postgres")
    store = f"{urls['cassandra']}/shop?replication=1" if "cassandra" in urls else urls.get("postgres")
    if log is None or store is None:
        return None
    if log == store:
        return f"--url '{log}'"
    # One broker or node is one disk: a service would not open it without being told.
    return f"--log '{log}' --store '{store}' --set accept_power_loss=true"
