"""A file that is removed, or replaced by another one, while it is open: nobody goes on as if nothing were."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Event, Key, LeaseHeld, Unavailable
from strandline.backends.sqlite import database
from strandline.connect import Strandline
from strandline.projection.liveness import Beat
from strandline.store.sql_store import SqlStore
from strandline.testing import carry

KEY = Key("order", "42")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "orders"


@pytest.fixture(params=["new", "still"])
def s(folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Strandline]:
    """In a folder that is new, and in one whose last change is so old that the folder alone is looked at."""
    if request.param == "still":
        monkeypatch.setattr(database, "FOLDER_STILL_NS", 0)
    with strandline.connect(f"sqlite:{folder}") as opened:
        opened.journal.append(KEY, [Event("Placed", 1)])
        carry(opened)
        time.sleep(0.02)  # longer than the clock of a file system takes for one step
        opened.journal.append(KEY, [Event("Placed", 2)])
        yield opened


@pytest.mark.req("RA1", "J1")
def test_a_new_folder_is_durable_before_anything_in_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut a folder whose name was not synced may be gone, with all that was synced in it."""
    synced: list[os.stat_result] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        fsync(handle)
        synced.append(os.fstat(handle))

    monkeypatch.setattr(os, "fsync", noted)
    with strandline.connect(f"sqlite:{tmp_path}/orders") as s:
        assert any(os.path.samestat(tmp_path.stat(), found) for found in synced)
        s.journal.append(KEY, [Event("Placed", 1)])
    synced.clear()
    strandline.connect(f"sqlite:{tmp_path}/orders").close()
    assert synced == []  # it was there


def removed(file: Path) -> None:
    file.unlink()


def replaced(file: Path) -> None:
    copy = file.with_name("copy")
    shutil.copy(file, copy)
    copy.replace(file)


def folder_renamed(file: Path) -> None:
    file.parent.rename(file.parent.with_name("away"))


def folder_replaced(file: Path) -> None:
    folder_renamed(file)
    strandline.connect(f"sqlite:{file.parent}").close()


HOW: list[Callable[[Path], None]] = [removed, replaced, folder_renamed, folder_replaced]


def away(call: Callable[[], Any]) -> Unavailable:
    with pytest.raises(Unavailable) as refused:
        call()
    assert refused.value.code == "away"
    assert refused.value.moved
    assert refused.value.hint
    return refused.value


@pytest.mark.req("RA16", "RA1")
@pytest.mark.parametrize("how", HOW)
def test_a_log_that_went_is_away(s: Strandline, folder: Path, how: Callable[[Path], None]) -> None:
    how(folder / "log.db")
    calls: list[Callable[[], Any]] = [
        lambda: s.journal.append(KEY, [Event("Placed", 3)]),
        lambda: s.journal.append_future(KEY, [Event("Placed", 3)]).result(10),
        lambda: s.journal.purge(KEY),
        lambda: list(s.journal.read(KEY)),
        lambda: s.journal.head(KEY),
        lambda: carry(s),
        s.status,
    ]
    assert {away(call).applied for call in calls} == {"no"}


@pytest.mark.req("RA16")
@pytest.mark.parametrize("how", HOW)
def test_a_store_that_went_is_away(s: Strandline, folder: Path, how: Callable[[Path], None]) -> None:
    how(folder / "store.db")
    calls: list[Callable[[], Any]] = [
        lambda: carry(s),
        lambda: list(s.journal.read(KEY)),
        lambda: s.journal.save_snapshot(KEY, 1, {}),
        lambda: s.journal.keys("order"),
        s.strandline,
        lambda: s.store.lease().take("me"),
    ]
    assert {away(call).applied for call in calls} == {"no"}
    assert isinstance(s.store, SqlStore)


@pytest.mark.req("RA16")
def test_without_its_write_ahead_log_nothing_is_written(s: Strandline, folder: Path) -> None:
    (folder / "log.db-wal").unlink()
    assert away(lambda: s.journal.append(KEY, [Event("Placed", 3)])).applied == "no"
    assert [event.payload for event in s.journal.read(KEY)] == [1, 2]


@pytest.mark.req("RA16", "RA3")
@pytest.mark.parametrize("name", ["log.db", "log.db-wal"])
def test_what_goes_under_a_commit_is_unknown(s: Strandline, folder: Path, name: str) -> None:
    def go() -> bool:
        (folder / name).unlink()
        return False

    s.log._database.writer.set_commit_hook(go)  # type: ignore[attr-defined]
    assert away(lambda: s.journal.append(KEY, [Event("Placed", 3)])).applied == "unknown"
    s.log._database.writer.set_commit_hook(None)  # type: ignore[attr-defined]
    assert away(lambda: s.journal.append(KEY, [Event("Placed", 4)])).applied == "no"


@pytest.mark.req("RA16")
def test_a_folder_further_up_that_went_is_seen_soon(tmp_path: Path) -> None:
    """What was acknowledged until then is in the file, wherever it is now."""
    up, aside = tmp_path / "up", tmp_path / "aside"
    up.mkdir()
    with strandline.connect(f"sqlite:{up}/orders") as s:
        s.journal.append(KEY, [Event("Placed", 0)])
        up.rename(aside)
        acknowledged, deadline = 1, time.monotonic() + 10

        def append_on() -> None:
            nonlocal acknowledged
            while time.monotonic() < deadline:
                s.journal.append(KEY, [Event("Placed", acknowledged)])
                acknowledged += 1

        away(append_on)
    with strandline.connect(f"sqlite:{aside}/orders") as s:
        found = [event.payload for event in s.journal.read(KEY)]
        assert found[:acknowledged] == list(range(acknowledged))
        assert len(found) <= acknowledged + 1


