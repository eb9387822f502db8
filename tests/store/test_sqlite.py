"""The SQLite store: what creation fixes, what a damaged row does, what a page costs, threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from strandline.backends.memory.store import MemoryStore
from strandline.backends.sqlite import Database
from strandline.backends.sqlite.store import open_store as open_sqlite_store
from strandline.errors import Corrupt, SchemaMismatch
from strandline.settings import Settings
from strandline.store.api import StoreSettings
from strandline.store.scans import (
    entity_types_of,
    events_of,
    expired_keys,
    keys_of,
    last_snapshot,
    look_at,
    quarantined,
    quarantined_at,
)
from strandline.store.sql_store import SqlStore
from strandline.testing.store_contract import settings_of
from strandline.testing.store_contract.made import snapshot, states_of
from strandline.testing.tape import Tape
from strandline.values.events import Life, RecordedEvent
from strandline.values.heads import SEQ_NR_MAX, EndedLife, Head
from strandline.values.keys import key_digest, slice_of
from tests.store.stores import TABLES, change, file_of, open_store, tables

KEY = "order|42"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    store = open_store(path)
    yield store
    store.close()


# ---------------------------------------------------------------- creation


@pytest.mark.req("J111", "U5", "J23", "RR6")
@pytest.mark.parametrize(
    ("given", "error", "facts"),
    [
        ({"partitions": 4}, "setting", {"setting": "partitions", "stored": 1, "given": 4}),
        ({"segment_size": 4}, "setting", {"setting": "segment_size", "stored": 3, "given": 4}),
        ({"append_ids_kept": 4}, "setting", {"setting": "append_ids_kept", "stored": 32, "given": 4}),
        ({"bucket_size": "day"}, "setting", {"setting": "bucket_size", "stored": "hour", "given": "day"}),
        ({"log_id": "other"}, "log_replaced", {"stored": "tape", "given": "other"}),
    ],
)
def test_a_start_with_other_values_is_refused(path: Path, given: Any, error: str, facts: dict[str, Any]) -> None:
    open_store(path).close()
    before = path.read_bytes()
    with pytest.raises(SchemaMismatch) as refused:
        open_store(path, **given)
    assert refused.value.code == error
    assert refused.value.facts == facts
    assert all(str(facts[name]) in refused.value.message for name in ("stored", "given"))
    assert path.read_bytes() == before
    open_store(path).close()


@pytest.mark.req("J23", "J111")
@pytest.mark.parametrize(("name", "error"), [("fold_version", "fold_version"), ("slices", "setting")])
def test_what_the_program_fixes_is_compared_too(path: Path, name: str, error: str) -> None:
    open_store(path).close()
    assert change(path, f"UPDATE setting SET value = 77 WHERE name = '{name}'") == 1
    with pytest.raises(SchemaMismatch) as refused:
        open_store(path)
    assert (refused.value.code, refused.value.stored) == (error, 77)


@pytest.mark.req("J111")
def test_what_is_left_out_is_as_it_was_created(path: Path) -> None:
    made = open_sqlite_store(path, Settings(segment_size=7, bucket_size="day"), "tape", 5)
    made.close()
    again = open_sqlite_store(path, Settings(), None, None)
    history = made.settings.history_id  # made at creation
    assert len(history) == 32
    assert again.settings == made.settings == StoreSettings("tape", 5, 7, bucket_size="day", history_id=history)
    assert len(again.pointers()) == 5
    again.close()


@pytest.mark.req("J109")
def test_an_empty_place_is_refused_where_nothing_may_be_created(path: Path) -> None:
    for given in ({"schema": "check"}, {"log_id": None}):
        with pytest.raises(SchemaMismatch) as refused:
            open_store(path, **given)
        assert refused.value.name == "SchemaMismatch.no_schema"
        assert list(path.parent.iterdir()) == []


@pytest.mark.req("J110")
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM schema_step WHERE name = '006_ended'",
        "INSERT INTO schema_step (name, additive) VALUES ('999_of_a_newer_program', 0)",
        "ALTER TABLE snapshot DROP COLUMN form",
        "ALTER TABLE journal ADD COLUMN more TEXT",
        "DROP TABLE ended",
    ],
)
def test_another_schema_is_refused(path: Path, statement: str) -> None:
    open_store(path).close()
    change(path, statement)
    before = path.read_bytes()
    with pytest.raises(SchemaMismatch) as refused:
        open_store(path)
    assert refused.value.name == "SchemaMismatch.version"
    assert {"found", "known", "remedy"} <= set(refused.value.facts)
    assert path.read_bytes() == before


@pytest.mark.req("J69")
def test_tables(store: SqlStore, path: Path) -> None:
    connection = apsw.Connection(str(path))
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert found >= {"journal", "metajournal", "pointer", "setting", "snapshot", "ended", "quarantine", "lease"}
    keys = connection.execute("SELECT name FROM pragma_table_info('journal') WHERE pk > 0 ORDER BY pk").fetchall()
    assert [name for (name,) in keys] == ["key", "life", "segment", "seq_nr"]
    connection.close()


# ---------------------------------------------------------------- rows


@pytest.mark.req("J11", "RJ6")
def test_a_purge_leaves_neither_key_nor_data(store: SqlStore, path: Path) -> None:
    tape, key = Tape(), "person|Ada Lovelace"
    tape.append(key, ["a secret"] * 5, headers={"by": "a secret"})
    tape.append(key, ["a secret"], damaged="undecodable")
    tape.carry(store)
    store.save(snapshot(3, key=key, state=b'"a secret"'), 0)
    purge = tape.purge(key)
    tape.carry(store)
    found = tables(path)
    assert [row[:5] for row in found["ended"]] == [(slice_of(key), key_digest(key), 1, 0, purge.offset)]
    assert not any(found[table] for table in TABLES if table not in ("ended", "pointer"))
    assert "Ada" not in repr(found)


@pytest.mark.req("J76", "RA12")
@pytest.mark.parametrize(
    ("statement", "call"),
    [
        ("UPDATE metajournal SET seq_nr = seq_nr + 1", lambda store: look_at(store, KEY, 0)),
        ("UPDATE metajournal SET expire_at = 0", lambda store: states_of(store, 0, [KEY])),
        ("UPDATE metajournal SET remembered = '[[],null]'", lambda store: look_at(store, KEY, 0)),
        ("UPDATE metajournal SET life = 9, delete_to = 2", lambda store: states_of(store, 0, [KEY])),
        ("UPDATE pointer SET log_offset = log_offset - 1", lambda store: look_at(store, KEY, 0)),
        ("UPDATE pointer SET timestamp = timestamp + 1", lambda store: store.pointers()),
        ("UPDATE pointer SET fence = fence + 1", lambda store: states_of(store, 0, [])),
        ("UPDATE ended SET life = 7", lambda store: look_at(store, "order|gone", 0)),
        ("UPDATE ended SET log_offset = 0", lambda store: states_of(store, 0, ["order|gone"])),
        ("UPDATE quarantine SET value = x'00'", quarantined),
        ("UPDATE quarantine SET reason = 'foreign'", lambda store: quarantined_at(store, 0, 1)),
        ("UPDATE snapshot SET state = '2'", lambda store: last_snapshot(store, KEY, 1, from_=1, to=9)),
        ("UPDATE snapshot SET seq_nr = 3", lambda store: last_snapshot(store, KEY, 1, from_=1, to=9)),
    ],
)
def test_a_row_that_fails_its_digest_is_corrupt(
    store: SqlStore, path: Path, statement: str, call: Callable[[SqlStore], object]
) -> None:
    tape = Tape()
    tape.append(KEY, ["a", "b"])
    bad = tape.append(KEY, ["c"], damaged="digest")
    assert bad.offset == 1
    tape.append("order|gone")
    tape.purge("order|gone")
    tape.carry(store)
    store.save(snapshot(2, state=b"1"), 0)
    call(store)
    statement = statement.replace("'2'", "x'32'")
    assert change(path, statement) == 1
    with pytest.raises(Corrupt) as refused:
        call(store)
    assert refused.value.name == "Corrupt.digest"
    assert refused.value.table in statement


@pytest.mark.req("J76", "RA12")
@pytest.mark.parametrize(
    "column",
    ["body = CAST(body || x'31' AS BLOB)", "body = x''", "body = substr(body, 1, 70)", "prev_seq_nr = 9", "digest = 1"],
)
def test_an_event_that_fails_its_digest_is_damaged(store: SqlStore, path: Path, column: str) -> None:
    tape = Tape()
    tape.append(KEY, ["a", "b", "c"])
    tape.carry(store)
    assert change(path, f"UPDATE journal SET {column} WHERE seq_nr = 2") == 1
    rows = store.page(KEY, 1, 3, from_=1, to=9, limit=9).rows
    recorded = [RecordedEvent(Life(KEY, 1), cells) for cells in rows]
    assert [event.damaged for event in recorded] == [False, True, False]
    with pytest.raises(Corrupt):
        _ = recorded[1].payload


@pytest.mark.req("J77")
def test_a_head_that_an_ended_life_covers_is_none(store: SqlStore, path: Path) -> None:
    tape = Tape()
    tape.append(KEY, ["old"])
    tape.carry(store)
    change(path, "CREATE TABLE kept AS SELECT * FROM metajournal")
    purge = tape.purge(KEY)
    tape.carry(store)
    assert change(path, "INSERT INTO metajournal SELECT * FROM kept") == 1
    ended = EndedLife(1, 0, purge.offset)
    assert look_at(store, KEY, 0)[1] == ended
    assert states_of(store, 0, [KEY])[1] == {KEY: ended}
    tape.append(KEY, ["new"])
    tape.carry(store)
    head = look_at(store, KEY, 0)[1]
    assert isinstance(head, Head)
    assert (head.life, head.seq_nr) == (2, 1)


@pytest.mark.req("J58")
def test_a_row_of_an_ended_life_put_back_does_not_show(store: SqlStore, path: Path) -> None:
    tape = Tape()
    tape.append(KEY, ["old"])
    tape.carry(store)
    change(path, "CREATE TABLE kept AS SELECT * FROM journal")
    tape.purge(KEY)
    tape.append(KEY, ["new"])
    tape.carry(store)
    assert change(path, "INSERT INTO journal SELECT * FROM kept") == 1
    _, head = look_at(store, KEY, 0)
    assert isinstance(head, Head)
    assert head.life == 2
    rows = store.page(KEY, head.life, head.segment_size, from_=1, to=SEQ_NR_MAX, limit=9).rows
    assert [RecordedEvent(Life(KEY, 2), cells).payload for cells in rows] == ["new"]


# ---------------------------------------------------------------- cost


def _steps(store: SqlStore, call: Callable[[], object]) -> int:
    """How many steps of the library's machine a read takes."""
    call()  # prepares its statements
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    with file_of(store).connection() as connection:
        connection.set_progress_handler(count, 1)
    call()
    with file_of(store).connection() as connection:
        connection.set_progress_handler(None)
    assert steps > 0
    return steps


