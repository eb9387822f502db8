"""The manifest of a backup: its contents, its moment, and the digest of each file. It is written last.

A folder without a manifest is not a backup: the process that made it was stopped. The manifest has no password and no
payload.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import orjson

from strandline import __version__
from strandline.errors import Corrupt, SchemaMismatch, unusable

NAME: Final = "manifest.json"
FORMAT: Final = 1
CHUNK: Final = 2**20

Told = Callable[[str, int, int], None]
"""Is called with the name of the present step, its bytes done, and its bytes in all; 0 if they are not known."""


@dataclass(frozen=True, slots=True)
class FileCopy:
    """A file of a backup."""

    name: str
    bytes: int
    sha256: str
    kind: str = ""
    """The part that its rows belong to; empty for a database file, which has all parts of its database."""
    table: str = ""
    columns: dict[str, str] = field(default_factory=dict)
    """The columns' types by their names, in the order of the rows."""
    rows: int = 0


@dataclass(frozen=True, slots=True)
class PartCopy:
    """A part as it was copied."""

    steps: tuple[str, ...]
    """The steps of its schema that were done."""
    fixed: dict[str, str]
    """The settings that its creation fixed."""
    sets: dict[str, SetCopy] = field(default_factory=dict)
    """The sets of tables that were made at run time, on a server."""


@dataclass(frozen=True, slots=True)
class SetCopy:
    """A set of tables."""

    number: int
    slots: tuple[int, ...]
    next_number: int
    """A number that is larger than all that were handed out before the copy."""


@dataclass(frozen=True, slots=True)
class DatabaseCopy:
    """A database as it was at one moment, with all its parts."""

    scheme: str
    place: str
    """Its URL or path, without a password."""
    moment: int
    """The moment, by the clock of its server or machine (µs)."""
    parts: dict[str, PartCopy]
    files: tuple[FileCopy, ...]


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The beginning and the end of a partition of the copied log."""

    oldest: int
    newest: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """The manifest: databases in the order in which they were copied, the log's last."""

    log_id: str
    history_id: str
    moment: int
    """The moment of the backup, which is the log's (µs). All actions that were acknowledged before it are there."""
    strandline: int
    """All actions that were recorded up to this time are in the copy of the store, too."""
    ends: tuple[LogEnd, ...]
    """The ends of the copied log, by partition."""
    pointers: tuple[int, ...]
    """The offset up to which the copy of the store has each partition of the log."""
    databases: tuple[DatabaseCopy, ...]
    format: int = FORMAT
    version: str = __version__

    @property
    def parts(self) -> dict[str, DatabaseCopy]:
        """The database of each part."""
        return {kind: database for database in self.databases for kind in database.parts}

    @property
    def bytes(self) -> int:
        """All bytes of its files."""
        return sum(file.bytes for database in self.databases for file in database.files)

    def write(self, folder: Path) -> None:
        """Write the manifest into the folder, whole and durable, or not at all."""
        sync(folder)  # the files must be durable before the manifest
        path = folder / f".{NAME}"
        with open_new(path) as file:
            file.write(orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        path.rename(folder / NAME)
        sync(folder)


def read_manifest(folder: Path) -> BackupManifest:
    """Return the manifest of a backup; `Corrupt.half_copied` if a folder has none, or a damaged one."""
    try:
        written = (folder / NAME).read_bytes()
    except FileNotFoundError:
        raise _no_backup(folder, "has no manifest") from None
    except NotADirectoryError:
        raise _no_backup(folder, "is no folder") from None
    except OSError as error:
        raise unusable(folder / NAME, error.strerror) from None
    try:
        fields = orjson.loads(written)
        if fields["format"] > FORMAT:
            raise _unknown(folder, fields)
        return _manifest(fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _no_backup(folder, "has a manifest that cannot be read") from None


def _manifest(fields: dict[str, Any]) -> BackupManifest:
    databases = [
        DatabaseCopy(
            **{
                **one,
                "parts": {kind: _part(part) for kind, part in one["parts"].items()},
                "files": tuple(FileCopy(**file) for file in one["files"]),
            }
        )
        for one in fields["databases"]
    ]
    return BackupManifest(
        **{
            **fields,
            "ends": tuple(LogEnd(**end) for end in fields["ends"]),
            "pointers": tuple(fields["pointers"]),
            "databases": tuple(databases),
        }
    )


def _part(fields: dict[str, Any]) -> PartCopy:
    sets = {name: SetCopy(**{**one, "slots": tuple(one["slots"])}) for name, one in fields["sets"].items()}
    return PartCopy(tuple(fields["steps"]), fields["fixed"], sets)


def _no_backup(folder: Path, why: str) -> Corrupt:
    return Corrupt(
        f"{folder} {why}: it is no whole backup",
        code="half_copied",
        hint="take another backup; one that was stopped before its end can be removed",
        path=str(folder),
    )


def _unknown(folder: Path, fields: dict[str, Any]) -> SchemaMismatch:
    return SchemaMismatch(
        f"{folder} was written in format {fields['format']} by strandline {fields.get('version')}",
        code="version",
        hint="use the strandline that wrote it, or a newer one",
        found=[fields["format"]],
        known=[FORMAT],
    )


def damaged_files(folder: Path, manifest: BackupManifest, told: Told) -> Iterable[tuple[FileCopy, str]]:
    """Read all files; return each one that is damaged, with what is wrong with it."""
    for database in manifest.databases:
        for file in database.files:
            told(f"read {file.name}", 0, file.bytes)
            try:
                size, digest = digest_of(folder / file.name)
            except OSError as error:
                yield file, f"cannot be read: {error.strerror}"
                continue
            if size != file.bytes:
                yield file, f"has {size} bytes; {file.bytes} were written"
            elif digest != file.sha256:
                yield file, f"its {size} bytes have another SHA-256 than those that were written"


def digest_of(path: Path) -> tuple[int, str]:
    """Return the bytes in a file, and their SHA-256."""
    digest, size = sha256(), 0
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            digest.update(data)
            size += len(data)
    return size, digest.hexdigest()


def open_new(path: Path) -> Any:
    """Return a new file that its owner alone may read, opened for writing."""
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb")


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