@pytest.mark.req("RA16")
def test_what_comes_back_is_gone_on_with(s: Strandline, folder: Path) -> None:
    aside = folder.with_name("aside")
    folder.rename(aside)
    away(lambda: s.journal.append(KEY, [Event("Placed", 3)]))
    aside.rename(folder)
    assert s.journal.append(KEY, [Event("Placed", 3)]).first == 3


@pytest.mark.req("RA16")
def test_who_closes_what_went_leaves_alone_what_came(s: Strandline, folder: Path) -> None:
    """The library removes a write-ahead log by its name when it closes: not that of somebody else."""
    folder.rename(folder.with_name("aside"))
    with strandline.connect(f"sqlite:{folder}") as new:
        new.journal.append(KEY, [Event("Placed", "new")])
        s.close()
        assert (folder / "log.db-wal").exists()
        new.journal.append(KEY, [Event("Placed", "newer")])
    with strandline.connect(f"sqlite:{folder}") as new:
        assert [event.payload for event in new.journal.read(KEY)] == ["new", "newer"]


@pytest.mark.req("RA16")
def test_a_folder_that_is_put_back_to_its_old_time_hides_nothing(s: Strandline, folder: Path) -> None:
    """As by a copy that keeps times."""
    before = folder.stat()
    replaced(folder / "log.db")
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert away(lambda: s.journal.append(KEY, [Event("Placed", 3)])).applied == "no"


@pytest.mark.req("RA16")
@pytest.mark.parametrize("how", [removed, replaced, folder_renamed, folder_replaced])
def test_behind_a_link_it_is_seen_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(database, "FOLDER_STILL_NS", 0)
    real, link = tmp_path / "real", tmp_path / "link"
    strandline.connect(f"sqlite:{real}").close()
    link.symlink_to(real)
    with strandline.connect(f"sqlite:{link}") as s:
        for number in range(3):
            s.journal.append(KEY, [Event("Placed", number)])
            time.sleep(0.02)
        how(real / "log.db")
        assert away(lambda: s.journal.append(KEY, [Event("Placed", 3)])).applied == "no"


@pytest.mark.req("RA16", "RA1")
@pytest.mark.parametrize("still", [True, False], ids=["still", "new"])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", ["log.db", "store.db"])
def test_behind_a_link_to_the_file_it_is_seen_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, how: Callable[[Path], None], still: bool
) -> None:
    """Nothing changes in the folder of the links when a file goes that they lead to."""
    if still:
        monkeypatch.setattr(database, "FOLDER_STILL_NS", 0)
    real, links = tmp_path / "real", tmp_path / "links"
    strandline.connect(f"sqlite:{real}").close()
    links.mkdir()
    for file in ("log.db", "store.db"):
        (links / file).symlink_to(f"../real/{file}")
    with strandline.connect(f"sqlite:{links}") as s:
        for number in range(3):
            s.journal.append(KEY, [Event("Placed", number)])
            carry(s)
            time.sleep(0.02)
        how(real / name)
        calls = {"log.db": lambda: s.journal.append(KEY, [Event("Placed", 3)]), "store.db": lambda: carry(s)}
        for _ in range(3):
            assert away(calls[name]).applied == "no"


@pytest.mark.req("RA16", "J1")
def test_a_journal_behind_links_is_made_opened_and_locked_as_what_they_lead_to(tmp_path: Path) -> None:
    """The links are there first, and are opened twice at the same time, beside the files themselves."""
    real, links = tmp_path / "real", tmp_path / "links"
    real.mkdir()
    links.mkdir()
    for file in ("log.db", "store.db"):
        (links / file).symlink_to(real / file)
    with strandline.connect(f"sqlite:{links}") as first, strandline.connect(f"sqlite:{links}") as second:
        first.journal.append(KEY, [Event("Placed", 1)])
        second.journal.append(KEY, [Event("Placed", 2)], expected=1)
        with strandline.connect(f"sqlite:{real}") as third:
            third.journal.append(KEY, [Event("Placed", 3)], expected=2)
            lease = first.store.lease().take("me")
            with pytest.raises(LeaseHeld):
                third.store.lease().take("another")
            lease.release()
        assert [event.payload for event in second.journal.read(KEY)] == [1, 2, 3]
        (links / "log.db").unlink()  # the link alone: the file is where it was
        assert first.journal.append(KEY, [Event("Placed", 4)]).first == 4
    with strandline.connect(f"sqlite:{real}") as s:
        assert [event.payload for event in s.journal.read(KEY)] == [1, 2, 3, 4]
    assert {path.name for path in links.iterdir()} <= {"store.db"}


@pytest.mark.req("RA16", "P71")
def test_hosts_find_each_other_whatever_links_they_were_given(tmp_path: Path) -> None:
    real, links = tmp_path / "real", tmp_path / "links"
    real.mkdir()
    links.mkdir()
    (links / "totals.db").symlink_to(real / "totals.db")
    with strandline.connect("memory:") as s:
        here, there = s.open_offsets(f"sqlite:{real}/totals.db"), s.open_offsets(f"sqlite:{links}/totals.db")
        alive = here.alive("a host")
        try:
            beat = Beat(0, 1, 0)
            assert there.alive(None).living({"a host": beat, "another": beat}, 0) == {"a host"}
        finally:
            alive.close()
            here.store.close()
            there.store.close()
