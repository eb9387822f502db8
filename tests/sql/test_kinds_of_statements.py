"""Databases that speak PostgreSQL's protocol lack some of its statements: a right answer needs none of those."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest

import strandline
from strandline import BySlices, Event, Key, Projection
from strandline.sql.sections import sections
from tests.projection.worlds import QUICK, caught_up, running, until
from tests.query.filling import carry_all
from tests.servers.fixtures import REASONS, plain_postgres

NEEDS_THEM = re.compile(
    r"\b(nextval|currval|setval|\w*serial|sequence|identity|lock\s+table|pg_(try_)?advisory\w*|notify|pg_notify|listen"
    r"|unlisten|create\s+(constraint\s+)?trigger)\b",
    re.IGNORECASE,
)
DOES_WITHOUT = {"advisory_lock", "ring", "listen"}
"""Used where they are there: a row of a table locks as well (slower), and who is not woken looks by itself."""
REAL = ("cockroachdb", "yugabytedb")


def statements() -> Iterator[tuple[str, str]]:
    """Every statement that PostgreSQL is sent for log, store and projections, schema steps included."""
    for part in ("log", "store", "projection", "sql", "backends.postgres"):
        for section in sections(f"strandline.{part}", "sql").values():
            if section.dialect != "sqlite" and not section.name.startswith("target_"):
                yield section.name, "\n".join(line.partition("--")[0] for line in section.text.splitlines())


@pytest.mark.req("P14")
def test_no_statement_needs_a_sequence_a_lock_of_tables_or_notify() -> None:
    found = dict(statements())
    assert len(found) > 100
    needing = {name for name, text in found.items() if NEEDS_THEM.search(text)}
    assert needing == DOES_WITHOUT


@pytest.mark.req("P14")
@pytest.mark.parametrize("text", [
    "SELECT nextval('x')", "id bigserial", "LOCK TABLE a", "select pg_advisory_xact_lock(1)", "NOTIFY x",
    "n bigint GENERATED ALWAYS AS IDENTITY", "SELECT pg_try_advisory_lock(1)", "CREATE SEQUENCE s",
])  # fmt: skip
def test_the_kinds_are_known(text: str) -> None:
    assert NEEDS_THEM.search(text)


@pytest.fixture(params=["postgresql", *REAL])
def place(request: pytest.FixtureRequest) -> str:
    """A database without such statements: PostgreSQL's own with its functions gone, or a real other one."""
    if request.param == "postgresql":
        return f"{plain_postgres()}&schema=k{uuid4().hex}"
    variable = f"STRANDLINE_TEST_{request.param.upper()}_URL"
    url = os.environ.get(variable)
    if not url:
        REASONS[request.param] = f"not run: {variable} names none"
        pytest.skip(f"{request.param} was not run; see the table of reasons")
    return f"{url}{'&' if '?' in url else '?'}schema=k{uuid4().hex}"


@pytest.mark.req("P14", "P95")
def test_an_event_goes_all_the_way_without_them(place: str) -> None:
    with strandline.connect(place, partitions=3) as s, closing(s.open_offsets().store) as offsets:
        with offsets.database.write() as tx:
            raw: Any = tx.raw
            raw.execute(f"create table {(table := f'public.handled_{uuid4().hex}')} (key text, seq_nr bigint)")
        for round_ in range(3):
            for number in range(12):
                s.journal.append(Key("order", str(number)), [Event("Placed", round_, tags=["blue"])])
            carry_all(s)
        s.journal.delete(Key("order", "1"), to=1)
        s.journal.purge(Key("order", "2"))
        carry_all(s)
        by_slices = [(str(event.key), event.seq_nr) for event in s.by_slices("order", 0, 1023)]
        assert len(by_slices) == 36 - 1 - 3
        assert len(list(s.by_tag("blue"))) == 36 - 3

        def handle(tx: Any, event: Any) -> None:
            tx.execute(f"insert into {table} values (%s, %s)", (str(event.key), event.seq_nr))

        with running(s, Projection("totals", BySlices("order"), handle, **QUICK)):
            until(lambda: caught_up(s))
            assert s.projections.rescale("totals", 2)
            s.journal.append(Key("order", "3"), [Event("Placed", 3)])
            carry_all(s)
            until(lambda: caught_up(s))
        with offsets.database.read() as tx:
            raw = tx.raw
            handled = [tuple(row) for row in raw.execute(f"select key, seq_nr from {table}")]
        assert sorted(handled) == sorted([*by_slices, ("order|3", 4)])
