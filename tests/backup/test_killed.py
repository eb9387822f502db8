"""What is left of a backup or a restore that was killed, at each step of it: nothing that looks whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Corrupt, Event, SchemaMismatch
from strandline.backup import backup, manifest, restore, taking, verify_backup
from strandline.testing import carry
from tests.backup.conftest import Journals, opened

KILLED = """
import os, signal, sys
from strandline import backup
left = [int(sys.argv[3])]
def told(what, done, of):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
getattr(backup, sys.argv[1])(sys.argv[2], told=told, **dict(word.split("=", 1) for word in sys.argv[4:]))
"""
STEPS_MAX = 60


def killed(act: str, path: Path, step: int, place: dict[str, Any]) -> bool:
    """Do it in a process that is killed when it tells of its so-manieth step; False if it came to its end before."""
    given = [f"{name}={url}" for name, url in place.items()]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, act, str(path), str(step), *given], check=False, capture_output=True, timeout=60
    )
    assert done.returncode in (0, -9), done.stderr
    return done.returncode == -9


def filled(place: dict[str, Any]) -> dict[str, list[Any]]:
    with opened(place) as s:
        for number in range(8):
            s.journal.append(f"order|{number % 3}", [Event("Placed", {"n": number})])
        carry(s)
        s.journal.append("order|1", [Event("Placed", {"n": 9})])
        return {key: [event.payload for event in s.journal.read(key)] for key in ("order|0", "order|1", "order|2")}


def steps_of(count: int) -> list[int]:
    """Two steps, the last among them: each costs a process."""
    return sorted({count // 2, count - 1})


def counting(steps: list[str]) -> manifest.Told:
    return lambda what, done, of: steps.append(what)


@pytest.mark.req("RS4")
def test_a_killed_backup_is_none(alike: Journals, tmp_path: Path) -> None:
    here, there, steps = alike.place("here"), alike.place("there"), list[str]()
    filled(here)
    backup(tmp_path / "whole", **here, told=counting(steps))
    for step in steps_of(len(steps)):
        path = tmp_path / f"killed-{step}"
        assert killed("backup", path, step, here)
        assert not (path / "manifest.json").exists()
        with pytest.raises(Corrupt, match="no whole backup"):
            restore(path, **there)
        with pytest.raises(Corrupt, match="no whole backup"):
            verify_backup(path)
        with pytest.raises(strandline.InvalidInput, match="not empty") as refused:
            backup(path, **here)
        assert refused.value.code == "not_empty"
    restore(tmp_path / "whole", **there)


@pytest.mark.req("RS4")
def test_the_manifest_is_named_when_it_is_whole(
    alike: Journals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before its name, and with all files there: no backup."""
    here = alike.place("here")
    filled(here)
    before: list[list[str]] = []

    def rename(path: Path, to: Path) -> None:
        before.append([found.name for found in path.parent.iterdir()])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename)
        patched.setattr(taking, "_remove", lambda folder, whole: None)  # killed, it could not
        with pytest.raises(KeyboardInterrupt):
            backup(tmp_path / "copy", **here)
    assert "manifest.json" not in before[0]
    assert ".manifest.json" in before[0]
    with pytest.raises(Corrupt):
        verify_backup(tmp_path / "copy")


@pytest.mark.req("RS4")
def test_a_killed_restore_does_not_open(journals: Journals, tmp_path: Path) -> None:
    here, steps = journals.place("here"), list[str]()
    expected = filled(here)
    backup(tmp_path / "copy", **here)
    restore(tmp_path / "copy", **journals.place("whole"), told=counting(steps))
    for step in steps_of(len(steps)):
        there = journals.place(f"killed-{step}")
        assert killed("restore", tmp_path / "copy", step, there)
        with pytest.raises(SchemaMismatch) as refused:
            strandline.connect(**there, schema="check")
        assert refused.value.code in ("no_schema", "log_replaced")
    there = journals.place("last")
    restore(tmp_path / "copy", **there)
    with opened(there) as s:
        assert {key: [event.payload for event in s.journal.read(key)] for key in expected} == expected


@pytest.mark.req("RS4")
def test_a_failed_backup_leaves_nothing(alike: Journals, tmp_path: Path) -> None:
    here = alike.place("here")
    filled(here)

    def told(what: str, done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backup(tmp_path / "copy", **here, told=told)
    assert not (tmp_path / "copy").exists()
    (tmp_path / "made").mkdir()
    with pytest.raises(KeyboardInterrupt):
        backup(tmp_path / "made", **here, told=told)
    assert list((tmp_path / "made").iterdir()) == []
