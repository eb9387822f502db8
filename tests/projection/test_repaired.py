"""Rows that are put back behind a projection: each that it missed leaves one dead letter, and comes once.

Between a row's loss and its redelivery much can happen. Told here, in this order: the key's next event comes first, or
after the letter; several are put back and asked for out of order; the range was still behind; a repair dies between its
list and its row; the key is parked, or parked later; its row was forgotten; its life ends; the process dies between
letter and number; another host has the range; ranges are cut anew; the projection begins anew, is renamed, paused,
built once more; the list grows while it is read; handlers fail, get lists, or repeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import strandline
from strandline import ByTag, Event, Key
from strandline.connect import Strandline
from strandline.errors import LeaseLost
from strandline.pipeline.projecting import begin
from strandline.projection import repaired
from strandline.projection.definition import BySlices, Projection
from strandline.projection.layout import numbers_in
from strandline.projection.offset_store import OffsetStore
from strandline.store.scans import put_back
from tests.acceptance.cli_call import call
from tests.journal.worlds import world
from tests.lanes import needs_servers
from tests.projection.repairing import Lost, LostTag, letters, rebuild, told
from tests.projection.worlds import ORDERS, QUICK, Table, caught_up, running, until
from tests.query.filling import carry_all, key_in
from tests.store.keyspaces import RELAXED

PARTITIONS = 3
BLUE = ByTag("blue")
STORES = ("sqlite", "postgresql", pytest.param("cassandra", marks=[needs_servers, RELAXED]))
KEY, OTHER = key_in(0, PARTITIONS), key_in(1, PARTITIONS)


@pytest.fixture(params=("sqlite",))
def s(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    """A journal; SQLite's unless a test asks for all stores."""
    if request.param == "cassandra":
        where = {"log": f"sqlite:{tmp_path}/log.db", "store": request.getfixturevalue("unused_keyspace")()}
        how: dict[str, Any] = {"accept_power_loss": True, "lease_s": 1, "partitions": PARTITIONS}
        with strandline.connect(**where, projections=f"sqlite:{tmp_path}/offsets.db", **how) as opened:
            yield opened
        return
    with world(request.param, tmp_path, partitions=PARTITIONS) as opened:
        yield opened


everywhere = pytest.mark.parametrize("s", STORES, indirect=True)


def put(s: Strandline, key: Key, count: int = 1) -> None:
    """Events with a tag, each with a time of its own."""
    for n in range(count):
        s.journal.append(key, [Event("Placed", {"n": n}, tags=["blue"])])
    carry_all(s)


def totals(table: Table, source: BySlices | ByTag = ORDERS, **settings: Any) -> Projection:
    handle = settings.pop("handler", table.add)
    return Projection("totals", source, handle, **{**QUICK, "retries": 0, **settings})


def to_the_end(s: Strandline, projection: Projection) -> None:
    """Run it until it has come to the end of the store, and heard of all that was put back."""
    with running(s, projection):
        until(lambda: caught_up(s))
        looks = s.pointer_watch.looks
        until(lambda: s.pointer_watch.looks > looks + 2)
    found = judged(s)
    assert all(found.get(pointer.partition, 0) >= pointer.repaired for pointer in s.store.pointers())


def judged(s: Strandline) -> dict[int, int]:
    """By partition, up to which number all ranges have judged, as it is saved."""
    with s.open_offsets().store.closed_after() as store, store.look(store.find("totals").id) as (tx, row):
        found: dict[int, int] = {}
        for range_ in store.ranges(tx, row):
            for partition, number in numbers_in(range_.repaired).items():
                found[partition] = min(number, found.get(partition, number))
        return found


def passed_without(s: Strandline, projection: Projection, *, tag: bool = False, seq_nr: int = 2) -> Lost:
    """Two events of each key, of which the second of one is lost when the projection passes it."""
    put(s, KEY, 2)
    put(s, OTHER, 2)
    lost = LostTag(s, KEY, seq_nr) if tag else Lost(s, KEY, seq_nr)
    to_the_end(s, projection)
    return lost


