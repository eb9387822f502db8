"""Replication on a real Spark: continuous and to the end of now, sick partitions, marks, leases."""

from __future__ import annotations

import errno
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from pyspark.core import context

import strandline
from strandline import Event, metrics
from strandline.clock import now_us
from strandline.connect import Strandline
from strandline.errors import LeaseHeld, MissingEvent, SchemaMismatch, StrandlineError, Unavailable, Unsupported
from strandline.pipeline import log_ranges, purge_expired, quarantine, supervisor
from strandline.pipeline.log_ranges import LogPlanner
from strandline.pipeline.progress import Progress
from strandline.pipeline.replicate import run
from strandline.pipeline.supervisor import Supervisor
from strandline.store.scans import entity_types_of, keys_of, look_at
from strandline.testing import raw_append

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = [f"order|{number}" for number in range(40)]  # over all 8 partitions


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/shop"


@pytest.fixture
def s(url: str) -> Iterator[Strandline]:
    with strandline.connect(url) as connected:
        yield connected


class Pipeline:
    """A pipeline in a thread of this process, and what it told."""

    def __init__(self, url: str, spark: SparkSession, **settings: Any) -> None:
        self.told: list[Progress] = []
        self.error: BaseException | None = None
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(url, spark, settings), daemon=True)
        self._thread.start()

    def _run(self, url: str, spark: SparkSession, settings: dict[str, Any]) -> None:
        try:
            run(url, spark=spark, stop=self.stop, progress=self.told.append, **settings)
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self.stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "it stops when told to"


@contextmanager
def pipeline(url: str, spark: SparkSession, **settings: Any) -> Iterator[Pipeline]:
    running = Pipeline(url, spark, **settings)
    try:
        yield running
    finally:
        running.end()
    if running.error is not None:
        raise running.error


def until(condition: Callable[[], object], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.02)


def stored(s: Strandline) -> dict[str, list[object]]:
    """What the store alone has, without the tail."""
    found = {}
    for entity_type in entity_types_of(s.store):
        for key in keys_of(s.store, entity_type, after=None, limit=1000):
            _, head = look_at(s.store, key, strandline.Key.of(key).partition(8))
            rows = s.store.page(key, head.life, head.segment_size, from_=1, to=2**62, limit=10**6).rows  # type: ignore[union-attr]
            found[key] = [cells[0] for cells in rows]
    return found


def lag(s: Strandline) -> int:
    return sum(end - pointer.offset for pointer, end in zip(s.store.pointers(), s.log.newest(), strict=True))


@pytest.mark.req("J79", "J85", "J93", "J90", "RR1")
def test_once_carries_up_to_now_and_ends_with_the_strandline_above_it(url: str, s: Strandline, spark: Any) -> None:
    last = [s.journal.append(key, [Event("Placed", n), Event("Paid", n)]) for n, key in enumerate(KEYS[:5])][-1]
    s.journal.append(KEYS[0], [Event("Gone", 1)])
    s.journal.delete(KEYS[0], to=1)
    s.journal.append(KEYS[9], [Event("Gone", 1)])
    gone = s.journal.purge(KEYS[9])
    told: list[Progress] = []
    summary = run(url, once=True, spark=spark, progress=told.append)
    assert (summary.events, summary.strandline) == (12, s.strandline())
    assert last.timestamp is not None
    assert s.strandline() >= s.store.pointers()[gone.partition].last_action_at >= last.timestamp
    assert stored(s) == {KEYS[0]: [2, 3], **{key: [1, 2] for key in KEYS[1:5]}}
    assert lag(s) == 0
    assert sum(progress.events for progress in told) == 12
    assert told[-1].lag == 0
    newest = s.log.newest()
    again = run(url, once=True, spark=spark)
    assert (again.actions, again.events) == (0, 0)
    assert s.log.newest() == newest, "a still log does not grow"


