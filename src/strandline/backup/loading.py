"""Loading: copies of a backup's log and store, as files that are read and thrown away.

Files are copied as they are. Rows of a server are put into new SQLite files: the tables of a store are the same on
both, and so are the records of a log. `heads_of` returns the heads of a server's log.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson

from strandline.backends.sqlite.copying import FilePart, changing, reading
from strandline.backends.sqlite.log import SqliteLog
from strandline.backends.sqlite.log_heads import key_hash
from strandline.backends.sqlite.store import open_store
from strandline.backup import file_copy
from strandline.backup.manifest import BackupManifest, DatabaseCopy, FileCopy, Told
from strandline.connect import parts
from strandline.errors import Corrupt
from strandline.log.state_json import states_in
from strandline.settings import Settings
from strandline.store.tables import DECLARED
from strandline.values.heads import State
from strandline.values.keys import key_digest

SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
ROWS: Final = 1000
_INTEGERS: Final = {"integer": ">i", "bigint": ">q", "smallint": ">h"}


def load(manifest: BackupManifest, folder: Path, made: Path, told: Told) -> None:
    """Make `log.db` and `store.db` in a folder, from the backup's files."""
    copies = manifest.parts
    for kind in ("log", "store"):
        database = copies[kind]
        told(f"load {kind}", 0, sum(file.bytes for file in database.files))
        path = made / f"{kind}.db"
        if database.scheme == "sqlite":
            file_copy.copy_to(folder / database.files[0].name, path)
        elif kind == "log":
            _load_log(manifest, database, folder, path)
        else:
            _load_store(manifest, database, folder, path)


def heads_of(made: Path, keys: Collection[str]) -> tuple[dict[str, State], set[str]]:
    """Return the states of keys that a server's log had in the backup, and the keys whose state is damaged."""
    by_digest = {key_digest(key): key for key in keys}
    with reading(made / "log.db") as connection:
        digests = orjson.dumps([digest.hex() for digest in by_digest]).decode()
        found = FilePart(connection, parts()["log"]).rows("heads", (digests,))
        return states_in((by_digest[digest], text, summed) for digest, text, summed in found)


def _load_store(manifest: BackupManifest, database: DatabaseCopy, folder: Path, path: Path) -> None:
    fixed = database.parts["store"].fixed
    settings = Settings(
        partitions=int(fixed["partitions"]), segment_size=int(fixed["segment_size"]), bucket_size=fixed["bucket_size"]
    )
    open_store(path, settings, manifest.log_id, settings.partitions).close()
    with changing(path, settings) as connection:
        tables = FilePart(connection, parts()["store"])
        _fix(tables, fixed)
        for file in database.files:
            table = DECLARED.get(file.table) if file.kind == "store" else None
            if table is not None and not table.partitioned_only:
                columns = [*[column.name for column in table.columns], *(["digest"] if table.version else [])]
                _insert(connection, tables.text(f"put_{table.name}"), columns, file, folder)


def _load_log(manifest: BackupManifest, database: DatabaseCopy, folder: Path, path: Path) -> None:
    fixed = database.parts["log"].fixed
    settings = Settings(partitions=int(fixed["partitions"]), segment_size=int(fixed["segment_size"]))
    SqliteLog(path, settings=settings).close()
    with changing(path, settings) as connection:
        tables = FilePart(connection, parts()["log"])
        _fix(tables, fixed)
        (actions,) = [file for file in database.files if file.table == "log_action"]
        text, seq = tables.text("append_actions"), 0
        for batch in _batches(_rows(folder / actions.name, actions)):
            values = []
            for row in batch:
                seq += 1
                hash_ = None if row["key"] is None else key_hash(row["key"])
                values.append((
                    seq, row["partition"], row["log_offset"], row["timestamp"], hash_, row["life"], row["first"],
                    row["last"], None, row["key"], row["header"], row["value"],
                ))  # fmt: skip
            connection.executemany(text, values)
        (heads,) = [file for file in database.files if file.table == "log_head"]
        for batch in _batches(_rows(folder / heads.name, heads)):
            rows = [(row["key_digest"], row["state"], row["digest"]) for row in batch]
            connection.executemany(tables.text("put_head"), rows)
        tables.rows("place_actions")
        tables.rows("put_placed", (seq,))
        for partition, end in enumerate(manifest.ends):
            if end.oldest > 0:
                tables.rows("put_trimmed", (partition, end.oldest - 1, end.timestamp if end.oldest > end.newest else 0))


def _fix(tables: FilePart, fixed: dict[str, str]) -> None:
    for name, value in fixed.items():
        if name != "schema_version":
            tables.fix(name, value)


def _insert(connection: Any, text: str, columns: Sequence[str], file: FileCopy, folder: Path) -> None:
    for batch in _batches(_rows(folder / file.name, file)):
        connection.executemany(text, [tuple(row[name] for name in columns) for row in batch])


def _batches(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _rows(path: Path, file: FileCopy) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, by the names of their columns."""
    names, readers = list(file.columns), [_reader(kind) for kind in file.columns.values()]
    with path.open("rb") as data:
        if _exactly(data, len(SIGNATURE), file) != SIGNATURE:
            raise _not_rows(file)
        _exactly(data, 4, file)
        (more,) = struct.unpack(">i", _exactly(data, 4, file))
        _exactly(data, more, file)
        while True:
            (count,) = struct.unpack(">h", _exactly(data, 2, file))
            if count < 0:
                return
            if count != len(names):
                raise _not_rows(file)
            row = {}
            for name, read in zip(names, readers, strict=True):
                (size,) = struct.unpack(">i", _exactly(data, 4, file))
                row[name] = None if size < 0 else read(_exactly(data, size, file))
            yield row


def _reader(kind: str) -> Callable[[bytes], Any]:
    if kind in _INTEGERS:
        form = _INTEGERS[kind]
        return lambda data: struct.unpack(form, data)[0]
    if kind == "text":
        return bytes.decode
    return bytes


def _exactly(data: BinaryIO, size: int, file: FileCopy) -> bytes:
    found = data.read(size)
    if len(found) != size:
        raise _not_rows(file)
    return found


def _not_rows(file: FileCopy) -> Corrupt:
    return Corrupt(f"{file.name} has no rows of {file.table}", code="undecodable", hint="take another backup")
