"""Groups on a target without transactions: committed, or every cell is as before; resumed from their intents."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import strandline
from strandline.backends.cassandra import Session
from strandline.group.checks import affected_rows_equal
from strandline.group.core.encoding import Opaque
from strandline.group.core.parts import Dep
from strandline.group.definition import Group
from strandline.group.open_targets import Target
from strandline.servers.cassandra import CassandraServer
from tests.lanes import needs_servers
from tests.store.keyspaces import RELAXED, url_of

pytestmark = [needs_servers, RELAXED]


class Theatre:
    """A keyspace of the user's, looked at and changed from outside."""

    def __init__(self, server: CassandraServer) -> None:
        self.keyspace = f"g{uuid4().hex[:12]}"
        self.url = f"{server.url}/{self.keyspace}"
        self._session = Session(url_of(server, self.keyspace), 30)
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        self._session.alter(f"CREATE KEYSPACE {self.keyspace} WITH replication = {replication}")
        columns = "hall text, row int, guest text, paid boolean, PRIMARY KEY (hall, row)"
        self._session.alter(f"CREATE TABLE {self.keyspace}.seat ({columns})")

    def fill(self, hall: str) -> None:
        into = f"INSERT INTO {self.keyspace}.seat (hall, row, guest) VALUES"
        self._session.change(f"{into} (?, 1, 'anna')", (hall,))
        self._session.change(f"{into} (?, 2, 'bert')", (hall,))

    def seats(self, hall: str) -> list[Any]:
        text = f"SELECT row, guest, paid FROM {self.keyspace}.seat WHERE hall = '{hall}'"
        return [tuple(row) for row in self._session.each_row(text)]

    def write(self, text: str) -> None:
        self._session.change(text.replace("seat", f"{self.keyspace}.seat", 1), ())

    def alter(self, text: str) -> None:
        self._session.alter(text)

    def change(self, text: str) -> None:
        self._session.change(text, ())

    def table(self, name: str) -> None:
        self._session.alter(f"CREATE TABLE {self.keyspace}.{name} (id int PRIMARY KEY)")
        self._session.change(f"INSERT INTO {self.keyspace}.{name} (id) VALUES (1)", ())

    def count(self, name: str) -> int:
        return int(next(self._session.each_row(f"SELECT count(*) FROM {self.keyspace}.{name}"))[0])

    def close(self) -> None:
        self._session.alter(f"DROP KEYSPACE {self.keyspace}")
        self._session.close()


@pytest.fixture(scope="module")
def theatre(cassandra: CassandraServer) -> Iterator[Theatre]:
    made = Theatre(cassandra)
    yield made
    made.close()


@pytest.fixture
def hall(theatre: Theatre) -> str:
    name = uuid4().hex
    theatre.fill(name)
    return name


BEFORE = [(1, "anna", None), (2, "bert", None)]
AFTER = [(1, "dora", True), (5, "emil", None)]


def group(id_: str, hall: str, count: int) -> Group:
    """An update, an insert, a deletion; then the rows are counted."""
    g, values = Group(id_), {"h": hall}
    g.update(
        "move", "UPDATE seat SET guest = 'dora', paid = true WHERE hall = :h AND row = 1", values, target="shop",
        checks=[affected_rows_equal(1)],
    )  # fmt: skip
    g.insert(
        "come", "INSERT INTO seat (hall, row, guest) VALUES (:h, 5, 'emil')", values, target="shop", depends_on=["move"]
    )
    g.delete("go", "DELETE FROM seat WHERE hall = :h AND row = 2", values, target="shop", depends_on=["come"])
    g.query(
        "count", "SELECT COUNT(*) FROM seat WHERE hall = :h", values, target="shop", depends_on=["go"],
        success=f"count = {count}",
    )  # fmt: skip
    return g


def groups_of(s: strandline.Strandline, url: str) -> Any:
    return s.groups(targets={"shop": Target(url, shared=True)}, lease_s=2)


@pytest.mark.req("G36", "G38", "G39", "G41", "G48", "S15", "RG1", "RG2")
@pytest.mark.parametrize(("count", "end", "left"), [(2, "committed", AFTER), (3, "rolled_back", BEFORE)])
def test_a_group_is_committed_or_leaves_every_cell_as_before(
    theatre: Theatre, hall: str, tmp_path: Path, count: int, end: str, left: list[Any]
) -> None:
    with strandline.connect(f"sqlite:{tmp_path / hall[:8]}", accept_power_loss=True) as s:
        groups = groups_of(s, theatre.url)
        handle = groups.submit(group(hall, hall, count))
        groups.processor().run_until_idle()
        outcome = handle.wait(timeout_s=30)
        assert outcome.state == end, outcome
        assert theatre.seats(hall) == left
        types = [type_ for type_, _, _ in groups.history(hall)]
        first = types.index("Intent")
        assert types[first : first + 2] == ["Intent", "Result"], types


