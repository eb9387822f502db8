"""`strandline demo`: a tour on made-up orders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.arguments import whole_number


def demo(
    folder: Annotated[
        str | None, typer.Option("--folder", metavar="DIR", help="Where to work; else a new one.")
    ] = None,
    orders: Annotated[str | None, typer.Option("--orders", metavar="N", help="How many orders to make up.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the folder for you to look at.")] = False,
) -> int | None:
    """Take a tour: record orders, carry them on Spark, read them back.

    Example: strandline demo --keep
    """
    count = None if orders is None else whole_number(orders, "--orders", code="option", allowed="1 or more")
    from strandline.demo import run

    more = {} if count is None else {"orders": count}
    return run(folder=None if folder is None else Path(folder), keep=keep, **more)
