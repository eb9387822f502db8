"""Adds and dones inside a transaction of the caller's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import apsw
import psycopg
import pytest

import strandline
from strandline.errors import InvalidInput, LeaseLost
from strandline.work.claims import Claim
from strandline.work.worker import Worker
from tests.work.test_worker import running, until
from tests.work.worlds import World, declaration, one, pages


@contextmanager
def caller(world: World) -> Iterator[Any]:
    """A connection of somebody else's to the same database, with rows as dictionaries and a search path of its own."""
    if world.is_sqlite:
        connection = apsw.Connection(world.place.removeprefix("sqlite:"))
        connection.row_trace = lambda _cursor, row: {"row": row}
        connection.set_busy_timeout(5000)
        try:
            yield connection
        finally:
            connection.close()
        return
    url = world.place.partition("&schema=")[0]
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as theirs:
        theirs.execute("SET search_path = pg_catalog")
        theirs.commit()
        yield theirs


def begin(world: World, tx: Any) -> None:
    tx.execute("BEGIN IMMEDIATE" if world.is_sqlite else "SELECT")


@pytest.mark.req("W71", "W72", "RW8")
def test_an_add_commits_with_its_caller(world: World) -> None:
    work = world.work()
    with caller(world) as tx:
        begin(world, tx)
        assert work.add(**one("a"), tx=tx).outcome == "inserted"
        assert work.add_many([one("b"), one("a", "2")], tx=tx)[1].outcome == "merged"
        assert work.entries() == []
        tx.execute("ROLLBACK")
        assert work.entries() == []
        begin(world, tx)
        work.add(**one("c"), tx=tx)
        with pytest.raises(InvalidInput):
            work.add(**one("d", expiration_date=world.clock.now - 1), tx=tx)
        work.add(**one("e"), tx=tx)  # the refusal has left the transaction usable
        tx.execute("COMMIT")
    assert pages(work.cursor("w").claim(9)) == ["c", "e"]


@pytest.mark.req("W71", "W73", "W74", "RW8")
def test_done_with_its_effect_or_not_at_all(world: World) -> None:
    work = world.work()
    work.add_many([one("a"), one("b")])
    first, second = work.cursor("w").claim(9).claims
    with caller(world) as tx:
        begin(world, tx)
        tx.execute(f"CREATE TABLE {'effect' if world.is_sqlite else 'pg_temp.effect'} (id bigint)")
        first.done(tx=tx)
        tx.execute("ROLLBACK")
        assert {entry.status for entry in work.entries()} == {"P"}, "as it was"
        work.drop(second.entry.id)
        fresh = work.claim_of(first.entry.id, first.fence)
        begin(world, tx)
        with pytest.raises(LeaseLost) as lost:
            work.done_many([fresh, second], tx=tx)
        assert lost.value.entries == [second.entry.id]
        tx.execute("COMMIT")
        assert len(work.entries()) == 1, "none was ended"
        begin(world, tx)
        world.clock.pass_s(40)
        fresh.done(tx=tx)
        tx.execute("COMMIT")
    assert work.entries() == []


@pytest.mark.req("W71", "W80")
def test_an_id_goes_with_its_transaction(world: World) -> None:
    work = world.work()
    with caller(world) as tx:
        begin(world, tx)
        assert work.add(**one("a"), id="x", tx=tx).outcome == "inserted"
        assert work.add(**one("a"), id="x", tx=tx).outcome == "repeated"
        tx.execute("ROLLBACK")
    assert work.add(**one("a"), id="x").outcome == "inserted"


@pytest.mark.req("W71", "W44")
def test_a_dead_letter_is_added_again_in_a_transaction(world: World) -> None:
    work = world.work(max_timeouts=1)
    work.add(**one("a"))
    work.cursor("w").claim(1).claims[0].fail("no")
    (letter,) = work.dead()
    with caller(world) as tx:
        begin(world, tx)
        work.requeue(letter.dead_id, tx=tx)
        tx.execute("ROLLBACK")
        assert (len(work.dead()), work.entries()) == (1, [])


