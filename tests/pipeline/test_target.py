"""Where a task opens log and store."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.store.test_postgres import sessions

import strandline
from strandline.errors import InvalidInput, SchemaMismatch
from strandline.pipeline import target as targets
from strandline.pipeline.target import JournalRef
from strandline.servers.postgres import PostgresServer


def test_what_can_be_lost_is_said_by_the_driver_and_not_again_by_every_worker(tmp_path: Path) -> None:
    target = JournalRef(f"sqlite:{tmp_path}/shop", settings={"accept_power_loss": True})
    with pytest.warns(RuntimeWarning, match="accept_power_loss"):
        target.connect().close()
    target.open()  # a warning is an error here
    target.drop()


@pytest.mark.req("J109")
def test_a_mistyped_url_of_a_spark_job_is_asked_for(tmp_path: Path) -> None:
    """Nothing that only `connect` takes is advised: the format has no such option."""
    with pytest.raises(SchemaMismatch) as caught:
        JournalRef(f"sqlite:{tmp_path}/mistyped").open()
    assert caught.value.name == "SchemaMismatch.no_schema"
    assert caught.value.hint.startswith("is the URL right?")
    assert 'schema="create"' not in caught.value.hint


@pytest.mark.req("D6")
def test_a_url_may_be_in_a_file_or_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:{tmp_path}/shop"
    strandline.connect(url, partitions=3).close()
    (tmp_path / "url").write_text(f"{url}\n")
    monkeypatch.setenv("SHOP_URL", url)
    for place in (f"file:{tmp_path}/url", "env:SHOP_URL"):
        with JournalRef(place).connect(schema="check") as s:
            assert s.log.partitions == 3
    for place in (f"file:{tmp_path}/none", "env:NONE"):
        with pytest.raises(InvalidInput) as caught:
            JournalRef(place).open()
        assert caught.value.name == "InvalidInput.url_incomplete"
        assert place in caught.value.message
        JournalRef(place).drop()


def test_a_path_travels_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's processes are where the session was started, and a program may have gone elsewhere since."""
    monkeypatch.chdir(tmp_path)
    for given in (JournalRef("sqlite:shop"), JournalRef(log="sqlite:shop", store=f"sqlite:{tmp_path}/shop")):
        travels = given.by_reference(tmp_path)
        for place in filter(None, (travels.url, travels.log, travels.store)):
            assert place == f"sqlite:{tmp_path}/shop"
    assert JournalRef("memory:").by_reference(tmp_path) == JournalRef("memory:")


def test_connections_are_kept_for_what_a_target_names_and_not_for_its_name(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start of a pipeline keeps the password in a file of its own. A worker outlasts many of them."""
    url = postgres.database()
    secret = url.replace("postgres@", "postgres:hunter22@")  # this server asks nobody for it
    strandline.connect(url).close()
    runs = [JournalRef(secret).by_reference(tmp_path) for _ in range(6)]
    assert len({run.to_json() for run in runs}) == 6
    opened = [run.open() for run in runs]
    for s in opened:
        s.store.pointers()
    assert len(set(map(id, opened))) == 1
    assert sessions(url) <= 2
    monkeypatch.setattr(targets, "UNUSED_S", 0.0)
    strandline.connect(f"sqlite:{tmp_path}/other").close()
    other = JournalRef(f"sqlite:{tmp_path}/other")
    other.open()  # what was used before is over
    other.drop()
    deadline = time.monotonic() + 10
    while sessions(url):
        assert time.monotonic() < deadline
        time.sleep(0.01)
