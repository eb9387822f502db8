"""Cassandra 5: one node on two ports of loopback, with little memory.

`commitlog_sync` is batch: a write is answered when it is on disk, so it is there after `kill` and `restart`.
"""

from __future__ import annotations

import json
import socket
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

from strandline.children.process import Process
from strandline.errors import Unavailable
from strandline.servers.jars import CASSANDRA, jars
from strandline.servers.java import OPTIONS, SHORT, java_17
from strandline.servers.server import HOST, Server, free_port, plain_environment

HEAP = ("-Xms256m", "-Xmx768m", "-Xss512k")
UP = "Startup complete"
# What Cassandra's own start script opens for Java 17.
EXPORTED = """
    java.base/jdk.internal.misc java.base/jdk.internal.ref java.base/sun.nio.ch java.base/java.lang.ref
    java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.registry java.rmi/sun.rmi.server
    java.sql/java.sql jdk.unsupported/sun.misc
""".split()
OPENED = """
    java.base/java.lang.module java.base/java.lang.reflect java.base/java.io java.base/java.lang java.base/java.util
    java.base/java.util.concurrent java.base/java.util.concurrent.atomic java.base/java.nio java.base/sun.nio.ch
    java.base/jdk.internal.loader java.base/jdk.internal.ref java.base/jdk.internal.reflect
    java.base/jdk.internal.math java.base/jdk.internal.module java.base/jdk.internal.util.jar
    jdk.management/com.sun.management.internal
""".split()
PROPERTIES = {
    "cassandra-foreground": "yes",
    # One node has nobody to wait for.
    "cassandra.ring_delay_ms": "0",
    "cassandra.skip_wait_for_gossip_to_settle": "0",
    "cassandra.superuser_setup_delay_ms": "0",
    "cassandra.shutdown_announce_in_ms": "0",
    "jdk.attach.allowAttachSelf": "true",
    "io.netty.tryReflectionSetAccessible": "true",
}


class CassandraServer(Server):
    """A Cassandra of our own. `settings` are added to its configuration, for example {"commitlog_sync": "periodic"}.

    `properties` are added to those of its Java. A `short` one starts faster, and is slower at long work.
    """

    name: ClassVar[str] = "cassandra"
    up_wait_s: ClassVar[float] = 180.0

    def __init__(
        self,
        folder: Path | None = None,
        settings: dict[str, Any] | None = None,
        properties: dict[str, str] | None = None,
        *,
        short: bool = False,
    ) -> None:
        super().__init__(folder)
        self._settings = settings or {}
        self._properties = PROPERTIES | (properties or {})
        self._short = SHORT if short else ()

    @property
    def url(self) -> str:
        """The node; a keyspace is added after a slash."""
        return f"cassandra://{HOST}:{self.port}"

    @property
    def port(self) -> int:
        """Where clients connect."""
        try:
            return int(json.loads(self._configuration.read_bytes())["native_transport_port"])
        except FileNotFoundError:
            raise Unavailable("cassandra was not started", code="away", hint="call start()") from None

    @property
    def _configuration(self) -> Path:
        return self.folder / "cassandra.yaml"

    def _prepare(self) -> None:
        storage_port = free_port()
        seeds = {"class_name": "org.apache.cassandra.locator.SimpleSeedProvider"}
        settings = {
            "cluster_name": "strandline",
            "num_tokens": 1,
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "seed_provider": [seeds | {"parameters": [{"seeds": f"{HOST}:{storage_port}"}]}],
            "endpoint_snitch": "SimpleSnitch",
            "auto_bootstrap": False,
            "listen_address": HOST,
            "rpc_address": HOST,
            "storage_port": storage_port,
            "native_transport_port": free_port(),
            "commitlog_sync": "batch",
            **{
                f"{name}_directory": str(self.folder / name)
                for name in ("commitlog", "saved_caches", "hints", "cdc_raw")
            },
            "data_file_directories": [str(self.folder / "data")],
            "auto_snapshot": False,
            "hinted_handoff_enabled": False,
            "dynamic_snitch": False,
            # On the heap each table that is written to takes a mebibyte at once: 26 of our keyspaces filled it.
            "memtable_allocation_type": "offheap_objects",
            "memtable_heap_space": "96MiB",
            "memtable_offheap_space": "96MiB",
            "key_cache_size": "16MiB",
            "file_cache_size": "32MiB",
            "networking_cache_size": "32MiB",
            "commitlog_total_space": "256MiB",
            "concurrent_compactors": 1,
        }
        # JSON is YAML.
        self._configuration.write_text(json.dumps({**settings, **self._settings}, indent=2), encoding="utf-8")

    def _launch(self) -> Process:
        return Process(
            "Cassandra",
            [
                *self._java,
                f"-Dcassandra.config={self._configuration.as_uri()}",
                f"-Dcassandra.storagedir={self.folder}",
                "org.apache.cassandra.service.CassandraDaemon",
            ],
            folder=self.folder,
            log=self.log_path,
            environment=plain_environment(),
            remove=self._removed_without_us,
        )

    def _is_up(self, process: Process) -> bool:
        if UP not in process.said():
            return False
        try:
            socket.create_connection((HOST, self.port), timeout=1).close()
        except OSError:
            return False
        return True

    @cached_property
    def _java(self) -> list[str | Path]:
        libraries = jars(CASSANDRA)
        (agent,) = libraries.glob("jamm-*.jar")
        return [
            java_17(),
            *OPTIONS,
            *self._short,
            *HEAP,
            f"-javaagent:{agent}",
            f"-Dlogback.configurationFile={files('strandline.servers') / 'logback.xml'}",
            *(f"--add-exports={package}=ALL-UNNAMED" for package in EXPORTED),
            *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED),
            *(f"-D{name}={value}" for name, value in self._properties.items()),
            "-cp",
            f"{libraries}/*",
        ]
