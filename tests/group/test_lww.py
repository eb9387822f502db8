"""Groups on a target without transactions, in memory: random histories against the same ones without the group."""

from __future__ import annotations

import random
import subprocess
import sys
from functools import cache
from typing import Any
from uuid import uuid4

import pytest

import strandline
from strandline.clock import now_us
from strandline.errors import InvalidGroup
from strandline.group.checks import is_true
from strandline.group.core.parts import Recipe
from strandline.group.definition import Group
from strandline.group.statements import parse, plan
from strandline.group.target import Cells, CellTarget, Failed, NotUndone, TargetStep, Undone, Wrote
from strandline.testing.clock import FakeClock
from strandline.testing.lww import LwwTarget, lww
from tests.group.target_rooms import put_back
from tests.repeats import repeats

TABLE = "CREATE TABLE seat (hall text, row int, price int static, guest text, n int, c blob, PRIMARY KEY (hall, row))"
SECOND = 10**6
WRITES = [
    "UPDATE seat SET guest = :t WHERE hall = :h AND row = :r",
    "UPDATE seat SET guest = :t, n = :n WHERE hall = :h AND row IN :rs",
    "UPDATE seat SET guest = null, c = 0x01 WHERE hall = :h AND row = :r",
    "UPDATE seat USING TTL 1500 SET n = :n WHERE hall = :h AND row = :r",
    "UPDATE seat USING TTL 3500 SET guest = :t, n = :n WHERE hall = :h AND row = :r",
    "UPDATE seat SET price = :n WHERE hall = :h",
    "INSERT INTO seat (hall, row, guest) VALUES (:h, :r, :t)",
    "INSERT INTO seat (hall, row, n, c, price) VALUES (:h, :r, :n, 0xff, :n)",
    "INSERT INTO seat (hall, row, n) VALUES (:h, :r, null)",
    "INSERT INTO seat (hall, row, guest, n) VALUES (:h, :r, :t, :n) USING TTL 2500",
    "DELETE FROM seat WHERE hall = :h AND row = :r",
    "DELETE FROM seat WHERE hall = :h AND row >= :r AND row < 3",
    "DELETE FROM seat WHERE hall = :h AND row IN (:r, 3)",
    "DELETE FROM seat WHERE hall = :h",
    "DELETE guest, n FROM seat WHERE hall = :h AND row = :r",
    "DELETE price FROM seat WHERE hall = :h",
]


class Told:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = now_us() // SECOND * SECOND

    def __call__(self) -> int:
        return self.now


def values(rng: random.Random) -> dict[str, Any]:
    rows = rng.sample([1, 2, 3], rng.randint(0, 3))
    return {"h": "h", "r": rng.choice([1, 2, 3]), "rs": rows, "t": rng.choice("xyz"), "n": rng.randint(0, 9)}


@cache
def planned(text: str) -> Any:
    target = LwwTarget("plans")
    target.create(TABLE)
    statement = parse(text, "cassandra")
    return plan(statement, target.tables(statement.tables))


def work(text: str, given: dict[str, Any]) -> TargetStep:
    made = planned(text)
    assert not made.problems, made.problems
    assert not made.obstacles, made.obstacles
    return TargetStep("s", made, given)


def written(target: LwwTarget, text: str, given: dict[str, Any], time: int) -> Wrote:
    """As the processor does it; `time` is above all that is there."""
    made = work(text, given)
    cells = target.image(made)
    assert isinstance(cells, Cells), cells
    wrote = Wrote(made, cells, time)
    for _ in range(2):  # an answer may be lost
        assert target.write(made, time) is None
    return wrote


def seen(target: LwwTarget) -> Any:
    """What a reader sees: columns of rows, and static ones. That a row without columns is there is not restored."""
    rows = target.execute("SELECT row, guest, n, c FROM seat WHERE hall = 'h'")
    price = {row[0] for row in target.execute("SELECT price FROM seat WHERE hall = 'h'")}
    return [row for row in rows if row[0] is not None and any(value is not None for value in row[1:])], price - {None}


