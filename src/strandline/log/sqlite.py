"""The log in a SQLite file: the embedded default.

An append is one transaction: it folds each draft on the head of its key, numbers it, records it, and is durable when it
returns. Several processes may write one file; they take turns by SQLite's write lock. Offsets of a partition run from 0
without holes; refused and duplicate appends take none.

Heads are kept in memory as long as nobody else writes: SQLite's data version tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Condition
from typing import Any
from uuid import uuid4

import apsw
import orjson

from strandline.errors import Corrupt, MissingEvent, SchemaMismatch
from strandline.fold import FOLD_VERSION, Duplicate, EventsAppended, Refused, fold
from strandline.log.api import Draft, Page, Recorded
from strandline.log.memory import PARTITIONS_DEFAULT, SEGMENT_SIZE_DEFAULT, now_us
from strandline.log.refusals import check_trim, trimmed
from strandline.record import BadHeader, Record, decode_header
from strandline.rows import head_columns, head_of
from strandline.settings import Settings
from strandline.sqlite import check_fixed, open_database, statement, upgrade_database
from strandline.values.actions import Append, Mark, Place
from strandline.values.heads import Ended, Head, State
from strandline.values.keys import key_digest

OFFSET_BITS = 53
OFFSET_MAX = 2**OFFSET_BITS - 1
HEADS_CACHED_MAX = 20_000
TRIM_CHUNK = 10_000
TAIL_VERIFIED = 16
WAIT_LEAST_S, WAIT_MOST_S = 0.001, 0.05

_PACKAGE = "strandline.log"
_sql = partial(statement, _PACKAGE)


class SqliteLog:
    """A partitioned log of actions in one file. Any number of threads and processes may use it."""

    exact = True

    def __init__(
        self,
        path: str | Path,
        *,
        settings: Settings | None = None,
        clock: Callable[[], int] = now_us,
        create: bool | None = None,
        vfs: str | None = None,
    ) -> None:
        settings = settings or Settings()
        fixed = {
            "log_id": uuid4().hex,
            "partitions": str(settings.partitions or PARTITIONS_DEFAULT),
            "segment_size": str(settings.segment_size or SEGMENT_SIZE_DEFAULT),
            "fold_version": str(FOLD_VERSION),
        }
        self._database = open_database(
            path, kind="log", package=_PACKAGE, settings=settings, fixed=fixed, clock=clock, create=create, vfs=vfs
        )
        self._clock = clock
        self._ends: dict[int, tuple[int, int]] = {}
        self._heads: dict[str, State] = {}
        self._appended = Condition()
        self._waiting = 0
        try:
            fixed = self._database.fixed
            self.log_id = fixed["log_id"]
            self.partitions = int(fixed["partitions"])
            self.segment_size = int(fixed["segment_size"])
            check_fixed("partitions", self.partitions, settings.partitions)
            check_fixed("segment_size", self.segment_size, settings.segment_size)
            _check_fold_version(int(fixed["fold_version"]))
            self._verify_tail()
        except BaseException:
            self._database.close()
            raise

    # ------------------------------------------------------------ writing

    def append(self, drafts: Sequence[Draft]) -> list[Recorded]:
        database = self._database
        connection = database.begin()
        try:
            if database.moved:
                self._forget()
            answers, rows, changed = self._fold(connection, drafts)
            if rows:
                connection.executemany(_APPEND_ACTION, rows)
                self._write_states(connection, changed)
        except BaseException as error:
            self._forget()
            database.rollback()
            if isinstance(error, apsw.Error):
                raise database.translated(error, connection, "write") from error
            raise
        if not rows:
            database.rollback()
            return answers
        self._commit()
        return answers

    def _fold(
        self, connection: apsw.Connection, drafts: Sequence[Draft]
    ) -> tuple[list[Recorded], list[tuple[Any, ...]], dict[str, State]]:
        """Answers, rows to insert, and the new states of the keys that changed."""
        heads, ends, segment_size = self._heads, self._ends, self.segment_size
        missing = {draft.action.key for draft in drafts if draft.action.key not in heads}
        if missing:
            self._load(connection, missing)
        answers: list[Recorded] = []
        rows: list[tuple[Any, ...]] = []
        changed: dict[str, State] = {}
        for partition, action, header, value in drafts:
            newest, last = ends.get(partition) or self._end(connection, partition)
            timestamp = max(self._clock(), last + 1)
            if isinstance(action, Mark) and action.at_least is not None:
                timestamp = max(timestamp, action.at_least)
            place = Place(partition, newest + 1, timestamp)
            key = action.key
            effect = state = None
            if key is not None:
                before = heads[key]
                state, effect = fold(before, action, place, segment_size)
                if isinstance(effect, (Refused, Duplicate)):
                    answers.append(Recorded(None, True, effect, state))
                    continue
                if state is not before:
                    heads[key] = changed[key] = state
            life = first = last_nr = None
            if isinstance(effect, EventsAppended):
                first, last_nr, _, life = effect
            rows.append((partition << OFFSET_BITS | newest + 1, timestamp, key, header, value, life, first, last_nr))
            ends[partition] = newest + 1, timestamp
            answers.append(Recorded(place, True, effect, state))
        return answers, rows, changed

    def _load(self, connection: apsw.Connection, keys: Iterable[str | None]) -> None:
        """Bring the states of these keys into memory."""
        heads = self._heads
        if len(heads) > HEADS_CACHED_MAX:
            heads.clear()
        wanted = [key for key in keys if key is not None]
        heads.update(dict.fromkeys(wanted))
        for key, *columns in _rows(connection, "heads", (orjson.dumps(wanted).decode(),)):
            heads[str(key)] = head_of(columns)
        by_digest = {key_digest(key): key for key in wanted if heads[key] is None}
        if by_digest:
            digests = orjson.dumps([digest.hex() for digest in by_digest]).decode()
            for digest, *ended in _rows(connection, "ended", (digests,)):
                heads[by_digest[digest]] = Ended(*ended)

    def _end(self, connection: apsw.Connection, partition: int) -> tuple[int, int]:
        found: list[tuple[int, int]] = _rows(connection, "end", {"partition": partition})
        return found[0] if found else (-1, 0)

    def _write_states(self, connection: apsw.Connection, changed: dict[str, State]) -> None:
        heads = [(key, *head_columns(state)) for key, state in changed.items() if isinstance(state, Head)]
        connection.executemany(_PUT_HEAD, heads)
        if len(heads) < len(changed):
            ended = [(key, state) for key, state in changed.items() if isinstance(state, Ended)]
            connection.executemany(_sql("remove_head"), [(key,) for key, _ in ended])
            connection.executemany(_sql("put_ended"), [(key_digest(key), *state) for key, state in ended])

    def _commit(self) -> None:
        try:
            self._database.commit()
        except BaseException:
            self._forget()
            raise
        if self._waiting:
            with self._appended:
                self._appended.notify_all()

    def _forget(self) -> None:
        self._ends.clear()
        self._heads.clear()

    def raw_append(self, partition: int, *, key: str | None, header: bytes | None, value: bytes | None) -> Place:
        """Put any bytes into a partition, unfolded: what a foreign or broken writer would leave behind."""
        with self._database.write() as connection:
            self._forget()
            newest, last = self._end(connection, partition)
            place = Place(partition, newest + 1, max(self._clock(), last + 1))
            row = (partition << OFFSET_BITS | place.offset, place.timestamp, key, header, value, None, None, None)
            connection.execute(_APPEND_ACTION, row)
        return place

    # ------------------------------------------------------------ reading

    def read(
        self,
        partition: int,
        *,
        after: int,
        to: int | None = None,
        limit: int = 1000,
        bytes_max: int | None = None,
        key: str | None = None,
        values: bool = True,
    ) -> Page:
        start = partition << OFFSET_BITS
        bindings = {
            "after": start + after,
            "to": start + min(OFFSET_MAX if to is None else to, OFFSET_MAX),
            "limit": limit,
            "key": key,
            "values": values,
        }
        if key is None:
            with self._database.read() as connection:
                records, _ = _fetch(connection, bindings, bytes_max)
            if not records or records[0].offset != after + 1:
                self._check_trimmed(partition, after)
            _check_holes(partition, after, records)
            return Page(records, records[-1].offset + 1 if records else after + 1)
        with self._database.read(snapshot=True) as connection:
            earliest, newest = self._bounds(connection)[partition]
            if after + 1 < earliest:
                raise trimmed(partition, after, earliest)
            records, whole = _fetch(connection, bindings, bytes_max)
        if not whole or len(records) == limit:
            return Page(records, records[-1].offset + 1)
        return Page(records, max(newest if to is None else min(to, newest), after) + 1)

    def newest(self) -> list[int]:
        with self._database.read() as connection:
            return [newest for _, newest in self._bounds(connection)]

    def oldest(self) -> list[int]:
        with self._database.read() as connection:
            return [earliest for earliest, _ in self._bounds(connection)]

    def _bounds(self, connection: apsw.Connection) -> list[tuple[int, int]]:
        """The first offset that was not trimmed and the newest, of each partition."""
        found = _rows(connection, "bounds", {"partitions": self.partitions})
        return [(last_trimmed + 1, newest) for last_trimmed, newest in found]

    def _check_trimmed(self, partition: int, after: int) -> None:
        with self._database.read() as connection:
            earliest, _ = self._bounds(connection)[partition]
        if after + 1 < earliest:
            raise trimmed(partition, after, earliest)

    def wait(self, after: Mapping[int, int], timeout_s: float) -> bool:
        """Appends of this process wake it up at once; those of others are looked for every few milliseconds."""
        deadline = time.monotonic() + timeout_s
        pause_s = WAIT_LEAST_S
        with self._appended:
            self._waiting += 1
        try:
            while True:
                newest = self.newest()
                if any(newest[partition] > offset for partition, offset in after.items()):
                    return True
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return False
                with self._appended:
                    self._appended.wait(min(pause_s, left_s))
                pause_s = min(pause_s * 2, WAIT_MOST_S)
        finally:
            with self._appended:
                self._waiting -= 1

    # ------------------------------------------------------------ keeping

    def trim(self, partition: int, *, to: int, pointer: int, keep_after: int) -> int:
        check_trim(to, pointer)
        start = partition << OFFSET_BITS
        with self._database.read(snapshot=True) as connection:
            earliest, newest = self._bounds(connection)[partition]
            last = _last_older(connection, start, earliest, min(to, newest), keep_after)
        count = 0
        # In pieces, so that appends need not wait long.
        for first in range(earliest, last + 1, TRIM_CHUNK):
            final = min(first + TRIM_CHUNK - 1, last)
            with self._database.write() as connection:
                timestamp = connection.execute(_sql("timestamp_at"), (start + final,)).get
                if timestamp is None:
                    break  # somebody else trims
                connection.execute(_sql("put_trimmed"), (partition, final, timestamp))
                connection.execute(_sql("trim"), (start, start + final))
                count += connection.changes()
        return count

    def close(self) -> None:
        self._database.close()

    def _verify_tail(self) -> None:
        """`Corrupt.fold` if a head is behind the last records: what a commit wrote is then not all there."""
        with self._database.read(snapshot=True) as connection:
            for partition, (_, newest) in enumerate(self._bounds(connection)):
                after = max(newest - TAIL_VERIFIED, -1)
                self._verify(connection, partition, after)
        self._forget()

    def _verify(self, connection: apsw.Connection, partition: int, after: int) -> None:
        start = partition << OFFSET_BITS
        bindings = {"after": start + after, "to": start + OFFSET_MAX, "limit": TAIL_VERIFIED, "key": None, "values": 1}
        records, _ = _fetch(connection, bindings, None)
        accepted = [record for record in records if record.life is not None and _is_append(record)]
        self._load(connection, {record.key for record in accepted})
        for record in accepted:
            state = self._heads[record.key or ""]
            if state is None or state.offset < record.offset:
                raise Corrupt(
                    f"the head of {record.key} is behind offset {record.offset} of partition {partition}",
                    code="fold",
                    hint="run `strandline verify`, and restore a backup",
                    partition=partition,
                    offset=record.offset,
                )


def upgrade(path: str | Path, settings: Settings | None = None) -> list[str]:
    """Do the steps of the schema that a log lacks; their names."""
    return upgrade_database(path, kind="log", package=_PACKAGE, settings=settings or Settings())


_APPEND_ACTION = _sql("append_action")
_PUT_HEAD = _sql("put_head")
_READ = _sql("read")


def _rows(connection: apsw.Connection, name: str, bindings: Any) -> list[Any]:
    return connection.execute(_sql(name), bindings).fetchall()


def _fetch(connection: apsw.Connection, bindings: dict[str, Any], bytes_max: int | None) -> tuple[list[Record], bool]:
    """Records, and whether these are all that the limit allows."""
    cursor = connection.execute(_READ, bindings)
    if bytes_max is None:
        return [Record._make(row) for row in cursor.fetchall()], True
    records: list[Record] = []
    size = 0
    for row in cursor:
        record = Record._make(row)
        size += len(record.value or b"")
        if records and size > bytes_max:
            cursor.close(True)
            return records, False
        records.append(record)
    return records, True


def _check_holes(partition: int, after: int, records: list[Record]) -> None:
    """Offsets of this log are consecutive: what is not there was lost."""
    if records and records[-1].offset - after != len(records):
        expected = after + 1
        for record in records:
            if record.offset != expected:
                raise MissingEvent(
                    f"partition {partition} lacks offsets {expected}..{record.offset - 1}",
                    code="log_trimmed",
                    hint="run `strandline verify`, and restore a backup",
                    partition=partition,
                    first=expected,
                    last=record.offset - 1,
                )
            expected += 1


def _last_older(connection: apsw.Connection, start: int, earliest: int, to: int, keep_after: int) -> int:
    """The last offset in `earliest`..`to` that is older than `keep_after`; timestamps grow with the offsets."""
    low, high = earliest - 1, to
    while low < high:
        middle = (low + high + 1) // 2
        if connection.execute(_sql("timestamp_at"), (start + middle,)).get < keep_after:
            low = middle
        else:
            high = middle - 1
    return low


def _is_append(record: Record) -> bool:
    try:
        return isinstance(decode_header(record.header), Append)
    except (BadHeader, SchemaMismatch):
        return False


def _check_fold_version(stored: int) -> None:
    if stored != FOLD_VERSION:
        raise SchemaMismatch(
            f"this log was folded by version {stored}; this program has version {FOLD_VERSION}",
            code="fold_version",
            hint="use the strandline that wrote it, or a newer one",
            stored=stored,
            known=FOLD_VERSION,
        )
