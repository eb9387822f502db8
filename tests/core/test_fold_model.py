"""The fold against a second, naive implementation of the specification, on random runs of actions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strandline.fold import (
    Duplicate,
    Effect,
    EventsAppended,
    EventsDeleted,
    FoldRules,
    LifePurged,
    PassedOver,
    RefusedAppend,
    fold,
)
from strandline.store.heads import head_in, head_row
from strandline.values.actions import Action, Append, Delete, Mark, Place, Purge
from strandline.values.heads import SEQ_NR_MAX, EndedLife, Head, State
from tests.core.naive import NaiveKey
from tests.repeats import examples

KEYS = ("order|42", "user|a|b")
SEGMENT_SIZES = (2, 3, 10)


class Step(NamedTuple):
    """An action and its place. The same place again is a record that is read a second time."""

    action: Action
    place: Place


class Run(NamedTuple):
    """Steps, the naive keys that they lead to, and what the naive model said to each step."""

    size: int
    steps: list[Step]
    said: list[str]
    keys: dict[str, NaiveKey]


def written(script: bytes) -> Run:
    """The run that a script stands for: four bytes a step, so that it is made and made smaller quickly.

    Numbers near to where the naive model stands make the interesting cases frequent.
    """
    size = SEGMENT_SIZES[script[0] % len(SEGMENT_SIZES)] if script else 10
    run = Run(size, [], [], {key: NaiveKey(size) for key in KEYS})
    offset, timestamp = 0, 1_000
    for at in range(1, len(script) - 3, 4):
        what, how, a, b = script[at : at + 4]
        key = KEYS[what % 2]
        offset, timestamp = offset + 1 + how % 3, timestamp + 1 + b
        if what // 2 % 16 == 15 and run.steps:  # read again from an earlier step, up to here
            again = run.steps[-1 - a % min(len(run.steps), 8) :]
        else:
            again = [
                Step(one, Place(0, offset + n, timestamp + n))
                for n, one in enumerate(actions(run, key, *script[at : at + 4]))
            ]
            offset, timestamp = again[-1].place.offset, again[-1].place.timestamp
        for step in again:
            run.steps.append(step)
            named = step.action.key
            run.said.append(run.keys[named].apply(*step) if named else "nothing")
    return run


def actions(run: Run, key: str, what: int, how: int, a: int, b: int) -> Iterator[Action]:
    """The actions of one step: mostly one, sometimes a long run of appends."""
    naive = run.keys[key]
    kind = what // 2 % 16
    if kind < 7:
        yield append(naive, key, how, a, b)
    elif kind == 7:  # more ids than are remembered
        for n in range(1 + a % 40):
            yield Append(key, (("T", ()),), f"run-{b % 4}-{n}", bool(how % 4), "x")
    elif kind < 11:
        last = naive.past[-1].life if naive.past else 0
        life = [None, naive.life() or None, max(1, last + a % 3 - 1)][how % 3]
        yield Delete(key, max(1, [a % 9 + 1, naive.number() + b % 5 - 2][how // 4 % 2]), life)
    elif kind < 13:
        last = naive.past[-1].place.offset if naive.past else 0
        yield Purge(key, [None, last, max(0, last + a % 3 - 1)][how % 3])
    else:
        yield Mark(key if how % 2 else None, "m", at_least=b if a % 2 else None)


def append(naive: NaiveKey, key: str, how: int, a: int, b: int) -> Append:
    stands = naive.number()
    far = stands + 100 * naive.segment_size + b % 40 - 20
    firsts = [None, None, None, max(1, stands + b % 6 - 2), max(1, far), SEQ_NR_MAX - b % 3]
    first = firsts[how % 6] if how < 250 else SEQ_NR_MAX
    expected = [None, None, stands, max(0, stands + a % 3 - 1)][how // 6 % 4]
    events = (("T", ()),) * (1 + a % 4)
    return Append(
        key, events, f"id-{a % 6}" if how % 5 else f"{a}-{b}-{len(naive.past)}", bool(b % 3), "xy"[b // 8 % 8 == 0],
        min(first, SEQ_NR_MAX) if first else None, expected, [-1, -1, 0, 50 + a][how // 24 % 4],
    )  # fmt: skip


SCRIPTS = st.integers(1, 60).flatmap(lambda steps: st.binary(min_size=1 + 4 * steps, max_size=1 + 4 * steps))
LONG = bytes([0, *([14, 1, 39, 0] * 3), *([0, 1, 1, 1] * 8)])


def said(effect: Effect) -> str:
    """An effect in the words of the naive model."""
    if effect is None:
        return "nothing"
    if isinstance(effect, PassedOver):
        return "passed over"
    if isinstance(effect, EventsAppended):
        return f"appended {effect.first}..{effect.last} in {effect.life}"
    if isinstance(effect, Duplicate):
        return f"as before {effect.answer.first}..{effect.answer.last}"
    if isinstance(effect, EventsDeleted):
        return f"deleted to {effect.to}"
    if isinstance(effect, LifePurged):
        return f"purged {effect.life} up to {effect.to}"
    assert isinstance(effect, RefusedAppend)
    words = {
        "append_id_reused": "id reused",
        "expected": "not expected",
        "first": "first taken",
        "seq_nr_range": "out of range",
    }
    return f"{words[effect.code]}, at {effect.actual}"


class Folded:
    """What a follower of the log has: a state per key, and the rows that the effects made and removed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.states: dict[str, State] = dict.fromkeys(KEYS)
        self.rows: dict[str, dict[tuple[int, int], int]] = {key: {} for key in KEYS}

    def apply(self, step: Step) -> Effect:
        key = step.action.key
        if key is None:  # concerns no key
            state, effect = fold(None, step.action, step.place, FoldRules(self.size, 32))
            assert state is None
            return effect
        self.states[key], effect = fold(self.states[key], step.action, step.place, FoldRules(self.size, 32))
        rows = self.rows[key]
        if isinstance(effect, EventsAppended):
            before = effect.prev
            for number in range(effect.first, effect.last + 1):
                assert (effect.life, number) not in rows
                rows[effect.life, number] = before
                before = number
        elif isinstance(effect, (EventsDeleted, LifePurged)):
            from_ = effect.from_ if isinstance(effect, EventsDeleted) else 1
            for place in [place for place in rows if place[0] == effect.life and from_ <= place[1] <= effect.to]:
                del rows[place]
        return effect

    def stored(self) -> None:
        """Put the states through the columns of a store and back, as between two batches."""
        for key, state in self.states.items():
            if isinstance(state, Head):
                self.states[key] = head_in(head_row(key, state))


