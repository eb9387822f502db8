"""The tables of sets: each is compared with its declaration at every start, and a step on them changes them all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import apsw
import psycopg
import pytest

from strandline.backends import backend_of
from strandline.backends.postgres import schema as of_databases
from strandline.backends.sqlite import schema as of_files
from strandline.errors import InvalidInput, SchemaMismatch
from strandline.settings import Settings
from strandline.sql.api import Dialect
from strandline.sql.steps import SchemaStep, in_sets, steps_in
from strandline.testing.faults import Crash
from strandline.urls import sql_url
from strandline.work import catalog
from strandline.work.journal import WorkJournal
from tests.work.test_tables import drain
from tests.work.worlds import S, World, declaration, one

KINDS = ("entry", "order", "state")
ADD = {
    "sqlite": "ALTER TABLE work_{{1}}_{kind} ADD COLUMN grown TEXT;",
    "postgres": "ALTER TABLE {{schema}}.work_{{1}}_{kind} ADD COLUMN IF NOT EXISTS grown text;",
}


@contextmanager
def later_program(*, additive: bool = True) -> Iterator[None]:
    """What is opened inside is opened by a program that knows one more step, on the tables of all sets."""

    def steps(package: str, folder: str, dialect: Dialect | None = None) -> tuple[SchemaStep, ...]:
        known = steps_in(package, folder, dialect)
        if package != "strandline.work":
            return known
        script = "\n".join(ADD[str(dialect)].format(kind=kind) for kind in KINDS)
        return (*known, SchemaStep("800_grown", script, additive))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strandline.sql.steps.steps_in", steps)
        of_files.schema_of.cache_clear()
        try:
            yield
        finally:
            of_files.schema_of.cache_clear()


def upgrade(world: World) -> list[str]:
    url = sql_url("work", world.place)
    return backend_of(url).upgrade(url, catalog.PART, Settings())


def by_hand(world: World, *statements: str) -> list[Any]:
    """Statements of somebody else's, and what the last one gives."""
    if world.is_sqlite:
        file = apsw.Connection(world.place.removeprefix("sqlite:"))
        rows = [file.execute(text).fetchall() for text in statements]
        file.close()
        return rows[-1]
    url, _, schema = world.place.partition("&schema=")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'SET search_path = "{schema}"'.encode())
        answers = [connection.execute(text.encode()) for text in statements]
        return answers[-1].fetchall() if answers[-1].description else []


def fill(work: WorkJournal, world: World, name: str) -> None:
    """Entries in several tables: due, later, claimed, and behind."""
    for batch in range(3):
        work.add_many([one(f"{name}{batch}-{number}") for number in range(12)])
        work.tick()
    work.add(**one(f"{name}-later", process_date=world.clock.now + 3600 * S))
    (claim,) = work.cursor("w").claim(1).claims
    work.add(**one(claim.entry.key["page"], "behind"))


ALTERED = {
    "sqlite": [
        ["ALTER TABLE work_thumbs_entry ADD COLUMN more TEXT"],
        ["ALTER TABLE work_thumbs_state DROP COLUMN counter"],
        ["DROP TABLE work_thumbs_order"],
    ],
    "postgres": [
        ["ALTER TABLE work_thumbs_entry ADD COLUMN more text"],
        ["ALTER TABLE work_thumbs_state DETACH PARTITION work_thumbs_state_2",
         "ALTER TABLE work_thumbs_state_2 DROP COLUMN lease"],
        ["ALTER TABLE work_thumbs_order DETACH PARTITION work_thumbs_order_0", "DROP TABLE work_thumbs_order_0"],
    ],
}  # fmt: skip


@pytest.mark.req("W3", "J109")
@pytest.mark.parametrize("how", range(3))
def test_an_altered_table_of_a_set_is_refused(world: World, how: int) -> None:
    fill(world.work(table_rows_max=10), world, "a")
    world.work()  # as they are they are right, those of the ring, too
    altered = ALTERED["sqlite" if world.is_sqlite else "postgres"][how]
    by_hand(world, "DROP VIEW work_thumbs_whole", *altered)
    with pytest.raises(SchemaMismatch, match="has another table work_thumbs_") as refused:
        world.work()
    assert (refused.value.code, refused.value.hint) == ("version", "restore a backup")


