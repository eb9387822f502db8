"""Kafka 4 in KRaft mode: one process that is broker and controller, on two ports of loopback; or a cluster of them.

Topics are made by those who need them, never by a typing error. What is acknowledged with acks=all is there after
`kill` and `restart`: the operating system has it, and this is one machine.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self
from uuid import uuid4

from strandline.children.process import Process
from strandline.errors import Unavailable
from strandline.pipeline.java import find_java
from strandline.servers.jars import KAFKA, jars
from strandline.servers.java import OPTIONS, SHORT
from strandline.servers.server import HOST, Server, free_port, plain_environment

FORMAT_WAIT_S = 120
HEAP = ("-Xms128m", "-Xmx512m")
LOGGER = "org.slf4j.simpleLogger"
LOGGING = (
    f"-D{LOGGER}.defaultLogLevel=warn",
    f"-D{LOGGER}.showDateTime=true",
    f"-D{LOGGER}.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
    f"-D{LOGGER}.log.kafka.server.KafkaRaftServer=info",
)
UP = "Kafka Server started"
CONFIGURATION = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
log.dirs={data}
auto.create.topics.enable=false
unclean.leader.election.enable=false
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=16777216
# After kill -9 the controller waits for the session of the broker that was.
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=250
"""


class KafkaServer(Server):
    """A Kafka of our own. `settings` are added to its configuration, and win.

    A `short` one starts faster, and is slower at long work.
    """

    name: ClassVar[str] = "kafka"

    def __init__(
        self,
        folder: Path | None = None,
        settings: dict[str, str] | None = None,
        cluster_id: str | None = None,
        *,
        short: bool = False,
    ) -> None:
        super().__init__(folder)
        self._settings = settings or {}
        self._short = SHORT if short else ()
        self._cluster_id = cluster_id or new_cluster_id()

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, as clients take it."""
        return f"{HOST}:{self._port}"

    @property
    def url(self) -> str:
        """The broker; a topic is added after a slash."""
        return f"kafka://{self.bootstrap}"

    @property
    def _configuration(self) -> Path:
        return self.folder / "server.properties"

    @property
    def _port(self) -> int:
        try:
            lines = self._configuration.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            raise Unavailable("kafka was not started", code="away", hint="call start()") from None
        advertised = next(line for line in reversed(lines) if line.startswith("advertised.listeners="))
        return int(advertised.rpartition(":")[2])

    def _prepare(self) -> None:
        text = CONFIGURATION.format(
            host=HOST, port=free_port(), controller_port=free_port(), data=_escaped(str(self.folder / "data"))
        )
        text += "".join(f"{name}={_escaped(value)}\n" for name, value in self._settings.items())
        self._configuration.write_text(text, encoding="utf-8")
        try:
            answer = subprocess.run(  # noqa: S603 - the Java that find_java has run
                [
                    *(*self._java(SHORT), "kafka.tools.StorageTool", "format"),
                    *("-t", self._cluster_id, "-c", self._configuration),
                ],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=FORMAT_WAIT_S,
                cwd=self.folder,
                env=plain_environment(),
            )
        except subprocess.TimeoutExpired:
            raise _not_formatted(f"not done after {FORMAT_WAIT_S} s") from None
        if answer.returncode != 0:
            told = (answer.stderr + answer.stdout).decode(errors="replace").strip().splitlines()
            raise _not_formatted(" / ".join(told[-3:]))

    def _launch(self) -> Process:
        return Process(
            "Kafka",
            [*self._java(self._short), "kafka.Kafka", self._configuration],
            folder=self.folder,
            log=self.log_path,
            environment=plain_environment(),
            remove=self._removed_without_us,
        )

    def _is_up(self, process: Process) -> bool:
        return UP in process.said()

    @cached_property
    def _executable(self) -> Path:
        return find_java().executable

    def _java(self, how: Sequence[str]) -> list[str | Path]:
        return [self._executable, *OPTIONS, *how, *HEAP, *LOGGING, "-cp", f"{jars(KAFKA)}/*"]


class KafkaCluster:
    """Several nodes that keep replicas of each other's partitions. Each can be killed and started on its own."""

    name: ClassVar[str] = KafkaServer.name

    def __init__(self, size: int = 3, *, short: bool = False) -> None:
        cluster_id = new_cluster_id()
        ports = [(free_port(), free_port()) for _ in range(size)]
        voters = ",".join(f"{node}@{HOST}:{port}" for node, (_, port) in enumerate(ports, 1))
        self.nodes = [
            KafkaServer(
                settings={
                    "node.id": str(node),
                    "controller.quorum.voters": voters,
                    "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
                    "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
                    # A node of a busy machine that is late with its heartbeat is not dead.
                    "broker.session.timeout.ms": "4000",
                    "controller.quorum.fetch.timeout.ms": "4000",
                },
                cluster_id=cluster_id,
                short=short,
            )
            for node, (port, controller_port) in enumerate(ports, 1)
        ]

    @property
    def bootstrap(self) -> str:
        """All brokers, as clients take them."""
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def url(self) -> str:
        """The brokers; a topic is added after a slash."""
        return f"kafka://{self.bootstrap}"

    def start(self) -> Self:
        """Start all nodes at the same time: one alone waits for the others."""
        try:
            with ThreadPoolExecutor(len(self.nodes)) as pool:
                list(pool.map(KafkaServer.start, self.nodes))
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Kill all nodes, and remove what they kept: in order, the last ones would wait for those that are gone."""
        for node in self.nodes:
            node.kill()
        for node in self.nodes:
            node.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.close()


def new_cluster_id() -> str:
    """A name for a cluster, as Kafka takes it."""
    return base64.urlsafe_b64encode(uuid4().bytes).decode()[:22].replace("-", "_")


def _not_formatted(why: str) -> Unavailable:
    return Unavailable(f"Kafka's folder cannot be prepared: {why}", code="away", hint="see what it says")


def _escaped(text: str) -> str:
    """Text as a value of a Java properties file."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")
