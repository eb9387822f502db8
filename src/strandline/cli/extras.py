"""What is installed beside the core, and how to get what is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from strandline.errors import Unsupported

EXTRAS = {"spark": "carry and replay", "demo": "the tour and its charts", "bench": "benchmarks beside peers"}
"""Extras that this version has a use for."""
SPARK_MODULES = ("pyspark", "pyarrow", "pandas", "py4j", "numpy")
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


@contextmanager
def needs_spark() -> Iterator[None]:
    """`Unsupported.spark_setup` where a package that Spark needs is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in SPARK_MODULES:
            raise
        raise Unsupported(
            f"{error.name} is not installed; carrying runs on Spark", code="spark_setup", hint=install("spark")
        ) from None
