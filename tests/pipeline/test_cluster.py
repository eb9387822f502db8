"""The pipeline on a cluster: a master and two workers, one of which is killed under way."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

import strandline
from strandline import Event
from strandline.connect import Strandline
from strandline.pipeline.target import Target
from strandline.servers.java import SHORT
from strandline.servers.postgres import PostgresServer
from strandline.servers.spark import SparkCluster
from strandline.store.scans import look_at

KEYS = [f"order|{number}" for number in range(40)]

# In a process of its own: a process has one session, and that of the other tests is local.
CARRY = """
import signal, sys, threading
import orjson
from strandline.pipeline import session
from strandline.pipeline.replicate import run
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
url, settings, master, conf = orjson.loads(sys.argv[1])
spark = session.start(master, conf=conf)
print(run(url, spark=spark, stop=stop, once=len(sys.argv) > 2, **settings).events, flush=True)
"""


def until(condition: Callable[[], object], what: str, timeout_s: float = 200) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: it did not come to that in time"
        time.sleep(0.05)


def appended(s: Strandline, rounds: int) -> None:
    futures = [s.journal.append_future(key, [Event("Placed", n)]) for n in range(rounds) for key in KEYS]
    for future in futures:
        future.result()


def carried(s: Strandline) -> bool:
    return all(pointer.offset >= end for pointer, end in zip(s.store.pointers(), s.log.newest(), strict=True))


def carrying(cluster: SparkCluster, target: Target, said: Path, *once: str) -> subprocess.Popen[bytes]:
    quick = dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), " ".join(SHORT))
    told = orjson.dumps([target.url, target.settings, cluster.url, {**cluster.conf, **quick}]).decode()
    with said.open("wb") as file:
        return subprocess.Popen([sys.executable, "-c", CARRY, told, *once], stdout=file, stderr=file)


@pytest.mark.req("J79", "J84", "J88", "RR1")
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kill", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_the_pipeline_goes_on_with_whatever_workers_there_are(
    kill: bool, postgres: PostgresServer, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """The master notices a worker that was killed only when it has not heard of it for a while: half a minute."""
    target = Target(url=postgres.database(), settings={"lease_s": 3.0})
    said = tmp_path / "pipeline.out"
    with strandline.connect(target.url, **target.settings) as s:
        appended(s, 5)
        with carrying(spark_cluster, target, said) as pipeline:
            try:
                until(lambda: s.strandline() > 0, "the cluster carries")
                if kill:
                    spark_cluster.kill_worker(0)
                appended(s, 20)
                mark = s.journal.mark(KEYS[0])
                s.journal.wait_replicated(mark, timeout_s=90)
                if kill:
                    spark_cluster.start_worker(0)
                appended(s, 5)
                until(lambda: carried(s), "all is carried")
                assert pipeline.poll() is None, said.read_text()
                pipeline.terminate()
                assert pipeline.wait(60) == 0, said.read_text()
            finally:
                pipeline.kill()
        for key in KEYS:
            assert [event.seq_nr for event in s.journal.read(key)] == list(range(1, 31))
            _, head = look_at(s.store, key, strandline.Key.of(key).partition(8))
            assert isinstance(head, strandline.Head)
            rows = s.store.page(key, head.life, head.segment_size, from_=1, to=100, limit=100).rows
            assert [cells[0] for cells in rows] == list(range(1, 31))
    # What a killed task had committed counts for nobody: it says 0 when it is done again.
    assert 0 < int(said.read_text().splitlines()[-1]) <= 30 * len(KEYS)
