"""Steps on Cassandra: images with write times and TTLs, writes with timestamps, and every cell put back once."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from strandline.clock import now_us
from strandline.errors import InvalidGroup, Unsupported
from strandline.group.statements import parse, plan
from strandline.group.statements.binding import Bound
from strandline.group.target import (
    Cells,
    CellTarget,
    Failed,
    Limits,
    NotUndone,
    OnConflict,
    Owner,
    TargetStep,
    Undone,
    Wrote,
)
from strandline.group.targets.cassandra import CassandraTarget
from strandline.servers.cassandra import CassandraServer
from tests.group.target_rooms import put_back
from tests.lanes import needs_servers
from tests.store.keyspaces import RELAXED, settings_for, url_of

pytestmark = [needs_servers, RELAXED]

TABLES = [
    """CREATE TABLE seat (hall text, row int, price int static, guest text, paid boolean, tags set<text>,
       notes frozen<list<text>>, PRIMARY KEY (hall, row))""",
    "CREATE TABLE plain (id text PRIMARY KEY, a int, b text, c blob)",
    "CREATE TABLE hits (id text PRIMARY KEY, n counter)",
    "CREATE TABLE owned (id text PRIMARY KEY, u uuid, d date, n int)",
    "CREATE TABLE listed (id text PRIMARY KEY, notes list<text>)",
]
LOOK = "SELECT row, price, guest, paid, tags, notes FROM seat WHERE hall = :h"


class Hall:
    """A partition of a test's own, and steps on it."""

    def __init__(self, target: CassandraTarget, session: Any) -> None:
        self.target, self.session = target, session
        self.name = uuid4().hex
        self.time = now_us()
        self.wrote: list[Wrote] = []

    def outside(self, text: str, timestamp: int | None = None) -> Any:
        """What another program of the user's does."""
        text = text.replace(":h", f"'{self.name}'")
        return list(self.session.execute(text))

    def work(self, text: str, values: Mapping[str, Any] | None = None) -> TargetStep:
        statement = parse(text, "cassandra")
        made = plan(statement, self.target.tables(statement.tables))
        assert not made.problems, made.problems
        assert not made.obstacles, made.obstacles
        return TargetStep("s", made, {"h": self.name, **(values or {})})

    def later(self) -> int:
        self.time = max(self.time + 2, now_us())
        return self.time

    def image(self, text: str, values: Mapping[str, Any] | None = None) -> tuple[TargetStep, Cells]:
        work = self.work(text, values)
        cells = self.target.image(work)
        assert isinstance(cells, Cells), cells
        return work, cells

    def write(self, text: str, values: Mapping[str, Any] | None = None) -> Wrote:
        work, cells = self.image(text, values)
        assert cells.applies
        self.time = max(self.time, cells.newest)
        wrote = Wrote(work, cells, self.later())
        for _ in range(2):  # an answer may be lost
            assert self.target.write(work, wrote.timestamp) is None
        found = self.target.read_back(wrote)
        assert not isinstance(found, Failed), found
        self.wrote.append(wrote)
        return wrote

    def undo(self, on_conflict: OnConflict = "fail", now: int = 0) -> Undone | NotUndone:
        now = now or now_us()
        found = put_back(self.target, self.wrote, on_conflict, now)
        if isinstance(found, Undone):
            again = put_back(self.target, self.wrote, "keep_current", now)
            assert isinstance(again, Undone)
        return found

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, self.outside(LOOK)), key=repr)

    def ttls(self, column: str) -> list[Any]:
        return [row[0] for row in self.outside(f"SELECT ttl({column}) FROM seat WHERE hall = :h")]