@pytest.mark.req("W71", "W72")
def test_transactions_that_are_refused(world: World, tmp_path: Any) -> None:
    work = world.work()
    for tx in (object(), "tx"):
        with pytest.raises(InvalidInput) as refused:
            work.add(**one("a"), tx=tx)
        assert refused.value.code == "tx_foreign"
    if world.is_sqlite:
        other = apsw.Connection(str(tmp_path / "other.db"))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InvalidInput) as refused:
            work.add(**one("a"), tx=other)
        assert refused.value.code == "tx_foreign"
        other.close()
    else:
        with caller(world) as tx:
            tx.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            with pytest.raises(InvalidInput, match="read committed") as refused:
                work.add(**one("a"), tx=tx)
            assert refused.value.code == "tx_foreign"
    assert work.entries() == []


@pytest.mark.req("W72")
def test_a_connection_without_a_transaction_is_refused(world: World) -> None:
    """`done` there would be committed at once, and the effect that comes next might not be."""
    work = world.work()
    work.add(**one("a"))
    (claim,) = work.cursor("w").claim(1).claims
    with caller(world) as tx:
        if not world.is_sqlite:
            tx.autocommit = True
        for call in (claim.done, lambda tx: work.add(**one("b"), tx=tx)):
            with pytest.raises(InvalidInput) as refused:
                call(tx=tx)
            assert refused.value.code == "tx_idle"
            assert "BEGIN" in (refused.value.hint or "")
    assert [entry.status for entry in work.entries()] == ["P"]
    claim.done()


@pytest.mark.req("W73")
def test_an_open_add_delays_its_key_alone(postgres_world: World) -> None:
    """Between the add and its commit: a done of the running entry, an add of the key, an add of another key."""
    work = postgres_world.real()
    work.add(**one("a"))
    (claim,) = work.cursor("w").claim(1).claims
    ended: list[str] = []
    with caller(postgres_world) as tx:
        assert work.add(**one("a", "behind"), tx=tx).outcome == "behind"
        assert work.add(**one("b")).outcome == "inserted"
        assert pages(work.cursor("v").claim(5)) == ["b"]
        claim.heartbeat()

        def end() -> None:
            claim.done()
            ended.append("done")

        thread = Thread(target=end)
        thread.start()
        thread.join(0.2)
        assert ended == [], "done waits for what goes behind"
        tx.commit()
        thread.join(5)
    assert ended == ["done"]
    (found,) = work.cursor("v").claim(5).claims
    assert found.entry.data["url"] == "behind"


@pytest.mark.req("W73")
def test_an_open_done_holds_its_entry(postgres_world: World) -> None:
    work = postgres_world.work()
    work.add(**one("a"))
    (claim,) = work.cursor("w").claim(1).claims
    with caller(postgres_world) as tx:
        claim.done(tx=tx)
        postgres_world.clock.pass_s(60)
        assert work.cursor("v").claim(5).claims == [], "though its lease is over"
        tx.rollback()
    assert pages(work.cursor("v").claim(5)) == ["a"]


@pytest.mark.req("W71", "W72", "RW8")
def test_done_that_was_rolled_back_is_said_again(world: World) -> None:
    """done(tx), rolled back, done(tx) again with the effect once more: the entry goes with the second one."""
    work = world.work()
    work.add(**one("a"))
    (claim,) = work.cursor("w").claim(1).claims
    with caller(world) as tx:
        begin(world, tx)
        claim.done(tx=tx)
        tx.execute("ROLLBACK")
        begin(world, tx)
        claim.done(tx=tx)
        tx.execute("COMMIT")
        assert work.entries() == []
        begin(world, tx)
        with pytest.raises(LeaseLost):
            claim.done(tx=tx)  # else what follows would be committed a second time
        tx.execute("ROLLBACK")


@pytest.mark.req("W71", "W75")
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_the_transaction_decides_what_became_of_a_done_within_a_handler(world: World, end: str) -> None:
    """Committed, the worker adds nothing to it; rolled back, and the handler failed, the entry comes back."""
    with strandline.connect("memory:", work=world.place) as s:
        work = s.work(declaration(retry_delay_s=0.01))
        work.add(**one("a"))
        runs: list[bool] = []

        def handle(claim: Claim) -> None:
            with caller(world) as tx:
                begin(world, tx)
                claim.done(tx=tx)
                tx.execute(end if len(runs) == 0 else "COMMIT")
            runs.append(claim.is_lost)
            if end == "ROLLBACK" and len(runs) == 1:
                raise ValueError("the effect failed")

        with running(Worker(s, {"thumbs": handle})):
            until(lambda: work.counts()[:5] == (0, 0, 0, 0, 0) and runs)
        assert runs == ([False] if end == "COMMIT" else [False, False])
