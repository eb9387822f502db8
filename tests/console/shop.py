"""A shop with something of everything for the console to show: good, bad, running, waiting."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw

import strandline
from strandline import BySlices, Event, Group, Host, Projection, WorkDeclaration, ask, row_exists
from strandline.connect import Strandline
from strandline.group.groups import Groups
from strandline.testing import carry
from tests.projection.worlds import QUICK, until

PARKED = "order|7"
"""Its second event is refused by two projections: by totals always, by prices until `mended` is set."""
ODD = "order|<img src=x onerror=alert(1)>\u202egnp"
STEPS = ("Placed", "Paid", "Packed", "Shipped")


class Shop:
    """The journal, and what runs on it in threads of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.s: Strandline = strandline.connect(f"sqlite:{folder}/shop", partitions=4)
        self.mended = threading.Event()
        self._fill()
        self._host = Host(self.s, [self._projection(name, on_failure="park") for name in ("totals", "prices", "mails")])
        self._running = threading.Thread(target=self._host.run)
        self.groups: Groups
        self._groups()
        self._work()

    # ------------------------------------------------------------ what it has

    def _fill(self) -> None:
        random_ = random.Random(7)
        for n in range(1, 60):
            events = [
                Event(
                    type_,
                    {"order": n, "total": random_.randint(5, 900), "by": random_.choice(["ann", "bob", "cleo"])},
                    tags=random_.sample(["blue", "express", "gift"], random_.randint(0, 2)),
                    metadata={"request": f"r-{n}"},
                )
                for type_ in STEPS[: random_.randint(2, 4)]
            ]
            self.s.journal.append(f"order|{n}", events)
        for n in range(1, 8):
            self.s.journal.append(f"stock|sku-{n}", [Event("Counted", {"left": n * 7})])
        odd = {"html": "<script>alert(1)</script>", "turned": "abc\u202edef", "long": "x" * 12_000}
        self.s.journal.append(ODD, [Event("Odd", odd, tags=["<b>bold</b>", "=1+1"])])
        self.s.journal.save_snapshot("order|1", 1, {"state": "placed"})
        carry(self.s)

    def _projection(self, name: str, **more: Any) -> Projection:
        def handle(tx: Any, event: Any) -> None:
            refuses = name == "totals" or (name == "prices" and not self.mended.is_set())
            if refuses and (str(event.key), event.seq_nr) == (PARKED, 2):
                raise ValueError("no price for order 7")

        return Projection(name, BySlices("order"), handle, retries=0, **more, **QUICK)

    def _groups(self) -> None:
        shop, bank = _database(self.folder / "shop.db"), _database(self.folder / "bank.db")

        def meddle(message: Any) -> dict[str, Any]:
            connection = apsw.Connection(str(self.folder / "shop.db"))
            connection.execute("update account set amount = amount + 1 where id in (2, 3)")
            connection.close()
            return {"value": False}

        def price(message: Any) -> dict[str, Any]:
            time.sleep(0.02)
            return {"value": True}

        self.groups = self.s.groups(
            targets={"shop": shop, "bank": bank}, handlers={"meddle": meddle, "price": price}, lease_s=2
        )
        groups = [_transfer("transfer-1", "price"), _transfer("transfer-2", "price", amount=5000)]
        for group in (*groups, _stuck("refund-9", 2), _stuck("refund-10", 3)):
            self.groups.submit(group)
            self.groups.processor().run_until_idle()
        self.groups.submit(_transfer("transfer-3", "price"))
        carry(self.s)

    def _work(self) -> None:
        mails = self.s.work(WorkDeclaration("mails", key={"order": "int"}, data={"to": "text"}, max_timeouts=1))
        for n in range(1, 5):
            mails.add({"order": n}, {"to": f"customer-{n}@example.org"}, priority=1)
        for claim in mails.cursor("mailer 1").claim(4).claims[:3]:
            claim.fail("smtp: mailbox unavailable" if claim.entry.key["order"] != 2 else "smtp: greylisted")
        parcels = self.s.work(WorkDeclaration("parcels", key={"order": "int"}, data={"to": "text"}, max_timeouts=1))
        for n in range(1, 4):
            parcels.add({"order": n}, {"to": "Main Street"})
        for claim in parcels.cursor("packer 1").claim(3).claims:
            claim.fail("no such address" if claim.entry.key["order"] != 2 else "no box is large enough")
        random_ = random.Random(3)
        for n in range(20, 60):
            priority = random_.choice([0, 20, 20, 20, 60, 190, 230])
            later = timedelta(minutes=random_.choice([0, 0, 5, 90]))
            mails.add({"order": n}, {"to": f"customer-{n}@example.org"}, priority=priority, process_date=later)

    # ------------------------------------------------------------ running

    def __enter__(self) -> Shop:
        self._running.start()
        until(lambda: sum(row["parked"] for row in self._projections()) == 2, 20)
        return self

    def __exit__(self, *_: object) -> None:
        self._host.stop()
        self._running.join(20)
        self.s.close()

    def _projections(self) -> list[Any]:
        section = self.s.projections.section()
        return [] if section is None else list(section.rows)


def _database(path: Path) -> str:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.execute("create table account (id integer primary key, name text, amount integer)")
    connection.execute("insert into account values (1, 'anna', 100), (2, 'bert', 50), (3, 'cleo', 20)")
    connection.close()
    return f"sqlite:{path}"


def _transfer(id_: str, handler: str, amount: int = 10) -> Group:
    """From a shop's account to a bank's, with a question in between; too large an amount fails at its last check."""
    group = Group(id_)
    group.query("read", "select amount from account where id = 1", target="shop")
    group.empty("allowed", depends_on=["read"], checks=[ask(handler)])
    group.update(
        "take", "update account set amount = amount - :amount where id = 1", {"amount": amount}, target="shop",
        depends_on=["allowed"],
    )  # fmt: skip
    group.update(
        "give", "update account set amount = amount + :amount where id = 1", {"amount": amount}, target="bank",
        depends_on=["allowed"],
    )  # fmt: skip
    group.query(
        "left", "select id from account where id = 1 and amount >= 0", target="shop", depends_on=["take", "give"],
        checks=[row_exists()],
    )  # fmt: skip
    return group


def _stuck(id_: str, row: int) -> Group:
    """Its undo finds that somebody else has written."""
    group = Group(id_)
    group.update("pay", f"update account set amount = amount - 5 where id = {row}", target="shop")
    group.update("note", f"update account set amount = amount + 5 where id = {5 - row}", target="bank")
    group.empty("agreed", depends_on=["pay", "note"], checks=[ask("meddle")])
    return group


@contextmanager
def writing(s: Strandline, per_s: float) -> Iterator[None]:
    """Somebody orders all the time, and somebody carries it."""
    stop = threading.Event()
    lease = s.store.lease().take("shop-1 pid 71")

    def write() -> None:
        n = 1000
        while not stop.wait(1 / per_s):
            n += 1
            s.journal.append(f"order|{n}", [Event("Placed", {"order": n})])
            carry(s, lease=lease)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)
        lease.release()
