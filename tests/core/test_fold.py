"""The fold as a table: every state with every action, one line each, in the order of table 3.1."""

import ast
import inspect
from dataclasses import dataclass
from typing import Any

import pytest

from strandline import fold as fold_module
from strandline.fold import (
    EMPTY_SEGMENTS_MAX,
    PASSED_OVER,
    Duplicate,
    Effect,
    EventsAppended,
    EventsDeleted,
    FoldRules,
    LifePurged,
    RefusedAppend,
    fold,
    segment_of,
)
from strandline.values.actions import KEEP_EXPIRY, NO_EXPIRY, Action, Append, Delete, Mark, Place, Purge
from strandline.values.heads import SEQ_NR_MAX, EndedLife, Head, Remembered, State

OFFSET = 50
NOW = Place(partition=3, offset=60, timestamp=6_000)
SIZE, KEPT = 10, 32
OTHER_SIZE = 4
"""The segment size that the store has by now: heads keep the one they were made with."""
RULES = FoldRules(SIZE, KEPT)

LAST_GIVEN = Remembered("id-5", "content", 4, 5, OFFSET, 5_000)
LAST_GENERATED = Remembered("made-3", "content", 3, 3, 30, 3_000)


def head(**changed: Any) -> Head:
    """Life 3: numbers 1..5, the first two deleted, last changed at OFFSET."""
    usual = Head(
        seq_nr=5,
        delete_to=2,
        life=3,
        partition=3,
        offset=OFFSET,
        created=1_000,
        updated=5_000,
        expire_after_us=None,
        expire_at=None,
        segment_size=SIZE,
        archive_to=1,
        prev=5,
        removed_to=2,
        given=(LAST_GIVEN,),
        generated=LAST_GENERATED,
    )
    return usual._replace(**changed)


def append(count: int = 1, **given: Any) -> Append:
    usual = Append("order|42", (("Placed", ()),) * count, append_id="id-9", id_given=True, digest="content")
    return usual._replace(**given)


def delete(to: int, life: int | None = None) -> Delete:
    return Delete("order|42", to, life)


def purge(if_offset: int | None = None) -> Purge:
    return Purge("order|42", if_offset)


NONE = None
ENDED = EndedLife(life=2, partition=3, offset=OFFSET)
HEAD = head()
EMPTY = head(delete_to=5, removed_to=5)
BEYOND = head(delete_to=7, removed_to=7)
"""J24: more was deleted than there is."""
SKIPPED = head(prev=3)
"""J98: the last two events were skipped."""
HALF_REMOVED = head(delete_to=4, removed_to=2)
FULL = head(seq_nr=SEQ_NR_MAX, prev=SEQ_NR_MAX)
EXPIRING = head(expire_after_us=70, expire_at=5_070)
STATES = {
    "none": NONE,
    "ended": ENDED,
    "head": HEAD,
    "empty": EMPTY,
    "beyond": BEYOND,
    "skipped": SKIPPED,
    "half removed": HALF_REMOVED,
    "full": FULL,
    "expiring": EXPIRING,
}
AS_IT_WAS: dict[str, Any] = {}


@dataclass(frozen=True)
class Row:
    """One line of the table. `changes` are the fields that differ from the state before, where there is a head."""

    state: State
    action: Action
    effect: Effect
    changes: dict[str, Any] | EndedLife


def born(first: int, last: int, life: int, **more: Any) -> dict[str, Any]:
    """The head that an append makes where there was none."""
    return {
        "seq_nr": last,
        "delete_to": first - 1,
        "life": life,
        "partition": 3,
        "offset": 60,
        "created": 6_000,
        "updated": 6_000,
        "expire_after_us": None,
        "expire_at": None,
        "segment_size": OTHER_SIZE,
        "archive_to": 0,
        "prev": last,
        "removed_to": first - 1,
        "given": (Remembered("id-9", "content", first, last, 60, 6_000),),
        "generated": None,
    } | more


def reset(to: int, life: int) -> dict[str, Any]:
    """The head that a delete makes where there was none."""
    return born(to + 1, to, life, given=())


def grown(first: int, last: int, before: Head = HEAD, **more: Any) -> dict[str, Any]:
    """What an append changes in a head."""
    answer = Remembered("id-9", "content", first, last, 60, 6_000)
    changes = {"seq_nr": last, "prev": last, "offset": 60, "updated": 6_000, "removed_to": before.delete_to}
    return changes | {"given": (*before.given, answer)} | more


