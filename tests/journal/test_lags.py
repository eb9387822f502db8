"""The same answer at every lag: whatever part of the log is in the store, and however far the store is ahead of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from strandline import Key, SeqNrConflict
from strandline.connect import Strandline
from strandline.store.scans import events_of
from strandline.testing import LastWriteWinsStore, carry, raw_append
from strandline.testing.faults import Crash, crash
from tests.journal.model import Model
from tests.journal.worlds import KEY, events, last_write_wins, numbered, world

SIBLING = Key("order", "43")


@dataclass
class Story:
    """What a caller does to one key, told twice: to the Journal and to the model."""

    s: Strandline
    model: Model = field(default_factory=Model)
    key: Key = KEY

    def append(self, *payloads: Any, expected: int | None = None, first: int | None = None) -> None:
        told = self.model.append(list(payloads), expected=expected, first=first)
        found: tuple[Any, Any]
        try:
            done = self.s.journal.append(self.key, events(*payloads), expected=expected, first=first)
            found = done.first, done.last
        except SeqNrConflict as conflict:
            found = "conflict", conflict.actual
        assert found == told

    def delete(self, to: int, *, reset: bool = False) -> None:
        done = self.s.journal.delete(self.key, to=to, reset=reset)
        assert (None if done is None else done.delete_to) == self.model.delete(to, reset=reset)

    def purge(self) -> None:
        self.s.journal.purge(self.key)
        self.model.purge()

    def mark(self) -> None:
        self.s.journal.mark(self.key)

    def sibling(self) -> None:
        """Somebody else writes the same partition."""
        self.s.journal.append(SIBLING, events("of another"))

    def check(self) -> None:
        """Every read, and the head, say what the model says."""
        journal, model = self.s.journal, self.model
        assert numbered(journal.read(self.key)) == model.read()
        head = journal.head(self.key)
        assert (None if head is None else (head.seq_nr, head.delete_to, head.life)) == model.head()
        last = head.seq_nr if head else 1
        for number in range(1, last + 2):
            assert numbered(journal.read(self.key, from_=number)) == model.read(number)
            assert numbered(journal.read(self.key, to=number)) == model.read(1, number)
        inner = 2, max(2, last - 1)
        assert numbered(journal.read(self.key, from_=inner[0], to=inner[1])) == model.read(*inner)

    def check_parts(self) -> None:
        """The same of reads that are limited or go backwards."""
        journal, model = self.s.journal, self.model
        last = model.life.seq_nr if model.life else 1
        for number in range(1, last + 2):
            for bounds in ((1, None), (number, None), (1, number)):
                for limit, backwards in ((number, False), (2, True), (None, True)):
                    found = journal.read(self.key, from_=bounds[0], to=bounds[1], limit=limit, backwards=backwards)
                    assert numbered(found) == model.read(*bounds, limit=limit, backwards=backwards)


Step = Callable[[Story], None]


def _append(*payloads: Any, **more: Any) -> Step:
    return lambda story: story.append(*payloads, **more)


def _delete(to: int, **more: Any) -> Step:
    return lambda story: story.delete(to, **more)


def _purge(story: Story) -> None:
    story.purge()


def _sibling(story: Story) -> None:
    story.sibling()


FIVE = [_append(1, 2), _sibling, _append(3), _append(4, 5)]
MIX = [_append(1, 2, 3), _delete(2), _append(4), _delete(4), _append(5, 6), _purge]
STORIES: dict[str, list[Step]] = {
    "delete-all": [*FIVE, _delete(5)],
    "delete-one": [*FIVE, _delete(1)],
    "delete-all-but-the-last": [*FIVE, _delete(4)],
    "delete-beyond-the-end": [*FIVE, _delete(9)],
    "delete-twice-rising": [*FIVE, _delete(2), _delete(4)],
    "delete-twice-falling": [*FIVE, _delete(4), _delete(2)],
    "delete-absent": [_delete(3), _append(1)],
    "delete-append": [*FIVE, _delete(5), _append(6), _append(7, expected=0), _append(7, expected=6)],
    "long-mix": MIX + MIX,
    "purge-append": [*FIVE, _purge, _append("new")],
    "purge-twice": [_append(1), _purge, _purge, _append(2), _purge],
    "late-start": [_append(11, 12, first=11), _append(13)],
    "gap": [_append(1, 2, 3), _append(9, first=9), _append(5, first=5), _append(10)],
    "reset": [_delete(5, reset=True), _append(6), _append(1, first=1), _delete(6), _append(7)],
    "reset-living": [_append(1, 2), _delete(9, reset=True), _append(3)],
    "expected": [_append(1, expected=0), _append(2, expected=0), _append(2, expected=1), _append(3, expected=5)],
}


def check_at_every_lag(
    s: Strandline, steps: list[Step], carried: int, check: Callable[[Story], None] = Story.check
) -> None:
    """The first steps are carried before the others happen; then the rest, action by action. Looked at all the time."""
    story = Story(s)
    for step in steps[:carried]:
        step(story)
    carry(s)
    check(story)
    for step in steps[carried:]:
        step(story)
        check(story)
    while carry(s, limit=1).actions:
        check(story)
    assert s.status().partitions[0].lag_actions == 0


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("settings", [{}, {"read_page": 1, "tail_buffer_bytes": 0}], ids=["default", "tight"])
@pytest.mark.req("J15", "J16", "J17", "J36", "J45", "J46", "J47", "J50", "J63", "RJ1", "RJ2", "RJ3")
def test_every_lag(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    for carried in range(len(STORIES[name]) + 1):
        with world("memory", tmp_path, partitions=1, segment_size=3, **settings) as s:
            check_at_every_lag(s, STORIES[name], carried)


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("settings", [{}, {"read_page": 1, "tail_buffer_bytes": 0}], ids=["default", "tight"])
@pytest.mark.req("J128")
def test_limited_and_backwards_at_every_lag(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    steps = STORIES[name]
    for carried in (0, len(steps) // 2, len(steps)):
        with world("memory", tmp_path, partitions=1, segment_size=3, **settings) as s:
            check_at_every_lag(s, steps, carried, Story.check_parts)


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
@pytest.mark.parametrize("name", ["long-mix", "gap", "late-start"])
@pytest.mark.req("J128")
def test_limited_and_backwards_on_every_log_and_store(backend: str, name: str, tmp_path: Path) -> None:
    with world(backend, tmp_path, partitions=1, segment_size=3, read_page=2, tail_buffer_bytes=1200) as s:
        check_at_every_lag(s, STORIES[name], len(STORIES[name]) // 2, Story.check_parts)


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.req("J50", "J63", "RJ1", "RJ2", "RJ3")
def test_every_lag_on_files(name: str, tmp_path: Path) -> None:
    with world("sqlite", tmp_path, partitions=1, segment_size=3, read_page=2) as s:
        check_at_every_lag(s, STORIES[name], len(STORIES[name]) // 2)


def _cuts(count: int) -> Iterator[list[list[int]]]:
    """1..count in every way cut into runs."""
    numbers = list(range(1, count + 1))
    for size in range(count):
        for places in combinations(range(1, count), size):
            edges = [0, *places, count]
            yield [numbers[a:b] for a, b in pairwise(edges)]


@pytest.mark.parametrize("count", range(1, 6))
@pytest.mark.req("J8", "J50", "RJ3")
def test_split(count: int, tmp_path: Path) -> None:
    for runs in _cuts(count):
        steps = [_append(*run) for run in runs]
        for carried in range(len(steps) + 1):
            with world("memory", tmp_path, partitions=1, segment_size=2) as s:
                check_at_every_lag(s, steps, carried)


class AfterWrites:
    """Lets so many writes of a store pass, then the process dies."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, table: str) -> None:
        if self.left == 0:
            crash()
        self.left -= 1


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.req("J50", "J57", "J58", "RJ3")
def test_store_ahead_of_its_pointer(name: str) -> None:
    """Without transactions a key is ahead of its partition's pointer, or half-way into an action."""
    deaths = 0
    for carried in range(len(STORIES[name])):
        writes = 0
        while _read_after(STORIES[name], carried, writes):
            writes += 1
        deaths += writes
    assert deaths > 2


