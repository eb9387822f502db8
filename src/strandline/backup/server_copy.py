"""A schema of PostgreSQL: its tables copied out of one snapshot, and put back in one transaction."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from strandline.backends.postgres import copying
from strandline.backends.postgres.copying import SchemaSnapshot, ServerPart
from strandline.backup.manifest import CHUNK, BackupManifest, DatabaseCopy, FileCopy, PartCopy, SetCopy, Told, open_new
from strandline.backup.new_life import NewLife
from strandline.backup.places import JournalDatabase
from strandline.settings import Settings
from strandline.work.rotation import LATER
from strandline.work.tables import first_number, of_tables

Seen = Callable[[str, str], list[Any]]
"""Returns the rows of a part's statement, as the snapshot sees them."""


def copy(
    place: JournalDatabase, folder: Path, settings: Settings, told: Told, seen: Callable[[Seen], None]
) -> DatabaseCopy:
    """Copy all parts into a backup's folder, as one snapshot sees them. `seen` is called to read more from the
    snapshot.
    """
    with copying.snapshot(place.url, list(place.parts.values()), settings) as snapshot:
        of_kind = {kind: snapshot.parts[part.kind] for kind, part in place.parts.items()}
        files: list[FileCopy] = []
        sizes = next(iter(of_kind.values())).sizes()

        def write(kind: str, tables: ServerPart, named: Mapping[str, dict[str, str]]) -> None:
            for table, columns in named.items():
                name = f"{kind}.{table}.copy"
                files.append(_copied(tables, kind, table, columns, folder / name, sizes.get(table, 0), told))

        if "work" in of_kind:
            held = snapshot.held(place.parts["work"].kind)
            for set_name in snapshot.sets:
                write("work", held, held.tables_of(set_name))
        snapshot.release()
        for kind, tables in of_kind.items():
            write(kind, tables, tables.tables)
        seen(lambda kind, statement: of_kind[kind].rows(statement))
        copied = {}
        for kind, tables in of_kind.items():
            found = tables.describe()
            sets = _sets(tables, snapshot) if kind == "work" else {}
            copied[kind] = PartCopy(tuple(found.done), found.fixed, sets)
        return DatabaseCopy("postgresql", str(place.url), snapshot.moment, copied, tuple(files))


def _sets(tables: ServerPart, snapshot: SchemaSnapshot) -> dict[str, SetCopy]:
    numbers = {str(name): int(number) for name, number in tables.rows("set_of_numbers")}
    return {
        name: SetCopy(
            numbers[name],
            tuple(int(slot) for (slot,) in tables.rows("slots", (name,))),
            int(tables.rows(f"next_number@{name}")[0][0]),
        )
        for name in snapshot.sets
    }


def _copied(
    tables: ServerPart, kind: str, table: str, columns: dict[str, str], path: Path, about: int, told: Told
) -> FileCopy:
    digest, size = sha256(), 0
    with open_new(path) as file:

        def write(data: bytes) -> None:
            nonlocal size
            file.write(data)
            digest.update(data)
            size += len(data)
            told(f"copy {table}", size, max(size, about))

        count = tables.copy_out(table, list(columns), write)
        file.flush()
        os.fsync(file.fileno())
    return FileCopy(path.name, size, digest.hexdigest(), kind, table, columns, count)


def put_back(
    databases: Mapping[str, DatabaseCopy], place: JournalDatabase, folder: Path, settings: Settings,
    manifest: BackupManifest, life: NewLife, told: Told,
) -> None:  # fmt: skip
    """Make the parts of a place and fill them, with a new life in them, in one transaction."""
    steps = {part.kind: databases[kind].parts[kind].steps for kind, part in place.parts.items()}
    with copying.filling(place.url, list(place.parts.values()), steps, settings) as made:
        for kind, part in place.parts.items():
            tables, copied = made[part.kind], databases[kind].parts[kind]
            files = [file for file in databases[kind].files if file.kind == kind]
            if kind == "work":
                _make_sets(tables, copied)
                files.sort(key=lambda file: file.table in tables.tables, reverse=True)
            for file in files:
                told(f"put back {file.table}", 0, file.bytes)
                tables.copy_in(file.table, list(file.columns), _data(folder / file.name))
            for name, value in copied.fixed.items():
                tables.fix(name, value)
            life.begin(kind, tables, manifest, copied.fixed)
            for name, one in copied.sets.items():
                tables.rows(of_tables("skip_numbers", name), (one.next_number + life.leap,))
                tables.rows(of_tables("end_leases", name), (life.leap,))


def _make_sets(tables: ServerPart, copied: PartCopy) -> None:
    for name, one in copied.sets.items():
        first = first_number(one.number)
        tables.rows(of_tables("make_set", name, first, first_number(one.number + 1) - 1))
        for slot in sorted({LATER, *one.slots}):
            tables.rows(of_tables("make_table", name, slot))


def _data(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            yield data
