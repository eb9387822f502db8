"""The servers of a run: started once, on the disk that is measured, stopped and removed at its end."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from strandline.backends import backend_of
from strandline.errors import StrandlineError, Unavailable
from strandline.servers.all import SERVERS
from strandline.servers.cassandra import CassandraServer
from strandline.servers.server import Server
from strandline.urls import Url

# A node that is loaded to its limit shall be late rather than fail: a bare writer has nobody to try again for it.
PATIENT = {"write_request_timeout": "20s", "read_request_timeout": "20s"}
MADE: dict[str, Callable[[], Server]] = {**SERVERS, "cassandra": partial(CassandraServer, settings=PATIENT)}
SCHEMES = {"postgres": "postgresql", "kafka": "kafka", "cassandra": "cassandra"}


class Running(NamedTuple):
    """Servers by name: the addresses of those that run, and why others cannot be had."""

    addresses: dict[str, str]
    missing: dict[str, StrandlineError]


@contextmanager
def running(names: Sequence[str], given: Mapping[str, str], told: Callable[[str], None]) -> Iterator[Running]:
    """Start those of `names` that are not among the `given` ones, which run already and are left alone."""
    found = Running({name: given[name] for name in names if name in given}, {})
    with ExitStack() as stack:
        for name in names:
            if name in found.addresses:
                continue
            told(f"starting {name}")
            server = MADE[name]()
            stack.callback(server.close)
            try:
                backend_of(Url(SCHEMES[name]))  # its client library
                server.start()
                _check_disk(server)
            except StrandlineError as error:
                found.missing[name] = error
            else:
                found.addresses[name] = server.url
        yield found


def _check_disk(server: Server) -> None:
    """A server's folder is made where temporary ones are, unless its user cannot get there."""
    place = Path(tempfile.gettempdir())
    if server.folder.stat().st_dev != place.stat().st_dev:
        raise Unavailable(
            f"{server.name} cannot keep its files on the disk of {place}",
            code="away",
            hint="set TMPDIR to a short path that every user can pass through",
        )
