"""A Spark cluster on this machine: a standalone master and workers of one core each, from the pyspark package itself.

Sessions join with a secret, and what they send is encrypted: `SparkCluster.conf` has the settings for
`strandline.pipeline.session.start(cluster.url, conf=cluster.conf)`. Workers run this Python.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
from functools import cached_property
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from strandline.children.process import Process
from strandline.errors import Unavailable
from strandline.extras import install
from strandline.pipeline import classes
from strandline.pipeline.java import find_java
from strandline.pipeline.jvm import OPENED_PACKAGES, log_option, properties_file
from strandline.servers.java import OPTIONS, SHORT
from strandline.servers.server import HOST, Server, free_port, plain_environment

HEAP = "-Xmx256m"
ANSWER_WAIT_S = 5


class SparkCluster(Server):
    """A master and `workers` workers, numbered from 0."""

    name: ClassVar[str] = "spark"

    def __init__(self, folder: Path | None = None, workers: int = 2, worker_memory: str = "1g") -> None:
        super().__init__(folder)
        self._count, self._worker_memory = workers, worker_memory
        self._workers: dict[int, Process] = {}

    @property
    def url(self) -> str:
        """The master, as a session takes it."""
        return f"spark://{HOST}:{self._told['port']}"

    @property
    def page(self) -> str:
        """Return the address of the master's page."""
        return f"http://{HOST}:{self._told['page_port']}"

    @property
    def conf(self) -> dict[str, str]:
        """Return the settings that a session must be started with."""
        return {
            **self._locks,
            "spark.io.encryption.enabled": "true",
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.cores.max": str(self._count),
        }

    def facts(self) -> dict[str, str]:
        return {"SPARK_CONF_DIR": str(self.conf_folder), "page": self.page}

    @property
    def conf_folder(self) -> Path:
        """Return a folder with these settings, for programs that are started with SPARK_CONF_DIR set to it."""
        return self.folder / "conf"

    @property
    def _locks(self) -> dict[str, str]:
        return {
            "spark.authenticate": "true",
            "spark.authenticate.secret": str(self._told["secret"]),
            "spark.network.crypto.enabled": "true",
        }

    @property
    def _told(self) -> dict[str, int | str]:
        try:
            found: dict[str, int | str] = json.loads((self.folder / "cluster.json").read_bytes())
        except FileNotFoundError:
            raise Unavailable("spark was not started", code="away", hint="call start()") from None
        return found

    @property
    def processes(self) -> list[Process]:
        return [*super().processes, *self._workers.values()]

    @property
    def alive(self) -> bool:
        return super().alive and all(worker.alive for worker in self._workers.values())

    def stop(self) -> None:
        for worker in self._workers.values():
            worker.stop(signal.SIGTERM, self.end_wait_s)
        self._workers.clear()
        super().stop()

    def kill(self) -> None:
        for number in list(self._workers):
            self.kill_worker(number)
        super().kill()

    def kill_worker(self, number: int) -> None:
        """kill -9 of one worker, its executors and their Pythons."""
        self._workers.pop(number).kill()

    def start_worker(self, number: int) -> None:
        """Start a worker that was killed, and wait until the master counts it in."""
        wanted = len(self._workers) + 1
        worker = self._workers[number] = self._start_worker(number)
        worker.wait_until(lambda: self.alive_workers() >= wanted, self.up_wait_s)

    def alive_workers(self) -> int:
        """Return how many workers the master sees."""
        return int(self._state().get("aliveworkers", 0))

    def _state(self) -> dict[str, Any]:
        """Return the master's state; empty while it cannot answer."""
        page = HTTPConnection(HOST, int(self._told["page_port"]), timeout=ANSWER_WAIT_S)
        try:
            page.request("GET", "/json/")
            found: dict[str, Any] = json.load(page.getresponse())
        except (OSError, HTTPException, ValueError):  # the page is served before it can answer
            return {}
        finally:
            page.close()
        return found

    def _prepare(self) -> None:
        told = {"port": free_port(), "page_port": free_port(), "secret": secrets.token_hex(32)}
        kept = self.folder / "cluster.json"
        kept.touch(mode=0o600)
        kept.write_text(json.dumps(told))
        closed = {"spark.ui.killEnabled": "false", "spark.master.rest.enabled": "false"}
        properties_file(self.folder, self._locks | closed)
        self.conf_folder.mkdir()
        properties_file(self.conf_folder, self.conf).rename(self.conf_folder / "spark-defaults.conf")

    def _run(self) -> None:
        super()._run()
        try:
            for number in range(self._count):
                self._workers[number] = self._start_worker(number)
            for worker in self._workers.values():
                worker.wait_until(lambda: self.alive_workers() >= self._count, self.up_wait_s)
        except BaseException:
            self.kill()
            raise

    def _launch(self) -> Process:
        where = ("--host", HOST, "--port", str(self._told["port"]), "--webui-port", str(self._told["page_port"]))
        return self._start_process("Spark's master", "master.Master", *where, log=self.log_path)

    def _start_worker(self, number: int) -> Process:
        folder = self.folder / f"worker-{number}"
        folder.mkdir(exist_ok=True)
        size = ("--cores", "1", "--memory", self._worker_memory, "--work-dir", str(folder))
        where = ("--host", HOST, "--webui-port", "0", self.url)
        log = self.folder / f"worker-{number}.log"
        return self._start_process(f"Spark's worker {number}", "worker.Worker", *size, *where, log=log)

    def _start_process(self, name: str, program: str, *arguments: str, log: Path) -> Process:
        properties = ("--properties-file", str(self.folder / "spark.properties"))
        return Process(
            name,
            [*self._java, f"org.apache.spark.deploy.{program}", *properties, *arguments],
            folder=self.folder,
            log=log,
            environment=self._environment,
            remove=self._removed_without_us,
        )

    def _is_up(self, process: Process) -> bool:
        return self._state().get("status") == "ALIVE"

    @cached_property
    def _home(self) -> Path:
        spec = find_spec("pyspark")
        if spec is None or spec.origin is None:
            raise Unavailable("PySpark is not installed", code="away", hint=install("spark"))
        return Path(spec.origin).parent

    @property
    def _environment(self) -> dict[str, str]:
        # Workers hand theirs on to executors, and those to Pythons, which must find what this one finds.
        path = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        return {
            **plain_environment(),
            **path,
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_SCALA_VERSION": "2.13",
        }

    @cached_property
    def _java(self) -> list[str | Path]:
        opened = (f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED_PACKAGES)
        said = (log_option(), "-Dstrandline.log.level=warn")
        java = find_java()
        kept = classes.options(java, self._home)
        return [java.executable, *OPTIONS, *SHORT, *kept, HEAP, *opened, *said, "-cp", f"{self._home}/jars/*"]
