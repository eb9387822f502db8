"""A view that no store knows is added beside the fold: written, deleted, purged and killed on all five stores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from strandline.backends import backend_of
from strandline.backends.cassandra.store import CassandraStore
from strandline.backends.memory.store import MemoryStore
from strandline.backends.postgres.store import open_store as open_postgres
from strandline.backends.sqlite.store import open_store as open_sqlite
from strandline.connect import parts
from strandline.errors import SchemaMismatch
from strandline.servers.cassandra import CassandraServer
from strandline.servers.postgres import PostgresServer
from strandline.settings import Settings
from strandline.store import view_list
from strandline.store.api import Store
from strandline.store.sql_store import SqlStore
from strandline.store.view_list import views_of
from strandline.testing.faults import Crash, Faults, crash
from strandline.testing.last_write_wins import LastWriteWinsStore
from strandline.testing.store_contract import settings_of
from strandline.testing.tape import START_US, Tape
from strandline.urls import Url, urls_of
from tests.store.keyspaces import RELAXED, settings_for, url_of
from tests.store.made_up import DAY_US, MADE_TOTAL, MADE_UP, OF_DAY, TOTAL_OF
from tests.store.reading import expected as expected_events
from tests.store.sessions import dies_at, row_by_row

pytestmark = RELAXED
VIEWED = (*views_of(settings_of()), MADE_UP)
KEY, OTHER = "order|42", "order|7"
SIZE = 2


@contextmanager
def opened(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Makes empty stores of a kind."""
    made: list[Store] = []

    def make() -> Store:
        settings = Settings(segment_size=SIZE)
        if kind == "memory":
            made.append(MemoryStore(settings_of(segment_size=SIZE), views=VIEWED))
        elif kind == "last write wins":
            made.append(LastWriteWinsStore(settings_of(segment_size=SIZE), views=VIEWED))
        elif kind == "sqlite":
            made.append(open_sqlite(tmp_path / f"{len(made)}.db", settings, "tape", 1, views=VIEWED))
        elif kind == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres")
            url = urls_of(f"{server.url}&schema=s{uuid4().hex}").store
            made.append(open_postgres(url, settings, "tape", 1, views=VIEWED))
        else:
            node: CassandraServer = request.getfixturevalue("cassandra")
            url = url_of(node, "made_up")
            made.append(CassandraStore.open(url, settings_for(segment_size=SIZE), "tape", 1, views=VIEWED))
        return made[-1]

    try:
        yield make
    finally:
        for store in made:
            store.close()


def story() -> Tape:
    """A delete in the batch of its events, a purge, a second life, a correction's target."""
    tape = Tape()
    tape.append(KEY, ["a", "b", "c", "d", "e"])
    tape.append(OTHER, ["x"])
    tape.delete(KEY, 3, 1)
    tape.append(KEY, ["f"])
    tape.append(OTHER, ["y", "z"])
    tape.purge(OTHER)
    tape.append(OTHER, ["again"])
    tape.append(KEY, ["g"], damaged="digest")
    tape.delete(KEY, 4, 1)
    return tape


def shown(store: Store, keys: list[str]) -> tuple[list[tuple[str, int, int]], dict[str, tuple[int, int, int]]]:
    """The days' events (key, life, seq_nr), and of each key life, count and last number."""
    day, days, after, more = START_US // DAY_US, [], None, True
    while more:
        rows, more = store.scan(OF_DAY, (day,), after=after, limit=2)
        days += [(row.key, row.life, row.seq_nr) for row in rows]
        after = rows[-1][1:4] if rows else None
        more = more and bool(rows)
    found = store.look(0, keys, keys).rows
    totals = {key: row[1:4] for key in keys for row in found.get(key, {}).get(MADE_TOTAL, ())}
    return sorted(days), {key: cast(tuple[int, int, int], tuple(total)) for key, total in totals.items()}


def wanted(tape: Tape) -> tuple[list[tuple[str, int, int]], dict[str, tuple[int, int, int]]]:
    """The same from the tape alone."""
    days: list[tuple[str, int, int]] = []
    totals: dict[str, tuple[int, int, int]] = {}
    counts: dict[tuple[str, int], int] = {}
    for key in tape.all_keys():
        state, events = expected_events(tape, key, SIZE)
        if state is None or not hasattr(state, "seq_nr"):
            continue
        days += [(key, state.life, seq_nr) for seq_nr, _ in events]
        counts[key, state.life] = 0
    for key, life in counts:
        numbers = _numbers(tape, key, life)
        if numbers:
            totals[key] = (life, len(numbers), numbers[-1])
    return sorted(days), totals


def _numbers(tape: Tape, key: str, life: int) -> list[int]:
    """All numbers that events of a life ever had, deleted or not."""
    from tests.store.reading import _fold

    _, made = _fold(tape, key, None, -1, SIZE)
    return [seq_nr for of, (seq_nr, _) in made if of == life]


ALL = ["memory", "last write wins", "sqlite", "postgres", "cassandra"]


