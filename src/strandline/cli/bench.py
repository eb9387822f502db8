"""`strandline bench`: a benchmark beside a peer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strandline.values.written import whole_number


def bench(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="append, read, replicate, replay, freshness, memory, tags, slices, project, rebuild, work, groups, "
            "server, reconcile, archive, import.",
        ),
    ],
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on", metavar="BACKENDS", help="Only cases on these, e.g. sqlite,postgres; else all that can be started."
        ),
    ] = None,
    case: Annotated[list[str] | None, typer.Option("--case", metavar="CASE", help="Only this case.")] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Keep every figure in a file.")
    ] = None,
    rounds: Annotated[str | None, typer.Option("--rounds", metavar="N", help="Rounds of each side.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One short round, to see that it runs.")] = False,
) -> None:
    """Measure this machine beside a peer, in one run.

    Servers are started for it and stopped at its end.

    Example: strandline bench append --on sqlite,postgres --quick
    """
    count = None if rounds is None else whole_number(rounds, "--rounds", code="option", allowed="1 or more")
    from strandline.bench import run

    kept_in = None if json_file is None else Path(json_file)
    backends = [backend.strip() for text in on or () for backend in text.split(",")]
    run(name, json_file=kept_in, rounds=count, quick=quick, on=backends, cases=case)
