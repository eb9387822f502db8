"""What becomes of events whose handler fails, on both databases."""

from __future__ import annotations

import re
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from strandline import Event, InvalidInput, Key, NotFound
from strandline.connect import Strandline
from strandline.projection.definition import BySlices, Projection
from strandline.projection.handler_tx import ends_transaction
from strandline.testing import carry
from tests.journal.damage import rot
from tests.journal.worlds import world
from tests.projection.worlds import (
    BACKENDS,
    ORDERS,
    QUICK,
    Table,
    caught_up,
    check_exactly_once,
    error_of,
    range_of,
    running,
    until,
)
from tests.query.filling import carry_all, key_in, put

A, B, C = (Key("order", name) for name in ("a", "b", "c"))


def failing(table: Table, key: Key, seq_nr: int, times: int = 10**9, error: Exception | None = None) -> Any:
    """A handler that fails at an event, so many times, after it has written."""
    left = [times]

    def handle(tx: Any, event: Any) -> None:
        table.add(tx, event)
        if (event.key, event.seq_nr) == (key, seq_nr) and left[0] > 0:
            left[0] -= 1
            raise error or ValueError(f"no {event.seq_nr}")

    return handle


def fill(s: Strandline, count: int = 5) -> None:
    for _ in range(count):
        for key in (A, B, C):
            put(s, key)
    carry_all(s)


@pytest.mark.req("P49", "P58", "RP8")
def test_a_failure_that_passes(s: Strandline, table: Table) -> None:
    fill(s)
    handle = failing(table, B, 3, times=2)
    with running(s, Projection("totals", ORDERS, handle, retries=5, **QUICK)):
        until(lambda: caught_up(s))
    check_exactly_once(s, table)
    assert not s.projections.dead_letters("totals")


@pytest.mark.req("P58", "P60", "P65", "RP8")
def test_skip(s: Strandline, table: Table) -> None:
    fill(s)
    with running(s, Projection("totals", ORDERS, failing(table, B, 3), retries=2, on_failure="skip", **QUICK)):
        until(lambda: caught_up(s))
        (letter,) = s.projections.dead_letters("totals")
        assert (letter.key, letter.life, letter.seq_nr, letter.reason, letter.attempts) == (str(B), 1, 3, "skipped", 3)
        assert (letter.error_type, letter.message) == ("ValueError", "no 3")
        assert letter.first_at <= letter.last_at
        assert table.of(B) == [1, 2, 4, 5]
        assert table.of(A) == table.of(C) == [1, 2, 3, 4, 5]
        assert range_of(s, B).dead_letters == 1
        s.projections.redeliver("totals", B, 3)
        until(lambda: s.projections.status("totals").requests[0].refused)
        assert "no 3" in str(s.projections.status("totals").requests[0].refused)
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
        s.projections.redeliver("totals", B, 3)
        until(lambda: not s.projections.dead_letters("totals"))
    assert table.of(B) == [1, 2, 4, 5, 3]


@pytest.mark.req("P65")
def test_a_letter_of_an_event_that_fails_again_counts_on(s: Strandline, table: Table) -> None:
    """The first time stays, the last one and its error are the new ones."""
    fill(s, 1)
    errors = iter(range(100))

    def handle(tx: Any, event: Any) -> None:
        if event.key == B:
            raise ValueError(f"no {next(errors)}")
        table.add(tx, event)

    with running(s, Projection("totals", ORDERS, handle, retries=1, on_failure="park", **QUICK)):
        until(lambda: s.projections.dead_letters("totals"))
        (first,) = s.projections.dead_letters("totals")
        s.projections.unpark("totals", B)
        until(lambda: s.projections.dead_letters("totals") != [first])
        (again,) = s.projections.dead_letters("totals")
    assert (first.attempts, first.message, first.last_at) == (2, "no 1", first.first_at)
    assert (again.attempts, again.message, again.first_at) == (4, "no 3", first.first_at)
    assert again.last_at > first.last_at
    assert again[:5] == first[:5]


