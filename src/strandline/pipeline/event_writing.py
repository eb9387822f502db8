"""Events from a DataFrame: `frame.write.format("strandline").mode("append")` records a row as an event each.

    key          text, written `order|42`                     append_id    text: a UUID, or any other; of its key
    type         text                                         tags         array of text, may be left out
    payload      text: JSON; or binary: bytes                 metadata     text: a JSON object, may be left out
    json         with a binary payload: whether it is JSON    headers      map of text to text, may be left out

Each row is recorded once, also if its task is tried again, runs twice at the same time, or is killed in the middle, and
if the whole write is repeated: `journal/importing.py` says how. Rows of one key in one partition of the DataFrame are
recorded in their order there; `append_frame` brings them together. Between partitions there is no order.

A row that cannot be recorded is refused by itself: all others are recorded, then the write ends with
`InvalidInput.rows_refused`, which has their number and the first of them. With the option `refused`, a folder that all
tasks can write to, it does not end so: the rows are listed there, as JSON lines.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, BooleanType, DataType, MapType, StringType, StructType

from strandline.errors import InvalidInput, counted, invalid, shown
from strandline.journal.importing import ImportCounts, ImportedEvent, Importer, RefusedEvent
from strandline.pipeline.failures import crossing
from strandline.pipeline.target import JournalRef
from strandline.pipeline.task import uncollected
from strandline.values.events import Event
from strandline.values.payloads import parse_json

ROWS_AT_ONCE: Final = 20_000
BYTES_AT_ONCE: Final = 16 * 2**20
LISTED_MAX: Final = 20
"""How many refused rows at most are in the error, and travel from each task."""
TEXT: Final = StringType()
COLUMNS: Final[Mapping[str, tuple[DataType, ...]]] = {
    "key": (TEXT,),
    "type": (TEXT,),
    "payload": (TEXT, BinaryType()),
    "append_id": (TEXT,),
    "tags": (ArrayType(TEXT),),
    "metadata": (TEXT,),
    "headers": (MapType(TEXT, TEXT),),
    "json": (BooleanType(),),
}
NEEDED: Final = ("key", "type", "payload", "append_id")
LEFT_OUT: Final = (None,)


@dataclass
class WrittenRows(WriterCommitMessage):
    """The answer of a task: counts, the first rows that it refused, and the file with all of them."""

    counts: ImportCounts
    refused: list[RefusedEvent]
    file: str | None


class EventsWriter(DataSourceArrowWriter):
    """Records the rows of a DataFrame. `write` runs in each task, `commit` once at the end."""

    def __init__(self, target: JournalRef, schema: StructType, refused: str | None) -> None:
        check_columns(schema)
        target.open()  # where there is no journal, this raises before any row is read
        self.target, self.refused = target, refused
        self.id = uuid.uuid4().hex
        if refused is not None:
            _make_folder(refused)

    @crossing
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        s = self.target.open()
        importer = Importer(s.journal, s.settings, s.log.partitions, s.store.settings.rules.append_ids_kept)
        listed: list[RefusedEvent] = []
        with RefusedRows(self.refused, self.id) as file, uncollected():
            for part in parts_of(iterator):
                events, unread = _events_of(part)
                importer.counts.refused += len(unread)
                refused = [*unread, *importer.take(events)]
                listed += refused[: LISTED_MAX - len(listed)]
                file.add(refused)
        return WrittenRows(importer.counts, listed, file.name)

    @crossing
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        done = [message for message in messages if isinstance(message, WrittenRows)]
        if self.refused is not None:
            self._keep_files({message.file for message in done})
            return
        count = sum(message.counts.refused for message in done)
        if count:
            raise rows_refused(count, [row for message in done for row in message.refused])

    @crossing
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: recorded rows stay; writing them again does not record them twice."""

    def _keep_files(self, names: Iterable[str | None]) -> None:
        """Remove the lists of refused rows that failed or repeated attempts of tasks have left."""
        kept = set(names)
        for path in Path(str(self.refused)).glob(f"{self.id}-*.jsonl"):
            if path.name not in kept:
                path.unlink()


def check_columns(schema: StructType) -> None:
    """Raise `InvalidInput.schema` if a DataFrame's columns are not those of events."""
    names = [field.name for field in schema.fields]
    wrong = [f"no column {name}" for name in NEEDED if name not in names]
    for each in schema.fields:
        allowed = COLUMNS.get(each.name)
        if allowed is None:
            wrong.append(f"unknown column {shown(each.name, 40)}")
        elif not any(_same_type(each.dataType, one) for one in allowed):
            types = " or ".join(one.simpleString() for one in allowed)
            wrong.append(f"{each.name} is {each.dataType.simpleString()}, not {types}")
    if len(set(names)) < len(names):
        wrong.append("a column twice")
    if wrong:
        raise InvalidInput(
            f"schema: {'; '.join(wrong)}; allowed {', '.join(COLUMNS)}, of which {', '.join(NEEDED)} are needed",
            code="schema",
            hint="select these columns; to_json(struct(...)) makes a payload of several",
            field="schema",
        )


