"""Projections on Spark: the same projections on the same offsets as in plain hosts, and rebuilds at bulk speed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.cli_call import call
from tests.journal.worlds import url_of
from tests.projection.handlers import Writes
from tests.projection.repairing import Lost
from tests.projection.worlds import ORDERS, QUICK, Table, caught_up, check_exactly_once, everything, running, until
from tests.query.filling import carry_all, put

import strandline
from strandline import InvalidInput, Key, Unsupported
from strandline.connect import Strandline
from strandline.pipeline import project, rebuild, spark_host
from strandline.projection import host
from strandline.projection.definition import Projection
from strandline.testing.archive import archive_here

KEYS = [Key("order", str(number)) for number in range(12)]


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "LOOK_S", 0.1)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


@pytest.fixture
def s(url: str) -> Iterator[Strandline]:
    with strandline.connect(url, partitions=3) as opened:
        yield opened


@pytest.fixture
def table(s: Strandline) -> Iterator[Table]:
    made = Table(s)
    yield made
    made.close()


@pytest.fixture
def new(s: Strandline) -> Iterator[Table]:
    made = Table(s)
    yield made
    made.close()


def totals(table: Table, generation: int = 1, **settings: Any) -> Projection:
    how = {key: settings.pop(key) for key in ("dies", "fails", "takes_s", "holds") if key in settings}
    handler = Writes(table.name, table.dialect, **how)
    return Projection("totals", ORDERS, handler, generation=generation, **{**QUICK, **settings})


def fill(s: Strandline, rounds: int = 2) -> None:
    for _ in range(rounds):
        for key in KEYS:
            put(s, key)
    carry_all(s)


def contents(table: Table) -> list[Any]:
    with table._offsets.store.database.read() as tx:
        raw: Any = tx.raw
        return sorted(tuple(row) for row in raw.execute(f"select key, life, seq_nr, by_whom from {table.name}"))


@pytest.mark.req("P96", "P90")
def test_rows_that_were_put_back_are_redelivered_on_spark(tmp_path: Path, spark: Any) -> None:
    """Though no bound has moved."""
    url = url_of("sqlite", tmp_path)
    with strandline.connect(url, partitions=3) as s:
        table = Table(s)
        fill(s)
        lost = Lost(s, KEYS[3], 2)
        project(url, [totals(table)], once=True, spark=spark)
        assert (table.of(KEYS[3]), s.projections.status("totals").stale) == ([1], None)
        lost.put_back()
        stale = s.projections.status("totals").stale
        assert stale is not None
        assert [(one.key, one.seq_nr) for one in stale.first] == [(str(KEYS[3]), 2)]
        s.projections.redeliver("totals", KEYS[3], 2)
        project(url, [totals(table)], once=True, spark=spark)
        assert (table.of(KEYS[3]), s.projections.status("totals").stale) == ([1, 2], None)
        table.close()


@pytest.mark.req("P90", "P86")
def test_a_projection_moves_between_plain_hosts_and_spark(url: str, s: Strandline, table: Table, spark: Any) -> None:
    fill(s)
    project(url, [totals(table)], once=True, spark=spark)
    assert len(table.rows()) == 24
    fill(s)
    with running(s, totals(table)):
        until(lambda: caught_up(s))
    fill(s)
    stop = threading.Event()
    on_spark = threading.Thread(target=project, args=(url, [totals(table)]), kwargs={"stop": stop, "spark": spark})
    on_spark.start()  # and both at once, each with its share
    try:
        until(lambda: len(table.rows()) == 72, 30)
        with running(s, totals(table)):
            until(lambda: len({found.owner for found in s.projections.status("totals").ranges if found.owner}) == 2, 30)
            assert s.projections.rescale("totals", 5, timeout_s=20)
            fill(s, 1)
            until(lambda: caught_up(s), 30)
    finally:
        stop.set()
        on_spark.join(30)
    assert not on_spark.is_alive()
    assert [found.state for found in s.projections.status("totals").ranges] == ["waiting"] * 5
    check_exactly_once(s, table)


@pytest.mark.req("P84", "P85", "P87", "P88", "P90", "RR8")
def test_a_rebuild_beside_a_host_that_goes_on_ends_equal(
    url: str, s: Strandline, table: Table, new: Table, spark: Any
) -> None:
    fill(s)
    built = totals(new, 2, group_size=7)
    writing = threading.Event()

    def write() -> None:
        while not writing.wait(0.05):
            fill(s, 1)

    with running(s, totals(table)):
        until(lambda: caught_up(s))
        writer = threading.Thread(target=write)
        writer.start()
        try:
            done = rebuild(url, built, ranges=4, spark=spark)
        finally:
            writing.set()
            writer.join()
        assert (done.generation, done.state) == (2, "ready")
        assert set(new.rows()) <= set(table.rows())  # never past it
        assert rebuild(url, built, spark=spark) == done  # nothing is left to do
        with running(s, built):  # a plain host takes it on from there
            until(lambda: caught_up(s))
            assert s.projections.switch("totals", 2)
            assert contents(new) == contents(table)
            fill(s, 1)
            until(lambda: caught_up(s))
    check_exactly_once(s, new)


@pytest.mark.req("P86", "P66", "RR8")
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)  # what is tested here is Spark's
def test_a_build_whose_workers_are_killed_goes_on_there(
    url: str, s: Strandline, table: Table, new: Table, spark: Any, tmp_path: Path
) -> None:
    fill(s, 3)
    with running(s, totals(table)):
        until(lambda: caught_up(s))
    dies = tmp_path / "dies"
    dies.write_text(f"{KEYS[5]} 2*3")  # three workers die there, the fourth does not
    done = rebuild(url, totals(new, 2, save_after=5, dies=dies), ranges=2, spark=spark)
    assert done.state == "ready"
    assert dies.read_text().endswith("*0")
    check_exactly_once(s, new)


@pytest.mark.req("P105", "J114")
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)  # what is tested here is Spark's
def test_a_build_is_complete_where_events_left_for_an_archive(
    url: str, s: Strandline, table: Table, new: Table, spark: Any, tmp_path: Path
) -> None:
    """And the projection that has had them goes on."""
    fill(s, 2)
    with running(s, totals(table)):
        until(lambda: caught_up(s))
    assert archive_here(s, tmp_path / "archive", s.strandline() + 1).removed == len(everything(s))
    fill(s, 1)
    with running(s, totals(table)):
        until(lambda: caught_up(s))
    check_exactly_once(s, table)
    assert rebuild(url, totals(new, 2), ranges=2, spark=spark).state == "ready"
    assert len(new.rows()) == len(everything(s))
    check_exactly_once(s, new)


@pytest.mark.req("P58", "P60", "P89")
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)  # what is tested here is Spark's
def test_a_build_whose_handler_fails_says_where(url: str, s: Strandline, table: Table, new: Table, spark: Any) -> None:
    fill(s, 1)
    with running(s, totals(table)):
        until(lambda: caught_up(s))
    with pytest.raises(InvalidInput, match=f"{KEYS[3]} 1: ValueError".replace("|", r"\|")) as refused:
        rebuild(url, totals(new, 2, fails=f"{KEYS[3]} 1", retries=0), spark=spark)
    assert refused.value.code == "handler"
    done = rebuild(url, totals(new, 2, fails=f"{KEYS[3]} 1", retries=0, on_failure="skip"), spark=spark)
    assert done.state == "ready"
    assert len(new.rows()) == len(everything(s)) - 1
    assert [letter.key for letter in s.projections.dead_letters("totals", generation=2)] == [str(KEYS[3])]


@pytest.mark.req("P84", "P90")
def test_a_task_whose_time_is_over_within_a_timestamp_goes_on_there(
    url: str, s: Strandline, table: Table, new: Table, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All events of an append have one timestamp. A task ends among them: the bound is reached in time, the rest of the
    append is not done, and nothing new is carried."""
    monkeypatch.setattr(spark_host, "TASK_S", 0.4)
    put(s, KEYS[0], 700)  # more than a page of the default size
    carry_all(s)
    slow, slow_too = totals(table, takes_s=0.001), totals(new, 2, takes_s=0.001)
    for run in (
        lambda stop: project(url, [slow], once=True, spark=spark, stop=stop),
        lambda stop: rebuild(url, slow_too, spark=spark, stop=stop),
    ):
        stop = threading.Event()
        thread = threading.Thread(target=run, args=(stop,))
        thread.start()
        thread.join(20)
        ended = not thread.is_alive()
        stop.set()
        thread.join(30)
        assert ended
    assert ("totals", 2, "ready") in s.projections.list()
    check_exactly_once(s, table)
    check_exactly_once(s, new)


