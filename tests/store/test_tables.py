"""Tables as data: what a declaration says, and the digest of a row."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import Corrupt, SchemaMismatch
from strandline.rows import KeyRun, QuarantineRow
from strandline.store.tables import METAJOURNAL, POINTER, QUARANTINE, SNAPSHOT, HeadRow, Table, columns_of
from strandline.store.views import SLICES, kept
from strandline.values.events import EventRow
from strandline.values.heads import Head

NUMBERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(max_size=5)
BLOBS = st.binary(max_size=5)
VALUES = {"bigint": NUMBERS, "integer": NUMBERS, "text": TEXTS, "blob": BLOBS}
DIGESTED = [METAJOURNAL, POINTER, QUARANTINE, SNAPSHOT]


def rows_of(table: Table) -> st.SearchStrategy[tuple[Any, ...]]:
    columns = [VALUES[c.kind] | st.none() if c.nullable else VALUES[c.kind] for c in table.columns]
    return st.tuples(*columns)


@pytest.mark.parametrize("table", DIGESTED, ids=lambda table: table.name)
def test_a_row_is_read_as_it_was_written_and_no_other_way(table: Table) -> None:
    @given(rows_of(table), rows_of(table), st.integers(0, len(table.columns) - 1))
    def check(row: tuple[Any, ...], other: tuple[Any, ...], at: int) -> None:
        values = table.stored(row)
        assert tuple(table.read(values))[: len(row)] == row
        changed = list(values)
        changed[at] = other[at]
        if changed[at] != row[at] or type(changed[at]) is not type(row[at]):
            with pytest.raises(Corrupt) as refused:
                table.read(changed)
            assert refused.value.name == "Corrupt.digest"

    check()


def test_neighbours_cannot_lend_each_other_letters_or_nothing() -> None:
    """The canonical form has lengths and nulls: no two rows have the same one."""
    one = QuarantineRow(0, 1, 2, "a", "bc", b"d", b"", None, 0, None)
    for other in (
        one._replace(key="ab", reason="c"),
        one._replace(header=b"", value=b"d"),
        one._replace(life=0, first=None),
        one._replace(value=None),
        one._replace(key=None, reason="abc"),
    ):
        assert QUARANTINE.stored(one)[-1] != QUARANTINE.stored(other)[-1]


@pytest.mark.req("RR12")
def test_an_unknown_version_is_not_damage() -> None:
    values = list(POINTER.stored((1, 2, 3, 4, 5, 6)))
    values[-1] += 1 << 32
    with pytest.raises(SchemaMismatch) as refused:
        POINTER.read(values)
    assert refused.value.name == "SchemaMismatch.version"
    assert (refused.value.found, refused.value.known) == ([2], [1])
    values[-1] = -7
    with pytest.raises(Corrupt):
        POINTER.read(values)
    values[-1] = "x"
    with pytest.raises(Corrupt):
        POINTER.read(values)


def test_places_are_taken_from_rows() -> None:
    row = HeadRow("order", 601, "order|42", 1, 0, 1, 0, 9, 1, 2, None, None, 10, 1, 0, "[]")
    assert METAJOURNAL.place_of(row) == ("order", 601, "order|42")
    assert METAJOURNAL.partition_of(row) == ("order", 601)
    assert METAJOURNAL.within(row) == ("order|42",)
    assert POINTER.partition_of((3, 0)) == (3,)
    assert POINTER.within((3, 0)) == ()


@pytest.mark.req("P15")
def test_the_slice_view_is_in_minutes() -> None:
    at = 1_700_000_000_000_000
    event = EventRow("order|42", 1, 0, 1, 0, "order", 601, 3, at, b"body", 7)
    head = Head(1, 0, 1, 3, 9, at, at, None, None, 10, 0, 1, 0, (), None)
    made = {table.name: rows for table, rows in SLICES.rows(KeyRun("order|42", head, at, [event])).items()}
    assert made["slice_bucket"] == [("order", 3, at // 60_000_000)]
    assert made["entity_type"] == [(3, "order")]
    assert made["slice_view"][0][2:6] == (at // 60_000_000, at, 1, "order|42")
    assert kept((SLICES,), partitioned=False) == ()


@pytest.mark.parametrize(
    ("columns", "place", "partitioned_by"),
    [
        ("tag text, key text, life bigint", ("tag", "key", "life"), 1),
        ("key text, life bigint, tag text", ("key", "life", "tag"), 1),
        ("key text, life bigint, tag text", ("key", "life", "tag"), 3),
        ("tag text, key text, life bigint", ("key", "life", "tag"), 2),
    ],
)
def test_a_table_that_is_looked_up_with_heads_is_partitioned_by_key_and_life(
    columns: str, place: tuple[str, ...], partitioned_by: int
) -> None:
    """Cassandra asks for it by its partition key, and all stores tell whose rows they found by their first columns."""
    with pytest.raises(ValueError, match="key, life"):
        Table(
            "made_up", tuple, columns_of(columns), place=place, partitioned_by=partitioned_by, taken_by="purge",
            phase="progress", looked_up=True,
        )  # fmt: skip
