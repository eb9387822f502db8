"""A class archive of Spark's classes, read and verified once: a JVM that uses it starts in half the time, with half the
work.

Java calls it class data sharing. An archive fits one Java and one set of jars; a JVM with others starts without it. The
archive is code, so it is kept in a folder where only the user can write.

The classes are those that a rehearsal needed: a small journal, carried once (`rehearsal.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from strandline.errors import Unsupported
from strandline.pipeline.java import Java
from strandline.pipeline.scripts import cache_folder, is_ours

JAVA_CLASSES: Final = "java.jsa"
SPARK_CLASSES: Final = "spark.jsa"
PREPARE_WAIT_S: Final = 300
_UNHEARD: Final = "-Xlog:cds=off,cds+dynamic=off,class+path=off"
"""Silences Java's warnings about an archive that does not fit: the JVM only starts more slowly without it."""


def options(java: Java, spark_home: Path) -> list[str]:
    """Return the options that let a JVM use the archive of classes; none if there is no archive."""
    stamp = _stamp(java, spark_home)
    try:
        folder, *sizes = json.loads(stamp.read_text())["classes"]
        files = [Path(folder, name) for name in (JAVA_CLASSES, SPARK_CLASSES)]
        whole = [file.stat().st_size for file in files] == sizes
        fits = whole and is_ours(stamp.parent) and is_ours(Path(folder))
    except (OSError, ValueError, TypeError, KeyError):
        return []
    return [f"-XX:SharedArchiveFile={os.pathsep.join(map(str, files))}", _UNHEARD] if fits else []


def prepare(java: Java, spark_home: Path, flags: list[str]) -> int:
    """Prepare the class archive for JVMs that are started with these flags, in place of an older
    one; return its bytes.
    """
    stamp = _stamp(java, spark_home)
    stamp.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The files are made in their final folder and listed in the stamp when they are whole: the second file has the path
    # of the first in it.
    folder = Path(tempfile.mkdtemp(dir=stamp.parent, prefix=f"{stamp.stem}-"))
    try:
        base, all_ = folder / JAVA_CLASSES, folder / SPARK_CLASSES
        _run([str(java.executable), *flags, "-Xshare:dump", f"-XX:SharedArchiveFile={base}", "-Xlog:disable"])
        rehearsed = [f"-XX:SharedArchiveFile={base}", f"-XX:ArchiveClassesAtExit={all_}", "-Xlog:disable"]
        _run([sys.executable, "-m", "strandline.pipeline.rehearsal", shlex.join(rehearsed)])
        sizes = [_safe_size(file) for file in (base, all_)]
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, FileNotFoundError):
            raise _not_prepared(f"{java} keeps no classes") from None
        raise
    whole = folder / "stamp"
    whole.write_text(json.dumps({"spark": str(spark_home), "classes": [str(folder), *sizes]}))
    whole.replace(stamp)
    _remove_old(stamp.parent, stamp.stem)
    return sum(sizes)


def _remove_old(place: Path, ours: str) -> None:
    """Remove the stamps of Sparks that are gone, and archives that no stamp names, unless another process may be making
    one.
    """
    named = set()
    for stamp in place.glob("classes-*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            kept = json.loads(stamp.read_text())
            if Path(kept["spark"]).is_dir():
                named.add(kept["classes"][0])
            else:
                shutil.rmtree(kept["classes"][0], ignore_errors=True)
                stamp.unlink()
    for folder in place.glob("classes-*/"):
        with contextlib.suppress(OSError):
            made = folder.name.startswith(f"{ours}-") or time.time() - folder.stat().st_mtime > 2 * PREPARE_WAIT_S
            if made and str(folder) not in named:
                shutil.rmtree(folder)


def _stamp(java: Java, spark_home: Path) -> Path:
    """Return the file that names what was prepared for this Java and this Spark."""
    fits = "\0".join([str(java.home), str(java.version), str(spark_home)])
    return cache_folder() / f"classes-{hashlib.sha256(fits.encode()).hexdigest()[:16]}.json"


def _safe_size(file: Path) -> int:
    """Return the size of a file that is on disk: a JVM that finds half of one crashes."""
    with file.open("rb") as written:
        os.fsync(written.fileno())
        return os.fstat(written.fileno()).st_size


def _run(command: list[str]) -> None:
    try:
        answer = subprocess.run(  # noqa: S603 - our own Java and our own Python
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PREPARE_WAIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _not_prepared(str(error)) from None
    if answer.returncode != 0:
        said = [line for line in (answer.stdout + answer.stderr).splitlines() if line.strip()]
        raise _not_prepared(said[-1] if said else f"exit {answer.returncode}")


def _not_prepared(why: str) -> Unsupported:
    return Unsupported(
        f"Spark's classes cannot be prepared: {why}",
        code="spark_setup",
        hint="Spark starts without them, only slower; `strandline doctor` shows the Java in use",
    )