@pytest.mark.req("J74", "J75", "RJ5")
@pytest.mark.parametrize("kind", ALL)
def test_rows_are_written_deleted_and_purged(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with opened(kind, request, tmp_path) as make:
        store = make()
        tape = story()
        if isinstance(store, CassandraStore):
            for point in (2, 7, 12, 20, 31):
                die(store, tape, point)
        tape.carry(store, size=4)
        assert shown(store, tape.all_keys()) == wanted(tape)
        assert wanted(tape)[1][KEY] == (1, 7, 7)  # a delete does not take what was counted
        total, more = store.scan(TOTAL_OF, (KEY, 1), limit=1)
        assert ([tuple(row[:4]) for row in total], more) == ([(KEY, 1, 7, 7)], False)
        assert store.scan(TOTAL_OF, (KEY, 2), limit=1) == ([], False)
        (bad,) = [record for record in tape.records[0] if record.offset == _damaged(store)]
        tape.resolve(store, bad.offset, "skip")
        days, totals = shown(store, tape.all_keys())
        assert (KEY, 1, 7) not in days  # it goes with its event
        tape.append(KEY, ["h", "i"])
        tape.purge(KEY)
        tape.purge(OTHER)
        tape.append(OTHER, ["third"])
        tape.carry(store)
        days, totals = shown(store, tape.all_keys())
        assert days == [(OTHER, 3, 1)]
        assert totals == {OTHER: (3, 1, 1)}


def die(store: CassandraStore, tape: Tape, point: int) -> None:
    """Carry with another store, killed before a write of this number."""
    dying = CassandraStore.open(store._session.url, settings_for(segment_size=SIZE), "tape", 1, views=VIEWED)
    row_by_row(dying, dies_at(point))
    with contextlib.closing(dying), contextlib.suppress(Crash):
        tape.carry(dying)


def _damaged(store: Store) -> int:
    from strandline.store.scans import quarantined

    (row,) = quarantined(store)
    return row.offset


@pytest.mark.req("RJ5")
@pytest.mark.parametrize("kind", ["last write wins", "sqlite", "postgres", "memory"])
@pytest.mark.parametrize("size", [3, None])
def test_killed_anywhere_it_ends_as_if_nothing_had_happened(
    kind: str, size: int | None, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    tape = story()
    with opened(kind, request, tmp_path) as make:
        points = 0
        store = make()
        for point in range(1000):
            if kind == "last write wins":
                store = make()
            passed = killed(store, tape, size, point)
            if passed:
                break
            points += 1
            if kind == "last write wins":
                tape.carry(store, size=2)
                assert shown(store, tape.all_keys()) == wanted(tape), point
            elif size is None:  # all of it is one transaction
                assert shown(store, tape.all_keys()) == ([], {}), point
        assert points >= (3 if kind == "memory" else 6)
        assert shown(store, tape.all_keys()) == wanted(tape)


def killed(store: Store, tape: Tape, size: int | None, point: int) -> bool:
    """Carry the tape, killed before a write of this number in the first transaction; whether there were fewer."""
    left = [point]

    def pass_() -> None:
        if left[0] == 0:
            raise Crash
        left[0] -= 1

    if isinstance(store, LastWriteWinsStore):
        store.before_write = lambda table: pass_()
        with contextlib.suppress(Crash):
            tape.carry(store, size=size)
            store.before_write = lambda table: None
            return True
        store.before_write = lambda table: None
        return False
    if isinstance(store, SqlStore):
        database = store._database
        store._database = cast(Any, Dying(database, pass_))
        try:
            tape.carry(store, size=size)
        except Crash:
            return False
        finally:
            store._database = database
        return True
    faults = Faults()
    points = ("before store.look", "after store.look", "before store.write")
    if point == len(points):
        tape.carry(store, size=size)
        return True
    faults.at(points[point], crash)
    with pytest.raises(Crash):
        tape.carry(faults.around("store", store), size=size)
    return False


class Dying:
    """A database whose transactions die before a statement that writes."""

    def __init__(self, database: Any, before: Callable[[], None]) -> None:
        self._database, self._before = database, before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    @contextmanager
    def write(self) -> Iterator[Any]:
        with self._database.write() as tx:
            yield DyingTransaction(tx, self._before)


class DyingTransaction:
    """See `Dying`."""

    def __init__(self, tx: Any, before: Callable[[], None]) -> None:
        self._tx, self._before = tx, before

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tx, name)
        if name not in ("execute", "each", "many"):
            return found

        def call(*values: Any) -> Any:
            self._before()
            return found(*values)

        return call


@pytest.mark.req("J110")
@pytest.mark.parametrize("kind", ["sqlite", "postgres", pytest.param("cassandra", marks=pytest.mark.soak)])
def test_a_view_of_the_list_has_its_tables_in_a_new_store_and_after_an_upgrade(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(segment_size=SIZE) if kind == "cassandra" else Settings(segment_size=SIZE)

    def place(name: str) -> Url:
        if kind == "cassandra":
            return url_of(request.getfixturevalue("cassandra"), f"{name}_list")
        if kind == "postgres":
            return urls_of(f"{request.getfixturevalue('postgres').url}&schema=s{uuid4().hex}").store
        return Url("sqlite", tmp_path / f"{name}.db")

    def open_(url: Url) -> Store:
        if kind == "cassandra":
            return CassandraStore.open(url, settings, "tape", 1)
        if kind == "postgres":
            return open_postgres(url, settings, "tape", 1)
        assert url.path is not None
        return open_sqlite(url.path, settings, "tape", 1)

    old, new = place("old"), place("new")
    open_(old).close()
    monkeypatch.setattr(view_list, "VIEWS", [*view_list.VIEWS, lambda _: MADE_UP])
    with pytest.raises(SchemaMismatch) as raised:
        open_(old)
    assert raised.value.code == "version"
    described = backend_of(old).describe(old, parts()["store"], settings)
    assert set(described.known) - set(described.done) == {"made_up.001_made"}
    assert backend_of(old).upgrade(old, parts()["store"], settings) == ["made_up.001_made"]
    for url in (old, new):
        tape = story()
        with contextlib.closing(open_(url)) as store:
            tape.carry(store)
            assert shown(store, tape.all_keys()) == wanted(tape)
