"""A SQLite file: copied whole, with all parts in it, and put back under a name that no process has open."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

from strandline.backends.sqlite import copying
from strandline.backends.sqlite.copying import FilePart
from strandline.backup.manifest import BackupManifest, DatabaseCopy, FileCopy, PartCopy, Told, digest_of, sync
from strandline.backup.new_life import NewLife
from strandline.backup.places import JournalDatabase
from strandline.settings import Settings
from strandline.sql.api import Part
from strandline.work.tables import of_tables

SUFFIX: Final = ".restoring"


def copy(place: JournalDatabase, folder: Path, settings: Settings, told: Told) -> DatabaseCopy:
    """Copy the file into a backup's folder."""
    *_, (kind, part) = place.parts.items()
    path, name = path_of(place), f"{kind}.db"
    moment = copying.copy_file(path, part, folder / name, settings, lambda done, of: told(f"copy {path}", done, of))
    sync(folder / name)
    copied = {}
    with copying.reading(folder / name) as connection:
        for kind, part in place.parts.items():
            found = FilePart(connection, part).describe()
            copied[kind] = PartCopy(tuple(found.done), found.fixed)
    size, digest = digest_of(folder / name)
    return DatabaseCopy("sqlite", str(path), moment, copied, (FileCopy(name, size, digest),))


def rows(database: DatabaseCopy, folder: Path, part: Part, statement: str, values: Any = ()) -> list[Any]:
    """Return the rows of a statement of a part in a copied file."""
    (file,) = database.files
    with copying.reading(folder / file.name) as connection:
        return FilePart(connection, part).rows(statement, values)


def prepare(
    database: DatabaseCopy, place: JournalDatabase, folder: Path, settings: Settings, manifest: BackupManifest,
    life: NewLife,
) -> Path:  # fmt: skip
    """Put a copied file beside its place, with a new life in it. Return its path until it gets its final name."""
    (file,) = database.files
    to = path_of(place)
    path = to.with_name(f".{to.name}{SUFFIX}")
    path.unlink(missing_ok=True)  # left by a restore that was killed
    copy_to(folder / file.name, path)
    with copying.changing(path, settings) as connection:
        for kind, part in place.parts.items():
            tables = FilePart(connection, part)
            life.begin(kind, tables, manifest, database.parts[kind].fixed)
            if kind == "work":
                for (name,) in tables.rows("sets"):
                    tables.rows(of_tables("skip_numbers", name), (life.leap,))
                    tables.rows(of_tables("end_leases", name), (life.leap,))
    sync(path)
    return path


def copy_to(file: Path, path: Path) -> None:
    """Copy a file of a backup; its owner alone may read it."""
    shutil.copyfile(file, path)
    path.chmod(0o600)


def path_of(place: JournalDatabase) -> Path:
    """Return the file of a place."""
    if place.url.path is None:
        raise ValueError(f"{place.url} names no file")
    return place.url.path
