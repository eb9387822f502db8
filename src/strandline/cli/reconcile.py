"""`strandline pipeline reconcile`: compare log, store and views, and correct what can be proved."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.options import Options
from strandline.cli.output import console, emit, note, say, table
from strandline.cli.spark_job import MasterOption, SparkPageOption, spark_job
from strandline.errors import Corrupt, counted, invalid
from strandline.urls import masked

if TYPE_CHECKING:
    from strandline.reconcile.findings import Difference, ReconcileReport

LISTED_MAX = 50


def reconcile(
    options: Options,
    repair: Annotated[bool, typer.Option("--repair", help="Correct what log and journal prove.")] = False,
    sample: Annotated[
        str | None, typer.Option("--sample", metavar="SHARE", help="Only a share of all slices, e.g. 1%.")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="FILE", help="Keep digests of finished days here, for the next run."),
    ] = None,
    reread: Annotated[
        str | None, typer.Option("--reread", metavar="SHARE", help="With --keep: how many are read again. [5%]")
    ] = None,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Also write a page with a picture.")
    ] = None,
    master: MasterOption = None,
    spark_ui: SparkPageOption = False,
) -> int:
    """Compare log, store and views, on Spark; name every difference.

    It runs beside a pipeline. With --repair stop the pipeline first; differences that neither the kept log nor the
    journal settles stay as they are. It exits with 5 if any difference is left.

    Example: strandline pipeline reconcile --sample 1% --url sqlite:orders
    """
    share = None if sample is None else share_of(sample)
    again = None if reread is None else share_of(reread, "--reread")
    options.connect().close()
    from strandline.pipeline.reconciling import reconcile as compare

    with spark_job(options, master, "what is being compared") as job:
        report = compare(**job, repair=repair, sample=share, keep=keep, reread=again)
    if html is not None:
        from strandline.reconcile.page import page_of

        Path(html).write_text(page_of(report, what=_where(options)), encoding="utf-8")
    if options.json:
        emit(report.to_dict())
    else:
        _tell(report, html)
    return Corrupt.exit_code if report.unrepaired else 0


def share_of(text: str, option: str = "--sample") -> float:
    """Return the share that a user gave: `1%`, or `0.01`."""
    number, percent, rest = text.partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = 0.0
    if rest or not 0 < share <= 1:
        raise invalid("option", option, "not a share", allowed="above 0%, up to 100%", got=text)
    return share


def _where(options: Options) -> str:
    return ", ".join(f"{name} {masked(place)}" for name, place in options.target().items())


def _tell(report: ReconcileReport, html: str | None) -> None:
    compared = f"{counted(report.events, 'event')} of {counted(report.keys, 'key')}"
    views = f"{counted(report.tag_rows, 'tag row')} and {counted(report.log_events, 'event')} of the log"
    if report.findings:
        cells = [_cells(finding) for finding in report.findings[:LISTED_MAX]]
        columns = ("finding", "key", "numbers", "tag", "expected", "found", "repaired")
        console().print(table(columns, cells))
        kinds = Counter(finding.kind for finding in report.findings)
        left = len(report.findings) - LISTED_MAX
        if left > 0:
            note(f"{left} more; --json and --html have all of them")
        said = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        say(f"{compared}, {views}: {said}; {len(report.unrepaired)} left")
    else:
        say(f"{compared}, {views}: no difference")
    if report.days_passed_over:
        reread = f"; {counted(report.slices_reread, 'slice')} read wholly" if report.slices_reread else ""
        note(f"{counted(report.days_passed_over, 'finished day')} passed over{reread}")
    if report.busy:
        note(f"{counted(len(report.busy), 'key')} left out: being written all the time; run it again")
    if html is not None:
        note(f"the page is in {html}")


def _cells(finding: Difference) -> tuple[str, ...]:
    numbers = ", ".join(map(str, finding.seq_nrs[:5])) + (" …" if len(finding.seq_nrs) > 5 else "")
    key = finding.key if finding.key is not None else f"partition {finding.partition}"
    repaired = "yes" if finding.repaired else "no"
    return finding.kind, key, numbers, finding.tag or "", finding.expected, finding.found, repaired
