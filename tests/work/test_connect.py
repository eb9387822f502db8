"""Work journals by `connect`: where they are, and who refuses them."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

import strandline
from strandline.errors import InvalidInput, SchemaMismatch, Unsupported
from strandline.servers.postgres import PostgresServer
from strandline.work.opening import standbys_in
from tests.work.worlds import declaration, one, postgres_place


@pytest.mark.req("W3", "W68")
def test_a_folder_has_its_work_beside_it(tmp_path: Path) -> None:
    with strandline.connect(f"sqlite:{tmp_path / 'shop'}") as s:
        assert not (tmp_path / "shop" / "work.db").exists(), "made with the first journal"
        work = s.work(declaration())
        work.add(**one("a"))
        assert (tmp_path / "shop" / "work.db").exists()
        apart = s.work(declaration("apart"), url=f"sqlite:{tmp_path / 'apart.db'}")
        assert apart.add(**one("a")).outcome == "inserted"
    with pytest.raises(InvalidInput) as closed:
        work.add(**one("b"))
    assert closed.value.code == "closed"
    with pytest.raises(InvalidInput):
        s.work("thumbs")
    with strandline.connect(f"sqlite:{tmp_path / 'shop'}", schema="check") as s:
        assert s.work("thumbs").counts().due == 1
        assert s.work(declaration()).counts().due == 1
        with pytest.raises(SchemaMismatch):
            s.work(declaration("nails"))
        with pytest.raises(strandline.NotFound):
            s.work("nails")


@pytest.mark.req("W3", "W69")
def test_one_database_for_all(postgres: PostgresServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "strandline.work"), strandline.connect(postgres_place(postgres.url)) as s:
        for _ in range(2):
            assert s.work(declaration()).add(**one("a")).outcome in ("inserted", "merged")
        assert caplog.text.count("no synchronous standby") == 1
        with pytest.raises(Unsupported, match="standbys_min is 1") as refused:
            s.work(declaration("kept", standbys_min=1))
        assert refused.value.code == "standbys"


@pytest.mark.req("W69")
@pytest.mark.parametrize(
    ("names", "count"),
    [("", 0), ("*", 1), ("a, b", 1), ("2 (a, b, c)", 2), ("FIRST 3 (a, b, c)", 3), ("any 2 (*)", 2)],
)
def test_how_many_standbys_a_server_asks_for(names: str, count: int) -> None:
    assert standbys_in(names) == count


@pytest.mark.req("W69")
def test_a_file_has_no_standbys(tmp_path: Path) -> None:
    with strandline.connect(f"sqlite:{tmp_path / 'shop'}") as s, pytest.raises(Unsupported) as refused:
        s.work(declaration(standbys_min=1))
    assert refused.value.code == "standbys"


@pytest.mark.req("W3")
def test_where_no_database_is_named() -> None:
    with strandline.connect("memory:") as s, pytest.raises(Unsupported, match="no SQL database") as refused:
        s.work(declaration())
    assert refused.value.code == "work_url"
    with pytest.raises(InvalidInput, match="kafka holds no work"):
        strandline.connect("memory:", work="kafka://host/topic")


@pytest.mark.req("W3")
def test_a_forked_child_is_refused(tmp_path: Path) -> None:
    with strandline.connect(f"sqlite:{tmp_path / 'shop'}") as s:
        work = s.work(declaration())
        pid = os.fork()
        if not pid:
            try:
                work.add(**one("a"))
            except Unsupported as error:
                os._exit(0 if error.code == "used_after_fork" else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
