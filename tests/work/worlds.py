"""Work journals for tests, on both databases, with a clock that tests move."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from strandline.backends.postgres import open_database as open_postgres
from strandline.backends.sqlite import open_database as open_sqlite
from strandline.settings import Settings
from strandline.sql.api import Database
from strandline.urls import urls_of
from strandline.work import catalog
from strandline.work.declaration import WorkDeclaration
from strandline.work.journal import WorkJournal

START = 1_800_000_000_000_000
S = 1_000_000


class Clock:
    """Tells what it was set to."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += round(seconds * S)


def declaration(name: str = "thumbs", **more: Any) -> WorkDeclaration:
    key, data = more.pop("key", {"page": "text"}), more.pop("data", {"url": "text", "width": "int?"})
    return WorkDeclaration(name, key=key, data=data, **more)


def sqlite_place(folder: Path) -> str:
    return f"sqlite:{folder / 'work.db'}"


def postgres_place(url: str) -> str:
    return f"{url}&schema=s{uuid4().hex}"


def open_place(place: str) -> Database:
    """The database of a place, with the tables of work journals in it."""
    settings = Settings()
    if place.startswith("sqlite:"):
        return open_sqlite(place.removeprefix("sqlite:"), catalog.PART, settings=settings)
    return open_postgres(urls_of(place).log, catalog.PART, settings=settings)


class World:
    """A place with work journals."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.clock = Clock()
        self._open: list[WorkJournal] = []

    @property
    def is_sqlite(self) -> bool:
        return self.place.startswith("sqlite:")

    def work(
        self, declared: WorkDeclaration | str | None = None, *, clock: Callable[[], int] | None = None, **more: Any
    ) -> WorkJournal:
        """A journal, by a connection of its own."""
        database = open_place(self.place)
        known = clock or self.clock
        try:
            if isinstance(declared, str):
                found = catalog.opened(database, declared)
            else:
                found = catalog.declared(database, declared or declaration(**more), known(), create=True)
        except BaseException:
            database.close()
            raise
        journal = WorkJournal(database, found, clock=known, owned=True)
        self._open.append(journal)
        return journal

    def real(self, declared: WorkDeclaration | None = None, **more: Any) -> WorkJournal:
        """The same by the database's own clock."""
        database = open_place(self.place)
        found = catalog.declared(database, declared or declaration(**more), database.now_us(), create=True)
        journal = WorkJournal(database, found, owned=True)
        self._open.append(journal)
        return journal

    def close(self) -> None:
        for journal in self._open:
            journal.close()


def one(page: str, url: str = "u", **more: Any) -> dict[str, Any]:
    """An add."""
    return {"key": {"page": page}, "data": {"url": url}, **more}


def pages(batch: Any) -> list[str]:
    """The keys of what was claimed."""
    return [claim.entry.key["page"] for claim in batch.claims]
