"""The log in a SQLite file: the embedded default.

An append is one transaction: it folds each draft on the head of its key, numbers it, records it, and is durable when it
returns. Several processes may write one file; they take turns by SQLite's write lock. Offsets of a partition run from 0
without holes; refused and duplicate appends take none.

The cost of a commit decides the speed of the log. So one table that grows at its end has the actions of all partitions,
with the heads, and the places of each partition's actions are noted later, many at a time. Each statement of a commit
lets other threads have the interpreter, so a commit has few statements, whatever the number of drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any
from uuid import uuid4

import apsw

from strandline.backends.sqlite import open_database
from strandline.backends.sqlite.log_heads import (
    ROWS_A_STATEMENT,
    Latest,
    On,
    SqliteHeads,
    WrongGuess,
    insert,
    key_hash,
    row_digest,
    row_text,
    rows,
    sql,
)
from strandline.caller_warnings import caution
from strandline.clock import now_us
from strandline.errors import Corrupt
from strandline.fold import Duplicate, Effect, RefusedAppend, fold
from strandline.log.api import KEYS_A_TIME, ActionDraft, KnownKey, Recorded, RecordPage
from strandline.log.folding import HEAD_DAMAGED, known_states
from strandline.log.refusals import check_holes, check_trim, last_older, trimmed
from strandline.log.state_json import seeded_head
from strandline.log.waiting import Arrivals
from strandline.points import reached
from strandline.record import Record
from strandline.record_numbers import numbers_of
from strandline.settings import PARTITIONS_DEFAULT, Settings
from strandline.sql.api import Part
from strandline.sql.steps import check_fixed, rules_in, rules_to_fix
from strandline.values.actions import Mark, Place
from strandline.values.heads import Head, State
from strandline.values.tuples import in_runs, new_tuple

OFFSET_MAX = 2**63 - 1
UNPLACED_MAX = 128
TRIM_CHUNK = 10_000
TAIL_VERIFIED = 64
HEAD_AT = 8
"""The index of the head's first column in the row of an action."""

