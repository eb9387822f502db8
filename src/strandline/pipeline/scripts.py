"""Small scripts that Spark and Java are started with, made once and kept in the user's cache.

A script's folder is named by what is in it, so several versions live side by side, and several processes may make the
same one at the same time. Nobody but the user can write there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path

from strandline.errors import Unsupported


def cache_folder() -> Path:
    """Return the folder for files that Strandline can make again."""
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given and Path(given).is_absolute() else Path.home() / ".cache") / "strandline"


def kept(program: str, text: str) -> Path:
    """Return the script `text` as FOLDER/bin/`program`, made if it is not there whole."""
    name = f"{program}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    for place in (cache_folder, _beside_temporary_files):
        with contextlib.suppress(OSError, RuntimeError):  # no home folder, or one that this user cannot write to
            folder = place()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            script = folder / name / "bin" / program
            if is_ours(folder) and (_holds(script, text) or _make(script, text)):
                return script
    raise Unsupported(
        "there is no folder of this user's own for scripts",
        code="spark_setup",
        hint="set XDG_CACHE_HOME to a folder that only you can write and where programs may run",
    )


def _beside_temporary_files() -> Path:
    return Path(tempfile.gettempdir()) / f"strandline-{os.getuid()}"


def _make(script: Path, text: str) -> bool:
    script.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Written aside and renamed, so that another process sees the script whole or not at all.
    number, aside = tempfile.mkstemp(dir=script.parent)
    with os.fdopen(number, "w") as file:
        file.write(text)
        os.fchmod(number, 0o700)
    Path(aside).replace(script)
    return _holds(script, text)


def _holds(script: Path, text: str) -> bool:
    """Return whether the script is there, as it should be, and can be run (not on a `noexec` mount)."""
    try:
        return is_ours(script.parent) and os.access(script, os.X_OK) and script.read_text() == text
    except OSError:
        return False


def is_ours(folder: Path) -> bool:
    """Return whether only this user can write into the folder."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
