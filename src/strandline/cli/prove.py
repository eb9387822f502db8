"""`strandline prove`: random programs against a model."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.arguments import whole_number
from strandline.cli.output import console, say, table
from strandline.clock import seconds_text
from strandline.errors import Corrupt, InvalidInput

if TYPE_CHECKING:
    from strandline.testing.prove.run import Proof

SAY_EVERY_S = 10.0


def prove(
    part: Annotated[str, typer.Argument(metavar="PART", help="journal, queries, projections, work, groups.")],
    seeds: Annotated[str, typer.Option("--seeds", metavar="N", help="How many programs.")] = "100",
    first: Annotated[str, typer.Option("--first", metavar="SEED", help="The first seed.")] = "0",
    on: Annotated[
        str, typer.Option("--on", metavar="NAMES", help="sqlite, memory, postgres; or last-write-wins, inexact.")
    ] = "sqlite",
    program: Annotated[
        str | None, typer.Option("--program", metavar="JSON", help="Run this program, or that of a file, instead.")
    ] = None,
) -> int:
    """Run random programs, and compare what they show with a model.

    The model is plain Python, written from the specification. A program that shows a difference is made smaller and
    printed as a command that runs it again; the exit code is 5.

    Example: strandline prove journal --seeds 10 --on sqlite,last-write-wins
    """
    from strandline.testing.prove import worlds
    from strandline.testing.prove.run import PARTS, server_for
    from strandline.testing.prove.run import prove as run

    _one_of("PART", part, PARTS)
    if program is not None:
        return _again(program)
    count = whole_number(seeds, "--seeds", code="option", allowed="1 or more")
    start = int(first) if first.isdecimal() else -1
    if start < 0:
        raise InvalidInput(f"--first: not a seed: {first}", code="option", hint="give a whole number", field="--first")
    chosen = [name.strip() for name in on.split(",")]
    for name in chosen:
        _one_of("--on", name, worlds.ON)
    proofs = []
    for name in chosen:
        with _quiet(), server_for(name) as url:
            proofs.append(run(part, name, range(start, start + count), url=url, told=_ProgressLine(count)))
    _show(proofs)
    return Corrupt.exit_code if any(proof.failures for proof in proofs) else 0


@contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing: what is found is printed at the end."""
    logger = logging.getLogger("strandline")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _one_of(field: str, given: str, known: object) -> None:
    names = list(known)  # type: ignore[call-overload]
    if given not in names:
        raise InvalidInput(
            f"{field}: {given} is not known", code="option", hint=f"give one of: {', '.join(names)}", field=field
        )


class _ProgressLine:
    """A line now and then."""

    def __init__(self, count: int) -> None:
        self._count, self._said = count, 0.0

    def __call__(self, proof: Proof) -> None:
        if proof.seconds - self._said >= SAY_EVERY_S and proof.programs < self._count:
            self._said = proof.seconds
            rate = proof.programs / proof.seconds
            say(
                f"{proof.part} on {proof.on}: {proof.programs:,} of {self._count:,} programs, {rate:.1f}/s, "
                f"{proof.differing:,} with a difference"
            )


def _show(proofs: list[Proof]) -> None:
    for proof in proofs:
        for failure in proof.failures:
            say(f"seed {failure.seed}: {failure.message}")
            say(str(failure.program))
            say(failure.program.command())
            say("")
    rows = [
        [proof.part, proof.on, f"{proof.programs:,}", f"{proof.calls.total():,}", f"{len(proof.reached)}",
         f"{proof.differing:,}", seconds_text(proof.seconds)]
        for proof in proofs
    ]  # fmt: skip
    columns = ("part", "on", "programs", "calls", "rare paths", "differences", "time")
    console().print(table(columns, rows, numbers=columns[2:]))


def _again(given: str) -> int:
    """Run one program, and say what it shows."""
    from strandline.testing.prove.program import Program
    from strandline.testing.prove.run import difference, server_for

    try:
        path = Path(given)
        text = path.read_text(encoding="utf-8") if not given.startswith("{") and path.is_file() else given
        program = Program.of_json(text)
    except (TypeError, ValueError, OSError):
        raise InvalidInput(
            "--program: not a program", code="option", hint="give what `strandline prove` printed", field="--program"
        ) from None
    say(str(program))
    with _quiet(), server_for(program.on) as url:
        found = difference(program, url=url)
    say("no difference" if found is None else found[1])
    return 0 if found is None else Corrupt.exit_code
