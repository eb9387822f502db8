"""Run a benchmark: rounds of ours and of the peer in turn, then one line per case."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from strandline import extras
from strandline.bench.cases import PAYLOAD_BYTES, Case, CaseResult, CaseSettings, RoundFigure, Side
from strandline.bench.machine import machine, versions
from strandline.bench.servers import Running, running
from strandline.errors import InvalidInput, Unavailable

NAMES = (
    "append", "read", "replicate", "replay", "freshness", "memory", "tags", "slices", "project", "rebuild", "work",
    "groups", "server", "reconcile", "archive", "import",
)  # fmt: skip
NEEDED = ("eventsourcing", "psutil")
ON_SPARK = (
    "replicate",
    "replay",
    "freshness",
    "memory",
    "tags",
    "project",
    "rebuild",
    "reconcile",
    "archive",
    "import",
)
BACKENDS = ("sqlite", "postgres", "kafka", "kafka-postgres", "kafka-cassandra", "cassandra")


def run(
    name: str,
    *,
    json_file: str | Path | None = None,
    rounds: int | None = None,
    quick: bool = False,
    on: Sequence[str] | None = None,
    cases: Sequence[str] | None = None,
    servers: Mapping[str, str] | None = None,
) -> list[CaseResult]:
    """Run benchmark `name`, print one line per case, and keep everything in `json_file`.

    `cases` picks some ("16-writers", or "append/16-writers"); those that run only on demand must be picked. `on` picks
    by back-end. `rounds` is each case's own number where it is not given; `quick` does one short round, to see that it
    runs. Files go into the folder for temporary files: set TMPDIR to measure another disk.

    The servers that the cases need are started, but for those that run already: `servers` has their addresses by name.
    One that cannot be had is `Unavailable` if `on` or `cases` asks for it; else its cases are left out.
    """
    chosen = _choose(name, on, cases)
    extras.check("dev", *NEEDED, *(("pgqueuer", "procrastinate") if name == "work" else ()))
    if name == "server":
        extras.check("server", "starlette", "uvicorn")
    if name in ON_SPARK:
        extras.check("spark", "pyspark", "pyarrow")
    if rounds is not None and rounds < 1:
        raise _refused("rounds", "1 or more", rounds)
    started = time.time()
    needed = list(dict.fromkeys(server for case in chosen for server in case.servers))
    with (
        tempfile.TemporaryDirectory(prefix="strandline-bench-") as folder,
        running(needed, servers or {}, _say) as found,
    ):
        chosen = _possible(chosen, found, asked=bool(on or cases))
        about = {"machine": machine(Path(folder)), "versions": versions()}
        counts = [1 if quick else rounds or case.rounds for case in chosen]
        with _progress(sum(counts)) as show:
            results = [
                _measure(case, count, CaseSettings(Path(folder), Path(folder), quick, found.addresses), show)
                for case, count in zip(chosen, counts, strict=True)
            ]
    for result in results:
        print(result.line, flush=True)
    if json_file is not None:
        kept = {
            "benchmark": name,
            "command": " ".join(sys.argv),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
            "seconds": round(time.time() - started, 1),
            "quick": quick,
            **about,
            "settings": {
                "on": list(dict.fromkeys(case.on for case in chosen)),
                "payload_bytes": PAYLOAD_BYTES,
                "rounds": counts,
            },
            "missing": {name: str(error) for name, error in found.missing.items()},
            "results": [result.kept() for result in results],
        }
        path = Path(json_file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    return results


def _choose(name: str, on: Sequence[str] | None, cases: Sequence[str] | None) -> list[Case]:
    if name not in NAMES:
        raise _refused("benchmark", " or ".join(NAMES), name)
    known: list[Case] = importlib.import_module(f"strandline.bench.{name}").CASES
    for backend in on or ():
        if backend not in BACKENDS:
            raise _refused("on", " or ".join(BACKENDS), backend)
    by_name = {case.name: case for case in known if not on or case.on in on}
    if not by_name:
        there = dict.fromkeys(case.on for case in known)
        raise _refused("on", " or ".join(there), " ".join(on or ()), wrong=f"no case of {name}")
    if not cases:
        return [case for case in by_name.values() if not case.on_demand]
    full = [case if "/" in case else f"{name}/{case}" for case in cases]
    for case in full:
        if case not in by_name:
            raise _refused("case", " or ".join(by_name), case)
    return [by_name[case] for case in full]


def _possible(cases: Sequence[Case], found: Running, *, asked: bool) -> list[Case]:
    """Return the cases whose servers run."""
    for name, error in found.missing.items():
        why = f"{name} cannot be had: {error.message} (hint: {error.hint})"
        if asked:
            raise Unavailable(why, code="away", hint=error.hint, server=name)
        left_out = " ".join(case.name for case in cases if name in case.servers)
        _say(f"{why}; left out: {left_out}")
    return [case for case in cases if not set(case.servers) & found.missing.keys()]


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _refused(field: str, allowed: str, got: Any, *, wrong: str = "unknown") -> InvalidInput:
    return InvalidInput(
        f"{field}: {wrong}; allowed {allowed}; got {got}", code="option", hint=f"give {allowed}", field=field
    )


class Show(Protocol):
    def __call__(self, what: str, *, done: int = 0) -> None: ...


def _measure(case: Case, rounds: int, plan: CaseSettings, show: Show) -> CaseResult:
    """Measure a case. The sides take turns in going first: each leaves the machine in its own state."""
    result = CaseResult(case, [], [])
    sides: list[tuple[str, Side | float, list[RoundFigure]]] = [
        ("ours", case.ours, result.ours),
        (case.peer, case.theirs, result.theirs),
    ]
    with tempfile.TemporaryDirectory(dir=plan.folder) as shared:
        if case.prepare is not None:
            show(f"{case.name}: preparing")
            case.prepare(replace(plan, folder=Path(shared), shared=Path(shared)))
        for number in range(rounds):
            for side, measure, samples in sides if number % 2 == 0 else reversed(sides):
                if isinstance(measure, (int, float)):
                    samples.append(RoundFigure(float(measure), {}))
                    continue
                step = f"{case.name}, round {number + 1} of {rounds}: {side}"
                show(step)
                with tempfile.TemporaryDirectory(dir=plan.folder) as fresh:
                    samples.append(measure(replace(plan, folder=Path(fresh), shared=Path(shared))))
                show(f"{step} {samples[-1].value:.4g} {case.unit}")
            show("", done=1)
    return result


@contextmanager
def _progress(total: int) -> Iterator[Show]:
    """Tells on standard error how far it is: a bar on a terminal, else one line per step."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what, *, done=0: None if done else console.print(what, highlight=False, soft_wrap=True)
        return
    with Progress(
        BarColumn(20), TextColumn("{task.completed}/{task.total}"), TimeElapsedColumn(),
        TextColumn("{task.description}"), console=console, transient=True,
    ) as bar:  # fmt: skip
        task = bar.add_task("", total=total)
        yield lambda what, *, done=0: bar.update(task, description=what, advance=done)
