"""Processor time of all processes that take part: this one, all that it started, and a PostgreSQL's."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psutil


class Spent:
    """Looks at processes by their roots; what ended and was waited for is in its parent's account."""

    def __init__(self, where: dict[str, Any]) -> None:
        """`where` names log and store, as for `connect`; a PostgreSQL among them must run on this machine."""
        urls = {str(url) for url in where.values() if str(url).startswith("postgresql:")}
        self._roots = [psutil.Process(), *{_server(url) for url in urls}]

    def seconds(self) -> float:
        """So far. Only differences mean something."""
        return sum(_tree(root) for root in self._roots)


def _server(url: str) -> psutil.Process:
    import psycopg

    with psycopg.connect(url) as connection:
        return psutil.Process(connection.info.backend_pid).parent()


def _tree(root: psutil.Process) -> float:
    total = 0.0
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # it ends while we look; its parent will know
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
