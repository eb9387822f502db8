"""The tables of a store, each declared once: its columns, its place (primary key), what removes its rows, when it is
written.

Stores loop over these; none of them knows a table by name that a view may add. The statements that write rows, look
them up and take them away follow from the declaration (`store/table_statements.py`), unless a file of the table's
package has another one of that name. Only `find_TABLE` is always in a file of CQL: rows of a stretch of a partition, as
far as a view asks for them (partition key, and bounds unless it is a whole one).

A row that has a digest keeps `version << 32 | crc32` there, over a canonical form of its columns: numbers by `struct`,
texts and bytes after their lengths, a bit for each that is null. An unknown version is `SchemaMismatch.version`, never
damage.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple
from zlib import crc32

from strandline.errors import Corrupt, SchemaMismatch
from strandline.rows import Pointer, QuarantineRow
from strandline.store.refusals import bad_row
from strandline.values.events import EventRow
from strandline.values.tuples import new_tuple

PACKAGE: Final = "strandline.store"
Kind = Literal["text", "bigint", "integer", "blob"]
Taken = Literal["never", "delete", "purge"]
"""What removes rows: nothing; a delete or a purge of the life; only a purge of the life."""
Phase = Literal["quarantine", "events", "views", "progress", "heads", "own"]
"""When rows are written, in this order; `own`: by something else than the pipeline's batches."""
WRITTEN: Final[tuple[Phase, ...]] = ("events", "views", "progress", "heads")
"""The phases in which a run of appends is written. Each completes before the next begins."""
REMOVED: Final[tuple[tuple[Phase, ...], ...]] = (("views",), ("events", "quarantine", "own"), ("progress",))
"""Phases in the order in which a removal takes their rows; heads go last, by the phases' own rule."""
LIFE: Final = ("key", "life")
"""The columns by which rows are looked up together with heads."""
_DIGEST_BITS: Final = 32
_VERSION_MAX: Final = 255
"""A digest with a greater version than this is damaged."""


class Column(NamedTuple):
    """A column of a table."""

    name: str
    kind: Kind
    nullable: bool = False
    sql_only: bool = False
    """Whether only SQL stores have the column, for an index; a store that finds rows by partition keys does without
    it."""
    absent: int | None = None
    """The value that is written instead of null, which would be a tombstone in every row."""


def columns_of(text: str) -> tuple[Column, ...]:
    """Return columns from a list such as `name kind, name kind null`; marks are `null`, `null=-1` (see `absent`),
    `sql`."""
    found = []
    for part in text.split(","):
        name, kind, *words = part.split()
        absent = next((int(word.removeprefix("null=")) for word in words if word.startswith("null=")), None)
        found.append(Column(name, kind, "null" in words or absent is not None, "sql" in words, absent))  # type: ignore[arg-type]
    return tuple(found)


DECLARED: Final[dict[str, Table]] = {}
"""Every table by its name."""


@dataclass(frozen=True, eq=False)
class Table:
    """A table: rows are tuples in the order of `columns`, most of them named ones of class `row`."""

    name: str
    row: Callable[[Sequence[Any]], Any]
    """Makes a row from its columns: `_make` of a NamedTuple."""
    columns: tuple[Column, ...]
    place: tuple[str, ...]
    """The primary key."""
    partitioned_by: int
    """How many columns of the place are Cassandra's partition key."""
    taken_by: Taken
    phase: Phase
    version: int | None = 1
    """The version of the digest; None if rows have none, because another digest covers their columns already."""
    digest: str = "digest"
    apart: tuple[str, ...] = ()
    """Columns that the digest leaves out."""
    beside: tuple[Column, ...] = ()
    """Columns after the digest, which are written separately: they may change while the row does not."""
    time: str | None = "timestamp"
    """The column that has the timestamp of the row's action. None: a row that is there never changes."""
    looked_up: bool = False
    """Whether its rows are found with the heads of a batch, by key and life: the first two columns."""
    partitioned_only: bool = False
    """Whether only stores that find rows by partition keys have it; others have an index."""
    conflict: str = "conflict"
    """The code of `Corrupt` where another row has a row's place, or has values that only one row may have."""
    package: str = PACKAGE
    """The package whose statements and schema steps make it."""
    versions: tuple[int, ...] = field(default=(1,))
    """The versions that can be read."""

    def __post_init__(self) -> None:
        DECLARED[self.name] = self
        if self.looked_up and self.place[: self.partitioned_by] != LIFE:
            raise ValueError(f"{self!r} is looked up with heads: its partition key must be {', '.join(LIFE)}")
        if self.looked_up and tuple([column.name for column in self.columns[:2]]) != LIFE:
            raise ValueError(f"{self!r} is looked up with heads: its first columns must be {', '.join(LIFE)}")

    def __repr__(self) -> str:
        return f"<table {self.name}>"

    def at(self, column: str) -> int:
        """Return the index of a column in a row."""
        return self._indexes[column]

    @cached_property
    def _indexes(self) -> dict[str, int]:
        return {column.name: index for index, column in enumerate(self.columns)}

    @cached_property
    def place_of(self) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """The place of a row."""
        return _picker([self.at(name) for name in self.place])

    @cached_property
    def partition_of(self) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """The first part of a row's place: Cassandra's partition key."""
        return _picker([self.at(name) for name in self.place[: self.partitioned_by]])

    @cached_property
    def within(self) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """The rest of a row's place."""
        return _picker([self.at(name) for name in self.place[self.partitioned_by :]])

    @cached_property
    def _crc(self) -> Callable[[Sequence[Any]], int]:
        return _compiled(self.columns, self.apart)

    def stored(self, row: Sequence[Any]) -> Sequence[Any]:
        """Return the values of a row as it is stored, its digest behind it."""
        if self.version is None:
            return row
        return (*row, self.version << _DIGEST_BITS | self._crc(row))

    def read(self, values: Sequence[Any]) -> Any:
        """Return the row in stored values; `Corrupt.digest` or `SchemaMismatch.version` if they are not a row."""
        count = len(self.columns)
        row = values[:count]
        if self.version is not None:
            self._check(row, values[count])
        return self.row(row)

    def _check(self, row: Sequence[Any], digest: Any) -> None:
        version, crc = divmod(digest, 1 << _DIGEST_BITS) if isinstance(digest, int) else (0, 0)
        if version not in self.versions:
            raise _unknown(self, row, version) if 0 < version <= _VERSION_MAX else self.bad(row)
        try:
            if self._crc(row) == crc:
                return
        except (struct.error, TypeError, AttributeError, ValueError):  # a damaged file may give any type for a column
            pass
        raise self.bad(row)

    def bad(self, row: Sequence[Any]) -> Corrupt:
        """Return the error for a row that is not what was written."""
        return bad_row(self.name, ", ".join(str(part) for part in self.place_of(row)))


