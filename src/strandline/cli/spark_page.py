"""`--spark-ui`: the option of all commands that work on Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.output import note


def _show(wanted: bool) -> bool:
    if wanted:
        from strandline.pipeline import session

        session.show_page(lambda url: note(f"Spark's page: {url}"))
    return wanted


SparkPageOption = Annotated[
    bool, typer.Option("--spark-ui", callback=_show, help="Serve Spark's page on loopback meanwhile.")
]
"""It acts where it is parsed: commands only take it."""
