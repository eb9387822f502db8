"""The pipeline from PostgreSQL to PostgreSQL, and between it and SQLite, on a real Spark."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.log.postgres_logs import new_url

import strandline
import strandline.pipeline
from strandline import Event, LeaseHeld
from strandline.pipeline import supervisor
from strandline.pipeline.replicate import run
from strandline.pipeline.target import JournalRef
from strandline.servers.postgres import PostgresServer
from strandline.store.scans import look_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
KEYS = [f"order|{number}" for number in range(40)]  # over all 8 partitions


@pytest.mark.req("J79", "J80", "J85", "J88", "RR1")
@pytest.mark.parametrize("pair", ["one database", "postgresql to sqlite", "sqlite to postgresql"])
def test_once(postgres: PostgresServer, spark: SparkSession, tmp_path: Path, pair: str) -> None:
    url = new_url(postgres)
    places: dict[str, Any] = {
        "one database": {"url": url},
        "postgresql to sqlite": {"log": url, "store": f"sqlite:{tmp_path}/store.db"},
        "sqlite to postgresql": {"log": f"sqlite:{tmp_path}/log.db", "store": url},
    }[pair]
    with strandline.connect(**places) as s:
        for number in range(3):
            for key in KEYS:
                s.journal.append(key, [Event("Placed", {"n": number}), Event("Paid", b"\x00\xff")])
        s.journal.purge(KEYS[0])
        done = run(**places, once=True, spark=spark)
        assert done.events == 6 * len(KEYS)
        assert s.strandline() == done.strandline > 0
        assert [pointer.offset for pointer in s.store.pointers()] == s.log.newest()
        for key in KEYS[1:]:
            _, state = look_at(s.store, key, strandline.Key.of(key).partition(s.log.partitions))
            assert state is not None
            assert [event.seq_nr for event in s.journal.read(key)] == list(range(1, 7))
            assert len(s.store.page(key, 1, 10_000, from_=1, to=6, limit=10).rows) == 6
        assert list(s.journal.read(KEYS[0])) == []


@pytest.mark.req("D6")
def test_a_password_reaches_tasks_and_never_spark(
    postgres: PostgresServer, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_url(postgres).replace("postgres@", "postgres:hunter22@")  # this server asks nobody for it
    open_ = JournalRef(url=new_url(postgres))
    assert open_.by_reference(tmp_path) == open_
    closed = JournalRef(url=url, settings={"lease_s": 3.0}).by_reference(tmp_path)
    assert "hunter22" not in closed.to_json()
    (kept,) = tmp_path.iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    batch, targets = supervisor.Supervisor._batch, set()

    def told(self: supervisor.Supervisor, tasks: Any) -> None:
        targets.add(self.target.to_json())
        batch(self, tasks)

    monkeypatch.setattr(supervisor.Supervisor, "_batch", told)
    with closed.connect(schema="create") as s:
        s.journal.append(KEYS[0], [Event("Placed", 1)])
        assert run(url, once=True, spark=spark).events == 1
        assert s.store.pointers()[s.journal.mark(KEYS[0]).partition].offset >= 0
    (sent,) = targets
    assert "file:" in sent
    assert "hunter22" not in sent
    frames = [
        strandline.pipeline.replay(spark, url),
        spark.read.format("strandline").option("url", f"file:{kept}").load(),
        spark.read.format("strandline").options(log=f"file:{kept}", store=f"file:{kept}").load(),
    ]
    for frame in frames:
        assert [row.key for row in frame.collect()] == [KEYS[0]]


@pytest.mark.req("RS8", "RR1", "RR3")
def test_it_goes_on_when_a_killed_server_is_back(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often its query broke meanwhile; and it says so once, not each time."""
    monkeypatch.setattr(supervisor, "AWAY_WAIT_S", 0.1)
    stop = threading.Event()
    errors: list[BaseException] = []
    broken: list[Exception] = []
    broke = supervisor.Supervisor._broke

    def counted(self: supervisor.Supervisor, error: Exception, times: int, *, patient: bool) -> int:
        broken.append(error)
        return broke(self, error, times, patient=patient)

    monkeypatch.setattr(supervisor.Supervisor, "_broke", counted)

    def carry() -> None:
        try:
            run(url, spark=spark, stop=stop)
        except BaseException as error:
            errors.append(error)

    with PostgresServer() as server:
        url = new_url(server)
        with strandline.connect(url) as s:
            s.journal.append(KEYS[0], [Event("Placed", 0)])
            pipeline = threading.Thread(target=carry, daemon=True)
            pipeline.start()
            try:
                partition = strandline.Key.of(KEYS[0]).partition(s.log.partitions)
                _until(lambda: s.store.pointers()[partition].offset == 0)
                with pytest.raises(LeaseHeld):
                    run(url, once=True, spark=spark)
                server.kill()
                _until(lambda: len(broken) > supervisor.BROKEN_PASSES_MAX or errors)
                lines = [said for said in caplog.messages if "waits" in said or "failed" in said or "could not" in said]
                assert 1 <= len(lines) <= 3  # the database's last words, that it is gone, the lease
                server.restart()
                place = s.journal.append(KEYS[0], [Event("Placed", 1)])
                s.journal.wait_replicated(place, timeout_s=60)
            finally:
                stop.set()
                pipeline.join(60)
            assert not pipeline.is_alive()
            assert errors == []
            assert len(s.store.page(KEYS[0], 1, 10_000, from_=1, to=9, limit=10).rows) == 2


def _until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
