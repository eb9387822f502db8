"""`strandline pipeline`: carry, replay, rebuild tags, resolve quarantined records, purge expired journals."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.arguments import confirm, limit_of
from strandline.cli.display import display_for
from strandline.cli.measuring import MetricsOption, measured
from strandline.cli.options import Options
from strandline.cli.output import (
    bytes_text,
    console,
    emit,
    note,
    say,
    table,
)
from strandline.cli.record import Yes
from strandline.cli.spark_job import MasterOption, SparkPageOption, spark_job
from strandline.clock import seconds_text, time_text
from strandline.errors import Corrupt, Unavailable, counted, invalid, shown
from strandline.pipeline.progress import Progress
from strandline.rows import QuarantineRow
from strandline.values.written import whole_number

if TYPE_CHECKING:
    from strandline.carry.tag_findings import TagRebuildCounts


def run(
    options: Options,
    once: Annotated[bool, typer.Option("--once", help="Carry up to now, then end.")] = False,
    master: MasterOption = None,
    create: Annotated[bool, typer.Option("--create", help="Make the journal if it is not there.")] = False,
    metrics: MetricsOption = None,
    spark_ui: SparkPageOption = False,
) -> None:
    """Carry the log into the store, on Spark, until stopped.

    Example: strandline pipeline run --once --url sqlite:orders
    """
    options.connect(create=create).close()  # an error of log or store is raised before Spark is started
    from strandline.pipeline.replicate import run as carry

    with (
        measured(options, metrics),
        spark_job(options, master, "the batch in hand") as job,
        display_for(json=options.json) as display,
    ):
        guard = Guard(display.show, job["stop"])
        done = carry(**job, once=once, progress=guard)
    guard.raise_if_unread()
    if not options.json:
        reached = f"; all recorded up to {time_text(done.strandline)} is in the store" if done.strandline else ""
        say(f"carried {counted(done.events, 'event')}{reached}")


class Guard:
    """Shows batches from the pipeline's thread. If stdout is closed, the pipeline ends in order."""

    def __init__(self, show: Callable[[Progress], None], stop: threading.Event) -> None:
        self._show, self._stop = show, stop
        self._error: OSError | None = None

    def __call__(self, progress: Progress) -> None:
        try:
            if self._error is None:
                self._show(progress)
        except OSError as error:
            self._error = error
            self._stop.set()

    def raise_if_unread(self) -> None:
        if self._error is not None:
            raise self._error


def replay(
    options: Options,
    out: Annotated[str, typer.Option("--out", metavar="PATH", help="A new folder for the Parquet files.")],
    entity_type: Annotated[str | None, typer.Option("--entity-type", metavar="TYPE", help="Only this type.")] = None,
    slices: Annotated[str | None, typer.Option("--slices", metavar="LO-HI", help="Only these slices, 0-1023.")] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="TIME", help="From this time, RFC 3339.")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Up to this time, RFC 3339.")] = None,
) -> None:
    """Write all events as Parquet, joined from store and log.

    Example: strandline pipeline replay --out events --entity-type order --url sqlite:orders
    """
    named = {"entity_type": entity_type, "slices": slices, "from": from_, "to": to, **options.target()}
    chosen = {name: value for name, value in named.items() if value is not None}
    chosen |= {f"set.{name}": _text(value) for name, value in options.settings.items()}
    if Path(out).exists():
        raise invalid("option", "--out", "is there already", allowed="a path that is not there yet", got=out)
    from pyspark.errors import PySparkException

    from strandline.pipeline import session
    from strandline.pipeline.events import load
    from strandline.pipeline.selection import BATCH_OPTIONS, Selection

    Selection.of(chosen, BATCH_OPTIONS)
    options.connect().close()
    if not options.json:
        note("starting Spark …")
    spark = session.start(short=True)
    try:
        load(spark, chosen).write.parquet(out)
        events = spark.read.parquet(out).count()
    except BaseException as error:
        shutil.rmtree(out, ignore_errors=True)  # a part of the output would look like all of it
        if isinstance(error, PySparkException):
            raise _spark_gave_up(error) from error
        raise
    finally:
        session.end()
    options.tell({"out": out, "events": events}, f"{counted(events, 'event')} in {out}")


