"""Restore: a backup put back in a place that is empty, as another life of its journal.

    digests of all files ──▶ is every place empty? ──▶ files beside their names, schemas in a transaction each
                         ──▶ names of files, the log's last ──▶ it is opened, and the pair checked

A restore that is killed leaves no journal that opens: a store without its log is refused, and a log without its store
cannot exist. The files and tables that are left must be removed before another try.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from strandline.backup import file_copy, server_copy
from strandline.backup.manifest import BackupManifest, DatabaseCopy, Told, damaged_files, read_manifest, sync
from strandline.backup.new_life import NewLife
from strandline.backup.places import ORDER, JournalDatabase, places_of, there
from strandline.backup.taking import quiet
from strandline.clock import now_us
from strandline.connect import connect
from strandline.errors import Corrupt, InvalidInput, SchemaMismatch, Unsupported, counted
from strandline.settings import Settings
from strandline.urls import Urls, urls_of


class Restored(NamedTuple):
    """The answer of `restore`: the manifest of the backup, and the ids of the restored journal."""

    manifest: BackupManifest
    log_id: str
    history_id: str
    needs_upgrade: bool
    """Whether its schema is an older one, which `strandline schema upgrade` must upgrade next."""


def restore(
    path: str | Path,
    url: str | None = None,
    *,
    log: str | None = None,
    store: str | None = None,
    work: str | None = None,
    projections: str | None = None,
    keep_projections: bool = False,
    told: Told = quiet,
    **settings: Any,
) -> Restored:
    """Restore a backup into empty places. The journal gets a log id and a history id of its own.

    Projections wait for `reset` or `set_offset`, unless `keep_projections` says that their targets were put back to the
    same moment, too. `Corrupt.digest` for a backup with a damaged file, `InvalidInput.not_empty` for a place that is
    not empty, `Unsupported.backup` for a place of another kind than the copied one.
    """
    folder = Path(path)
    checked = replace(Settings.of(settings), schema="check")
    manifest = read_manifest(folder)
    urls = urls_of(url, log, store, work, projections)
    places = _places(urls, manifest)
    for place in places_of(urls):  # all places are checked, also those that no part of this backup goes to
        _check_empty(place, checked)
    damages = list(damaged_files(folder, manifest, told))
    if damages:
        file, wrong = damages[0]
        raise Corrupt(
            f"{counted(len(damages), 'file')} of this backup damaged: {file.name} {wrong}",
            code="digest",
            hint="restore another backup; `strandline verify PATH` lists all damages",
            path=str(folder / file.name),
        )
    life = NewLife.of(now_us(), keep_projections=keep_projections)
    _put_back(places, manifest, folder, checked, life, told)
    return Restored(manifest, life.log_id, life.history_id, not _opens(url, log, store, work, projections, settings))


def _places(urls: Urls, manifest: BackupManifest) -> list[JournalDatabase]:
    """Return where the copied parts go, in the order of copies; `Unsupported.backup` if they cannot go there."""
    copies = manifest.parts
    found = []
    for place in places_of(urls):
        parts = {kind: part for kind, part in place.parts.items() if kind in copies}
        for kind in parts:
            if copies[kind].scheme != place.url.scheme:
                raise Unsupported(
                    f"{kind}: this backup is of {copies[kind].scheme}, {place.url} is of {place.url.scheme}",
                    code="backup",
                    hint=f"give a {copies[kind].scheme}: URL; `strandline pipeline replay` reads events from anywhere",
                    scheme=copies[kind].scheme,
                )
        if parts:
            found.append(JournalDatabase(place.url, parts))
    given = {kind for place in found for kind in place.parts}
    for kind in ORDER:
        if kind in copies and kind not in given:
            raise InvalidInput(
                f"{kind}: this backup has it; allowed a URL to put it back",
                code="url_incomplete",
                hint=f"give {kind}=",
                field=kind,
            )
    for database in manifest.databases:
        if database.scheme == "sqlite" and not any(set(place.parts) == set(database.parts) for place in found):
            raise InvalidInput(
                f"url: {' and '.join(database.parts)} were in one file, and stay together",
                code="url_incomplete",
                hint="give one file for them",
                field="url",
            )
    return found


def _check_empty(place: JournalDatabase, settings: Settings) -> None:
    filled: Mapping[str, object] = there(place, settings).parts
    path = place.url.path
    if not filled and not (path is not None and path.exists()):
        return
    what = f"{path} is there" if path is not None else f"{place.url} has a {next(iter(filled))}"
    raise InvalidInput(
        f"url: {what}; allowed a place where nothing is",
        code="not_empty",
        hint="give another place, or move away what is there; what a restore that was killed left can be removed",
        field="url",
    )


def _put_back(
    places: list[JournalDatabase], manifest: BackupManifest, folder: Path, settings: Settings, life: NewLife, told: Told
) -> None:
    copies = manifest.parts
    waiting: list[tuple[Path, Path]] = []
    try:
        for place in places:
            if place.url.scheme == "sqlite":
                to = file_copy.path_of(place)
                to.parent.mkdir(mode=0o700, exist_ok=True)
                told(f"put back {to}", 0, sum(file.bytes for file in _of(copies, place).files))
                waiting.append((file_copy.prepare(_of(copies, place), place, folder, settings, manifest, life), to))
        # The part that was copied last gets its name last: so if the log exists, its store exists.
        for place in places:
            if place.url.scheme != "sqlite":
                server_copy.put_back(copies, place, folder, settings, manifest, life, told)
                continue
            path, to = waiting[0]
            told(f"name {to}", 0, 0)
            path.rename(to)
            del waiting[0]
            sync(to.parent)
    finally:
        for path, _ in waiting:
            path.unlink(missing_ok=True)


def _of(copies: Mapping[str, DatabaseCopy], place: JournalDatabase) -> DatabaseCopy:
    return copies[next(iter(place.parts))]


def _opens(
    url: str | None, log: str | None, store: str | None, work: str | None, projections: str | None,
    settings: Mapping[str, Any],
) -> bool:  # fmt: skip
    """Open the restored journal, which checks that store and log belong together; return False if its schema is an
    older one.
    """
    try:
        connect(
            url, log=log, store=store, work=work, projections=projections, **{**settings, "schema": "check"}
        ).close()
    except SchemaMismatch as error:
        if error.code != "version":
            raise
        return False
    return True