@pytest.mark.req("P65")
@pytest.mark.parametrize("policy", ["skip", "park"])
def test_a_letter_says_why_in_so_many_characters_and_has_no_payload(s: Strandline, table: Table, policy: Any) -> None:
    s.journal.append(A, [Event("Placed", {"name": "a secret"})])
    carry_all(s)
    handle = failing(table, A, 1, error=RuntimeError("é" * 1001))
    with running(s, Projection("totals", ORDERS, handle, retries=0, on_failure=policy, **QUICK)):
        until(lambda: s.projections.dead_letters("totals"))
    (letter,) = s.projections.dead_letters("totals")
    assert (letter.error_type, letter.message, letter.attempts) == ("RuntimeError", "é" * 1000, 1)
    assert letter.reason == {"skip": "skipped", "park": "parked"}[policy]
    assert "a secret" not in str(letter)


@pytest.mark.req("P65")
def test_discard_and_letters_whose_event_is_gone(s: Strandline, table: Table) -> None:
    fill(s)
    handle = failing(table, B, 3)
    with running(s, Projection("totals", ORDERS, handle, retries=0, on_failure="skip", **QUICK)):
        until(lambda: caught_up(s))
        s.journal.delete(B, to=4)
        carry_all(s)
        s.projections.redeliver("totals", B, 3)
        until(lambda: s.projections.status("totals").requests[0].refused)
    s.projections.discard("totals", B, 3)
    assert not s.projections.dead_letters("totals")
    for call in (s.projections.discard, s.projections.redeliver):
        with pytest.raises(NotFound) as refused:
            call("totals", B, 3)
        assert refused.value.code == "dead_letter"


@pytest.mark.req("P59", "P82", "RP8")
def test_fail(s: Strandline, table: Table) -> None:
    """The range fails and starts again at the same event; others go on."""
    first, other = key_in(0, s.log.partitions), key_in(1, s.log.partitions)
    for _ in range(5):
        put(s, first)
        put(s, other)
    carry_all(s)
    handle = failing(table, first, 3, times=7)
    with running(s, Projection("totals", ORDERS, handle, retries=1, **QUICK)):
        until(lambda: table.of(other) == [1, 2, 3, 4, 5])
        error = error_of(s, first)
        assert (error["key"], error["seq_nr"], error["error"], error["message"]) == (
            str(first),
            3,
            "ValueError",
            "no 3",
        )
        until(lambda: caught_up(s))
        assert range_of(s, first).last_error is None
    check_exactly_once(s, table)


@pytest.mark.req("P59")
def test_a_failed_range_starts_again_after_its_delay_and_not_before(s: Strandline, table: Table) -> None:
    put(s, B)
    carry_all(s)
    tries: list[float] = []

    def handle(tx: Any, event: Any) -> None:
        tries.append(time.monotonic())
        if len(tries) < 4:
            raise ValueError("not yet")
        table.add(tx, event)

    delays = {"retries": 0, "restart_min_s": 0.2, "restart_max_s": 0.4}
    with running(s, Projection("totals", ORDERS, handle, **{**QUICK, **delays})):
        until(lambda: table.of(B) == [1])
    waited = [later - earlier for earlier, later in pairwise(tries)]
    assert [wait >= 0.8 * least for wait, least in zip(waited, (0.2, 0.4, 0.4), strict=True)] == [True] * 3


@pytest.mark.req("P61", "P62", "P102", "RP8")
def test_park_and_unpark(s: Strandline, table: Table) -> None:
    fill(s)
    parking = {**QUICK, "retries": 0, "on_failure": "park"}
    with running(s, Projection("totals", ORDERS, failing(table, B, 3), **parking)):
        until(lambda: caught_up(s))
        assert table.of(B) == [1, 2]
        assert table.of(A) == table.of(C) == [1, 2, 3, 4, 5]
        assert s.projections.parked("totals") == [str(B)]
        assert range_of(s, B).parked == 1
    fill(s, 1)
    with running(s, Projection("totals", ORDERS, failing(table, B, 5), **parking)):  # waits after a restart, too
        until(lambda: caught_up(s) and table.of(A)[-1:] == [6])
        assert table.of(B) == [1, 2]
        s.projections.unpark("totals", B)
        until(lambda: not s.projections.status("totals").requests)
        assert table.of(B) == [1, 2, 3, 4]  # a new failure parks it again
        assert s.projections.parked("totals") == [str(B)]
    with running(s, Projection("totals", ORDERS, table.add, **parking)):
        s.projections.unpark("totals", B)
        until(lambda: not s.projections.status("totals").requests)
        assert table.of(B) == [1, 2, 3, 4, 5, 6]
        assert not s.projections.parked("totals")
        fill(s, 1)
        until(lambda: caught_up(s) and table.of(B)[-1:] == [7])
    check_exactly_once(s, table)
    assert not s.projections.dead_letters("totals")
    with pytest.raises(NotFound) as refused:
        s.projections.unpark("totals", B)
    assert refused.value.code == "parked_key"


