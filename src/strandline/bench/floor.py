"""The floor under a pipeline: bare processes that write the same rows into the same tables, as durable.

They have read, decoded and folded what they write before a clock starts; the batches are those of the pipeline, made by
the same functions. On servers there are two processes, as the pipeline has two tasks, each with half of the partitions.
On SQLite there is one: a file has one writer at a time, and a second process would only wait for its lock.

On SQLite and PostgreSQL a batch is one transaction, the pointer last: `executemany` there, arrays of columns here. On
Cassandra it is unlogged batches by partition key, many in flight, without the order that a store has to keep.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.bench.child import Child
from strandline.carry.range import CarriedRange, carry
from strandline.rows import PartitionBatch, Pointer
from strandline.store.api import KeyStates
from strandline.store.views import ViewRows
from strandline.urls import Url, urls_of
from strandline.values.heads import State

if TYPE_CHECKING:
    from strandline.backends.cassandra import CqlRequest
    from strandline.connect import Strandline

PROCESSES = 2
READY_WAIT_S, LOOK_S = 600.0, 0.05
PATIENCE_S = 60.0
"""For one request: a bare process has nobody to try again for it."""
Prepared = Callable[[PartitionBatch, Pointer], Callable[[], None]]
"""A batch, and the pointer before it, made ready to be written."""


class Batches:
    """Stands where a store would, and keeps what is written to it."""

    def __init__(self, s: Strandline) -> None:
        self._s = s
        self.views = s.store.views
        self._states: dict[str, State] = {}
        self._looked: dict[str, ViewRows] = {}
        self._pointers = s.store.pointers()
        self._kept: list[tuple[PartitionBatch, Pointer]] = []

    def look(self, partition: int, keys: Collection[str], followed: Collection[str] = ()) -> KeyStates:
        states = {key: self._states[key] for key in keys if key in self._states}
        return KeyStates(self._pointers[partition], states, {}, {key: self._looked.get(key, {}) for key in followed})

    def write(self, batch: PartitionBatch, seen: Pointer) -> None:
        self._states |= batch.states
        for cut in batch.cuts:
            self._looked[cut.key] = {table: rows for table, rows in cut.rows.items() if table.looked_up}
        self._pointers[seen.partition] = batch.pointer
        self._kept.append((batch, seen))

    def all(self, partitions: Sequence[int]) -> Iterator[tuple[int, PartitionBatch, Pointer]]:
        """The batches that the pipeline would write, with their micro-batches and the pointers before them."""
        newest = self._s.log.newest()
        micro_batch = 0
        while any(self._pointers[partition].offset < newest[partition] for partition in partitions):
            for partition in partitions:
                self._carry(partition, newest[partition])
            for batch, seen in self._kept:
                yield micro_batch, batch, seen
            self._kept.clear()
            micro_batch += 1

    def _carry(self, partition: int, newest: int) -> None:
        log, store, span = self._s.log, self._s.store, self._s.settings.batch_actions_max
        seen = self._pointers[partition]
        to = min(seen.offset + span, newest)
        if to <= seen.offset:
            return
        records = []
        position = seen.offset + 1
        while position <= to:
            page = log.read(partition, after=position - 1, to=to, limit=span)
            records += page.records
            position = page.position
        range_ = CarriedRange(partition, seen.offset + 1, to + 1, records, log.exact)
        carry(self, store.settings, range_, seen.fence)


# ---------------------------------------------------------------- one process


def one_in_child(where: dict[str, Any]) -> dict[str, Any]:
    """Write batch by batch, each made while no clock runs."""
    import strandline

    url = urls_of(where.get("url"), where.get("log"), where.get("store")).store
    seconds: defaultdict[int, float] = defaultdict(float)
    events: defaultdict[int, int] = defaultdict(int)
    with strandline.connect(**where) as s, ExitStack() as stack:
        prepared = _sql(url, s, stack)
        for micro_batch, batch, seen in Batches(s).all(range(s.log.partitions)):
            write = prepared(batch, seen)
            from_s = time.perf_counter()
            write()
            seconds[micro_batch] += time.perf_counter() - from_s
            events[micro_batch] += batch.events
        pointers = [pointer.offset for pointer in s.store.pointers()]
    steady = [number for number in events if number > 0 and events[number]]  # a last one may have marks alone
    return {
        "events_per_s": sum(events[number] for number in steady) / sum(seconds[number] for number in steady),
        "events": sum(events.values()),
        "steady_events": sum(events[number] for number in steady),
        "batch_seconds": [seconds[number] for number in steady],
        "pointers": [pointers],
    }


def _sql(url: Url, s: Strandline, stack: ExitStack) -> Prepared:
    from strandline.backends import backend_of
    from strandline.store.end_state import change_of
    from strandline.store.heads import head_row
    from strandline.store.sql_store import PART
    from strandline.store.tables import METAJOURNAL, POINTER

    database = backend_of(url).open_database(url, PART, s.settings, fixed={})
    stack.callback(database.close)

    def prepared(batch: PartitionBatch, seen: Pointer) -> Callable[[], None]:
        change = change_of(batch)
        events, heads = list(change.events), [METAJOURNAL.stored(head_row(key, head)) for key, head in change.heads]
        pointer = POINTER.stored(batch.pointer)
        views = {f"put_{table.name}": list(map(table.stored, some)) for table, some in change.rows.items()}

        def write() -> None:
            with database.write() as transaction:
                transaction.many("put_journal", events)
                for name, rows in views.items():
                    transaction.many(name, rows)
                transaction.many("put_metajournal", heads)
                transaction.execute("set_pointer", pointer)

        return write

    return prepared


# ---------------------------------------------------------------- two processes


def two_in_child(where: dict[str, Any]) -> dict[str, Any]:
    """Let two processes write at the same time, from the moment that both are ready."""
    import strandline

    strandline.connect(**where).close()  # makes the tables
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        writers = [
            stack.enter_context(
                Child("floor:half_in_child", where=where, process=process, ready=str(Path(folder) / str(process)))
            )
            for process in range(PROCESSES)
        ]
        deadline = time.monotonic() + READY_WAIT_S
        while len(list(Path(folder).iterdir())) < PROCESSES:
            for writer in writers:
                if not writer.process.alive:
                    raise writer.failure()
            if time.monotonic() > deadline:
                raise RuntimeError(f"not ready after {READY_WAIT_S} s")
            time.sleep(LOOK_S)
        from_s = time.monotonic()
        for writer in writers:
            writer.stop()
        answers = [writer.answer() for writer in writers]
    seconds = max(answer["ended_s"] for answer in answers) - from_s
    events = sum(answer["events"] for answer in answers)
    return {
        "events_per_s": events / seconds,
        "events": events,
        "seconds": seconds,
        "seconds_of_each": [answer["ended_s"] - from_s for answer in answers],
    }


def half_in_child(where: dict[str, Any], process: int, ready: str) -> dict[str, Any]:
    """Prepare everything, wait until it is told, write."""
    import strandline

    url = urls_of(where.get("url"), where.get("log"), where.get("store")).store
    with strandline.connect(**where) as s, ExitStack() as stack:
        prepared = {"postgresql": _sql, "cassandra": _cassandra}[url.scheme](url, s, stack)
        events = 0
        writes: list[Callable[[], None]] = []
        for _, batch, seen in Batches(s).all(range(process, s.log.partitions, PROCESSES)):
            writes.append(prepared(batch, seen))
            events += batch.events
        Path(ready).touch()
        sys.stdin.readline()
        for write in writes:
            write()
        ended_s = time.monotonic()
    return {"ended_s": ended_s, "events": events}


def _cassandra(url: Url, s: Strandline, stack: ExitStack) -> Prepared:
    from strandline.backends.cassandra import Session
    from strandline.backends.cassandra.writing import Writing
    from strandline.store.phases import run, written

    session = stack.enter_context(closing(Session(url, PATIENCE_S)))
    session.rows("pointer", (0,))  # connects

    def prepared(batch: PartitionBatch, seen: Pointer) -> Callable[[], None]:
        recorded, pointer = _RecordingSession(), _pointer_values(batch.pointer, seen)
        writing = Writing(recorded)  # type: ignore[arg-type]
        run(written(batch, s.store.views), writing.write, writing.find)

        def write() -> None:
            session.write(recorded.requests)
            if not session.conditional("set_pointer", pointer):
                raise RuntimeError(f"the pointer was not as it was seen: {pointer}")

        return write

    return prepared


class _RecordingSession:
    """Stands where a session would, and keeps what is written to it."""

    def __init__(self) -> None:
        self.requests: list[CqlRequest] = []

    def write(self, requests: Iterable[CqlRequest]) -> None:
        self.requests += requests


def _pointer_values(pointer: Pointer, seen: Pointer) -> tuple[Any, ...]:
    from strandline.store.tables import POINTER

    _, *values = POINTER.stored(pointer)
    absent = seen == Pointer(seen.partition)
    return (*values, seen.partition, *((None,) * 3 if absent else (seen.offset, seen.fence, seen.revision)))