@pytest.mark.req("W3", "J110", "RS5")
def test_a_step_on_sets_is_done_for_all_of_them_or_for_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    old = world.work(table_rows_max=10)
    fill(old, world, "a")
    fill(world.work(declaration("nails", table_rows_max=10)), world, "b")
    counts = old.counts()

    def dying(script: str, sets: Any) -> Iterator[str]:
        for number, text in enumerate(in_sets(script, sets)):
            if number == 2:  # the template and one set are done
                raise Crash
            yield text

    with later_program():
        with pytest.raises(SchemaMismatch) as refused:
            world.work()
        assert refused.value.hint == "strandline schema upgrade"
        for module in (of_files, of_databases):
            monkeypatch.setattr(module, "in_sets", dying)
        with pytest.raises(Crash):
            upgrade(world)
        monkeypatch.undo()
    world.work().tick()  # nothing has changed for who knows of no step
    assert old.counts() == counts
    with later_program():
        assert upgrade(world) == ["800_grown"]
        assert upgrade(world) == []
        new = world.work(table_rows_max=10)
        assert new.counts() == counts
        with pytest.raises(InvalidInput):
            new.add(**one("a", priority=300))
        assert new.add(**one("by-new")).outcome == "inserted"
    assert old.add(**one("by-new", "merged by an older one")).outcome == "merged"
    world.clock.pass_s(4000)
    assert drain(old, 10) == 10
    with later_program():
        assert drain(world.work(table_rows_max=10)) == counts.due + counts.later + counts.running + 1 - 10


@pytest.mark.req("W3", "J110", "RS5")
def test_older_programs_make_tables_as_the_newest_step_has_them(world: World) -> None:
    """Between the step and the next start of an older program: what it makes, a newer one opens."""
    old = world.work(table_rows_max=10)
    fill(old, world, "a")
    with later_program():
        upgrade(world)
    late = world.work(declaration("late", table_rows_max=10))
    for journal in (old, late):
        fill(journal, world, "c")
        journal.tick()
    with later_program():
        world.work("late").add(**one("x"))
        assert drain(world.work("late")) == 36  # one is claimed, one is behind it, one is later
        assert world.work().add(**one("x")).outcome == "inserted"
    by_hand(world, *(f"SELECT grown FROM work_{name}_{kind}" for name in ("late", "thumbs") for kind in KINDS))


@pytest.mark.req("W3", "J110")
def test_who_does_not_know_a_step_that_is_not_additive_is_refused(world: World) -> None:
    world.work()
    with later_program(additive=False):
        upgrade(world)
        world.work()
    with pytest.raises(SchemaMismatch, match="800_grown"):
        world.work()


@pytest.mark.req("W3", "J110", "RS5")
def test_a_step_under_load(world: World) -> None:
    """Adds, claims and closings of two older programs go on while the step is done; each entry is done once."""
    journals = [world.real(table_rows_max=20) for _ in range(2)]
    stop, added, done, errors = Event(), [0, 0], [0, 0], list[Exception]()

    def busy(place: int) -> None:
        work, number = journals[place], 0
        try:
            while not stop.is_set() or number < 10:
                work.add_many([one(f"{place}-{number}-{n}") for n in range(5)])
                number, added[place] = number + 1, added[place] + 5
                claims = work.cursor("w").claim(5).claims
                done[place] += work.done_many(claims).count("done")
                work.tick()
        except Exception as error:
            errors.append(error)
            raise

    threads = [Thread(target=busy, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    try:
        with later_program():
            assert upgrade(world) == ["800_grown"]
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert errors == []
    assert sum(done) + drain(journals[0]) == sum(added)
