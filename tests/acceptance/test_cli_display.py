"""The progress of a pipeline as it is shown, from made-up batches: no Spark is needed to see it."""

from __future__ import annotations

import io
import json
import threading
from dataclasses import replace

import pytest
from rich.console import Console

from strandline.cli.display import CarriedTotals, JsonDisplay, LineDisplay, LiveDisplay, display_for, progress_line
from strandline.cli.pipeline import Guard
from strandline.pipeline.progress import PartitionProgress, Progress

NOW = 1_800_000_000_000_000


def batch(
    number: int = 1, *, events: int = 1200, error: str | None = None, strandline: int = NOW - 800_000
) -> Progress:
    partitions = (
        PartitionProgress(0, 99, 99, 0),
        PartitionProgress(1, 49, 99, 50, error),
        PartitionProgress(2, -1, -1, 0),
    )
    return Progress(number, events, events, 0.4, partitions, strandline, 3)


def test_line() -> None:
    line = progress_line(batch(), NOW)
    assert line == "batch 1: 1,200 events in 0.4 s (3,000/s), lag 50 actions, strandline 0.8 s ago, quarantine 3"
    assert "never carried" in progress_line(batch(strandline=0), NOW)
    for strandline in (0, NOW - 52_000_000):  # nothing waits: for how long nothing happened is no news
        carried = Progress(2, 0, 0, 0.6, (PartitionProgress(0, 99, 99, 0),), strandline, 0)
        assert progress_line(carried, NOW).endswith("lag 0 actions, strandline up to date, quarantine 0")
    lost = Progress(2, 0, 0, 0.6, (PartitionProgress(0, 9, 99, 0, "lost"),), NOW, 0)
    assert "up to date" not in progress_line(lost, NOW)
    assert progress_line(batch(error="disk\x1b[2J"), NOW).endswith("\n  partition 1 fails: disk\\x1b[2J")


def test_lines_keep_quiet_while_nothing_happens(capsys: pytest.CaptureFixture[str]) -> None:
    at = 0.0
    with LineDisplay(clock=lambda: NOW, monotonic=lambda: at) as display:
        display.show(batch(1, events=0))
        for number in range(2, 100):
            at += 0.1
            display.show(batch(number, events=0))
        at += 10
        display.show(batch(100, events=0))
        display.show(batch(101, events=5))
        display.show(batch(102, events=0, error="disk"))
    said = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("batch")]
    assert said == ["batch 1", "batch 100", "batch 101", "batch 102"]


def test_a_batch_that_takes_long_has_lines_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with LineDisplay(clock=lambda: NOW, monotonic=lambda: 0.0) as display:
        for seconds in (5.0, 10.0):
            display.show(replace(batch(1, events=0), seconds=seconds, under_way=True))
        display.show(batch(1))
    first, second, last = (line for line in capsys.readouterr().out.splitlines() if line.startswith("batch"))
    assert first.startswith("batch 1: under way for 5.0 s, lag 50 actions, ")
    assert second.startswith("batch 1: under way for 10 s, lag ")
    assert last.startswith("batch 1: 1,200 events in 0.4 s")
    totals = CarriedTotals()
    totals.add(replace(batch(1, events=0), under_way=True))
    assert totals.batches == 0


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with JsonDisplay() as display:
        display.show(batch(1))
        display.show(batch(2, error="disk"))
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["batch"], first["events"], first["quarantined"]) == (1, 1200, 3)
    assert first["partitions"][1] == {"partition": 1, "pointer": 49, "newest": 99, "lag": 50, "error": None}
    assert second["partitions"][1]["error"] == "disk"


def test_live_picture() -> None:
    text = io.StringIO()
    with LiveDisplay(Console(file=text, force_terminal=True, width=100), clock=lambda: NOW) as display:
        display.show(batch(1))
        display.show(batch(2))
    text.truncate(0)
    Console(file=text, width=100).print(display.picture(batch(3)))
    shown = text.getvalue()
    for part in ("2,400 events", "3,000/s", "batch 3", "strandline 0.8 s ago", "lag 50 actions", "quarantine 3", "49"):
        assert part in shown
    text.truncate(0)
    Console(file=text, width=100).print(display.picture(batch(3, error="disk [red] full")))
    assert "disk [red] full" in text.getvalue()


def test_what_suits_the_reader() -> None:
    assert isinstance(display_for(json=True), JsonDisplay)
    assert isinstance(display_for(json=False), LineDisplay)


def test_pipeline_ends_when_nobody_reads_its_progress() -> None:
    stop = threading.Event()
    shown = []

    def show(progress: Progress) -> None:
        shown.append(progress.batch)
        if progress.batch == 2:
            raise BrokenPipeError

    guard = Guard(show, stop)
    guard(batch(1))
    guard.raise_if_unread()
    assert not stop.is_set()
    guard(batch(2))
    assert stop.is_set()
    guard(batch(3))
    assert shown == [1, 2]
    with pytest.raises(BrokenPipeError):
        guard.raise_if_unread()
