"""A backup of a journal in use: of one moment, whole, and another life once it is restored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from strandline import Event, InvalidInput, LeaseLost, WorkDeclaration
from strandline.backup import backup, restore, verify, verify_backup
from strandline.clock import now_us
from strandline.connect import Strandline
from strandline.testing import carry
from strandline.testing.log_contract.committing import until
from strandline.values.keys import key_partition
from tests.backup.conftest import Journals, opened

KEYS = [f"order|{number}" for number in range(12)]
MAILS = WorkDeclaration("mails", key={"order": "int"}, data={"to": "text"}, lease_s=600)


@contextmanager
def repeated(*acts: Callable[[], object]) -> Iterator[None]:
    """Each done again and again in a thread of its own."""
    done, failed = threading.Event(), list[BaseException]()

    def repeat(act: Callable[[], object]) -> None:
        try:
            while not done.is_set():
                act()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=repeat, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failed


class Load:
    """Appends, deletes, purges, carries, adds and ends work; knows what was acknowledged."""

    def __init__(self, s: Strandline) -> None:
        self.s = s
        self.last: dict[str, int] = {}
        self.added = self.ended = self.carries = 0
        self.mails = s.work(MAILS)
        self._cursor = self.mails.cursor("worker")

    def append(self) -> None:
        for number, key in enumerate(KEYS):
            self.last[key] = self.s.journal.append(key, [Event("Placed", {"n": 1}, tags=["blue"])]).last or 0
            if number == 3 and self.last[key] > 5:
                self.s.journal.delete(key, to=self.last[key] - 3)

    def purge(self) -> None:
        self.s.journal.append("gone|1", [Event("Placed", {"n": 1}, tags=["blue"])])
        self.s.journal.purge("gone|1")

    def carry(self) -> None:
        carry(self.s)
        self.carries += 1

    def work(self) -> None:
        self.mails.add({"order": self.added}, {"to": "somebody"})
        self.added += 1
        if self.added % 2 == 0:
            for claim in self._cursor.claim(1).claims:
                claim.done()
                self.ended += 1


@pytest.mark.req("RS4", "RA1", "RJ1", "RW1")
def test_all_that_was_acknowledged_is_there_and_goes_on(journals: Journals, tmp_path: Path) -> None:
    here, there, copy = journals.place("here"), journals.place("there"), tmp_path / "copy"
    with opened(here) as s:
        load = Load(s)
        with repeated(load.append, load.purge, load.carry, load.work):
            until(lambda: load.carries > 2 and load.added > 10)
            before, work_before, ended_before = dict(load.last), load.added, load.ended
            asked = now_us()
            manifest = backup(copy, **here)
            begun = len(before) and load.last[KEYS[0]]
            until(lambda: load.last[KEYS[0]] > begun + 1)  # nobody was kept from going on
        work_after, ended_after = load.added, load.ended
        newest = s.log.newest()
    assert asked <= manifest.moment <= now_us()
    assert all(end.newest <= last for end, last in zip(manifest.ends, newest, strict=True))
    assert all(pointer <= end.newest for pointer, end in zip(manifest.pointers, manifest.ends, strict=True))
    assert verify_backup(copy).to_dict()["damages"] == []
    restored = restore(copy, **here | there)
    assert not restored.needs_upgrade
    with opened(there) as s:
        assert s.log.newest() == [end.newest for end in manifest.ends]
        assert [pointer.offset for pointer in s.store.pointers()] == list(manifest.pointers)
        for _ in ("as it is", "carried"):
            for key in KEYS:
                head = s.journal.head(key)
                assert head is not None
                assert head.seq_nr >= before[key]
                found = [event.seq_nr for event in s.journal.read(key)]
                assert found == list(range(head.delete_to + 1, head.seq_nr + 1))
            carry(s)
        assert s.journal.append(KEYS[0], [Event("Placed", 1)]).last == s.journal.head(KEYS[0]).seq_nr  # type: ignore[union-attr]
        carry(s)
        tagged = [(event.key, event.seq_nr) for event in s.by_tag("blue")]
        assert len(tagged) == len(set(tagged)) > len(KEYS)
        left = s.work("mails").counts()
        assert work_before - ended_after - 1 <= left.due + left.running <= work_after - ended_before
    assert verify(**there).to_dict()["damages"] == []


@pytest.mark.req("RS4", "RA5", "RA6", "RR3", "RW3")
def test_who_worked_for_the_first_life_holds_nothing_in_the_second(alike: Journals, tmp_path: Path) -> None:
    """As it is where the restored journal takes the first one's place."""
    here, there, again = alike.place("here"), alike.place("there"), alike.place("again")
    with opened(here) as s:
        for number in range(20):
            s.journal.append(KEYS[number % 4], [Event("Placed", {"n": number}, tags=["blue"])])
        carry(s)
        mails = s.work(MAILS)
        mails.add({"order": 1}, {"to": "somebody"})
        claim = mails.cursor("first").claim(1).claims[0]
        backup(tmp_path / "copy", **here)
        added = mails.add({"order": 2}, {"to": "somebody"})
        later = mails.cursor("second").claim(1).claims[0]
        lease = s.store.lease().take("the first life's pipeline")
        s.journal.append(KEYS[0], [Event("Lost", {"n": 1})])
        ends = [end.timestamp for end in s.log.ends()]  # type: ignore[attr-defined]
        with s.by_tag("blue") as events:
            offset = [event.offset for event in events][-1]
        lives = [restore(tmp_path / "copy", **place) for place in (there, again)]
        assert len({s.log.log_id, *(life.log_id for life in lives)}) == 3
        assert len({s.store.settings.history_id, *(life.history_id for life in lives)}) == 3
        fences = []
        for place in (there, again):
            with opened(place) as new:
                fences.append(_checked_life(new, claim, later, lease.fence, offset, added.id))
                partition = key_partition(KEYS[0], 2)
                assert new.log.ends()[partition].timestamp > ends[partition]  # type: ignore[attr-defined]
        assert fences[0] != fences[1]
        lease.release()


def _checked_life(new: Strandline, claim: Any, later: Any, first_fence: int, offset: Any, lost_id: int) -> int:
    mails = new.work("mails")
    for fence in (claim.fence, later.fence):
        with pytest.raises(LeaseLost):
            mails.claim_of(claim.entry.id, fence).done()
    mine = mails.cursor("third").claim(1).claims[0]
    assert mine.entry.id == claim.entry.id  # its lease is over
    assert mine.fence > max(claim.fence, later.fence, lost_id)
    assert mails.add({"order": 3}, {"to": "somebody"}).id > mine.fence
    mine.done()
    with pytest.raises(InvalidInput) as foreign:
        new.by_tag("blue", after=offset)
    assert foreign.value.code == "offset_foreign"
    lease = new.store.lease().take("the second life's pipeline")
    fence = lease.fence
    assert fence > first_fence + 2**31
    assert all(pointer.fence == fence for pointer in new.store.pointers())
    lease.release()
    new.journal.append(KEYS[0], [Event("Placed", {"n": 1})])
    return fence
