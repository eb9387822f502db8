"""Bare processes write what the pipeline writes: else their speed would say nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline.bench import fresh
from strandline.bench.cases import CaseSettings
from strandline.bench.fill import fill_in_child
from strandline.bench.floor import one_in_child, two_in_child
from strandline.servers.cassandra import CassandraServer
from strandline.servers.kafka import KafkaServer
from strandline.servers.postgres import PostgresServer
from strandline.servers.server import Server
from strandline.store.scans import entity_types_of, events_of
from strandline.testing import carry
from strandline.testing.store_contract.made import states_of

SMALL = {"batch_actions_max": 7}
Floor = Callable[[dict[str, Any]], dict[str, Any]]


def _stored(where: dict[str, Any]) -> list[object]:
    with strandline.connect(**where) as s:
        keys = [f"order|{number:08d}" for number in range(20)]
        partitions = range(s.store.settings.partitions)
        rows = [events_of(s.store, partition, after=(0, 0), to=2**62, limit=1000).rows for partition in partitions]
        states = [states_of(s.store, partition, keys)[1] for partition in partitions]
        pointers = [(p.offset, p.timestamp, p.last_action_at) for p in s.store.pointers()]
        assert entity_types_of(s.store) == ["order"]
        assert len(list(s.journal.read("order|00000007"))) == 30
    return [*rows, *states, pointers]


def _fills_alike(floor: Floor, carried: dict[str, Any], bare: dict[str, Any]) -> None:
    with strandline.connect(**carried) as s:
        for partition in range(s.log.partitions):  # without the Marks that a run of the pipeline adds
            carry(s, partition=partition)
    assert floor({**bare, **SMALL})["events"] == 600
    assert _stored(bare) == _stored(carried)


def _on_servers(log_kind: str, store_kind: str, floor: Floor, folder: Path, *servers: Server) -> None:
    plan = CaseSettings(folder, folder, True, {server.name: server.url for server in servers})
    log = fresh.log(log_kind, plan)
    scratch = {"log": log, "store": f"sqlite:{folder}/scratch.db", **fresh.ONE_NODE}
    fill_in_child(scratch, keys=20, appends=300, events=2)
    with fresh.store(store_kind, plan) as carried, fresh.store(store_kind, plan) as bare:
        there = [{"log": log, "store": store, **fresh.ONE_NODE} for store in (carried, bare)]
        _fills_alike(floor, *there)


def test_sqlite(tmp_path: Path) -> None:
    carried, bare = tmp_path / "carried", tmp_path / "bare"
    fill_in_child({"url": f"sqlite:{carried}"}, keys=20, appends=300, events=2)
    shutil.copytree(carried, bare)
    _fills_alike(one_in_child, {"url": f"sqlite:{carried}"}, {"url": f"sqlite:{bare}"})


@pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")
def test_postgres(tmp_path: Path, postgres: PostgresServer) -> None:
    _on_servers("postgres", "postgres", two_in_child, tmp_path, postgres)


@pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")
def test_kafka_and_postgres(tmp_path: Path, kafka: KafkaServer, postgres: PostgresServer) -> None:
    _on_servers("kafka", "postgres", two_in_child, tmp_path, kafka, postgres)


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")
def test_kafka_and_cassandra(tmp_path: Path, kafka: KafkaServer, cassandra: CassandraServer) -> None:
    _on_servers("kafka", "cassandra", two_in_child, tmp_path, kafka, cassandra)
