"""The back-end of `cassandra://` URLs: a store in a Cassandra keyspace."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from strandline.backends.api import Backend, Clock, of_log
from strandline.clock import now_us
from strandline.log.api import Log
from strandline.settings import Settings
from strandline.sql.api import Part
from strandline.store.api import Store
from strandline.urls import Url

if TYPE_CHECKING:
    from strandline.sql.steps import Description


class CassandraBackend(Backend):
    """Opens stores, but no logs: a log needs one order for all writers, which Cassandra does not have."""

    shared, local = True, False
    batch_actions_max = 10_000  # a batch takes longer here, so batches are smaller

    def open_log(self, url: Url, settings: Settings, clock: Clock | None, *, create: bool) -> Any:
        raise ValueError(f"{url} names no log")

    def open_store(self, url: Url, settings: Settings, clock: Clock | None, log: Log | None) -> Store:
        from strandline.backends.cassandra.store import CassandraStore

        return CassandraStore.open(url, *of_log(log, settings), clock=clock or now_us)

    def describe(self, url: Url, part: Part, settings: Settings) -> Description:
        from strandline.backends.cassandra import Session, describe_keyspace

        with closing(Session(url, settings.append_timeout_s, part.also)) as session:
            return describe_keyspace(session)

    def upgrade(self, url: Url, part: Part, settings: Settings) -> list[str]:
        from strandline.backends.cassandra import Session, upgrade_keyspace

        with closing(Session(url, settings.append_timeout_s, part.also)) as session:
            return upgrade_keyspace(session)

    def roles(self, url: Url, part: Part, prefix: str) -> str | None:
        from strandline.backends.cassandra.schema import roles_of

        return roles_of(url.name, prefix)


BACKEND = CassandraBackend()
