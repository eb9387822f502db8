"""Pairings of log and store for the end-to-end suite, each new and empty, on the servers of this run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import strandline
from strandline.connect import Strandline
from tests.lanes import needs_servers

PAIRINGS = (
    "sqlite-sqlite",
    "postgres-postgres",
    pytest.param("kafka-postgres", marks=needs_servers),
    pytest.param("kafka-cassandra", marks=needs_servers),
)
LEASE_S = 3.0


@dataclass(frozen=True, slots=True)
class Pairing:
    """Where a log and a store are."""

    name: str
    log: str
    store: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> dict[str, Any]:
        """For `connect` and everything that takes a URL and settings."""
        return {"log": self.log, "store": self.store, **self.settings}

    @property
    def words(self) -> list[str]:
        """The same for the command line."""
        said = [word for name, value in self.settings.items() for word in ("--set", f"{name}={value}")]
        return ["--log", self.log, "--store", self.store, *said]

    def connect(self, **more: Any) -> Strandline:
        return strandline.connect(**{**self.where, **more})


def pairing_of(name: str, request: pytest.FixtureRequest, folder: Path) -> Pairing:
    """A new pairing; servers start when the first test asks for them."""
    log, store = name.split("-")
    # One node is all there is here: its loss, or a power cut, may take acknowledged events along.
    settings: dict[str, Any] = {"lease_s": LEASE_S, "accept_power_loss": log == "kafka"}
    if name == "postgres-postgres":
        database = request.getfixturevalue("postgres").database()
        return Pairing(name, database, database, settings)
    places = {"log": log, "store": store}
    for part, kind in places.items():
        if kind == "sqlite":
            places[part] = f"sqlite:{folder}/{part}.db"
        elif kind == "postgres":
            places[part] = request.getfixturevalue("postgres").database()
        elif kind == "kafka":
            places[part] = f"{request.getfixturevalue('kafka').url}/t{uuid4().hex}"
        else:
            places[part] = request.getfixturevalue("unused_keyspace")()
    return Pairing(name, places["log"], places["store"], settings)


@pytest.fixture(params=PAIRINGS)
def pairing(request: pytest.FixtureRequest, tmp_path: Path) -> Pairing:
    """Each pairing in turn."""
    return pairing_of(request.param, request, tmp_path)


@pytest.fixture
def paired(pairing: Pairing) -> Iterator[Strandline]:
    """A connection to it."""
    with pairing.connect() as s:
        yield s
