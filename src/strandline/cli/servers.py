"""`strandline servers`: real servers on this machine, to try things with."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from itertools import zip_longest
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.output import console, emit, note
from strandline.clock import seconds_text
from strandline.errors import unknown

if TYPE_CHECKING:
    from strandline.servers.server import Server

EVENT = '{"type": "Placed", "payload": {}}'
NAMES = ("postgres", "kafka", "cassandra", "spark")
_ENDS = (signal.SIGINT, signal.SIGTERM)


def servers(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="postgres, kafka, cassandra, spark; else all.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="A JSON line per server, as soon as it is up.")] = False,
) -> int:
    """Start real servers on loopback; Ctrl-C stops them.

    Each server has a folder of its own, which is removed at the end. Programs that are missing are downloaded.

    Example: strandline servers postgres kafka
    """
    wanted = list(dict.fromkeys(names or NAMES))
    for name in wanted:
        if name not in NAMES:
            raise unknown("NAME", name, NAMES)
    from strandline.servers.all import running, watch

    def told(server: Server, took_s: float) -> None:
        if json:
            emit(_described(server) | {"up_after_s": round(took_s, 3)})
        else:
            note(f"{server.name} is up after {seconds_text(took_s)}")

    for number in _ENDS:
        signal.signal(number, _end)
    try:
        with running(wanted, told) as up:
            if not json:
                show(up)
            watch(up, lambda failure: note(f"{failure.message}; the others go on. {failure.hint}"))
    except KeyboardInterrupt:
        note("stopped")
    return 0


def _end(number: int, frame: FrameType | None) -> None:
    """Ignore further Ctrl-C while the servers end: a second one would leave folders behind."""
    for ends in _ENDS:
        signal.signal(ends, signal.SIG_IGN)
    raise KeyboardInterrupt


def _described(server: Server) -> dict[str, str]:
    return {"server": server.name, "url": server.url, "log_path": str(server.log_path), **server.facts()}


def show(up: Sequence[Server]) -> None:
    """Show where servers are, and what to try."""
    from strandline.servers.all import example

    screen = console()
    width = max(len(server.name) for server in up)
    for server in up:
        facts = [f"{name}={value}" for name, value in server.facts().items()]
        for name, line in zip_longest([server.name], [server.url, *facts, f"log: {server.log_path}"], fillvalue=""):
            screen.print(f"{name:{width}}  {line}", soft_wrap=True)  # the lines are not cut, so that they can be copied
    options = example(up)
    if options is not None:
        screen.print(f"for example: strandline append 'order|42' --event '{EVENT}' {options}", soft_wrap=True)
    screen.print("Ctrl-C stops them and removes what they kept.")
