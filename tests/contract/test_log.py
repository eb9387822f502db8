"""The contract of an action log, on every back-end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.log.api import Log
from strandline.log.memory import MemoryLog, now_us
from strandline.log.sqlite import SqliteLog
from strandline.settings import Settings
from strandline.testing.log_contract import LogContract, Opened


class TestMemoryLog(LogContract):
    durable = False

    @pytest.fixture
    def opened(self) -> Opened:
        return MemoryLog


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