@pytest.fixture(scope="module")
def target(cassandra: CassandraServer) -> Iterator[CassandraTarget]:
    keyspace = f"g{uuid4().hex[:12]}"
    made = CassandraTarget(url_of(cassandra, keyspace), timeout_s=30, settings=settings_for())
    from strandline.backends.cassandra import Session

    maker = Session(url_of(cassandra, keyspace), 30)
    maker.alter(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    for text in TABLES:
        maker.alter(text.replace("CREATE TABLE ", f"CREATE TABLE {keyspace}."))
    yield made
    made.close()
    maker.alter(f"DROP KEYSPACE {keyspace}")
    maker.close()


@pytest.fixture
def hall(target: CassandraTarget) -> Hall:
    session = target._session.opened()
    made = Hall(target, session)
    made.outside(
        "INSERT INTO seat (hall, row, guest, paid, tags, notes) VALUES (:h, 1, 'anna', true, {'x', 'y'}, ['n'])"
    )
    made.outside("INSERT INTO seat (hall, row) VALUES (:h, 2)")
    made.outside("UPDATE seat SET price = 50 WHERE hall = :h")
    return made


def test_it_is_a_target(target: CassandraTarget) -> None:
    assert isinstance(target, CellTarget)


CHANGES = [
    "INSERT INTO seat (hall, row, guest) VALUES (:h, 9, 'new')",
    "INSERT INTO seat (hall, row, guest, paid) VALUES (:h, 1, 'over', null)",
    "INSERT INTO seat (hall, row, tags) VALUES (:h, 2, {'only'})",
    "INSERT INTO seat (hall, price) VALUES (:h, 77)",
    "INSERT INTO seat (hall, row, price, guest) VALUES (:h, 9, 77, 'both')",
    "UPDATE seat SET guest = 'bert' WHERE hall = :h AND row = 1",
    "UPDATE seat SET guest = 'bert' WHERE hall = :h AND row IN :rows",
    "UPDATE seat SET guest = 'ghost' WHERE hall = :h AND row = 8",
    "UPDATE seat SET guest = null, paid = false WHERE hall = :h AND row = 1",
    "UPDATE seat SET price = 1 WHERE hall = :h",
    "UPDATE seat SET tags = tags + {'z'} WHERE hall = :h AND row = 1",
    "UPDATE seat SET tags = tags - {'x'} WHERE hall = :h AND row = 1",
    "UPDATE seat USING TTL 500 SET guest = 'soon' WHERE hall = :h AND row = 1",
    "DELETE FROM seat WHERE hall = :h AND row = 1",
    "DELETE FROM seat WHERE hall = :h AND row = 2",
    "DELETE FROM seat WHERE hall = :h AND row >= 1 AND row < 5",
    "DELETE FROM seat WHERE hall = :h",
    "DELETE guest, notes FROM seat WHERE hall = :h AND row = 1",
    "DELETE price FROM seat WHERE hall = :h",
    "DELETE tags['x'] FROM seat WHERE hall = :h AND row = 1",
]


@pytest.mark.req("G39", "G50", "G51", "G53", "S26", "S27", "S28", "RG2")
@pytest.mark.parametrize("text", CHANGES)
def test_a_change_is_undone_as_if_it_had_never_been(hall: Hall, text: str) -> None:
    before = hall.rows()
    hall.write(text, {"rows": [1, 7]})
    assert hall.rows() != before or "row = 2" in text
    assert isinstance(hall.undo(), Undone)
    assert hall.rows() == before
    assert set(hall.ttls("guest")) == {None}


@pytest.mark.req("G51", "S31", "RG2")
def test_a_group_of_several_writes_leaves_no_trace(hall: Hall) -> None:
    before = hall.rows()
    for text in (
        "INSERT INTO seat (hall, row, guest) VALUES (:h, 5, 'five')",
        "UPDATE seat SET guest = 'v', paid = true WHERE hall = :h AND row = 5",
        "DELETE FROM seat WHERE hall = :h AND row = 5",
        "UPDATE seat SET guest = 'again' WHERE hall = :h AND row = 1",
        "UPDATE seat SET guest = 'and again', price = 3 WHERE hall = :h AND row = 1",
        "DELETE FROM seat WHERE hall = :h",
        "INSERT INTO seat (hall, row, guest) VALUES (:h, 1, 'back')",
    ):
        hall.write(text)
    assert isinstance(hall.undo(), Undone)
    assert hall.rows() == before


@pytest.mark.req("G51", "RG2")
@pytest.mark.parametrize("text", ["DELETE FROM seat WHERE hall = :h", "DELETE FROM seat WHERE hall = :h AND row > 0",
                                  "DELETE FROM seat WHERE hall = :h AND row = 1",
                                  "DELETE guest, paid, tags, notes FROM seat WHERE hall = :h AND row = 1"])  # fmt: skip
def test_what_is_removed_twice_is_put_back_above_both(hall: Hall, text: str) -> None:
    """The second removal finds nothing, and is the later one."""
    before = hall.rows()
    hall.write("DELETE FROM seat WHERE hall = :h")
    hall.write(text)
    assert isinstance(hall.undo(), Undone)
    assert hall.rows() == before


@pytest.mark.req("G51", "S29", "RG2")
def test_what_remained_of_a_life_is_given_back(hall: Hall) -> None:
    hall.outside("UPDATE seat USING TTL 1000 SET guest = 'brief' WHERE hall = :h AND row = 1")
    hall.write("UPDATE seat SET guest = 'for ever' WHERE hall = :h AND row = 1")
    later = now_us() + 600 * 10**6
    assert isinstance(hall.undo(now=later), Undone)
    left = [ttl for ttl in hall.ttls("guest") if ttl is not None]
    assert len(left) == 1
    assert 380 <= left[0] <= 400
    assert hall.rows()[0][2] == "brief"


@pytest.mark.req("G51", "S29", "RG2")
def test_what_expired_meanwhile_is_not_given_back(hall: Hall) -> None:
    hall.outside("UPDATE seat USING TTL 1000 SET guest = 'brief' WHERE hall = :h AND row = 1")
    hall.write("UPDATE seat SET guest = 'for ever' WHERE hall = :h AND row = 1")
    assert isinstance(put_back(hall.target, hall.wrote, "fail", now_us() + 1001 * 10**6), Undone)
    assert hall.rows()[0][2] is None


@pytest.mark.req("G51", "S29")
def test_a_row_that_would_have_expired_is_not_kept_by_the_groups_insert(hall: Hall) -> None:
    hall.outside("UPDATE seat USING TTL 1000 SET guest = 'brief' WHERE hall = :h AND row = 6")
    hall.write("INSERT INTO seat (hall, row, guest) VALUES (:h, 6, 'over')")
    later = now_us() + 1001 * 10**6
    assert isinstance(put_back(hall.target, hall.wrote, "fail", later), Undone)
    assert [row[0] for row in hall.rows()] == [1, 2], "no marker of the row is left"


@pytest.mark.req("G53", "S34", "RG2")
@pytest.mark.parametrize(
    ("on_conflict", "guest"), [("fail", "theirs"), ("keep_current", "theirs"), ("overwrite", "anna")]
)
def test_who_wrote_the_same_cell_later(hall: Hall, on_conflict: Any, guest: str) -> None:
    hall.write("UPDATE seat SET guest = 'ours', paid = false WHERE hall = :h AND row = 1")
    hall.outside(f"UPDATE seat USING TIMESTAMP {hall.time + 1000} SET guest = 'theirs' WHERE hall = :h AND row = 1")
    found = hall.undo(on_conflict=on_conflict)
    row = hall.rows()[0]
    if on_conflict == "fail":
        assert isinstance(found, NotUndone)
        assert len(found.conflicts) == 1
        assert (row[2], row[3]) == ("theirs", False)
        assert isinstance(hall.undo("overwrite"), Undone)
        assert hall.rows()[0][2:4] == ("anna", True)
    else:
        assert isinstance(found, Undone)
        assert (row[2], row[3]) == (guest, True)


@pytest.mark.req("G53", "S34")
def test_columns_of_others_survive(hall: Hall) -> None:
    hall.write("UPDATE seat SET guest = 'ours' WHERE hall = :h AND row = 1")
    hall.outside("UPDATE seat SET paid = false, price = 9 WHERE hall = :h AND row = 1")
    assert isinstance(hall.undo(), Undone)
    assert hall.rows()[0][:4] == (1, 9, "anna", False)


@pytest.mark.req("G53", "G5", "S35")
def test_a_foreign_cell_is_seen_when_it_is_read_back(hall: Hall) -> None:
    work, cells = hall.image("UPDATE seat SET guest = 'ours' WHERE hall = :h AND row = 1")
    wrote = Wrote(work, cells, hall.later())
    hall.outside(f"UPDATE seat USING TIMESTAMP {hall.time + 500} SET guest = 'theirs' WHERE hall = :h AND row = 1")
    assert hall.target.write(work, wrote.timestamp) is None
    found = hall.target.read_back(wrote)
    assert isinstance(found, Failed)
    assert found.reason == "foreign_write"


@pytest.mark.req("G53", "G5", "S35")
@pytest.mark.parametrize("removal", ["DELETE guest FROM", "DELETE FROM"])
@pytest.mark.parametrize(
    "text",
    [
        "UPDATE seat SET guest = 'ours' WHERE hall = :h AND row = 1",
        "UPDATE seat SET guest = :t WHERE hall = :h AND row IN :rows",
        "INSERT INTO seat (hall, row, guest) VALUES (:h, 1, :t)",
    ],
)
def test_a_removal_ahead_of_the_write_is_seen_when_it_is_read_back(hall: Hall, text: str, removal: str) -> None:
    """It leaves nothing to be seen before the write, and nothing after it."""
    ahead = now_us() + 3_600_000_000
    hall.outside(f"{removal} seat USING TIMESTAMP {ahead} WHERE hall = :h AND row = 1")
    work, cells = hall.image(text, {"t": "ours", "rows": [1, 2]})
    wrote = Wrote(work, cells, hall.later())
    assert hall.target.write(work, wrote.timestamp) is None
    found = hall.target.read_back(wrote)
    assert isinstance(found, Failed)
    assert found.reason == "not_applied"
    hall.write("UPDATE seat SET guest = :t, paid = null WHERE hall = :h AND row = 1", {"t": None})


@pytest.mark.req("G54", "S35")
def test_to_append_to_a_list_is_refused(hall: Hall) -> None:
    """Sent twice, it would be there twice."""
    statement = parse("UPDATE listed SET notes = notes + ['x'] WHERE id = 'a'", "cassandra")
    assert plan(statement, hall.target.tables(statement.tables)).obstacles


@pytest.mark.req("G5", "G40")
@pytest.mark.parametrize(
    ("text", "applies"),
    [
        ("INSERT INTO seat (hall, row) VALUES (:h, 1) IF NOT EXISTS", False),
        ("INSERT INTO seat (hall, row) VALUES (:h, 3) IF NOT EXISTS", True),
        ("UPDATE seat SET paid = false WHERE hall = :h AND row = 1 IF EXISTS", True),
        ("UPDATE seat SET paid = false WHERE hall = :h AND row = 9 IF EXISTS", False),
        ("UPDATE seat SET paid = false WHERE hall = :h AND row = 1 IF guest = 'anna' AND paid = true", True),
        ("UPDATE seat SET paid = false WHERE hall = :h AND row = 1 IF guest = :who", False),
        ("DELETE FROM seat WHERE hall = :h AND row = 2 IF guest = null", True),
        ("UPDATE seat SET paid = false WHERE hall = :h AND row = 9 IF guest = null", True),
        ("UPDATE seat SET paid = false WHERE hall = :h AND row = 9 IF guest = null AND paid = true", False),
        ("UPDATE seat SET paid = false WHERE hall = :h AND row = 9 IF guest = 'x'", False),
        ("UPDATE seat SET paid = false WHERE hall = :h AND row = 9 IF guest != 'x'", True),
        ("UPDATE seat SET paid = false WHERE hall = :h AND row = 9 IF guest IN ('x')", False),
    ],
)
def test_a_condition_is_decided_on_the_image_as_the_server_would(hall: Hall, text: str, applies: bool) -> None:
    _, cells = hall.image(text, {"who": "bert"})
    assert cells.applies == applies
    (told,) = hall.outside(text.replace(":who", "'bert'"))
    assert told[0] == applies


@pytest.mark.req("G40")
@pytest.mark.parametrize("wanted", ["u = :u", "u = 00000000-0000-0000-0000-00000000000a", "d < :d AND n IN (7, :n)"])
def test_a_condition_compares_values_as_they_are_stored(hall: Hall, wanted: str) -> None:
    insert = "INSERT INTO owned (id, u, d, n) VALUES (:h, 00000000-0000-0000-0000-00000000000a, '2024-01-01', 8)"
    hall.outside(insert)
    values = {"u": str(UUID(int=10)), "d": dt.date(2024, 1, 2), "n": 8}
    _, cells = hall.image(f"UPDATE owned SET n = 9 WHERE id = :h IF {wanted}", values)
    assert cells.applies


@pytest.mark.req("G39")
def test_affected_rows_are_those_of_the_image(hall: Hall) -> None:
    _, cells = hall.image("UPDATE seat SET guest = 'x' WHERE hall = :h AND row IN :rows", {"rows": [1, 2, 9]})
    assert len(cells.image.rows) == 2
    assert len(cells.keys) == 3


@pytest.mark.req("G5", "G35", "G56", "S32")
def test_what_cannot_be_bound_or_is_too_large_is_found_before_the_write(hall: Hall) -> None:
    for text, values, limits, reason in (
        ("UPDATE seat SET guest = 'x' WHERE hall = :h AND row = :row", {"row": "one"}, Limits(), "binding"),
        ("UPDATE seat SET guest = 'x' WHERE hall = :h AND row = :row", {}, Limits(), "binding"),
        ("DELETE FROM seat WHERE hall = :h", {}, Limits(rows_max=1), "too_large"),
    ):
        found = hall.target.image(hall.work(text, values)._replace(limits=limits))
        assert isinstance(found, Failed), text
        assert found.reason == reason


@pytest.mark.req("G30", "G17")
def test_a_query_gives_rows_with_names(hall: Hall) -> None:
    made = plan(parse("SELECT row, guest FROM seat WHERE hall = :h", "cassandra"), hall.target.tables(["seat"]))
    found = hall.target.query(made, {"h": hall.name}, Limits())
    assert not isinstance(found, Failed)
    assert found.columns == ("row", "guest")
    assert found.rows == ((1, "anna"), (2, None))
    count = plan(parse("SELECT COUNT(*) FROM seat WHERE hall = :h", "cassandra"), hall.target.tables(["seat"]))
    counted = hall.target.query(count, {"h": hall.name}, Limits())
    assert not isinstance(counted, Failed)
    assert (counted.columns, counted.rows) == (("count",), ((2,),))
    wrong = plan(parse("SELECT nothing FROM seat WHERE hall = :h", "cassandra"), hall.target.tables(["seat"]))
    assert isinstance(hall.target.query(wrong, {"h": hall.name}, Limits()), Failed)


@pytest.mark.req("G54", "G85", "S30")
def test_the_schema_is_read_from_the_server(target: CassandraTarget) -> None:
    found = target.tables(["seat", "hits", "nobody"])
    assert set(found) == {"seat", "hits"}
    assert found["seat"].key == ("hall", "row")
    assert found["seat"].partition == ("hall",)
    assert found["hits"].what == "counter"
    made = plan(parse("UPDATE hits SET n = n + 1 WHERE id = 'a'", "cassandra"), found)
    assert [problem.code for problem in made.problems] == ["table_unsafe"]


@pytest.mark.req("G91")
def test_a_keyspace_that_a_lost_disk_would_lose_is_refused(target: CassandraTarget, cassandra: CassandraServer) -> None:
    """As one of a store is; it can be accepted."""
    keyspace, session = f"g{uuid4().hex[:12]}", target._session.opened()
    session.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
    )
    careful = CassandraTarget(url_of(cassandra, keyspace), timeout_s=30)
    with pytest.raises(Unsupported) as caught:
        careful.own("history", "default", shared=False)
    assert caught.value.name == "Unsupported.cassandra_unsafe"
    assert not careful.tables([f"{keyspace}.strandline_target"]), "before anything is made there"
    careful.close()
    relaxed = CassandraTarget(url_of(cassandra, keyspace), timeout_s=30, settings=settings_for())
    with pytest.warns(RuntimeWarning, match="accept_power_loss is on"):
        relaxed.own("history", "default", shared=False)
    relaxed.close()
    session.execute(f"DROP KEYSPACE {keyspace}")