def _spark_gave_up(error: Exception) -> Unavailable:
    """Translate an error of a task or of Spark, without its traceback."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line.removeprefix("strandline.errors.") for line in said if line.startswith("strandline.errors.")]
    message = (ours or said or [type(error).__name__])[0]
    return Unavailable(f"Spark gave up: {shown(message, 300)}", code="away", hint="see `strandline doctor`")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def rebuild(
    options: Options,
    tag: Annotated[str, typer.Option("--tag", metavar="TAG", help="The tag whose view is rebuilt.")],
    master: MasterOption = None,
    spark_ui: SparkPageOption = False,
) -> int:
    """Rebuild a tag's view in place, on Spark.

    The view is compared with the journal and mended; queries and appends go on meanwhile. Stop `pipeline run` first. If
    the command is killed, start it again. Rows that the journal does not prove stay as they are; then, or if rows are
    lost, the command exits with 5.

    Example: strandline pipeline rebuild --tag blue --url sqlite:orders
    """
    from strandline.journal import checks

    name = checks.tag(tag)
    options.connect().close()
    from strandline.pipeline.tag_rebuild import rebuild_tag

    with spark_job(options, master, "what is being mended") as job:
        found = rebuild_tag(tag=name, **job)
    if options.json:
        emit({"tag": name, **asdict(found)})
        return _exit_code(found)
    looked = f"{counted(found.rows, 'row')} of {counted(found.keys, 'key')}"
    mended = [
        f"{count} {what}"
        for count, what in (
            (found.missing, "put back"), (found.wrong, "corrected"), (found.extra, "taken out"),
            (found.places, "places corrected"), (found.progress, "progress corrected"),
        )
        if count
    ]  # fmt: skip
    if not found.rows and not mended:
        say(f"no event has the tag {shown(name)}, and nothing is in its view: {looked}")
    else:
        right = "nothing can be mended" if _exit_code(found) else "all is right"
        say(f"{looked}: {', '.join(mended) or right}")
    if found.lost:
        note(f"{counted(found.lost, 'row')} cannot be put back: neither the journal nor the view has them any more")
    if found.unproven:
        note(
            f"{counted(found.unproven, 'row')} left alone: the journal does not prove what they should be, because its "
            "own rows are lost or damaged; put those back from a backup, then rebuild again"
        )
    return _exit_code(found)


def _exit_code(found: TagRebuildCounts) -> int:
    return Corrupt.exit_code if found.lost or found.unproven else 0


def quarantine(
    options: Options,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most this many, 1..1000.")] = "1000",
) -> None:
    """List records that are damaged or not ours.

    Example: strandline pipeline quarantine --url sqlite:orders
    """
    from strandline.pipeline.operator import quarantine as listed

    most = limit_of(limit)
    rows = listed(**options.target(), limit=most, **options.settings)
    if options.json:
        for row in rows:
            emit(_listed(row))
        return
    if not rows:
        say("nothing is quarantined")
        return
    columns = ("partition", "offset", "time", "key", "reason", "events")
    cells = [
        (str(row.partition), str(row.offset), time_text(row.timestamp), row.key or "-", row.reason, _events(row))
        for row in rows
    ]
    console().print(table(columns, cells, numbers=("partition", "offset")))
    note(f"{options.command('pipeline resolve PARTITION OFFSET skip')} takes one off; `retry` reads it again")


def resolve(
    options: Options,
    partition: Annotated[str, typer.Argument(metavar="PARTITION", help="As `pipeline quarantine` lists it.")],
    offset: Annotated[str, typer.Argument(metavar="OFFSET", help="As `pipeline quarantine` lists it.")],
    how: Annotated[str, typer.Argument(metavar="HOW", help="skip: give its events up; retry: read it again.")],
    yes: Yes = False,
) -> None:
    """Resolve a quarantined record: skip it, or read it again.

    Example: strandline pipeline resolve 3 1042 retry --url sqlite:orders
    """
    place = (
        whole_number(partition, "PARTITION", code="option", allowed="a number of a partition"),
        whole_number(offset, "OFFSET", code="option", allowed="an offset"),
    )
    if how not in ("skip", "retry"):
        raise invalid("how", "HOW", "unknown", allowed="skip or retry", got=how)
    target = options.target()
    if how == "skip":
        confirm(f"give up the events of partition {place[0]}, offset {place[1]}, for good", yes=yes)
    from strandline.pipeline.operator import resolve as resolve_record

    url, named = target.pop("url", None), {**target, **options.settings}
    resolve_record(url, place[0], place[1], how, **named)
    options.tell(
        {"partition": place[0], "offset": place[1], "how": how},
        f"partition {place[0]}, offset {place[1]}: {'skipped' if how == 'skip' else 'read again'}",
    )


def purge_expired(
    options: Options,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list them.")] = False,
    yes: Yes = False,
) -> None:
    """Purge the journals whose expiry has passed.

    Example: strandline pipeline purge-expired --dry-run --url sqlite:orders
    """
    target = options.target()
    if not dry_run:
        confirm("remove every journal whose expiry has passed, for good", yes=yes)
    from strandline.pipeline.expiry import purge_expired as purge

    keys = purge(**target, dry_run=dry_run, **options.settings)
    for key in keys:
        emit({"key": key}) if options.json else say(str(key))
    if not options.json:
        note(f"{len(keys)} {'would be ' if dry_run else ''}purged")


def prepare(
    json: Annotated[bool, typer.Option("--json", help="Answer with a JSON line.")] = False,
) -> None:
    """Let Spark start in half the time here, from now on.

    It reads and verifies Spark's classes once: half a minute, 180 MB in the user's cache. The command is optional;
    repeat it after a change of Java or Spark.

    Example: strandline pipeline prepare
    """
    from strandline.pipeline import session

    if not json:
        note("preparing Spark's classes: about half a minute …")
    started = time.monotonic()
    size = session.prepare()
    took_s = time.monotonic() - started
    if json:
        emit({"bytes": size, "took_s": round(took_s, 3)})
    else:
        say(f"prepared in {seconds_text(took_s)}: {bytes_text(size)} of classes")


def _listed(row: QuarantineRow) -> dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if name not in ("header", "value")}


def _events(row: QuarantineRow) -> str:
    return "-" if row.first is None else f"{row.first}..{row.last}"
