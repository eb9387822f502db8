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


@pytest.mark.req("P32")
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_postgres_looks_key_rows_up_without_reading_all_of_the_projection(mode: str) -> None:
    """Without statistics, which a projection that was just begun has not, two rows of 5,000 are found by their keys."""
    schema = "plans_of_offsets"
    with strandline.connect(f"{shared_postgres().url}&schema={schema}") as s:
        s.open_offsets().store.close()
    sql = statement("strandline.projection", "key_rows", "postgres").replace("{schema}", schema)
    with psycopg.connect(shared_postgres().url, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute(f"ALTER TABLE {schema}.projection_offset SET (autovacuum_enabled = off)".encode())
        connection.execute(f"INSERT INTO {schema}.projection VALUES ('p','p',1,'s',1,'',0,0,0,NULL,0,'','[]')".encode())
        connection.execute(
            f"INSERT INTO {schema}.projection_offset "
            "SELECT 'p', 1, n % 1024, 'order|' || n, 1, 1, n, NULL FROM generate_series(1, 5000) AS n".encode()
        )
        connection.execute(f"SET plan_cache_mode = {mode}".encode())
        connection.execute(f"PREPARE asking AS {sql}".encode())
        asked = "EXECUTE asking ('p', 1, ARRAY[7, 8, 9], ARRAY['order|7', 'order|8', 'order|0'])"
        found = connection.execute(asked.encode()).fetchall()
        plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN ANALYZE {asked}".encode()))
        connection.rollback()
    assert [row[2] for row in found] == ["order|7", "order|8"]
    assert "Index Scan using projection_offset_pkey" in plan
    assert "(key = " in plan.replace("(o.key", "(key")
    assert "rows=5000" not in plan