@pytest.mark.req("J79")
def test_on_a_local_master_there_are_no_more_tasks_than_run_at_once(
    url: str, s: Strandline, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[int] = []
    batch = Supervisor._batch

    def counted(self: Supervisor, ranges: Any) -> None:
        tasks.append(len(ranges))
        batch(self, ranges)

    monkeypatch.setattr(log_ranges, "TASK_RECORDS", 1)  # each range is a long one
    monkeypatch.setattr(Supervisor, "_batch", counted)
    for key in KEYS:
        s.journal.append(key, [Event("Placed", 1)])
    run(url, once=True, spark=spark)
    assert stored(s) == {key: [1] for key in KEYS}
    assert max(tasks) == spark.sparkContext.defaultParallelism == 2


def test_the_first_batch_tells_how_far_it_is(url: str, s: Strandline, spark: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(supervisor, "UNDER_WAY_S", 0.0)
    monkeypatch.setattr(supervisor, "LOOK_S", 0.01)
    for number in range(100):
        s.journal.append(KEYS[number % 5], [Event("Placed", number)] * 20)
    told: list[Progress] = []
    run(url, once=True, spark=spark, progress=told.append)
    first = [progress for progress in told if progress.batch == 1]
    assert [progress.under_way for progress in first][-1:] == [False]
    assert len(first) > 1
    assert all(progress.under_way and not progress.events for progress in first[:-1])
    assert first[0].lag > first[-1].lag == 0


@pytest.mark.req("J80", "RR2", "J33", "RA14")
def test_nothing_rests_on_what_spark_remembers(
    url: str, s: Strandline, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with strandline.connect(url, clock=two_days_ago) as early:
        old = early.journal.append(KEYS[7], [Event("Placed", "long ago")])
    s.journal.append(KEYS[7], [Event("Paid", "now")])
    for round_ in range(3):
        s.journal.append(KEYS[round_], [Event("Placed", round_)])
        s.journal.append(KEYS[0], [Event("Placed", round_)])
        run(url, once=True, spark=spark)
    assert [event.payload for event in s.journal.read(KEYS[0])] == [0, 0, 1, 2]
    assert stored(s)[KEYS[0]] == [1, 2, 3, 4]
    assert s.log.oldest()[old.partition] == 1, "it trims what is old, and nothing else"
    assert [event.payload for event in s.journal.read(KEYS[7])] == ["long ago", "now"]


@pytest.mark.req("J79", "J89", "J92", "J93", "RR4", "J91")
def test_a_running_pipeline_carries_and_marks_what_is_idle(url: str, s: Strandline, spark: Any) -> None:
    seen: list[int] = []
    with pipeline(url, spark, mark_idle_s=0.2) as running:
        for number in range(10):  # one busy partition, seven that were never used
            appended = s.journal.append(KEYS[0], [Event("Placed", number)])
            s.journal.wait_replicated(appended, timeout_s=60)
            seen.append(s.strandline())
        until(lambda: s.strandline() >= (appended.timestamp or 0))
        seen.append(s.strandline())
        until(lambda: lag(s) == 0)
        newest = s.log.newest()
        status = s.status()
        assert status.lease_holder is not None
        batches = len(running.told)
        until(lambda: time.time_ns() // 1000 > status.strandline + 3_000_000, 20)
        assert s.log.newest() == newest, "one Mark a partition, then a still log stops growing"
        assert len(running.told) <= batches + 1
    assert seen == sorted(seen), "the strandline never goes back"
    assert passed_within(running.told, appended, batches=2), "with its own batch, or with the next"
    assert s.status().lease_holder is None
    assert stored(s) == {KEYS[0]: list(range(1, 11))}
    assert sum(progress.events for progress in running.told) == 10


@pytest.mark.req("J92", "RR4")
def test_a_clock_that_was_ahead_hides_nothing_although_all_are_busy(url: str, s: Strandline, spark: Any) -> None:
    busy = list({strandline.Key.of(key).partition(8): key for key in KEYS}.values())
    assert len(busy) == 8
    with pipeline(url, spark, mark_idle_s=5) as running:
        s.journal.wait_replicated(s.journal.append(busy[0], [Event("Placed", 1)]), timeout_s=60)
        with strandline.connect(url, clock=lambda: now_us() + 3_600_000_000) as early:
            ahead = early.journal.append(busy[0], [Event("Placed", 1)])
        while carried_by(running.told, ahead) is None or len(running.told) < (carried_by(running.told, ahead) or 0) + 3:
            for key in busy:
                s.journal.append(key, [Event("Placed", 1)])
    assert passed_within(running.told, ahead, batches=2), "with its own batch, or with the next"


def carried_by(told: list[Progress], place: Any) -> int | None:
    """Which batch carried a place."""
    partition, offset = place.partition, place.offset
    return next((n for n, progress in enumerate(told) if progress.partitions[partition].pointer >= offset), None)


def passed_within(told: list[Progress], place: Any, *, batches: int) -> bool:
    """Whether the strandline passed a place with the batch that carried it, or so many in all."""
    first = carried_by(told, place)
    assert first is not None
    return any(progress.strandline >= place.timestamp for progress in told[first : first + batches])


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A line for each pass that was begun."""
    started: list[str] = []
    batches = Supervisor._batches

    def begin(supervisor: Supervisor, *arguments: Any) -> None:
        started.append(str(arguments))
        batches(supervisor, *arguments)

    monkeypatch.setattr(Supervisor, "_batches", begin)
    return started


@pytest.mark.req("J84", "J89", "RR2", "RR12")
def test_a_sick_partition_slows_no_other_and_heals_by_itself(
    url: str,
    s: Strandline,
    spark: Any,
    tmp_path: Path,
    passes: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sick = strandline.Key.of(KEYS[0]).partition(8)
    well = next(key for key in KEYS if strandline.Key.of(key).partition(8) != sick)
    for key in KEYS:
        s.journal.append(key, [Event("Placed", 1)])
    run(url, once=True, spark=spark)
    connection = apsw.Connection(f"{tmp_path}/shop/store.db")
    connection.set_busy_timeout(60_000)  # the pipeline writes, too
    columns = connection.execute("SELECT * FROM journal LIMIT 1").fetchall()[0]
    names = [row[1] for row in connection.execute("PRAGMA table_info(journal)")]
    other = dict(zip(names, columns, strict=True)) | {"key": KEYS[0], "seq_nr": 2, "life": 1, "segment": 0}
    marks = ",".join("?" * len(names))
    connection.execute(f"INSERT INTO journal VALUES ({marks})", tuple(other.values()))
    for key in KEYS:
        s.journal.append(key, [Event("Paid", 2)])

    fail, failed = Supervisor._failed, []

    def note(supervisor: Supervisor, part: int, error: Exception) -> None:
        failed.append(part)
        fail(supervisor, part, error)

    def tries() -> int:
        return failed.count(sick)

    monkeypatch.setattr(Supervisor, "_failed", note)
    with pipeline(url, spark) as running:
        until(tries)
        passes.clear()
        numbers = range(3, 23)
        for _ in numbers:
            s.journal.wait_replicated(s.journal.append(well, [Event("Paid", 2)]), timeout_s=60)
        until(lambda: tries() >= 4)
        assert passes == [], "the pass goes on, and with it all others"
        assert tries() < len(numbers) / 2, "it is held back, so most batches are without it"
        assert caplog.text.count(f"partition {sick} failed") == 1, "once a minute"
        said = [partition.last_error for partition in s.status().partitions]
        assert [error is not None for error in said] == [partition == sick for partition in range(8)]
        assert "another content" in str(said[sick])
        assert s.store.pointers()[sick].offset < s.log.newest()[sick]
        connection.execute("DELETE FROM journal WHERE key = ? AND seq_nr = 2", (KEYS[0],))
        until(lambda: lag(s) == 0)
        until(lambda: all(partition.last_error is None for partition in s.status().partitions))
        assert passes == []
    errors = {p.partition for progress in running.told for p in progress.partitions if p.error}
    assert errors == {sick}
    assert stored(s) == {**{key: [1, 2] for key in KEYS}, well: [1, 2, *numbers]}
    connection.close()


@pytest.mark.req("J84", "J85", "RR7", "U6")
def test_a_trimmed_partition_stops_no_other(url: str, s: Strandline, spark: Any, passes: list[str]) -> None:
    lost = strandline.Key.of(KEYS[0]).partition(8)
    well = [key for key in KEYS if strandline.Key.of(key).partition(8) != lost]
    for key in KEYS:
        s.journal.append(key, [Event("Placed", 1)])
    s.log.trim(lost, to=1, pointer=1, keep_after=2**62)
    with pytest.raises(MissingEvent) as caught:
        run(url, once=True, spark=spark, append_timeout_s=0.5)
    assert (caught.value.name, caught.value.exit_code) == ("MissingEvent.log_trimmed", 5)
    assert (caught.value.partition, caught.value.first, caught.value.last) == (lost, 0, 1)
    assert not caught.value.retryable
    assert stored(s) == {key: [1] for key in well}, "the others are carried"
    passes.clear()
    with pipeline(url, spark):
        s.journal.wait_replicated(s.journal.append(well[0], [Event("Paid", 2)]), timeout_s=60)
        until(lambda: s.status().partitions[lost].last_error)
        s.journal.wait_replicated(s.journal.append(well[0], [Event("Paid", 3)]), timeout_s=60)
        said = [partition.last_error for partition in s.status().partitions]
        assert [error is not None for error in said] == [partition == lost for partition in range(8)]
        assert "trimmed" in str(said[lost])
    assert len(passes) == 1


@pytest.mark.req("J84")
def test_what_fails_while_batches_are_planned_keeps_its_class(
    url: str, s: Strandline, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s.journal.append(KEYS[0], [Event("Placed", 1)])

    def refuse(_planner: LogPlanner, _held: object) -> None:
        raise SchemaMismatch("it is newer", code="version", hint="upgrade")

    monkeypatch.setattr(LogPlanner, "tasks", refuse)
    with pytest.raises(StrandlineError) as caught:
        run(url, once=True, spark=spark)
    assert caught.value.name == "SchemaMismatch.version"


@pytest.mark.req("J84")
def test_what_a_caller_raises_comes_back_as_it_is(url: str, s: Strandline, spark: Any) -> None:
    s.journal.append(KEYS[0], [Event("Placed", 1)])

    def refuse(_: Progress) -> None:
        raise ZeroDivisionError("the caller's own")

    with pytest.raises(ZeroDivisionError, match="own"):
        run(url, once=True, spark=spark, progress=refuse)


@pytest.mark.req("J85", "RR12", "J84", "J33")
def test_once_ends_with_the_error_of_a_partition_that_stays_sick(url: str, s: Strandline, spark: Any) -> None:
    raw_append(s, 3, key="who|knows", header=_newer())
    with strandline.connect(url, clock=two_days_ago) as early:
        old = early.journal.append(KEYS[0], [Event("Placed", 1)])
    assert old.partition != 3
    with pytest.raises(StrandlineError) as caught:
        run(url, once=True, spark=spark, append_timeout_s=0.5)
    assert caught.value.name == "SchemaMismatch.version"
    assert stored(s) == {KEYS[0]: [1]}, "the others are carried"
    assert s.log.oldest()[old.partition] == 1, "and trimmed"
    assert s.store.lease().holder() is None


def two_days_ago() -> int:
    return now_us() - 2 * 86_400 * 10**6


def _newer() -> bytes:
    import zlib

    body = b'{"v":99,"kind":"append"}'
    return b'{"crc":"%08x",%s' % (zlib.crc32(body), body[1:])


@pytest.mark.req("J83", "U12", "RR3")
def test_a_second_pipeline_is_refused_with_the_holder(url: str, s: Strandline, spark: Any) -> None:
    with pipeline(url, spark):
        until(lambda: s.status().lease_holder is not None)
        holder = s.status().lease_holder
        with pytest.raises(LeaseHeld) as caught:
            run(url, once=True, spark=spark)
        assert caught.value.holder == holder
        assert "pid" in str(holder)


@pytest.mark.req("J88", "U15")
def test_back_ends_that_tasks_cannot_see_are_refused(url: str, s: Strandline, spark: Any) -> None:
    calls = [("memory:", {"spark": spark}), (url, {"master": "spark://h:7077"})]
    for place, options in calls:
        with pytest.raises(Unsupported) as caught:
            run(place, once=True, **options)
        assert caught.value.name == "Unsupported.not_shared"
        assert caught.value.hint


@pytest.mark.req("J109")
@pytest.mark.parametrize("work", [run, purge_expired, quarantine])
def test_a_pipeline_makes_no_journal(work: Callable[[str], object], tmp_path: Path) -> None:
    """Carrying a mistyped place would succeed with nothing."""
    with pytest.raises(SchemaMismatch) as caught:
        work(f"sqlite:{tmp_path}/mistyped")
    assert caught.value.name == "SchemaMismatch.no_schema"
    assert not (tmp_path / "mistyped").exists()


@pytest.mark.req("J88", "J83")
def test_a_pipeline_whose_lease_was_taken_ends(url: str, s: Strandline, spark: Any, tmp_path: Path) -> None:
    s.journal.append(KEYS[0], [Event("Placed", 1)])
    with metrics.start() as counted:
        running = Pipeline(url, spark, mark_idle_s=0.2)
        until(lambda: lag(s) == 0)
        connection = apsw.Connection(f"{tmp_path}/shop/store.db")
        connection.execute("UPDATE lease SET fence = fence + 1")
        connection.close()
        until(lambda: running.error is not None)
        running.end()
        assert counted.registry.get_sample_value("strandline_leases_lost_total", {"part": "pipeline"}) == 1
    assert getattr(running.error, "name", "") == "LeaseLost.lease_lost"


@pytest.mark.req("RA16")
def test_a_pipeline_whose_log_went_says_so_and_ends(url: str, s: Strandline, spark: Any, tmp_path: Path) -> None:
    s.journal.append(KEYS[0], [Event("Placed", 1)])
    running = Pipeline(url, spark, mark_idle_s=0.2)
    until(lambda: lag(s) == 0)
    (tmp_path / "shop" / "log.db").unlink()
    until(lambda: running.error is not None)
    running.end()
    assert getattr(running.error, "name", "") == "Unavailable.away"
    assert "log.db was removed or replaced" in str(running.error)


@pytest.mark.req("RS8", "J84")
@pytest.mark.parametrize("full", [2, 100], ids=["for a moment", "for good"])
def test_a_temporary_folder_that_is_full(
    url: str, s: Strandline, spark: Any, monkeypatch: pytest.MonkeyPatch, full: int
) -> None:
    """A batch cannot be sent: that is tried again, and then said in our words."""
    make, tries = context.NamedTemporaryFile, 0

    def named_file(**named: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries <= full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return make(**named)

    monkeypatch.setattr(context, "NamedTemporaryFile", named_file)
    monkeypatch.setattr("strandline.pipeline.supervisor.BACK_OFF_S", 0.01)
    s.journal.append("order|1", [Event("Placed", 1)])
    if full == 2:
        assert run(url, once=True, spark=spark).events == 1
        return
    with pytest.raises(Unavailable) as caught:
        run(url, once=True, spark=spark)
    assert caught.value.name == "Unavailable.no_space"
    assert s.store.lease().holder() is None


@pytest.mark.req("J84")
def test_a_batch_that_spark_cannot_start(url: str, s: Strandline, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "_temp_dir", "/dev/null/x")
    monkeypatch.setattr("strandline.pipeline.supervisor.BACK_OFF_S", 0.01)
    s.journal.append("order|1", [Event("Placed", 1)])
    with pytest.raises(Unavailable) as caught:
        run(url, once=True, spark=spark)
    assert caught.value.name == "Unavailable.away"
    assert caught.value.message.startswith("Spark ended the run: ")
    assert "\n" not in caught.value.message


@pytest.mark.req("RS2", "J83")
def test_ctrl_c_is_raised_when_all_is_over(
    url: str, s: Strandline, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a call to the JVM it would leave half an answer behind."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler  # Spark has not taken it
    s.journal.append(KEYS[0], [Event("Placed", 1)])
    with pytest.raises(KeyboardInterrupt):
        run(url, spark=spark, progress=lambda _: os.kill(os.getpid(), signal.SIGINT))
    assert not [thread for thread in threading.enumerate() if thread.name == supervisor.BATCHES]
    assert s.store.lease().holder() is None
    assert s.store.pointers()[strandline.Key.of(KEYS[0]).partition(8)].offset == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
