"""Segments: steps on one SQL target that are one transaction, with what lies between them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from strandline.errors import LeaseLost
from strandline.group.statements import parse, plan
from strandline.group.target import Barrier, Done, Failed, Limits, NotUndone, Ran, Segment, StepId, TargetStep, Undone
from tests.group.conftest import ACCOUNTS
from tests.group.target_rooms import Stage
from tests.repeats import repeats

ADD = "UPDATE account SET amount = amount + :n WHERE id = :id"


def accounts(stage: Stage) -> list[Any]:
    return stage.room.execute("SELECT id, name, amount FROM account ORDER BY id")


def step(stage: Stage, name: str, text: str, values: Mapping[str, Any] | None = None, **more: Any) -> TargetStep:
    statement = parse(text, stage.room.dialect)
    made = plan(statement, stage.target.tables(statement.tables))
    return TargetStep(name, made, values or {}, known=values is not None, **more)


def segment(stage: Stage, *steps: TargetStep) -> Segment:
    return Segment(StepId("g", 1, "hash", steps[0].name), steps, stage.fence)


def undone(stage: Stage, made: Segment) -> bool:
    found = stage.target.undo_segment(stage.owner, made, "fail")
    return all(isinstance(outcome, Undone) for outcome in found.values())


class Between:
    """What lies between the steps of a test."""

    def __init__(self, values: Mapping[str, Any] | None = None, did: Callable[[str], object] = lambda _: None) -> None:
        self.given, self._did, self.asked, self.done = values or {}, did, list[str](), dict[str, Done]()

    def values(self, name: str) -> tuple[Mapping[str, Any], None]:
        self.asked.append(name)
        found = self.given[name]
        return found(self.done) if callable(found) else found, None

    def did(self, name: str, done: Done) -> None:
        self.done[name] = done
        self._did(name)


def three(stage: Stage, *, undo: bool = True) -> Segment:
    return segment(
        stage,
        step(stage, "take", ADD, {"n": -5, "id": 1}, undo=undo),
        step(stage, "look", "SELECT amount FROM account WHERE id = 1", {}),
        step(stage, "give", ADD, undo=undo),
    )


def give_what_is_left(done: Mapping[str, Done]) -> dict[str, Any]:
    return {"id": 2, "n": done["look"].rows.rows[0][0]}


@pytest.mark.req("G49", "G72", "RG2", "RG3")
@pytest.mark.parametrize("undo", [True, False])
def test_steps_see_each_other_and_are_one_commit(stage: Stage, undo: bool) -> None:
    made, seen = three(stage, undo=undo), list[Any]()
    host = Between({"give": give_what_is_left}, lambda _: seen.append(accounts(stage)))
    ran = stage.target.run_segment(stage.owner, made, host)
    assert isinstance(ran, Ran), ran
    assert seen == [ACCOUNTS] * 3, "nobody sees half of it"
    assert accounts(stage)[:2] == [(1, "anna", 5), (2, "bert", 25)]
    assert {name: one.affected for name, one in ran.done.items()} == {"take": 1, "look": 0, "give": 1}
    again = stage.target.run_segment(stage.owner, made, Between())
    assert again == Ran(ran.done, again=True), "its results are those of the barrier row"
    (barrier,) = stage.target.barriers(stage.owner, "g", 1)
    assert isinstance(barrier, Barrier)
    assert barrier.steps == ran.done
    assert bool(ran.done["take"].before.rows) == undo
    assert not stage.target.void(stage.owner, made.id, 1), "it ran"


@pytest.mark.req("G43", "G46", "S41", "RG2", "RG6")
def test_a_segment_is_undone_as_a_whole(stage: Stage) -> None:
    made = segment(
        stage,
        step(stage, "a", "INSERT INTO account VALUES (4, 'd', 1)", {}),
        step(stage, "b", ADD, {"n": 7, "id": 4}, before=("a",)),
        step(stage, "c", "DELETE FROM account WHERE id < 3", {}),
        step(stage, "d", "INSERT INTO account VALUES (1, 'other', 0)", {}),
    )
    assert isinstance(stage.target.run_segment(stage.owner, made), Ran)
    stage.room.execute("UPDATE account SET amount = 99 WHERE id = 4")
    found = stage.target.undo_segment(stage.owner, made, "fail")
    assert {name: type(outcome) for name, outcome in found.items()} == {"b": NotUndone, "c": Undone, "d": Undone}
    assert accounts(stage) == [*ACCOUNTS, (4, "d", 99)], "what comes before it waits"
    stage.room.execute("UPDATE account SET amount = 8 WHERE id = 4")
    assert undone(stage, made)
    assert accounts(stage) == ACCOUNTS
    assert stage.target.undo_segment(stage.owner, made, "fail") == dict.fromkeys("abcd", Undone())
    with pytest.raises(LeaseLost):
        stage.target.run_segment(stage.owner, made)


@pytest.mark.req("G46", "G76", "RG5")
def test_a_segment_that_never_ran_never_will(stage: Stage) -> None:
    made = three(stage)
    found = stage.target.undo_segment(stage.owner, made, "fail")
    assert found == dict.fromkeys(("take", "look", "give"), Undone(ran=False))
    with pytest.raises(LeaseLost):
        stage.target.run_segment(stage.owner, made)
    assert accounts(stage) == ACCOUNTS


class No(Exception):
    """A check's."""