PART = Part("log", "strandline.log")


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
            **rules_to_fix(settings),
        }
        self._database = open_database(path, PART, settings=settings, fixed=fixed, clock=clock, create=create, vfs=vfs)
        self._clock = clock
        self._ends: list[tuple[int, int]] = []
        self._seq = self._placed = 0
        self._arrivals = Arrivals()
        try:
            found = self._database.fixed
            self.log_id = found["log_id"]
            self.partitions = int(found["partitions"])
            check_fixed("partitions", self.partitions, settings.partitions)
            self.rules = rules_in(found, settings)
            self.follows = found.get("follows")
            self._heads = SqliteHeads(follows=self.follows is not None)
            self._verify_tail()
            if settings.accept_power_loss:
                _warn_power_loss(self._database.path)
        except BaseException:
            self._database.close()
            raise

    # ------------------------------------------------------------ writing

    def append(self, drafts: Sequence[ActionDraft]) -> list[Recorded]:
        try:
            answers, recorded = self._append(drafts)
        except WrongGuess:
            reached("log.key_was_not_new")
            self._heads.stop_guessing()
            answers, recorded = self._append(drafts)
        if recorded:
            self._arrivals.announce()
        return answers

    def _append(self, drafts: Sequence[ActionDraft]) -> tuple[list[Recorded], bool]:
        """Return answers, and whether anything was recorded."""
        database, cursor = self._database, self._database.cursor
        connection = database.begin()
        try:
            if database.changed_by_others:
                self._catch_up(cursor)
            guessed = self._heads.know(cursor, [draft[1].key for draft in drafts])
            if self._heads.damaged:
                self._heads.learn(known_states(drafts, self._heads.damaged))
            answers, rows_, changed = self._fold(drafts)
            # A refused action, or one without effect, does not show whether a key is new.
            if guessed and not changed.keys() >= set(guessed):
                raise WrongGuess
            if rows_:
                insert(cursor, "append_actions", rows_, ROWS_A_STATEMENT)
                self._heads.write(cursor, changed)
                if self._seq - self._placed >= UNPLACED_MAX:
                    self._place_actions()
        except apsw.Error as error:
            database.rollback()
            raise database.translated(error, connection, "write") from error
        except BaseException:
            database.rollback()
            raise
        if not rows_:
            database.rollback(changed=False)
            return answers, False
        database.commit()
        return answers, True

    def _catch_up(self, on: On) -> None:
        """Forget the remembered heads, and read where each partition ends."""
        self._heads.forget()
        self._ends = [(newest, timestamp) for _, newest, timestamp in self._bounds(on)]
        ((last_seq, self._placed),) = rows(on, "last_seq")
        self._seq = max(last_seq, self._placed)

    def _fold(self, drafts: Sequence[ActionDraft]) -> tuple[list[Recorded], list[list[Any]], dict[str, Latest]]:
        """Return answers, rows to insert, and the keys that changed, each with the last action that did it.

        Only the row of that last action has the key's head, since heads of earlier actions in the same commit are never
        read. It does the same as `log.folding`, but makes rows directly: through records a commit of 128 takes a third
        longer.
        """
        known, ends, clock, rules, seq = self._heads.known, self._ends, self._clock, self.rules, self._seq
        damaged = self._heads.damaged
        answers: list[Recorded] = []
        rows_: list[list[Any]] = []
        changed: dict[str, int] = {}
        for partition, action, header, value, _ in drafts:
            if damaged and action.key in damaged and type(action) is not Mark:
                answers.append(HEAD_DAMAGED)
                continue
            offset, timestamp = ends[partition]
            offset += 1
            timestamp = max(clock(), timestamp + 1)
            if type(action) is Mark and action.at_least is not None:
                timestamp = max(timestamp, action.at_least)
            place = new_tuple(Place, (partition, offset, timestamp))
            key = action.key
            effect: Effect = None
            state: State = None
            hash_ = life = first = last = None
            if key is not None:
                entry = known[key]
                hash_ = entry.hash
                state, effect = fold(entry.state, action, place, rules)
                if isinstance(effect, (RefusedAppend, Duplicate)):
                    answers.append(Recorded(None, True, effect, state))
                    continue
                life, first, last = numbers_of(entry.state, state, effect)
                if state is not entry.state:
                    entry.state = state
                    changed[key] = seq + 1
            seq += 1
            rows_.append([seq, partition, offset, timestamp, hash_, life, first, last, None, key, header, value])
            ends[partition] = offset, timestamp
            answers.append(new_tuple(Recorded, (place, True, effect, state)))
        latest: dict[str, Latest] = {}
        for key, last_seq in changed.items():
            state, digest = known[key].state, None
            if type(state) is Head:
                row = rows_[last_seq - self._seq - 1]
                row[HEAD_AT] = text = row_text(state)
                digest = row_digest(key, text, row[1:4], row[6], row[7])
            latest[key] = new_tuple(Latest, (last_seq, digest))
        self._seq = seq
        return answers, rows_, latest

    def _place_actions(self) -> None:
        """Write the places of actions that have none yet."""
        cursor = self._database.cursor
        cursor.execute(sql("place_actions"))
        cursor.execute(sql("put_placed"), (self._seq,))
        self._placed = self._seq

    def raw_append(self, partition: int, *, key: str | None, header: bytes | None, value: bytes | None) -> Place:
        """Put any bytes into a partition, unfolded, as a foreign or broken writer would."""
        with self._database.write() as transaction:
            connection = transaction.raw
            self._catch_up(connection)
            offset, timestamp = self._ends[partition]
            place = Place(partition, offset + 1, max(self._clock(), timestamp + 1))
            self._seq += 1
            row = (
                self._seq,
                *place,
                None if key is None else key_hash(key),
                None,
                None,
                None,
                None,
                key,
                header,
                value,
            )
            self._database.cursor.execute(sql("append_actions"), row)
            self._ends[partition] = place[1:]
        return place

    # ------------------------------------------------------------ another log instead

    def end_appends(self) -> None:
        with self._database.write() as transaction:
            transaction.execute("end_appends")

    def resume_appends(self) -> None:
        with self._database.write() as transaction:
            transaction.execute("resume_appends")

    def begin_after(self, log_id: str, offset: int, timestamp: int, keys: Iterable[KnownKey]) -> None:
        with self._database.write() as transaction:
            transaction.execute("forget_heads")
            for some in in_runs(map(seeded_head, keys), KEYS_A_TIME):
                transaction.many("seed_heads", some)
            for partition in range(self.partitions):
                transaction.execute("start_partition", (partition, offset, timestamp))
            transaction.execute("keep_follows", (log_id,))

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
    ) -> RecordPage:
        bindings = {
            "partition": partition,
            "after": after,
            "to": OFFSET_MAX if to is None else to,
            "limit": limit,
            "key": key,
            "key_hash": None if key is None else key_hash(key),
            "values": values,
        }
        with self._database.read() as transaction:
            connection = transaction.raw
            if key is not None:
                last_trimmed, newest = _bound(connection, partition)
                if after < last_trimmed:
                    raise trimmed(partition, after, last_trimmed + 1)
            records, whole = _fetch(connection, bindings, limit, bytes_max)
        if key is None:
            if not records or records[0].offset != after + 1:
                self._check_trimmed(partition, after)
            check_holes(partition, after, records)
            return RecordPage(records, records[-1].offset + 1 if records else after + 1)
        if not whole:
            return RecordPage(records, records[-1].offset + 1)
        return RecordPage(records, max(newest if to is None else min(to, newest), after) + 1)

    def newest(self) -> list[int]:
        with self._database.connection() as connection:
            return [newest for _, newest, _ in self._bounds(connection)]

    def ends(self) -> list[Place]:
        with self._database.connection() as connection:
            bounds = self._bounds(connection)
        return [Place(partition, newest, timestamp) for partition, (_, newest, timestamp) in enumerate(bounds)]

    def now(self) -> int:
        self._database.check()
        return self._clock()

    @contextmanager
    def ask_newest(self, partition: int) -> Iterator[Callable[[], int]]:
        with self._database.connection() as connection:
            _, newest = _bound(connection, partition)
        yield lambda: newest

    def oldest(self) -> list[int]:
        with self._database.connection() as connection:
            return [last_trimmed + 1 for last_trimmed, _, _ in self._bounds(connection)]

    def states(self, keys: Collection[str]) -> tuple[dict[str, State], set[str]]:
        heads = SqliteHeads(follows=self.follows is not None)
        with self._database.read() as transaction:
            heads.know(transaction.raw, keys)
        states = {key: heads.known[key].state for key in keys if heads.known[key].state is not None}
        return states, set(heads.damaged)

    def _bounds(self, on: On) -> list[tuple[int, int, int]]:
        """Return the last offset that was trimmed, the newest, and its timestamp, of each partition."""
        return rows(on, "bounds", {"partitions": self.partitions})

    def _check_trimmed(self, partition: int, after: int) -> None:
        with self._database.connection() as connection:
            last_trimmed, _ = _bound(connection, partition)
        if after < last_trimmed:
            raise trimmed(partition, after, last_trimmed + 1)

    def wait(self, after: Mapping[int, int], timeout_s: float) -> bool:
        return self._arrivals.wait(self.newest, after, timeout_s)

    # ------------------------------------------------------------ keeping

    def trim(self, partition: int, *, to: int, pointer: int, keep_after: int) -> int:
        check_trim(to, pointer)
        with self._database.write() as transaction:
            connection = transaction.raw
            self._catch_up(connection)
            self._place_actions()
        with self._database.read() as transaction:
            connection = transaction.raw
            last_trimmed, newest = _bound(connection, partition)

            def timestamp_at(offset: int) -> int:
                return int(connection.execute(sql("place_at"), (partition, offset)).get)

            last = last_older(timestamp_at, last_trimmed, min(to, newest), keep_after)
        count = 0
        # Trimmed in pieces, so that appends need not wait long.
        for first in range(last_trimmed + 1, last + 1, TRIM_CHUNK):
            final = min(first + TRIM_CHUNK - 1, last)
            with self._database.write() as transaction:
                connection = transaction.raw
                timestamp = connection.execute(sql("place_at"), (partition, final)).get
                if timestamp is None:
                    break  # another process trims
                self._heads.leave(connection, partition, final)
                connection.execute(sql("put_trimmed"), (partition, final, timestamp))
                connection.execute(sql("trim_actions"), {"partition": partition, "to": final})
                count += connection.changes()
                connection.execute(sql("trim_places"), {"partition": partition, "to": final})
        return count

    def close(self) -> None:
        self._database.close()

    def _verify_tail(self) -> None:
        """Raise `Corrupt.fold` if a head is behind the last records: then part of a commit is missing."""
        with self._database.connection() as connection:
            behind = rows(connection, "tail", (TAIL_VERIFIED,))
        for partition, offset, key in behind:
            raise Corrupt(
                f"the head of {key} is behind offset {offset} of partition {partition}",
                code="fold",
                hint="restore log and store from one backup",
                partition=partition,
                offset=offset,
            )


def _bound(on: On, partition: int) -> tuple[int, int]:
    """Return the last offset of a partition that was trimmed, and the newest."""
    ((last_trimmed, newest),) = rows(on, "bound", {"partition": partition})
    return last_trimmed, newest


def _fetch(
    connection: apsw.Connection, bindings: dict[str, Any], limit: int, bytes_max: int | None
) -> tuple[list[Record], bool]:
    """Return records, and whether there are no more. The connection sees one moment."""
    records: list[Record] = []
    size = 0
    for name in ("read_placed", "read_unplaced"):
        cursor = connection.execute(sql(name), bindings)
        if bytes_max is None:
            records += map(new_tuple, repeat(Record), cursor.fetchall())
        else:
            for row in cursor:
                record = new_tuple(Record, row)
                size += len(record.value or b"")
                if records and size > bytes_max:
                    cursor.close(True)
                    return records, False
                records.append(record)
        if len(records) >= limit:
            return records[:limit], False
    return records, True


def _warn_power_loss(path: Path) -> None:
    caution(f"{path}: accept_power_loss is on; a power cut can lose the last acknowledged appends")
