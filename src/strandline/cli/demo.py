"""`strandline demo`: a tour on made-up orders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strandline.values.written import whole_number


def demo(
    folder: Annotated[str | None, typer.Option("--folder", metavar="DIR", help="Where to play and leave it.")] = None,
    orders: Annotated[str | None, typer.Option("--orders", metavar="N", help="How many orders to make up.")] = None,
    on: Annotated[
        str, typer.Option("--on", metavar="KIND", help="sqlite, postgres, or kafka (with Cassandra).")
    ] = "sqlite",
    transfers: Annotated[
        str | None, typer.Option("--transfers", metavar="N", help="Instead: N transfers by event groups, with kills.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep what an earlier demo left; play beside it.")] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show it in a console, all the time and afterwards, until Ctrl-C.")
    ] = False,
) -> int:
    """Take a tour: a shop is killed in the middle, and nothing is lost.

    Example: strandline demo --orders 1000
    """
    place = None if folder is None else Path(folder)
    if transfers is not None:
        return _transfer(place, whole_number(transfers, "--transfers", code="option", allowed="1 or more"))
    count = None if orders is None else whole_number(orders, "--orders", code="option", allowed="1 or more")
    from strandline.demo import ORDERS, run

    return run(folder=place, keep=keep, on=on, orders=ORDERS if count is None else count, serve=serve)


def _transfer(place: Path | None, count: int) -> int:
    """Transfer money between accounts while the processor is killed; return 0 if the sum has stayed the same."""
    import tempfile

    from strandline.cli.output import say
    from strandline.demo.transfers import play
    from strandline.errors import Corrupt

    folder = place or Path(tempfile.mkdtemp(prefix="strandline-transfers-"))
    folder.mkdir(parents=True, exist_ok=True)
    say(f"in {folder}")
    return 0 if play(folder, count, kills=3, say=say).sound else Corrupt.exit_code