def _costs(store: SqlStore, tape: Tape, last: int) -> list[int]:
    first_time, end = tape.records[0][0].timestamp, tape.records[0][-1].timestamp
    late = (tape.records[0][-20].timestamp, 0)
    calls: list[Callable[[], object]] = [
        lambda: store.page(KEY, 1, 100, from_=1, to=SEQ_NR_MAX, limit=10).rows,
        lambda: store.page(KEY, 1, 100, from_=last - 50, to=last, limit=10).rows,
        lambda: events_of(store, 0, after=(0, 0), to=end, limit=10, entity_type="order").rows,
        lambda: events_of(store, 0, after=late, to=end, limit=10, entity_type="order").rows,
        lambda: events_of(store, 0, after=(0, 0), to=end, limit=10).rows,
        lambda: events_of(store, 0, after=late, to=end, limit=10).rows,
        lambda: events_of(store, 0, after=(0, 0), to=first_time, limit=1000, entity_type="order").rows,
        lambda: entity_types_of(store),
        lambda: keys_of(store, "order", after=None, limit=10),
        lambda: look_at(store, KEY, 0),
        lambda: expired_keys(store, at=0, after=None, limit=10),
    ]
    return [_steps(store, call) for call in calls]


@pytest.mark.req("J56")
def test_a_page_costs_the_same_wherever_it_is(path: Path) -> None:
    """Deep in a journal, late in a partition, before or behind a backlog that it does not touch."""
    store, tape = open_sqlite_store(path, Settings(segment_size=100), "tape", 1), Tape()
    costs = []
    for times in range(1, 4):
        for _ in range(20):
            tape.append(KEY, ["x"] * 50, tags=("red",))
            tape.append("user|1", ["y"])
        tape.carry(store)
        costs.append(_costs(store, tape, times * 1000))
    assert costs[0] == costs[1] == costs[2]
    store.close()


