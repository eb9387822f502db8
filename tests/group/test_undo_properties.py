"""Random statements on small random tables: done, then undone, they leave the table as it was."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from strandline.group.target import Done, Undone
from tests.group.target_rooms import PostgresRoom, SqliteRoom, Stage
from tests.repeats import examples

KEYS = st.integers(0, 5)
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "it's", "1", "1.0", "\U0001f600", "x" * 300]))
NUMBERS = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([2**63 - 1, -(2**63)]))
REALS = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.0, 0.1, float("inf"), -float("inf"), 1e308]))
BLOBS = st.one_of(st.none(), st.binary(max_size=4))
ROWS = st.lists(
    st.tuples(KEYS, st.sampled_from(["p", "q"]), TEXTS, NUMBERS, REALS, BLOBS),
    max_size=8,
    unique_by=lambda row: row[:2],
)
CONDITIONS = st.sampled_from(
    ["", " WHERE a = :k", " WHERE a = :k AND b = 'p'", " WHERE a IN :ks", " WHERE n IS NULL OR n > 0", " WHERE a >= 2"]
)
SETS = st.lists(
    st.sampled_from(["t = :t", "n = :n", "r = :r", "x = :x", "n = a", "t = b || 'z'", "r = -r", "t = NULL"]),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one.split(" = ")[0],
)
ON_CONFLICT = st.sampled_from(
    ["", " ON CONFLICT DO NOTHING", " ON CONFLICT (a, b) DO UPDATE SET t = excluded.t, n = 7"]
)


@st.composite
def statements(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["update", "delete", "insert", "copy"]))
    if kind == "update":
        return f"UPDATE small SET {', '.join(draw(SETS))}{draw(CONDITIONS)}"
    if kind == "delete":
        return f"DELETE FROM small{draw(CONDITIONS)}"
    if kind == "insert":
        return f"INSERT INTO small VALUES (:k, 'p', :t, :n, :r, :x), (:l, 'q', :t, 0, 0.5, NULL){draw(ON_CONFLICT)}"
    return "INSERT INTO small (b, a, t) SELECT b, a + 6, t FROM small WHERE a < 3"


VALUES = st.fixed_dictionaries(
    {"k": KEYS, "l": KEYS, "ks": st.lists(KEYS), "t": TEXTS, "n": NUMBERS, "r": REALS, "x": BLOBS}
)


def done_and_undone(room: Any, rows: list[Any], steps: list[tuple[str, dict[str, Any]]], table: str) -> None:
    """Run the steps of a group, then undo those that ran, in reverse."""
    room.execute("DROP TABLE IF EXISTS small")
    room.execute(table)
    for row in rows:
        room.execute("INSERT INTO small VALUES ($1, $2, $3, $4, $5, $6)", row)
    look = "SELECT * FROM small ORDER BY a, b"
    before = repr(room.execute(look))
    stage = Stage(room)
    for text, values in steps:
        found = stage.run(text, values)
        if isinstance(found, Done):
            again = stage.ran(stage.segments[f"s{len(stage.segments) - 1}"])
            assert again == found
            assert stage.again
        else:
            assert found.reason == "statement", found
            assert stage.undo() == Undone(ran=False)
    for step in reversed(stage.segments):
        undone = stage.undo(step)
        assert isinstance(undone, Undone), undone
    assert repr(room.execute(look)) == before
    schema = "main" if room.dialect == "sqlite" else "strandline"
    room.execute(f"DELETE FROM {schema}.strandline_barrier")


SQLITE_TABLES = [
    "CREATE TABLE small (a integer, b text, t text, n integer, r real, x blob, PRIMARY KEY (a, b))",
    "CREATE TABLE small (a integer, b text, t text, n integer, r real, x blob, PRIMARY KEY (b, a)) WITHOUT ROWID",
    "CREATE TABLE small (a, b, t, n, r, x, PRIMARY KEY (a, b))",
    "CREATE TABLE small (a integer, b text, t text, n integer, r real, x blob, g AS (n + 1), PRIMARY KEY (a, b))",
]


@pytest.mark.req("G50", "G51", "G52", "G53", "RG2", "RG6")
@settings(max_examples=examples(150))
@given(
    rows=ROWS, steps=st.lists(st.tuples(statements(), VALUES), min_size=1, max_size=4),
    table=st.sampled_from(SQLITE_TABLES),
)  # fmt: skip
def test_what_is_done_and_undone_on_sqlite_leaves_no_trace(rows: Any, steps: Any, table: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        room = SqliteRoom(Path(folder) / "shop.db")
        try:
            done_and_undone(room, rows, steps, table)
        finally:
            room.close()


POSTGRES_TABLES = [
    """CREATE TABLE small (
        a integer, b text, t text, n bigint, r double precision, x bytea, g bigint GENERATED ALWAYS AS (a + 1) STORED,
        PRIMARY KEY (a, b))""",
    "CREATE TABLE small (a numeric, b varchar(3), t text, n numeric, r double precision, x bytea, PRIMARY KEY (b, a))",
]


@pytest.mark.req("G50", "G51", "G52", "G53", "RG2", "RG6")
@pytest.mark.timeout(600)
def test_what_is_done_and_undone_on_postgres_leaves_no_trace(shop: str) -> None:
    room = PostgresRoom(shop)

    @settings(max_examples=examples(25), phases=[Phase.generate])
    @given(
        rows=ROWS, steps=st.lists(st.tuples(statements(), VALUES), min_size=1, max_size=4),
        table=st.sampled_from(POSTGRES_TABLES),
    )  # fmt: skip
    def check(rows: Any, steps: Any, table: str) -> None:
        done_and_undone(room, rows, steps, table)

    try:
        check()
    finally:
        room.close()
