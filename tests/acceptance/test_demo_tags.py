"""The demo's live query by tag: what it calls sound, and what it finds wrong."""

from __future__ import annotations

import time

import pytest
from tests.query.filling import carry_all

import strandline
from strandline import Event
from strandline.demo.tag_reader import TagReader
from strandline.store.tag_view import TAG_VIEW


@pytest.mark.req("T46", "T47")
def test_the_demos_live_query_is_compared_with_the_store() -> None:
    with strandline.connect("memory:", partitions=2) as s:

        def put(*keys: str) -> None:
            for key in keys:
                s.journal.append(f"order|{key}", [Event("Placed", 1, tags=["north"])])
            carry_all(s)

        put("1", "2", "3")
        reader = TagReader(s, "north")
        until = time.monotonic() + 20
        while reader.count < 3 and time.monotonic() < until:
            time.sleep(0.01)
        s.journal.purge("order|2")
        put("1", "4")
        assert reader.end() == []
        assert reader.count == 5

        again = TagReader(s, "north")
        while again.count < 4 and time.monotonic() < until:
            time.sleep(0.01)
        again._shown.pop(1)
        assert [finding.kind for finding in again.end()] == ["lost"]
        twice = TagReader(s, "north")
        while twice.count < 4 and time.monotonic() < until:
            time.sleep(0.01)
        twice._shown.insert(0, twice._shown[-1])
        assert [finding.kind for finding in twice.end()] == ["reordered"]

        table = s.store._tables[TAG_VIEW]  # type: ignore[attr-defined]
        table.pop(next(place for place, row in table.items() if row[3] == "order|1" and row[5] == 1))
        assert [finding.kind for finding in TagReader(s, "north").end()] == ["lost"]
