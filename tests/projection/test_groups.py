"""Groups that a projection or a worker submits: however often it does, each event and each entry is one group."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from strandline import Key
from strandline.group.definition import Group
from strandline.projection.definition import Projection
from strandline.testing import points
from strandline.work.claims import Claim
from strandline.work.declaration import WorkDeclaration
from strandline.work.worker import Worker
from tests.group.worlds import SqliteShop, update
from tests.journal.worlds import world
from tests.projection.worlds import BACKENDS, ORDERS, QUICK, running, until
from tests.query.filling import carry_all, put


class _Stopped(Exception):
    pass


def _stop() -> None:
    raise _Stopped


def _shop(tmp_path: Path) -> SqliteShop:
    shop = SqliteShop(tmp_path / "shop.db")
    shop.execute("CREATE TABLE account (id integer PRIMARY KEY, name text, amount integer)")
    shop.execute("INSERT INTO account VALUES (1, 'anna', 0)")
    return shop


def _add(id_: Any, amount: int) -> Group:
    g = Group(id_)
    update(g, "x", 1, amount)
    return g


@pytest.mark.req("G60", "G59", "P56")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_projection_submits_each_group_once(backend: str, tmp_path: Path) -> None:
    """Its handler fails after it has submitted, and once between the group's definition and its place in the stream."""
    shop = _shop(tmp_path)
    with world(backend, tmp_path, partitions=2) as s:
        groups = s.groups(targets={"shop": shop.url})
        put(s, Key("order", "1"), 5)
        carry_all(s)
        handled: list[int] = []

        def handle(tx: Any, event: Any) -> None:
            handled.append(event.seq_nr)
            groups.submit(_add(event.derived_id(), 10**event.seq_nr))
            if handled.count(event.seq_nr) < 2:
                raise ValueError("once more")

        points.at("group.defined", _stop, 3)
        try:
            with running(s, Projection("bonus", ORDERS, handle, save_after=1, **QUICK)):
                until(lambda: handled.count(5) >= 2)
        finally:
            points.clear()
        groups.processor().run_until_idle()
        assert shop.execute("SELECT amount FROM account") == [(111_110,)]
        assert max(map(handled.count, handled)) > 1
    shop.close()


@pytest.mark.req("G60")
def test_a_projection_that_gives_up_an_event_has_still_submitted(tmp_path: Path) -> None:
    shop = _shop(tmp_path)
    with world("sqlite", tmp_path, partitions=1) as s:
        groups = s.groups(targets={"shop": shop.url})
        put(s, Key("order", "1"), 2)
        carry_all(s)
        seen: list[int] = []

        def handle(tx: Any, event: Any) -> None:
            groups.submit(_add(event.derived_id(), event.seq_nr))
            seen.append(event.seq_nr)
            if event.seq_nr == 1:
                raise ValueError("never")

        with running(s, Projection("bonus", ORDERS, handle, on_failure="skip", retries=1, **QUICK)):
            until(lambda: 2 in seen)
        groups.processor().run_until_idle()
        assert seen == [1, 1, 2]
        assert shop.execute("SELECT amount FROM account") == [(3,)]
    shop.close()


@pytest.mark.req("G60", "W75")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_worker_submits_each_group_once(backend: str, tmp_path: Path) -> None:
    shop = _shop(tmp_path)
    declared = WorkDeclaration("orders", key={"nr": "int"}, data={"n": "int"}, retry_delay_s=0.01, poll_s=0.05)
    with world(backend, tmp_path, partitions=2) as s:
        groups, orders = s.groups(targets={"shop": shop.url}), s.work(declared)
        orders.add_many([{"key": {"nr": n}, "data": {"n": 10**n}} for n in range(4)])
        handled: list[int] = []

        def handle(claim: Claim) -> None:
            number = claim.entry.key["nr"]
            handled.append(number)
            groups.submit(_add(claim.append_id, claim.entry.data["n"]))
            if handled.count(number) < 2:
                raise ValueError("once more")

        worker = Worker(s, {"orders": handle})
        thread = Thread(target=worker.run)
        thread.start()
        try:
            until(lambda: orders.counts()[:4] == (0, 0, 0, 0))
        finally:
            worker.stop()
            thread.join()
        groups.processor().run_until_idle()
        assert sorted(handled) == sorted([0, 1, 2, 3] * 2)
        assert shop.execute("SELECT amount FROM account") == [(1111,)]
        orders.add(key={"nr": 0}, data={"n": 5})  # other data: another group
        handled.append(0)
        thread = Thread(target=(worker := Worker(s, {"orders": handle})).run)
        thread.start()
        until(lambda: orders.counts()[:4] == (0, 0, 0, 0))
        worker.stop()
        thread.join()
        groups.processor().run_until_idle()
        assert shop.execute("SELECT amount FROM account") == [(1116,)]
    shop.close()