def redelivered(s: Strandline, projection: Projection, *numbers: int, key: Key = KEY) -> list[str]:
    """Hand letters over again; what was refused."""
    for number in numbers:
        s.projections.redeliver("totals", key, number)
    with running(s, projection):
        until(lambda: all(each.refused for each in s.projections.status("totals").requests))
    return [str(each.refused) for each in s.projections.status("totals").requests]


@pytest.mark.req("P96", "P65", "P20", "RR9", "T84")
@everywhere
@pytest.mark.parametrize("source", [ORDERS, BLUE])
def test_what_was_missed_leaves_one_letter(s: Strandline, table: Table, source: Any) -> None:
    projection = totals(table, source)
    lost = passed_without(s, projection, tag=source is BLUE)
    assert table.of(KEY) == [1]
    assert letters(s) == []
    lost.put_back()
    to_the_end(s, projection)
    (letter,) = letters(s)
    assert (letter.key, letter.seq_nr, letter.reason, letter.attempts) == (str(KEY), 2, "repaired", 0)
    assert letter.message == repaired.MISSED
    assert table.of(KEY) == [1]
    assert redelivered(s, projection, 2) == []
    assert table.of(KEY) == [1, 2]
    assert letters(s) == []
    put(s, KEY)
    to_the_end(s, projection)
    assert (table.of(KEY), table.of(OTHER), letters(s)) == ([1, 2, 3], [1, 2], [])
    to_the_end(s, projection)  # a number that was judged is not judged again
    assert letters(s) == []


@pytest.mark.req("P96", "P18")
@pytest.mark.parametrize("letter_first", [False, True])
def test_the_next_event_of_the_key_brings_it(s: Strandline, table: Table, letter_first: bool) -> None:
    projection = totals(table)
    lost = passed_without(s, projection)
    lost.put_back()
    if letter_first:
        to_the_end(s, projection)
    put(s, KEY)
    to_the_end(s, projection)
    assert table.of(KEY) == [1, 2, 3]
    if letter_first:
        assert told(s) == [(str(KEY), 1, 2, "repaired")]
        assert redelivered(s, projection, 2) == []
    assert table.of(KEY) == [1, 2, 3]
    assert letters(s) == []


@pytest.mark.req("P96", "P65")
@pytest.mark.parametrize("source", [ORDERS, BLUE])
@pytest.mark.parametrize("how", [{}, {"delivery": "at_least_once"}, {"group_size": 3}])
def test_letters_that_are_asked_for_out_of_order(s: Strandline, table: Table, source: Any, how: Any) -> None:
    """Through the table of acceptance: what lacks before one comes with it; no list is empty."""

    def handle(*given: Any) -> None:
        what = given[-1] if isinstance(given[-1], list) else [given[-1]]
        assert what
        if len(given) == 2:
            for event in what:
                table.add(given[0], event)
        else:
            with table._offsets.store.database.write() as tx:
                table.add(tx.raw, what[0])

    projection = totals(table, source, handler=handle, **how)
    put(s, KEY, 3)
    lost = [(LostTag if source is BLUE else Lost)(s, KEY, number) for number in (2, 3)]
    to_the_end(s, projection)
    for each in lost:
        each.put_back()
    to_the_end(s, projection)
    assert [each[2] for each in told(s)] == [2, 3]
    assert redelivered(s, projection, 3) == []
    assert (table.of(KEY), letters(s)) == ([1, 2, 3], [])


@pytest.mark.req("P96")
def test_a_range_that_was_still_behind_reads_it_in_its_place(s: Strandline, table: Table) -> None:
    """Listed and put back before the range has come there; and a range that waits for another partition."""
    projection = totals(table)
    put(s, KEY)
    to_the_end(s, projection)
    s.projections.pause("totals")
    put(s, KEY, 2)
    Lost(s, KEY, 3).put_back()
    s.projections.resume("totals")
    to_the_end(s, projection)
    assert (table.of(KEY), letters(s)) == ([1, 2, 3], [])


