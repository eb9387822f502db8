"""`strandline servers`: what ends by itself is named, and stops nothing else."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import ClassVar

import pytest

from strandline.children.process import Process
from strandline.errors import Unavailable
from strandline.servers.all import watch
from strandline.servers.server import Server
from strandline.servers.spark import SparkCluster


class Sleepers(Server):
    """A server of two processes that do nothing."""

    name: ClassVar[str] = "sleepers"

    @property
    def url(self) -> str:
        return "sleepers:"

    @property
    def processes(self) -> list[Process]:
        return [*super().processes, self.second]

    def _prepare(self) -> None:
        self.second = self._sleeper("the second")

    def _launch(self) -> Process:
        return self._sleeper("the first")

    def _sleeper(self, name: str) -> Process:
        program = [sys.executable, "-c", "import time; time.sleep(600)"]
        return Process(name, program, folder=self.folder, log=self.folder / f"{name}.log", environment={})

    def _is_up(self, process: Process) -> bool:
        return True

    def stop(self) -> None:
        self.second.kill()
        super().stop()


def test_what_ends_by_itself_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    with Sleepers() as one, Sleepers() as other:
        heard: list[str] = []
        killed = [one.second, other.process, other.second, one.process]

        def ended(failure: Unavailable) -> None:
            heard.append(failure.message)
            killed[len(heard)].send(signal.SIGKILL)

        threading.Timer(0.3, killed[0].send, (signal.SIGKILL,)).start()
        with pytest.raises(Unavailable, match="the first ended by itself"):
            watch([one, other], ended)
        named = ["the second", "the first", "the second"]
        assert [said.partition(" ended by itself")[0] for said in heard] == named
        assert one.folder.exists()


@pytest.mark.soak
@pytest.mark.spark
def test_a_worker_that_ends_is_one_process_of_its_cluster(spark_cluster: SparkCluster) -> None:
    worker = spark_cluster.processes[-1]
    worker.send(signal.SIGKILL)
    worker.wait(30)
    with pytest.raises(ZeroDivisionError):
        watch([spark_cluster], lambda failure: print(failure.message.index("Spark's worker 1 ended"), 1 // 0))
    assert spark_cluster.process.alive
    spark_cluster.restart()
