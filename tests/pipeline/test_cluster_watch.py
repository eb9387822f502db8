"""A cluster that vanishes: it is noticed, said, and what waits for it ends."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Event, Unavailable
from strandline.pipeline import cluster, project, run
from strandline.pipeline.cluster import ClusterWatch, addresses, answer
from strandline.pipeline.jvm import JvmUnwanted
from strandline.projection.definition import BySlices, Projection
from strandline.servers.server import free_port

HOST = "127.0.0.1"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"AWAY_S": 0.5, "LOOK_EVERY_S": 0.02, "WAITS_S": 0.1}.items():
        monkeypatch.setattr(cluster, name, seconds)


class Master:
    """What listens where a master would."""

    def __init__(self) -> None:
        self._socket = socket.create_server((HOST, 0))
        self.url = f"spark://{HOST}:{self._socket.getsockname()[1]}"

    def kill(self) -> None:
        self._socket.close()


@pytest.fixture
def master() -> Iterator[Master]:
    made = Master()
    yield made
    made.kill()


def until_it_raises(check: Callable[[], object], timeout_s: float = 10) -> Unavailable:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            check()
        except Unavailable as error:
            return error
        time.sleep(0.01)
    raise AssertionError("it was not noticed")


@pytest.mark.req("J88")
def test_a_master_that_is_gone_for_a_while_is_told(master: Master) -> None:
    watch = ClusterWatch(master.url)
    for _ in range(10):
        watch.check()
        time.sleep(0.02)
    killed_at = time.monotonic()
    master.kill()
    gone = until_it_raises(watch.check)
    assert time.monotonic() - killed_at >= cluster.AWAY_S - 0.1
    assert (gone.code, gone.facts["master"]) == ("away", master.url)
    assert master.url in gone.message
    with pytest.raises(Unavailable):
        cluster.check_there(master.url)


@pytest.mark.req("J88")
def test_one_master_of_several_is_enough(master: Master) -> None:
    several = f"spark://{HOST}:{free_port()},{master.url.removeprefix('spark://')}"
    cluster.check_there(several)
    watch = ClusterWatch(several)
    for _ in range(40):
        watch.check()
        time.sleep(0.02)
    master.kill()
    until_it_raises(watch.check)


def test_where_masters_are() -> None:
    assert addresses("spark://one:7077,[::1]:7078") == [("one", 7077), ("::1", 7078)]
    for other in ("local[2]", "yarn", "k8s://https://one:6443"):
        assert addresses(other) == []
        cluster.check_there(other)


@pytest.mark.req("J88")
def test_work_without_an_executor_is_said_now_and_then(master: Master, caplog: pytest.LogCaptureFixture) -> None:
    executors = [1]
    watch = ClusterWatch(master.url, lambda: executors[0])
    caplog.set_level(logging.WARNING, "strandline")

    def look(*, waits: bool) -> int:
        for _ in range(20):
            watch.check(waits=waits)
            time.sleep(0.02)
        return len(caplog.records)

    assert look(waits=True) == 0
    executors[0] = 0
    assert look(waits=False) == 0
    assert look(waits=True) == 1
    assert "no executor" in caplog.text
    assert look(waits=True) == 1  # the next one in a minute


@pytest.mark.req("J88")
def test_who_waits_for_an_executor_can_be_stopped_and_hears_of_a_cluster_that_is_gone(master: Master) -> None:
    never, stop = threading.Event(), threading.Event()
    threading.Timer(0.2, stop.set).start()
    with pytest.raises(JvmUnwanted):
        answer(never.wait, ClusterWatch(master.url), stop)
    assert answer(lambda: 3, ClusterWatch(master.url), None) == 3
    with pytest.raises(ZeroDivisionError):
        answer(lambda: 1 // 0, ClusterWatch(master.url), None)
    threading.Timer(0.2, master.kill).start()
    with pytest.raises(Unavailable):
        answer(never.wait, ClusterWatch(master.url), threading.Event())
    never.set()


@pytest.mark.req("J88", "P90")
@pytest.mark.parametrize("what", ["run", "project"])
def test_what_runs_on_a_cluster_that_goes_ends_and_gives_its_lease_back(
    what: str, master: Master, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is a local one here, its master another socket; the soak kills a real cluster."""
    monkeypatch.setattr(cluster, "watch_of", lambda _context: ClusterWatch(master.url))
    url, ended = f"sqlite:{tmp_path}/orders", []
    runs: dict[str, Callable[[], object]] = {
        "run": lambda: run(url, spark=spark),
        "project": lambda: project(url, [Projection("totals", BySlices("order"), print)], spark=spark),
    }

    def until_gone() -> None:
        try:
            runs[what]()
        except Unavailable as error:
            ended.append(error)

    with strandline.connect(url) as s:
        s.journal.append("order|1", [Event("Placed", 1)])
        thread = threading.Thread(target=until_gone)
        thread.start()
        try:
            deadline = time.monotonic() + 20
            while not (s.strandline() if what == "run" else s.projections.list()):
                assert time.monotonic() < deadline, "it does not work"
                time.sleep(0.02)
            assert (s.status(parts=False).lease_holder is not None) == (what == "run")
            assert thread.is_alive()
        finally:
            master.kill()
            thread.join(20)
        assert not thread.is_alive()
        assert [error.code for error in ended] == ["away"]
        assert s.status(parts=False).lease_holder is None
