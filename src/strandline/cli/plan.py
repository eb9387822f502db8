"""`strandline plan`: how much of everything a load needs."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.output import emit, say
from strandline.errors import invalid
from strandline.values.written import duration_of

EventsPerS = Annotated[float, typer.Option(help="Events a second, on an average day.")]
Bytes = Annotated[float, typer.Option("--bytes", help="Bytes of an event: payload and metadata.")]
Retention = Annotated[str, typer.Option(help="How long the store keeps events: 90d, 12h.")]
LogRetention = Annotated[str, typer.Option(help="How long the log keeps them.")]
Peak = Annotated[float, typer.Option(help="The busiest minute over an average one.")]
EventsPerAppend = Annotated[float, typer.Option(help="Events of an append, on average.")]
Tags = Annotated[float, typer.Option(help="Tags of an event, on average.")]
On = Annotated[str | None, typer.Option(help="sqlite, postgres or kafka-cassandra; else the smallest that holds it.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
Measure = Annotated[bool, typer.Option("--measure", help="Measure this machine first, for some seconds.")]


def plan(
    events_per_s: EventsPerS,
    bytes_: Bytes,
    retention: Retention,
    log_retention: LogRetention = "7d",
    peak: Peak = 2.0,
    events_per_append: EventsPerAppend = 1.0,
    tags: Tags = 0.0,
    on: On = None,
    measure: Measure = False,
    json: Json = False,
) -> None:
    """Print what a load needs: partitions, machines, disk, and why.

    Figures are those of docs/BENCHMARKS.md, or of this machine; docs/SCALE.md has the model.
    Example: strandline plan --events-per-s 20000 --bytes 300 --retention 90d
    """
    from strandline import sizing

    load = sizing.Load(
        events_per_s, bytes_, _seconds("--retention", retention), _seconds("--log-retention", log_retention), peak,
        events_per_append, tags, on,
    )  # fmt: skip
    load.check()
    figures = sizing.published()
    if measure:
        from strandline.sizing.measuring import measured

        figures = measured(figures)
    lines = sizing.plan(load, figures)
    if json:
        told = {name: figure._asdict() for name, figure in figures.items()}
        emit({"lines": [line._asdict() for line in lines], "figures": told})
        return
    for line in lines:
        value = line.unit if line.name == "back-ends" else f"{line.value:,.0f} {line.unit}".strip()
        say(f"{line.name:<15}{value:<24}{line.why}")


def _seconds(name: str, text: str) -> float:
    found = duration_of(text)
    if found is None:
        raise invalid("option", name, "no duration", allowed="90d, 12h, 15m or 45s", got=text)
    return found.total_seconds()
