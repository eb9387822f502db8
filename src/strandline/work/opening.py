"""Opens work journals: one database for all with the same URL. Checks whether it survives the loss of a machine."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from threading import Lock
from typing import Final, Protocol

from strandline.errors import InvalidInput, SchemaMismatch, Unsupported, counted
from strandline.journal.status import StatusSection
from strandline.sql.api import Database
from strandline.work import catalog
from strandline.work.declaration import WorkDeclaration, WorkSettings
from strandline.work.journal import WorkJournal

_log: Final = logging.getLogger("strandline.work")
_COUNTED: Final = re.compile(r"\s*(?:(?:ANY|FIRST)\s+)?(\d+)\s*\(", re.IGNORECASE)


class Opens(Protocol):
    """Opens the database of a URL, and makes it if there is none. None is the default URL of work journals."""

    def __call__(self, url: str | None, *, create: bool) -> Database: ...


class WorkJournals:
    """The work journals that one connection has open."""

    def __init__(self, opens: Opens, *, create: bool, clock: Callable[[], int] | None) -> None:
        self._opens = opens
        self._create = create
        self._clock = clock
        self._lock = Lock()
        self._databases: dict[str | None, Database] = {}
        self._journals: list[WorkJournal] = []
        self._warned: set[str | None] = set()
        self._closed = False

    def _database(self, url: str | None, *, create: bool) -> Database:
        with self._lock:
            if self._closed:
                raise InvalidInput("this connection is closed", code="closed", hint="connect again")
            if url not in self._databases:
                self._databases[url] = self._opens(url, create=create)
            return self._databases[url]

    def open(self, declared: WorkDeclaration | str, url: str | None) -> WorkJournal:
        """Open a journal. A declared journal that does not exist is made."""
        try:
            database = self._database(url, create=self._create)
        except SchemaMismatch as error:
            if error.code == "no_schema" and isinstance(declared, str):
                raise catalog.not_declared(declared, []) from error
            raise
        if url not in self._warned:
            self._warned.add(url)
            if standbys_of(database) == 0:
                _log.warning("%s: no synchronous standby: accepted work is lost with its machine", database.where)
        if isinstance(declared, WorkDeclaration):
            _check_standbys(database, declared.settings)
            now = self._clock() if self._clock is not None else database.now_us()
            known = catalog.declared(database, declared, now, create=self._create)
        else:
            known = catalog.opened(database, declared)
            _check_standbys(database, known.settings)
        journal = WorkJournal(database, known, clock=self._clock)
        with self._lock:
            self._journals.append(journal)
        return journal

    def section(self) -> StatusSection | None:
        """Return what `status` shows of the journals in the default place."""
        try:
            database = self._database(None, create=False)
        except (SchemaMismatch, Unsupported) as error:
            if error.code in ("no_schema", "work_url"):
                return None  # there is no work journal here, and there can be none
            raise
        with database.read() as tx:
            found = [catalog.looked_at(tx, database, name, self._clock) for name in catalog.names(tx)]
        standbys = standbys_of(database)
        warnings = []
        for one in found:
            if one.counts.unacknowledged:
                letters = counted(one.counts.unacknowledged, "dead letter")
                warnings.append(f"work {one.name}: {letters} unacknowledged; see `strandline work alerts {one.name}`")
            if one.counts.paused is not None:
                warnings.append(f"work {one.name}: paused ({one.counts.paused}); see `strandline work resume`")
        alerts = counted(sum(one.counts.unacknowledged for one in found), "alert")
        kept = "" if standbys is None else f", standbys: {standbys}"
        return StatusSection(
            "work",
            f"{counted(len(found), 'work journal')}, {alerts}{kept}",
            tuple(one.row for one in found),
            tuple(warnings),
        )

    def close(self) -> None:
        """Close all of them, and their databases. Twice is harmless."""
        self._closed = True
        for journal in self._journals:
            journal.close()
        for database in self._databases.values():
            database.close()


def standbys_of(database: Database) -> int | None:
    """Return how many synchronous standbys a server asks for; None for a file, which has none."""
    if database.dialect == "sqlite":
        return None
    ((names,),) = database.rows("standbys")
    return standbys_in(str(names))


def standbys_in(names: str) -> int:
    """Return how many standbys a value of `synchronous_standby_names` asks for; one if it names no number."""
    counted = _COUNTED.match(names)
    return int(counted[1]) if counted else int(bool(names.strip()))


def _check_standbys(database: Database, settings: WorkSettings) -> None:
    if not settings.standbys_min:
        return
    found = standbys_of(database)
    if found is None or found < settings.standbys_min:
        there = "a file has no standbys" if found is None else f"the server asks for {found} synchronous standbys"
        raise Unsupported(
            f"{database.where}: {there}; standbys_min is {settings.standbys_min}",
            code="standbys",
            hint="set synchronous_standby_names on a PostgreSQL server, or standbys_min=0",
            found=found or 0,
            wanted=settings.standbys_min,
        )
