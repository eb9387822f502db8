"""`strandline pipeline archive` and `sweep`: write events as Parquet files, and take purged lives out of them."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import Annotated

import typer

from strandline.cli.arguments import confirm, time_of
from strandline.cli.options import Options
from strandline.cli.output import bytes_text, note
from strandline.cli.record import Yes
from strandline.cli.spark_job import SparkPageOption
from strandline.cli.stopping import stopped_in_order
from strandline.clock import time_text
from strandline.errors import counted, invalid

RegisterOption = Annotated[
    str | None,
    typer.Option(
        "--register",
        metavar="TABLE",
        help="Let an Iceberg table name the files: iceberg:CATALOG/NAMESPACE.TABLE, a catalog of pyiceberg's.",
    ),
]


def archive(
    options: Options,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A folder: empty, absent, or with this archive.")],
    before: Annotated[str, typer.Option("--before", metavar="TIME", help="Events recorded before it, RFC 3339.")],
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="Spark's master; else the cores of this machine.")
    ] = None,
    spark_ui: SparkPageOption = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Take them out of the store, once the files were read back.")
    ] = False,
    register: RegisterOption = None,
) -> None:
    """Write events as Parquet, on Spark, or add to what was written.

    It writes events recorded before a time. They stay in the store unless --remove is given: then reads of keys take
    them from the files. Every file is read back and compared. If the command is killed, the archive stays as it was.

    Example: strandline pipeline archive events --before 2026-11-01T00:00:00Z --url sqlite:orders

    Example: strandline pipeline archive events --before 2026-11-01T00:00:00Z --register iceberg:shop/sales.events
    """
    time = time_of(before, "--before")
    if time is None:
        raise invalid("time_format", "--before", "not a time", allowed="a time with a zone", got=before)
    options.connect().close()
    from strandline.pipeline.archiving import archive as write

    if not options.json:
        note("starting Spark …")
    stop = threading.Event()
    target = options.target()
    url = target.pop("url", None)
    with stopped_in_order(stop.set, "what is being written"):
        done = write(
            url, path, time, remove=remove, register=register, **target, stop=stop, master=master, **options.settings
        )
    said = f"{counted(done.events, 'event')} in {counted(done.files, 'file')}, {bytes_text(done.bytes)}"
    if register is not None:
        said += f"; {counted(done.registered, 'file')} added to the table, {done.unregistered:,} taken out of it"
    if remove:
        said += f"; {counted(done.removed, 'event')} taken out of the store"
    options.tell(asdict(done), f"{counted(done.written, 'event')} written; {said}, up to {time_text(done.to)}")
    if done.kept_keys and not options.json:
        note(f"{counted(done.kept_keys, 'key')} kept events in the store, behind one that is not as in the files")
    if done.damaged and not options.json:
        note(f"{counted(done.damaged, 'event')} left out: damaged in the store (`pipeline reconcile` names them)")


def sweep(
    options: Options,
    path: Annotated[str, typer.Argument(metavar="PATH", help="The archive's folder.")],
    register: RegisterOption = None,
    yes: Yes = False,
) -> None:
    """Take the events of purged journals out of an archive.

    Example: strandline pipeline sweep events --url sqlite:orders
    """
    target = options.target()
    confirm(f"remove the events of purged journals from the archive {path}, for good", yes=yes)
    from strandline.pipeline.sweeping import sweep as take_out

    url = target.pop("url", None)
    done = take_out(url, path, register=register, **target, **options.settings)
    options.tell(asdict(done), f"{counted(done.events, 'event')} taken out of {counted(done.files, 'file')}")
