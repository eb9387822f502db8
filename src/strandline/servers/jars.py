"""The jars of servers that come as Java: fetched once by the Ivy that PySpark carries, and checked.

Each server has a lock file beside this module, in the format of `sha256sum`: exactly these files, with exactly these
contents, or `Corrupt.digest`. A folder in the cache appears whole and checked, or not at all, however many processes
want it at the same time; later uses compare names and sizes with those that were checked.

The cache is in STRANDLINE_CACHE, or beside the user's other caches. STRANDLINE_IVY_SETTINGS names a settings file for
Ivy where the usual repositories cannot be reached. To move to other versions, change `LIBRARIES` and run
`python tools/lock_jars.py NAME`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from strandline.errors import Corrupt, Unavailable
from strandline.extras import install
from strandline.pipeline.java import find_java
from strandline.pipeline.scripts import cache_folder

CACHE = "STRANDLINE_CACHE"
IVY_SETTINGS = "STRANDLINE_IVY_SETTINGS"
STAMP = "checked.json"
FETCH_WAIT_S = 900
SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class JarSet:
    """The jars of a server: organisation, module and version of each part, which bring all that it needs."""

    name: str
    version: str
    parts: tuple[tuple[str, str, str], ...]
    takes: str
    lock_folder: Path = Path(__file__).parent

    @property
    def lock_path(self) -> Path:
        return self.lock_folder / f"{self.name}.sha256"

    @property
    def lock(self) -> Mapping[str, str]:
        """File names and their SHA-256."""
        lines = self.lock_path.read_text(encoding="ascii").splitlines()
        return {name: digest for digest, name in (line.split() for line in lines)}


KAFKA = JarSet(
    "kafka",
    "4.3.0",
    (("org.apache.kafka", "kafka_2.13", "4.3.0"), ("org.slf4j", "slf4j-simple", "1.7.36")),
    takes="45 MB, about a minute",
)
CASSANDRA = JarSet(
    "cassandra",
    "5.0.8",
    (("org.apache.cassandra", "cassandra-all", "5.0.8"),),
    takes="62 MB, one to two minutes",
)
LIBRARIES = {library.name: library for library in (KAFKA, CASSANDRA)}


def cache() -> Path:
    """Where fetched things are kept."""
    given = os.environ.get(CACHE)
    return Path(given).absolute() if given else cache_folder()


def jars(library: JarSet) -> Path:
    """The folder with exactly the jars of the lock file, fetched if need be."""
    folder = cache() / "jars" / f"{library.name}-{library.version}"
    if _is_whole(folder, library.lock):
        return folder
    with locked(folder):
        if not _is_whole(folder, library.lock):  # somebody else may have fetched them while we waited
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as aside:
                fetched = Path(aside) / "jars"
                fetch(library, fetched)
                check(fetched, library.lock)
                _stamp(fetched)
                shutil.rmtree(folder, ignore_errors=True)
                fetched.rename(folder)
    return folder


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time make `folder`."""
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = folder.with_name(f"{folder.name}.lock").open("ab")
    except OSError as error:
        raise Unavailable(
            f"{folder.parent} cannot be written: {error.strerror}",
            code="away",
            hint=f"set {CACHE} to a folder that you can write",
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetch(library: JarSet, folder: Path) -> None:
    """Fetch a library into a new folder, unchecked."""
    note(f"Fetching {library.name} {library.version} ({library.takes}, once)")
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as aside:
        wanted = Path(aside) / "ivy.xml"
        wanted.write_text(_ivy_file(library), encoding="utf-8")
        settings = os.environ.get(IVY_SETTINGS)
        argv = [
            *(find_java().executable, "-jar", ivy()),
            *(("-settings", settings) if settings else ()),
            *("-cache", f"{aside}/cache", "-ivy", wanted, "-confs", "default"),
            *("-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"),
        ]
        try:
            answer = subprocess.run(  # noqa: S603 - the Java that find_java has run
                argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=FETCH_WAIT_S, cwd=aside
            )
        except subprocess.TimeoutExpired:
            raise _not_fetched(library, f"not done after {FETCH_WAIT_S} s") from None
    if answer.returncode != 0:
        said = (answer.stdout + answer.stderr).decode(errors="replace").splitlines()
        told = dict.fromkeys(line.strip(" :\t") for line in said if re.search("not found|failed|rror|xception", line))
        raise _not_fetched(library, " / ".join([*told][:SHOWN_MAX]) or f"Ivy ended with {answer.returncode}")


def check(folder: Path, lock: Mapping[str, str]) -> None:
    """`Corrupt.digest` unless the folder holds the files of the lock and nothing else."""
    found = digests(folder)
    wrong = sorted(name for name in found.keys() | lock.keys() if found.get(name) != lock.get(name))
    if wrong:
        raise Corrupt(
            f"{len(wrong)} fetched files are not those of the lock file: {', '.join(wrong[:SHOWN_MAX])}",
            code="digest",
            hint="try again; if it stays so, find out who changed them before you trust them",
            files=wrong,
        )


def digests(folder: Path) -> dict[str, str]:
    """Names of files and their SHA-256."""
    found = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def ivy() -> Path:
    """The Ivy that PySpark carries."""
    spec = find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise Unavailable("PySpark is not installed", code="away", hint=install("servers"))
    return found[-1]


def note(line: str) -> None:
    """Say on stderr what takes long."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _is_whole(folder: Path, lock: Mapping[str, str]) -> bool:
    try:
        stamp = json.loads((folder / STAMP).read_bytes())
        return bool(stamp == {"lock": dict(lock), "sizes": _sizes(folder)})
    except (OSError, ValueError):
        return False


def _stamp(folder: Path) -> None:
    (folder / STAMP).write_text(json.dumps({"lock": digests(folder), "sizes": _sizes(folder)}, indent=0))


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir() if path.name != STAMP}


def _ivy_file(library: JarSet) -> str:
    parts = "\n".join(
        f"    <dependency org={quoteattr(org)} name={quoteattr(module)} rev={quoteattr(version)}/>"
        for org, module, version in library.parts
    )
    return f"""<ivy-module version="2.0">
  <info organisation="strandline" module={quoteattr(library.name)}/>
  <configurations defaultconfmapping="default->default"><conf name="default"/></configurations>
  <dependencies>
{parts}
  </dependencies>
</ivy-module>
"""


def _not_fetched(library: JarSet, why: str) -> Unavailable:
    return Unavailable(
        f"{library.name} {library.version} cannot be fetched: {why}",
        code="away",
        hint=f"this needs the network once; behind a mirror name Ivy's settings file in {IVY_SETTINGS}, "
        f"or bring a cache of another machine and name it in {CACHE}",
    )
