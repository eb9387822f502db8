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

VALUES = ("order", 0, 0, 100, 0, 0, "", 2**62, 500)
"""Entity type, partition, slices, place, bound, limit."""


@pytest.mark.req("P12", "P13")
@pytest.mark.parametrize("name", ["slice_rows", "slice_places"])
def test_sqlite_seeks_in_the_index_and_sorts_nothing(tmp_path: Path, name: str) -> None:
    with strandline.connect(f"sqlite:{tmp_path}/orders", partitions=2) as s:
        for number in range(50):
            put(s, Key("order", str(number)), 4)
        carry_all(s)
    sql = statement("strandline.store", name, "sqlite")
    file = apsw.Connection(str(tmp_path / "orders/store.db"))
    (plan,) = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {sql}", VALUES)]
    assert "USING INDEX journal_by_slices (entity_type=? AND partition=? AND (timestamp,seq_nr,key)>(?,?,?)" in plan
    assert "(timestamp,seq_nr)<(?,?)" in plan
    file.close()


@pytest.mark.req("P12", "P13")
@pytest.mark.parametrize("name", ["slice_rows", "slice_places"])
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_postgres_seeks_in_the_index_and_sorts_nothing(name: str, mode: str) -> None:
    """Whatever is known of the values, and without statistics."""
    url = f"{shared_postgres().url}&schema=plans_of_slices"
    with strandline.connect(url, partitions=2) as s:
        for number in range(50):
            put(s, Key("order", str(number)), 4)
        carry_all(s)
    sql = statement("strandline.store", name, "postgres").replace("{schema}", "plans_of_slices")
    with psycopg.connect(shared_postgres().url, cursor_factory=psycopg.RawCursor) as connection:
        for setting in ("enable_seqscan", "enable_bitmapscan"):
            connection.execute(f"SET {setting} = off")
        connection.execute(f"SET plan_cache_mode = {mode}")
        connection.execute(f"PREPARE paging AS {sql}".encode())
        given = ", ".join(repr(value) for value in VALUES)
        plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN EXECUTE paging ({given})".encode()))
    assert "Index Scan using journal_by_slices" in plan
    assert "Sort" not in plan
