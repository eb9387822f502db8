"""The shop: what every writer does in a day, decided by a seed alone.

A day is a list of calls, so a writer that was killed knows from its ledger what it still has to do. Orders overlap:

    Placed ─▶ Paid ─▶ Packed ─▶ Shipped ─▶ (old events deleted)
                 └──▶ Cancelled ─▶ (purged: the customer wants to be forgotten) ─▶ (Placed: the same key lives again)

Some of them also reserve stock, whose few journals all writers share.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple
from uuid import UUID, uuid5

APPEND, DELETE, PURGE = "append", "delete", "purge"
KNOWN, STALE = "known", "stale"
OPEN_ORDERS = 8
ARTICLES = ("kettle", "lamp", "rug")
REGIONS = ("north", "south", "east", "west")
_IDS = UUID("6c8f0a52-1f4e-4a59-9d0e-3f1f4f0f7a11")

Made = tuple[str, dict[str, Any]]
"""An event as the shop makes it: type and payload. Its `stamp` is like no other's."""


class Call(NamedTuple):
    """One call of the journal."""

    do: str
    key: str
    events: tuple[Made, ...] = ()
    expected: str | None = None
    """KNOWN: the number that the writer knows. STALE: one less, which must be refused."""
    append_id: str | None = None
    twice: bool = False
    """The answer is taken for lost, and the same append is made again."""
    to: int = 0


def day(seed: int, writer: int, orders: int) -> list[Call]:
    """All calls of a writer, in order; several orders are under way at any time."""
    random_ = random.Random(f"{seed}/{writer}")
    waiting = [_order(random.Random(f"{seed}/{writer}/{number}"), seed, writer, number) for number in range(orders)]
    waiting.reverse()
    under_way: list[list[Call]] = []
    calls = []
    while waiting or under_way:
        while waiting and len(under_way) < OPEN_ORDERS:
            under_way.append(waiting.pop()[::-1])
        chosen = random_.choice(under_way)
        calls.append(chosen.pop())
        if not chosen:
            under_way.remove(chosen)
    return calls


def _order(random_: random.Random, seed: int, writer: int, number: int) -> list[Call]:
    name = f"{writer}-{number:05d}"
    key = f"order|{name}"
    order = _Order(random_, key, f"{seed}/{name}")
    total = random_.randrange(500, 50_000) / 100
    items = [{"article": article, "count": random_.randrange(1, 5)} for article in random_.sample(ARTICLES, 2)]
    placed = {"customer": f"c{random_.randrange(10_000)}", "region": random_.choice(REGIONS), "total": total}
    order.append(("Placed", placed), *(("ItemAdded", item) for item in items), with_id=True)
    order.append(("Paid", {"by": random_.choice(("card", "invoice"))}), expected=KNOWN, twice=random_.random() < 0.1)
    if random_.random() < 0.15:
        order.reserve(random_.choice(ARTICLES))
    if random_.random() < 0.05:
        order.append(("Cancelled", {"by": "an old browser tab"}), expected=STALE)
    if random_.random() < 0.15:
        _cancel(order, random_, placed)
    else:
        order.append(("Packed", {"parcels": random_.randrange(1, 3)}))
        order.append(("Shipped", {"parcel": f"p{random_.getrandbits(40):010x}"}), with_id=random_.random() < 0.5)
        if random_.random() < 0.1:
            order.calls.append(Call(DELETE, key, to=2))
    return order.calls


def _cancel(order: _Order, random_: random.Random, placed: dict[str, Any]) -> None:
    order.append(("Cancelled", {"by": "customer"}), expected=KNOWN)
    if random_.random() < 0.4:
        order.calls.append(Call(PURGE, order.key))
        if random_.random() < 0.5:
            order.append(("Placed", {**placed, "again": True}), expected=KNOWN)


class _Order:
    """The calls of one order while they are made up."""

    def __init__(self, random_: random.Random, key: str, name: str) -> None:
        self.key, self.calls = key, list[Call]()
        self._random, self._name = random_, name

    def append(
        self, *events: Made, expected: str | None = None, with_id: bool = False, twice: bool = False, key: str = ""
    ) -> None:
        place = f"{self._name}/{len(self.calls)}"
        stamped = tuple((type_, {"stamp": f"{place}/{n}", **payload}) for n, (type_, payload) in enumerate(events))
        append_id = str(uuid5(_IDS, place)) if with_id or twice else None
        self.calls.append(Call(APPEND, key or self.key, stamped, expected, append_id, twice))

    def reserve(self, article: str) -> None:
        self.append(("Reserved", {"order": self.key, "count": 1}), expected=KNOWN, with_id=True, key=f"stock|{article}")
