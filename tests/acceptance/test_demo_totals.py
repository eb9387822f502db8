"""The demo's projection: spread over processes and killed, it counts as a plain fold does; what is wrong is found."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.query.filling import carry_all

from strandline.demo.place import on_files
from strandline.demo.totals import NAME, PROCESSES, RANGES, TotalsAct, differences, fold
from strandline.testing.shop.children import Children
from strandline.testing.shop.ledger import LedgerWriter, path_of
from strandline.testing.shop.orders import day
from strandline.testing.shop.shelf import stored_events
from strandline.testing.shop.writer import Gate, Writer


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.req("P47", "P72", "P71")
def test_the_demos_totals_are_those_of_a_fold(tmp_path: Path) -> None:
    target = on_files(tmp_path)
    calls = day(3, 1, 60)
    gate = Gate(len(calls))
    gate.allow("1")
    ledger = LedgerWriter(path_of(tmp_path, 1))
    with target.connect() as s, Children(tmp_path) as children:

        def owners() -> set[str]:
            return {found.owner for found in s.projections.status(NAME).ranges if found.owner}

        half = len(calls) // 2
        Writer(s.journal, ledger, calls[:half]).work(gate, 1e9)
        carry_all(s)
        act = TotalsAct(s, target, children)
        until(lambda: act.is_running and len(owners()) == 1)
        act.spread()
        until(lambda: len(s.projections.status(NAME).ranges) == RANGES and len(owners()) == PROCESSES)
        act.kill()
        Writer(s.journal, ledger, calls[half:]).work(gate, 1e9)
        carry_all(s)
        rows = stored_events(target)
        assert act.end(rows) == []
        sums = act.sums()
        assert sums == fold(rows)
        assert sum(shipped for _, shipped in sums.values()) > 20
    ledger.close()


def test_what_is_counted_otherwise_is_found() -> None:
    wanted = {"order|1": (2, 1), "order|2": (1, 0)}
    found = {"order|1": (2, 2), "order|3": (1, 1)}
    assert [(each.kind, each.key) for each in differences(wanted, found)] == [
        ("doubled", "order|1"), ("lost", "order|2"), ("doubled", "order|3"),
    ]  # fmt: skip
