"""What `status` and `doctor` say of work journals, and what they do not do to find out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import strandline
from strandline.journal.status import Status, StatusSection
from strandline.servers.postgres import PostgresServer
from tests.acceptance.cli_call import call
from tests.work.worlds import S, World, declaration, one, postgres_place


def of_work(status: Status) -> list[StatusSection]:
    return [section for section in status.sections if section.name == "work"]


@pytest.mark.req("W43", "W69", "W77", "W78")
def test_a_status_shows_work(world: World) -> None:
    with strandline.connect("memory:", work=world.place, clock=world.clock) as s:
        assert not of_work(s.status()), "nothing was ever declared"
        mails, thumbs = s.work(declaration("mails", max_timeouts=1)), s.work(declaration())
        mails.add_many([one("a"), one("b"), one("c", process_date=world.clock.now + 60 * S)])
        mails.cursor("w").claim(1).claims[0].fail("no")
        thumbs.pause("move")
        world.clock.pass_s(7)
        status = s.status()
        (work,) = of_work(status)
        assert work.summary.startswith("2 work journals, 1 alert")
        assert ("standbys: 0" in work.summary) is not world.is_sqlite
        assert [row["journal"] for row in work.rows] == ["mails", "thumbs"]
        row = {name: work.rows[0][name] for name in ("due", "later", "dead", "unacknowledged", "oldest_due_s")}
        assert row == {"due": 1, "later": 1, "dead": 1, "unacknowledged": 1, "oldest_due_s": 7.0}
        assert (work.rows[0]["tables"], work.rows[0]["draining"]) == (1, 0)
        assert [warning.partition(";")[0] for warning in status.warnings] == [
            "work mails: 1 dead letter unacknowledged",
            "work thumbs: paused (move)",
        ]
        assert status.to_dict()["work"][1]["paused"] == "move"
        assert s.status(parts=False).sections == ()


@pytest.mark.req("W53", "W73")
def test_a_status_shows_what_cannot_be_emptied(postgres_world: World) -> None:
    from tests.work.test_transactions import caller

    with strandline.connect("memory:", work=postgres_world.place, clock=postgres_world.clock) as s:
        work = s.work(declaration(table_rows_max=10))
        with caller(postgres_world) as tx:
            work.add(**one("open"), tx=tx)
            work._upkeep.step(work.settings, close=True)
            (row,) = of_work(s.status())[0].rows
            assert (row["tables"], row["draining"]) == (2, 1)


@pytest.mark.req("W3")
def test_a_look_makes_nothing(tmp_path: Path, postgres: PostgresServer) -> None:
    """Between `connect` and the first journal somebody asks for the status: that is not what makes `work.db`."""
    with strandline.connect(f"sqlite:{tmp_path / 'shop'}") as s:
        assert not of_work(s.status())
        assert not (tmp_path / "shop" / "work.db").exists()
        s.work(declaration())
        assert len(of_work(s.status())) == 1
    with strandline.connect(postgres_place(postgres.url)) as s:
        assert not of_work(s.status())
        assert s.work(declaration()).add(**one("a")).outcome == "inserted"
        assert of_work(s.status())[0].rows[0]["due"] == 1


@pytest.mark.req("W3")
def test_what_cannot_be_looked_at_hides_nothing_else(tmp_path: Path) -> None:
    broken = tmp_path / "work.db"
    broken.write_bytes(b"no database at all, whatever its name says" * 100)
    with strandline.connect("memory:", work=f"sqlite:{broken}") as s:
        status = s.status()
        (work,) = of_work(status)
        assert status.partitions
        assert work.error is not None
        assert status.warnings == (f"work: {work.error.message}",)
    url = f"sqlite:{tmp_path / 'shop'}"
    strandline.connect(url).close()
    doctor = call("doctor", "--url", url, "--work", f"sqlite:{broken}", "--json")
    (finding,) = [one for line in doctor.out.splitlines() if (one := json.loads(line))["name"] == "work"]
    assert (doctor.code, finding["state"]) == (7, "wrong")


@pytest.mark.req("W78")
def test_the_command_shows_it(world: World, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'shop'}"
    strandline.connect(url).close()
    place = ["--url", url, "--work", world.place]
    assert "work journal" not in call("status", *place).out
    work = world.real(max_timeouts=1)
    work.add_many([one("a"), one("b")])
    work.cursor("w").claim(1).claims[0].fail("no")
    work.pause("move\x1b[2J")
    shown = call("status", *place).out
    assert "1 work journal, 1 alert" in shown
    assert "oldest due" in shown
    assert "\x1b" not in shown
    told = json.loads(call("status", "--json", *place).out)
    assert (told["work"][0]["journal"], told["work"][0]["due"], told["work"][0]["dead"]) == ("thumbs", 1, 1)
