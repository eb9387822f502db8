"""A backup of a folder in use, as docs/BACKENDS.md says to take it: SQLite's own, the store first, then the log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

import strandline
from strandline import Event, SchemaMismatch
from strandline.connect import Strandline
from strandline.testing import carry
from strandline.testing.log_contract.committing import until

KEYS = [f"order|{number}" for number in range(5)]


def backed_up(folder: Path, name: str, to: Path) -> None:
    to.mkdir(exist_ok=True)
    source, copy = apsw.Connection(str(folder / name)), apsw.Connection(str(to / name))
    with copy.backup("main", source, "main") as backup:
        while not backup.done:
            backup.step(100)
    copy.close()
    source.close()


@contextmanager
def repeated(act: Callable[[], object]) -> Iterator[None]:
    """Done again and again beside, at least once before and once after."""
    done, failed = threading.Event(), list[BaseException]()

    def repeat() -> None:
        try:
            while not done.is_set():
                act()
        except BaseException as error:
            failed.append(error)

    act()
    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert not failed


@pytest.mark.req("RR6", "RJ1")
def test_the_store_first_then_the_log(tmp_path: Path) -> None:
    """Under appends and a pipeline: what was acknowledged before is there, carried or not, and goes on."""
    acknowledged: dict[str, int] = {}
    carries: list[object] = []

    def append(s: Strandline) -> None:
        for key in KEYS:
            acknowledged[key] = s.journal.append(key, [Event("Placed", 1)]).last or 0

    with (
        strandline.connect(f"sqlite:{tmp_path}/orders") as s,
        repeated(lambda: append(s)),
        repeated(lambda: carries.append(carry(s))),
    ):
        backed_up(tmp_path / "orders", "store.db", tmp_path / "copy")
        between = dict(acknowledged)
        append(s)
        begun = len(carries)
        until(lambda: len(carries) > begun + 1)  # the store is ahead of its copy now
        backed_up(tmp_path / "orders", "log.db", tmp_path / "copy")
    with strandline.connect(f"sqlite:{tmp_path}/copy") as s:
        for _ in ("as it is", "carried"):
            for key in KEYS:
                found = [event.seq_nr for event in s.journal.read(key)]
                assert found == list(range(1, len(found) + 1))
                assert len(found) > between[key]
            carry(s)
        last = len(list(s.journal.read(KEYS[0])))
        assert s.journal.append(KEYS[0], [Event("Placed", 1)], expected=last).last == last + 1


@pytest.mark.req("RR6")
def test_the_log_first_is_refused(tmp_path: Path) -> None:
    with strandline.connect(f"sqlite:{tmp_path}/orders") as s:
        s.journal.append(KEYS[0], [Event("Placed", 1)])
        backed_up(tmp_path / "orders", "log.db", tmp_path / "copy")
        s.journal.append(KEYS[0], [Event("Placed", 2)])
        carry(s)
        backed_up(tmp_path / "orders", "store.db", tmp_path / "copy")
    with pytest.raises(SchemaMismatch) as refused:
        strandline.connect(f"sqlite:{tmp_path}/copy")
    assert refused.value.code == "log_replaced"
