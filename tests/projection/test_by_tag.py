"""Projections of a tag: numbers under the tag say what is next, links what was forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from strandline import ByTag, Event, InvalidInput, Key
from strandline.connect import Strandline
from strandline.projection.definition import Projection
from strandline.store.api import RowPage
from tests.projection.worlds import QUICK, Table, caught_up, error_of, range_of, running, until
from tests.query.filling import carry_all, key_in

BLUE = ByTag("blue")
KEY, OTHER = Key("order", "1"), Key("user", "2")


def put(s: Strandline, key: Key, *tags: str) -> None:
    """An event for each of these tags; "" for one without."""
    s.journal.append(key, [Event("Placed", {"n": n}, tags=[tag] if tag else []) for n, tag in enumerate(tags)])


def to_the_end(s: Strandline, table: Table, **settings: Any) -> None:
    with running(s, Projection("totals", BLUE, table.add, **{**QUICK, **settings})):
        until(lambda: caught_up(s))


def tagged(s: Strandline) -> list[tuple[str, int, int]]:
    return [(str(event.key), event.life, event.seq_nr) for event in s.by_tag("blue")]


@pytest.mark.req("P99", "P45", "P34", "P29")
def test_the_events_of_a_tag_each_once_in_their_order(s: Strandline, table: Table) -> None:
    for _ in range(3):
        put(s, KEY, "blue", "", "red", "blue")
        put(s, OTHER, "", "blue")
    carry_all(s)
    to_the_end(s, table)
    assert table.rows() == tagged(s)
    assert len(s.projections.status("totals").ranges) == 1
    put(s, KEY, "", "blue")
    s.journal.delete(KEY, to=4)
    carry_all(s)
    to_the_end(s, table)
    assert table.rows() == tagged(s)  # deletes are not propagated, here as there
    store = s.open_offsets().store
    assert store.key_rows(store.find("totals"), [str(KEY)]).rows[str(KEY)].seq_nr == 7  # of the tag
    store.close()
    s.journal.purge(OTHER)
    put(s, OTHER, "blue")
    carry_all(s)
    to_the_end(s, table)
    assert table.rows()[-1] == (str(OTHER), 2, 1)


@pytest.mark.req("P99", "P30")
def test_a_time_that_is_cut(s: Strandline, table: Table) -> None:
    """An append of many events at one time, saved in the middle, page by page."""
    put(s, KEY, *["blue", ""] * 20)
    carry_all(s)
    failing = [15]

    def handle(tx: Any, event: Any) -> None:
        if event.seq_nr == failing[0]:
            raise ValueError("no")
        table.add(tx, event)

    with running(s, Projection("totals", BLUE, handle, save_after=3, page_size=4, retries=0, **QUICK)):
        error_of(s, KEY)
        failing[0] = 0
        until(lambda: caught_up(s))
    assert table.rows() == tagged(s)


@pytest.mark.req("P99", "P33")
def test_a_key_whose_row_was_forgotten_goes_on_by_its_link(s: Strandline, table: Table) -> None:
    put(s, KEY, "blue", "", "blue")
    carry_all(s)
    to_the_end(s, table)
    store = s.open_offsets().store
    row = store.find("totals")
    assert sum(store.forget(row, min(found.position for found in s.projections.status("totals").ranges))) == 1
    store.close()
    put(s, KEY, "", "blue")
    carry_all(s)
    to_the_end(s, table)
    assert table.rows() == tagged(s)
    assert "violations" not in range_of(s, KEY).counts


class Hiding:
    """A store in which a row of a tag is not where its place is, or nowhere."""

    def __init__(self, store: Any, seq_nr: int) -> None:
        self._store, self._seq_nr = store, seq_nr
        self.by_time = self.by_number = True

    def scan(self, scan: Any, *what: Any, **how: Any) -> RowPage:
        rows, more = self._store.scan(scan, *what, **how)
        hidden = {"tag_by_time": self.by_time, "tag_by_number": self.by_number}.get(scan.name, False)
        return RowPage([row for row in rows if not (hidden and row[9] == self._seq_nr)], more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.req("P99", "P35", "RP5")
@pytest.mark.parametrize("on_failure", ["fail", "park"])
def test_a_hole_is_never_skipped(s: Strandline, table: Table, on_failure: str) -> None:
    for _ in range(5):
        put(s, KEY, "blue")
        put(s, OTHER, "blue")
    carry_all(s)
    whole = s.store
    s.store = hiding = Hiding(whole, 3)
    hiding.by_number = True
    settings = {**QUICK, "gap_timeout_s": 0.05, "retries": 0, "on_failure": on_failure}
    with running(s, Projection("totals", BLUE, table.add, **settings)):
        if on_failure == "park":
            until(lambda: len(s.projections.parked("totals")) == 2)
        else:
            assert error_of(s, KEY)["error"] == "MissingEvent"
        assert table.of(KEY) == [1, 2]
        hiding.by_number = False  # found by key, but not at its place
        for key in s.projections.parked("totals"):
            s.projections.unpark("totals", key)
        until(lambda: table.of(KEY) == table.of(OTHER) == [1, 2, 3, 4, 5])
    s.store = whole


@pytest.mark.req("P99", "P65", "P79", "P62")
def test_skip_unpark_and_redeliver_go_by_the_numbers_of_the_tag(s: Strandline, table: Table) -> None:
    put(s, KEY, "", "", "blue", "", "blue", "blue")
    carry_all(s)
    broken = [True]

    def handle(tx: Any, event: Any) -> None:
        if event.seq_nr == 5 and broken[0]:
            raise ValueError("no")
        table.add(tx, event)

    with running(s, Projection("totals", BLUE, handle, retries=0, on_failure="park", **QUICK)):
        until(lambda: s.projections.parked("totals") == [str(KEY)])
        (letter,) = s.projections.dead_letters("totals")
        assert (letter.seq_nr, letter.reason) == (2, "parked")
        with pytest.raises(InvalidInput) as refused:
            s.projections.skip("totals", KEY, 4)
        assert "1..3" in str(refused.value)
        s.projections.skip("totals", KEY, 2)
        until(lambda: {letter.reason for letter in s.projections.dead_letters("totals")} == {"operator"})
        s.projections.unpark("totals", KEY)
        until(lambda: table.of(KEY) == [3, 6])
        broken[0] = False
        s.projections.redeliver("totals", KEY, 2)
        until(lambda: table.of(KEY) == [3, 6, 5])
        assert s.projections.dead_letters("totals") == []


@pytest.mark.req("P99", "P47")
def test_what_an_operator_skipped_fills_its_place(s: Strandline, table: Table) -> None:
    """A filler keeps its number and link, and is handed to nobody."""
    put(s, KEY, "blue", "blue", "blue")
    carry_all(s)
    whole = s.store

    class Filled(Hiding):
        def scan(self, scan: Any, *what: Any, **how: Any) -> RowPage:
            rows, more = whole.scan(scan, *what, **how)
            if scan.name.startswith("tag_by"):
                rows = [(*row[:11], b"", 0) if row[9] == 2 else row for row in rows]
            return RowPage(rows, more)

    s.store = Filled(whole, 2)
    to_the_end(s, table)
    s.store = whole
    assert table.of(KEY) == [1, 3]


@pytest.mark.req("P99", "P45", "P93", "P94")
def test_what_a_tag_does_not_have(s: Strandline, table: Table) -> None:
    put(s, key_in(0, 3), "blue")
    carry_all(s)
    to_the_end(s, table)
    with pytest.raises(InvalidInput) as refused:
        s.projections.rescale("totals", 2)
    assert refused.value.code == "slice_range"
    assert s.projections.rescale("totals", 1)
    with pytest.raises(InvalidInput) as refused:
        Projection("totals", BLUE, print, use_strandline=False)
    assert refused.value.code == "setting"
    with pytest.raises(InvalidInput):
        ByTag("")


@pytest.mark.req("P99")
def test_a_row_that_is_not_what_was_written_stops_it(s: Strandline, table: Table) -> None:
    put(s, KEY, "blue", "blue")
    carry_all(s)
    whole = s.store

    class Broken(Hiding):
        def scan(self, scan: Any, *what: Any, **how: Any) -> RowPage:
            rows, more = whole.scan(scan, *what, **how)
            if scan.name.startswith("tag_by"):
                rows = [(*row[:5], row[5] + 7, *row[6:]) if row[9] == 2 else row for row in rows]
            return RowPage(rows, more)

    s.store = Broken(whole, 2)
    with running(s, Projection("totals", BLUE, table.add, retries=0, **QUICK)):
        assert error_of(s, KEY)["error"] == "Corrupt"
    s.store = whole
    assert table.rows() == []