@pytest.mark.req("P62")
def test_unpark_goes_as_far_as_the_range_may_read_and_no_further(s: Strandline, table: Table) -> None:
    """The store has a further event of the key, but another partition of the range is behind it."""
    key, other = key_in(0, s.log.partitions), key_in(1, s.log.partitions)
    put(s, key, 3)
    put(s, other)
    carry_all(s)
    parking = {**QUICK, "retries": 0, "on_failure": "park"}
    with running(s, Projection("totals", ORDERS, failing(table, key, 2), **parking)):
        until(lambda: caught_up(s) and s.projections.parked("totals"))
    assert s.projections.rescale("totals", 1)
    put(s, other)
    put(s, key)
    carry(s, partition=0)
    with running(s, Projection("totals", ORDERS, table.add, **parking)):
        s.projections.unpark("totals", key)
        until(lambda: not s.projections.status("totals").requests)
        assert table.of(key) == [1, 2, 3]
        carry_all(s)
        until(lambda: table.of(key) == [1, 2, 3, 4])
    check_exactly_once(s, table)


@pytest.mark.req("P61", "P73")
def test_a_parked_key_waits_through_a_rescale_and_a_rename(s: Strandline, table: Table) -> None:
    fill(s)
    parking = {**QUICK, "retries": 0, "on_failure": "park"}
    with running(s, Projection("totals", ORDERS, failing(table, B, 1), **parking)):
        until(lambda: caught_up(s))
    assert s.projections.rescale("totals", 7)
    s.projections.rename("totals", "sums")
    fill(s, 1)
    with running(s, Projection("sums", ORDERS, table.add, **parking)):
        until(lambda: caught_up(s, "sums") and table.of(A)[-1:] == [6])
        assert table.of(B) == []
        s.projections.unpark("sums", B)
        until(lambda: table.of(B) == [1, 2, 3, 4, 5, 6])
    check_exactly_once(s, table)


@pytest.mark.req("P63")
def test_too_many_parked_keys(s: Strandline, table: Table) -> None:
    for number in range(8):
        put(s, Key("order", str(number)))
    carry_all(s)

    def handle(tx: Any, event: Any) -> None:
        raise ValueError("always")

    parking = {**QUICK, "restart_min_s": 60, "restart_max_s": 60}
    projection = Projection("totals", ORDERS, handle, retries=0, on_failure="park", parked_keys_max=3, **parking)
    with running(s, projection):
        until(lambda: any(found.state == "failed" for found in s.projections.status("totals").ranges))
        until(lambda: len(s.projections.parked("totals")) >= 3)
        parked = s.projections.parked("totals")
        assert len(parked) <= 3 + 2  # three ranges may count at the same moment
    failed = [found for found in s.projections.status("totals").ranges if found.last_error]
    assert all(found.last_error["key"] not in parked for found in failed if found.last_error)


