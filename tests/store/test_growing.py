"""A schema that grows: a step from the one before, with rows in the tables, killed half-way, beside older programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from strandline import Event, SchemaMismatch, Strandline
from strandline.backends import backend_of
from strandline.backends.cassandra import Session, upgrade_keyspace
from strandline.backends.sqlite import schema as of_files
from strandline.connect import parts
from strandline.settings import Settings
from strandline.sql.api import Dialect
from strandline.sql.steps import SchemaStep, steps_in
from strandline.testing import carry
from strandline.testing.faults import Crash
from strandline.urls import urls_of
from tests.lanes import needs_servers
from tests.pairings import Pairing, pairing_of
from tests.store.keyspaces import RELAXED

pytestmark = RELAXED
PAIRINGS = ("sqlite-sqlite", "postgres-postgres", pytest.param("sqlite-cassandra", marks=needs_servers))
CASSANDRA = "strandline.backends.cassandra"
TABLES = {
    ("strandline.log", "sqlite"): "action place latest head trimmed",
    ("strandline.log", "postgres"): "log_partition log_action log_head",
    ("strandline.store", "sqlite"): "journal metajournal pointer ended quarantine snapshot lease",
    ("strandline.store", "postgres"): "journal metajournal pointer ended quarantine snapshot lease",
    (CASSANDRA, "cql"): "journal slice_view metajournal pointer ended quarantine snapshot lease",
}
ADD = {
    "sqlite": "ALTER TABLE {table} ADD COLUMN grown TEXT;",
    "postgres": "ALTER TABLE {{schema}}.{table} ADD COLUMN IF NOT EXISTS grown text;",
    "cql": "ALTER TABLE keyspace.{table} ADD grown text;",
}
MORE = {
    "sqlite": """
        CREATE TABLE added (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
        CREATE INDEX added_by_value ON added (value);
        INSERT INTO added (name, value) VALUES ('rows', 7);
    """,
    "postgres": """
CREATE TABLE IF NOT EXISTS {schema}.{prefix}added (
    -- with a comment
    name text NOT NULL PRIMARY KEY,
    value double precision NOT NULL
);
CREATE INDEX IF NOT EXISTS {prefix}added_by_value ON {schema}.{prefix}added (value);
INSERT INTO {schema}.{prefix}added (name, value) VALUES ('rows', 7) ON CONFLICT DO NOTHING;
""",
    "cql": """
        CREATE TABLE IF NOT EXISTS keyspace.added (name text, value bigint, PRIMARY KEY ((name)));
        CREATE INDEX IF NOT EXISTS added_by_value ON keyspace.added (value);
        INSERT INTO keyspace.added (name, value) VALUES ('rows', 7);
    """,
}
HEADS = {
    "sqlite": "UPDATE metajournal SET grown = key;",
    "postgres": "UPDATE {schema}.metajournal SET grown = key;",
    "cql": """
        SELECT key AS given, entity_type, slice, key FROM keyspace.metajournal;
        UPDATE keyspace.metajournal SET grown = ? WHERE entity_type = ? AND slice = ? AND key = ?;
    """,
}


def grown_steps(package: str, folder: str, dialect: Dialect | None, *, additive: bool) -> tuple[SchemaStep, ...]:
    """The steps of a later program: it adds to everything that is there, and changes data."""
    form = dialect or "cql"
    columns = "\n".join(ADD[form].format(table=table) for table in TABLES[package, form].split())
    heads = "" if package == "strandline.log" else HEADS[form]
    known = steps_in(package, folder, dialect)
    more = MORE[form].replace("{prefix}", "log_" if package == "strandline.log" else "")
    return (*known, SchemaStep("800_columns", columns + heads, additive), SchemaStep("801_table", more, additive))


@contextmanager
def later_program(*, additive: bool = True) -> Iterator[None]:
    """What is opened inside is opened by a program that knows two more steps."""

    def steps(package: str, folder: str, dialect: Dialect | None = None) -> tuple[SchemaStep, ...]:
        return grown_steps(package, folder, dialect, additive=additive)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strandline.sql.steps.steps_in", steps)
        of_files.schema_of.cache_clear()
        try:
            yield
        finally:
            of_files.schema_of.cache_clear()


@pytest.fixture(params=PAIRINGS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Pairing:
    return place_of(request.param, request, tmp_path)


def place_of(name: str, request: pytest.FixtureRequest, folder: Path) -> Pairing:
    """A pairing whose schema is nobody else's: it will grow."""
    if name != "sqlite-cassandra":
        return pairing_of(name, request, folder)
    store = f"{request.getfixturevalue('cassandra').url}/k{uuid4().hex}?replication=1"
    return Pairing(name, f"sqlite:{folder}/log.db", store, {"lease_s": 3.0, "accept_power_loss": True})


def upgrade(place: Pairing) -> list[list[str]]:
    urls = urls_of(log=place.log, store=place.store)
    settings = Settings.of(place.settings)
    log, store = urls.log, urls.store
    return [
        backend_of(log).upgrade(log, parts()["log"], settings),
        backend_of(store).upgrade(store, parts()["store"], settings),
    ]


def work(s: Strandline, key: str) -> list[Any]:
    """Everything that writes and reads a table."""
    s.journal.append(key, [Event("Placed", number) for number in range(5)], expire_after=timedelta(days=9))
    s.journal.append(f"{key}-gone", [Event("Placed", 1)])
    carry(s)
    s.journal.save_snapshot(key, 2, {"so": "far"})
    s.journal.delete(key, to=1)
    s.journal.purge(f"{key}-gone")
    carry(s)
    s.journal.append(key, [Event("Paid", 9)])
    assert list(s.journal.read(f"{key}-gone")) == []
    recovered = s.journal.recover(key)
    assert recovered.snapshot is not None
    return [recovered.snapshot.seq_nr, [event.payload for event in recovered.events]]


DONE = [2, [2, 3, 4, 9]]


@pytest.mark.req("J110", "RS5")
def test_older_programs_go_on_beside_an_additive_step(place: Pairing) -> None:
    with place.connect() as old:
        assert work(old, "order|1") == DONE
        with later_program():
            with pytest.raises(SchemaMismatch) as refused:
                place.connect()
            assert refused.value.remedy == "strandline schema upgrade"
            assert upgrade(place) == [["800_columns", "801_table"]] * 2
            assert upgrade(place) == [[], []]
        assert work(old, "order|2") == DONE  # one that was open
        with later_program(), place.connect() as new:
            assert work(new, "order|3") == DONE
            with place.connect() as also:
                assert work(also, "order|4") == DONE
    with place.connect(schema="check") as old:  # one that starts now
        assert work(old, "order|5") == DONE
        assert [event.payload for event in old.journal.read("order|3")] == [1, 2, 3, 4, 9]
    assert upgrade(place) == [[], []]
    assert values_of(place, "SELECT value FROM {}added") == [7]
    grown = values_of(place, "SELECT grown FROM {}metajournal")
    assert sorted(grown, key=str) == [None, None, None, None, "order|1"]  # what stood there when the step was done


@pytest.mark.req("J110", "RS5", "U4")
@pytest.mark.parametrize("place", PAIRINGS[:2], indirect=True)  # Cassandra: test_cassandra_opening
def test_older_programs_refuse_a_step_that_is_not_additive(place: Pairing) -> None:
    with place.connect() as old:
        assert work(old, "order|1") == DONE
    with later_program(additive=False):
        upgrade(place)
        with place.connect() as new:
            assert work(new, "order|2") == DONE
    calls: list[Callable[[], object]] = [place.connect, lambda: upgrade(place)]
    for call in calls:
        with pytest.raises(SchemaMismatch) as refused:
            call()
        assert refused.value.name == "SchemaMismatch.version"
        assert "800_columns" in refused.value.message
        assert "newer" in refused.value.hint


@needs_servers
@pytest.mark.req("J110", "RJ12")
def test_a_step_that_was_killed_on_cassandra_is_ended_by_the_next(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each statement in turn; SQL back-ends do a step in a transaction, killed in tests of their own."""
    place = place_of("sqlite-cassandra", request, tmp_path)
    with place.connect() as s:
        assert work(s, "order|1") == DONE
    alter, deaths = Session.alter, 0
    with later_program(), closing(Session(urls_of(log=place.log, store=place.store).store, 30)) as session:
        for _ in range(40):
            left = [1]  # one statement more each time

            def dying(self: Session, text: str, *rest: Any, left: list[int] = left) -> None:
                if not left:
                    raise Crash
                left.pop()
                alter(self, text, *rest)

            monkeypatch.setattr(Session, "alter", dying)
            try:
                upgrade_keyspace(session)
                break
            except Crash:
                deaths += 1
        monkeypatch.undo()
        upgrade(place)
        with place.connect() as new:
            assert work(new, "order|2") == DONE
    assert deaths > 8
    assert values_of(place, "SELECT value FROM {}added") == [7]


def values_of(place: Pairing, query: str) -> list[Any]:
    """One column of a query on the store, asked by hand."""
    url = urls_of(log=place.log, store=place.store).store
    if url.scheme == "sqlite":
        import apsw

        connection = apsw.Connection(str(url.path))
        try:
            return [value for (value,) in connection.execute(query.format("")).fetchall()]
        finally:
            connection.close()
    if url.scheme == "postgresql":
        import psycopg

        with psycopg.connect(place.store) as session:
            return [value for (value,) in session.execute(query.format("strandline.")).fetchall()]
    with closing(Session(url, 30)) as session:
        return [value for (value,) in session.each_row(query.format(f'"{url.name}".'))]