def _same_type(one: DataType, other: DataType) -> bool:
    """Return whether two types are the same, whatever may be null in them."""
    return one.simpleString() == other.simpleString()


def rows_refused(count: int, first: Sequence[RefusedEvent]) -> InvalidInput:
    """Return the error of a write whose rows were not all recorded."""
    rows = [{"key": row.key, "append_id": row.append_id, "code": row.code, "message": row.message} for row in first]
    told = "; ".join(f"{shown(row.key, 60)} {shown(row.append_id, 60)}: {row.message}" for row in first[:3])
    return InvalidInput(
        f"{counted(count, 'row')} refused, all others are recorded: {told}{' …' if count > 3 else ''}",
        code="rows_refused",
        hint="mend these rows and write again, what is recorded stays; option `refused` lists them in a folder",
        field="rows",
        count=count,
        rows=rows[:LISTED_MAX],
    )


class RefusedRows:
    """The list of a task's refused rows: a file of JSON lines, made when there is one."""

    def __init__(self, folder: str | None, write_id: str) -> None:
        self._path = None if folder is None else Path(folder) / f"{write_id}-{uuid.uuid4().hex}.jsonl"
        self._file: Any = None

    @property
    def name(self) -> str | None:
        return self._path.name if self._path is not None and self._file is not None else None

    def __enter__(self) -> RefusedRows:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, rows: Iterable[RefusedEvent]) -> None:
        for row in rows:
            if self._path is None:
                return
            if self._file is None:
                self._file = self._path.open("ab")
            self._file.write(orjson.dumps(row._asdict()) + b"\n")


def _make_folder(folder: str) -> None:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        allowed = "a folder that every task can write to"
        raise invalid("option", "refused", os.strerror(error.errno or 0), allowed=allowed, got=folder) from None


# ---------------------------------------------------------------- rows


def parts_of(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield batches, joined or cut to the number of rows that is recorded at once."""
    part: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for piece in _pieces(batch):
            part.append(piece)
            rows += piece.num_rows
            size += piece.get_total_buffer_size() * piece.num_rows // max(1, batch.num_rows)
            if rows >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
                yield part
                part, rows, size = [], 0, 0
    if part:
        yield part


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Return a batch, cut if it is too large."""
    pieces = max(1, -(-batch.num_rows // ROWS_AT_ONCE), -(-batch.nbytes // BYTES_AT_ONCE))
    step = max(1, -(-batch.num_rows // pieces))
    return (batch.slice(at, step) for at in range(0, batch.num_rows, step))


def _events_of(batches: Iterable[pa.RecordBatch]) -> tuple[list[ImportedEvent], list[RefusedEvent]]:
    """Return the events of these rows; and the rows whose JSON cannot be read."""
    events: list[ImportedEvent] = []
    unread: list[RefusedEvent] = []
    for batch in batches:
        given = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        columns = [given.get(name) or LEFT_OUT * batch.num_rows for name in COLUMNS]
        for row in zip(*columns, strict=True):
            try:
                events.append(_event_of(*row))
            except InvalidInput as error:
                unread.append(RefusedEvent(str(row[0]), str(row[3]), error.code, error.message))
    return events, unread


def _event_of(
    key: str | None,
    type_: str | None,
    payload: str | bytes | None,
    append_id: str | None,
    tags: list[str] | None,
    metadata: str | None,
    headers: Sequence[tuple[str, str]] | None,
    is_json: bool | None,
) -> ImportedEvent:
    read: Any = payload
    if payload is not None and (type(payload) is str or is_json):
        read = _json(payload, "payload")
    said = None if metadata is None else _json(metadata, "metadata")
    event = Event(cast(str, type_), read, tags or (), said)  # a type that is missing is refused with its row
    return ImportedEvent(key, event, append_id, dict(headers) if headers else None)


def _json(text: str | bytes, field: str) -> Any:
    """Return a JSON value. Text in our own form is taken as it is; any other is checked strictly."""
    try:
        value = orjson.loads(text)
        if orjson.dumps(value) == (text if isinstance(text, bytes) else text.encode()):
            return value
    except (ValueError, TypeError):
        pass
    return parse_json(text, field)