@pytest.mark.req("P96", "J118")
@everywhere
def test_a_repair_that_dies_between_its_list_and_its_row(s: Strandline, table: Table) -> None:
    """Listed before the range has got there, put back after: one letter, though it is listed twice."""
    projection = totals(table)
    put(s, KEY)
    to_the_end(s, projection)
    put(s, KEY)
    lost = Lost(s, KEY, 2)
    lost.only_list()
    to_the_end(s, projection)
    assert told(s) == [(str(KEY), 1, 2, "repaired")]
    assert "not in the store" in redelivered(s, projection, 2)[0]
    lost.put_back()
    to_the_end(s, projection)
    assert told(s) == [(str(KEY), 1, 2, "repaired")]
    redelivered(s, projection, 2)
    assert (table.of(KEY), letters(s)) == ([1, 2], [])


@pytest.mark.req("P96", "P61", "P62")
def test_a_parked_key_gets_it_with_the_others(s: Strandline, table: Table) -> None:
    broken = [True]

    def handle(tx: Any, event: Any) -> None:
        if broken[0] and event.key == KEY:
            raise ValueError("no")
        table.add(tx, event)

    projection = totals(table, handler=handle, on_failure="park")
    lost = passed_without(s, projection)
    assert told(s) == [(str(KEY), 1, 1, "parked")]
    lost.put_back()
    to_the_end(s, projection)
    assert told(s) == [(str(KEY), 1, 1, "parked")]
    broken[0] = False
    s.projections.unpark("totals", KEY)
    to_the_end(s, projection)
    until(lambda: table.of(KEY) == [1, 2])
    assert letters(s) == []


@pytest.mark.req("P96", "P65", "P62")
def test_a_key_that_is_parked_after_its_letter(s: Strandline, table: Table) -> None:
    broken = [False]

    def handle(tx: Any, event: Any) -> None:
        if broken[0] and event.key == KEY:
            raise ValueError("no")
        table.add(tx, event)

    projection = totals(table, handler=handle, on_failure="park")
    lost = passed_without(s, projection)
    lost.put_back()
    to_the_end(s, projection)
    broken[0] = True
    put(s, KEY)  # brings 2 and 3, of which 2 fails
    to_the_end(s, projection)
    assert s.projections.parked("totals") == [str(KEY)]
    broken[0] = False
    s.projections.unpark("totals", KEY)
    to_the_end(s, projection)
    until(lambda: table.of(KEY) == [1, 2, 3])
    assert letters(s) == []


@pytest.mark.req("P96", "P65")
def test_a_letter_whose_key_is_parked_meanwhile_waits_for_unpark(s: Strandline, table: Table) -> None:
    projection = totals(table)
    passed_without(s, projection).put_back()
    to_the_end(s, projection)
    with s.open_offsets().store.closed_after() as store, store.database.write() as tx:
        row = store.find("totals")
        kept = store.key_row(tx, row, str(KEY))
        assert kept is not None
        tx.many("save_keys", [kept._replace(parked=kept.timestamp + 1)], row.id, row.epoch)
    assert "unpark" in redelivered(s, projection, 2)[0]
    assert (table.of(KEY), told(s)) == ([1], [(str(KEY), 1, 2, "repaired")])
    s.projections.unpark("totals", KEY)
    with running(s, projection):
        until(lambda: table.of(KEY) == [1, 2])
        until(lambda: letters(s) == [])


@pytest.mark.req("P96", "P33")
@pytest.mark.parametrize("done", [False, True])
def test_a_key_whose_row_was_forgotten_is_perhaps_done(s: Strandline, table: Table, done: bool) -> None:
    """The letter says so; redelivered it may repeat, but nothing that came behind it does."""
    projection = totals(table)
    put(s, KEY, 3)
    put(s, OTHER, 1)
    if done:
        to_the_end(s, projection)
    lost = Lost(s, KEY, 2 if done else 3)
    if not done:
        to_the_end(s, projection)
    with s.open_offsets().store.closed_after() as store:
        list(store.forget(store.find("totals"), min(each.position for each in s.projections.status("totals").ranges)))
    lost.put_back()
    to_the_end(s, projection)
    (letter,) = letters(s)
    assert (letter.reason, letter.message) == ("repaired", repaired.PERHAPS_DONE)
    assert letter.message.startswith("perhaps done")
    assert redelivered(s, projection, letter.seq_nr) == []
    put(s, KEY)
    to_the_end(s, projection)
    assert (table.of(KEY), letters(s)) == ([1, 2, 3, 2, 4] if done else [1, 2, 3, 4], [])


