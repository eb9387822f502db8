"""`strandline prove`: random programs against a model."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from strandline.cli.output import console, say, table, write_file
from strandline.cli.stopping import stopped_in_order
from strandline.clock import seconds_text
from strandline.errors import Corrupt, InvalidInput
from strandline.values.written import seconds_of, whole_number

if TYPE_CHECKING:
    from strandline.testing.prove.run import Proof
    from strandline.testing.prove.servers import Servers

SAY_EVERY_S = 10.0
PROGRAMS = 100
"""How many programs of each part run if neither a number nor a time is given."""
NAMED_MAX = 12
"""How many unreached rare paths are named at most, if they are not asked for."""


def prove(
    part: Annotated[
        str, typer.Argument(metavar="PART", help="journal, queries, projections, work, groups; some of them, or all.")
    ],
    seeds: Annotated[str | None, typer.Option("--seeds", metavar="N", help="How many programs of each (100).")] = None,
    minutes: Annotated[
        str | None, typer.Option("--minutes", metavar="M", help="Instead, or at most: for how long, in all.")
    ] = None,
    first: Annotated[str, typer.Option("--first", metavar="SEED", help="The first seed.")] = "0",
    on: Annotated[
        str,
        typer.Option(
            "--on",
            metavar="NAMES",
            help="sqlite, postgres, kafka-cassandra; memory; or the models last-write-wins, inexact.",
        ),
    ] = "sqlite",
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Keep what was run and found in a file.")
    ] = None,
    every_path: Annotated[
        bool, typer.Option("--every-path", help="Fail if a rare path of the code was not reached.")
    ] = False,
    program: Annotated[
        str | None, typer.Option("--program", metavar="JSON", help="Run this program, or that of a file, instead.")
    ] = None,
) -> int:
    """Run random programs, and compare what they show with a model.

    The model is plain Python, written from the specification. A program whose results differ from the model's is made
    smaller and printed as a command that runs it again; the exit code is then 5. With --minutes, parts and back-ends
    take turns, and Ctrl-C ends the run with its table.

    Example: strandline prove journal,work --seeds 10 --on sqlite,last-write-wins
    """
    from strandline.testing.prove.run import PARTS, prove_in_turn
    from strandline.testing.prove.servers import Servers

    parts = list(PARTS) if part == "all" else _names("PART", part, [*PARTS, "all"])
    if program is not None:
        return _again(program)
    pairs = _pairs(parts, on)
    start = whole_number(first, "--first", code="option", allowed="0 or more")
    count = None if seeds is None else whole_number(seeds, "--seeds", code="option", allowed="1 or more")
    seconds = None if minutes is None else 60 * seconds_of(minutes, "--minutes")
    if start < 0 or (count is not None and count < 1) or (seconds is not None and not 0 < seconds < float("inf")):
        raise InvalidInput("--first, --seeds, --minutes: out of range", code="option", hint="give numbers above 0")
    if count is None and seconds is None:
        count = PROGRAMS
    stopping = Event()
    with _quiet(), Servers() as servers, stopped_in_order(stopping.set, "the program that runs"):
        keeps = _ProofFile(json_file, servers)
        keeps([])  # fail now, not at the end, if the file cannot be written
        proofs = prove_in_turn(
            pairs,
            first=start,
            programs=count,
            seconds=seconds,
            servers=servers,
            told=_ProgressLine(count, seconds),
            turned=keeps,
            stopped=stopping.is_set,
        )
        keeps(proofs)
        never = _show(proofs, every_path=every_path)
    return Corrupt.exit_code if any(proof.failures for proof in proofs) or (every_path and never) else 0


def _pairs(parts: list[str], on: str) -> list[tuple[str, str]]:
    """Return pairs of a part and a back-end that it runs on."""
    from strandline.testing.prove import worlds
    from strandline.testing.prove.run import BACKENDS

    names = _names("--on", on, worlds.ON)
    pairs = [(part, name) for part in parts for name in names if name in BACKENDS[part]]
    for part in parts if len(parts) == 1 else ():
        _names("--on", on, BACKENDS[part])
    if not pairs:
        raise InvalidInput(f"--on {on}: none of {', '.join(parts)} runs there", code="option", hint="name another")
    return pairs


@contextmanager
def _quiet() -> Iterator[None]:
    """Turn logging off: findings are printed at the end."""
    logger = logging.getLogger("strandline")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _names(field: str, given: str, known: Sequence[str]) -> list[str]:
    """Return the names in a list with commas, each of which must be known."""
    names = [name.strip() for name in given.split(",")]
    for name in names:
        if name not in known:
            raise InvalidInput(
                f"{field}: {name} is not known", code="option", hint=f"give one of: {', '.join(known)}", field=field
            )
    return list(dict.fromkeys(names))


class _ProgressLine:
    """A line of progress now and then."""

    def __init__(self, count: int | None, seconds: float | None) -> None:
        self._count, self._seconds = count, seconds
        self._begun = self._told_at = time.monotonic()

    def __call__(self, proof: Proof) -> None:
        now = time.monotonic()
        if now - self._told_at < SAY_EVERY_S:
            return
        self._told_at = now
        done = f"{proof.programs:,}" + ("" if self._count is None else f" of {self._count:,}")
        left = "" if self._seconds is None else f", {seconds_text(max(0.0, self._begun + self._seconds - now))} left"
        say(
            f"{proof.part} on {proof.on}: {done} programs, {proof.programs / proof.seconds:.1f}/s, "
            f"{proof.differing:,} with a difference{left}"
        )
        sys.stdout.flush()


class _ProofFile:
    """Writes the programs run and the findings so far into a file, if one is given."""

    def __init__(self, path: str | None, servers: Servers) -> None:
        self._path = None if path is None else Path(path)
        self._servers = servers
        self._begun = datetime.now(UTC)

    def __call__(self, proofs: list[Proof]) -> None:
        if self._path is None:
            return
        made = orjson.dumps(self._summary(proofs), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
        beside = self._path.with_name(f"{self._path.name}.part")  # the rename keeps the file whole for its readers
        write_file("--json", beside, made + b"\n")
        beside.replace(self._path)

    def _summary(self, proofs: list[Proof]) -> dict[str, Any]:
        return {
            "begun": self._begun.isoformat(timespec="seconds"),
            "seconds": round((datetime.now(UTC) - self._begun).total_seconds(), 1),
            "versions": {**_versions(), **self._servers.versions()},
            "runs": [_as_json(proof) for proof in proofs],
            "programs": sum(proof.programs for proof in proofs),
            "calls": sum(proof.calls.total() for proof in proofs),
            "differences": sum(proof.differing for proof in proofs),
            "rare_paths_never_reached": _never(proofs),
        }


def _as_json(proof: Proof) -> dict[str, Any]:
    return {
        "part": proof.part,
        "on": proof.on,
        "first_seed": proof.next_seed - proof.programs,
        "next_seed": proof.next_seed,
        "programs": proof.programs,
        "seconds": round(proof.seconds, 1),
        "calls": dict(proof.calls),
        "differences": proof.differing,
        "failures": [
            {"seed": one.seed, "kind": one.kind, "message": one.message, "command": one.program.command()}
            for one in proof.failures
        ],
        "rare_paths": dict(proof.reached),
    }


def _versions() -> dict[str, str]:
    import apsw

    return {
        "strandline": metadata.version("strandline"),
        "python": sys.version.split()[0],
        "sqlite": apsw.sqlite_lib_version(),
    }


def _never(proofs: Sequence[Proof]) -> list[str]:
    """Return the rare paths that no program reached."""
    from strandline.testing.rare import RARE

    return [name for name in RARE if not any(proof.reached[name] for proof in proofs)]


def _show(proofs: list[Proof], *, every_path: bool) -> list[str]:
    """Print the findings and the table, and return the rare paths that were not reached."""
    from strandline.testing.rare import RARE

    for proof in proofs:
        for failure in proof.failures:
            say(f"seed {failure.seed}: {failure.message}")
            say(str(failure.program))
            say(failure.program.command())
            say("")
    columns: dict[str, Callable[[Proof], str]] = {
        "part": lambda proof: proof.part,
        "on": lambda proof: proof.on,
        "seeds": lambda proof: f"{proof.next_seed - proof.programs}..{proof.next_seed - 1}" if proof.programs else "",
        "programs": lambda proof: f"{proof.programs:,}",
        "calls": lambda proof: f"{proof.calls.total():,}",
        "rare paths": lambda proof: f"{len(proof.reached.keys() & set(RARE))}",
        "differences": lambda proof: f"{proof.differing:,}",
        "time": lambda proof: seconds_text(proof.seconds),
    }
    rows = [[cell(proof) for cell in columns.values()] for proof in proofs]
    console().print(table(list(columns), rows, numbers=list(columns)[2:]))
    never = _never(proofs)
    names = f"; not: {', '.join(never)}" if never and (every_path or len(never) <= NAMED_MAX) else ""
    say(f"{len(RARE) - len(never)} of {len(RARE)} rare paths reached{names}")
    return never


def _again(given: str) -> int:
    """Run one program, and print its difference from the model."""
    from strandline.testing.prove.program import Program
    from strandline.testing.prove.run import difference
    from strandline.testing.prove.servers import Servers

    try:
        path = Path(given)
        text = path.read_text(encoding="utf-8") if not given.startswith("{") and path.is_file() else given
        program = Program.of_json(text)
    except (TypeError, ValueError, OSError):
        raise InvalidInput(
            "--program: not a program", code="option", hint="give what `strandline prove` printed", field="--program"
        ) from None
    say(str(program))
    with _quiet(), Servers() as servers:
        found = difference(program, servers=servers)
    say("no difference" if found is None else found[1])
    return 0 if found is None else Corrupt.exit_code
