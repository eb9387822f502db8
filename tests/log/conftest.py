"""What tests of several logs have in common."""

from __future__ import annotations

import pytest

from strandline.servers.postgres import PostgresServer
from tests.log.postgres_logs import new_url


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    """A place in PostgreSQL for a log."""
    return new_url(postgres)
