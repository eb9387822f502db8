"""memory: the peak of a Python process, beside a limit of 300 MB (10^6 bytes).

`read-a-million` reads a journal of a million events, half of them not replicated yet, so that store and log both have
to be paged. `replicate-ten-million` watches every Python process of a pipeline (driver, planner, workers) while it
carries ten million events; the JVM is Spark's own and does not count. It runs on demand, for minutes and gigabytes.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

from strandline.bench.cases import PAYLOAD_BYTES, Case, CaseSettings, RoundFigure
from strandline.bench.child import in_child, peak_rss_mb

LIMIT_MB = 300.0
MASTER = "local[2]"
READ_EVENTS, READ_EVENTS_QUICK, READ_EVENTS_A_CALL = 1_000_000, 20_000, 500
CARRY_EVENTS, CARRY_EVENTS_QUICK, CARRY_EVENTS_A_CALL, CARRY_KEYS = 10_000_000, 20_000, 10, 100_000
LOOK_S = 0.2


def carry_half_in_child(url: str) -> dict[str, Any]:
    """The pipeline's work for the first half of a log whose appends are all of one key."""
    import strandline
    from strandline.testing import carry

    with strandline.connect(url) as s:
        newest = s.log.newest()
        partition = max(range(len(newest)), key=newest.__getitem__)
        carry(s, partition=partition, limit=(newest[partition] + 1) // 2)
        return {"pointer": s.store.pointers()[partition].offset, "newest": newest[partition]}


def read_in_child(url: str, events: int) -> dict[str, Any]:
    """Read all of it and touch every payload."""
    import strandline

    with strandline.connect(url) as s:
        got = sum(len(event.payload) for event in s.journal.read(strandline.Key("order", "00000000")))
    if got != events * PAYLOAD_BYTES:
        raise RuntimeError(f"the read gave {got} bytes of payload, not {events * PAYLOAD_BYTES}")
    return {"events": events}


def carry_in_child(url: str) -> dict[str, Any]:
    """Run the pipeline up to now; the peak of each Python process of it."""
    from strandline.pipeline.replicate import run

    watch = MemoryWatch()
    with watch:
        summary = run(url, once=True, master=MASTER)
    return {"events": summary.events, "peaks_mb": watch.peaks_mb}


class MemoryWatch:
    """Looks at this process and all Python processes that it or its JVM started, again and again."""

    def __init__(self) -> None:
        self.peaks_mb: dict[str, float] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        import psutil

        this = psutil.Process()
        while True:
            for process in [this, *this.children(recursive=True)]:
                try:
                    if "python" in process.name():
                        self.peaks_mb[str(process.pid)] = peak_rss_mb(process.pid)
                except (psutil.Error, OSError, StopIteration):
                    continue  # it ended between two looks; the kernel's peak of the look before stands
            if self._done.wait(LOOK_S):
                return


def _prepare_read(plan: CaseSettings) -> None:
    url, events = f"sqlite:{plan.shared}/journal", READ_EVENTS_QUICK if plan.quick else READ_EVENTS
    appends = events // READ_EVENTS_A_CALL
    in_child("fill:fill_in_child", where={"url": url}, keys=1, appends=appends, events=READ_EVENTS_A_CALL)
    in_child("memory:carry_half_in_child", url=url)


def _read(plan: CaseSettings) -> RoundFigure:
    events = READ_EVENTS_QUICK if plan.quick else READ_EVENTS
    answer = in_child("memory:read_in_child", url=f"sqlite:{plan.shared}/journal", events=events)
    return RoundFigure(answer["peak_rss_mb"], answer)


def _prepare_carry(plan: CaseSettings) -> None:
    appends = (CARRY_EVENTS_QUICK if plan.quick else CARRY_EVENTS) // CARRY_EVENTS_A_CALL
    url = f"sqlite:{plan.shared}/journal"
    in_child("fill:fill_in_child", where={"url": url}, keys=CARRY_KEYS, appends=appends, events=CARRY_EVENTS_A_CALL)


def _carry(plan: CaseSettings) -> RoundFigure:
    folder = shutil.copytree(plan.shared / "journal", Path(plan.folder) / "journal")
    answer = in_child("memory:carry_in_child", url=f"sqlite:{folder}")
    wanted = CARRY_EVENTS_QUICK if plan.quick else CARRY_EVENTS
    if answer["events"] != wanted:
        raise RuntimeError(f"{answer['events']} events were carried, not {wanted}")
    return RoundFigure(max(answer["peaks_mb"].values()), answer)


CASES = [
    Case(
        "memory/read-a-million", "limit", "MB", 1.0, _read, LIMIT_MB, prepare=_prepare_read, rate=False,
        settings={"events": READ_EVENTS, "events_a_call": READ_EVENTS_A_CALL, "carried": "half"},
    ),
    Case(
        "memory/replicate-ten-million", "limit", "MB", 1.0, _carry, LIMIT_MB, prepare=_prepare_carry, rounds=1,
        rate=False, on_demand=True,
        settings={
            "events": CARRY_EVENTS, "events_a_call": CARRY_EVENTS_A_CALL, "keys": CARRY_KEYS, "master": MASTER
        },
    ),
]  # fmt: skip