def _read_after(steps: list[Step], carried: int, writes: int) -> bool:
    """Whether the pipeline died after so many writes; if not, there were no more."""
    s = last_write_wins(segment_size=3)
    store = cast(LastWriteWinsStore, s.store)
    story = Story(s)
    for step in steps:
        step(story)
    lease = store.lease().take("a pipeline")
    carry(s, limit=carried, lease=lease)
    store.before_write = AfterWrites(writes)
    try:
        carry(s, limit=2, lease=lease)
    except Crash:
        died = True
    else:
        died = False
    store.before_write = lambda table: None
    story.check()
    assert numbered(s.journal.read(KEY, backwards=True)) == story.model.read(backwards=True)
    carry(s, lease=lease)
    story.check()
    return died


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
@pytest.mark.req("J13", "J49")
def test_marks_only(backend: str, tmp_path: Path) -> None:
    with world(backend, tmp_path, partitions=1) as s:
        for _ in range(100):
            s.journal.mark(KEY)
        assert s.journal.head(KEY) is None
        carry(s)
        assert s.store.pointers()[0].offset == 99
        assert s.journal.head(KEY) is None
        assert list(s.journal.read(KEY)) == []
        assert events_of(s.store, 0, after=(0, 0), to=2**62, limit=10).rows == []


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
@pytest.mark.req("J57")
def test_twice_in_log(backend: str, tmp_path: Path) -> None:
    with world(backend, tmp_path, partitions=1) as s:
        s.journal.append(KEY, events("a", "b"))
        (record,) = s.log.read(0, after=-1).records
        raw_append(s, 0, key=record.key, header=record.header, value=record.value)
        for _ in range(3):
            assert numbered(s.journal.read(KEY)) == [(1, 0, "a"), (2, 1, "b")]
            head = s.journal.head(KEY)
            assert head is not None
            assert head.seq_nr == 2
            carry(s, limit=1)
