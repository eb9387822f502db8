"""The contract of an action log, on every back-end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.servers.fixtures import plain_postgres

from strandline.backends.kafka.log import KafkaLog
from strandline.backends.memory.log import MemoryLog
from strandline.backends.postgres.log import PostgresLog
from strandline.backends.sqlite.log import SqliteLog
from strandline.clock import now_us
from strandline.log.api import Log
from strandline.servers.kafka import KafkaServer
from strandline.settings import Settings
from strandline.testing.inexact import InexactMemoryLog
from strandline.testing.log_contract import LogContract, Opened, UnfoldedLogContract
from strandline.urls import urls_of


class TestMemoryLog(LogContract):
    durable = False

    @pytest.fixture
    def opened(self) -> Opened:
        return MemoryLog


class TestInexactMemoryLog(UnfoldedLogContract):
    durable = False

    @pytest.fixture
    def opened(self) -> Opened:
        return InexactMemoryLog


@pytest.mark.filterwarnings("ignore:topic .* accept_power_loss is on:RuntimeWarning")
class TestKafkaLog(UnfoldedLogContract):
    @pytest.fixture
    def opened(self, kafka: KafkaServer) -> Iterator[Opened]:
        made: list[Log] = []
        topic = f"contract-{uuid4().hex}"

        def opened(**settings: Any) -> Log:
            given = Settings.of({"accept_power_loss": True, **settings})
            made.append(KafkaLog(kafka.bootstrap, topic, settings=given))
            return made[-1]

        yield opened
        for log in made:
            log.close()


class TestSqliteLog(LogContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Iterator[Opened]:
        made: list[Log] = []

        def opened(*, clock: Any = now_us, **settings: Any) -> Log:
            made.append(SqliteLog(tmp_path / "log.db", settings=Settings.of(settings), clock=clock))
            return made[-1]

        yield opened
        for log in made:
            log.close()


@pytest.mark.req("P95")
class TestPostgresLog(LogContract):
    @pytest.fixture
    def opened(self) -> Iterator[Opened]:
        url = urls_of(f"{plain_postgres()}&schema=s{uuid4().hex}").log
        made: list[Log] = []

        def opened(*, clock: Any = None, **settings: Any) -> Log:
            made.append(PostgresLog(url, settings=Settings.of(settings), clock=clock))
            return made[-1]

        yield opened
        for log in made:
            log.close()
