"""Events that left the store for an archive's files: shown as before, wherever they are, whatever happens meanwhile."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyarrow.parquet import ParquetFile

import strandline
from strandline import Event, MissingEvent, points
from strandline.backup import backup, restore, verify
from strandline.connect import Strandline
from strandline.errors import Corrupt, InvalidInput, Unavailable, Unsupported
from strandline.extras import install
from strandline.journal.checks import new_id
from strandline.journal.replay import Wanted, replay_partition
from strandline.log.api import ActionDraft
from strandline.query.acceptance import end_of
from strandline.query.slices import Slices
from strandline.reconcile.rounds import HereRunner, reconcile_rounds
from strandline.record import Content, content_digest, encode_header, encode_value
from strandline.store.archive import ArchivedPlace, ArchivedTo, PagePlan, archive_plan, archived_to
from strandline.store.archive_files import read_manifest
from strandline.store.archived_events import event_row, event_rows, rows_of
from strandline.store.raw_rows import raw_events
from strandline.store.scans import look_at
from strandline.store.tables import JOURNAL
from strandline.testing import carry
from strandline.testing.archive import archive_here
from strandline.values.actions import Append
from strandline.values.heads import Head
from strandline.values.keys import key_partition, slice_of
from strandline.values.payloads import JSON
from strandline.values.ranges import Range
from tests.journal.worlds import last_write_wins, world

STORES = ("memory", "sqlite", "postgresql", "last_write_wins")
KEYS = [f"order|{number}" for number in range(6)]
STEPS = (
    "removal.the_place_is_kept", "removal.some_keys_are_marked", "removal.the_ends_are_kept",
    "removal.the_time_is_kept", "removal.some_rows_are_out",
)  # fmt: skip


class Killed(Exception):
    """Stands for the end of the process at a named point."""


@contextmanager
def told(act: Callable[[str], None]) -> Iterator[None]:
    """Let a function be called at each named point."""
    points.told = act
    try:
        yield
    finally:
        points.told = None


@pytest.fixture(params=STORES)
def s(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    """A journal on each store, with small segments and pages."""
    if request.param == "last_write_wins":
        with last_write_wins(partitions=2, segment_size=4, read_page=5) as made:
            yield made
        return
    with world(request.param, tmp_path, partitions=2, segment_size=4, read_page=5) as made:
        yield made


def some_events(s: Strandline) -> None:
    """Journals with lives, gaps, deletes, tags and all kinds of payloads, carried."""
    for round_ in range(4):
        for key in KEYS:
            s.journal.append(
                key,
                [Event("Placed", {"round": round_, "ø": "é"}, tags=["blue", key[-1]], metadata={"by": "web"})] * 2,
            )
            s.journal.append(key, [Event("Scanned", b"\x00" * round_), Event("Nothing", None)], headers={"x": "y"})
    s.journal.purge(KEYS[1])
    s.journal.append(KEYS[1], [Event("Again", 1), Event("Again", 2)])
    s.journal.delete(KEYS[2], to=5)
    s.journal.append(KEYS[3], [Event("Gap", 1)], first=40)
    s.journal.append("visit|1", [Event("Came", "early")])
    carry(s)


def stored(s: Strandline, key: str) -> list[int]:
    """The numbers of the rows that the store itself has."""
    head = head_of(s, key)
    rows = s.store.page(key, head.life, head.segment_size, from_=1, to=2**62, limit=10**6).rows
    return [cells[0] for cells in rows]


def head_of(s: Strandline, key: str) -> Head:
    _, state = look_at(s.store, key, key_partition(key, s.log.partitions))
    assert isinstance(state, Head)
    return state


def everything(s: Strandline) -> Any:
    """What readers are told: by key, in part and backwards, replayed, by tag."""
    told: dict[str, Any] = {}
    for key in (*KEYS, "visit|1"):
        told[key] = events = list(s.journal.read(key))
        assert list(s.journal.read(key, backwards=True)) == events[::-1]
        assert list(s.journal.read(key, limit=3)) == events[:3]
        assert list(s.journal.read(key, backwards=True, limit=3)) == events[::-1][:3]
        for from_, to in ((3, 7), (8, 8), (7, 39), (16, 40)):
            some = [event for event in events if from_ <= event.seq_nr <= to]
            assert list(s.journal.read(key, from_=from_, to=to)) == some
            assert list(s.journal.read(key, from_=from_, to=to, backwards=True)) == some[::-1]
        assert list(s.journal.recover(key).events) == events
    told["replayed"] = replayed(s)
    for tag in ("blue", "0", "2"):
        with s.by_tag(tag) as feed:
            told[tag] = [(event, event.tag_seq_nr, event.offset) for event in feed]
    return told


def replayed(s: Strandline) -> set[Any]:
    """All events, each once and each key in the order of its numbers."""
    newest, found = s.log.newest(), []
    for partition in range(s.log.partitions):
        for page in replay_partition(s.log, s.store, s.settings, Wanted(partition, newest[partition])):
            found += [row.event for row in page]
    last: dict[tuple[str, int], int] = {}
    for event in found:
        place = str(event.key), event.life
        assert event.seq_nr > last.get(place, 0), "once, and in order"
        last[place] = event.seq_nr
    return set(found)


def line(s: Strandline) -> int:
    """The first time behind everything that was recorded."""
    carry(s)
    return s.strandline() + 1


def findings(s: Strandline) -> list[Any]:
    return list(reconcile_rounds(s.log, s.store, HereRunner(s.log, s.store, s.settings)).findings)


# ---------------------------------------------------------------- decisions


def test_where_a_part_of_a_read_lies() -> None:
    assert archive_plan(1, 10, 0) == PagePlan(None, (1, 10))
    assert archive_plan(1, 10, 4) == PagePlan((1, 4), (5, 10))
    assert archive_plan(5, 10, 4) == PagePlan(None, (5, 10))
    assert archive_plan(1, 4, 4) == PagePlan((1, 4), None)
    assert archive_plan(3, 3, 9) == PagePlan((3, 3), None)


@pytest.mark.req("J120", "RR10")
def test_up_to_where_a_life_is_in_the_files() -> None:
    standing = {1: 11, 2: 12, 5: 15, 6: 16}
    whole = [(1, 0, 11), (2, 1, 12), (5, 2, 15), (6, 5, 16)]
    assert archived_to(0, whole, standing) == 6
    assert archived_to(0, [whole[0], *whole[2:]], standing) == 1, "a damaged one is in no file"
    assert archived_to(0, whole, {**standing, 5: 99}) == 2, "another event stands there"
    assert archived_to(0, whole, {1: 11, 2: 12, 6: 16}) == 2, "it is not in the store"
    assert archived_to(2, whole, {5: 15}) == 5, "what is known is not asked for again"
    assert archived_to(3, [(5, 2, 15)], standing) == 5, "events before it were deleted"


# ---------------------------------------------------------------- reading


@pytest.mark.req("J119", "J120")
def test_events_are_made_anew_from_columns(tmp_path: Path) -> None:
    """By columns, and row by row where one has headers or metadata: each as the store had it."""
    with strandline.connect("memory:") as s:
        some_events(s)
        for number in range(30):
            tags = ["blue", f"t{number}"][: number % 3]
            s.journal.append(f"plain|{number % 4}", [Event("Placed", {"ø": number}, tags=tags), Event("Raw", b"\x00")])
        s.journal.purge("plain|1")
        s.journal.append("plain|1", [Event("Again", None)])
        s.journal.append("bare|1", [Event("Placed", "é")])
        carry(s)
        pages = [page for part in range(s.log.partitions) for page in raw_events(s.store, part)]
        had = {(row.key, row.seq_nr): row for page in pages for row in page}
        archive_here(s, tmp_path, s.strandline() + 1, remove=False)
        manifest = read_manifest(tmp_path)
        assert manifest is not None
        seen = 0
        for file in manifest.files:
            whole = ParquetFile(tmp_path / file.path).read()
            made = event_rows(whole)
            assert made == [event_row(row) for row in rows_of(whole)]
            assert [row._replace(segment=0) for row in made] == [
                had[row.key, row.seq_nr]._replace(segment=0) for row in made
            ]
            assert event_rows(whole.slice(1, 0)) == []
            seen += len(made)
        assert seen == len(had) > 60


@pytest.mark.req("J120", "T85", "RR10")
def test_archived_events_are_shown_as_before(s: Strandline, tmp_path: Path) -> None:
    some_events(s)
    before = everything(s)
    report = archive_here(s, tmp_path / "archive", line(s))
    gone = sum(len(before[key]) for key in (*KEYS, "visit|1")) if report.removed else 0
    assert report.removed == gone - sum(len(stored(s, key)) for key in (*KEYS, "visit|1")) > 0
    assert stored(s, KEYS[0]) == stored(s, KEYS[1]) == stored(s, KEYS[2]) == []
    assert everything(s) == before
    assert head_of(s, KEYS[0]).archive_to == 16
    # More of the same keys, in the log and carried, and a second round.
    for key in KEYS:
        s.journal.append(key, [Event("Later", 1, tags=["blue"]), Event("Later", 2)], append_id=f"0000000{key[-1]}" * 4)
    expected = {key: [*before[key], *list(s.journal.read(key))[len(before[key]) :]] for key in KEYS}
    assert all(len(expected[key]) == len(before[key]) + 2 for key in KEYS)
    assert {key: list(s.journal.read(key)) for key in KEYS} == expected
    carry(s)
    carried = everything(s)
    assert {key: carried[key] for key in KEYS} == expected
    again = s.journal.append(KEYS[0], [Event("Later", 1, tags=["blue"]), Event("Later", 2)], append_id="00000000" * 4)
    assert again.duplicate
    archive_here(s, tmp_path / "archive", line(s))
    assert [stored(s, key) for key in KEYS] == [[]] * 6
    assert everything(s) == carried
    assert findings(s) == []


@pytest.mark.req("J121")
def test_one_in_both_places_shows_once_and_deleted_and_purged_ones_never(s: Strandline, tmp_path: Path) -> None:
    some_events(s)
    before = everything(s)

    def die(name: str) -> None:
        if name == "removal.the_time_is_kept":
            raise Killed

    with told(die), pytest.raises(Killed):
        archive_here(s, tmp_path / "archive", line(s))
    assert stored(s, KEYS[0]) == list(range(1, 17)), "they are in both places now"
    assert everything(s) == before
    assert findings(s) == []
    archive_here(s, tmp_path / "archive", line(s))
    for carried in (False, True):
        s.journal.delete(KEYS[0], to=4 + 9 * carried)  # below, then within what follows
        s.journal.purge(KEYS[1 + 3 * carried])
        if carried:
            carry(s)
        assert [event.seq_nr for event in s.journal.read(KEYS[0])] == list(range(5 + 9 * carried, 17))
        assert list(s.journal.read(KEYS[1 + 3 * carried])) == []
        shown = {(str(event.key), event.seq_nr) for event in replayed(s)}
        assert not {(KEYS[0], 4), (KEYS[1 + 3 * carried], 1)} & shown
        assert (KEYS[0], 5 + 9 * carried) in shown
    s.journal.append(KEYS[1], [Event("New life", 1)])
    carry(s)
    assert [event.payload for event in s.journal.read(KEYS[1])] == [1]
    assert head_of(s, KEYS[1]).archive_to == 0
    s.journal.delete(KEYS[0], to=99)
    carry(s)
    assert list(s.journal.read(KEYS[0])) == []
    assert findings(s) == []


@pytest.mark.req("J120", "RR10")
def test_killed_at_any_step_the_old_state_answers(s: Strandline, tmp_path: Path) -> None:
    some_events(s)
    before, folder = everything(s), tmp_path / "archive"
    to = line(s)
    for step in STEPS:

        def die(name: str, step: str = step) -> None:
            if name == step:
                raise Killed

        with told(die), pytest.raises(Killed):
            archive_here(s, folder, to)
        assert everything(s) == before, step
    with pytest.raises(Unavailable):
        archive_here(s, folder, to, stopped=lambda: True)
    assert everything(s) == before
    archive_here(s, folder, to)
    assert [stored(s, key) for key in KEYS] == [[]] * 6
    assert everything(s) == before
    assert archive_here(s, folder, to).removed == 0


@pytest.mark.req("J120")
@pytest.mark.parametrize("step", STEPS)
def test_beside_a_pipeline_that_appends_deletes_and_purges(s: Strandline, tmp_path: Path, step: str) -> None:
    """Between any two steps, of the keys whose events go; and a new life begins there."""
    some_events(s)
    done: list[Any] = []

    def meanwhile(name: str) -> None:
        if name != step or done:
            return
        done.append(name)
        s.journal.append(KEYS[0], [Event("Meanwhile", 1, tags=["blue"])])
        s.journal.delete(KEYS[2], to=9)
        s.journal.purge(KEYS[4])
        s.journal.purge(KEYS[5])
        s.journal.append(KEYS[5], [Event("New life", n) for n in range(20)])
        carry(s)
        done.append(everything(s))

    with told(meanwhile):
        archive_here(s, tmp_path / "archive", line(s))
    assert done[0] == step
    assert everything(s) == done[1]
    assert [event.payload for event in s.journal.read(KEYS[5])] == list(range(20))
    assert stored(s, KEYS[5]) == list(range(1, 21)), "rows of a new life stay"
    assert list(s.journal.read(KEYS[4])) == []
    assert findings(s) == []


@pytest.mark.req("J120")
def test_a_damaged_event_and_what_follows_stays(tmp_path: Path) -> None:
    with strandline.connect(f"sqlite:{tmp_path}/shop") as s:
        key = KEYS[0]
        partition = s.journal.append(key, [Event("Placed", 1), Event("Placed", 2)]).partition
        s.log.append([damaged_draft(key, partition)])
        s.journal.append(key, [Event("Placed", 4)])
        before = list(s.journal.read(key))
        assert any(event.damaged for event in before)
        report = archive_here(s, tmp_path / "archive", line(s))
        assert report.kept_keys == 1
        assert head_of(s, key).archive_to == 2
        assert stored(s, key) == [event.seq_nr for event in before][2:]
        assert list(s.journal.read(key)) == before


def damaged_draft(key: str, partition: int) -> ActionDraft:
    """An append whose value cannot be read."""
    events = (("Placed", ()),)
    action = Append(
        key, events, new_id(), False, content_digest(events, None, encode_value([Content(JSON, b"1", None)]))
    )
    return ActionDraft(partition, action, encode_header(action), b"no value")


@pytest.mark.req("J120", "RR10")
def test_a_file_that_is_not_what_was_written_removes_nothing(s: Strandline, tmp_path: Path) -> None:
    some_events(s)
    folder = tmp_path / "archive"
    to = line(s)
    archive_here(s, folder, to, remove=False)
    before = everything(s)
    manifest = read_manifest(folder)
    assert manifest is not None
    for file in manifest.files:
        path = folder / file.path
        path.write_bytes(path.read_bytes().replace(b"round", b"ruond"))
    from pyarrow.parquet import ParquetFile, write_table

    path = folder / manifest.files[0].path
    table = ParquetFile(path).read()
    write_table(table.slice(0, table.num_rows - 1), path)
    with pytest.raises(Corrupt):
        archive_here(s, folder, to)
    note = s.store.archive.note()
    assert note is not None
    assert note.before == note.removed == 0
    assert everything(s) == before or stored(s, KEYS[0]) != []


def test_an_archive_of_nothing_is_one(s: Strandline, tmp_path: Path) -> None:
    some_events(s)
    assert archive_here(s, tmp_path / "archive", 1).removed == 0
    before = everything(s)
    assert archive_here(s, tmp_path / "archive", line(s)).removed > 0
    assert everything(s) == before


# ---------------------------------------------------------------- the folder


@pytest.mark.req("J120")
def test_a_folder_that_is_away_or_elsewhere(s: Strandline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some_events(s)
    folder = tmp_path / "archive"
    archive_here(s, folder, line(s))
    s.journal.append(KEYS[0], [Event("In the log", 1)])
    s.journal.append("order|new", [Event("Placed", 1)])
    before = everything(s)
    moved = tmp_path / "elsewhere"
    folder.rename(moved)
    for how in ({}, {"backwards": True}, {"backwards": True, "limit": 3}, {"from_": 3}):
        shown: list[Any] = []
        with pytest.raises(Unavailable) as away:
            shown.extend(s.journal.read(KEYS[0], **how))
        assert away.value.code == "away"
        assert str(folder) in away.value.message
        assert "archive=" in away.value.hint
        assert shown == [], "nothing is shown before"
    assert [event.payload for event in s.journal.read(KEYS[0], from_=17)] == [1]
    assert len(list(s.journal.read(KEYS[0], backwards=True, limit=1))) == 1
    assert len(list(s.journal.read("order|new"))) == 1, "a key that has nothing there needs no file"
    s.store.archive.place = str(moved)
    assert everything(s) == before
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(Unsupported) as lacking:
        list(s.journal.read(KEYS[0]))
    assert (lacking.value.code, lacking.value.hint) == ("archive", f"{install('spark')}, or pyarrow alone")
    monkeypatch.undo()
    other = tmp_path / "other"
    with pytest.raises(InvalidInput) as refused:
        archive_here(s, other, line(s))
    assert refused.value.code == "archive_path"
    report = archive_here(s, moved, line(s))
    assert report.removed > 0
    s.store.archive.place = None
    carry(s)
    assert {key: len(list(s.journal.read(key))) for key in KEYS} == {key: len(before[key]) for key in KEYS}


@pytest.mark.req("J120")
def test_connect_says_where_this_machine_sees_the_files(tmp_path: Path) -> None:
    url, folder = f"sqlite:{tmp_path}/shop", tmp_path / "archive"
    with strandline.connect(url) as s:
        s.journal.append(KEYS[0], [Event("Placed", 1)])
        archive_here(s, folder, line(s))
    shutil.copytree(folder, tmp_path / "mounted")
    shutil.rmtree(folder)
    with strandline.connect(url, archive=str(tmp_path / "mounted")) as s:
        assert [event.payload for event in s.journal.read(KEYS[0])] == [1]
    with strandline.connect(url) as s, pytest.raises(Unavailable):
        list(s.journal.read(KEYS[0]))
    with pytest.raises(InvalidInput):
        strandline.connect(url, archive="")


# ---------------------------------------------------------------- queries by slices


@pytest.mark.req("P105")
@pytest.mark.parametrize("strand", [True, False])
def test_a_query_from_before_what_left_stops(s: Strandline, tmp_path: Path, strand: bool) -> None:
    how: dict[str, Any] = {"use_strandline": strand}
    if not strand:
        how["eventual_consistency_delay_s"] = 0
    some_events(s)
    with s.by_slices("order", 0, 1023, **how) as query:
        seen = list(query)
        offset = query.resume_offset
        middle = seen[len(seen) // 2].offset
    to = line(s)
    archive_here(s, tmp_path / "archive", to)
    for start in ({}, {"after": middle}, {"from_": seen[-1].timestamp}):
        with pytest.raises(MissingEvent) as stopped, s.by_slices("order", 0, 1023, **start, **how) as query:
            list(query)
        assert stopped.value.code == "slice_hole"
        assert str(tmp_path / "archive") in stopped.value.message
    with s.by_slices("order", 0, 1023, after=offset, **how) as query:
        assert list(query) == [], "one that had them goes on"
    with s.by_slices("never", 0, 1023, **how) as query:
        assert list(query) == [], "nothing of that type left"
    s.journal.append(KEYS[0], [Event("Later", 1)])
    carry(s)
    for start in ({"after": offset}, {"from_": to}):
        with s.by_slices("order", 0, 1023, **start, **how) as query:
            assert [event.payload for event in query] == [1]


@pytest.mark.req("P105", "J120")
def test_a_query_from_behind_what_left_needs_no_file(s: Strandline, tmp_path: Path) -> None:
    """The events before the first ones that it sees of its keys are in the archive."""
    some_events(s)
    to = line(s)
    folder = tmp_path / "archive"
    archive_here(s, folder, to)
    for key in KEYS:
        s.journal.append(key, [Event("Later", 1)])
    carry(s)
    shutil.rmtree(folder)
    with s.by_slices("order", 0, 1023, from_=to) as query:
        assert len(list(query)) == 6


@pytest.mark.req("P105")
def test_what_leaves_under_a_query_stops_it(s: Strandline, tmp_path: Path) -> None:
    some_events(s)
    to = line(s)
    with s.by_slices("order", 0, 1023, page_size=2) as query:
        shown = [next(query)]
        archive_here(s, tmp_path / "archive", to)
        with pytest.raises(MissingEvent):
            shown.extend(query)
    assert len(shown) < 30


@pytest.mark.req("P105", "J114")
def test_a_build_reads_the_archive_in_the_order_of_time(
    s: Strandline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from strandline.store import archive

    monkeypatch.setattr(archive, "ORDER_BYTES", 2000)
    some_events(s)
    to = line(s)
    slices = Slices(s.store, "order", Range(0, 1023))
    expected = list(slices.rows(end_of(-1), to, 10))
    middle = expected[len(expected) // 2]
    archive_here(s, tmp_path / "archive", middle.timestamp)
    assert list(slices.rows_with_archive(end_of(-1), to, 10)) == expected, "a part of it"

    def die(name: str) -> None:
        if name == "removal.the_time_is_kept":
            raise Killed

    with told(die), pytest.raises(Killed):
        archive_here(s, tmp_path / "archive", to)
    assert list(slices.rows_with_archive(end_of(-1), to, 10)) == expected, "in both places"
    archive_here(s, tmp_path / "archive", to)
    assert list(slices.rows_with_archive(end_of(-1), to, 10)) == expected
    assert list(slices.rows_with_archive(end_of(middle.timestamp), to, 10)) == [
        row for row in expected if row.timestamp > middle.timestamp
    ]
    some = Slices(s.store, "order", Range(100, 600))
    assert list(some.rows_with_archive(end_of(-1), middle.timestamp, 10)) == [
        row for row in expected if 100 <= slice_of(row.key) <= 600 and row.timestamp <= middle.timestamp
    ]
    s.journal.append(KEYS[0], [Event("Later", 1)])
    s.journal.delete(KEYS[3], to=3)
    carry(s)
    now = list(slices.rows_with_archive(end_of(-1), s.strandline(), 10))
    assert [row.key for row in now if row.timestamp >= to] == [KEYS[0]]
    assert [row for row in now if row.timestamp < to] == [
        row for row in expected if row.key != KEYS[3] or row.seq_nr > 3
    ]


# ---------------------------------------------------------------- replays


@pytest.mark.req("J120")
def test_what_leaves_under_a_replay_is_in_it(s: Strandline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from strandline.journal import replay

    some_events(s)
    expected, to, newest = replayed(s), line(s), s.log.newest()
    monkeypatch.setattr(replay, "FIRST_PAGE", 3)
    found = []
    for partition in range(2):
        pages = replay_partition(s.log, s.store, s.settings, Wanted(partition, newest[partition]))
        found += [row.event for row in next(pages)]
        if not partition:
            archive_here(s, tmp_path / "archive", to)
        found += [row.event for page in pages for row in page]
    assert len(found) == len(set(found))
    assert set(found) == expected


@pytest.mark.req("J120")
def test_a_replay_of_some_slices_and_times(s: Strandline, tmp_path: Path) -> None:
    some_events(s)
    whole, newest = replayed(s), s.log.newest()
    archive_here(s, tmp_path / "archive", line(s))
    times = sorted(event.timestamp for event in whole)
    cases: tuple[dict[str, Any], ...] = (
        {"from_": times[5], "to": times[20]},
        {"slices": (0, 400)},
        {"entity_type": "visit"},
        {"slices": (401, 1023), "entity_type": "order", "to": times[30]},
    )
    for wanted in cases:
        found = {
            row.event
            for partition in range(2)
            for page in replay_partition(s.log, s.store, s.settings, Wanted(partition, newest[partition], **wanted))
            for row in page
        }
        lo, hi = wanted.get("slices", (0, 1023))
        assert found == {
            event for event in whole
            if wanted.get("from_", 0) <= event.timestamp <= wanted.get("to", 2**62)
            and lo <= event.slice <= hi and str(event.key).startswith(wanted.get("entity_type", ""))
        }  # fmt: skip


# ---------------------------------------------------------------- who compares


@pytest.mark.req("J120", "J118")
def test_reconcile_and_verify_do_not_miss_what_is_archived(tmp_path: Path) -> None:
    url, folder = f"sqlite:{tmp_path}/shop", tmp_path / "archive"
    with strandline.connect(url) as s:
        some_events(s)
        assert findings(s) == []
        archive_here(s, folder, line(s))
        assert findings(s) == []
        s.journal.append(KEYS[0], [Event("Later", 1), Event("Later", 2)])
        carry(s)
        assert findings(s) == []
        store: Any = s.store
        with store._database.write() as tx:
            tx.execute("remove_journal_row", (KEYS[0], 1, 16 // 10_000, 17))
        (found,) = findings(s)
        assert (found.kind, found.key, found.seq_nrs) == ("event_missing", KEYS[0], (17,))
    report = verify(url)
    assert report.damaged == 1, report.damages
    shutil.rmtree(folder)
    with strandline.connect(url) as s, pytest.raises(Unavailable):
        findings(s)


@pytest.mark.req("J120")
def test_a_restored_journal_reads_the_archive_and_goes_on_in_a_copy(tmp_path: Path) -> None:
    url, other, folder = f"sqlite:{tmp_path}/shop", f"sqlite:{tmp_path}/restored", tmp_path / "archive"
    with strandline.connect(url) as s:
        some_events(s)
        archive_here(s, folder, line(s))
        before = {key: list(s.journal.read(key)) for key in KEYS}
    backup(tmp_path / "backup", url)
    assert not list((tmp_path / "backup").rglob("*.parquet"))
    restore(tmp_path / "backup", other)
    assert verify(other).damaged == 0
    with strandline.connect(other) as s:
        assert {key: list(s.journal.read(key)) for key in KEYS} == before
        s.journal.append(KEYS[0], [Event("Later", 1)])
        with pytest.raises(InvalidInput) as refused:
            archive_here(s, folder, line(s))
        assert refused.value.code == "archive_path"
        shutil.copytree(folder, tmp_path / "copy")
        archive_here(s, tmp_path / "copy", line(s))
        assert stored(s, KEYS[0]) == []
        assert [event.payload for event in s.journal.read(KEYS[0])][-1] == 1
        assert list(s.journal.read(KEYS[0]))[:-1] == before[KEYS[0]]
    with strandline.connect(url) as s:
        s.journal.append(KEYS[0], [Event("Another", 2)])
        archive_here(s, folder, line(s))
        assert [event.payload for event in s.journal.read(KEYS[0])][-1] == 2


# ---------------------------------------------------------------- without transactions


@pytest.mark.req("J120")
def test_what_is_written_later_stays_where_a_later_write_wins(tmp_path: Path) -> None:
    """A row that a repair puts back, and a life that begins after a purge, when a removal comes late."""
    with last_write_wins(partitions=1, segment_size=4) as s:
        some_events(s)
        folder, to = tmp_path / "archive", line(s)
        row = next(row for page in raw_events(s.store, 0) for row in page if row.key == KEYS[0] and row.seq_nr == 3)
        archive_here(s, folder, to)
        assert stored(s, KEYS[0]) == []
        store: Any = s.store
        store._put_row(JOURNAL, row, to + 1)
        assert stored(s, KEYS[0]) == [3]
        place = ArchivedPlace(*row[:4], row.timestamp, row.digest)
        store.remove_archived(0, [place])
        assert stored(s, KEYS[0]) == [3], "it was written after the event was"
        s.journal.purge(KEYS[4])
        s.journal.append(KEYS[4], [Event("New life", 1)])
        carry(s)
        store.mark_archived(0, [ArchivedTo(KEYS[4], 1, 16)], to)
        assert head_of(s, KEYS[4]).archive_to == 0
        assert [event.payload for event in s.journal.read(KEYS[4])] == [1]
