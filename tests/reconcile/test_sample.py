"""A sample reads what is of its slices, and nothing else; what is wrong there is found as in a whole run."""

from __future__ import annotations

from typing import Any

import pytest

from strandline import Event
from strandline.carry.range import decode
from strandline.connect import Strandline
from strandline.reconcile.rounds import sampled
from strandline.store.tables import JOURNAL, METAJOURNAL
from strandline.store.tag_view import TAG_VIEW
from strandline.testing import carry
from strandline.values.keys import slice_of
from tests.reconcile.planting import TAG, Hand, history, names, plants_of, reconciled


@pytest.mark.req("J116")
@pytest.mark.parametrize("start", [0.0, 0.5, 0.999])
def test_nothing_of_other_slices_is_read(sqlite: Strandline, monkeypatch: pytest.MonkeyPatch, start: float) -> None:
    """Rows by their statements, heads, and records of the log, wherever in a partition the sample begins."""
    keys = [f"order|{number}" for number in range(200)]
    sqlite.journal.append_many([(key, [Event("Placed", 1, tags=[TAG]), Event("Paid", 2)]) for key in keys])
    carry(sqlite)
    store, slices = sqlite.store, sampled(0.1, start, 8)
    chosen = {key for key in keys if slice_of(key) in slices}
    assert 0 < len(chosen) < len(keys) // 2
    read: list[tuple[str, str]] = []
    scan, look, page = store.scan, store.look, store.page

    def scanned(how: Any, *given: Any, **more: Any) -> Any:
        found = scan(how, *given, **more)
        if how.table in (JOURNAL, METAJOURNAL, TAG_VIEW) and "key" in (at := how.columns or rows_of(how.table)):
            read.extend((how.table.name, row[at.index("key")]) for row in found.rows)
        return found

    def looked(partition: int, some: Any, *more: Any) -> Any:
        read.extend(("look", key) for key in some)
        return look(partition, some, *more)

    def paged(key: str, *given: Any, **more: Any) -> Any:
        read.append(("page", key))
        return page(key, *given, **more)

    def decoded(records: Any, partitions: int) -> Any:
        read.extend(("log", record.key) for record in records)
        return decode(records, partitions)

    for name, instead in (("scan", scanned), ("look", looked), ("page", paged)):
        monkeypatch.setattr(store, name, instead)
    monkeypatch.setattr("strandline.reconcile.kept_log.decode", decoded)
    report = reconciled(sqlite, sample=0.1, start=start)
    assert (report.findings, report.slices) == ([], len(slices))
    assert (report.keys, report.events, report.tag_rows) == (len(chosen), 2 * len(chosen), len(chosen))
    assert {kind for kind, _ in read} >= {JOURNAL.name, METAJOURNAL.name, TAG_VIEW.name, "look", "log"}
    assert {key for _, key in read} == chosen


def rows_of(table: Any) -> list[str]:
    return [column.name for column in table.columns]


@pytest.mark.req("J116", "T83")
def test_it_finds_what_a_whole_run_finds(sqlite: Strandline) -> None:
    """But rows that it does not read: of tags, where the key has no head, and those that stand in another partition."""
    history(sqlite)
    hand = Hand(sqlite)
    planted = sorted((kind, key, plant(hand, key)) for kind, key, plant in plants_of(sqlite).values())
    beyond = "tag_extra", "ended_life"
    assert names(reconciled(sqlite, sample=1.0).findings) == [each for each in planted if each[0] not in beyond]