def deleted(to: int) -> dict[str, Any]:
    """What a delete changes in a head."""
    return {"delete_to": to, "removed_to": to, "offset": 60, "updated": 6_000}


GENERATED = Remembered("made-4", "content", 6, 6, 60, 6_000)
BY_ITSELF: dict[str, Any] = {"append_id": "made-4", "id_given": False}
FAR = (EMPTY_SEGMENTS_MAX + 2) * SIZE
"""The last number that leaves no more than 100 segments empty behind segment 0."""

TABLE = {
    # ------------------------------------------------------------------ no head, and nothing before
    "none, mark": Row(NONE, Mark("order|42", "m"), None, AS_IT_WAS),
    "none, append": Row(NONE, append(2), EventsAppended(1, 2, 0, 1), born(1, 2, 1)),
    "none, append at 11": Row(NONE, append(3, first=11), EventsAppended(11, 13, 10, 1), born(11, 13, 1)),
    "none, append at 1": Row(NONE, append(first=1), EventsAppended(1, 1, 0, 1), born(1, 1, 1)),
    "none, append far off": Row(NONE, append(first=10**9), EventsAppended(10**9, 10**9, 10**9 - 1, 1),
                                born(10**9, 10**9, 1)),
    "none, append at the end": Row(NONE, append(first=SEQ_NR_MAX),
                                   EventsAppended(SEQ_NR_MAX, SEQ_NR_MAX, SEQ_NR_MAX - 1, 1),
                                   born(SEQ_NR_MAX, SEQ_NR_MAX, 1)),
    "none, append past the end": Row(NONE, append(2, first=SEQ_NR_MAX), RefusedAppend("seq_nr_range", 0), AS_IT_WAS),
    "none, append, 0 expected": Row(NONE, append(expected=0), EventsAppended(1, 1, 0, 1), born(1, 1, 1)),
    "none, append, 1 expected": Row(NONE, append(expected=1), RefusedAppend("expected", 0), AS_IT_WAS),
    "none, append, both": Row(NONE, append(expected=1, first=7), RefusedAppend("expected", 0), AS_IT_WAS),
    "none, append, expiry": Row(NONE, append(expire_after_us=70), EventsAppended(1, 1, 0, 1),
                                born(1, 1, 1, expire_after_us=70, expire_at=6_070)),
    "none, append, id generated": Row(NONE, append(**BY_ITSELF), EventsAppended(1, 1, 0, 1),
                                      born(1, 1, 1, given=(), generated=GENERATED._replace(first=1, last=1))),
    "none, delete without life": Row(NONE, delete(5), None, reset(5, 1)),
    "none, delete for a life": Row(NONE, delete(5, life=1), None, AS_IT_WAS),
    "none, purge": Row(NONE, purge(), None, AS_IT_WAS),
    "none, purge at an offset": Row(NONE, purge(if_offset=OFFSET), None, AS_IT_WAS),
    # ------------------------------------------------------------------ no head, but an ended life
    "ended, mark": Row(ENDED, Mark("order|42", "m"), None, AS_IT_WAS),
    "ended, append": Row(ENDED, append(2), EventsAppended(1, 2, 0, 3), born(1, 2, 3)),
    "ended, append at 11": Row(ENDED, append(first=11), EventsAppended(11, 11, 10, 3), born(11, 11, 3)),
    "ended, append past the end": Row(ENDED, append(2, first=SEQ_NR_MAX), RefusedAppend("seq_nr_range", 0), AS_IT_WAS),
    "ended, append, 0 expected": Row(ENDED, append(expected=0), EventsAppended(1, 1, 0, 3), born(1, 1, 3)),
    "ended, append, 1 expected": Row(ENDED, append(expected=1), RefusedAppend("expected", 0), AS_IT_WAS),
    "ended, append, id of the life before": Row(ENDED, append(append_id="id-5"), EventsAppended(1, 1, 0, 3),
                                                born(1, 1, 3, given=(Remembered("id-5", "content", 1, 1, 60, 6_000),))),
    "ended, delete without life": Row(ENDED, delete(5), None, reset(5, 3)),
    "ended, delete for that life": Row(ENDED, delete(5, life=2), None, AS_IT_WAS),
    "ended, delete for the next life": Row(ENDED, delete(5, life=3), None, AS_IT_WAS),
    "ended, purge": Row(ENDED, purge(), None, AS_IT_WAS),
    "ended, purge at its offset": Row(ENDED, purge(if_offset=OFFSET), None, AS_IT_WAS),
    # ------------------------------------------------------------------ head: mark, and ids
    "head, mark": Row(HEAD, Mark("order|42", "m", at_least=9_000), None, AS_IT_WAS),
    "head, append, given id again": Row(HEAD, append(append_id="id-5"), Duplicate(LAST_GIVEN, 3), AS_IT_WAS),
    "head, append, generated id again": Row(HEAD, append(append_id="made-3", id_given=False),
                                            Duplicate(LAST_GENERATED, 3), AS_IT_WAS),
    "head, append, generated id given": Row(HEAD, append(append_id="made-3"), Duplicate(LAST_GENERATED, 3), AS_IT_WAS),
    "head, append, id again, expected no longer": Row(HEAD, append(append_id="id-5", expected=3),
                                                      Duplicate(LAST_GIVEN, 3), AS_IT_WAS),
    "head, append, id again, first taken": Row(HEAD, append(append_id="id-5", first=4),
                                               Duplicate(LAST_GIVEN, 3), AS_IT_WAS),
    "head, append, id again, other content": Row(HEAD, append(append_id="id-5", digest="other"),
                                                 RefusedAppend("append_id_reused", 5), AS_IT_WAS),
    "head, append, id again, other content, wrong expected": Row(
        HEAD, append(append_id="id-5", digest="other", expected=1), RefusedAppend("append_id_reused", 5), AS_IT_WAS),
    # ------------------------------------------------------------------ head: expected, first, range
    "head, append, expected": Row(HEAD, append(expected=5), EventsAppended(6, 6, 5, 3), grown(6, 6)),
    "head, append, 0 expected": Row(HEAD, append(expected=0), RefusedAppend("expected", 5), AS_IT_WAS),
    "head, append, more expected": Row(HEAD, append(expected=6), RefusedAppend("expected", 5), AS_IT_WAS),
    "head, append, expected wrong, first right": Row(HEAD, append(expected=4, first=9), RefusedAppend("expected", 5),
                                                     AS_IT_WAS),
    "head, append, expected right, first wrong": Row(HEAD, append(expected=5, first=5), RefusedAppend("first", 5),
                                                     AS_IT_WAS),
    "head, append at 5": Row(HEAD, append(first=5), RefusedAppend("first", 5), AS_IT_WAS),
    "head, append at 1": Row(HEAD, append(first=1), RefusedAppend("first", 5), AS_IT_WAS),
    "head, append at 6": Row(HEAD, append(first=6), EventsAppended(6, 6, 5, 3), grown(6, 6)),
    "head, append at 9": Row(HEAD, append(2, first=9), EventsAppended(9, 10, 5, 3), grown(9, 10)),
    "head, append, both": Row(HEAD, append(expected=5, first=9), EventsAppended(9, 9, 5, 3), grown(9, 9)),
    "head, append, 100 empty segments": Row(HEAD, append(first=FAR), EventsAppended(FAR, FAR, 5, 3), grown(FAR, FAR)),
    "head, append, 101 empty segments": Row(HEAD, append(first=FAR + 1), RefusedAppend("seq_nr_range", 5), AS_IT_WAS),
    "full, append": Row(FULL, append(), RefusedAppend("seq_nr_range", SEQ_NR_MAX), AS_IT_WAS),
    "full, append, expected": Row(FULL, append(expected=SEQ_NR_MAX), RefusedAppend("seq_nr_range", SEQ_NR_MAX),
                                  AS_IT_WAS),
    "full, append, id again": Row(FULL, append(append_id="id-5"), Duplicate(LAST_GIVEN, 3), AS_IT_WAS),
    # ------------------------------------------------------------------ head: what an append changes
    "head, append": Row(HEAD, append(3), EventsAppended(6, 8, 5, 3), grown(6, 8)),
    "head, append, id generated": Row(HEAD, append(**BY_ITSELF), EventsAppended(6, 6, 5, 3),
                                      grown(6, 6, given=(LAST_GIVEN,), generated=GENERATED)),
    "empty, append": Row(EMPTY, append(), EventsAppended(6, 6, 5, 3), grown(6, 6, EMPTY)),
    "empty, append, 0 expected": Row(EMPTY, append(expected=0), RefusedAppend("expected", 5), AS_IT_WAS),
    "empty, append, 5 expected": Row(EMPTY, append(expected=5), EventsAppended(6, 6, 5, 3), grown(6, 6, EMPTY)),
    "beyond, append": Row(BEYOND, append(), EventsAppended(8, 8, 5, 3), grown(8, 8, BEYOND)),
    "beyond, append at 7": Row(BEYOND, append(first=7), RefusedAppend("first", 5), AS_IT_WAS),
    "beyond, append at 8": Row(BEYOND, append(first=8), EventsAppended(8, 8, 5, 3), grown(8, 8, BEYOND)),
    "beyond, append, 5 expected": Row(BEYOND, append(expected=5), EventsAppended(8, 8, 5, 3), grown(8, 8, BEYOND)),
    "beyond, append, 7 expected": Row(BEYOND, append(expected=7), RefusedAppend("expected", 5), AS_IT_WAS),
    "skipped, append": Row(SKIPPED, append(), EventsAppended(6, 6, 3, 3), grown(6, 6)),
    "skipped, append at 4": Row(SKIPPED, append(first=4), RefusedAppend("first", 5), AS_IT_WAS),
    # ------------------------------------------------------------------ expiry
    "head, expiry set": Row(HEAD, append(expire_after_us=70), EventsAppended(6, 6, 5, 3),
                            grown(6, 6, expire_after_us=70, expire_at=6_070)),
    "expiring, kept": Row(EXPIRING, append(expire_after_us=KEEP_EXPIRY), EventsAppended(6, 6, 5, 3),
                          grown(6, 6, expire_at=6_070)),
    "expiring, changed": Row(EXPIRING, append(expire_after_us=80), EventsAppended(6, 6, 5, 3),
                             grown(6, 6, expire_after_us=80, expire_at=6_080)),
    "expiring, removed": Row(EXPIRING, append(expire_after_us=NO_EXPIRY), EventsAppended(6, 6, 5, 3),
                             grown(6, 6, expire_after_us=None, expire_at=None)),
    "expiring, refused": Row(EXPIRING, append(expected=1, expire_after_us=80), RefusedAppend("expected", 5), AS_IT_WAS),
    "expiring, id again": Row(EXPIRING, append(append_id="id-5", expire_after_us=80), Duplicate(LAST_GIVEN, 3),
                              AS_IT_WAS),
    "expiring, delete": Row(EXPIRING, delete(3, life=3), EventsDeleted(3, 3, 3), deleted(3)),
    # ------------------------------------------------------------------ delete
    "head, delete": Row(HEAD, delete(4, life=3), EventsDeleted(3, 3, 4), deleted(4)),
    "head, delete without life": Row(HEAD, delete(4), EventsDeleted(3, 3, 4), deleted(4)),
    "head, delete all": Row(HEAD, delete(5, life=3), EventsDeleted(3, 3, 5), deleted(5)),
    "head, delete beyond": Row(HEAD, delete(9, life=3), EventsDeleted(3, 3, 5), deleted(5)),
    "head, delete beyond without life": Row(HEAD, delete(SEQ_NR_MAX), EventsDeleted(3, 3, 5), deleted(5)),
    "head, delete again": Row(HEAD, delete(2, life=3), EventsDeleted(3, 3, 2), deleted(2)),
    "head, delete lower": Row(HEAD, delete(1, life=3), EventsDeleted(3, 3, 2), deleted(2)),
    "head, delete for the life before": Row(HEAD, delete(4, life=2), None, AS_IT_WAS),
    "head, delete for the life after": Row(HEAD, delete(4, life=4), None, AS_IT_WAS),
    "empty, delete": Row(EMPTY, delete(9, life=3), EventsDeleted(3, 6, 5), deleted(5)),
    "beyond, delete": Row(BEYOND, delete(9, life=3), EventsDeleted(3, 8, 7), deleted(7)),
    "half removed, delete again": Row(HALF_REMOVED, delete(4, life=3), EventsDeleted(3, 3, 4), deleted(4)),
    "half removed, delete more": Row(HALF_REMOVED, delete(5, life=3), EventsDeleted(3, 3, 5), deleted(5)),
    "half removed, append": Row(HALF_REMOVED, append(), EventsAppended(6, 6, 5, 3), grown(6, 6, HALF_REMOVED)),
    "skipped, delete": Row(SKIPPED, delete(4, life=3), EventsDeleted(3, 3, 4), deleted(4)),
    # ------------------------------------------------------------------ purge
    "head, purge": Row(HEAD, purge(), LifePurged(3, 5), EndedLife(3, 3, 60)),
    "head, purge at its offset": Row(HEAD, purge(if_offset=OFFSET), LifePurged(3, 5), EndedLife(3, 3, 60)),
    "head, purge at an earlier offset": Row(HEAD, purge(if_offset=OFFSET - 1), None, AS_IT_WAS),
    "head, purge at a later offset": Row(HEAD, purge(if_offset=OFFSET + 1), None, AS_IT_WAS),
    "empty, purge": Row(EMPTY, purge(), LifePurged(3, 5), EndedLife(3, 3, 60)),
    "beyond, purge": Row(BEYOND, purge(), LifePurged(3, 7), EndedLife(3, 3, 60)),
}  # fmt: skip


