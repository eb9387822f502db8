"""Reconcile beside writers and a pipeline: no false finding, and what was planted is found all the same."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from strandline import Event
from strandline.connect import Strandline
from strandline.errors import LeaseHeld, SeqNrConflict
from strandline.store.tag_view import TAG_VIEW
from strandline.testing import carry
from tests.pairings import paired, pairing
from tests.reconcile.planting import KEYS, TAG, Hand, history, names, reconciled

__all__ = ["paired", "pairing"]
pytestmark = pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")
BUSY = [f"busy|{number}" for number in range(10)]


@contextmanager
def traffic(s: Strandline) -> Iterator[threading.Event]:
    """Writers that append, delete and purge, and a pipeline, until the end; `moved` is set after each carrying."""
    over, moved = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def write(seed: int) -> None:
        chance = random.Random(seed)
        while not over.wait(0.04):  # one process carries what two record
            key = chance.choice(BUSY)
            what = chance.random()
            if what < 0.8:
                s.journal.append(key, [Event("Placed", chance.random(), tags=[TAG])] * chance.randint(1, 3))
            elif what < 0.93:
                s.journal.delete(key, to=chance.randint(1, 5))
            else:
                s.journal.purge(key)

    def follow() -> None:
        lease = s.store.lease().take("a pipeline")
        try:
            while not over.is_set():
                carry(s, lease=lease)
                moved.set()
        finally:
            lease.release()

    def guarded(work: object, *given: object) -> None:
        try:
            work(*given)  # type: ignore[operator]
        except SeqNrConflict:
            guarded(work, *given)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(write, seed)) for seed in range(2)]
    threads.append(threading.Thread(target=guarded, args=(follow,)))
    for thread in threads:
        thread.start()
    try:
        yield moved
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert failed == []


@pytest.mark.req("J117", "J118", "RR3")
@pytest.mark.timeout(120)
def test_it_has_no_false_findings_beside_a_running_pipeline(paired: Strandline) -> None:
    history(paired)
    hand = Hand(paired)
    compared = 0
    with traffic(paired) as moved:
        seen = 0
        while seen < 110 or compared < 2:  # it saw events of the writers
            assert moved.wait(60)
            moved.clear()
            report = reconciled(paired)
            assert report.findings == []
            seen, compared = report.events, compared + 1
        with pytest.raises(LeaseHeld):
            reconciled(paired, repair=True)
        row = hand.tag_row(KEYS[12], 2)
        hand.remove(TAG_VIEW, row)
        assert moved.wait(60)
        assert names(reconciled(paired).findings) == [("tag_missing", KEYS[12], (2,))]
    carry(paired)
    report = reconciled(paired, repair=True)
    assert names(report.findings) == [("tag_missing", KEYS[12], (2,))]
    last = reconciled(paired)
    assert (last.findings, last.suspects, last.busy) == ([], 0, [])
