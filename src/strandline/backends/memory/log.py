"""A log in memory, for tests and trials. It behaves like any other, but ends with its process."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from threading import Condition, RLock
from uuid import uuid4

from strandline import forks
from strandline.clock import now_us
from strandline.errors import closed, used_after_fork
from strandline.fold import FoldRules
from strandline.log.api import ActionDraft, Recorded, RecordPage
from strandline.log.folding import PartitionEnd, fold_drafts
from strandline.log.refusals import check_trim, trimmed
from strandline.record import Record
from strandline.settings import APPEND_IDS_KEPT_DEFAULT, PARTITIONS_DEFAULT, SEGMENT_SIZE_DEFAULT
from strandline.values.actions import Place
from strandline.values.heads import State
from strandline.values.keys import key_digest

_offset = attrgetter("offset")


class MemoryLog:
    """A partitioned log of actions, folded as they arrive. Any number of threads may use it."""

    exact = True

    def __init__(
        self,
        *,
        partitions: int = PARTITIONS_DEFAULT,
        segment_size: int = SEGMENT_SIZE_DEFAULT,
        append_ids_kept: int = APPEND_IDS_KEPT_DEFAULT,
        clock: Callable[[], int] = now_us,
        log_id: str | None = None,
    ) -> None:
        self.log_id = log_id or uuid4().hex
        self.partitions = partitions
        self._rules = FoldRules(segment_size, append_ids_kept)
        self._clock = clock
        self._generation = forks.generation
        self._closed = False
        self._lock = RLock()  # Condition's own way in is Python, and could be interrupted half-way
        self._changed = Condition(self._lock)
        self._records: list[list[Record]] = [[] for _ in range(partitions)]
        self._trimmed = [-1] * partitions
        self._ends = {partition: PartitionEnd(-1, 0) for partition in range(partitions)}
        self._states: dict[bytes, State] = {}

    @property
    def rules(self) -> FoldRules | None:
        return self._rules

    def append(self, drafts: Sequence[ActionDraft]) -> list[Recorded]:
        self._check()
        with self._lock:
            answers, records, changed = fold_drafts(drafts, self._state_of, self._ends, self._clock, self._rules)
            for record in records:
                self._records[record.partition].append(record)
            self._states.update((key_digest(key), state) for key, state in changed.items())
            self._changed.notify_all()
        return answers

    def _state_of(self, key: str) -> State:
        return self._states.get(key_digest(key))

    def raw_append(self, partition: int, *, key: str | None, header: bytes | None, value: bytes | None) -> Place:
        """Put any bytes into a partition, unfolded, as a foreign or broken writer would."""
        self._check()
        with self._lock:
            place = self._next_place(partition)
            self._records[partition].append(Record(*place, key, header, value))
            self._ends[partition] = PartitionEnd(*place[1:])
            self._changed.notify_all()
        return place

    def _next_place(self, partition: int) -> Place:
        offset, timestamp = self._ends[partition]
        return Place(partition, offset + 1, max(self._clock(), timestamp + 1))

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
        self._check()
        with self._lock:
            earliest = self._trimmed[partition] + 1
            if after + 1 < earliest:
                raise trimmed(partition, after, earliest)
            newest = self._ends[partition].offset
            last = newest if to is None else min(to, newest)
            records = self._records[partition]
            found = records[bisect_right(records, after, key=_offset) : bisect_right(records, last, key=_offset)]
        page: list[Record] = []
        size = 0
        for record in found:
            if key is not None and record.key != key:
                continue
            size += len(record.value or b"")
            if page and (len(page) == limit or (bytes_max is not None and size > bytes_max)):
                return RecordPage(page, page[-1].offset + 1)
            page.append(record if values else record._replace(value=None))
        return RecordPage(page, max(last, after) + 1)

    def newest(self) -> list[int]:
        self._check()
        with self._lock:
            return [end.offset for end in self._ends.values()]

    def ends(self) -> list[Place]:
        self._check()
        with self._lock:
            return [Place(partition, *end) for partition, end in self._ends.items()]

    def now(self) -> int:
        self._check()
        return self._clock()

    @contextmanager
    def ask_newest(self, partition: int) -> Iterator[Callable[[], int]]:
        newest = self.newest()[partition]
        yield lambda: newest

    def oldest(self) -> list[int]:
        self._check()
        with self._lock:
            return [offset + 1 for offset in self._trimmed]

    def wait(self, after: Mapping[int, int], timeout_s: float) -> bool:
        self._check()
        with self._lock:
            return self._changed.wait_for(
                lambda: self._closed or any(self._ends[number].offset > offset for number, offset in after.items()),
                timeout_s,
            )

    def trim(self, partition: int, *, to: int, pointer: int, keep_after: int) -> int:
        self._check()
        check_trim(to, pointer)
        with self._lock:
            records = self._records[partition]
            # Timestamps grow with the offsets, so the records that are old enough come first.
            count = bisect_right(records, to, key=_offset)
            count = min(count, bisect_left(records, keep_after, key=attrgetter("timestamp")))
            if count:
                self._trimmed[partition] = records[count - 1].offset
                del records[:count]
            return count

    def close(self) -> None:
        if forks.generation != self._generation:
            return  # a thread of the parent may have held the lock at the fork
        with self._lock:
            self._closed = True
            self._changed.notify_all()

    def _check(self) -> None:
        if forks.generation != self._generation:
            raise used_after_fork("this log")
        if self._closed:
            raise closed("this log")
