"""Rows that are put back behind a projection: it is shown as stale until each that it missed is handed over.

Between a row's loss and its redelivery much can happen. Told here, in this order: the key's next event brings it;
several are put back and asked for out of order; the range was still behind; a repair dies between its list and its row;
the key is parked, or parked later; its row was forgotten; its life ends, or the event is deleted; ranges are cut anew;
the projection begins anew, is renamed, built once more; the list is long; handlers fail, get lists, or repeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import strandline
from strandline import ByTag, Event, Key
from strandline.connect import Strandline
from strandline.errors import NotFound
from strandline.pipeline.projections import begin
from strandline.projection import stale
from strandline.projection.definition import BySlices, Projection
from strandline.projection.stale import Stale
from tests.acceptance.cli_call import call
from tests.journal.worlds import world
from tests.lanes import needs_servers
from tests.projection.repairing import Lost, LostTag, letters, told
from tests.projection.worlds import ORDERS, QUICK, Table, caught_up, running, until
from tests.query.filling import carry_all, key_in
from tests.reconcile.planting import reconciled
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
    """Run it until it has come to the end of the store, and done what was asked of it."""
    with running(s, projection):
        until(lambda: caught_up(s, projection.name))
        until(lambda: all(each.refused for each in s.projections.status(projection.name).requests))


def passed_without(s: Strandline, projection: Projection, *, tag: bool = False, seq_nr: int = 2) -> Lost:
    """Two events of each key, of which the second of one is lost when the projection passes it."""
    put(s, KEY, 2)
    put(s, OTHER, 2)
    lost = LostTag(s, KEY, seq_nr) if tag else Lost(s, KEY, seq_nr)
    to_the_end(s, projection)
    return lost


def found(s: Strandline, name: str = "totals", generation: int | None = None) -> Stale | None:
    return s.projections.status(name, generation=generation).stale


def missed(s: Strandline, name: str = "totals") -> list[tuple[str, int, int, bool]]:
    """Key, life and number of the events that make it stale, and whether each is perhaps done."""
    seen = found(s, name)
    if seen is None:
        return []
    assert (seen.events, seen.keys) == (len(seen.first), len({one.key for one in seen.first}))
    return [(one.key, one.life, one.seq_nr, one.perhaps_done) for one in seen.first]


def redelivered(s: Strandline, projection: Projection, *numbers: int, key: Key = KEY) -> list[str]:
    """Hand events over; what was refused."""
    for number in numbers:
        s.projections.redeliver("totals", key, number)
    to_the_end(s, projection)
    return [str(each.refused) for each in s.projections.status("totals").requests]


SECOND = (str(KEY), 1, 2, False)
"""The second event of the key, which was not handed over."""


@pytest.mark.req("P96", "P65", "RR9", "T84")
@everywhere
@pytest.mark.parametrize("source", [ORDERS, BLUE])
def test_what_was_missed_makes_it_stale(s: Strandline, table: Table, source: Any) -> None:
    projection = totals(table, source)
    lost = passed_without(s, projection, tag=source is BLUE)
    assert (table.of(KEY), found(s)) == ([1], None)
    assert s.projections.list() == [("totals", 1, "serving")]
    lost.put_back()
    to_the_end(s, projection)
    assert (table.of(KEY), missed(s), letters(s)) == ([1], [SECOND], [])
    assert s.projections.list() == [("totals", 1, "serving, stale")]
    assert redelivered(s, projection, 2) == []
    assert (table.of(KEY), found(s), letters(s)) == ([1, 2], None, [])
    assert s.projections.list() == [("totals", 1, "serving")]
    put(s, KEY)
    to_the_end(s, projection)
    assert (table.of(KEY), table.of(OTHER)) == ([1, 2, 3], [1, 2])
    assert redelivered(s, projection, 2) == []  # it is done: nothing is handed over twice
    assert table.of(KEY) == [1, 2, 3]


@pytest.mark.req("P96", "P18")
def test_the_next_event_of_the_key_brings_it(s: Strandline, table: Table) -> None:
    projection = totals(table)
    passed_without(s, projection).put_back()
    assert missed(s) == [SECOND]
    put(s, KEY)
    to_the_end(s, projection)
    assert (table.of(KEY), found(s), letters(s)) == ([1, 2, 3], None, [])


@pytest.mark.req("P96", "P65")
@pytest.mark.parametrize("source", [ORDERS, BLUE])
@pytest.mark.parametrize("how", [{}, {"delivery": "at_least_once"}, {"group_size": 3}])
def test_events_that_are_asked_for_out_of_order(s: Strandline, table: Table, source: Any, how: Any) -> None:
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
    assert [each[2] for each in missed(s)] == [2, 3]
    assert redelivered(s, projection, 3) == []
    assert (table.of(KEY), found(s)) == ([1, 2, 3], None)


@pytest.mark.req("P96", "RR9", "J118")
@pytest.mark.parametrize("source", [ORDERS, BLUE])
def test_what_reconcile_puts_back_makes_it_stale(s: Strandline, table: Table, source: Any) -> None:
    projection = totals(table, source)
    passed_without(s, projection, tag=source is BLUE)
    assert found(s) is None
    assert reconciled(s, repair=True).unrepaired == []
    assert missed(s) == [SECOND]
    assert redelivered(s, projection, 2) == []
    assert (table.of(KEY), found(s)) == ([1, 2], None)


@pytest.mark.req("P96")
def test_a_range_that_was_still_behind_reads_it_in_its_place(s: Strandline, table: Table) -> None:
    """Listed and put back before the range has come there; and a range that waits for another partition."""
    projection = totals(table)
    put(s, KEY)
    to_the_end(s, projection)
    s.projections.pause("totals")
    put(s, KEY, 2)
    Lost(s, KEY, 3).put_back()
    assert found(s) is None
    s.projections.resume("totals")
    to_the_end(s, projection)
    assert (table.of(KEY), found(s)) == ([1, 2, 3], None)


@pytest.mark.req("P96", "J118")
@everywhere
def test_a_repair_that_dies_between_its_list_and_its_row(s: Strandline, table: Table) -> None:
    """Listed before the range has got there, put back after: it is missed as if it came later."""
    projection = totals(table)
    put(s, KEY)
    to_the_end(s, projection)
    put(s, KEY)
    lost = Lost(s, KEY, 2)
    lost.only_list()
    to_the_end(s, projection)
    assert missed(s) == [SECOND]
    assert "not in the store" in redelivered(s, projection, 2)[0]
    lost.put_back()
    assert {each[:3] for each in missed_of(s)} == {SECOND[:3]}
    redelivered(s, projection, 2)
    assert (table.of(KEY), found(s)) == ([1, 2], None)


def missed_of(s: Strandline) -> tuple[Any, ...]:
    seen = found(s)
    assert seen is not None
    return seen.first


@pytest.mark.req("P96", "P61", "P62")
def test_a_parked_key_gets_it_with_the_others(s: Strandline, table: Table) -> None:
    broken = [True]

    def handle(tx: Any, event: Any) -> None:
        if broken[0] and event.key == KEY:
            raise ValueError("no")
        table.add(tx, event)

    projection = totals(table, handler=handle, on_failure="park")
    lost = passed_without(s, projection)
    lost.put_back()
    to_the_end(s, projection)
    assert (told(s), found(s)) == ([(str(KEY), 1, 1, "parked")], None)
    broken[0] = False
    s.projections.unpark("totals", KEY)
    to_the_end(s, projection)
    until(lambda: table.of(KEY) == [1, 2])
    assert (letters(s), found(s)) == ([], None)


@pytest.mark.req("P96", "P65")
def test_an_event_whose_key_is_parked_meanwhile_waits_for_unpark(s: Strandline, table: Table) -> None:
    projection = totals(table)
    passed_without(s, projection).put_back()
    with s.open_offsets().store.closed_after() as store, store.database.write() as tx:
        row = store.find("totals")
        kept = store.key_row(tx, row, str(KEY))
        assert kept is not None
        tx.many("save_keys", [kept._replace(parked=kept.timestamp + 1)], row.id, row.epoch)
    assert found(s) is None
    assert "unpark" in redelivered(s, projection, 2)[0]
    assert table.of(KEY) == [1]
    s.projections.unpark("totals", KEY)
    with running(s, projection):
        until(lambda: table.of(KEY) == [1, 2])


@pytest.mark.req("P96")
def test_a_key_that_was_parked_in_an_earlier_life_waits_for_nothing_of_this_one(s: Strandline, table: Table) -> None:
    """Nobody hands its event over with what waits: it is missed."""
    projection = totals(table)
    put(s, KEY)
    to_the_end(s, projection)
    with s.open_offsets().store.closed_after() as store, store.database.write() as tx:
        row = store.find("totals")
        kept = store.key_row(tx, row, str(KEY))
        assert kept is not None
        tx.many("save_keys", [kept._replace(parked=kept.timestamp)], row.id, row.epoch)
    s.journal.purge(KEY)
    put(s, KEY)
    put(s, OTHER)
    lost = Lost(s, KEY, 1)
    to_the_end(s, projection)
    lost.put_back()
    assert missed(s) == [(str(KEY), 2, 1, False)]


@pytest.mark.req("P96", "P33")
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("discarded", [False, True])
def test_a_key_whose_row_was_forgotten_is_perhaps_done(
    s: Strandline, table: Table, done: bool, discarded: bool
) -> None:
    """Redelivered it may repeat, but nothing that came behind it does; discarded it is not asked about again."""
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
    ((key, life, number, perhaps),) = missed(s)
    assert (key, life, perhaps) == (str(KEY), 1, True)
    assert "(perhaps done)" in str(found(s))
    if discarded:
        s.projections.discard("totals", KEY, number)
        handled = [1, 2, 3] if done else [1, 2]
    else:
        assert redelivered(s, projection, number) == []
        handled = [1, 2, 3, 2] if done else [1, 2, 3]
    assert (table.of(KEY), found(s)) == (handled, None)
    put(s, KEY)
    to_the_end(s, projection)
    assert (table.of(KEY)[: len(handled)], table.of(KEY)[-1], found(s)) == (handled, 4, None)
    if not discarded:
        assert table.of(KEY) == [*handled, 4]


@pytest.mark.req("P96", "P65", "P97")
@everywhere
def test_a_purge_or_delete_before_the_redelivery(s: Strandline, table: Table) -> None:
    projection = totals(table)
    passed_without(s, projection).put_back()
    s.projections.redeliver("totals", KEY, 2)
    s.journal.purge(KEY)
    put(s, KEY)
    to_the_end(s, projection)
    (request,) = s.projections.status("totals").requests
    assert "not in the store" in str(request.refused)
    assert found(s) is None
    assert [life for key, life, _ in table.rows() if key == str(KEY)] == [1, 2]
    put(s, OTHER)
    lost = Lost(s, OTHER, 3)
    to_the_end(s, projection)
    lost.put_back()
    assert missed(s) == [(str(OTHER), 1, 3, False)]
    s.journal.delete(OTHER, to=3)
    carry_all(s)
    assert found(s) is None


@pytest.mark.req("P96", "P72", "P73")
def test_ranges_that_are_cut_anew_stay_stale(s: Strandline, table: Table) -> None:
    projection = totals(table)
    passed_without(s, projection).put_back()
    for n in (8, 1, 3):
        assert s.projections.rescale("totals", n)
        assert missed(s) == [SECOND]
    to_the_end(s, projection)
    assert missed(s) == [SECOND]
    assert redelivered(s, projection, 2) == []
    assert (table.of(KEY), found(s)) == ([1, 2], None)


@pytest.mark.req("P96", "P78", "P80", "P104")
def test_what_begins_anew_reads_it_in_its_place(s: Strandline, table: Table) -> None:
    projection = totals(table)
    put(s, KEY, 2)
    lost = Lost(s, KEY, 2)
    to_the_end(s, projection)
    lost.put_back()
    s.projections.rename("totals", "sums")
    assert missed(s, "sums") == [SECOND]
    s.projections.rename("sums", "totals")
    s.projections.reset("totals")
    assert found(s) is None
    to_the_end(s, projection)
    assert (table.of(KEY), found(s)) == ([1, 1, 2], None)
    with s.open_offsets().store.closed_after() as store:  # nobody asks once more when its key row is gone
        list(store.forget(store.find("totals"), min(each.position for each in s.projections.status("totals").ranges)))
    assert found(s) is None
    s.projections.set_offset("totals", min(pointer.timestamp for pointer in s.store.pointers()))
    to_the_end(s, projection)
    assert (table.of(KEY), found(s)) == ([1, 1, 2], None)


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
        projections = [
            Projection(f"{name}{suffix}", source, lambda tx, event: None, start=start, **QUICK)
            for name, source in names.items()
        ]
        with running(s, *projections):
            until(lambda: all(caught_up(s, each.name) for each in projections))

    all_to_the_end()
    all_to_the_end("now", "_now")
    for each in (blue, red, slices):
        each.put_back()
    assert [[each[:3] for each in missed(s, name)] for name in names] == [
        [(str(KEY), 1, 2)], [(str(KEY), 1, 1)], [], [(str(other), 1, 2)]
    ]  # fmt: skip
    assert [missed(s, f"{name}_now") for name in names] == [[], [], [], []]


@pytest.mark.req("P96", "P20")
def test_nobody_reads_the_list_while_it_runs(s: Strandline, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read when somebody asks how the projection is, and at no other time."""
    projection = totals(table)
    lost = passed_without(s, projection)
    scanned: list[str] = []
    scan = type(s.store).scan

    def scanning(self: Any, wanted: Any, *what: Any, **how: Any) -> Any:
        scanned.append(wanted.name)
        return scan(self, wanted, *what, **how)

    monkeypatch.setattr(type(s.store), "scan", scanning)
    s.projections.statuses()
    assert scanned.count("put_back") == PARTITIONS  # while nothing is listed, one look for all projections
    scanned.clear()
    with running(s, projection):
        lost.put_back()
        looks = s.pointer_watch.looks
        until(lambda: s.pointer_watch.looks > looks + 3)
    assert "put_back" not in scanned
    assert missed(s) == [SECOND]
    assert "put_back" in scanned


