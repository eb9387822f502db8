"""Histories that earlier releases wrote come to the same state, and can be played back."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.errors import Corrupt
from strandline.group.history import Entry, folded
from tests.group.old_histories import groups_of, read, state

FILES = sorted((Path(__file__).parent / "histories").glob("*.json.gz"))


@pytest.mark.req("G71", "G73", "S56")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_they_fold_to_the_same_state(file: Path) -> None:
    lines = read(file)
    assert {line["id"] for line in lines} >= {"plain", "asked", "mailed", "bad", "aborted", "long", "cells", "stuck"}
    for line in lines:
        assert state(line["id"], line["events"]) == line["state"], line["id"]


@pytest.mark.req("G73")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_definition_has_the_hash_that_it_had(file: Path) -> None:
    """Who submits a group again after an upgrade has the same group."""
    hashes = {line["id"]: line["state"][2][0] for line in read(file)}
    assert {group.id: group.hash for group in groups_of()} == {group.id: hashes[group.id] for group in groups_of()}


@pytest.mark.req("G71")
def test_there_are_some_and_an_event_that_is_none_is_refused() -> None:
    assert FILES
    defined = Entry(1, "Defined", {"hash": "h", "stream": "s", "tables": {}, "dialects": {}, "definition": {}})
    for wrong in (Entry(2, "Odd", {}), Entry(2, "Result", {}), Entry(2, "Decided", {}), Entry(2, "Defined", {})):
        with pytest.raises(Corrupt) as caught:
            folded("g", [(defined, 1, 1), (wrong, 1, 2)])
        assert caught.value.name == "Corrupt.history"