@pytest.mark.req("G39", "S22", "RG2")
def test_a_row_that_was_not_there_was_not_affected_and_is_gone_again(theatre: Theatre, hall: str) -> None:
    g = Group(hall)
    g.update(
        "ghost", "UPDATE seat SET guest = 'x' WHERE hall = :h AND row = 7", {"h": hall}, target="shop",
        checks=[affected_rows_equal(1)],
    )  # fmt: skip
    with strandline.connect("memory:", accept_power_loss=True) as s:
        groups = groups_of(s, theatre.url)
        outcome = _run(groups, g)
    assert (outcome.state, outcome.reason) == ("rolled_back", "check_false")
    assert theatre.seats(hall) == BEFORE


@pytest.mark.req("G5", "G40", "S26")
def test_a_condition_that_does_not_hold_fails_with_nothing_to_undo(theatre: Theatre, hall: str) -> None:
    g = Group(hall)
    g.insert(
        "seat", "INSERT INTO seat (hall, row) VALUES (:h, 1) IF NOT EXISTS", {"h": hall}, target="shop"
    )  # fmt: skip
    with strandline.connect("memory:", accept_power_loss=True) as s:
        outcome = _run(groups_of(s, theatre.url), g)
    assert (outcome.state, outcome.reason) == ("aborted", "not_applied")
    assert theatre.seats(hall) == BEFORE


@pytest.mark.req("G45", "G54", "S46")
def test_what_cannot_be_undone_runs_last_and_once(theatre: Theatre, hall: str) -> None:
    theatre.table(f"gone_{hall[:8]}")
    g = Group(hall)
    g.update("seat", "UPDATE seat SET guest = 'x' WHERE hall = :h AND row = 1", {"h": hall}, target="shop")
    g.statement("gone", f"TRUNCATE gone_{hall[:8]}", target="shop", irreversible=True)
    with strandline.connect("memory:", accept_power_loss=True) as s:
        outcome = _run(groups_of(s, theatre.url), g)
    assert outcome.state == "committed", outcome
    assert theatre.seats(hall)[0] == (1, "x", None)
    assert theatre.count(f"gone_{hall[:8]}") == 0


def _run(groups: Any, g: Group) -> Any:
    groups.submit(g)
    groups.processor().run_until_idle()
    return groups.get(g.id)


EVERY = {
    "text_set": ("set<text>", "{'b', 'a'}", {"a", "b"}), "int_list": ("frozen<list<int>>", "[2, 1]", [2, 1]),
    "by_text": ("map<text, int>", "{'a': 1}", {"a": 1}), "by_int": ("map<int, text>", "{1: 'a'}", {1: "a"}),
    "pairs": ("set<frozen<tuple<int, int>>>", "{(1, 2)}", {(1, 2)}),
    "lists": ("set<frozen<list<int>>>", "{[1]}", [[1]]),
    "day": ("date", "'2024-02-29'", dt.date(2024, 2, 29)),
    "far_day": ("date", str(2**31 + 6585442), Opaque("date", "6585442")),
    "clock": ("time", "'12:00:00.000001'", dt.time(12, 0, 0, 1)),
    "long": ("duration", "1mo2d", Opaque("duration", "1mo2d0ns")),
    "finer": ("time", "'12:00:00.000000001'", Opaque("time", "12:00:00.000000001")),
    "number": ("decimal", "1.10", Decimal("1.10")), "large": ("varint", str(2**70), 2**70),
    "bytes": ("blob", "0x00ff", b"\0\xff"),
}  # fmt: skip
COPIED = {"day": "far_day", "finer": "finer", "long": "long", "pairs": "pairs"}


@pytest.mark.req("G16", "G82")
def test_a_query_may_return_values_of_every_type(theatre: Theatre, tmp_path: Path) -> None:
    columns = ", ".join(f"{name} {type_}" for name, (type_, _, _) in EVERY.items())
    theatre.alter(f"CREATE TABLE {theatre.keyspace}.every (id int PRIMARY KEY, {columns})")
    values = ", ".join(literal for _, literal, _ in EVERY.values())
    theatre.change(f"INSERT INTO {theatre.keyspace}.every (id, {', '.join(EVERY)}) VALUES (1, {values})")
    with strandline.connect(f"sqlite:{tmp_path / 'j'}", accept_power_loss=True) as s:
        groups = groups_of(s, theatre.url)
        g = Group("every")
        g.query("look", f"SELECT {', '.join(EVERY)} FROM every WHERE id = 1", target="shop")
        text = "INSERT INTO every (id, far_day, finer, long, pairs) VALUES (2, :day, :finer, :long, :pairs)"
        g.insert("copy", text, {name: EVERY[of][2] for name, of in COPIED.items()}, target="shop")
        g.query(
            "again", "SELECT far_day, finer, long, pairs FROM every WHERE id = 2", target="shop", depends_on=["copy"]
        )
        g.empty("last", depends_on=[Dep("look", "identity"), Dep("again", "identity")])
        groups.submit(g)
        groups.processor().run_until_idle()
        outcome = groups.get("every")
    assert outcome.state == "committed", outcome
    (found,), (copied,) = (outcome.steps[step].results["identity"]["rows"] for step in ("look", "again"))
    assert found == {name: value for name, (_, _, value) in EVERY.items()}
    assert copied == {of: EVERY[of][2] for of in COPIED.values()}