@pytest.mark.req("P90")
def test_a_range_whose_handler_is_slow_delays_itself_alone(tmp_path: Path, spark: Any) -> None:
    """One event does not come to its end; those of other ranges go on being handled, again and again.

    Not on SQLite: there a handler that holds its transaction open holds up whoever else writes into that file.
    """
    url, held = url_of("postgresql", tmp_path), tmp_path / "held"
    with strandline.connect(url, partitions=3) as s:
        table = Table(s)
        slow = KEYS[0]
        beside = [key for key in KEYS if key.partition(3) != slow.partition(3)]
        held.write_text(str(slow))
        stop = threading.Event()
        what = {"stop": stop, "spark": spark}
        on_spark = threading.Thread(target=project, args=(url, [totals(table, holds=held)]), kwargs=what)
        on_spark.start()
        try:
            for times in (1, 2, 3):
                fill(s, 1)
                until(lambda: all(table.of(key) == list(range(1, times + 1)) for key in beside), 30)  # noqa: B023
                assert table.of(slow) == []
            held.unlink()
            until(lambda: table.of(slow) == [1, 2, 3], 30)
        finally:
            held.unlink(missing_ok=True)
            stop.set()
            on_spark.join(30)
        assert not on_spark.is_alive()
        check_exactly_once(s, table)
        table.close()