@pytest.mark.req("J5", "J10", "J11", "J13", "J14", "J15", "J16", "J17", "J18", "J20", "J21", "J22", "J24")
@pytest.mark.req("J36", "J39", "J40", "J45", "J46", "J47", "J101")
@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
def test_the_table(row: Row) -> None:
    state, effect = fold(row.state, row.action, NOW, FoldRules(OTHER_SIZE, KEPT))
    assert effect == row.effect
    assert type(effect) is type(row.effect)
    if isinstance(row.changes, EndedLife):
        assert state == row.changes
        assert isinstance(state, EndedLife)
    elif row.changes is AS_IT_WAS:
        assert state is row.state
    elif isinstance(row.state, Head):
        assert isinstance(state, Head)
        assert state._asdict() == row.state._asdict() | row.changes
    else:
        assert isinstance(state, Head)
        assert state._asdict() == row.changes


@pytest.mark.req("J13")
def test_the_table_has_every_state_with_every_action() -> None:
    kinds = {(type(row.state), type(row.action)) for row in TABLE.values()}
    assert kinds == {
        (state, action) for state in (type(None), EndedLife, Head) for action in (Mark, Append, Delete, Purge)
    }


ACTIONS = {
    "mark": Mark("order|42", "m"),
    "append": append(),
    "append, id remembered": append(append_id="id-5"),
    "append, refused": append(expected=77),
    "delete": delete(5),
    "delete for a life": delete(5, life=3),
    "purge": purge(),
    "purge at its offset": purge(if_offset=OFFSET),
}


