"""What a SQLite log keeps of heads in memory, and what it guesses."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import apsw
import orjson
import pytest

from strandline.backends.memory.log import MemoryLog
from strandline.backends.sqlite import log as sqlite
from strandline.backends.sqlite import log_heads as sqlite_heads
from strandline.backends.sqlite.log import SqliteLog
from strandline.backends.sqlite.log_heads import NEW_TO_GUESS, row_digest, row_text
from strandline.fold import Duplicate, EventsAppended, RefusedAppend
from strandline.settings import Settings
from strandline.testing.clock import FakeClock
from strandline.testing.log_contract.made import PARTITIONS, delete_of, draft_of, everything, purge_of
from strandline.values.heads import Head, Remembered


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "log.db", settings=Settings(partitions=PARTITIONS))
    yield log
    log.close()


def statements(log: SqliteLog) -> list[str]:
    """What the writer runs from now on."""
    seen: list[str] = []

    def trace(cursor: apsw.Cursor, statement: str, bindings: object) -> bool:
        seen.append(statement.split(maxsplit=1)[0] + " " + statement.partition("latest")[1])
        return True

    log._database.writer.exec_trace = trace
    return seen


def new_keys(log: SqliteLog, name: str, count: int = NEW_TO_GUESS) -> None:
    for number in range(count):
        log.append([draft_of(f"{name}|{number}")])


def test_after_many_new_keys_the_next_ones_are_not_looked_up(log: SqliteLog) -> None:
    new_keys(log, "order")
    seen = statements(log)
    log.append([draft_of("order|new"), draft_of("order|newer"), draft_of("order|new")])
    assert "SELECT latest" not in seen
    assert "INSERT latest" in seen
    assert log.append([draft_of("order|new", expected=2)])[0].effect == EventsAppended(3, 3, 2, 1)


@pytest.mark.req("J27", "RA8")
@pytest.mark.parametrize("case", ["append", "expected", "first", "duplicate", "delete", "purge", "mixed"])
def test_a_wrong_guess_changes_no_answer(log: SqliteLog, case: str) -> None:
    old, id_ = "order|old", "a" * 32
    (first,) = log.append([draft_of(old, "a", append_id=id_)])
    log.append([draft_of(old, "b")])
    new_keys(log, "other")
    log._heads.forget()  # as if thousands of keys had been used since
    drafts = {
        "append": [draft_of(old)],
        "expected": [draft_of(old, expected=0)],
        "first": [draft_of(old, first=1)],
        "duplicate": [draft_of(old, "a", append_id=id_)],
        "delete": [delete_of(old, 1, life=1)],
        "purge": [purge_of(old)],
        "mixed": [draft_of("order|new", expected=0), draft_of(old, expected=2), draft_of("order|new", expected=1)],
    }[case]
    effects = [answer.effect for answer in log.append(drafts)]
    if case == "append":
        assert effects == [EventsAppended(3, 3, 2, 1)]
    elif case in ("expected", "first"):
        assert effects == [RefusedAppend(case, 2)]
    elif case == "duplicate":
        assert isinstance(effects[0], Duplicate)
        assert first.place is not None
        assert effects[0].answer.offset == first.place.offset
    elif case == "mixed":
        assert effects == [EventsAppended(1, 1, 0, 1), EventsAppended(3, 3, 2, 1), EventsAppended(2, 2, 1, 1)]
    else:
        assert effects[0] is not None
    offsets = [record.offset for record in everything(log, drafts[0].partition)]
    assert offsets == list(range(len(offsets)))


def test_a_refusal_of_a_key_that_is_new_is_looked_up_all_the_same(log: SqliteLog) -> None:
    new_keys(log, "order")
    assert log.append([draft_of("order|new", expected=5)])[0].effect == RefusedAppend("expected", 0)
    assert log.append([delete_of("order|newer", 5, life=1)])[0].effect is None
    assert log.append([draft_of("order|newer")])[0].effect == EventsAppended(1, 1, 0, 1)


@pytest.mark.req("J27")
@pytest.mark.parametrize("hashes", [None, 7], ids=["", "few-hashes"])
@pytest.mark.parametrize("seed", range(4))
def test_with_little_memory_and_many_keys_the_answers_are_those_of_a_log_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, hashes: int | None
) -> None:
    if hashes:  # two keys of one hash are rare: here almost all are
        whole = sqlite_heads.key_hash
        for module in (sqlite, sqlite_heads):
            monkeypatch.setattr(module, "key_hash", lambda key: whole(key) % hashes)
    monkeypatch.setattr(sqlite_heads, "CACHED_MAX", 5)
    monkeypatch.setattr(sqlite_heads, "NEW_TO_GUESS", 3)
    monkeypatch.setattr(sqlite, "UNPLACED_MAX", 7)
    chance, clock = random.Random(seed), FakeClock()
    path = tmp_path / "log.db"
    log = SqliteLog(path, settings=Settings(partitions=PARTITIONS, segment_size=3), clock=clock)
    other = SqliteLog(path, settings=Settings(partitions=PARTITIONS, segment_size=3), clock=clock)
    plain = MemoryLog(partitions=PARTITIONS, segment_size=3, clock=clock)
    for step in range(150):
        clock.advance(chance.choice([0, 1, -1]))
        drafts = []
        for _ in range(chance.randint(1, 12)):
            key = f"order|{chance.randint(0, 30) if chance.random() < 0.5 else 1000 + step}"
            made = (
                draft_of(key, *range(chance.randint(1, 3))),
                draft_of(key, expected=chance.randint(0, 3)),
                draft_of(key, append_id=f"{chance.randint(0, 9):032x}"),
                delete_of(key, chance.randint(1, 9), life=chance.choice([None, 1, 2])),
                purge_of(key),
            )
            drafts.append(chance.choices(made, weights=(8, 2, 2, 1, 1 if seed % 2 else 0))[0])
        assert (other if chance.random() < 0.1 else log).append(drafts) == plain.append(drafts)
        if chance.random() < 0.05:
            partition = chance.randrange(PARTITIONS)
            newest = plain.newest()[partition]
            to = chance.randint(-1, newest)
            assert log.trim(partition, to=to, pointer=newest, keep_after=2**62) == plain.trim(
                partition, to=to, pointer=newest, keep_after=2**62
            )
    for partition in range(PARTITIONS):
        assert everything(log, partition) == everything(plain, partition)
        last = everything(plain, partition)[-1].key
        after = plain.oldest()[partition] - 1
        assert log.read(partition, after=after, key=last) == plain.read(partition, after=after, key=last)
    assert (log.newest(), log.oldest()) == (plain.newest(), plain.oldest())
    log.close()
    other.close()


MADE = Remembered("a" * 32, "b" * 32, 6, 7, 90, 1000)
GIVEN = Remembered("c" * 32, "d" * 32, 5, 5, 80, 900)
HEAD = Head(7, 2, 3, 1, 90, 500, 1000, None, None, 10_000, 4, 6, 1, (), MADE)


@pytest.mark.parametrize(
    ("head", "rest"),
    [
        (HEAD, [[], None]),
        (HEAD._replace(generated=None), [[], None]),
        (HEAD._replace(offset=91), [[], list(MADE)]),
        (HEAD._replace(given=(GIVEN,)), [[list(GIVEN)], None]),
        (HEAD._replace(given=(GIVEN, MADE), generated=None), [[list(GIVEN)], None]),
        (HEAD._replace(expire_after_us=5, expire_at=1005), [[], None]),
    ],
)
def test_a_head_is_the_same_text_however_it_is_written(head: Head, rest: list[object]) -> None:
    """A head without anything special is put together without the help of JSON."""
    expiry = [head.expire_after_us, head.expire_at]
    text = row_text(head)
    assert orjson.loads(text) == [7, 2, 3, 500, *expiry, 10_000, 4, 6, 1, *rest]
    assert orjson.dumps(orjson.loads(text)).decode() == text


def test_a_head_is_hashed_as_it_always_was() -> None:
    assert row_digest("order|1", "[]", (1, 2, 3), None, 4) == crc32(b"order|1 (1, 2, 3, None, 4) []")
