"""Shipping: whoever is killed when, each parcel leaves the house once.

A projection adds a piece of work for every order that was shipped, in the transaction that saves its offset. Shippers,
processes of their own, carry the parcel out and say done in one transaction. All of it is in one SQLite file.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

from strandline.connect import Strandline
from strandline.projection.definition import BySlices, Projection
from strandline.projection.host import Host
from strandline.testing.shop.checker import Finding, ShownEvent
from strandline.testing.shop.children import Child, Children
from strandline.testing.shop.shipper import MAKE, SHIPPING, opened, parcels

SHIPPED = "Shipped"
END_S_MAX = 60.0


class Shipping:
    """The projection, in threads of this process, and a shipper at a time, which may be killed."""

    def __init__(self, s: Strandline, children: Children, path: Path) -> None:
        self._path, self._children, self._shippers = path, children, 0
        self._work = s.work(SHIPPING, url=f"sqlite:{path}")
        with closing(opened(path)) as file:
            file.execute(MAKE)
        source = BySlices("order", filter={"types": [SHIPPED]})
        self._host = Host(s, [Projection("shipping", source, self._add, offset_store=f"sqlite:{path}")])
        self._thread = Thread(target=self._host.run, name="shipping", daemon=True)
        self._thread.start()
        self._shipper = self._start()

    def _add(self, tx: object, event: Any) -> None:
        self._work.add({"parcel": event.payload["parcel"]}, {"order": str(event.key)}, tx=tx)

    def _start(self) -> Child:
        self._shippers += 1
        return self._children.module(f"shipper {self._shippers}", "strandline.testing.shop.shipper", self._path)

    @property
    def count(self) -> int:
        """Return how many parcels have left."""
        return len(parcels(self._path))

    def kill_shipper(self) -> None:
        """The shipper is gone in the middle of whatever it does; another one starts."""
        self._shipper.kill()
        self._shipper = self._start()

    def end(self, events: Iterable[ShownEvent]) -> list[Finding]:
        """Let everything leave that was shipped by these events, all there are, and compare; what is wrong."""
        wanted = [event.payload["parcel"] for event in events if event.type == SHIPPED]
        deadline = time.monotonic() + END_S_MAX
        while (self.count < len(wanted) or any(self._work.counts()[:4])) and time.monotonic() < deadline:
            self._shipper.check()
            time.sleep(0.05)
        self._host.stop()
        self._thread.join()
        self._shipper.end()
        return compared(wanted, parcels(self._path))


def compared(wanted: Iterable[str], left: Iterable[str]) -> list[Finding]:
    """Find what is wrong with the parcels that left: each order that was shipped has one, and no other has."""
    shipped, gone = Counter(wanted), Counter(left)
    lost = [Finding("lost", f"parcel {name}", "was shipped and has not left") for name in shipped - gone]
    more = [
        Finding("doubled" if name in shipped else "ghost", f"parcel {name}", f"has left {gone[name]} times")
        for name in gone - shipped
    ]
    return lost + more
