"""The shop's totals as a projection: parcels packed and orders shipped, by order, each event exactly once.

It begins in one process; then it is cut into more ranges, three more processes share them, and one of the four is
killed. At the end its table equals a plain fold over the journals. Packed and shipped orders are never forgotten, so
every such event is there to be counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from strandline.connect import Strandline
from strandline.demo.place import words_of
from strandline.errors import StrandlineError
from strandline.pipeline.target import JournalRef
from strandline.projection.definition import BySlices, Projection
from strandline.sql.statements import statement
from strandline.testing.shop.checker import Finding
from strandline.testing.shop.children import Child, Children

NAME, PROCESSES, RANGES = "shop-totals", 4, 16
END_S_MAX = 60.0
Sums = dict[str, tuple[int, int]]


class Totals:
    """Adds what an event says to the row of its order."""

    def handle(self, tx: Any, event: Any) -> None:
        tx.execute(statement("strandline.demo", f"add_to_totals_{tx.dialect}"), (str(event.key), *counted(event)))


class Counted(Protocol):
    """The counts that one event adds."""

    @property
    def type(self) -> str: ...

    @property
    def payload(self) -> Any: ...


def counted(event: Counted) -> tuple[int, int]:
    """Parcels packed, orders shipped."""
    return (event.payload["parcels"], 0) if event.type == "Packed" else (0, 1)


totals = Projection(
    NAME, BySlices("order", filter={"types": ["Packed", "Shipped"]}), Totals(), refresh_interval_s=0.1, lease_s=5
)


class TotalsAct:
    """The processes that run it, and what came of them."""

    def __init__(self, s: Strandline, target: JournalRef, children: Children) -> None:
        self._s, self._target, self._children = s, target, children
        self.processes: list[Child] = []
        with self._table() as (raw, dialect):
            raw.execute(statement("strandline.demo", f"create_totals_{dialect}"))
        self.start(1)

    @contextmanager
    def _table(self) -> Iterator[tuple[Any, str]]:
        with self._s.open_offsets().store.closed_after() as store, store.database.write() as tx:
            yield tx.raw, tx.dialect

    def start(self, count: int) -> None:
        """So many processes more."""
        for _ in range(count):
            name = f"totals {len(self.processes) + 1}"
            words = ("projections", "run", "strandline.demo.totals:totals", *words_of(self._target))
            self.processes.append(self._children.command(name, *words))

    def spread(self) -> None:
        """Cut it into more ranges, for four processes. It is done by whoever finds all ranges released."""
        self._s.projections.rescale(NAME, RANGES, timeout_s=0)
        self.start(PROCESSES - 1)

    def kill(self) -> None:
        """One of them, whatever it is doing; another takes its ranges."""
        self.processes[0].kill()

    @property
    def is_running(self) -> bool:
        """Return whether it has begun."""
        return NAME in [name for name, _, _ in self._s.projections.list()]

    def sums(self) -> Sums:
        """Return the sums that the projection has counted."""
        with self._table() as (raw, dialect):
            rows = raw.execute(statement("strandline.demo", f"all_totals_{dialect}"))
            return {key: (int(parcels), int(shipped)) for key, parcels, shipped in rows}

    def end(self, rows: Mapping[str, Sequence[Counted]]) -> list[Finding]:
        """Let it come to the end of the store, stop it, and compare it with a fold over these events; what is wrong."""
        deadline = time.monotonic() + END_S_MAX
        while not self._is_done() and time.monotonic() < deadline:
            time.sleep(0.1)
        for child in self.processes[1:]:
            child.end()
        return differences(fold(rows), self.sums())

    def _is_done(self) -> bool:
        try:
            return not self._s.projections.status(NAME).behind_store_s
        except StrandlineError:
            return False


def fold(rows: Mapping[str, Sequence[Counted]]) -> Sums:
    """Fold events to the sums that should have been counted."""
    sums: Sums = {}
    for key, events in rows.items():
        for event in events:
            if key.startswith("order|") and event.type in ("Packed", "Shipped"):
                before, more = sums.get(key, (0, 0)), counted(event)
                sums[key] = (before[0] + more[0], before[1] + more[1])
    return sums


def differences(wanted: Sums, found: Sums) -> list[Finding]:
    """Orders that were counted otherwise."""
    wrong = []
    for key in sorted(wanted.keys() | found.keys()):
        should, does = wanted.get(key, (0, 0)), found.get(key, (0, 0))
        if should != does:
            kind = "lost" if does < should else "doubled"
            wrong.append(Finding(kind, key, f"counted as {does}, not {should}, by the projection"))
    return wrong
