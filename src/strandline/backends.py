"""Back-ends: how the log and the store of a URL's scheme are opened. The only module that imports concrete ones.

    scheme       log  store  other processes        client library
    memory       yes  yes    see nothing of it
    sqlite       yes  yes    on this machine
    postgresql   yes  yes    anywhere               psycopg
    kafka        yes  -      anywhere               confluent-kafka
    cassandra    -    yes    anywhere               cassandra-driver

A client library is imported when its scheme is opened; `Unsupported` says how to install one that is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from strandline.clock import now_us
from strandline.errors import NO_JOURNAL, SchemaMismatch, Unsupported, invalid
from strandline.extras import install
from strandline.log.api import Log
from strandline.settings import (
    APPEND_IDS_KEPT_DEFAULT,
    BATCH_ACTIONS_DEFAULT,
    BUCKET_SIZE_DEFAULT,
    PARTITIONS_DEFAULT,
    SEGMENT_SIZE_DEFAULT,
    Settings,
)
from strandline.store.api import Store, StoreSettings
from strandline.urls import Url

if TYPE_CHECKING:
    from strandline.steps import Description

Kind = Literal["log", "store"]
Clock = Callable[[], int]
_PACKAGES: Final = {"log": "strandline.log", "store": "strandline.store"}


class Backend(Protocol):
    """What can be done with a URL of one scheme. A kind that a scheme does not hold was refused with the URL."""

    shared: bool
    """Whether other processes can open the same."""
    local: bool
    """Whether they must run on this machine."""
    batch_actions_max: int
    """That setting where nothing is given, for the store."""

    def open_log(self, url: Url, settings: Settings, clock: Clock | None, *, create: bool) -> Log:
        """Open a log. `create` false: one that is not there is `SchemaMismatch.no_schema`, whatever the settings say.

        Without a clock the log uses its own: that of its server, if it has one.
        """

    def open_store(self, url: Url, settings: Settings, clock: Clock | None, log: Log | None) -> Store:
        """Open a store, or create it for a log; without a log one that is not there is `SchemaMismatch.no_schema`."""

    def describe(self, url: Url, kind: Kind, settings: Settings) -> Description:
        """What a schema says of itself, also where it is older or newer than this program's. Changes nothing."""

    def upgrade(self, url: Url, kind: Kind, settings: Settings) -> list[str]:
        """Do the steps that a schema lacks; their names."""


def backend_of(url: Url) -> Backend:
    """The back-end of a URL's scheme; `Unsupported` if its client library is not installed."""
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
    return _BACKENDS[url.scheme]


class Library(NamedTuple):
    """The client library of a scheme, and the extra that brings it."""

    module: str
    package: str
    extra: str


LIBRARIES: Final = {
    "postgresql": Library("psycopg", "psycopg", "postgres"),
    "kafka": Library("confluent_kafka", "confluent-kafka", "kafka"),
    "cassandra": Library("cassandra", "cassandra-driver", "cassandra"),
}


class _Memory:
    shared, local = False, False
    batch_actions_max = BATCH_ACTIONS_DEFAULT

    def open_log(self, url: Url, settings: Settings, clock: Clock | None, *, create: bool) -> Log:
        from strandline.log.memory import MemoryLog

        return MemoryLog(
            partitions=settings.partitions or PARTITIONS_DEFAULT,
            segment_size=settings.segment_size or SEGMENT_SIZE_DEFAULT,
            append_ids_kept=settings.append_ids_kept or APPEND_IDS_KEPT_DEFAULT,
            clock=clock or now_us,
        )

    def open_store(self, url: Url, settings: Settings, clock: Clock | None, log: Log | None) -> Store:
        from strandline.store.memory import MemoryStore

        if log is None:
            raise SchemaMismatch("a new memory store is empty", code="no_schema", hint=NO_JOURNAL)
        settings = _by_rules_of(log, settings)
        fixed = StoreSettings(
            log_id=log.log_id,
            partitions=log.partitions,
            segment_size=settings.segment_size or SEGMENT_SIZE_DEFAULT,
            append_ids_kept=settings.append_ids_kept or APPEND_IDS_KEPT_DEFAULT,
            bucket_size=settings.bucket_size or BUCKET_SIZE_DEFAULT,
        )
        return MemoryStore(fixed, clock=clock or now_us)

    def describe(self, url: Url, kind: Kind, settings: Settings) -> Description:
        raise _no_schema_in_memory()

    def upgrade(self, url: Url, kind: Kind, settings: Settings) -> list[str]:
        raise _no_schema_in_memory()


