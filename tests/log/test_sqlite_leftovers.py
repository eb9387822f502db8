"""What was purged, deleted or trimmed is not to be found in the bytes of the files."""

from __future__ import annotations

import random
from pathlib import Path

import apsw
import pytest

import strandline
from strandline import Event
from strandline.backends.sqlite.log import SqliteLog
from strandline.connect import Strandline
from strandline.testing import carry

SECRET = b"SECRET"


def written_back(s: Strandline) -> None:
    """The WAL is in the file, and empty: as when the last process closes it."""
    for database in (s.log._database, s.store._database):  # type: ignore[attr-defined]
        database.writer.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)


def leftovers(folder: Path, names: str) -> list[str]:
    return [found.name for found in folder.glob(names) if SECRET in found.read_bytes()]


def fill(s: Strandline, chance: random.Random, size: int) -> list[str]:
    """Journals whose rows lie between those of others, with payloads of one size; the keys that have secrets."""
    keys = [f"order|{index}" for index in range(40)]
    for round_ in range(4):
        for key in chance.sample(keys, len(keys)):
            secret = SECRET if key in keys[::3] else b"public"
            s.journal.append(key, [Event("Placed", secret * (size // 6), metadata={"round": round_})])
        carry(s)
    return keys[::3]


@pytest.mark.req("J48")
@pytest.mark.parametrize(("how", "size"), [("purge", 60), ("purge", 600), ("purge", 6_000), ("delete", 600)])
def test_nothing_of_what_was_purged_or_deleted_is_left_in_the_store(tmp_path: Path, how: str, size: int) -> None:
    folder = tmp_path / "orders"
    with strandline.connect(f"sqlite:{folder}") as s:
        secrets = fill(s, random.Random(size), size)
        written_back(s)
        assert leftovers(folder, "store.db*")
        for key in secrets:
            s.journal.purge(key) if how == "purge" else s.journal.delete(key, to=4)
        s.journal.append("order|after", [Event("Placed", 1)])
        carry(s)
        written_back(s)
        assert leftovers(folder, "store.db*") == []


@pytest.mark.req("J48", "J33")
@pytest.mark.parametrize("size", [600, 6_000])
def test_nothing_of_what_was_trimmed_is_left_in_the_log(tmp_path: Path, size: int) -> None:
    folder = tmp_path / "orders"
    with strandline.connect(f"sqlite:{folder}") as s:
        secrets = fill(s, random.Random(size), size)
        for key in secrets:
            s.journal.purge(key)
        carry(s)
        assert isinstance(s.log, SqliteLog)
        for pointer in s.store.pointers():
            s.log.trim(pointer.partition, to=pointer.offset, pointer=pointer.offset, keep_after=2**62)
        written_back(s)
        assert leftovers(folder, "*") == []
    assert leftovers(folder, "*") == []
