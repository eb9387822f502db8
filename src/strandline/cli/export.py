"""`strandline pipeline export`: a copy of events for analysts."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import Annotated

import typer

from strandline.cli.arguments import pairs
from strandline.cli.options import Options
from strandline.cli.output import note
from strandline.cli.spark_page import SparkPageOption
from strandline.cli.stopping import stopped_in_order
from strandline.errors import counted


def export(
    options: Options,
    path: Annotated[str, typer.Argument(metavar="PATH", help="The folder; it grows with each run.")],
    format_: Annotated[str, typer.Option("--format", metavar="NAME", help="parquet, json, orc, csv, …")] = "parquet",
    partition_by: Annotated[
        list[str] | None, typer.Option("--partition-by", metavar="COLUMN", help="A folder for each value, such as day.")
    ] = None,
    payload_schema: Annotated[
        str | None, typer.Option("--payload-schema", metavar="DDL", help="Columns of JSON payloads: 'total DOUBLE'.")
    ] = None,
    entity_type: Annotated[str | None, typer.Option("--entity-type", metavar="TYPE", help="Only this type.")] = None,
    types: Annotated[list[str] | None, typer.Option("--type", metavar="TYPE", help="Only events of these.")] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="Only events with one of these.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="An option of the format's writer.")
    ] = None,
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="Spark's master; else the cores of this machine.")
    ] = None,
    spark_ui: SparkPageOption = False,
) -> None:
    """Copy events for analysts, in any format that Spark writes.

    What came into the store since the last run is added. Killed, it leaves
    all of that or nothing, and the next run goes on there.

    Example: strandline pipeline export events --partition-by day --url sqlite:orders
    """
    given = pairs(option, "--option", code="option")
    options.connect().close()
    from strandline.pipeline.exporting import export as write

    if not options.json:
        note("starting Spark …")
    stop = threading.Event()
    target = options.target()
    url = target.pop("url", None)
    with stopped_in_order(stop.set, "what is being written"):
        done = write(
            url, path, format=format_, partition_by=partition_by or (), payload_schema=payload_schema,
            entity_type=entity_type, types=types, tags=tags, writer_options=given, **target, stop=stop, master=master,
            **options.settings,
        )  # fmt: skip
    if done.increment is None:
        options.tell(asdict(done), f"nothing new for {done.path}")
    else:
        options.tell(asdict(done), f"{counted(done.events, 'event')} in {done.path}/increment={done.increment:06d}")