def differences(seed: int) -> str | None:
    """One history with a group that is undone, and the same one without it."""
    rng, clock = random.Random(seed), Told()
    ours, model = LwwTarget("ours", clock=clock), LwwTarget("model", clock=clock)
    told: list[Any] = []

    def outside(*targets: LwwTarget) -> None:
        text, given = rng.choice(WRITES), values(rng)
        told.append((clock.now, "outside", text, given))
        for target in targets:
            written(target, text, given, clock.now)
        clock.now += rng.choice([10, 1000 * SECOND])

    for target in (ours, model):
        target.create(TABLE)
    for _ in range(rng.randint(0, 4)):
        outside(ours, model)
    wrote = []
    for _ in range(rng.randint(1, 4)):
        text, given = rng.choice(WRITES), values(rng)
        told.append((clock.now, "group", text, given))
        wrote.append(written(ours, text, given, clock.now))
        assert not isinstance(ours.read_back(wrote[-1]), Failed)
        clock.now += rng.choice([2, 1000 * SECOND])
    for _ in range(rng.randint(0, 2)):
        outside(ours, model)
    for _ in range(rng.randint(1, 2)):
        found = put_back(ours, wrote, "keep_current", clock.now)
        assert isinstance(found, Undone), found
    for _ in range(3):
        if seen(ours) != seen(model):
            lines = "\n".join(map(str, told))
            return f"seed {seed}: {seen(ours)} is there, {seen(model)} without the group:\n{lines}"
        clock.now += 1000 * SECOND
    return None


@pytest.mark.req("G50", "G51", "G52", "G53", "S36", "RG2", "RG6")
@repeats(500, 60_000)
def test_random_histories_with_later_writes_of_others(times: int) -> None:
    """What others write later stays; all else is as if the group had never been."""
    assert [found for found in map(differences, range(times)) if found] == []


@pytest.mark.req("G47", "G53", "S34")
@pytest.mark.parametrize(
    ("text", "left"), [(WRITES[0], [(1, None, 5)]), ("INSERT INTO seat (hall, row, guest) VALUES (:h, :r, :t)", [])]
)
def test_a_row_that_a_step_made_goes_also_where_others_wrote_in_it(text: str, left: list[Any]) -> None:
    """Of a row that an UPDATE made what others wrote in other columns stays; an INSERT's was not there as a whole."""
    clock = Told()
    target = LwwTarget("made", clock=clock)
    target.create(TABLE)
    wrote = written(target, text, {"h": "h", "r": 1, "t": "x"}, clock.now)
    clock.now += SECOND
    target.execute("UPDATE seat SET guest = 'theirs', n = 5 WHERE hall = 'h' AND row = 1")
    for _ in range(2):
        assert isinstance(put_back(target, [wrote], "overwrite", clock.now), Undone)
        assert target.execute("SELECT row, guest, n FROM seat WHERE hall = 'h'") == left


@pytest.mark.req("G40")
@pytest.mark.parametrize(
    ("condition", "applies"), [("guest = null", True), ("guest = 'x'", False), ("guest != 'x'", True), ("n = 1", False)]
)
def test_a_condition_on_a_row_that_is_not_there(condition: str, applies: bool) -> None:
    target = LwwTarget("absent")
    target.create(TABLE)
    cells = target.image(work(f"UPDATE seat SET c = 0x01 WHERE hall = 'h' AND row = 1 IF {condition}", {}))
    assert isinstance(cells, Cells)
    assert cells.applies == applies


@pytest.mark.req("G54", "G76")
@pytest.mark.parametrize(
    ("gc_grace_s", "keep_s", "fine"), [(700_000, 604_800, True), (700_000, 800_000, False), (7200, 3600, True)]
)
def test_removals_are_remembered_for_as_long_as_a_statement_may_be_late(
    gc_grace_s: int, keep_s: int, fine: bool
) -> None:
    target = lww("keeping" + str(uuid4()))
    target.create(TABLE)
    target.keyspace.tables["seat"] = target.keyspace.tables["seat"]._replace(gc_grace_s=gc_grace_s)
    g = Group("g")
    g.delete("x", "DELETE FROM seat WHERE hall = 'h'", target="hall")
    with strandline.connect("memory:") as s:
        groups = s.groups(targets={"hall": target.name}, barrier_keep_s=keep_s)
        if fine:
            assert groups.submit(g).id == "g"
            return
        with pytest.raises(InvalidGroup) as caught:
            groups.submit(g)
        assert [problem.code for problem in caught.value.problems] == ["table_unsafe"]


