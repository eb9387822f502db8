"""Back-ends: how the log and the store of a URL's scheme are opened. One folder for each system.

    scheme       log  store  other processes        client library
    memory       yes  yes    see nothing of it
    sqlite       yes  yes    on this machine
    postgresql   yes  yes    anywhere               psycopg
    kafka        yes  -      anywhere               confluent-kafka
    cassandra    -    yes    anywhere               cassandra-driver

A client library is imported when its scheme is opened; `Unsupported` says how to install one that is missing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, NamedTuple

from strandline.backends.api import Backend
from strandline.errors import Unsupported
from strandline.extras import install
from strandline.urls import Url

_MODULES: Final = {
    "memory": "strandline.backends.memory",
    "sqlite": "strandline.backends.sqlite",
    "postgresql": "strandline.backends.postgres",
    "kafka": "strandline.backends.kafka",
    "cassandra": "strandline.backends.cassandra",
}
"""The packages by scheme. Each has a module `backend`, which is imported when a URL of its scheme is opened."""


def backend_of(url: Url) -> Backend:
    """Return the back-end of a URL's scheme; `Unsupported` if its client library is not installed."""
    library = LIBRARIES.get(url.scheme)
    if library is not None:
        try:
            import_module(library.module)
        except ImportError as error:
            raise Unsupported(
                f"{url.scheme} needs the package {library.package}, which cannot be imported: {error}",
                code="not_installed",
                hint=install(library.extra),
                package=library.package,
            ) from error
    module = import_module(f"{_MODULES[url.scheme]}.backend")
    backend: Backend = module.BACKEND
    return backend


class Library(NamedTuple):
    """The client library of a scheme, and the extra that installs it."""

    module: str
    package: str
    extra: str


LIBRARIES: Final = {
    "postgresql": Library("psycopg", "psycopg", "postgres"),
    "kafka": Library("confluent_kafka", "confluent-kafka", "kafka"),
    "cassandra": Library("cassandra", "cassandra-driver", "cassandra"),
}
