"""`strandline status`: how far the pipeline is, and the state of the other parts, once or all the time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.options import Options
from strandline.cli.output import console, emit, printable, table
from strandline.clock import seconds_text, time_text
from strandline.journal.status import Status, StatusSection

if TYPE_CHECKING:
    from rich.console import RenderableType

    from strandline.connect import Strandline

WATCH_S = 1.0


def status(
    options: Options,
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing it, every second, until Ctrl-C.")] = False,
) -> None:
    """Show how far the pipeline is, and what all parts have to do.

    Example: strandline status --watch --url sqlite:orders
    """
    with options.connect() as s:
        looks = _looks(s) if watch else iter((s.status(),))
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


def _looks(s: Strandline) -> Iterator[Status]:
    while True:
        yield s.status()
        time.sleep(WATCH_S)


def _watch(looks: Iterator[Status]) -> None:
    from rich.live import Live

    with Live(console=console(), auto_refresh=False) as live:
        for look in looks:
            live.update(picture(look), refresh=True)


def picture(look: Status) -> RenderableType:
    """Return a status for a person."""
    from rich.console import Group
    from rich.text import Text

    warnings = [Text(f"warning: {printable(warning)}", style="bold yellow") for warning in look.warnings]
    there = [section for section in look.sections if section.rows or section.error]
    sections = [part for section in there for part in (Text(), *_section(section))]
    return Group(_partitions(look), Text(), *(Text(line) for line in summary(look)), *sections, *warnings)


def _section(section: StatusSection) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text(f"{section.name:<12}{printable(section.summary)}")
    if section.rows:
        columns = list(section.rows[0])
        numbers = [name for name, value in section.rows[0].items() if isinstance(value, int | float)]
        rows = [[_cell(name, row[name]) for name in columns] for row in section.rows]
        titles = {name: name.removesuffix("_s").replace("_", " ") for name in columns}
        yield table(list(titles.values()), rows, numbers=[titles[name] for name in numbers])


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "at the start" if name == "behind_store_s" else "-"
    if name.endswith("_s"):
        return seconds_text(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def summary(look: Status) -> list[str]:
    """Return the lines that hold for all partitions."""
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
    """Return a time; and how long ago it was, unless nothing waits to be carried."""
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
