"""The common options of the commands on Spark, and the start and stop of a job."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from strandline.cli.options import Options
from strandline.cli.output import note
from strandline.cli.stopping import stopped_in_order


def _show(wanted: bool) -> bool:
    if wanted:
        from strandline.pipeline import session

        session.show_page(lambda url: note(f"Spark's page: {url}"))
    return wanted


SparkPageOption = Annotated[
    bool, typer.Option("--spark-ui", callback=_show, help="Serve Spark's page on loopback meanwhile.")
]
"""It acts where it is parsed: commands only take it."""
MasterOption = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Spark's master; else the cores of this machine.")
]


@contextmanager
def spark_job(options: Options, master: str | None, waits_for: str) -> Iterator[dict[str, Any]]:
    """Print that Spark starts, and yield the arguments that all jobs take: the journal, its settings, `master`, `stop`.

    SIGTERM and Ctrl-C set `stop`, and print that the command waits for `waits_for`.
    """
    if not options.json:
        note("starting Spark …")
    stop = threading.Event()
    with stopped_in_order(stop.set, waits_for):
        yield {"url": None, **options.target(), **options.settings, "master": master, "stop": stop}