@pytest.mark.req("J13")
@pytest.mark.parametrize("offset", [0, OFFSET - 1, OFFSET])
@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
@pytest.mark.parametrize("state", [s for s in STATES.values() if s], ids=[n for n, s in STATES.items() if s])
def test_what_a_state_has_in_it_is_passed_over(state: State, action: Action, offset: int) -> None:
    assert fold(state, action, Place(3, offset, 9_000), RULES) == (state, PASSED_OVER)
    assert fold(state, action, Place(3, OFFSET + 1, 9_000), RULES)[1] != PASSED_OVER


def applied(*actions: Action, size: int = SIZE, kept: int = KEPT) -> tuple[State, list[Effect]]:
    """The state after these actions on a new key, and their effects."""
    state: State = None
    effects = []
    for offset, action in enumerate(actions):
        state, effect = fold(state, action, Place(0, offset, 1_000 + offset), FoldRules(size, kept))
        effects.append(effect)
    return state, effects


@pytest.mark.req("J22", "J39")
@pytest.mark.parametrize("kept", [1, 2, 32, 256])
def test_a_head_remembers_so_many_given_ids_and_one_generated(kept: int) -> None:
    given = [append(append_id=f"given-{n}") for n in range(kept + 1)]
    made = [append(append_id=f"made-{n}", id_given=False) for n in range(3)]
    state, _ = applied(*given, *made, kept=kept)
    last = kept + 4
    assert isinstance(state, Head)
    assert [answer.append_id for answer in state.given] == [f"given-{n}" for n in range(1, kept + 1)]
    assert state.generated is not None
    assert state.generated == Remembered("made-2", "content", last, last, last - 1, 1_000 + last - 1)

    later, rules = Place(0, 1_000, 9_000), FoldRules(SIZE, kept)
    for action in (*given[1:], made[-1]):
        assert isinstance(fold(state, action, later, rules)[1], Duplicate)
    for forgotten in (given[0], *made[:-1]):  # judged anew
        assert fold(state, forgotten, later, rules)[1] == EventsAppended(last + 1, last + 1, last, 1)
        assert fold(state, forgotten._replace(expected=last - 1), later, rules)[1] == RefusedAppend("expected", last)
    # What was forgotten and came again is the youngest now.
    again, _ = fold(state, given[0], later, rules)
    assert isinstance(again, Head)
    assert [answer.append_id for answer in again.given] == [*(f"given-{n}" for n in range(2, kept + 1)), "given-0"]


