"""Work journals, groups and projections, to await."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Dep, Event, Group, Projection, Recipe, WorkDeclaration, aio
from strandline.errors import LeaseLost, NotFound, Unavailable
from strandline.projection import host
from strandline.projection.management import Projections
from strandline.testing import carry
from strandline.work.claims import Claim
from tests.group.worlds import SqliteShop
from tests.journal.worlds import KEY, url_of
from tests.projection.worlds import ORDERS, QUICK

WORLDS = ("sqlite", "postgresql")
MAILS = WorkDeclaration("mails", key={"order": "int"}, data={"to": "text"}, retry_delay_s=0.01)
Test = Callable[[aio.Strandline], Awaitable[None]]


def run(backend: str, folder: Path, test: Test) -> None:
    async def connected() -> None:
        async with aio.connect(url_of(backend, folder), partitions=2) as s:
            await asyncio.wait_for(test(s), 60)

    asyncio.run(connected())


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    while not await true():  # noqa: ASYNC110 (what it asks for sets no event)
        await asyncio.sleep(0.01)


def mail(order: int) -> dict[str, Any]:
    return {"key": {"order": order}, "data": {"to": f"customer {order}"}}


# ---------------------------------------------------------------- work


@pytest.mark.parametrize("backend", WORLDS)
def test_work_is_added_claimed_and_done(backend: str, tmp_path: Path) -> None:
    async def test(s: aio.Strandline) -> None:
        with pytest.raises(NotFound):
            await s.work("mails")
        mails = await s.work(MAILS)
        await mails.add(**mail(1), priority=3)
        await mails.add_many([mail(2), mail(3), mail(4)])
        assert await mails.wait(10)
        cursor = mails.cursor("ann")
        first, second, third, fourth = (await cursor.claim(4)).claims
        assert (first.entry.key, first.entry.data) == ({"order": 1}, {"to": "customer 1"})
        assert await mails.done_many([first]) == ["done"]
        again = await mails.claim_of(second.entry.id, second.fence)
        await again.heartbeat()
        await again.done()
        with pytest.raises(LeaseLost):
            await second.done()
        await third.release()
        await mails.drop(fourth.entry.id)
        batch = await cursor.claim(1, done=[fourth])
        assert (batch.lost, [claim.entry.key["order"] for claim in batch.claims]) == ([fourth], [3])
        await batch.claims[0].fail("no address", delay_s=3600)
        assert (await mails.counts())[:2] == (0, 1)
        found = await mails.get({"order": 3})
        assert found is not None
        await mails.drop(found.id)
        assert await mails.entries() == []

    run(backend, tmp_path, test)


@pytest.mark.parametrize("backend", WORLDS)
def test_a_worker_runs_coroutines_in_the_loop_until_it_is_cancelled(backend: str, tmp_path: Path) -> None:
    async def test(s: aio.Strandline) -> None:
        mails = await s.work(MAILS)
        loop_thread, seen, running, most = threading.get_ident(), list[int](), 0, 0

        async def send(claim: aio.Claim) -> None:
            nonlocal running, most
            assert threading.get_ident() == loop_thread
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            seen.append(claim.entry.key["order"])
            if claim.entry.key["order"] == 7 and seen.count(7) < 2:
                raise ValueError("once more")

        async def done() -> bool:
            return (await mails.counts())[:4] == (0, 0, 0, 0)

        worker = asyncio.create_task(aio.Worker(s, {"mails": send}, concurrency=4).run())
        await mails.add_many([mail(number) for number in range(20)])
        await until(done)
        worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker
        assert sorted(seen) == sorted([*range(20), 7])
        assert most > 1
        await mails.add(**mail(21))
        assert (await mails.counts()).due == 1  # nobody runs any more

    run(backend, tmp_path, test)


def test_a_worker_may_be_stopped_before_it_runs_and_has_plain_handlers_too(tmp_path: Path) -> None:
    async def test(s: aio.Strandline) -> None:
        mails = await s.work(MAILS)
        await mails.add(**mail(1))
        seen: list[Any] = []

        def send(claim: Claim) -> None:
            seen.append(claim.entry.key)
            stopped.stop()

        stopped = aio.Worker(s, {"mails": send})
        await stopped.run()
        assert seen == [{"order": 1}]
        await stopped.run()
        with pytest.raises(NotFound):
            await aio.Worker(s, {"none": send}).run()

    run("sqlite", tmp_path, test)


# ---------------------------------------------------------------- groups


@pytest.mark.parametrize("backend", WORLDS)
def test_groups_are_submitted_run_and_waited_for(backend: str, tmp_path: Path) -> None:
    shop = SqliteShop(tmp_path / "shop.db")
    shop.execute("CREATE TABLE account (id integer PRIMARY KEY, amount integer)")
    shop.execute("INSERT INTO account VALUES (1, 5)")

    async def price(message: Any) -> dict[str, int]:
        await asyncio.sleep(0)
        return {"value": 7}

    def bonus(id_: str) -> Group:
        g = Group(id_)
        g.empty("quote", recipes=[Recipe("price", handler="price", timeout_s=5)])
        g.update(
            "grant", "UPDATE account SET amount = :price.value WHERE id = :id", {"id": 1}, target="shop",
            depends_on=[Dep("quote", recipe="price")],
        )  # fmt: skip
        return g

    async def test(s: aio.Strandline) -> None:
        groups = s.groups(targets={"shop": shop.url}, handlers={"price": price})
        handle = await groups.submit(bonus("first"))
        with pytest.raises(Unavailable):
            await handle.wait(0.01)
        assert (await groups.explain(bonus("other"))) is not None
        await groups.processor().run_until_idle()
        assert (await handle.wait(10)).state == (await groups.get("first")).state == "committed"
        assert shop.execute("SELECT amount FROM account") == [(7,)]
        assert (await groups.history("first"))[0][0] == "Defined"
        processor = groups.processor()
        running = asyncio.create_task(processor.run())
        second = await groups.submit(bonus("second"))
        assert (await second.wait(20)).state == "committed"
        processor.stop()
        await running

    try:
        run(backend, tmp_path, test)
    finally:
        shop.close()


def test_an_object_whose_call_is_a_coroutine_is_a_handler_too(tmp_path: Path) -> None:
    class Price:
        async def __call__(self, message: Any) -> dict[str, int]:
            await asyncio.sleep(0)
            return {"value": 7}

    async def test(s: aio.Strandline) -> None:
        groups = s.groups(handlers={"price": Price()})
        g = Group("priced")
        g.empty("quote", recipes=[Recipe("price", handler="price", timeout_s=5)])
        await groups.submit(g)
        await groups.processor().run_until_idle()
        assert (await groups.get("priced")).steps["quote"].results == {"price": {"value": 7}}

    run("sqlite", tmp_path, test)


# ---------------------------------------------------------------- projections


def carried(url: str) -> None:
    with strandline.connect(url) as s:
        carry(s)


@pytest.mark.parametrize("backend", WORLDS)
def test_a_host_runs_projections_until_it_is_cancelled(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "LOOK_S", 0.05)
    seen: list[int] = []

    async def test(s: aio.Strandline) -> None:
        assert list(await s.projections.list()) == []
        await s.journal.append(KEY, [Event("Placed", number) for number in range(5)])
        await asyncio.to_thread(carried, url_of(backend, tmp_path))
        totals = Projection("totals", ORDERS, lambda tx, event: seen.append(event.payload), **QUICK)
        running = asyncio.create_task(aio.Host(s, [totals]).run())

        async def handled() -> bool:
            return len(seen) == 5

        await until(handled)
        await s.projections.pause("totals")
        status = await s.projections.status("totals")
        assert status.paused
        await s.projections.resume("totals")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert seen == list(range(5))
        assert [name for name, _, _ in await s.projections.list()] == ["totals"]

    run(backend, tmp_path, test)


# ---------------------------------------------------------------- all of it


@pytest.mark.parametrize(
    ("plain", "to_await", "inside"),
    [
        (strandline.WorkJournal, aio.WorkJournal, "claim beat apply_outcome close now_us columns_of"),
        (Claim, aio.Claim, "lose over"),
        (
            strandline.Groups,
            aio.Groups,
            "open_targets target owner changed_table plan plan_of load box has_box code_watch answering",
        ),
        (Projections, aio.Projections, ""),
        (strandline.Worker, aio.Worker, ""),
        (strandline.Host, aio.Host, ""),
        (strandline.Strandline, aio.Strandline, "open_offsets check"),
    ],
)
def test_every_call_is_there(plain: type, to_await: type, inside: str) -> None:
    """But those that the parts of this system make of each other."""
    calls = {name for name, _ in inspect.getmembers(plain, inspect.isfunction) if name[0] != "_"}
    there = {name for name, found in vars(to_await).items() if name[0] != "_" and callable(found)}
    assert calls - set(inside.split()) == there
