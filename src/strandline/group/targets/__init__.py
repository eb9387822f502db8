"""Databases of users as targets of groups, opened by their URLs. What each must do is `strandline.group.target`.

sql.py               a segment as one transaction: sqlite.py, postgres.py
cql.py               a step where there are no transactions: cassandra.py, last_write_wins.py (in memory, for tests)
restoring.py         what putting a row back takes
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from strandline.backends import backend_of
from strandline.group.target import TargetDatabase
from strandline.settings import Settings
from strandline.urls import Url

_MODULES: Final = {
    "lww": "last_write_wins", "sqlite": "sqlite", "postgresql": "postgres", "cassandra": "cassandra",
}  # fmt: skip


def open_target(url: Url, *, connections: int, consistency: str, read_back: bool, settings: Settings) -> TargetDatabase:
    """Open a database of the user's; `Unsupported` if its client library is not installed."""
    if url.scheme != "lww":
        backend_of(url)
    module = import_module(f"{__name__}.{_MODULES[url.scheme]}")
    opened: TargetDatabase = module.open_target(
        url, connections=connections, consistency=consistency, read_back=read_back, settings=settings
    )
    return opened
