"""Backup: a copy of a journal in use, of one moment.

    databases in their order (`places.py`) ──▶ files ──▶ is the store's copy at or before the log's? ──▶ manifest

A backup that is killed leaves a folder without a manifest, which no command takes for a backup.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from strandline.backup import file_copy, server_copy
from strandline.backup.manifest import BackupManifest, DatabaseCopy, LogEnd, Told
from strandline.backup.places import MUST_BE, JournalDatabase, places_of, there
from strandline.errors import Corrupt, InvalidInput, SchemaMismatch, Unavailable, invalid, unusable
from strandline.rows import Pointer
from strandline.settings import Settings
from strandline.store.next_log import row_number
from strandline.store.tables import POINTER
from strandline.urls import urls_of


class Copied(NamedTuple):
    """A copied database, with the ends of its log and the pointers of its store, if it has these parts."""

    database: DatabaseCopy
    ends: list[LogEnd]
    """The ends of the log, by partition."""
    pointers: list[Pointer]
    """The pointers of the store; on SQLite a partition without one is empty."""


_ASKED: Final = {"log": "bounds", "store": "pointers"}
"""The statements that read the log's ends and the store's pointers."""


def quiet(what: str, done: int, of: int) -> None:
    """Ignore the progress."""


def backup(
    path: str | Path,
    url: str | None = None,
    *,
    log: str | None = None,
    store: str | None = None,
    work: str | None = None,
    projections: str | None = None,
    told: Told = quiet,
    **settings: Any,
) -> BackupManifest:
    """Copy a journal that is in use into a new folder, and return the manifest.

    Appends and reads do not wait for it. `Unsupported.backup` for a part that is not in an SQL database;
    `InvalidInput.not_empty` for a folder that has anything in it. Work journals and projections are copied where the
    URLs say that they are.
    """
    checked = replace(Settings.of(settings), schema="check")
    places = [there(place, checked) for place in places_of(urls_of(url, log, store, work, projections))]
    _check_there(places)
    folder = Path(path)
    made = _made(folder)
    try:
        manifest = _manifest([_copied(place, folder, checked, told) for place in places if place.parts])
        manifest.write(folder)
    except BaseException:
        _remove(folder, whole=made)
        raise
    return manifest


def _check_there(places: list[JournalDatabase]) -> None:
    found = {kind for place in places for kind in place.parts}
    for kind in MUST_BE:
        if kind not in found:
            raise SchemaMismatch(
                f"there is no {kind}: nothing to copy",
                code="no_schema",
                hint="is the URL right?",
            )


def _made(folder: Path) -> bool:
    """Make the folder, for its owner alone; return whether it is new."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        check_empty(folder)
        return False
    except FileNotFoundError:
        raise invalid(
            "url_incomplete", "path", f"no folder {folder.absolute().parent}", allowed="a path whose parent exists",
            got=str(folder),
        ) from None  # fmt: skip
    except OSError as error:
        raise unusable(folder, error.strerror) from None
    return True


def check_empty(folder: Path) -> None:
    """Raise `InvalidInput.not_empty` unless a path is a folder with nothing in it."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except NotADirectoryError:
        names = [folder.name]
    except OSError as error:
        raise unusable(folder, error.strerror) from None
    if names:
        raise InvalidInput(
            f"path: {folder} is not empty: {names[0]}; allowed a new folder",
            code="not_empty",
            hint="give another path; a backup that was stopped before its end has no manifest.json: remove it",
            field="path",
        )


def _remove(folder: Path, *, whole: bool) -> None:
    """Remove the files that were written: the folder was empty before."""
    with suppress(OSError):
        for path in folder.iterdir():
            path.unlink()
        if whole:
            folder.rmdir()


def _copied(place: JournalDatabase, folder: Path, settings: Settings, told: Told) -> Copied:
    found: dict[str, list[Any]] = {}
    if place.url.scheme == "sqlite":
        database = file_copy.copy(place, folder, settings, told)
        for kind, statement in _ASKED.items():
            if kind in database.parts:
                values = {"partitions": int(database.parts[kind].fixed["partitions"])} if kind == "log" else ()
                found[kind] = file_copy.rows(database, folder, place.parts[kind], statement, values)
    else:

        def look(rows: Callable[[str, str], list[Any]]) -> None:
            found.update({kind: rows(kind, statement) for kind, statement in _ASKED.items() if kind in place.parts})

        database = server_copy.copy(place, folder, settings, told, look)
    ends = [LogEnd(trimmed + 1, newest, timestamp) for trimmed, newest, timestamp in found.get("log", ())]
    return Copied(database, ends, [POINTER.read(row) for row in found.get("store", ())])


def _manifest(copied: list[Copied]) -> BackupManifest:
    """Return the manifest of the copies. `Unavailable.serialization` if they do not belong together."""
    log = next(one for one in copied if "log" in one.database.parts)
    store = next(one for one in copied if "store" in one.database.parts)
    log_fixed, store_fixed = log.database.parts["log"].fixed, store.database.parts["store"].fixed
    if log_fixed["log_id"] != store_fixed["log_id"]:
        raise SchemaMismatch(
            f"the store was filled from log {store_fixed['log_id']}; this is log {log_fixed['log_id']}",
            code="log_replaced",
            hint="give the store's own log",
            stored=store_fixed["log_id"],
            given=log_fixed["log_id"],
        )
    first = row_number(int(store_fixed.get("log_nr", "0")), 0)
    by_partition = {pointer.partition - first: pointer for pointer in store.pointers}
    pointers = [by_partition.get(number, Pointer(number))._replace(partition=number) for number in range(len(log.ends))]
    for pointer, end in zip(pointers, log.ends, strict=True):
        check_belongs(pointer, end)
    return BackupManifest(
        log_id=log_fixed["log_id"],
        history_id=store_fixed["history_id"],
        moment=log.database.moment,
        strandline=min(pointer.timestamp for pointer in pointers),
        ends=tuple(log.ends),
        pointers=tuple(pointer.offset for pointer in pointers),
        databases=tuple(one.database for one in copied),
    )


def check_belongs(pointer: Pointer, end: LogEnd) -> None:
    """Refuse copies that no pipeline could go on with: a store ahead of its log, or a log trimmed past its store's
    pointers.
    """
    if pointer.offset > end.newest:
        raise Corrupt(
            f"partition {pointer.partition}: the store is at offset {pointer.offset}, the log ends at {end.newest}",
            code="conflict",
            hint="was the log put back from an older copy? see `strandline doctor`",
            partition=pointer.partition,
        )
    if pointer.offset + 1 < end.oldest:
        raise Unavailable(
            f"partition {pointer.partition}: while it was copied the log was trimmed to offset {end.oldest}, past what "
            f"the copy of the store has ({pointer.offset})",
            code="serialization",
            hint="call again: the store has carried it by now",
            partition=pointer.partition,
        )