@pytest.mark.req("P64", "P50")
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_list_that_fails_is_run_as_lists_of_one(s: Strandline, table: Table, delivery: str) -> None:
    key = key_in(0, s.log.partitions)
    put(s, key, 10)
    carry_all(s)
    sizes: list[int] = []
    done: list[int] = []

    def handle(*what: Any) -> None:
        events = what[-1]
        sizes.append(len(events))
        if any(event.seq_nr == 4 for event in events):
            raise ValueError("no 4")
        for event in events:
            done.append(event.seq_nr)
            if len(what) == 2:
                table.add(what[0], event)

    grouped = {**QUICK, "group_size": 10, "group_within_s": 0.01, "delivery": delivery, "on_failure": "skip"}
    with running(s, Projection("totals", ORDERS, handle, retries=1, **grouped)):
        until(lambda: caught_up(s))
    assert sizes[:2] == [10, 10]
    assert sizes[2:12] == [1] * 10
    assert sorted(set(done)) == [1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert len(done) == 9
    assert [letter.seq_nr for letter in s.projections.dead_letters("totals")] == [4]


@pytest.mark.req("P64", "P61", "P62", "P50")
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_key_that_a_list_parks_gets_nothing_more_of_it(s: Strandline, delivery: str) -> None:
    """The first of a key's two events in a list fails, beside one that the filter leaves out: the second waits, too."""
    other = key_in(A.partition(s.log.partitions), s.log.partitions, nth=5)
    for key in (A, other, A, other):
        s.journal.append(key, [Event("Placed", 1), Event("Left", 1)])
    carry_all(s)
    broken, sizes = [True], set()
    done: dict[Key, list[int]] = {A: [], other: []}

    def handle(*what: Any) -> None:
        sizes.add(len(what[-1]))
        if broken[0] and any((event.key, event.seq_nr) == (A, 1) for event in what[-1]):
            raise ValueError("no")
        for event in what[-1]:
            done[event.key].append(event.seq_nr)

    settings = {
        **QUICK,
        "delivery": delivery,
        "group_size": 20,
        "group_within_s": 0.01,
        "retries": 0,
        "on_failure": "park",
    }
    source = BySlices("order", filter={"types": ["Placed"]})
    with running(s, Projection("totals", source, handle, **settings)):
        until(lambda: s.projections.parked("totals") == [str(A)] and caught_up(s))
        assert done == {A: [], other: [1, 3]}
        broken[0] = False
        s.projections.unpark("totals", A)
        until(lambda: done[A] == [1, 3])
    assert 0 not in sizes


@pytest.mark.req("P98")
def test_a_damaged_event_is_handed_over(s: Strandline, table: Table) -> None:
    put(s, A)
    damaged = s.journal.append(A, [Event("Placed", 2)])
    rot(s, damaged.offset, partition=A.partition(s.log.partitions))
    put(s, A)
    carry_all(s)
    touched: list[Any] = []

    def handle(tx: Any, event: Any) -> None:
        table.add(tx, event)
        touched.append(event.payload)

    with running(s, Projection("totals", ORDERS, handle, retries=0, on_failure="skip", **QUICK)):
        until(lambda: caught_up(s))
    assert table.of(A) == [1, 3]
    (letter,) = s.projections.dead_letters("totals")
    assert (letter.seq_nr, letter.error_type) == (2, "Corrupt")


@pytest.mark.req("P51")
@pytest.mark.parametrize(
    ("statement", "ends"),
    [
        ("COMMIT", True), (" commit ;", True), ("/* c */ CoMMiT", True), ("-- x\nEND", True), ("ROLLBACK", True),
        ("select 1; commit", True), ("BEGIN", True), ("abort work", True), ("START TRANSACTION", True),
        ("set autocommit = on", True), ("SET SESSION TRANSACTION READ ONLY", True), ("PREPARE TRANSACTION 'a'", True),
        ("select ';' ; ; rollback work", True), ("rollback prepared 'x'", True), ("$$;$$; commit", True),
        ("select 'commit'", False), ("-- commit\nselect 1", False), ("insert into t values ('; commit')", False),
        ("SAVEPOINT a", False), ("ROLLBACK TO a", False), ("rollback transaction to savepoint a", False),
        ("RELEASE a", False), ("select $a$ ; commit; $a$", False), ('select "; commit ;"', False),
        ("/* ; commit ; */ update t set n = 1", False), ("set local work_mem = '1MB'", False), ("", False),
    ],
)  # fmt: skip
def test_what_begins_or_ends_a_transaction(statement: str, ends: bool) -> None:
    assert ends_transaction(statement) is ends


@pytest.mark.req("P51")
@pytest.mark.parametrize("statement", ["select 1; commit"])
def test_a_handler_does_not_end_its_transaction(s: Strandline, table: Table, statement: str) -> None:
    put(s, A)
    carry_all(s)
    refusals: list[InvalidInput] = []

    def handle(tx: Any, event: Any) -> None:
        table.add(tx, event)
        tx.execute("SAVEPOINT mine")
        table.add(tx, event)
        tx.execute("ROLLBACK TO mine")
        try:
            tx.execute(statement)
        except InvalidInput as error:
            refusals.append(error)
            raise

    with running(s, Projection("totals", ORDERS, handle, retries=0, on_failure="skip", **QUICK)):
        until(lambda: caught_up(s))
    assert [error.code for error in refusals] == ["handler_transaction"]
    assert table.rows() == []


@pytest.mark.req("P52")
def test_a_swallowed_error_is_a_failure(s: Strandline, table: Table) -> None:
    fill(s, 2)

    def handle(tx: Any, event: Any) -> None:
        table.add(tx, event)
        if (event.key, event.seq_nr) == (B, 2):
            try:
                tx.execute("ROLLBACK TO nowhere" if table.dialect == "sqlite" else "select 1 / 0")
            except Exception:
                if table.dialect == "sqlite":
                    raise

    with running(s, Projection("totals", ORDERS, handle, retries=0, on_failure="skip", **QUICK)):
        until(lambda: caught_up(s))
    assert table.of(B) == [1]
    assert table.of(A) == table.of(C) == [1, 2]
    (letter,) = s.projections.dead_letters("totals")
    assert (letter.key, letter.seq_nr) == (str(B), 2)


@pytest.mark.req("P94")
@pytest.mark.parametrize("returned", ["coroutine", "generator"])
def test_a_handler_that_returns_something_to_run_has_failed(s: Strandline, table: Table, returned: str) -> None:
    put(s, A)
    carry_all(s)

    async def later() -> None:
        pass

    def handle(tx: Any, event: Any) -> Any:
        return later() if returned == "coroutine" else (n for n in [1])

    with running(s, Projection("totals", ORDERS, handle, retries=0, on_failure="skip", **QUICK)):
        until(lambda: caught_up(s))
    (letter,) = s.projections.dead_letters("totals")
    assert letter.error_type == "TypeError"


@pytest.mark.req("P58", "P91")
def test_a_stop_ends_the_waiting(s: Strandline, table: Table) -> None:
    put(s, A, 3)
    carry_all(s)
    slow = {**QUICK, "retry_delay_s": 300}
    with running(s, Projection("totals", ORDERS, failing(table, A, 2), **slow)):
        until(lambda: table.of(A) == [1])
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert table.of(A) == [1]
    assert range_of(s, A).state == "waiting"  # it was given back
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
        until(lambda: caught_up(s))
    check_exactly_once(s, table)


@pytest.mark.req("P79", "P102")
def test_skip_a_blocker(s: Strandline, table: Table) -> None:
    put(s, A, 9)
    carry_all(s)
    blocked = {**QUICK, "retries": 0, "restart_min_s": 300, "restart_max_s": 300}
    with running(s, Projection("totals", ORDERS, failing(table, A, 7), **blocked)):
        until(lambda: range_of(s, A).state == "failed")
        assert table.of(A) == [1, 2, 3, 4, 5, 6]
        with pytest.raises(InvalidInput) as refused:
            s.projections.skip("totals", A, 10)
        assert refused.value.code == "seq_nr_range"
        s.projections.skip("totals", A, 7)
        until(lambda: table.of(A)[-2:] == [8, 9], 5)
    (letter,) = s.projections.dead_letters("totals")
    assert (letter.seq_nr, letter.reason) == (7, "operator")
    assert table.of(A) == [1, 2, 3, 4, 5, 6, 8, 9]


@pytest.mark.req("P79", "P33")
@pytest.mark.parametrize("to", [1, 3])
def test_a_skip_of_what_was_done_and_forgotten_changes_nothing(s: Strandline, table: Table, to: int) -> None:
    """No key row shows any more that it was done: the line does."""
    put(s, A, 3)
    carry_all(s)
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
        until(lambda: caught_up(s))
        store = s.open_offsets(None).store
        with store.closed_after():
            list(store.forget(store.find("totals"), range_of(s, A).position))
        s.projections.skip("totals", A, to)
        until(lambda: not s.projections.status("totals").requests)
        put(s, A)
        carry_all(s)
        until(lambda: 4 in table.of(A))
    assert table.of(A) == [1, 2, 3, 4]
    assert list(s.projections.dead_letters("totals")) == []


@pytest.mark.req("P67", "RP9")
def test_a_handler_that_hangs_loses_its_range(s: Strandline, table: Table) -> None:
    put(s, A, 3)
    carry_all(s)
    free, woken = threading.Event(), threading.Event()
    refused: list[BaseException] = []

    def handle(tx: Any, event: Any) -> None:
        table.add(tx, event)
        if event.seq_nr == 2 and not woken.is_set():
            woken.set()
            free.wait(30)
            try:
                table.add(tx, event)
            except BaseException as error:
                refused.append(error)
                raise

    hanging = Projection("totals", ORDERS, handle, handler_timeout_s=0.2, shutdown_grace_s=0, **QUICK)
    with running(s, hanging):
        until(woken.is_set)
        until(lambda: caught_up(s))
        check_exactly_once(s, table)
        free.set()
        until(lambda: refused)
    check_exactly_once(s, table)


@pytest.mark.req("P67", "RP9")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_handler_that_hangs_for_longer_than_anybody_waits_for_it(backend: str, tmp_path: Path) -> None:
    """The host's own writes wait for what the handler holds, and give up first."""
    free, calls = threading.Event(), [0]
    with world(backend, tmp_path, partitions=1, append_timeout_s=0.5) as s:
        table = Table(s)

        def handle(tx: Any, event: Any) -> None:
            table.add(tx, event)
            calls[0] += 1
            if calls[0] == 1:
                free.wait(30)

        put(s, A, 3)
        carry_all(s)
        hanging = Projection("totals", ORDERS, handle, handler_timeout_s=1.5, lease_s=1, shutdown_grace_s=0, **QUICK)
        try:
            with running(s, hanging):
                until(lambda: caught_up(s))
                check_exactly_once(s, table)
        finally:
            free.set()
            table.close()


def endless(tx: Any) -> None:
    """A statement that does not end by itself."""
    if tx.dialect == "sqlite":
        tx.execute("with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c")
    else:
        tx.execute("select pg_sleep(60)")


@pytest.mark.req("P67", "RP9")
def test_a_statement_that_does_not_end_is_ended(s: Strandline, table: Table) -> None:
    calls = [0]

    def handle(tx: Any, event: Any) -> None:
        table.add(tx, event)
        calls[0] += 1
        if calls[0] == 1:
            endless(tx)

    put(s, A, 3)
    carry_all(s)
    with running(s, Projection("totals", ORDERS, handle, handler_timeout_s=0.3, **QUICK)):
        until(lambda: caught_up(s))
    check_exactly_once(s, table)
    assert calls == [4]


@pytest.mark.req("P67")
def test_a_statement_may_take_as_long_as_its_handler(tmp_path: Path) -> None:
    """On a server, where all other statements have the time of an append. In a file none has a time of its own."""
    calls: list[int] = []

    def handle(tx: Any, event: Any) -> None:
        calls.append(event.seq_nr)
        tx.execute("select pg_sleep(1.2)")

    with world("postgresql", tmp_path, partitions=1, append_timeout_s=0.5) as s:
        put(s, A)
        carry_all(s)
        with running(s, Projection("totals", ORDERS, handle, **QUICK)):
            until(lambda: caught_up(s))
    assert calls == [1]


@pytest.mark.req("P66", "RP9")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_handler_that_ends_its_process_is_skipped(s: Strandline, table: Table) -> None:
    """A thread that ends without a word stands for the process: the claim ends without release and save."""
    put(s, A, 3)
    carry_all(s)
    deaths: list[int] = []

    def handle(tx: Any, event: Any) -> None:
        table.add(tx, event)
        if event.seq_nr == 2:
            deaths.append(1)
            raise SystemExit

    with running(s, Projection("totals", ORDERS, handle, retries=1, on_failure="skip", **QUICK)):
        until(lambda: table.of(A) == [1, 3], 20)
    # Three claims together with event 1, which goes alone then; then event 2 alone: three more, and its two attempts.
    assert len(deaths) == 3 + 1 + 3 + 2
    (letter,) = s.projections.dead_letters("totals")
    assert (letter.seq_nr, letter.reason, letter.attempts) == (2, "skipped", 2)


@pytest.mark.req("P82")
def test_whoever_runs_it_is_told_what_failed_and_where(s: Strandline, caplog: pytest.LogCaptureFixture) -> None:
    put(s, Key("order", "3"), 2)
    carry_all(s)

    def fail(tx: Any, event: Any) -> None:
        raise ValueError("no such customer")

    quick = {**QUICK, "retries": 0}
    with running(
        s, Projection("failing", ORDERS, fail, **quick), Projection("parking", ORDERS, fail, on_failure="park", **quick)
    ):
        until(lambda: s.projections.parked("parking"))
        until(lambda: any(one.last_error for one in s.projections.status("failing").ranges))
    said = [record.getMessage() for record in caplog.records]
    what = rf"order\|3 1: ValueError: no such customer at {re.escape(__file__)}:\d+"
    assert any(re.fullmatch(rf"failing \S+ failed, and starts again in .* s: {what}", line) for line in said), said
    assert any(re.fullmatch(rf"parking: {what}; parked", line) for line in said), said