class _Sqlite:
    shared, local = True, True
    batch_actions_max = BATCH_ACTIONS_DEFAULT

    def open_log(self, url: Url, settings: Settings, clock: Clock | None, *, create: bool) -> Log:
        from strandline.log.sqlite import SqliteLog

        return SqliteLog(_path(url), settings=settings, clock=clock or now_us, create=None if create else False)

    def open_store(self, url: Url, settings: Settings, clock: Clock | None, log: Log | None) -> Store:
        from strandline.store.sqlite import SqliteStore

        if log is None:
            return SqliteStore.open(_path(url), settings, None, None, clock=clock or now_us)
        settings = _by_rules_of(log, settings)
        return SqliteStore.open(_path(url), settings, log.log_id, log.partitions, clock=clock or now_us)

    def describe(self, url: Url, kind: Kind, settings: Settings) -> Description:
        from strandline.sqlite import describe_database

        return describe_database(_path(url), kind=kind, package=_PACKAGES[kind], settings=settings)

    def upgrade(self, url: Url, kind: Kind, settings: Settings) -> list[str]:
        from strandline.sqlite import upgrade_database

        return upgrade_database(_path(url), kind=kind, package=_PACKAGES[kind], settings=settings)


class _Postgres:
    shared, local = True, False
    batch_actions_max = BATCH_ACTIONS_DEFAULT

    def open_log(self, url: Url, settings: Settings, clock: Clock | None, *, create: bool) -> Log:
        from strandline.log.postgres import PostgresLog

        return PostgresLog(url, settings=settings, clock=clock, create=create)

    def open_store(self, url: Url, settings: Settings, clock: Clock | None, log: Log | None) -> Store:
        from strandline.store.postgres import PostgresStore

        if log is None:
            return PostgresStore.open(url, settings, None, None, clock=clock)
        settings = _by_rules_of(log, settings)
        return PostgresStore.open(url, settings, log.log_id, log.partitions, clock=clock)

    def describe(self, url: Url, kind: Kind, settings: Settings) -> Description:
        from strandline.postgres import describe_database

        return describe_database(url, kind=kind, package=_PACKAGES[kind], settings=settings)

    def upgrade(self, url: Url, kind: Kind, settings: Settings) -> list[str]:
        from strandline.postgres import upgrade_database

        return upgrade_database(url, kind=kind, package=_PACKAGES[kind], settings=settings)


class _Kafka:
    shared, local = True, False
    batch_actions_max = BATCH_ACTIONS_DEFAULT

    def open_log(self, url: Url, settings: Settings, clock: Clock | None, *, create: bool) -> Log:
        from strandline.log.kafka import KafkaLog
        from strandline.log.kafka_client import bootstrap_of, client_of

        brokers, client = bootstrap_of(url), client_of(url)
        return KafkaLog(brokers, url.name, settings=settings, client=client, create=None if create else False)

    def open_store(self, url: Url, settings: Settings, clock: Clock | None, log: Log | None) -> Store:
        raise invalid("url_scheme", "store", "kafka holds no store", allowed="a store's URL", got=str(url))

    def describe(self, url: Url, kind: Kind, settings: Settings) -> Description:
        from strandline.steps import Description

        log = self.open_log(url, settings, None, create=False)
        log.close()
        return Description([], [], {"log_id": log.log_id, "partitions": str(log.partitions)})

    def upgrade(self, url: Url, kind: Kind, settings: Settings) -> list[str]:
        return []  # a topic has no schema of ours


class _Cassandra:
    """A store alone: a log would need what Cassandra does not have, one order for all writers."""

    shared, local = True, False
    batch_actions_max = 10_000  # it takes longer, so in shorter steps

    def open_log(self, url: Url, settings: Settings, clock: Clock | None, *, create: bool) -> Any:
        raise ValueError(f"{url} names no log")

    def open_store(self, url: Url, settings: Settings, clock: Clock | None, log: Log | None) -> Store:
        from strandline.store.cassandra import CassandraStore

        if log is None:
            return CassandraStore.open(url, settings, None, None, clock=clock or now_us)
        settings = _by_rules_of(log, settings)
        return CassandraStore.open(url, settings, log.log_id, log.partitions, clock=clock or now_us)

    def describe(self, url: Url, kind: Kind, settings: Settings) -> Description:
        from strandline.cassandra import Session, describe_keyspace

        with closing(Session(url, settings.append_timeout_s)) as session:
            return describe_keyspace(session)

    def upgrade(self, url: Url, kind: Kind, settings: Settings) -> list[str]:
        from strandline.cassandra import Session, upgrade_keyspace

        with closing(Session(url, settings.append_timeout_s)) as session:
            return upgrade_keyspace(session)


_BACKENDS: Final[dict[str, Backend]] = {
    "memory": _Memory(),
    "sqlite": _Sqlite(),
    "postgresql": _Postgres(),
    "kafka": _Kafka(),
    "cassandra": _Cassandra(),
}


def _by_rules_of(log: Log, settings: Settings) -> Settings:
    """Settings for a store: where the log folds by itself both go by the same rules."""
    return settings if log.rules is None else replace(settings, **log.rules._asdict())


def _path(url: Url) -> Path:
    if url.path is None:
        raise ValueError(f"{url} names no file")
    return url.path


def _no_schema_in_memory() -> Unsupported:
    return Unsupported("a journal in memory has no schema", code="not_shared", hint="give sqlite:FOLDER")