@pytest.mark.req("G36", "G41", "RG2")
@pytest.mark.parametrize("undo", [True, False])
@pytest.mark.parametrize("at", ["take", "look", "give"])
def test_a_check_that_says_no_leaves_nothing(stage: Stage, at: str, undo: bool) -> None:
    def no(name: str) -> None:
        if name == at:
            raise No

    made = three(stage, undo=undo)
    with pytest.raises(No):
        stage.target.run_segment(stage.owner, made, Between({"give": give_what_is_left}, no))
    assert accounts(stage) == ACCOUNTS
    assert stage.target.barriers(stage.owner, "g", 1) == []
    assert isinstance(stage.target.run_segment(stage.owner, made, Between({"give": give_what_is_left})), Ran)


@pytest.mark.req("G5", "G40", "G72")
@pytest.mark.parametrize(
    ("text", "more", "reason"),
    [
        ("INSERT INTO account VALUES (1, 'x', 1)", {}, "statement"),
        ("UPDATE account SET amount = 1 WHERE id = 77", {"require": "exists"}, "not_applied"),
        ("UPDATE account SET amount = :n", {}, "binding"),
        ("SELECT id FROM account", {"limits": Limits(rows_max=2)}, "too_large"),
        ("DELETE FROM account", {"limits": Limits(rows_max=2)}, "too_large"),
        ("SELECT nowhere FROM account", {}, "statement"),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_a_step_that_fails_is_named_and_nothing_is_kept(
    stage: Stage, text: str, more: dict[str, Any], reason: str, known: bool
) -> None:
    made = segment(
        stage,
        step(stage, "a", ADD, {"n": 1, "id": 1}),
        step(stage, "bad", text, {} if known else None, **more),
        step(stage, "c", ADD, {"n": 1, "id": 2}),
    )
    found = stage.target.run_segment(stage.owner, made, Between({"bad": {}}))
    assert isinstance(found, Failed), found
    assert (found.step, found.reason) == ("bad", reason)
    assert accounts(stage) == ACCOUNTS
    assert stage.target.void(stage.owner, made.id, 1)


@pytest.mark.req("G54", "G55")
def test_without_images_any_statement_is_fine(stage: Stage) -> None:
    stage.room.execute("CREATE TABLE bare (n integer)")
    made = segment(
        stage,
        step(stage, "a", "INSERT INTO bare VALUES (1), (1)", {}, undo=False),
        step(stage, "b", "UPDATE account SET id = id + 10 WHERE amount > random() * 0 RETURNING id", {}, undo=False),
    )
    ran = stage.target.run_segment(stage.owner, made)
    assert isinstance(ran, Ran), ran
    assert sorted(ran.done["b"].rows.rows) == [(11,), (12,)]


@pytest.mark.req("G72", "RG2")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
def test_a_lost_race_begins_the_segment_again(stage: Stage) -> None:
    others = ["UPDATE account SET amount = 20 WHERE id = 2"]

    def race(name: str) -> None:
        if name == "look" and others:
            stage.room.execute(others.pop())

    host = Between({"give": give_what_is_left}, race)
    ran = stage.target.run_segment(stage.owner, three(stage), host)
    assert isinstance(ran, Ran), ran
    assert host.asked == ["give", "give"]
    assert accounts(stage)[:2] == [(1, "anna", 5), (2, "bert", 25)]


@pytest.mark.req("G2", "RG2")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
def test_a_query_between_two_changes_only_reads(stage: Stage) -> None:
    stage.room.execute(
        "CREATE FUNCTION f() RETURNS integer LANGUAGE sql AS $$ INSERT INTO account VALUES (9, 'f', 9) RETURNING id $$"
    )
    for text, fine in (("SELECT f()", False), ("SELECT id FROM account", True)):
        made = segment(
            stage,
            step(stage, f"a{fine}", ADD, {"n": 1, "id": 1}),
            step(stage, "q", text, {}),
            step(stage, "b", ADD, {"n": 1, "id": 2}),
        )
        found = stage.target.run_segment(stage.owner, made)
        assert isinstance(found, Ran if fine else Failed), found
        assert accounts(stage) == ([(1, "anna", 11), (2, "bert", 21), ACCOUNTS[2]] if fine else ACCOUNTS)


SLOW = {
    "sqlite": "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1e10) SELECT max(i) FROM n",
    "postgres": "SELECT pg_sleep(60)",
}


@pytest.mark.req("G5", "RG8")
def test_each_statement_has_its_own_time(stage: Stage) -> None:
    made = segment(
        stage,
        step(stage, "a", ADD, {"n": 1, "id": 1}, limits=Limits(timeout_s=20)),
        step(stage, "slow", SLOW[stage.room.dialect], {}, limits=Limits(timeout_s=0.1)),
    )
    found = stage.target.run_segment(stage.owner, made)
    assert isinstance(found, Failed), found
    assert (found.step, found.reason, found.retry) == ("slow", "statement", True)
    assert accounts(stage) == ACCOUNTS


@pytest.mark.req("G85", "RG2")
def test_a_table_that_is_altered_is_read_anew(stage: Stage) -> None:
    made = segment(
        stage,
        step(stage, "a", ADD, {"n": 1, "id": 1}),
        step(stage, "b", "DELETE FROM account WHERE id = 2", {}),
    )
    stage.room.execute("ALTER TABLE account ADD COLUMN more text")
    stage.room.execute("UPDATE account SET more = 'kept'")
    assert isinstance(stage.target.run_segment(stage.owner, made), Ran)
    assert undone(stage, made)
    assert stage.room.execute("SELECT more FROM account WHERE id < 3 ORDER BY id") == [("kept",), ("kept",)]


# ---------------------------------------------------------------- random ones

FORMS = [
    "INSERT INTO account (id, name, amount) VALUES ({a}, 'new', {b})",
    "INSERT INTO account (id, name) VALUES ({a}, 'u') ON CONFLICT (id) DO UPDATE SET amount = {b} WHERE account.id > 3",
    "INSERT INTO account (id) VALUES ({a}), ({b}) ON CONFLICT DO NOTHING",
    "INSERT INTO account (id, name) SELECT id + 20, name FROM account WHERE id = {a}",
    "UPDATE account SET amount = amount + {b} WHERE id >= {a}",
    "UPDATE account SET name = NULL, amount = {c} WHERE id IN ({a}, {b})",
    "UPDATE account SET amount = (SELECT max(amount) FROM account) WHERE id < {a}",
    "DELETE FROM account WHERE id = {a}",
    "DELETE FROM account WHERE amount > {b}",
]


def random_segment(stage: Stage, seed: int) -> Segment:
    rng, steps = random.Random(seed), []
    for n in range(rng.randint(1, 6)):
        text = rng.choice(FORMS).format(a=rng.randint(1, 9), b=rng.randint(1, 30), c=rng.randint(0, 6))
        steps.append(step(stage, f"s{n}", text, {} if rng.random() < 0.7 else None))
    return segment(stage, *steps)._replace(id=StepId(f"g{seed}", 1, "hash", "s0"))


@pytest.mark.req("G43", "G49", "S31", "RG2")
@repeats(40, 4_000)
def test_what_random_segments_do_is_undone_or_was_never_done(stage: Stage, times: int) -> None:
    anything = {f"s{n}": dict[str, Any]() for n in range(6)}
    ends = {True: 0, False: 0}
    for seed in range(times):
        made = random_segment(stage, seed)
        ran = stage.target.run_segment(stage.owner, made, Between(anything))
        ends[isinstance(ran, Ran)] += 1
        if isinstance(ran, Ran):
            assert undone(stage, made), seed
        assert accounts(stage) == ACCOUNTS, seed
    assert all(ends.values()), "some fail, most do not"


@pytest.mark.req("G5", "G92", "G35")
@pytest.mark.parametrize(
    "wrong", [{"n": [1], "id": 2}, {"n": 1}, {"n": 1, "id": "no number"}, {"n": [1, "x"], "id": 2}]
)
def test_the_step_whose_values_are_wrong_is_the_one_that_fails(stage: Stage, wrong: Mapping[str, Any]) -> None:
    """Statements of known rows are sent ahead, those of the steps behind the first one, too."""
    made = segment(
        stage, step(stage, "first", ADD, {"n": 1, "id": 1}), step(stage, "second", ADD, wrong),
        step(stage, "third", ADD, {"n": 1, "id": 3}),
    )  # fmt: skip
    did = list[str]()
    found = stage.target.run_segment(stage.owner, made, Between(did=did.append))
    if stage.room.dialect == "sqlite" and wrong.get("id") == "no number":  # it compares texts with integers
        assert isinstance(found, Ran)
        return
    assert isinstance(found, Failed)
    assert (found.step, did) == ("second", ["first"]), found
    assert accounts(stage) == ACCOUNTS


# ---------------------------------------------------------------- what it takes of a server


@pytest.mark.req("G92")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
@pytest.mark.parametrize("undo", [True, False])
def test_a_segment_of_known_rows_takes_two_round_trips(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, undo: bool
) -> None:
    """All up to the last change, then the barrier row with the COMMIT; and each statement is prepared once."""
    from strandline.backends.postgres.round_trips import Connection

    changes = [step(stage, f"s{n}", ADD, {"n": 1, "id": n}, undo=undo) for n in (1, 2, 3)]
    sent, begin = list[Any](), Connection._begin

    def counted(self: Connection, send: Any) -> None:
        sent.append(send)
        begin(self, send)

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "_begin", counted)
        for life in range(4):
            made = segment(stage, *changes)
            sent.clear()
            ran = stage.target.run_segment(stage.owner, made._replace(id=made.id._replace(life=life)))
            assert isinstance(ran, Ran), ran
    assert len(sent) == 2
    (connection,) = stage.target._pool._idle
    asked = connection.execute(
        "SELECT generic_plans + custom_plans FROM pg_prepared_statements WHERE statement LIKE 'UPDATE account%'"
    )
    assert asked.fetchall() == [(3 * 4 - 1,)], "from its second time on"
