"""The pipeline on a cluster: a master and two workers, which are killed under way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import psutil
import psycopg
import pytest
from pyarrow.parquet import ParquetFile
from tests.acceptance.cli_call import COMMAND
from tests.reconcile.planting import KEYS as HISTORY
from tests.reconcile.planting import Hand, history

import strandline
from strandline import Event
from strandline.connect import Strandline
from strandline.pipeline.target import JournalRef
from strandline.servers.java import SHORT
from strandline.servers.postgres import PostgresServer
from strandline.servers.server import free_port
from strandline.servers.spark import SparkCluster
from strandline.store.archived_events import event_rows
from strandline.store.scans import look_at
from strandline.store.tag_view import TAG_VIEW

KEYS = [f"order|{number}" for number in range(40)]
PLANTED = HISTORY[12]

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

COMPARE_AND_ARCHIVE = """
import sys
import orjson
from strandline.pipeline import archive, reconcile, session
url, master, conf, folder, line = orjson.loads(sys.argv[1])
spark = session.start(master, conf=conf)
found = reconcile(url, spark=spark)
print(orjson.dumps([found.events, [(each.kind, each.key) for each in found.findings]]).decode(), flush=True)
sys.stdin.readline()
print(archive(url, folder, line, spark=spark).events, flush=True)
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


def carrying(cluster: SparkCluster, target: JournalRef, said: Path, *once: str) -> subprocess.Popen[bytes]:
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
    target = JournalRef(url=postgres.database(), settings={"lease_s": 3.0})
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


@contextmanager
def tasks_waiting(url: str) -> Iterator[None]:
    """Let two tasks come to the rows of events, and stay there until this ends."""
    with psycopg.connect(url) as locked, psycopg.connect(url, autocommit=True) as seeing:
        (schema,) = locked.execute(
            "SELECT relnamespace::regnamespace FROM pg_class WHERE relname = 'journal'"
        ).fetchone() or ("",)
        locked.execute(f"LOCK TABLE {schema}.journal IN ACCESS EXCLUSIVE MODE")
        waiting = "SELECT count(*) FROM pg_locks WHERE relation = %s::regclass AND NOT granted"
        until(lambda: (seeing.execute(waiting, (f"{schema}.journal",)).fetchone() or (0,))[0] >= 2, "two tasks wait")
        yield


def executor_of(cluster: SparkCluster, number: int) -> psutil.Process:
    """The executor that a worker runs for the one program that there is."""
    (found,) = (
        each for each in psutil.Process(cluster._workers[number].pid).children(recursive=True)
        if any("CoarseGrainedExecutorBackend" in word for word in each.cmdline())
    )  # fmt: skip
    return found


@pytest.mark.req("J116", "J119", "RR9")
@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_one_executor_is_killed_while_a_store_is_compared_and_archived(
    postgres: PostgresServer, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """The tasks that it had are given to others. Its worker lives, and starts another one."""
    url, folder = postgres.database(), tmp_path / "archive"
    quick = dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), " ".join(SHORT))
    with strandline.connect(url) as s:
        history(s)
        hand = Hand(s)
        hand.remove(TAG_VIEW, hand.tag_row(PLANTED, 2))
        events = [event for key in s.journal.keys("order") for event in s.journal.read(key)]
        line = s.strandline()
    older = {event for event in events if event.timestamp < line}
    told = orjson.dumps([url, spark_cluster.url, {**spark_cluster.conf, **quick}, str(folder), line]).decode()
    words = [sys.executable, "-c", COMPARE_AND_ARCHIVE, told]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            with tasks_waiting(url):
                executor_of(spark_cluster, 0).kill()
            compared = orjson.loads(program.stdout.readline())
            assert compared == [len(events), [["tag_missing", PLANTED]]]
            program.stdin.write("\n")
            program.stdin.flush()
            until(lambda: list(folder.glob("new-*/_temporary")), "files are written")
            executor_of(spark_cluster, 1).kill()
            assert int(program.stdout.readline()) == len(older)
            assert program.wait(60) == 0
        finally:
            program.kill()
    files = [ParquetFile(path).read() for path in folder.rglob("*.parquet")]
    assert {row.event for file in files for row in event_rows(file)} == older


def on_the_command_line(master: str, conf_folder: Path, url: str) -> subprocess.Popen[str]:
    words = [*COMMAND, "pipeline", "run", "--master", master, "--url", url]
    environment = {**os.environ, "SPARK_CONF_DIR": str(conf_folder)}
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.req("J88")
def test_a_cluster_that_is_not_there_is_told_at_once(postgres: PostgresServer, tmp_path: Path) -> None:
    """Spark would wait for it for a minute."""
    url = postgres.database()
    closed = ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled")
    secret = "spark.authenticate.secret=for-this-test"
    (tmp_path / "spark-defaults.conf").write_text("\n".join([*(f"{name}=true" for name in closed), secret]))
    with strandline.connect(url) as s:
        master = f"spark://127.0.0.1:{free_port()}"
        with on_the_command_line(master, tmp_path, url) as pipeline:
            said, _ = pipeline.communicate(timeout=60)
        assert pipeline.returncode == 6, said
        assert f"{master} cannot be reached" in said
        assert s.status(parts=False).lease_holder is None


@pytest.mark.req("J88")
@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("killed", ["the master", "all of it", "all of it, at the start"])
def test_a_pipeline_whose_cluster_is_killed_ends_within_a_minute(
    killed: str, postgres: PostgresServer, spark_cluster: SparkCluster
) -> None:
    """On the command line, with default settings; `test_cluster_watch` has it in the small."""
    url = postgres.database()
    at_the_start = killed.endswith("start")
    with strandline.connect(url) as s:
        appended(s, 1)
        if at_the_start:  # it waits for an executor
            for number in range(2):
                spark_cluster.kill_worker(number)
        with on_the_command_line(spark_cluster.url, spark_cluster.conf_folder, url) as pipeline:
            try:
                if at_the_start:
                    until(lambda: spark_cluster._state().get("activeapps"), "it waits", 60)
                else:
                    until(lambda: s.strandline() > 0, "the cluster carries", 60)
                if killed == "the master":
                    spark_cluster.process.kill()
                else:
                    spark_cluster.kill()
                appended(s, 1)
                said, _ = pipeline.communicate(timeout=60)
            finally:
                pipeline.kill()
                spark_cluster.kill()
                spark_cluster.start()
        assert pipeline.returncode == 6, said
        assert f"{spark_cluster.url} cannot be reached for 3" in said  # 30 s, and the time of a look
        assert s.status(parts=False).lease_holder is None


@pytest.mark.req("J88")
@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_pipeline_that_waits_for_an_executor_can_be_stopped(
    postgres: PostgresServer, spark_cluster: SparkCluster
) -> None:
    url = postgres.database()
    for number in range(2):
        spark_cluster.kill_worker(number)
    with strandline.connect(url) as s, on_the_command_line(spark_cluster.url, spark_cluster.conf_folder, url) as waits:
        try:
            until(lambda: spark_cluster._state().get("activeapps"), "it waits", 60)
            waits.terminate()
            said, _ = waits.communicate(timeout=60)
        finally:
            waits.kill()
            spark_cluster.restart()
        assert waits.returncode == 0, said
        assert s.status(parts=False).lease_holder is None
