"""The back-end of `postgresql://` URLs: log and store in a schema of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from strandline.backends.api import Backend, Clock, of_log
from strandline.log.api import Log
from strandline.settings import BATCH_ACTIONS_DEFAULT, Settings
from strandline.sql.api import Database, Part
from strandline.store.api import Store
from strandline.urls import Url

if TYPE_CHECKING:
    from strandline.sql.steps import Description


class PostgresBackend(Backend):
    shared, local = True, False
    batch_actions_max = BATCH_ACTIONS_DEFAULT

    def open_log(self, url: Url, settings: Settings, clock: Clock | None, *, create: bool) -> Log:
        from strandline.backends.postgres.log import PostgresLog

        return PostgresLog(url, settings=settings, clock=clock, create=create)

    def open_store(self, url: Url, settings: Settings, clock: Clock | None, log: Log | None) -> Store:
        from strandline.backends.postgres.store import open_store

        return open_store(url, *of_log(log, settings), clock=clock)

    def open_database(
        self, url: Url, part: Part, settings: Settings, clock: Clock | None = None, *, fixed: Mapping[str, str]
    ) -> Database:
        from strandline.backends.postgres import open_database

        return open_database(url, part, settings=settings, clock=clock, fixed=fixed)

    def describe(self, url: Url, part: Part, settings: Settings) -> Description:
        from strandline.backends.postgres import describe_database

        return describe_database(url, part, settings=settings)

    def upgrade(self, url: Url, part: Part, settings: Settings) -> list[str]:
        from strandline.backends.postgres import upgrade_database

        return upgrade_database(url, part, settings=settings)

    def roles(self, url: Url, part: Part, prefix: str) -> str | None:
        from strandline.backends.postgres import roles_of

        return roles_of(url, part, prefix)


BACKEND = PostgresBackend()
