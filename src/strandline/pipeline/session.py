"""The Spark session that the pipeline runs in: its start, and the check that it is safe.

`start` gives a session on this machine that listens on loopback alone, shows no page unless it is asked to, prints
nothing on the terminal, runs its workers on this Python, and is set for small batches. `check` refuses a session, ours
or one that a user passes in, in which the pipeline would not be safe (`Unsupported.spark_setup`, all reasons at once).
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import shlex
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.errors import Unavailable, Unsupported
from strandline.extras import absent, install
from strandline.pipeline import classes, cluster, jvm, worker
from strandline.pipeline.java import VERSION_LEAST, find_java, shim_home
from strandline.urls import is_loopback

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

SPARK_VERSION = "4.3"
HEAP = "1g"
LOOPBACK = "127.0.0.1"
CHANGE_IT = "change what is named"
START_IT = "let strandline start the session, or change what is named"
CLUSTER_HINT = (
    "put these settings into spark-defaults.conf, in the folder that SPARK_CONF_DIR names, or into `conf`; "
    "docs/BACKENDS.md, 'The pipeline on a cluster', has the lines"
)

_gateways: dict[int, jvm.Gateway] = {}  # by process: a fork has none
_page_told: list[Callable[[str], None]] = []


def start(
    master: str | None = None,
    *,
    app: str = "strandline",
    conf: Mapping[str, str] | None = None,
    quiet: bool = True,
    short: bool = False,
    ui: bool = False,
    stop: threading.Event | None = None,
) -> SparkSession:
    """Start a session on `master`, by default this machine with all its cores; `conf` overrides our settings.

    A process has one session: if there is one, it is checked and given back. `short` makes the start faster and long
    work of the JVM slower: for runs that end soon or work in Python. With `ui` Spark's page is served on loopback, at
    `uiWebUrl`; on a cluster the site's settings say where. `Unsupported.spark_setup` if Spark or Java is missing or
    does not fit, `Unavailable.away` if a cluster's master cannot be reached. `jvm.JvmUnwanted` if `stop` is set before
    the session is there. The handler of Ctrl-C stays as it was.
    """
    pyspark = _pyspark()
    master = master or f"local[{_cores()}]"
    if runs():
        running = _session({})
        check(running, stop)
        return running
    ui = ui or bool(_page_told)
    place = _local(master) if is_local(master) else ON_A_CLUSTER
    settings = _everywhere(app) | place | (PAGE if ui else {}) | dict(conf or {})
    if is_local(master):
        session = _start_here(pyspark, master, settings, quiet, short, stop)
    else:
        session = _start_there(pyspark, master, settings, quiet)
    try:
        _refuse(_problems(session, stop), CHANGE_IT if is_local(master) else CLUSTER_HINT)
    except BaseException:
        if is_local(master):
            session.stop()
        else:
            end()  # unlike Spark, this check does not wait for a cluster that is gone
        raise
    for tell in _page_told if session.sparkContext.uiWebUrl else ():
        tell(str(session.sparkContext.uiWebUrl))
    return session


def show_page(tell: Callable[[str], None]) -> None:
    """Let sessions that this process starts from now on serve Spark's page, and call `tell` with its address."""
    _page_told.append(tell)


def runs() -> bool:
    """Return whether a session runs in this process already."""
    return _pyspark().SparkContext._active_spark_context is not None


def is_local(master: str) -> bool:
    """Return whether a master keeps everything in this machine's one JVM."""
    return re.fullmatch(r"local(\[[^\]]*\])?", master) is not None


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the classes of errors that a call of Spark may raise."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException


def send_files(spark: SparkSession, files: Sequence[str]) -> None:
    """Let tasks find these files of this machine, wherever they run."""
    for file in files:
        if not is_local(spark.sparkContext.master):
            spark.sparkContext.addFile(file)


def _pyspark() -> Any:
    try:
        import pyspark.sql
    except ImportError as error:
        raise absent("spark", error.name or "pyspark") from None
    if find_spec("pyarrow") is None:  # not imported: the pipeline can do without its 40 MB
        raise absent("spark", "pyarrow") from None
    if not _is_supported(pyspark.__version__):
        _refuse([_wrong_version(pyspark.__version__)], CHANGE_IT)
    return pyspark


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ------------------------------------------------------------ settings