@pytest.mark.req("P96", "P65", "P97")
@everywhere
def test_a_purge_between_the_list_and_the_redelivery(s: Strandline, table: Table) -> None:
    projection = totals(table)
    passed_without(s, projection).put_back()
    to_the_end(s, projection)
    s.journal.purge(KEY)
    put(s, KEY)
    refused = redelivered(s, projection, 2)
    assert "not in the store" in refused[0]
    assert "discard" in refused[0]
    assert [life for key, life, _ in table.rows() if key == str(KEY)] == [1, 2]
    s.projections.discard("totals", KEY, 2)
    assert s.projections.status("totals").requests == ()
    to_the_end(s, projection)
    assert letters(s) == []


@pytest.mark.req("P96")
def test_a_process_that_dies_between_letter_and_number(
    s: Strandline, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are one transaction: neither is there, and the next claim writes both."""
    projection = totals(table)
    passed_without(s, projection).put_back()
    with monkeypatch.context() as dying:
        save, seen = OffsetStore.save, []

        def dies(self: OffsetStore, tx: Any, claim: Any, rows: Any, position: int, counts: str, number: Any) -> None:
            if number is not None:
                ((found,),) = tx.raw.execute("select count(*) from projection_dead_letter")
                seen.append(found)
                raise LeaseLost("died", code="lease_lost", hint="")
            save(self, tx, claim, rows, position, counts, number)

        dying.setattr(OffsetStore, "save", dies)
        with running(s, projection):
            until(lambda: seen)
    assert seen[0] == 1
    assert (letters(s), judged(s)) == ([], {})
    to_the_end(s, projection)
    assert told(s) == [(str(KEY), 1, 2, "repaired")]


@pytest.mark.req("P96", "P70")
def test_a_host_whose_fence_is_old_writes_no_letter(
    s: Strandline, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    projection = totals(table)
    passed_without(s, projection).put_back()
    key_rows = OffsetStore.key_rows
    taken: list[bool] = []

    def taken_over(self: OffsetStore, row: Any, keys: Any) -> Any:
        if not taken:
            taken.append(True)
            with self.database.write() as tx:  # another host takes the range, and has judged
                tx.execute("fence_all", (row.id, row.epoch, row.fence + 100))
        return key_rows(self, row, keys)

    monkeypatch.setattr(OffsetStore, "key_rows", taken_over)
    with running(s, projection):
        until(lambda: taken and caught_up(s) and letters(s))
    assert told(s) == [(str(KEY), 1, 2, "repaired")]  # by its new owner


@pytest.mark.req("P96", "P72", "P73")
def test_ranges_that_are_cut_anew_judge_from_the_least_number_on(s: Strandline, table: Table) -> None:
    projection = totals(table)
    passed_without(s, projection).put_back()
    to_the_end(s, projection)
    s.projections.discard("totals", KEY, 2)
    before = judged(s)
    for n in (8, 1, 3):
        assert s.projections.rescale("totals", n)
        assert judged(s) == before
    to_the_end(s, projection)
    assert letters(s) == []  # not once more
    with s.open_offsets().store.closed_after() as store, store.database.write() as tx:
        row = store.find("totals")
        (range_,) = [each for each in store.ranges(tx, row) if each.lo == 0]
        tx.execute("save_repaired", (row.id, row.epoch, 0, range_.fence, "{}"))  # one that had not come so far
    s.projections.rescale("totals", 1)
    to_the_end(s, projection)
    assert told(s) == [(str(KEY), 1, 2, "repaired")]
    (first,) = letters(s)
    s.projections.rescale("totals", 3)
    to_the_end(s, projection)
    assert letters(s) == [first]


@pytest.mark.req("P96", "P78", "P80", "P104")
def test_what_begins_anew_reads_it_in_its_place(s: Strandline, table: Table) -> None:
    projection = totals(table)
    put(s, KEY, 2)
    lost = Lost(s, KEY, 2)
    to_the_end(s, projection)
    lost.put_back()
    s.projections.reset("totals")
    to_the_end(s, projection)
    assert (table.of(KEY), letters(s)) == ([1, 1, 2], [])
    s.projections.set_offset("totals", 0)
    to_the_end(s, projection)
    assert (table.of(KEY), letters(s)) == ([1, 1, 2, 1, 2], [])
    newest = min(pointer.timestamp for pointer in s.store.pointers())
    s.projections.set_offset("totals", newest)
    to_the_end(s, projection)
    assert letters(s) == []
    s.projections.rename("totals", "sums")
    s.projections.rename("sums", "totals")
    assert judged(s) == {0: s.store.pointers()[0].repaired}


@pytest.mark.req("P96", "P46")
def test_what_is_not_a_projections_own(s: Strandline, table: Table) -> None:
    """Another tag's, another type's, a tag's for slices and the other way round, and what lies below its start."""
    other = Key("user", "7")
    put(s, KEY, 2)
    put(s, other, 2)
    s.journal.append(KEY, [Event("Placed", 0, tags=["red"])])
    carry_all(s)
    blue, red, slices = LostTag(s, KEY, 2), LostTag(s, KEY, 1, "red"), Lost(s, other, 2)
    names: dict[str, Any] = {"blue": BLUE, "red": ByTag("red"), "orders": ORDERS, "users": BySlices("user")}

    def all_to_the_end(start: Literal["beginning", "now"] = "beginning", suffix: str = "") -> None:
        found = [
            Projection(f"{name}{suffix}", source, lambda tx, event: None, start=start, **QUICK)
            for name, source in names.items()
        ]
        with running(s, *found):
            until(lambda: all(caught_up(s, each.name) for each in found))
            until(lambda: all(told(s, name) for name in ("blue", "red", "users")) or not listed)

    listed = False
    all_to_the_end()
    all_to_the_end("now", "_now")
    for each in (blue, red, slices):
        each.put_back()
    listed = True
    all_to_the_end()
    all_to_the_end("now", "_now")
    assert [[each[:3] for each in told(s, name)] for name in names] == [
        [(str(KEY), 1, 2)], [(str(KEY), 1, 1)], [], [(str(other), 1, 2)]
    ]  # fmt: skip
    assert [told(s, f"{name}_now") for name in names] == [[], [], [], []]


@pytest.mark.req("P96", "P20")
def test_nothing_is_asked_while_no_number_is_new(s: Strandline, table: Table) -> None:
    """An idle range looks at the pointers, and at nothing else; one list is read once for what was put back."""
    projection = totals(table)
    lost = passed_without(s, projection)
    whole = s.store
    asked: list[str] = []

    class Counting:
        def scan(self, scan: Any, *what: Any, **how: Any) -> Any:
            asked.append(scan.name)
            return whole.scan(scan, *what, **how)

        def __getattr__(self, name: str) -> Any:
            return getattr(whole, name)

    s.store = Counting()
    with running(s, projection):
        until(lambda: caught_up(s))
        looks = s.pointer_watch.looks
        until(lambda: s.pointer_watch.looks > looks + 3)
        assert "put_back" not in asked
        lost.put_back()
        until(lambda: letters(s))
        looks = s.pointer_watch.looks
        until(lambda: s.pointer_watch.looks > looks + 3)
    s.store = whole
    assert asked.count("put_back") == 1


@pytest.mark.req("P96")
def test_a_list_that_grows_while_it_is_read(s: Strandline, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repaired, "AT_ONCE", 2)
    keys = [key_in(0, PARTITIONS, nth=nth) for nth in range(7)]
    projection = totals(table, BLUE)
    for key in keys:
        put(s, key, 2)
    for key in keys[:5]:
        LostTag(s, key, 2)
    to_the_end(s, projection)
    growing = [keys[5], keys[6]]

    def grows(*what: Any, **how: Any) -> Any:
        if growing:
            key = growing.pop()
            LostTag(s, key, 2)
            rebuild(s)
        return put_back(*what, **how)

    monkeypatch.setattr(repaired, "put_back", grows)
    rebuild(s)
    to_the_end(s, projection)
    assert [each[:3] for each in told(s)] == sorted((str(key), 1, 2) for key in keys[:5])  # the last two were done
    assert [redelivered(s, projection, 2, key=key) for key in keys[:5]] == [[]] * 5
    assert sorted(table.rows()) == sorted((str(key), 1, n) for key in keys for n in (1, 2))


@pytest.mark.req("P96", "P65", "P102")
def test_a_handler_that_fails_at_a_redelivery(s: Strandline, table: Table) -> None:
    broken = [True]

    def handle(tx: Any, event: Any) -> None:
        table.add(tx, event)
        if broken[0] and event.key == KEY and event.seq_nr == 2:
            raise ValueError("not yet")

    projection = totals(table, handler=handle)
    passed_without(s, projection).put_back()
    to_the_end(s, projection)
    assert "not yet" in redelivered(s, projection, 2)[0]
    assert (table.of(KEY), told(s)) == ([1], [(str(KEY), 1, 2, "repaired")])
    broken[0] = False
    assert redelivered(s, projection, 2) == []  # what was refused is not shown once it is asked for again
    assert (table.of(KEY), letters(s)) == ([1, 2], [])


@pytest.mark.req("P96", "P43")
def test_with_a_feed(s: Strandline, table: Table) -> None:
    projection = totals(table, feed=True)
    lost = passed_without(s, projection)
    lost.put_back()
    with running(s, projection):
        until(lambda: told(s) == [(str(KEY), 1, 2, "repaired")])
        s.journal.append(KEY, [Event("Placed", 1)])
        s.projections.redeliver("totals", KEY, 2)
        until(lambda: table.of(KEY)[:2] == [1, 2])
        carry_all(s)
        until(lambda: table.of(KEY) == [1, 2, 3])
    assert letters(s) == []


@pytest.mark.req("P96", "P88", "P84")
def test_a_build_reads_it_in_its_place_and_switches(s: Strandline, table: Table) -> None:
    """What was put back before a build, or while it goes on and both are past it: no letter that the other has not."""
    first = totals(table)
    lost = passed_without(s, first)
    lost.put_back()
    to_the_end(s, first)
    second = totals(table, handler=lambda tx, event: None, generation=2)
    begin(s, second, None, allow_deleted=False)
    with running(s, first), running(s, second):
        until(lambda: s.projections.status("totals", generation=2).state == "ready")
    other = Lost(s, OTHER, 2)
    put(s, KEY)
    with running(s, first), running(s, second):
        until(lambda: caught_up(s))
        assert s.projections.dead_letters("totals", generation=2) == []
        other.put_back()
        looks = s.pointer_watch.looks
        until(lambda: s.pointer_watch.looks > looks + 2)
        assert s.projections.dead_letters("totals", generation=2) == []  # both had it before it was lost
        assert s.projections.switch("totals", 2)
    assert s.projections.dead_letters("totals") == []
    assert told(s) == []


@pytest.mark.req("P96", "P76")
def test_what_the_command_line_says(s: Strandline, table: Table, tmp_path: Path) -> None:
    """Which event, why, and what to do."""
    projection, url = totals(table), ("--url", f"sqlite:{tmp_path}/orders")
    passed_without(s, projection).put_back()
    to_the_end(s, projection)
    listed = call("projections", "dead-letters", "totals", *url)
    assert f"{KEY} 2  life 1  repaired" in listed.out
    assert "redeliver hands it over, discard forgets it" in listed.out
    (said,) = call("projections", "dead-letters", "totals", *url, "--json").lines
    assert (said["key"], said["seq_nr"], said["reason"]) == (str(KEY), 2, "repaired")
    assert call("projections", "redeliver", "totals", str(KEY), "2", *url).code == 0
    to_the_end(s, projection)
    assert (table.of(KEY), call("projections", "dead-letters", "totals", *url).out) == ([1, 2], "")
