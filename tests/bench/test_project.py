"""The clock of `bench project` stops when events are committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.journal.worlds import world
from tests.projection.worlds import ORDERS, QUICK, Table, check_exactly_once
from tests.query.filling import carry_all, put

from strandline import Key, Projection
from strandline.bench import project


def test_a_call_that_is_not_committed_does_not_count(tmp_path: Path) -> None:
    """A handler that fails after its work has been called for all events, and nothing of it is there."""
    failures = [1]
    with world("sqlite", tmp_path, partitions=1) as s:
        table = Table(s)
        put(s, Key("order", "1"), 20)
        carry_all(s)

        def handle(tx: Any, events: list[Any]) -> None:
            for event in events:
                table.add(tx, event)
            if failures:
                raise ValueError(failures.pop())

        projection = Projection("totals", ORDERS, handle, group_size=20, **QUICK)
        assert project.seconds_until_saved(s, projection, 20) > 0
        assert not failures
        check_exactly_once(s, table)
        table.close()