def _everywhere(app: str) -> dict[str, str]:
    return {
        "spark.app.name": app,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
        # Time for a Python process to authenticate itself to Spark: on a busy machine it is slow to load.
        "spark.python.authenticate.socketTimeout": "120s",
        # No attempts but the first: a task reports its error as its result, and a second attempt beside it would only
        # be fenced off.
        "spark.task.maxFailures": "1",
        "spark.speculation": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # An event can have 8 MiB, so rows alone do not bound a batch.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 2**20),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # Without a page to show them on, finished jobs only fill the heap.
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "500",
        "spark.sql.ui.retainedExecutions": "20",
    }


PAGE = {"spark.ui.enabled": "true", "spark.ui.killEnabled": "false", "spark.ui.retainedJobs": "1000"}
ON_A_CLUSTER = {
    # A lost executor fails its own tasks only, and others repeat them. Pointers, offsets and ids show which of their
    # writes were done.
    "spark.task.maxFailures": "4",
}


def _local(master: str) -> dict[str, str]:
    cores = re.search(r"\d+", master)
    python = worker.python()
    return {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.sql.shuffle.partitions": cores[0] if cores else str(_cores()),
        "spark.locality.wait": "0",
        # Checkpoint files are written by plain renames, in a third of the time. Two queries on one checkpoint would not
        # notice each other, but the lease on the store allows one only.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.pyspark.python": python,
        "spark.pyspark.driver.python": python,
    }