@pytest.mark.req("J39")
def test_refused_appends_and_ended_lives_are_not_remembered() -> None:
    wanted = append(append_id="wanted", expected=1)
    _, effects = applied(wanted, append(append_id="other"), wanted)
    assert effects == [RefusedAppend("expected", 0), EventsAppended(1, 1, 0, 1), EventsAppended(2, 2, 1, 1)]
    _, effects = applied(append(), purge(), append())
    assert effects[2] == EventsAppended(1, 1, 0, 2)


@pytest.mark.req("J39", "J40")
def test_a_duplicate_gets_the_first_answer_whatever_came_after() -> None:
    first = append(2, append_id="wanted", expected=0)
    _, effects = applied(first, append(append_id="more"), delete(3, life=1), first, first._replace(digest="other"))
    assert effects[3] == Duplicate(Remembered("wanted", "content", 1, 2, 0, 1_000), 1)
    assert effects[4] == RefusedAppend("append_id_reused", 3)


@pytest.mark.req("J20")
def test_a_delete_behind_a_purge_does_not_bring_the_key_back() -> None:
    state, _ = applied(append(5), purge(), delete(5, life=1))
    assert state == EndedLife(1, 0, 1)
    state, effects = applied(append(5), purge(), append(2, append_id="next"), delete(5, life=1))
    assert isinstance(state, Head)
    assert (state.life, state.seq_nr, state.delete_to, effects[3]) == (2, 2, 0, None)


