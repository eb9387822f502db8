"""The files of an archive: a folder of Parquet, and a manifest that names them, written last.

    PATH/manifest.json                                        what the archive has; replaced in one step
    PATH/events/entity=order/month=2026-11/slices=0-1023/….parquet
    PATH/new-…                                                what a run under way has written, and nobody counts yet

A file that the manifest does not name is not part of the archive: a killed run left it, and the next run removes it.
One process at a time writes, under a lock on PATH/lock, which is freed when the process dies.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from strandline.errors import Corrupt, InvalidInput, SchemaMismatch, Unavailable

if TYPE_CHECKING:
    from strandline.store.api import Store

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
EVENTS: Final = "events"
NEW: Final = "new-"
LOCK: Final = "lock"
SWEPT: Final = ".swept-"


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A Parquet file of an archive: which events it is for, and the counts and digest that were read back from it."""

    path: str
    """Relative to the archive's folder."""
    entity_type: str
    month: str
    first_slice: int
    last_slice: int
    events: int
    bytes: int
    digest: int
    """The order-free digest of its events: key, life, number and digest of each."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of an archive. `to`: it has the events recorded before this time (µs)."""

    log_id: str
    history_id: str
    to: int = 0
    damaged: int = 0
    """Events that were left out, because they are damaged in the store."""
    files: tuple[ArchivedFile, ...] = field(default=())
    format: int = FORMAT

    @property
    def events(self) -> int:
        return sum(file.events for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@contextmanager
def opened(path: Path, store: Store) -> Iterator[Manifest]:
    """The manifest of an archive that this process alone may change; a new one in an empty or absent folder.

    `InvalidInput.archive_path` for a folder that has something else, or the archive of another journal, or none of the
    events that left the store already; `Unavailable.away` while another process changes it. A restored journal reads
    the archive of the original journal. It continues a copy of that archive in another folder, with the events that
    left the store before the backup was made: only the original journal has the events of later files.
    """
    settings = store.settings
    _check(path, store)
    path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Unavailable(
                f"the archive {path} is being changed", code="away", hint="wait for the archive or sweep under way"
            ) from None
        manifest = read_manifest(path) or Manifest(settings.log_id, settings.history_id)
        if manifest.history_id != settings.history_id:
            manifest = _taken_over(path, manifest, store)
            write_manifest(path, manifest)
        remove_leftovers(path, manifest)
        yield manifest
    finally:
        os.close(descriptor)


def _check(path: Path, store: Store) -> None:
    manifest, note = read_manifest(path), store.archive.note()
    if manifest is not None:
        copied = note is not None and manifest.history_id == note.history_id and str(path) != note.path
        if manifest.history_id != store.settings.history_id and not copied:
            raise _refused(path, "the archive of another journal")
    elif path.is_dir():
        names = [child.name for child in path.iterdir()]
        others = [name for name in names if name not in (LOCK, EVENTS) and not name.startswith(NEW)]
        if others:
            raise _refused(path, f"a folder with {others[0]}")
    elif path.exists():
        raise _refused(path, "a file")
    if note is not None and (0 if manifest is None else manifest.to) < note.before:
        raise _refused(path, f"one without the events that left the store for {note.path}")


def _taken_over(path: Path, manifest: Manifest, store: Store) -> Manifest:
    """Return the manifest of a copy in which a restored journal goes on."""
    note, settings = store.archive.note(), store.settings
    manifest = replace(manifest, log_id=settings.log_id, history_id=settings.history_id)
    if note is None or manifest.to <= note.before:
        return manifest
    files = []
    for file in manifest.files:
        first, last = times_in(path / file.path)
        if first < note.before <= last:
            raise _refused(path, "one with a file of events from before the backup was made, and from after")
        if last < note.before:
            files.append(file)
    return replace(manifest, to=note.before, files=tuple(files))


def times_in(path: Path) -> tuple[int, int]:
    """Return the first and the last time (µs) of a file's events."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        found = pc.min_max(file.read(["time"]).column(0).cast(pa.int64())).as_py()
    return found["min"], found["max"]


def _refused(path: Path, found: str) -> InvalidInput:
    return InvalidInput(
        f"PATH: not an archive of this journal; allowed an empty folder, one that is not there yet, or its own; got "
        f"{found}: {path}",
        code="archive_path",
        hint="name another folder",
        field="path",
    )


def read_manifest(path: Path) -> Manifest | None:
    """The manifest of an archive; None if there is none. `SchemaMismatch.version` if it is newer."""
    try:
        written = orjson.loads((path / MANIFEST).read_bytes())
        if written["format"] > FORMAT:
            raise SchemaMismatch(
                f"the archive {path} was written in version {written['format']}; this program knows {FORMAT}",
                code="version", hint="upgrade this program", found=written["format"], known=FORMAT,
            )  # fmt: skip
        files = tuple(ArchivedFile(**file) for file in written.pop("files"))
        return Manifest(**written, files=files)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(
            f"the manifest of the archive {path} cannot be read", code="digest", hint="put it back from a backup"
        ) from error


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Replace the manifest in one step. All files that it names are synced already."""
    aside = path / f"{NEW}{MANIFEST}"
    with aside.open("wb") as file:
        file.write(orjson.dumps(asdict(manifest), option=orjson.OPT_INDENT_2))
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path / MANIFEST)
    sync_folder(path)


def remove_leftovers(path: Path, manifest: Manifest) -> None:
    """Remove files that the manifest does not name: killed runs left them."""
    for child in path.glob(f"{NEW}*"):
        shutil.rmtree(child) if child.is_dir() else child.unlink()
    named = {file.path for file in manifest.files}
    for found in (path / EVENTS).rglob("*.parquet"):
        if str(found.relative_to(path)) not in named:
            found.unlink()


def move_in(path: Path, new: Path, files: Sequence[ArchivedFile]) -> list[ArchivedFile]:
    """Move files of a run to their places, and sync them and their folders. They count once the manifest names them."""
    moved = []
    (path / EVENTS).mkdir(exist_ok=True)
    for file in files:
        found = new / file.path
        target = path / EVENTS / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        sync_file(found)
        found.rename(target)
        for folder in (target.parent, target.parent.parent, target.parent.parent.parent):
            sync_folder(folder)
        moved.append(replace(file, path=str(target.relative_to(path))))
    sync_folder(path / EVENTS)
    return moved


def origin_of(path: str) -> str:
    """The path of a file before any sweep wrote it anew."""
    return path.partition(SWEPT)[0].removesuffix(".parquet")


def sync_file(path: Path) -> None:
    """Sync a file to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Sync the names in a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
