"""Copies by other tools: `strandline doctor` tells whether a store and a log belong together."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Event
from strandline.backup import verify
from strandline.servers.postgres import SUPERUSER, PostgresServer
from strandline.testing import carry
from tests.acceptance.cli_call import call
from tests.backup.conftest import words


def append(place: dict[str, Any], *types: str, carried: bool = True) -> None:
    with strandline.connect(**place, partitions=1) as s:
        for type_ in types:
            s.journal.append("order|1", [Event(type_, 1)])
        if carried:
            carry(s)


def finding(place: dict[str, Any]) -> tuple[str, str]:
    """State of the journal, and what is said of it."""
    answer = call("doctor", *words(place), "--json")
    name = "journal" if "url" in place else "store"
    (found,) = [line for line in answer.lines if line["name"] == name]
    assert answer.code == (7 if found["state"] == "wrong" else 0)
    return found["state"], found["found"]


@pytest.mark.req("RR6", "RS4")
def test_copies_of_files(tmp_path: Path) -> None:
    here = {"url": f"sqlite:{tmp_path}/here"}

    def copied(name: str, folder: str) -> None:
        (tmp_path / folder).mkdir(exist_ok=True)
        shutil.copy(tmp_path / "here" / name, tmp_path / folder / name)

    append(here, "One", "Two")
    for folder, names in {"good": ("store.db",), "ahead": ("log.db",), "forked": ("log.db",)}.items():
        for name in names:
            copied(name, folder)
    append(here, "Three", "Four")
    copied("log.db", "good")
    copied("store.db", "ahead")
    good, ahead, forked = [dict[str, Any](url=f"sqlite:{tmp_path}/{folder}") for folder in ("good", "ahead", "forked")]
    assert finding(good)[0] == "ok"
    append(good, "Five")
    assert verify(**good).damaged == 0
    state, said = finding(ahead)
    assert (state, "the store is at offset" in said) == ("wrong", True)
    # The log was put back, and recorded as much as it had lost, before the store came beside it.
    with strandline.connect(log=f"sqlite:{tmp_path}/forked/log.db", store=f"sqlite:{tmp_path}/other.db") as s:
        for type_ in ("Six", "Seven", "Eight", "Nine"):
            s.journal.append("order|1", [Event(type_, 1)])
    copied("store.db", "forked")
    state, said = finding(forked)
    assert (state, "another record than the store took" in said) == ("wrong", True)


def dumped(server: PostgresServer, url: str, to: str, path: Path) -> None:
    """A database copied by PostgreSQL's own tools."""
    where = ("--host", str(server.folder), "--username", SUPERUSER)
    name, new = (one.rpartition("@/")[2].partition("?")[0] for one in (url, to))
    programs = Path(server._programs)
    for command in (
        [str(programs / "pg_dump"), *where, "--format", "custom", "--file", str(path), name],
        [str(programs / "pg_restore"), *where, "--dbname", new, str(path)],
    ):
        subprocess.run(command, check=True, capture_output=True, timeout=120)


@pytest.mark.req("RR6", "RS4")
def test_copies_by_pg_dump(postgres: PostgresServer, tmp_path: Path) -> None:
    one, whole = postgres.database(), postgres.database()
    append({"url": one}, "One", "Two")
    append({"url": one}, "Three", carried=False)
    dumped(postgres, one, whole, tmp_path / "whole")
    assert finding({"url": whole})[0] == "ok"
    append({"url": whole}, "Four")
    assert verify(url=whole).damaged == 0
    log, store, log_copy, store_copy, later = (postgres.database() for _ in range(5))
    apart = {"log": log, "store": store}
    append(apart, "One")
    dumped(postgres, store, store_copy, tmp_path / "store")
    dumped(postgres, log, log_copy, tmp_path / "log")
    append(apart, "Two")
    dumped(postgres, store, later, tmp_path / "later")
    assert finding({"log": log_copy, "store": store_copy})[0] == "ok"
    state, said = finding({"log": log_copy, "store": later})
    assert (state, "the store is at offset" in said) == ("wrong", True)