@pytest.mark.req("G40")
@pytest.mark.parametrize(
    ("condition", "applies"),
    [("guest IN (:t, 'y')", True), ("guest IN (:t, 'z') AND n = 1", False), ("guest IN :ts", True)],
)
def test_a_condition_with_a_list_is_evaluated(condition: str, applies: bool) -> None:
    target = LwwTarget("conditions")
    target.create(TABLE)
    target.execute("INSERT INTO seat (hall, row, guest) VALUES ('h', 1, 'y')")
    text = f"UPDATE seat SET n = 1 WHERE hall = 'h' AND row = 1 IF {condition}"
    cells = target.image(work(text, {"t": "x", "ts": ["y"]}))
    assert isinstance(cells, Cells)
    assert cells.applies == applies
    unlike = "UPDATE seat SET n = 1 WHERE hall = 'h' AND row = 1 IF guest > :t"
    assert target.image(work(unlike, {"t": 5})) == Failed("binding", "5 is no text: int")


@pytest.mark.req("G47", "G53")
def test_what_the_target_refuses_is_an_answer() -> None:
    """A table that is gone: neither reading back nor undoing raises, which would end the processor."""
    target = LwwTarget("refusals")
    target.create(TABLE)
    wrote = written(target, WRITES[0], {"h": "h", "r": 1, "t": "x"}, now_us())
    del target.keyspace.tables["seat"]
    assert target.read_back(wrote) == Failed("statement", "there is no table seat")
    assert put_back(target, [wrote], "fail", now_us()) == NotUndone("there is no table seat")


@pytest.mark.req("G53", "G5", "S35")
@pytest.mark.parametrize("text", [WRITES[0], WRITES[6]])
def test_a_removal_ahead_of_the_write_is_seen_when_it_is_read_back(text: str) -> None:
    target = LwwTarget("ahead")
    target.create(TABLE)
    target.execute(f"DELETE FROM seat USING TIMESTAMP {now_us() + 10 * SECOND} WHERE hall = 'h'")
    found = target.read_back(written(target, text, {"h": "h", "r": 1, "t": "x"}, now_us()))
    assert isinstance(found, Failed)
    assert found.reason == "not_applied"


@pytest.mark.req("G87")
def test_a_program_that_has_not_imported_it_is_told() -> None:
    program = "from strandline.group.targets import open_target; from strandline.urls import target_of; "
    program += "open_target(target_of('t', 'lww:x'), connections=1, consistency='ALL', settings=None)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "Unsupported" in found.stderr
    assert "import strandline.testing.lww" in found.stderr


@pytest.mark.req("G87", "G40", "S15")
def test_groups_run_on_it() -> None:
    name = uuid4().hex
    target = lww(name)
    assert isinstance(target, CellTarget)
    target.create(TABLE)
    target.execute("INSERT INTO seat (hall, row, guest) VALUES ('h', 1, 'anna')")
    before = seen(target)
    with strandline.connect("memory:") as s:
        groups = s.groups(targets={"shop": f"lww:{name}"})
        for id_, holds in (("bad", False), ("good", True)):
            g = Group(id_)
            g.update("x", "UPDATE seat SET guest = 'bert', n = 1 WHERE hall = 'h' AND row = 1", target="shop")
            g.insert("y", "INSERT INTO seat (hall, row, guest) VALUES ('h', 2, 'new')", target="shop", depends_on=["x"])
            g.query(
                "z", "SELECT COUNT(*) FROM seat WHERE hall = 'h'", target="shop", depends_on=["y"], success="count = 2"
            )
            text = "UPDATE seat SET guest = :t WHERE hall = 'h' AND row = 3"
            g.update("long", text, {"t": "x" * 2_000_000}, target="shop")
            g.delete("gone", "DELETE FROM seat WHERE hall = 'h' AND row = 3", target="shop", depends_on=["long"])
            g.empty("last", depends_on=["z", "gone"], checks=[is_true("true" if holds else "false")])
            groups.submit(g)
            groups.processor().run_until_idle()
            assert groups.get(id_).state == ("committed" if holds else "rolled_back"), groups.get(id_)
            if not holds:
                assert seen(target) == before
    assert seen(target)[0] == [(1, "bert", 1, None), (2, "new", None, None)]


