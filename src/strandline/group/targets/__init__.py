"""Databases of users as targets of groups, opened by their URLs. What each must do is `strandline.group.target`.

sql.py               a segment as one transaction: sqlite.py, postgres.py
cql.py               a step where there are no transactions: cassandra.py, and in memory `strandline.testing.lww`
rows_back.py         rows put back by their images, as restoring.py says
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

from strandline.backends import backend_of
from strandline.errors import Unsupported
from strandline.group.target import TargetDatabase
from strandline.settings import Settings
from strandline.urls import Url

_MODULES: Final = {"sqlite": "sqlite", "postgresql": "postgres", "cassandra": "cassandra"}
IN_MEMORY: Final[dict[str, Callable[..., TargetDatabase]]] = {}
"""What opens targets for tests, by the scheme of their URLs: who brings one puts it here."""


def open_target(url: Url, *, connections: int, consistency: str, settings: Settings) -> TargetDatabase:
    """Open a database of the user's; `Unsupported` if its client library is not installed."""
    if url.scheme in IN_MEMORY:
        return IN_MEMORY[url.scheme](url)
    if url.scheme not in _MODULES:
        raise Unsupported(
            f"{url} is a target for tests, which this program has not imported",
            code="not_installed",
            hint=f"import strandline.testing.{url.scheme}",
            package=f"strandline.testing.{url.scheme}",
        )
    backend_of(url)
    module = import_module(f"{__name__}.{_MODULES[url.scheme]}")
    opened: TargetDatabase = module.open_target(
        url, connections=connections, consistency=consistency, settings=settings
    )
    return opened
