"""`strandline backup`, `restore` and `verify`: a copy of a journal in use, put back, and read through."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.options import Options
from strandline.cli.output import bytes_text, console, emit, note, say, table
from strandline.clock import time_text
from strandline.errors import Corrupt, counted, invalid

if TYPE_CHECKING:
    from strandline.backup.manifest import BackupManifest, Told
    from strandline.backup.proving import VerifyReport

LISTED_MAX = 50
TOLD_S = 2.0
Folder = Annotated[str, typer.Argument(metavar="PATH", show_default=False, help="A folder.")]


def backup(options: Options, path: Folder) -> None:
    """Copy a journal that is in use, as it was at one moment.

    Appends and reads do not wait for it. Log and store may be on SQLite or PostgreSQL, in any pairing; work journals
    and projections are copied, too. A backup without manifest.json was stopped before its end.

    Example: strandline backup /backups/monday --url sqlite:orders
    """
    from strandline.backup import backup as take

    manifest = take(path, **options.target(), told=progress(options), **options.settings)
    line = f"backup {path}: {_what(manifest)}, {bytes_text(manifest.bytes)}; {_moments(manifest)}"
    options.tell({"path": path, **_facts(manifest)}, line)


def restore(
    options: Options,
    path: Folder,
    keep_projections: Annotated[
        bool, typer.Option("--keep-projections", help="What projections changed was put back to the same moment, too.")
    ] = False,
) -> None:
    """Put a backup back in an empty place, as another life.

    It gets ids of its own: saved offsets of the first life are refused. Stop what still works on the first life if it
    has the same URL. Projections wait for `reset` or `set-offset`, unless --keep-projections is given.

    Example: strandline restore /backups/monday --url sqlite:restored
    """
    from strandline.backup import restore as put_back

    found = put_back(
        path, **options.target(), keep_projections=keep_projections, told=progress(options), **options.settings
    )
    facts = {"path": path, **_facts(found.manifest), "log_id": found.log_id, "history_id": found.history_id,
             "needs_upgrade": found.needs_upgrade}  # fmt: skip
    options.tell(facts, f"restored {path}: {_what(found.manifest)}; {_moments(found.manifest)}")
    if found.needs_upgrade and not options.json:
        note(f"its schema is an older one: {options.command('schema upgrade')}")


def verify(
    options: Options,
    path: Annotated[str | None, typer.Argument(metavar="[PATH]", show_default=False, help="A backup.")] = None,
    scratch: Annotated[
        str | None,
        typer.Option("--scratch", metavar="FOLDER", help="Where a backup has room for another copy."),
    ] = None,
) -> int:
    """Read a journal or a backup through and name every damage.

    It changes nothing, and exits with 5 if there is any.

    Pages, digests, numbers without gaps, heads, pointers, views of tags. A journal may be in use meanwhile.

    Example: strandline verify /backups/monday
    """
    from strandline.backup import verify as prove
    from strandline.backup import verify_backup

    if path is not None:
        if options.places:
            raise invalid("option", "PATH", "given together with --url", allowed="one of them", got=path)
        report = verify_backup(path, scratch=scratch, told=progress(options))
    else:
        report = prove(**options.target(), told=progress(options), **options.settings)
    if options.json:
        emit(report.to_dict())
    else:
        _tell(report)
    return Corrupt.exit_code if report.damaged else 0


def progress(options: Options) -> Told:
    """Print the progress on stderr, once in a while."""
    last = [time.monotonic()]

    def told(what: str, done: int, of: int) -> None:
        if options.json or time.monotonic() - last[0] < TOLD_S:
            return
        last[0] = time.monotonic()
        share = f", {done / of:.0%} of {bytes_text(of)}" if of else ""
        sys.stderr.write(f"{what}{share}\n")

    return told


def _what(manifest: BackupManifest) -> str:
    return ", ".join(kind for database in manifest.databases for kind in database.parts)


def _moments(manifest: BackupManifest) -> str:
    views = f"the store up to {time_text(manifest.strandline)}" if manifest.strandline else "the store is empty"
    return f"all that was acknowledged before {time_text(manifest.moment)}; {views}"


def _facts(manifest: BackupManifest) -> dict[str, Any]:
    return {
        "moment": manifest.moment,
        "strandline": manifest.strandline,
        "ends": [end.newest for end in manifest.ends],
        "pointers": list(manifest.pointers),
        "parts": list(manifest.parts),
        "bytes": manifest.bytes,
        "copied_log_id": manifest.log_id,
        "copied_history_id": manifest.history_id,
    }


def _tell(report: VerifyReport) -> None:
    if report.damages:
        console().print(table(("where", "what of it", "damage"), [tuple(one) for one in report.damages[:LISTED_MAX]]))
        if report.damaged > LISTED_MAX:
            note(f"{report.damaged - LISTED_MAX} more; --json lists up to {len(report.damages)}")
    read = [
        counted(report.files, "file"), counted(report.records, "record"), counted(report.events, "event"),
        counted(report.keys, "key"), counted(report.tag_rows, "tag row"),
    ]  # fmt: skip
    say(f"{', '.join(read)}: {counted(report.damaged, 'damage') if report.damaged else 'no damage'}")
    if report.busy:
        note(f"{counted(len(report.busy), 'key')} left out: being written all the time; run it again")