MODULE = """
from strandline import BySlices, Projection

def add(tx, event):
    tx.execute("create table if not exists handled (key text, seq_nr int)")
    tx.execute("insert into handled values (?, ?)", (str(event.key), event.seq_nr))

def again(tx, events):
    tx.execute("create table if not exists again (key text, seq_nr int)")
    tx.executemany("insert into again values (?, ?)", [(str(event.key), event.seq_nr) for event in events])

first = Projection("totals", BySlices("order"), add, refresh_interval_s=0.02)
second = Projection("totals", BySlices("order"), again, refresh_interval_s=0.02, group_size=50, generation=2)
"""


@pytest.mark.req("P84", "P88", "P90")
def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
    """Handlers of a module that only the folder has in which the command is given."""
    (tmp_path / "spark_projections.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    url = f"sqlite:{tmp_path}/orders"  # the session was started in another folder
    offsets = f"sqlite:{tmp_path}/offsets.db"
    of = ("--url", url, "--projections", offsets, "--json")
    with strandline.connect(url, partitions=3, projections=offsets) as s:
        fill(s)

        def stop() -> None:  # it runs until it is told
            until(lambda: s.projections.list() and not s.projections.status("totals").behind_store_s, 60)
            signal.raise_signal(signal.SIGTERM)

        watching = threading.Thread(target=stop)
        watching.start()
        assert call("projections", "run", "spark_projections:first", "--spark", *of).code == 0
        watching.join()
        assert call("pipeline", "rebuild", *of).problem["code"] == "option"
        assert call("projections", "switch", "totals", "2", *of).code == 3
        (built,) = call("projections", "rebuild", "spark_projections:second", "--ranges", "2", *of).lines
        assert (built["generation"], built["state"]) == (2, "ready")
        (told,) = call("projections", "status", "totals", "--generation", "2", *of).lines
        assert (told["state"], len(told["ranges"])) == ("ready", 2)
        import spark_projections  # type: ignore[import-not-found]

        with running(s, spark_projections.second):
            assert call("projections", "switch", "totals", "2", *of).code == 0
        assert call("projections", "drop", "totals", "--generation", "1", "--yes", *of).code == 0
        assert s.projections.list() == [("totals", 2, "serving")]
        with s.open_offsets().store.closed_after() as store, store.database.read() as tx:
            raw: Any = tx.raw
            once, again = (sorted(raw.execute(f"select key, seq_nr from {name}")) for name in ("handled", "again"))
        assert once == again
        assert len(once) == 24


@pytest.mark.req("P90", "J88")
def test_offsets_in_a_file_need_a_local_master(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/orders"
    strandline.connect(url).close()
    with pytest.raises(Unsupported) as refused:
        project(url, [Projection("totals", ORDERS, print)], master="spark://elsewhere:7077")
    assert refused.value.code == "not_shared"
    with pytest.raises(InvalidInput):
        rebuild(url, None)