@pytest.mark.req("J15", "J47")
def test_a_reset_key_goes_on_behind_its_number() -> None:
    _, effects = applied(delete(5), append(first=1), append(expected=5))
    assert effects == [None, RefusedAppend("first", 5), EventsAppended(6, 6, 5, 1)]


@pytest.mark.req("J46")
def test_a_journal_that_was_deleted_goes_on_counting() -> None:
    state, effects = applied(append(5), delete(5, life=1), append(append_id="next"))
    assert effects[1:] == [EventsDeleted(1, 1, 5), EventsAppended(6, 6, 5, 1)]
    assert isinstance(state, Head)
    assert (state.seq_nr, state.delete_to) == (6, 5)


@pytest.mark.req("J5")
@pytest.mark.parametrize(
    ("seq_nr", "segment"), [(1, 0), (10, 0), (11, 1), (20, 1), (21, 2), (SEQ_NR_MAX, (2**63 - 2) // 10)]
)
def test_numbers_count_from_1_and_segments_from_0(seq_nr: int, segment: int) -> None:
    assert segment_of(seq_nr, 10) == segment


@pytest.mark.req("J24", "J45")
def test_a_gap_is_measured_by_the_heads_own_segments() -> None:
    small, _ = applied(append(), size=2)
    large, _ = applied(append(), size=1_000)
    far = append(append_id="far", first=250)
    for size in (2, 1_000):  # what the store says by now does not matter
        assert fold(small, far, NOW, FoldRules(size, KEPT))[1] == RefusedAppend("seq_nr_range", 1)
        assert fold(large, far, NOW, FoldRules(size, KEPT))[1] == EventsAppended(250, 250, 1, 1)


@pytest.mark.req("J12")
def test_the_fold_is_pure() -> None:
    """It can use nothing but values: no clock, no input or output, no settings but those it is given."""
    tree = ast.parse(inspect.getsource(fold_module))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    values = {f"strandline.values.{module}" for module in ("actions", "heads", "tuples")}
    assert imported == {"__future__", "typing", *values}
    assert not [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.Global))]
    assert "value" not in Append._fields
    assert {type(state) for state in STATES.values()} == {type(None), EndedLife, Head}