def _in_folder(folder: Path) -> dict[str, str]:
    settings = {"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    if jvm.sockets_fit(folder):
        # A job of one Python task took 60 ms over TCP and 16 ms over Unix sockets, as if each task waited for a delayed
        # acknowledgement. The folder's mode says which users may connect to a socket.
        settings["spark.python.unix.domain.socket.enabled"] = "true"
        settings["spark.python.unix.domain.socket.dir"] = str(folder)
    return settings


# ------------------------------------------------------------ starting


def _start_here(
    pyspark: Any, master: str, settings: Mapping[str, str], quiet: bool, short: bool, stop: threading.Event | None
) -> SparkSession:
    folder = jvm.temporary_folder()
    settings = {"spark.master": master, "spark.driver.memory": HEAP} | _in_folder(folder) | dict(settings)
    python = {"PYSPARK_PYTHON": settings["spark.pyspark.python"]}
    if pyspark.SparkContext._gateway is not None:  # a JVM runs already, and keeps its Java, its heap and its log level
        with _environment(python):
            return _session(settings)
    options = [f"-Xmx{settings['spark.driver.memory']}", *_words(quiet)]
    if short:
        options += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    options += shlex.split(settings.get("spark.driver.extraJavaOptions", ""))
    gateway = jvm.launch(find_java(), _home(pyspark), folder, settings, options, stop)
    _remember(gateway)
    told = {"PYSPARK_GATEWAY_PORT": str(gateway.port), "PYSPARK_GATEWAY_SECRET": gateway.secret}
    try:
        with _environment(python | told):
            return _session(settings)
    except BaseException:
        end()
        raise


def prepare() -> int:
    """Make later sessions on this machine start in half the time; return the bytes that this takes on disk."""
    return jvm.prepare(find_java(), _home(_pyspark()))


def is_prepared() -> bool:
    """Return whether `prepare` was run for the present Java and Spark."""
    return bool(classes.options(find_java(), _home(_pyspark())))


def _home(pyspark: Any) -> Path:
    return Path(pyspark.__file__).parent


def end(wait_s: float = jvm.END_WAIT_S) -> None:
    """Stop the session that `start` returned, if any, and end its JVM. The end of the process does the same."""
    gateway = _gateways.pop(os.getpid(), None)  # none in a fork
    if gateway is None:
        return
    from pyspark import SparkContext

    # A thread of its own calls the JVM, over a connection of its own: the caller's may hold half an answer, and ending
    # must not wait for the other half.
    polite = threading.Thread(target=_stop_context, name="strandline-end", daemon=True)
    with contextlib.suppress(RuntimeError):  # an interpreter that is ending may start no thread
        polite.start()
        polite.join(wait_s)
    gateway.end(wait_s)
    if polite.ident is not None:
        polite.join(wait_s)  # the JVM does not answer any more
    SparkContext._gateway = SparkContext._jvm = None


def _stop_context() -> None:
    """Stop the context, in an order in which nothing is left that would complain."""
    from pyspark import SparkContext

    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        SparkContext._gateway.shutdown()


def _start_there(pyspark: Any, master: str, settings: Mapping[str, str], quiet: bool) -> SparkSession:
    """Start a session on a cluster: Spark's own scripts start the JVM, with the site's files beside our settings."""
    python = settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON", sys.executable)
    words = [jvm.log_option(), *_words(quiet), settings.get("spark.driver.extraJavaOptions", "")]
    settings = {
        **settings,
        "spark.master": master,
        "spark.pyspark.python": python,
        "spark.driver.extraJavaOptions": " ".join(words).strip(),
    }
    kept = jvm.properties_file(jvm.temporary_folder(), settings)
    values = {
        "JAVA_HOME": str(shim_home(find_java().executable)),
        "PYSPARK_PYTHON": python,
        "PYSPARK_SUBMIT_ARGS": f"--load-spark-defaults --properties-file {shlex.quote(str(kept))} pyspark-shell",
    }
    own = pyspark.SparkContext._gateway is None
    try:
        with _environment(values):
            pyspark.SparkContext._ensure_initialized()
            if own:
                _remember(jvm.Gateway.of_pyspark(pyspark.SparkContext._gateway))
            # The check runs before any file is sent to the cluster.
            _refuse(open_lines(pyspark.SparkConf().setAll(list(settings.items()))), CLUSTER_HINT)
            cluster.check_there(master)
            return _session(settings)
    except BaseException as error:
        if own:
            end()
        if isinstance(error, spark_errors()):
            cluster.check_there(master)
        raise
    finally:
        kept.unlink()


def _remember(gateway: jvm.Gateway) -> None:
    """Remember a JVM that we started, so that it ends with this process at the latest."""
    _gateways[os.getpid()] = gateway
    atexit.register(end)


def _session(settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    with _ctrl_c_left_alone():
        return SparkSession.builder.config(map=dict(settings)).getOrCreate()


@contextlib.contextmanager
def _ctrl_c_left_alone() -> Iterator[None]:
    """Keep a context from handling Ctrl-C: its handler would call the JVM in the middle of another call."""
    from pyspark.core import context

    own = context.signal
    context.signal = types.SimpleNamespace(SIGINT=own.SIGINT, signal=lambda *_: None)
    try:
        yield
    finally:
        context.signal = own


def _words(quiet: bool) -> list[str]:
    """Return the JVM's options of its log level: errors of tasks and batches are raised, and need not be printed as
    well.
    """
    if not quiet:
        return ["-Dstrandline.log.level=warn", "-Dstrandline.task.log.level=warn"]
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    return []


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while PySpark reads them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# ------------------------------------------------------------ the check


def check(spark: SparkSession, stop: threading.Event | None = None) -> None:
    """Refuse a session in which the pipeline would not be safe: `Unsupported.spark_setup` with every reason. A cluster
    must answer for that: `Unavailable.away` if it is gone, `jvm.JvmUnwanted` if `stop` is set before it answers.
    """
    _refuse(_problems(spark, stop), START_IT)


def check_python(spark: SparkSession) -> None:
    """Raise `Unsupported.spark_setup` if the workers of a session do not run this Python."""
    if hasattr(spark, "_jsc"):
        _refuse(_other_pythons(spark.sparkContext, None), START_IT)


def _problems(spark: SparkSession, stop: threading.Event | None) -> Iterator[str]:
    if not hasattr(spark, "_jsc"):
        yield "this is a Spark Connect session; start a classic one (SparkSession.builder.master(...))"
        return
    context = spark.sparkContext
    conf = context.getConf()
    versions = {spark.version, _pyspark().__version__}
    yield from (_wrong_version(version) for version in sorted(versions) if not _is_supported(version))
    java = int(context._jvm.java.lang.Runtime.version().feature())
    if java < VERSION_LEAST:
        yield f"Java {java} runs it; Spark {SPARK_VERSION} needs {VERSION_LEAST} or newer: set JAVA_HOME"
    if _is_true(conf.get("spark.speculation", "false")):
        yield "spark.speculation is on: a second attempt would write beside the first; set it to false"
    yield from _open_doors(context) if is_local(context.master) else open_lines(conf)
    yield from _other_pythons(context, stop)


def _open_doors(context: Any) -> Iterator[str]:
    """Yield the reasons why others could reach a session on this machine."""
    # the environment says where the page listens; its URL shows a name only
    bound_to = context._jvm.java.lang.System.getenv("SPARK_LOCAL_IP") or ""
    if context.uiWebUrl is not None and not is_loopback(bound_to):
        way_out = f"set spark.ui.enabled to false, or the variable SPARK_LOCAL_IP to {LOOPBACK}"
        yield f"its page is served at {context.uiWebUrl}; {way_out}"
    conf = context.getConf()
    host = conf.get("spark.driver.host", "")
    for name, address in {"host": host, "bindAddress": conf.get("spark.driver.bindAddress", host)}.items():
        if not is_loopback(address.strip("[]")):
            yield f"spark.driver.{name} is {address}, which others can reach; set it to {LOOPBACK}"


def open_lines(conf: SparkConf | Mapping[str, str]) -> Iterator[str]:
    """Yield the reasons why others could join a cluster's session, or listen to it."""
    if not _is_true(conf.get("spark.authenticate", "false")):
        yield "anyone can join this cluster session; set spark.authenticate to true"
    crypto = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
    if not any(_is_true(conf.get(name, "false")) for name in crypto):
        yield "events would cross the network in the clear; set spark.network.crypto.enabled to true"
    if not _is_true(conf.get("spark.io.encryption.enabled", "false")):
        yield "events would lie on the workers' disks in the clear; set spark.io.encryption.enabled to true"


def _other_pythons(context: Any, stop: threading.Event | None) -> Iterator[str]:
    """Yield a reason if workers run another Python or Strandline. One worker is asked, unless the very same program is
    set.
    """
    getenv = context._jvm.java.lang.System.getenv
    # the Python that runs data sources for the driver
    planner = getenv("PYSPARK_DRIVER_PYTHON") or getenv("PYSPARK_PYTHON")
    if is_local(context.master) and context.pythonExec == planner and planner in {sys.executable, worker.python()}:
        return
    here = _who()
    try:
        asked = context.parallelize([0], 1).map(lambda _: _who())
        there = cluster.answer(asked.collect, cluster.watch_of(context), stop)[0]
    except (jvm.JvmUnwanted, Unavailable):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a wrong Python makes of it
        yield f"a worker on {context.pythonExec} cannot run Strandline ({_first_line(error)}); {_python_hint()}"
        return
    if is_local(context.master):
        if there != here:
            yield f"workers run {there[0]} in {there[2]}, not {here[0]} in {here[2]}; {_python_hint()}"
    elif there[:2] != here[:2]:
        yield f"workers run {there[0]} with Strandline {there[1]}, not {here[0]} with {here[1]}; {_python_hint()}"


def _who() -> tuple[str, str, str]:
    """Return the versions of Python and Strandline of this process, and where its Python is."""
    from importlib.metadata import version

    return f"Python {sys.version_info.major}.{sys.version_info.minor}", version("strandline"), sys.prefix


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "Error: " in line), lines[0] if lines else type(error).__name__)[:200]


def _python_hint() -> str:
    return f"set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to {sys.executable} before the session starts"


def _is_supported(version: str) -> bool:
    return version.split(".")[:2] == SPARK_VERSION.split(".")


def _wrong_version(version: str) -> str:
    return f"it is Spark {version}, and only {SPARK_VERSION} is known to work: {install('spark')}"


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"


def _refuse(reasons: Iterable[str], hint: str) -> None:
    problems = list(reasons)
    if problems:
        raise Unsupported(
            f"this Spark session cannot be used: {'; '.join(problems)}",
            code="spark_setup",
            hint=hint,
            problems=problems,
        )