@pytest.mark.req("S30", "G54")
@pytest.mark.parametrize(
    "text",
    [
        "TRUNCATE seat", "DROP TABLE seat", "ALTER TABLE seat ADD d int", "CREATE INDEX ON seat (guest)",
        "UPDATE seat SET row = 2 WHERE hall = 'h' AND row = 1",
        "UPDATE seat SET hall = 'x', n = 2 WHERE hall = 'h' AND row = 1",
    ],
)  # fmt: skip
def test_what_cannot_be_undone_is_refused(text: str) -> None:
    name = uuid4().hex
    lww(name).create(TABLE)
    with strandline.connect("memory:") as s:
        groups = s.groups(targets={"shop": f"lww:{name}"})
        g = Group("no")
        g.statement("x", text, target="shop")
        with pytest.raises(InvalidGroup) as refused:
            groups.submit(g)
        assert refused.value.code in {"statement_kind", "not_invertible"}
        assert not groups.list().groups


@pytest.mark.req("G87")
def test_the_clock_of_a_processor_is_that_of_its_connection() -> None:
    name, clock = uuid4().hex, FakeClock()
    target = lww(name)
    target.create(TABLE)
    with strandline.connect("memory:", clock=clock) as s:
        groups = s.groups(targets={"shop": f"lww:{name}"})
        g = Group("timed")
        g.insert("x", "INSERT INTO seat (hall, row, guest) VALUES ('h', 1, 'anna')", target="shop")
        g.empty("asks", recipes=[Recipe("r", expression="7")], depends_on=["x"])
        groups.submit(g)
        groups.processor().run_until_idle()
        assert groups.get("timed").state == "committed"
        told = {payload["at"] for _, payload, _ in groups.history("timed") if "at" in payload}
    assert told == {clock.now}
    ((written_at,),) = target.execute("SELECT writetime(guest) FROM seat WHERE hall = 'h' AND row = 1")
    assert 0 <= written_at - clock.now < SECOND


@pytest.mark.req("G50", "S32")
def test_lists_that_name_more_rows_than_are_allowed_are_too_large() -> None:
    """A thousand by ten thousand keys would not fit into memory."""
    target = LwwTarget("many")
    target.create("CREATE TABLE place (a int, b int, v int, PRIMARY KEY (a, b))")
    statement = parse("UPDATE place SET v = 1 WHERE a IN :a AND b IN :b", "cassandra")
    made = plan(statement, target.tables(statement.tables))
    step = TargetStep("s", made, {"a": list(range(1000)), "b": list(range(10_000))})
    found = target.image(step)
    assert isinstance(found, Failed)
    assert found.reason == "too_large"
    assert isinstance(target.image(step._replace(values={"a": [1, 2], "b": list(range(5000))})), Cells)


@pytest.mark.req("G40")
@pytest.mark.parametrize(("row", "option"), [(1, "must_exist"), (2, "must_not_exist")])
def test_the_image_tells_whether_a_row_is_there(row: int, option: str) -> None:
    name = uuid4().hex
    target = lww(name)
    assert isinstance(target, LwwTarget)
    target.create(TABLE)
    target.execute("INSERT INTO seat (hall, row, guest) VALUES ('h', 1, 'anna')")
    with strandline.connect("memory:") as s:
        groups = s.groups(targets={"shop": f"lww:{name}"})
        for other, state in ((3 - row, "aborted"), (row, "committed")):
            g = Group(f"g{other}")
            if option == "must_exist":
                text = f"UPDATE seat SET guest = 'bert' WHERE hall = 'h' AND row = {other}"
                g.update("x", text, target="shop", must_exist=True)
            else:
                text = f"INSERT INTO seat (hall, row, guest) VALUES ('h', {other}, 'bert')"
                g.insert("x", text, target="shop", must_not_exist=True)
            groups.submit(g)
            groups.processor().run_until_idle()
            assert groups.get(g.id).state == state, groups.get(g.id)
