"""Journals on every pairing of SQL databases, and a new, empty place of the same kind for each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline.connect import Strandline

PAIRINGS = ("sqlite", "postgres", "sqlite-postgres", "postgres-sqlite")
"""One URL for all, or log and store."""


@dataclass(frozen=True)
class Journals:
    """Makes places of one pairing."""

    name: str
    request: pytest.FixtureRequest
    folder: Path

    def place(self, name: str) -> dict[str, Any]:
        """The URLs of a place where nothing is yet."""
        if self.name == "sqlite":
            return {"url": f"sqlite:{self.folder}/{name}"}
        if self.name == "postgres":
            return {"url": self._server()}
        log, store = self.name.split("-")
        return {
            "log": self._server() if log == "postgres" else f"sqlite:{self.folder}/{name}-log.db",
            "store": self._server() if store == "postgres" else f"sqlite:{self.folder}/{name}-store.db",
        }

    def _server(self) -> str:
        return str(self.request.getfixturevalue("postgres").database())


def words(place: dict[str, Any]) -> list[str]:
    """A place as the command line names it."""
    return [word for name, url in place.items() for word in (f"--{name}", url)]


@pytest.fixture(params=PAIRINGS)
def journals(request: pytest.FixtureRequest, tmp_path: Path) -> Journals:
    """Each pairing in turn."""
    return Journals(request.param, request, tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def alike(request: pytest.FixtureRequest, tmp_path: Path) -> Journals:
    """Journals that are in databases of one kind."""
    return Journals(request.param, request, tmp_path)


def opened(place: dict[str, Any]) -> Strandline:
    return strandline.connect(**place, partitions=2)
