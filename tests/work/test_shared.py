"""What a journal promises it promises beside a neighbour in the same tables, whose keys and dates are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from strandline.errors import NotFound
from strandline.work.declaration import WorkDeclaration
from strandline.work.journal import WorkJournal
from tests.work import test_contract, test_races, test_waking
from tests.work.worlds import S, World, declaration, one

TESTS: list[Callable[[World], None]] = [
    test_contract.test_an_add_merges_while_its_key_waits,
    test_contract.test_an_add_while_its_key_is_processed_waits_behind,
    test_contract.test_two_versions_of_columns,
    test_contract.test_slow_entries_wait_for_a_pass_without_others,
    test_contract.test_a_lapse_counts_once_whoever_sees_it,
    test_contract.test_dead_letters_and_newer_data,
    test_races.test_many_add_one_new_key,
    test_races.test_each_is_handed_out_once,
    test_waking.test_an_add_wakes_who_waits,
]


class Shared(World):
    """A place whose journals share their tables with one that has entries of every kind."""

    def __init__(self, place: str, *, real: bool) -> None:
        super().__init__(place)
        neighbour = declaration("busy", tables="shared", lease_s=3600)
        busy = super().real(neighbour) if real else super().work(neighbour)
        later = one("later", process_date=busy.now_us() + 3600 * S)
        busy.add_many([*(one(page, priority=0) for page in "abc"), later, one("p1", priority=0)])
        self.held = busy.cursor("busy").claim(2).claims
        busy.add(**one(self.held[0].entry.key["page"], "behind"))
        self.busy, self.before = busy, busy.counts()[:6]

    def work(self, declared: WorkDeclaration | str | None = None, **more: Any) -> WorkJournal:
        if declared is None:
            clock = more.pop("clock", None)
            return super().work(declaration(**{"tables": "shared", **more}), clock=clock)
        return super().work(declared, **more)

    def real(self, declared: WorkDeclaration | None = None, **more: Any) -> WorkJournal:
        return super().real(declared or declaration(**{"tables": "shared", **more}))


@pytest.mark.req("W70", "W79")
@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__.removeprefix("test_"))
def test_beside_a_neighbour(world: World, test: Callable[[World], None]) -> None:
    shared = Shared(world.place, real=test.__module__ != test_contract.__name__)  # one clock for all of a set
    try:
        test(shared)
        assert shared.busy.counts()[:6] == shared.before, "nothing of the neighbour's was touched"
        assert {entry.id for entry in shared.busy.entries(status="P")} == {claim.entry.id for claim in shared.held}
    finally:
        shared.close()


@pytest.mark.req("W70", "W43", "W44")
def test_dead_letters_of_journals_that_share_their_tables(world: World) -> None:
    """No journal counts, lists, acknowledges or puts back the letters of another."""
    first, second = (world.work(declaration(name, tables="shared", max_timeouts=1)) for name in ("first", "second"))
    for journal, page in ((first, "a"), (second, "b")):
        journal.add(**one(page))
        (claim,) = journal.cursor("w").claim(1).claims
        claim.fail(f"no {page}")
    for journal, page in ((first, "a"), (second, "b")):
        (letter,) = journal.dead()
        assert (letter.key, letter.reason) == ({"page": page}, f"failed: no {page}")
        assert [alert.dead_id for alert in journal.alerts()] == [letter.dead_id]
        assert (journal.counts().dead, journal.counts().unacknowledged) == (1, 1)
    (own,), (other) = first.dead(), second.dead()[0]
    with pytest.raises(NotFound):
        first.acknowledge(other.dead_id)
    with pytest.raises(NotFound):
        first.requeue(other.dead_id)
    first.requeue(own.dead_id)
    assert (first.counts().dead, second.counts().dead, second.counts().unacknowledged) == (0, 1, 1)
    assert second.cursor("w").claim(5).claims == []
    assert [claim.entry.key["page"] for claim in first.cursor("w").claim(5).claims] == ["a"]


@pytest.mark.req("W70", "W6")
def test_settings_and_kept_letters_of_journals_that_share_their_tables(world: World) -> None:
    """Only the tables' own settings are shared; a tick forgets no letter of another journal."""
    first = world.work(declaration("first", tables="shared", max_timeouts=1))
    second = world.work(declaration("second", tables="shared", max_timeouts=1, dead_keep_s=60.0, lease_s=7))
    first.add(**one("a"))
    first.cursor("w").claim(1).claims[0].fail("no")
    world.clock.pass_s(3600)
    second.tick()
    assert len(first.dead()) == 1
    world.work(declaration("second", tables="shared", lease_s=77))
    for journal in (first, world.work("first")):
        journal.counts()
        journal.cursor("w").claim(1)  # whoever looks has the newest settings
        assert (journal.settings.lease_s, journal.settings.max_timeouts, journal.settings.dead_keep_s) == (30, 1, None)
    second.cursor("w").claim(1)
    assert (second.settings.lease_s, second.settings.max_timeouts) == (77, 3)


@pytest.mark.req("W70", "W60")
def test_an_add_wakes_nobody_who_waits_for_another_journal(world: World) -> None:
    """Both listen; the one whose journal was added to is told, the other is not."""
    first, second = (world.real(declaration(name, tables="shared", poll_s=600.0)) for name in ("first", "second"))
    cursors = {journal: journal.cursor("w") for journal in (first, second)}
    for journal, cursor in cursors.items():
        while journal.wait(0.2):  # what was told before it listened
            cursor.claim(1)
    second.add(**one("a"))
    assert second.wait(10)
    assert not first.wait(0.05)
    first.add(**one("a"))
    assert first.wait(10)