# ---------------------------------------------------------------- threads and forks


@pytest.mark.req("J52", "J74")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_pointer_and_state_are_of_one_moment(kind: str, path: Path) -> None:
    store = MemoryStore(settings_of()) if kind == "memory" else open_store(path)
    tape = Tape()
    for index in range(100):
        tape.append(KEY, ["x", "y"])
        if index % 7 == 6:
            tape.purge(KEY)
    end = tape.records[0][-1].offset

    def look() -> int:
        looks = 0
        while True:
            pointer, state = look_at(store, KEY, 0)
            same, states = states_of(store, 0, [KEY])
            # In this story every action changes the key, so its state's place is the pointer's.
            assert (state.offset if state else -1) == pointer.offset
            assert (states[KEY].offset if KEY in states else -1) == same.offset  # type: ignore[union-attr]
            assert same.offset >= pointer.offset
            if isinstance(state, Head):
                rows = store.page(KEY, state.life, 3, from_=1, to=state.seq_nr, limit=100).rows
                assert not rows or rows[-1][0] == state.seq_nr
            looks += 1
            if pointer.offset == end:
                return looks

    with ThreadPoolExecutor(4) as threads:
        readers = [threads.submit(look) for _ in range(3)]
        tape.carry(store, size=1)
        assert all(reader.result(60) > 0 for reader in readers)
    store.close()


@pytest.mark.req("RJ11", "J59")
def test_a_page_ends_before_large_events_that_are_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape = Tape()
    for size in (1, 20_000, 20_000, 1):
        tape.append(KEY, [bytes(size)])
    store, other = open_store(tmp_path / "store.db"), open_store(tmp_path / "store.db")
    tape.carry(store)
    fetch = Database.many

    def fetch_after_a_delete(self: Database, name: str, *arguments: Any) -> list[Any]:
        if name == "standing_events":
            tape.delete(KEY, to=2)
            tape.carry(other)
        return fetch(self, name, *arguments)

    monkeypatch.setattr(Database, "many", fetch_after_a_delete)
    page = store.page(KEY, 1, 3, from_=1, to=4, limit=4, bytes_max=10**9).rows
    assert [row[0] for row in page] == [1]
    assert [row[0] for row in store.page(KEY, 1, 3, from_=1, to=4, limit=4).rows] == [3, 4]
    store.close()
    other.close()
