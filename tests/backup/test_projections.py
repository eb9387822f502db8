"""Projections of a restored journal: they wait for an operator, or go on where the copy left them."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline import BySlices, Event, Projection, SchemaMismatch
from strandline.backup import backup, restore
from strandline.connect import Strandline
from strandline.testing import carry
from tests.backup.conftest import Journals, opened
from tests.projection.worlds import caught_up, running, until

KEYS = [f"order|{number}" for number in range(4)]


def projection() -> Projection:
    return Projection("totals", BySlices("order"), lambda tx, event: seen.append((str(event.key), event.seq_nr)))


seen: list[tuple[str, int]] = []


def project(s: Strandline) -> list[tuple[str, int]]:
    """What a host hands over until nothing is left."""
    seen.clear()
    with running(s, projection()):
        until(lambda: caught_up(s), 20)
    return sorted(seen)


def append(s: Strandline, number: int) -> None:
    for key in KEYS:
        s.journal.append(key, [Event("Placed", {"n": number})])
    carry(s)


@pytest.mark.req("RS4", "P104", "RP1")
def test_projections_of_a_restored_journal(alike: Journals, tmp_path: Path) -> None:
    here, there, kept = alike.place("here"), alike.place("there"), alike.place("kept")
    with opened(here) as s:
        append(s, 1)
        assert project(s) == [(key, 1) for key in KEYS]
        append(s, 2)
        backup(tmp_path / "copy", **here)
        first = project(s)
    restore(tmp_path / "copy", **there)
    with opened(there) as s:
        with pytest.raises(SchemaMismatch) as refused:
            project(s)
        assert refused.value.code == "log_replaced"
        s.projections.reset("totals")
        assert project(s) == [(key, number) for key in KEYS for number in (1, 2)]
    restore(tmp_path / "copy", **kept, keep_projections=True)
    with opened(kept) as s:
        append(s, 3)
        assert project(s) == sorted([*first, *[(key, 3) for key in KEYS]])
        assert min(range_.fence for range_ in s.projections.status("totals").ranges) > 2**32
