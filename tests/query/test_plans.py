"""A page of a query by slices costs the same whatever the backlog: the index serves it, and nothing is sorted."""

from __future__ import annotations

from pathlib import Path

import apsw
import psycopg
import pytest

import strandline
from strandline import Key
from strandline.sql.statements import statement
from tests.query.filling import carry_all, put
from tests.servers.fixtures import shared_postgres

VALUES = ("order", 0, 0, 100, 0, 0, 2**62, 500)
"""Entity type, partition, slices, place, bound, limit."""


@pytest.mark.req("P12", "P13")
def test_sqlite_seeks_in_the_index_and_sorts_nothing(tmp_path: Path) -> None:
    with strandline.connect(f"sqlite:{tmp_path}/orders", partitions=2) as s:
        for number in range(50):
            put(s, Key("order", str(number)), 4)
        carry_all(s)
    sql = statement("strandline.store", "range", "sqlite")
    file = apsw.Connection(str(tmp_path / "orders/store.db"))
    (plan,) = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {sql}", VALUES)]
    assert "USING INDEX journal_by_slices (entity_type=? AND partition=? AND (timestamp,seq_nr)>(?,?)" in plan
    file.close()


@pytest.mark.req("P12", "P13")
def test_postgres_seeks_in_the_index_and_sorts_nothing() -> None:
    url = f"{shared_postgres().url}&schema=plans_of_slices"
    with strandline.connect(url, partitions=2) as s:
        for number in range(50):
            put(s, Key("order", str(number)), 4)
        carry_all(s)
    sql = statement("strandline.store", "range", "postgres").replace("{schema}", "plans_of_slices")
    with psycopg.connect(shared_postgres().url, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute("SET enable_seqscan = off")
        connection.execute("SET enable_bitmapscan = off")
        plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {sql}".encode(), VALUES))
    assert "Index Scan using journal_by_slices" in plan
    assert "Sort" not in plan
