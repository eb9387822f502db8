"""`strandline pipeline export`: a copy of events for analysts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from strandline.cli.arguments import pairs
from strandline.cli.options import Options
from strandline.cli.spark_job import MasterOption, SparkPageOption, spark_job
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
    master: MasterOption = None,
    spark_ui: SparkPageOption = False,
) -> None:
    """Copy events for analysts, in any format that Spark writes.

    Each run adds the events that came into the store since the last one. A run that is killed adds all of them or none,
    and the next run goes on there.

    Example: strandline pipeline export events --partition-by day --url sqlite:orders
    """
    given = pairs(option, "--option", code="option")
    options.connect().close()
    from strandline.pipeline.exporting import export as write

    with spark_job(options, master, "what is being written") as job:
        done = write(
            path=path, format=format_, partition_by=partition_by or (), payload_schema=payload_schema,
            entity_type=entity_type, types=types, tags=tags, writer_options=given, **job,
        )  # fmt: skip
    if done.increment is None:
        options.tell(asdict(done), f"nothing new for {done.path}")
    else:
        options.tell(asdict(done), f"{counted(done.events, 'event')} in {done.path}/increment={done.increment:06d}")
