"""A head in the log that cannot be trusted: it is made anew from the store and the tail, else that append alone fails.

Each test follows one schedule: append, let the head go bad in the file or table, open the journal again (a process that
has the head in memory does not see the damage), and go on.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from strandline import Event, SeqNrConflict
from strandline.backends.sqlite.log import SqliteLog
from strandline.connect import Strandline
from strandline.errors import StrandlineError, Unavailable
from strandline.testing import carry
from strandline.values.answers import Appended
from tests.journal.damage import HEAD_DAMAGES, rot, rot_head
from tests.journal.worlds import KEY, events, numbered, world

EXACT = ("sqlite", "postgresql")
OTHERS = [f"order|{number}" for number in range(100, 163)]
ID = "4f1c7a52-5b0c-4f5e-9d53-0d7a3f1a2b6c"


@pytest.fixture(params=EXACT)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=HEAD_DAMAGES)
def damage(request: pytest.FixtureRequest) -> Callable[[str], str]:
    return HEAD_DAMAGES[request.param]


def put(s: Strandline, *payloads: Any, **options: Any) -> Appended:
    return s.journal.append(KEY, events(*payloads), **options)


def shown(s: Strandline) -> list[tuple[int, Any]]:
    """What a reader is told, which is the same before and after it is carried."""
    before = numbered(s.journal.read(KEY))
    carry(s)
    assert numbered(s.journal.read(KEY)) == before
    return [(seq_nr, payload) for seq_nr, _, payload in before]


def away(s: Strandline) -> None:
    """The store cannot be asked any more."""

    def look(*_: object, **__: object) -> None:
        raise Unavailable("the store is away", code="away", hint="start it")

    s.store.look = look  # type: ignore[assignment]


@pytest.mark.req("RA12", "J27", "J130")
@pytest.mark.parametrize("carried", ["all", "half", "nothing"])
def test_the_next_append_goes_on_from_what_store_and_tail_say(
    tmp_path: Path, backend: str, damage: Callable[[str], str], carried: str
) -> None:
    with world(backend, tmp_path) as s:
        put(s, 1, append_id=ID)
        if carried == "half":
            carry(s)
        put(s, 2, 3)
        if carried == "all":
            carry(s)
        rot_head(s, str(KEY), damage)
    with world(backend, tmp_path) as s:
        with pytest.raises(SeqNrConflict) as conflict:
            put(s, 4, expected=4)
        assert conflict.value.actual == 3
        assert put(s, 1, append_id=ID).duplicate
        assert put(s, 4, expected=3).first == 4
        assert put(s, 5).first == 5
        assert shown(s) == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]
    with world(backend, tmp_path) as s:
        away(s)  # it is good again in the log itself
        assert put(s, 6, expected=5).first == 6


@pytest.mark.req("RA12", "J130")
def test_what_was_purged_goes_on_in_its_next_life(tmp_path: Path, backend: str, damage: Callable[[str], str]) -> None:
    with world(backend, tmp_path) as s:
        put(s, 1)
        s.journal.purge(KEY)
        rot_head(s, str(KEY), damage)
    with world(backend, tmp_path) as s:
        assert put(s, "anew", expected=0).first == 1
        assert [event.life for event in s.journal.read(KEY)] == [2]
        assert shown(s) == [(1, "anew")]


@pytest.mark.req("J130", "J41")
def test_every_way_to_record_mends_it(tmp_path: Path, backend: str, damage: Callable[[str], str]) -> None:
    ways: list[Callable[[Strandline], Any]] = [
        lambda s: [future.result() for future in [s.journal.append_future(KEY, events(n)) for n in (3, 4)]],
        lambda s: s.journal.append_many([(KEY, events(5)), (OTHERS[0], events(0)), (KEY, events(6), {"expected": 5})]),
        lambda s: s.journal.delete(KEY, to=1),
        lambda s: s.journal.mark(KEY),
        lambda s: s.journal.purge(KEY),
    ]
    with world(backend, tmp_path) as s:
        put(s, 1, 2)
    for number, way in enumerate(ways):
        with world(backend, tmp_path) as s:
            rot_head(s, str(KEY), damage)
        with world(backend, tmp_path) as s:
            answer = way(s)
            if number < 2:
                assert [one.first for one in answer if one.key == KEY] == [3 + 2 * number, 4 + 2 * number]
            if number == 2:
                assert shown(s) == [(n, n) for n in range(2, 7)]
    with world(backend, tmp_path) as s:
        assert shown(s) == []
        assert put(s, "anew").first == 1


@pytest.mark.req("RA10", "RA12", "J130")
def test_it_fails_its_own_append_alone_while_it_cannot_be_made_anew(
    tmp_path: Path, backend: str, damage: Callable[[str], str]
) -> None:
    """64 writers, 20 appends each, one of the heads is bad, and the store is away."""
    with world(backend, tmp_path) as s:
        for key in [*OTHERS, str(KEY)]:
            s.journal.append(key, events(0))
        rot_head(s, str(KEY), damage)

    def write(key: str) -> list[tuple[str, str]]:
        failed: list[tuple[str, str]] = []
        for number in range(20):
            try:
                s.journal.append(key, events(number))
            except StrandlineError as error:
                failed.append((error.name, error.applied))
        return failed

    with world(backend, tmp_path) as s:
        look = s.store.look
        away(s)
        with ThreadPoolExecutor(64) as pool:
            failed = dict(zip([*OTHERS, str(KEY)], pool.map(write, [*OTHERS, str(KEY)]), strict=True))
        assert {key: names for key, names in failed.items() if names} == {str(KEY): [("Unavailable.away", "no")] * 20}
        many = s.journal.append_many([(OTHERS[0], events("x")), (KEY, events("y")), (OTHERS[1], events("z"))])
        assert [isinstance(answer, Unavailable) for answer in many] == [False, True, False]
        s.store.look = look  # type: ignore[method-assign]
        assert put(s, 1, expected=1).first == 2
        assert shown(s) == [(1, 0), (2, 1)]


@pytest.mark.req("J130", "J33", "RA14")
@pytest.mark.parametrize("again", [True, False], ids=["", "trimmed-twice"])
def test_trimming_goes_on(tmp_path: Path, backend: str, damage: Callable[[str], str], again: bool) -> None:
    with world(backend, tmp_path, partitions=1) as s:
        put(s, 1, 2)
        s.journal.append(OTHERS[0], events(0))
        carry(s)
        rot_head(s, str(KEY), damage)
    with world(backend, tmp_path, partitions=1) as s:
        assert s.log.trim(0, to=0, pointer=1, keep_after=2**62) == 1
        if again:
            assert s.log.trim(0, to=1, pointer=1, keep_after=2**62) == 1
        assert put(s, 3, expected=2).first == 3
        assert s.journal.append(OTHERS[0], events(1), expected=1).first == 2
        carry(s)
        newest = s.log.newest()[0]
        s.log.trim(0, to=newest, pointer=newest, keep_after=2**62)
        rot_head(s, str(KEY), damage)  # by now it stands by itself, without an action
    with world(backend, tmp_path, partitions=1) as s:
        assert put(s, 4, expected=3).first == 4
        assert shown(s) == [(1, 1), (2, 2), (3, 3), (4, 4)]


@pytest.mark.req("J130", "J95")
def test_together_with_the_header_of_its_action(tmp_path: Path, backend: str, damage: Callable[[str], str]) -> None:
    with world(backend, tmp_path) as s:
        put(s, 1)
        place = put(s, 2, 3)
        rot(s, place.offset, partition=place.partition)
        rot_head(s, str(KEY), damage)
    with world(backend, tmp_path) as s:
        assert put(s, 4, expected=3).first == 4
        assert [event.seq_nr for event in s.journal.read(KEY)] == [1, 2, 3, 4]


@contextmanager
def _file(s: Strandline) -> Any:
    assert isinstance(s.log, SqliteLog)
    connection = apsw.Connection(str(s.log._database.path))
    try:
        yield connection
    finally:
        connection.close()


@pytest.mark.req("J130", "RA12")
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE latest SET seq = (SELECT min(seq) FROM action WHERE key = :key) WHERE key_hash = :hash",
        "UPDATE latest SET seq = (SELECT max(seq) FROM action WHERE key <> :key) WHERE key_hash = :hash",
        "UPDATE latest SET seq = 4711 WHERE key_hash = :hash",
        "UPDATE action SET timestamp = timestamp + 9 WHERE seq = (SELECT max(seq) FROM action WHERE key = :key)",
        "UPDATE action SET last = last + 1 WHERE seq = (SELECT max(seq) FROM action WHERE key = :key)",
        "UPDATE action SET key = 'order|43' WHERE seq = (SELECT max(seq) FROM action WHERE key = :key)",
    ],
)
def test_what_says_where_a_head_is_may_be_bad_as_well(tmp_path: Path, change: str) -> None:
    """On SQLite a head is in the row of an action, and table `latest` says in which."""
    from strandline.backends.sqlite.log_heads import key_hash

    with world("sqlite", tmp_path) as s:
        put(s, 1)
        put(s, 2)
        for key in OTHERS:  # the records at the end of the log are looked at when it is opened
            s.journal.append(key, [Event("Placed", 0), Event("Placed", 1)])
        s.journal.append(OTHERS[0], events(2))
        carry(s)
        with _file(s) as connection:
            connection.execute(change, {"key": str(KEY), "hash": key_hash(str(KEY))})
            assert connection.changes() == 1
    with world("sqlite", tmp_path) as s:
        assert put(s, 3, expected=2).first == 3
        assert shown(s) == [(1, 1), (2, 2), (3, 3)]
