"""`strandline status`: how far the pipeline is, and what works on the journal, once or all the time.

What it shows is a list of parts (`PARTS`), each with a name and rows; a part without rows is not shown to a person.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from strandline.cli.options import Options
from strandline.cli.output import console, emit, plain, printable, table
from strandline.clock import seconds_text, time_text
from strandline.journal.status import Status

if TYPE_CHECKING:
    from rich.console import RenderableType

    from strandline.connect import Strandline

WATCH_S = 1.0


class Look(NamedTuple):
    """What is shown at one moment."""

    status: Status
    parts: Mapping[str, Sequence[Mapping[str, Any]]]
    """By name: rows, each of the same columns."""

    def to_dict(self) -> dict[str, Any]:
        return {**self.status.to_dict(), **self.parts}


def streams(s: Strandline) -> list[Mapping[str, Any]]:
    """Streams of event groups."""
    return [one._asdict() for one in s.streams()]


PARTS: Mapping[str, Callable[[Strandline], Sequence[Mapping[str, Any]]]] = {"streams": streams}
"""What there is beside the pipeline. A part looks quickly, and has no rows where nothing of its kind is there."""


def status(
    options: Options,
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing it, every second, until Ctrl-C.")] = False,
) -> None:
    """Show how far the pipeline is, what it could not carry, and how streams of groups stand.

    Example: strandline status --watch --url sqlite:orders
    """
    with options.connect() as s:
        looks = _looks(s) if watch else iter((look_at(s),))
        if options.json:
            for look in looks:
                emit(look.to_dict())
                sys.stdout.flush()
        elif watch and sys.stdout.isatty():
            _watch(looks)
        else:
            for look in looks:
                console().print(picture(look))
                sys.stdout.flush()


def look_at(s: Strandline) -> Look:
    """All parts, now."""
    return Look(s.status(), {name: part(s) for name, part in PARTS.items()})


def _looks(s: Strandline) -> Iterator[Look]:
    while True:
        yield look_at(s)
        time.sleep(WATCH_S)


def _watch(looks: Iterator[Look]) -> None:
    from rich.live import Live

    with Live(console=console(), auto_refresh=False) as live:
        for look in looks:
            live.update(picture(look), refresh=True)


def picture(look: Look) -> RenderableType:
    """A status for a person."""
    from rich.console import Group
    from rich.text import Text

    found = look.status
    warnings = [Text(f"warning: {printable(warning)}", style="bold yellow") for warning in found.warnings]
    parts = [part for name, rows in look.parts.items() if rows for part in (Text(f"\n{name}"), _rows(rows))]
    return Group(_partitions(found), Text(), *(Text(line) for line in summary(found)), *parts, *warnings)


def _rows(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    columns = list(rows[0])
    numbers = [name for name in columns if isinstance(rows[0][name], int | float)]
    cells = [[_cell(row[name]) for name in columns] for row in rows]
    return table([name.replace("_", " ") for name in columns], cells, numbers=[n.replace("_", " ") for n in numbers])


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(plain(value))


def summary(look: Status) -> list[str]:
    """What holds for all partitions."""
    holder = "nobody: start it with `strandline pipeline run`"
    if look.lease_holder is not None:
        holder = f"{printable(look.lease_holder)} since {time_text(look.lease_since)}"
    return [
        f"strandline  {_strandline(look)}",
        f"pipeline    {holder}",
        f"quarantine  {look.quarantined:,}",
        f"durability  {look.durability}",
    ]


def _strandline(look: Status) -> str:
    """A time; and how long ago, unless that only says for how long nothing happened."""
    age = look.strandline_age_s
    if look.up_to_date:
        return "up to date" if age is None else f"up to date, at {time_text(look.strandline)}"
    if age is None:
        return "none yet: some partitions were never carried"
    return f"{time_text(look.strandline)}, {seconds_text(age)} ago"


def _partitions(look: Status) -> RenderableType:
    columns = ["partition", "pointer", "newest", "lag", "lag s", "carried up to"]
    failing = any(p.last_error for p in look.partitions)
    losing = any(p.lost for p in look.partitions)
    rows = [
        [
            str(p.partition),
            _offset(p.pointer),
            _offset(p.newest),
            f"{p.lag_actions:,}",
            f"{p.lag_s:.1f}",
            time_text(p.timestamp),
            *([f"{p.lost[0]}..{p.lost[1]}" if p.lost else "-"] if losing else []),
            *([p.last_error or ""] if failing else []),
        ]
        for p in look.partitions
    ]
    more = ["lost"] * losing + ["last error"] * failing
    return table([*columns, *more], rows, numbers=columns[:5])


def _offset(offset: int) -> str:
    return "-" if offset < 0 else f"{offset:,}"
