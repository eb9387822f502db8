"""The decision alone, without targets, handlers, clocks and threads: histories of random groups, cut after every event.

What a target did before the cut is known by its barrier rows, as it is to whoever resumes: a step that ran says so when
it is run again. Whatever is cut, the group comes to an end in which all of it is there, or nothing.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from strandline.group.actions import Action, Ask, Decide, Note, Run, Send
from strandline.group.checks import ask, is_true
from strandline.group.core.parts import Dep, Handler, Hook, Recipe
from strandline.group.decide import Course, message_id
from strandline.group.definition import Group
from strandline.group.history import HistoryEvent
from strandline.group.plan import GroupPlan
from strandline.group.planning import planned
from strandline.group.settings import GroupSettings
from strandline.group.statements.api import Dialect, TargetColumn, TargetTable
from tests.group.pure_world import World, apply, begun, check, folded, run
from tests.repeats import repeats

ACCOUNT = TargetTable("account", (TargetColumn("id", "integer"), TargetColumn("amount", "integer")), ("id",))
SECOND = 1_000_000


def plan_of(group: Group) -> GroupPlan:
    dialects: dict[str, Dialect] = {"shop": "sqlite", "bank": "postgres"}
    return planned(group, dialects, lambda target, names: dict.fromkeys(names, ACCOUNT), lambda name: None)


def update(g: Group, name: str, id_: int, target: str = "shop", **more: Any) -> None:
    g.update(name, f"UPDATE account SET amount = amount + 1 WHERE id = {id_}", target=target, **more)


def random_group(rng: random.Random) -> tuple[Group, World]:
    g, answers, refuses = Group("g", post_hook="hook"), dict[str, Any](), set[str]()
    targets = rng.choice([1, 2])
    for n in range(rng.randrange(1, 9)):
        name = f"s{n}"
        needs: list[Any] = list({f"s{rng.randrange(n)}" for _ in range(rng.randrange(3))} if n else ())
        more: dict[str, Any] = {"depends_on": needs}
        if rng.random() < 0.3:
            answers[name] = rng.choice([{"results": {"value": True}}, {"results": {"value": False}}, None,
                                        {"reason": "no"}])  # fmt: skip
            if rng.random() < 0.5:
                more["recipes"] = [Recipe("r", handler=name, optional=rng.random() < 0.5)]
            else:
                more["checks"] = [ask(name, optimistic=rng.random() < 0.5), is_true("1 = 1")]
        elif rng.random() < 0.2:
            more["success"] = rng.choice(["1 = 1", "1 = 2"])
        if rng.random() < 0.2:
            more["pre_hook"] = more["post_hook"] = Hook("hook")
        if rng.random() < 0.7:
            kind = rng.random()
            if kind < 0.2:
                update(g, f"back{n}", 100 + n, is_rollback=True)
                more["undo"] = f"back{n}"
            elif kind < 0.4:
                more["undo"] = Handler("undo")
            update(g, name, n, rng.choice(["shop", "bank"]) if targets == 2 else "shop", **more)
            refuses |= {name} if rng.random() < 0.1 else set()
        else:
            g.empty(name, **more)
    answers |= {"undo": {"results": {}}, "hook": {"results": {}}}
    return g, World(frozenset(refuses), answers)


@pytest.mark.req("G71", "G72", "G46", "S48", "G67")
@pytest.mark.parametrize("segments", [True, False])
@repeats(100, 10_000)
def test_a_history_that_is_cut_after_any_event_comes_to_an_end_of_the_same_kind(times: int, segments: bool) -> None:
    """Where one thing alone can fail, to the same end."""
    for seed in range(times):
        rng = random.Random(seed)
        group, world = random_group(rng)
        plan = plan_of(group) if segments else plan_of(group).step_by_step()
        history, entries = begun(plan)
        whole = run(plan, world, history, entries, rng)
        check(plan, world, whole)
        hooks = set(whole.hooks)
        for cut in range(2, len(entries) + 1):
            ahead = rng.choice([0, 0, 1, 3])  # so many events were done, and are not in the log
            there = world.at(entries[: cut + ahead] if whole.state == "committed" else entries[:cut])
            again, more = folded(entries[:cut])
            run(plan, there, again, more, rng, resumed=True)
            check(plan, there, again)
            assert again.over
            assert (again.state == "committed") == (whole.state == "committed"), (seed, cut)
            if whole.state == "committed":
                assert set(again.hooks) == hooks
            assert len(set(there.told)) == len(there.told)
            types = [entry.type for entry in more]
            assert types.count("Decided") == types.count("Ended") == 1


@pytest.mark.req("G71")
def test_what_is_decided_anew_is_what_is_under_way() -> None:
    """The course that is kept while a group runs says no more and no less than a decision about its history alone."""
    for seed in range(60):
        rng = random.Random(seed)
        group, world = random_group(rng)
        plan = plan_of(group).step_by_step()
        history, entries = begun(plan)
        course, under = Course(plan, history, GroupSettings(), set(plan.steps)), list[Action]()
        for _ in range(1000):
            found = course.decide(0)
            for action in found:
                if isinstance(action, Note):
                    apply(course, history, entries, action.type, action.payload)
            under += [action for action in found if not isinstance(action, Note)]
            if any(isinstance(action, Note) for action in found):
                continue
            if not any(isinstance(action, Run) for action in under) or history.failure is None:
                again, _ = folded(entries)
                if history.failure is None or history.decided is not None:
                    asked = {action for action in under if not isinstance(action, (Ask, Send))}
                    anew = Course(plan, again, GroupSettings(), set(plan.steps))
                    assert {a for a in anew.decide(0) if not isinstance(a, (Note, Ask, Send))} == asked, seed
            if not under:
                break
            action = under.pop(rng.randrange(len(under)))
            for type_, payload in world.carry_out(action, plan, history):
                apply(course, history, entries, type_, payload)
            if not isinstance(action, Ask):
                course.done(action)


def one_that_asks(**more: Any) -> GroupPlan:
    g = Group("g", **more)
    update(g, "x", 1)
    g.empty("quote", recipes=[Recipe("price", handler="price", timeout_s=30)])
    update(g, "y", 2, depends_on=["x", Dep("quote", "price")])
    return plan_of(g)


@pytest.mark.req("G20")
def test_an_answer_counts_if_it_is_in_the_history_before_the_time_out_is() -> None:
    plan = one_that_asks()
    history, entries = begun(plan)
    course = Course(plan, history, GroupSettings(), set())
    assert course.decide(0) == [Run("x"), Ask("quote", "price", "price", 30)]
    message = message_id(history, "quote", "price")
    asked = {"step": "quote", "recipe": "price", "message_id": message, "timeout_s": 30, "asked": 0}
    apply(course, history, entries, "Asked", asked)
    assert course.decide(SECOND) == []
    assert course.wake_at == 30 * SECOND
    assert course.decide(29 * SECOND) == []
    (late,) = course.decide(30 * SECOND)
    assert isinstance(late, Note)
    assert (late.type, late.payload["answer"]["timed_out"]) == ("Answered", True)
    answered = {"message_id": message, "answer": {"results": {"value": 5}}}
    apply(course, history, entries, "Answered", answered)  # it was quicker
    (done,) = course.decide(30 * SECOND)
    assert isinstance(done, Note)
    assert (done.type, done.payload["results"]) == ("RecipeDone", {"value": 5})


@pytest.mark.req("G20")
def test_a_group_that_has_failed_waits_for_a_local_answer_as_long_as_for_a_statement() -> None:
    plan = one_that_asks(deadline_s=10)
    history, entries = begun(plan)
    course = Course(plan, history, GroupSettings(statement_timeout_s=4), set())
    run_x, _ = course.decide(0)
    message = message_id(history, "quote", "price")
    asked = {"step": "quote", "recipe": "price", "message_id": message, "timeout_s": 30, "asked": 0}
    apply(course, history, entries, "Asked", asked)
    (failed,) = course.decide(10 * SECOND)
    assert isinstance(failed, Note)
    apply(course, history, entries, failed.type, failed.payload)
    apply(course, history, entries, "Result", {"step": "x", "columns": [], "affected": 1})
    course.done(run_x)
    assert course.decide(11 * SECOND) == []
    assert course.wake_at == 15 * SECOND
    assert course.decide(14 * SECOND) == []
    (late,) = course.decide(15 * SECOND)
    assert isinstance(late, Note)
    assert (late.type, late.payload["answer"]["timed_out"]) == ("Answered", True)


@pytest.mark.req("G46", "G20")
def test_a_deadline_is_passed_once_and_waits_for_what_runs() -> None:
    plan = one_that_asks(deadline_s=10)
    history, entries = begun(plan)
    course = Course(plan, history, GroupSettings(), set())
    run_x, quote = course.decide(0)
    message = message_id(history, "quote", "price")
    asked = {"step": "quote", "recipe": "price", "message_id": message, "timeout_s": 30, "asked": 0, "box": "prices"}
    apply(course, history, entries, "Asked", asked)
    (failed,) = course.decide(10 * SECOND)
    assert isinstance(failed, Note)
    assert (failed.type, failed.payload["reason"]) == ("Failed", "deadline")
    apply(course, history, entries, failed.type, failed.payload)
    assert course.decide(11 * SECOND) == [], "x runs"
    apply(course, history, entries, "Result", {"step": "x", "columns": [], "affected": 1})
    course.done(run_x)
    (stops,) = course.decide(12 * SECOND)
    assert isinstance(stops, Note)
    assert (stops.payload["step"], stops.payload["reason"]) == ("quote", "cancelled"), "nobody waits for mail any more"
    apply(course, history, entries, stops.type, stops.payload)
    (back,) = course.decide(12 * SECOND)
    assert isinstance(back, Decide)
    assert (back.step, back.reason) == (None, "deadline")
    assert isinstance(quote, Ask)


@pytest.mark.req("G47", "G43", "S42")
def test_an_undo_that_fails_holds_back_those_before_it_until_somebody_resolves_it() -> None:
    g = Group("g")
    for branch in "ab":
        for n in range(3):
            update(g, f"{branch}{n}", ord(branch) + n, depends_on=[f"{branch}{n - 1}"] if n else [])
    g.empty("last", depends_on=["a2", "b2"], success="1 = 2")
    plan, rng = plan_of(g).step_by_step(), random.Random(1)
    history, entries = begun(plan)
    world = World(fails_to_undo={"a1"})
    run(plan, world, history, entries, rng)
    assert history.state == "rollback_failed"
    assert world.undone == {"a2", "b2", "b1", "b0"}
    world.fails_to_undo.clear()
    for cut in range(len(entries), 2, -1):
        again, more = folded(entries[:cut])
        if again.state != "rollback_failed":
            break
        there = world.at(entries[:cut])
        resolved = HistoryEvent(again.last + 1, "Resolved", {"step": "a1", "how": "retry"})
        again.apply(HistoryEvent(resolved.n, resolved.type, {"at": 1, **resolved.payload}))
        run(plan, there, again, [*more, resolved], rng, resumed=True)
        assert again.state == "rolled_back"
        assert there.undone == {"a0", "a1", "a2", "b0", "b1", "b2"}
