"""What `strandline servers` says to try works as it is printed."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from collections.abc import Sequence

import pytest

from strandline.cli.servers import show
from strandline.servers.all import example
from strandline.servers.cassandra import CassandraServer
from strandline.servers.kafka import KafkaServer
from strandline.servers.postgres import PostgresServer
from strandline.servers.server import Server


def works(servers: Sequence[Server]) -> None:
    options = shlex.split(example(servers) or "")
    command = [sys.executable, "-c", "from strandline.cli import main; main()", "append", "order|42", *options]
    event = '{"type": "Placed", "payload": 1}'
    done = subprocess.run(command, input=event, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_kafka_and_cassandra(kafka: KafkaServer, cassandra: CassandraServer) -> None:
    works([kafka, cassandra])


def test_one_alone_may_not_be_enough(kafka: KafkaServer, postgres: PostgresServer) -> None:
    assert example([kafka]) is None
    assert (example([postgres]) or "").startswith("--url ")


def test_urls_can_be_copied_from_a_narrow_terminal(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout", screen := Terminal())
    show([postgres])
    first, second, *_ = screen.getvalue().splitlines()
    assert first == f"postgres  {postgres.url}"
    assert second == f"          log: {postgres.log_path}"
