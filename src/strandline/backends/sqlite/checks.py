"""The checks before a file is opened: they refuse a library, a place or a clock that would not be safe."""

from __future__ import annotations

import os
import re
from pathlib import Path

import apsw

from strandline.caller_warnings import caution
from strandline.errors import Unsupported

SQLITE_VERSION_LEAST = (3, 51, 3)
SQLITE_VERSIONS_WITHDRAWN = {(3, 52, 0)}
NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs"}
MOUNTINFO = Path("/proc/self/mountinfo")


def check_library() -> None:
    """Raise `Unsupported.sqlite_version` for a library whose write-ahead log can lose commits of several processes."""
    version = apsw.sqlite_lib_version()
    found = tuple(int(part) for part in version.split(".")[:3])
    if found < SQLITE_VERSION_LEAST or found in SQLITE_VERSIONS_WITHDRAWN:
        raise Unsupported(
            f"SQLite {version} can damage a file that several processes write; 3.51.3 or newer is needed, not 3.52.0",
            code="sqlite_version",
            hint='pip install --upgrade "apsw>=3.51.3,!=3.52.0.*"',
            found=version,
            needed="3.51.3",
        )


def check_file_system(path: Path, mountinfo: Path = MOUNTINFO) -> None:
    """Raise `Unsupported.file_system` where locks or shared memory do not work; a warning for any other FUSE."""
    kind, mount = file_system_of(path, mountinfo)
    if kind in NETWORK_FILE_SYSTEMS:
        raise Unsupported(
            f"{path} is on {kind} ({mount}), where SQLite's locks are not safe",
            code="file_system",
            hint="use a local disk, or PostgreSQL",
            found=kind,
            mount=mount,
        )
    if kind == "fuse" or kind.startswith(("fuse.", "fuseblk")):
        caution(f"{path} is on {kind} ({mount}): make sure that it keeps locks and syncs")


def file_system_of(path: Path, mountinfo: Path = MOUNTINFO) -> tuple[str, str]:
    """Return type and mount point of the file system that holds a path; ("", "") where the system does not say."""
    try:
        lines = mountinfo.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return "", ""
    place = os.path.realpath(path)
    best, kind = "", ""
    for line in lines:
        before, _, after = line.partition(" - ")
        mount = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), before.split()[4])
        # A later line with the same mount point covers the earlier one.
        if len(mount) >= len(best) and (place == mount or place.startswith(mount.rstrip("/") + "/")):
            best, kind = mount, after.split()[0]
    return kind, best