def check(folded: Folded, run: Run) -> None:
    for key, naive in run.keys.items():
        rows = [(life, number, prev) for (life, number), prev in folded.rows[key].items()]
        assert rows == naive.events
        state, wanted = folded.states[key], naive.head()
        if wanted is None:
            assert not isinstance(state, Head)
            purged = naive.past[-1] if naive.past else None
            assert state == (EndedLife(purged.life, purged.place.partition, purged.place.offset) if purged else None)
            continue
        assert isinstance(state, Head)
        found = state._asdict()
        found["ids"] = {(one.append_id, one.first, one.last) for one in (*state.given, state.generated) if one}
        assert {name: found[name] for name in wanted} == wanted


@pytest.mark.req("J10", "J11", "J13", "J14", "J15", "J16", "J17", "J18", "J20", "J21", "J22", "J24")
@pytest.mark.req("J36", "J39", "J40", "J45", "J46", "J101")
@settings(max_examples=examples(350), deadline=None)
@given(SCRIPTS)
@example(LONG)
def test_the_fold_agrees_with_the_naive_model(script: bytes) -> None:
    run = written(script)
    folded = Folded(run.size)
    for step, wanted in zip(run.steps, run.said, strict=True):
        assert said(folded.apply(step)) == wanted
    check(folded, run)


@pytest.mark.req("J19")
@settings(max_examples=examples(200), deadline=None)
@given(SCRIPTS, st.lists(st.integers(1, 12), min_size=1, max_size=8), st.integers(0, 9))
def test_it_does_not_matter_how_a_run_is_cut(script: bytes, cuts: list[int], back: int) -> None:
    """In batches of any size, each of which may begin with records that the one before has done."""
    run = written(script)
    cut = Folded(run.size)
    at = turn = 0
    while at < len(run.steps):
        begin, at = max(0, at - back), at + cuts[turn % len(cuts)]
        turn += 1
        cut.stored()
        for step in run.steps[begin:at]:
            cut.apply(step)
    check(cut, run)


@pytest.mark.req("J12")
@settings(max_examples=examples(100), deadline=None)
@given(SCRIPTS)
def test_the_same_actions_give_the_same_states(script: bytes) -> None:
    run = written(script)
    one, other = Folded(run.size), Folded(run.size)
    for step in run.steps:
        before = dict(one.states)
        assert one.apply(step) == other.apply(step)
        assert one.states == other.states
        if step.action.key is not None:  # the state that went in was not touched
            assert (
                fold(before[step.action.key], step.action, step.place, FoldRules(run.size, 32))[0]
                == one.states[step.action.key]
            )


def test_the_scripts_reach_every_answer() -> None:
    """A model that never gets somewhere proves nothing there."""
    found: set[str] = set()

    @settings(max_examples=600, deadline=None, database=None, derandomize=True)
    @given(SCRIPTS)
    def collect(script: bytes) -> None:
        run = written(script)
        found.update(words.split()[0] for words in run.said)
        for naive in run.keys.values():
            if naive.life() > 1:
                found.add("second life")
            if any(one.what == "reset" for one in naive.past):
                found.add("reset")
            if sum(action.id_given for action, _ in naive.appends()) > 32:
                found.add("forgotten ids")
            if any(number - prev > 1 for _, number, prev in naive.events):
                found.add("gap")

    collect()
    answers = {"nothing", "passed", "appended", "as", "id", "not", "first", "out", "deleted", "purged"}
    assert found == answers | {"second life", "reset", "forgotten ids", "gap"}
