"""Starting Spark's JVM for a session on this machine.

Spark's own scripts start a second JVM to find out how to start the first, ask for an incubator module, which prints a
warning, and put every setting on the command line, where others can read it. Here Java is started directly, with the
settings in a file that only this user can read. A cluster's sessions go through Spark's scripts, which know the site.

The JVM ends when its standard input does, which is a pipe from this process: it does not outlive us, however we die.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from strandline.errors import Unsupported
from strandline.pipeline import classes
from strandline.pipeline.java import Java

UP_WAIT_S = 60
END_WAIT_S = 5
FOLDER_PREFIX = "strandline-spark-"
SOCKET_PATH_BYTES_MAX = 103  # the limit of macOS, the shortest; Linux allows 107
SOCKET_NAME_BYTES = len("/.00000000-0000-0000-0000-000000000000.sock")
SWEEP_AGE_S = 60

OPENED_PACKAGES = """
    java.io java.lang java.lang.invoke java.lang.reflect java.net java.nio java.util java.util.concurrent
    java.util.concurrent.atomic jdk.internal.ref sun.nio.ch sun.nio.cs sun.util.calendar
""".split()
PROPERTIES = {
    "io.netty.tryReflectionSetAccessible": "true",
    "io.netty.noUnsafe": "false",
    "java.net.preferIPv4Stack": "true",
}


class JvmUnwanted(Exception):
    """The caller does not want the JVM any more."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """The JVM's port for this process, on loopback, and the secret that opens it."""

    port: int
    secret: str
    process: subprocess.Popen[bytes]

    @classmethod
    def of_pyspark(cls, gateway: Any) -> Gateway:
        """Return the gateway of a JVM which PySpark has started, by Spark's own scripts."""
        told = gateway.gateway_parameters
        return cls(told.port, told.auth_token, gateway.proc)

    def end(self, wait_s: float) -> None:
        """End the JVM, which ends its workers; by force after `wait_s`."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def launch(
    java: Java,
    spark_home: Path,
    folder: Path,
    settings: Mapping[str, str],
    options: Sequence[str],
    stop: threading.Event | None = None,
) -> Gateway:
    """Start a JVM that waits for a session. Its temporary files are in `folder`.

    `JvmUnwanted` if `stop` is set before.
    """
    told = folder / "gateway"
    kept = properties_file(folder, settings)
    process = subprocess.Popen(  # noqa: S603 - the Java that find_java has run
        [
            java.executable,
            *_options(java, folder),
            *classes.options(java, spark_home),
            *options,
            "-cp",
            f"{spark_home}/jars/*",
            "org.apache.spark.deploy.SparkSubmit",
            "--properties-file",
            kept,
            "pyspark-shell",
        ],
        stdin=subprocess.PIPE,
        env=_environment(settings["spark.pyspark.python"], told),
        process_group=0,  # Ctrl-C must reach this process only; the JVM ends with it
    )
    _leave_to_parent(process)
    try:
        return _wait(process, told, java, stop or threading.Event())
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        kept.unlink()


def prepare(java: Java, spark_home: Path) -> int:
    """Make all later starts faster; return the bytes that this takes on disk."""
    return classes.prepare(java, spark_home, _flags(java))


def _flags(java: Java) -> list[str]:
    """Return the flags that open Java's packages to Spark. The archive of classes is made with them, too."""
    flags = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED_PACKAGES]
    if java.version < 24:
        return [*flags, "--add-opens=java.base/sun.security.action=ALL-UNNAMED"]
    return [*flags, "--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED"]


def _options(java: Java, folder: Path) -> list[str]:
    options = _flags(java)
    options += [f"-D{name}={value}" for name, value in PROPERTIES.items()]
    options += [
        f"-Djava.io.tmpdir={folder}",
        log_option(),
        # Spark looks for the words of an interruption in the text of an error from foreachBatch, with a pattern that
        # recurses for every character: half a kilobyte each.
        "-Xss16m",
        "-XX:-UsePerfData",
    ]
    return options


def log_option() -> str:
    """Return the option that makes the JVM log little."""
    return f"-Dlog4j2.configurationFile={files('strandline.pipeline') / 'log4j2.properties'}"


def properties_file(folder: Path, settings: Mapping[str, str]) -> Path:
    """Write settings into a file, as Spark reads them; on a command line everybody could read them."""
    kept = folder / "spark.properties"
    kept.touch(mode=0o600)
    kept.write_text("".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items()))
    return kept


def _environment(python: str, told: Path) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "JAVA_TOOL"))
    }
    return kept | {
        # SPARK_HOME is left out: with it workers import PySpark from a zip file, compiling it each time (0.6 s).
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": "2.13",
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
    }


def _leave_to_parent(process: subprocess.Popen[bytes]) -> None:
    """Close the JVM's standard input in forks of this process, which would keep the JVM alive after its death."""
    pipe = process.stdin
    if pipe is not None:
        os.register_at_fork(after_in_child=pipe.close)


def _wait(process: subprocess.Popen[bytes], told: Path, java: Java, stop: threading.Event) -> Gateway:
    deadline = time.monotonic() + UP_WAIT_S
    while not told.is_file():
        if stop.is_set():
            raise JvmUnwanted
        if process.poll() is not None:
            raise _no_start(java, f"it ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise _no_start(java, f"it was not up after {UP_WAIT_S} s")
        stop.wait(0.01)
    answer = told.read_bytes()
    told.unlink()
    port, length = struct.unpack(">ii", answer[:8])
    return Gateway(port, answer[8 : 8 + length].decode(), process)


def _no_start(java: Java, why: str) -> Unsupported:
    return Unsupported(
        f"Spark's JVM does not start: {why}",
        code="spark_setup",
        hint="see what it printed; `strandline doctor` shows the Java in use",
        java=str(java),
    )


def _escaped(text: str) -> str:
    """Return text as a Java properties file has it."""
    plain = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", "=": "\\=", ":": "\\:", " ": "\\ "}
    escaped = "".join(plain.get(char, char) for char in text)
    return "\\" + escaped if escaped[:1] in {"#", "!"} else escaped


# ------------------------------------------------------------ the folder of a session


def temporary_folder() -> Path:
    """Return a folder that only this user can enter. It is removed when this process ends; folders of dead processes
    are removed now.
    """
    place = _place()
    _sweep(place)
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=place))
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    owner = os.getpid()
    os.register_at_fork(after_in_child=lambda: os.close(lock))
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    return folder


def _place() -> Path:
    """Return the parent of temporary folders; a shorter one if the paths of sockets in them would be too long."""
    place = Path(tempfile.gettempdir())
    return place if sockets_fit(place / f"{FOLDER_PREFIX}00000000") else Path("/tmp")  # noqa: S108 - mkdtemp follows


def sockets_fit(folder: Path) -> bool:
    """Return whether a Unix socket in this folder has a path that the system takes."""
    return len(os.fsencode(folder)) + SOCKET_NAME_BYTES <= SOCKET_PATH_BYTES_MAX


def _sweep(place: Path) -> None:
    """Remove the folders of processes that were killed: no process holds their lock."""
    for lock in place.glob(f"{FOLDER_PREFIX}*/lock"):
        with contextlib.suppress(OSError), lock.open("rb") as file:
            if time.time() - os.fstat(file.fileno()).st_mtime > SWEEP_AGE_S:  # a new one may not be locked yet
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