@pytest.mark.req("G89")
def test_a_keyspace_belongs_to_one_stream(target: CassandraTarget) -> None:
    first = target.own("history", "default", shared=False)
    assert target.own("history", "default", shared=False) == first
    with pytest.raises(InvalidGroup) as caught:
        target.own("history", "other", shared=False)
    assert caught.value.name == "InvalidGroup.target_taken"
    shared = target.own("history", "other", shared=True)
    assert shared.identity == first.identity
    assert target.own("history", "other", shared=False) == shared, "it has its row already"
    target.sent(Bound("DELETE FROM strandline_target WHERE place = 'sole'", ()), Limits())
    with pytest.raises(InvalidGroup):  # all others are shared ones
        target.own("history", "alone", shared=False)
    assert {row[2:4] for row in target._rows("target_owners")} == {("history", "other")}


@pytest.mark.req("G89")
@pytest.mark.parametrize("shared", [True, False])
def test_of_two_streams_that_come_at_once_one_is_first(
    target: CassandraTarget, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one looked before the first had its row."""
    target.own("history", "first", shared=True)
    target.sent(Bound("TRUNCATE strandline_target", ()), Limits())
    found, first = target._rows, list[Owner]()

    def raced(name: str, values: Sequence[Any] = ()) -> Any:
        rows = found(name, values)
        if name == "target_owners" and not first:
            first.append(None)  # type: ignore[arg-type]
            first[:] = [target.own("history", "first", shared=True)]
        return rows

    monkeypatch.setattr(target, "_rows", raced)
    if shared:
        assert target.own("history", "second", shared=True).identity == first[0].identity
    else:
        with pytest.raises(InvalidGroup) as caught:
            target.own("history", "second", shared=False)
        assert caught.value.name == "InvalidGroup.target_taken"
    assert len(found("target_owners")) == 1 + shared
    target.sent(Bound("TRUNCATE strandline_target", ()), Limits())


@pytest.mark.req("G91", "U10")
def test_nodes_before_5_are_refused(cassandra: CassandraServer, monkeypatch: pytest.MonkeyPatch) -> None:
    keyspace = f"g{uuid4().hex[:12]}"
    made = CassandraTarget(url_of(cassandra, keyspace), timeout_s=30, settings=settings_for())
    monkeypatch.setattr(made._session, "on_every_node", lambda name, package: [("10.0.0.1", [("4.1.9", "dc1")])])
    with pytest.raises(Unsupported, match=r"is Cassandra 4\.1\.9; needed: 5\.0 or newer") as caught:
        made.own("history", "default", shared=False)
    assert caught.value.name == "Unsupported.cassandra_unsafe"


@pytest.mark.req("G51", "G53", "RG2")
def test_random_groups_with_later_writes_of_others(hall: Hall) -> None:
    """What others write later stays; all else is as if the group had never been."""
    rng = random.Random(7)
    writes = [
        "UPDATE plain SET a = :n WHERE id = :id",
        "UPDATE plain USING TTL 5000 SET b = :t WHERE id = :id",
        "INSERT INTO plain (id, a, c) VALUES (:id, :n, 0x01)",
        "INSERT INTO plain (id) VALUES (:id)",
        "DELETE FROM plain WHERE id = :id",
        "DELETE b FROM plain WHERE id = :id",
        "UPDATE plain SET a = null, b = 'z' WHERE id = :id",
    ]
    for _ in range(12):
        name, hall.wrote = uuid4().hex, []
        start = [
            rng.choice(["UPDATE plain SET b = 'first' WHERE id = '{}'", "INSERT INTO plain (id, a) VALUES ('{}', 5)"])
        ]
        for text in start * rng.randint(0, 1):
            hall.outside(text.format(name))
        look = f"SELECT * FROM plain WHERE id = '{name}'"
        expected = list(map(tuple, hall.outside(look)))
        for _ in range(rng.randint(1, 4)):
            hall.write(rng.choice(writes), {"id": name, "n": rng.randint(0, 9), "t": rng.choice("xyz")})
        if rng.random() < 0.5:
            hall.outside(f"UPDATE plain USING TIMESTAMP {hall.time + 10} SET c = 0xff WHERE id = '{name}'")
            row = expected[0] if expected else (name, None, None, None)
            expected = [(*row[:3], b"\xff")]
        assert isinstance(hall.undo(on_conflict="keep_current"), Undone)
        assert list(map(tuple, hall.outside(look))) == expected
