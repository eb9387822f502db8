"""The servers that programs run on: each is started when a program first needs it, and all stop at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final, TypeVar

from strandline.closed_at_end import ClosedAtEnd
from strandline.errors import InvalidInput

T = TypeVar("T")
_HOW: Final[dict[str, dict[str, Any]]] = {
    # Nobody kills it: neither its schema nor what it acknowledges need be on disk.
    "cassandra": {
        "properties": {"cassandra.unsafesystem": "true"},
        "settings": {"commitlog_sync": "periodic", "commitlog_sync_period": "10s"},
    },
}


class Servers(ClosedAtEnd):
    """URLs of servers by their names. A context manager."""

    def __init__(self, running: Mapping[str, str] | None = None) -> None:
        """`running`: URLs of servers that somebody else has started, and will stop."""
        self._urls = dict(running or {})
        self._kept: dict[str, Any] = {}
        self._versions: dict[str, str] = {}
        self._ends = ExitStack()

    def url(self, name: str) -> str:
        """The URL of `postgres`, `kafka` or `cassandra`; it is started if it does not run."""
        if name not in self._urls:
            self._urls[name] = self._started(name)
        return self._urls[name]

    def keep(self, name: str, made: Callable[[], T], close: Callable[[T], object] = lambda kept: None) -> T:
        """Return what programs use one after the other; the first makes it, and the end closes it."""
        if name not in self._kept:
            self._kept[name] = made()
            self._ends.callback(close, self._kept[name])
        found: T = self._kept[name]
        return found

    def versions(self) -> dict[str, str]:
        """The versions of those that were started here."""
        return dict(self._versions)

    def _started(self, name: str) -> str:
        try:
            from strandline.servers.all import SERVERS
        except ImportError:
            raise InvalidInput(
                f"the installed package starts no {name}; a checkout of the repository does",
                code="option",
                hint="run it in a checkout, or on sqlite",
            ) from None
        url = str(self._ends.enter_context(SERVERS[name](**_HOW.get(name, {}))).url)
        self._versions[name] = _version(name, url)
        return url

    def close(self) -> None:
        """Stop all that was started."""
        self._kept.clear()
        self._ends.close()


def _version(name: str, url: str) -> str:
    from strandline.servers.jars import LIBRARIES

    if name in LIBRARIES:
        return LIBRARIES[name].version
    import psycopg

    with psycopg.connect(url) as connection:
        return str(connection.info.parameter_status("server_version"))


def needed(servers: Servers | None) -> Servers:
    """The servers of a program that cannot do without."""
    if servers is None:
        raise ValueError("these programs need servers")
    return servers
