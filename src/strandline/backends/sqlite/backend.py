"""The back-end of `sqlite:` URLs: one SQLite file for the log, and one for the store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.backends.api import Backend, Clock, of_log
from strandline.clock import now_us
from strandline.log.api import Log
from strandline.settings import BATCH_ACTIONS_DEFAULT, Settings
from strandline.sql.api import Database, Part
from strandline.store.api import Store
from strandline.urls import Url

if TYPE_CHECKING:
    from strandline.sql.steps import Description


class SqliteBackend(Backend):
    shared, local = True, True
    batch_actions_max = BATCH_ACTIONS_DEFAULT

    def open_log(self, url: Url, settings: Settings, clock: Clock | None, *, create: bool) -> Log:
        from strandline.backends.sqlite.log import SqliteLog

        return SqliteLog(_path(url), settings=settings, clock=clock or now_us, create=None if create else False)

    def open_store(self, url: Url, settings: Settings, clock: Clock | None, log: Log | None) -> Store:
        from strandline.backends.sqlite.store import open_store

        return open_store(_path(url), *of_log(log, settings), clock=clock or now_us)

    def open_database(
        self, url: Url, part: Part, settings: Settings, clock: Clock | None = None, *, fixed: Mapping[str, str]
    ) -> Database:
        from strandline.backends.sqlite import open_database

        return open_database(_path(url), part, settings=settings, clock=clock or now_us, fixed=fixed)

    def describe(self, url: Url, part: Part, settings: Settings) -> Description:
        from strandline.backends.sqlite import describe_database

        return describe_database(_path(url), part, settings=settings)

    def upgrade(self, url: Url, part: Part, settings: Settings) -> list[str]:
        from strandline.backends.sqlite import upgrade_database

        return upgrade_database(_path(url), part, settings=settings)


def _path(url: Url) -> Path:
    if url.path is None:
        raise ValueError(f"{url} names no file")
    return url.path


BACKEND = SqliteBackend()