def _unknown(table: Table, row: Sequence[Any], version: int) -> SchemaMismatch:
    return SchemaMismatch(
        f"{table.name} {', '.join(map(str, table.place_of(row)))} was written in version {version}",
        code="version",
        hint="use the strandline that wrote it, or a newer one",
        found=[version],
        known=list(table.versions),
        remedy="use the strandline that wrote it, or a newer one",
    )


def _picker(indexes: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    if len(indexes) > 1:
        return itemgetter(*indexes)
    if not indexes:
        return lambda row: ()
    (index,) = indexes
    return lambda row: (row[index],)


def _compiled(columns: Sequence[Column], apart: Sequence[str]) -> Callable[[Sequence[Any]], int]:
    """Return a function for the checksum over a row's columns, except `apart`. One `struct` has the null bits, the
    numbers, and the lengths of texts and bytes; the texts and bytes follow.

    It is written out and compiled, as `namedtuple` does it: a batch has tens of thousands of heads.
    """
    names = [f"c{index}" for index in range(len(columns))]
    signed = [(name, column) for name, column in zip(names, columns, strict=True) if column.name not in apart]
    nulls = [name for name, column in signed if column.nullable]
    numbers = [(name, column) for name, column in signed if column.kind in ("bigint", "integer")]
    long = [(name, column) for name, column in signed if column.kind in ("text", "blob")]
    absent = " | ".join(f"({name} is None) << {bit}" for bit, name in enumerate(nulls)) or "0"
    values = [f"{name} or 0" if column.nullable else name for name, column in numbers]
    lines = [
        f"def crc(row):\n    {', '.join(names)}, = row",
        f"    absent = {absent}",
        *[f"    {name} = {_bytes_of(name, column)}" for name, column in long],
        f"    head = pack({', '.join(['absent', *values, *[f'len({name})' for name, _ in long]])})",
        f"    return crc32(b''.join(({', '.join(['head', *[name for name, _ in long]])},)))",
    ]
    scope: dict[str, Any] = {"pack": struct.Struct(f"<Q{len(numbers) + len(long)}q").pack, "crc32": crc32}
    exec("\n".join(lines), scope)  # noqa: S102 - of nothing but declarations
    return scope["crc"]  # type: ignore[no-any-return]


def _bytes_of(name: str, column: Column) -> str:
    if column.kind == "text":
        return f"({name} or '').encode()" if column.nullable else f"{name}.encode()"
    return f"{name} or b''" if column.nullable else name


# ---------------------------------------------------------------- the journal's own


class HeadRow(NamedTuple):
    """A head as tables keep it. The columns that archiving changes are beside it."""

    entity_type: str
    slice: int
    key: str
    seq_nr: int
    delete_to: int
    life: int
    partition: int
    log_offset: int
    created: int
    updated: int
    expire_after_us: int | None
    expire_at: int | None
    segment_size: int
    prev: int
    removed_to: int
    remembered: str
    """JSON."""


class EndedRow(NamedTuple):
    """The last ended life of a key."""

    slice: int
    key_digest: bytes
    life: int
    partition: int
    log_offset: int


class SnapshotRow(NamedTuple):
    """A saved state."""

    key: str
    life: int
    seq_nr: int
    timestamp: int
    form: int
    state: bytes


class SliceRow(NamedTuple):
    """An event in the slice view: by time, with its body."""

    entity_type: str
    partition: int
    bucket: int
    """The minute of its timestamp."""
    timestamp: int
    seq_nr: int
    key: str
    life: int
    prev_seq_nr: int
    body: bytes
    digest: int


_LISTED_BITS: Final = 20
"""How many rows one correction may list, as a power of two."""


class RepairedRow(NamedTuple):
    """A row that was put back, at a place that projections may have passed."""

    partition: int
    number: int
    """Grows within the partition: a row that was put back later has a greater number."""
    key: str
    life: int
    seq_nr: int
    timestamp: int
    tag: str | None = None
    """The tag, for a row in the view of a tag."""
    tag_seq_nr: int | None = None


def _event_row(values: Sequence[Any]) -> EventRow:
    return new_tuple(EventRow, values)


JOURNAL: Final = Table(
    "journal", _event_row,
    columns_of(
        "key text, life bigint, segment bigint, seq_nr bigint, prev_seq_nr bigint, entity_type text sql, "
        "slice integer sql, partition integer sql, timestamp bigint, body blob, digest bigint"
    ),
    place=("key", "life", "segment", "seq_nr"), partitioned_by=3, taken_by="delete", phase="events", version=None,
)  # fmt: skip
METAJOURNAL: Final = Table(
    "metajournal", HeadRow._make,
    columns_of(
        "entity_type text, slice integer, key text, seq_nr bigint, delete_to bigint, life bigint, partition integer, "
        "log_offset bigint, created bigint, updated bigint, expire_after_us bigint null=-1, expire_at bigint null=-1, "
        "segment_size bigint, prev bigint, removed_to bigint, remembered text"
    ),
    place=("entity_type", "slice", "key"), partitioned_by=2, taken_by="purge", phase="heads", time="updated",
    beside=columns_of("hidden_to bigint null, archive_life bigint null, archive_to bigint null"),
)  # fmt: skip
ENDED: Final = Table(
    "ended", EndedRow._make,
    columns_of("slice integer, key_digest blob, life bigint, partition integer, log_offset bigint"),
    place=("slice", "key_digest"), partitioned_by=1, taken_by="never", phase="own",
)  # fmt: skip
POINTER: Final = Table(
    "pointer", lambda row: Pointer(*row),
    columns_of(
        "partition integer, log_offset bigint, timestamp bigint, last_action_at bigint, fence bigint, revision bigint"
    ),
    place=("partition",), partitioned_by=1, taken_by="never", phase="own",
)  # fmt: skip
QUARANTINE: Final = Table(
    "quarantine", QuarantineRow._make,
    columns_of(
        "partition integer, log_offset bigint, timestamp bigint, key text null, reason text, header blob null, "
        "value blob null, life bigint null, first bigint null, last bigint null"
    ),
    place=("partition", "log_offset"), partitioned_by=1, taken_by="purge", phase="quarantine",
)  # fmt: skip
SNAPSHOT: Final = Table(
    "snapshot", SnapshotRow._make,
    columns_of("key text, life bigint, seq_nr bigint, timestamp bigint, form bigint, state blob"),
    place=("key", "life", "seq_nr"), partitioned_by=2, taken_by="purge", phase="own",
)  # fmt: skip
REPAIRED: Final = Table(
    "repaired", RepairedRow._make,
    columns_of(
        "partition integer, number bigint, key text, life bigint, seq_nr bigint, timestamp bigint, tag text null, "
        "tag_seq_nr bigint null"
    ),
    place=("partition", "number"), partitioned_by=1, taken_by="purge", phase="own",
)  # fmt: skip
OWN_TABLES: Final = (JOURNAL, METAJOURNAL, ENDED, POINTER, QUARANTINE, SNAPSHOT)
"""The tables that every store has, beside the tables of its views."""
SLICE_VIEW: Final = Table(
    "slice_view", SliceRow._make,
    columns_of(
        "entity_type text, partition integer, bucket bigint, timestamp bigint, seq_nr bigint, key text, life bigint, "
        "prev_seq_nr bigint, body blob, digest bigint"
    ),
    place=("entity_type", "partition", "bucket", "timestamp", "seq_nr", "key"), partitioned_by=3, taken_by="delete",
    phase="views", version=None, partitioned_only=True,
)  # fmt: skip
SLICE_BUCKET: Final = Table(
    "slice_bucket", tuple, columns_of("entity_type text, partition integer, bucket bigint"),
    place=("entity_type", "partition", "bucket"), partitioned_by=2, taken_by="never", phase="events", version=None,
    time=None, partitioned_only=True,
)  # fmt: skip
ENTITY_TYPE: Final = Table(
    "entity_type", tuple, columns_of("partition integer, entity_type text"),
    place=("partition", "entity_type"), partitioned_by=1, taken_by="never", phase="events", version=None, time=None,
    partitioned_only=True,
)  # fmt: skip


def repaired_number(revision: int, at: int = 0) -> int:
    """Return the number of the row that one correction lists at place `at`, by the revision of the pointer that it saw.

    A revision never comes again, so neither does a number. A correction that begins later gives greater ones.
    """
    return (revision << _LISTED_BITS) + at
