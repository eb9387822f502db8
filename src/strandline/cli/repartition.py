"""`strandline schema repartition`: give a store a log with another number of partitions."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.arguments import confirm
from strandline.cli.masking import masked
from strandline.cli.options import Options
from strandline.cli.output import say
from strandline.cli.record import Yes
from strandline.errors import counted

Partitions = Annotated[int, typer.Argument(metavar="N", help="How many partitions there will be.")]
LogUrl = Annotated[str, typer.Argument(metavar="LOG_URL", help="Where the new log will be; nothing is there yet.")]
Undo = Annotated[bool, typer.Option("--undo", help="Let the old log take appends again, after a run that was killed.")]


def repartition(
    options: Options, partitions: Partitions, log_url: LogUrl, yes: Yes = False, undo: Undo = False
) -> None:
    """Give the store another log, with so many partitions.

    Appends are refused meanwhile. Stop the pipeline first; afterwards start services and pipeline with the new log's
    URL. If the command is killed, start it again. Example: strandline schema repartition 32 sqlite:orders/log32.db
    --url sqlite:orders
    """
    from strandline import repartition as change

    given = {name: url for name, url in options.target().items() if name in ("url", "log", "store")}
    if undo:
        taken = change.undo(**given, **options.settings)
        text = "the old log takes appends again" if taken else "the store goes on from another log already"
        options.tell({"undone": taken}, text)
        return
    confirm("give the store another log: who has the old one open must connect again", yes=yes)
    told = _quiet if options.json else say
    done = change.repartition(partitions, log_url, told=told, **given, **options.settings)
    text = "the store went on from this log already"
    if not done.done_before:
        text = f"{done.before} partitions before, {done.partitions} now; carried {counted(done.carried, 'action')}"
    options.tell(done._asdict(), f"{text}; connect with --log {masked(log_url)}")


def _quiet(text: str) -> None:
    """Print nothing."""