@pytest.mark.req("P96")
@pytest.mark.parametrize("at_once", [2, 500])
def test_a_long_list(s: Strandline, table: Table, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Read in pages; the first are named, all are counted, or it says that there may be more."""
    monkeypatch.setattr(stale, "AT_ONCE", at_once)
    monkeypatch.setattr(stale, "NAMED_MAX", 4)
    keys = [key_in(nth % PARTITIONS, PARTITIONS, nth=nth) for nth in range(7)]
    projection = totals(table)
    lost = []
    for key in keys:
        put(s, key, 3)
        lost += [Lost(s, key, 2), Lost(s, key, 3)]
    to_the_end(s, projection)
    for each in lost:
        each.put_back()
    seen = found(s)
    assert seen is not None
    assert (seen.events, seen.keys, len(seen.first), seen.complete) == (14, 7, 4, True)
    assert str(seen).startswith("14 events of 7 keys put back behind it: ")
    assert str(seen).endswith(", …")
    monkeypatch.setattr(stale, "READ_MAX", 5)
    seen = found(s)
    assert seen is not None
    assert (seen.events, seen.complete) == (5, False)
    assert str(seen).startswith("at least 5 events of ")
    for key in keys:
        assert redelivered(s, projection, 3, key=key) == []
    assert sorted(table.rows()) == sorted((str(key), 1, n) for key in keys for n in (1, 2, 3))
    monkeypatch.setattr(stale, "READ_MAX", 100_000)
    assert found(s) is None


@pytest.mark.req("P96", "P65", "P102")
def test_a_handler_that_fails_at_a_redelivery(s: Strandline, table: Table) -> None:
    broken = [True]

    def handle(tx: Any, event: Any) -> None:
        table.add(tx, event)
        if broken[0] and event.key == KEY and event.seq_nr == 2:
            raise ValueError("not yet")

    projection = totals(table, handler=handle)
    passed_without(s, projection).put_back()
    assert "not yet" in redelivered(s, projection, 2)[0]
    assert (table.of(KEY), missed(s)) == ([1], [SECOND])
    broken[0] = False
    assert redelivered(s, projection, 2) == []  # what was refused is not shown once it is asked for again
    assert (table.of(KEY), found(s)) == ([1, 2], None)


@pytest.mark.req("P102", "P65")
def test_what_was_refused_is_not_shown_once_it_is_discarded(s: Strandline, table: Table) -> None:
    def handle(tx: Any, event: Any) -> None:
        table.add(tx, event)
        if event.key == KEY and event.seq_nr >= 2:
            raise ValueError("never")

    projection = totals(table, handler=handle, on_failure="skip")
    passed_without(s, projection).put_back()
    put(s, OTHER)
    assert len(redelivered(s, projection, 2)) == 1, "an event that was put back"
    s.projections.discard("totals", KEY, 2)
    assert not s.projections.status("totals").requests
    put(s, KEY)
    to_the_end(s, projection)
    letters_ = [one.seq_nr for one in s.projections.dead_letters("totals")]
    assert 3 in letters_
    assert len(redelivered(s, projection, *letters_)) == len(letters_), "dead letters"
    for seq_nr in letters_:
        s.projections.discard("totals", KEY, seq_nr)
    assert not s.projections.status("totals").requests
    assert not s.projections.dead_letters("totals")


@pytest.mark.req("P96", "P65")
def test_what_was_neither_put_back_nor_given_up_cannot_be_redelivered(s: Strandline, table: Table) -> None:
    projection = totals(table)
    passed_without(s, projection).put_back()
    for call_ in (s.projections.redeliver, s.projections.discard):
        with pytest.raises(NotFound, match="no dead letter, nor was it put back") as refused:
            call_("totals", KEY, 1)
        assert refused.value.code == "dead_letter"


@pytest.mark.req("P96", "P43")
def test_with_a_feed(s: Strandline, table: Table) -> None:
    projection = totals(table, feed=True)
    lost = passed_without(s, projection)
    lost.put_back()
    with running(s, projection):
        until(lambda: missed(s) == [SECOND])
        s.journal.append(KEY, [Event("Placed", 1)])
        s.projections.redeliver("totals", KEY, 2)
        until(lambda: table.of(KEY)[:2] == [1, 2])
        carry_all(s)
        until(lambda: table.of(KEY) == [1, 2, 3])
    assert found(s) is None


@pytest.mark.req("P96", "P88", "P84")
def test_a_build_reads_it_in_its_place_and_takes_its_place(s: Strandline, table: Table) -> None:
    """A projection that is rebuilt is not stale; nor is either by what was lost after both had handed it over."""
    first = totals(table)
    lost = passed_without(s, first)
    lost.put_back()
    assert missed(s) == [SECOND]
    second = totals(table, handler=lambda tx, event: None, generation=2)
    begin(s, second, None, allow_deleted=False)
    with running(s, first), running(s, second):
        until(lambda: s.projections.status("totals", generation=2).state == "ready")
    other = Lost(s, OTHER, 2)
    put(s, KEY)
    with running(s, first), running(s, second):
        until(lambda: caught_up(s))
        other.put_back()
        assert s.projections.switch("totals", 2)
    assert (found(s), found(s, generation=1)) == (None, None)
    assert sorted(s.projections.list()) == [("totals", 1, "retired"), ("totals", 2, "serving")]


@pytest.mark.req("P96", "P76")
def test_what_the_command_line_says(s: Strandline, table: Table, tmp_path: Path) -> None:
    """That it is stale, which events, and what to do."""
    projection, url = totals(table), ("--url", f"sqlite:{tmp_path}/orders")
    passed_without(s, projection).put_back()
    hint = "strandline projections redeliver totals KEY SEQ_NR"
    assert call("projections", "list", *url).out == "totals  generation 1  serving, stale\n"
    shown = call("projections", "status", "totals", *url)
    assert f"stale: 1 event of 1 key put back behind it: {KEY} 2; rebuild it" in " ".join(shown.err.split())
    assert hint in " ".join(shown.err.split())
    (said,) = call("projections", "status", "totals", *url, "--json").lines
    assert (said["stale"]["events"], said["stale"]["first"][0]["key"]) == (1, str(KEY))
    status = call("status", *url)
    assert "serving, no host, stale" in " ".join(status.out.split())
    assert "projection totals is stale: 1 event of 1 key" in " ".join(status.out.split())
    (checked,) = [line for line in call("doctor", *url, "--json").lines if line["name"] == "projections"]
    assert checked["state"] == "warning"
    assert f"is stale: 1 event of 1 key put back behind it: {KEY} 2" in checked["remedy"]
    assert hint in checked["remedy"]
    assert call("projections", "redeliver", "totals", str(KEY), "2", *url).code == 0
    to_the_end(s, projection)
    assert call("projections", "list", *url).out == "totals  generation 1  serving\n"
    assert "stale" not in call("projections", "status", "totals", *url).err
