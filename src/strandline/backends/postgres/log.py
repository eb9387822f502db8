"""The log in a PostgreSQL database.

An append is one transaction and two round trips: the first holds the rows of its partitions, in ascending order, and
brings the heads of its keys and the server's clock; the second records what the fold made of it, and commits. Offsets
and timestamps are given while the rows are held, until the commit: the order of offsets is the order of commits, and a
reader misses no late one. Offsets of a partition run from 0 without holes; refused and duplicate appends take none.

A process that writes its partitions alone needs one round trip (`known_ends.py`): what it knows from its last appends
still holds, a key of which it knows nothing is new, and the one statement that records and commits makes sure of it.
Any number of processes may write all the same.

A caller that waits looks at the newest offsets. A bell (`notifications.py`) wakes it; it is rung after a commit and not
in it, so that commits need not wait in one queue.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any, Final
from uuid import uuid4

from strandline.backends.postgres import Begun, open_database
from strandline.backends.postgres.known_ends import KnownEnd, KnownEnds
from strandline.backends.postgres.notifications import Bell
from strandline.errors import Corrupt, Unavailable
from strandline.log.api import KEYS_A_TIME, ActionDraft, KnownKey, Recorded, RecordPage
from strandline.log.folding import PartitionEnd, fold_drafts, known_states
from strandline.log.refusals import check_holes, check_trim, hole, last_older, trimmed
from strandline.log.state_json import seeded_head, state_digest, state_text, states_in
from strandline.log.waiting import Arrivals
from strandline.record import Record
from strandline.settings import PARTITIONS_DEFAULT, Settings
from strandline.sql.api import Part
from strandline.sql.steps import check_fixed, rules_in, rules_to_fix
from strandline.urls import Url
from strandline.values.actions import Place
from strandline.values.heads import State
from strandline.values.keys import key_digest
from strandline.values.tuples import in_runs, new_tuple

OFFSET_MAX: Final = 2**63 - 1
TRIM_CHUNK: Final = 10_000
TRIES: Final = 5
TRY_AGAIN_S: Final = 0.01
CLOCK_FAR_US: Final = 1_000_000
"""How far a timestamp that was computed here may be from the server's clock; else the server is asked."""
READ_ONLY: Final = "25006"
"""The state with which a server answers whose transactions are read-only by default: then a BEGIN must say
otherwise."""
PACKAGE: Final = "strandline.log"
_logger: Final = logging.getLogger(__name__)


class PostgresLog:
    """A partitioned log of actions in one schema. Any number of threads and processes may use it."""

    exact = True

    def __init__(
        self,
        url: Url,
        *,
        settings: Settings | None = None,
        clock: Callable[[], int] | None = None,
        create: bool | None = None,
        advisory: bool = True,
    ) -> None:
        settings = settings or Settings()
        partitions = settings.partitions or PARTITIONS_DEFAULT
        fixed = {
            "log_id": uuid4().hex,
            "partitions": str(partitions),
            **rules_to_fix(settings),
        }
        self._database = open_database(
            url, Part("log", PACKAGE), settings=settings, fixed=fixed, clock=clock, create=create, advisory=advisory,
            filling=[("add_partitions", (partitions,))],
        )  # fmt: skip
        self._clock = clock
        self._arrivals = Arrivals()
        self._known_ends = KnownEnds()
        try:
            found = self._database.fixed
            self.log_id = found["log_id"]
            self.partitions = int(found["partitions"])
            check_fixed("partitions", self.partitions, settings.partitions)
            self.rules = rules_in(found, settings)
            self.follows = found.get("follows")
        except BaseException:
            self._database.close()
            raise
        self._channel = self._database.channel("appended")
        self._bell = Bell(self._database, self._channel)
        self._hears = False

    # ------------------------------------------------------------ writing

    def append(self, drafts: Sequence[ActionDraft]) -> list[Recorded]:
        for left in range(TRIES - 1, -1, -1):
            try:
                return self._append(drafts)
            except Unavailable as error:
                if error.code != "serialization" or not left:
                    raise
                _logger.info("%s: a commit is tried again: %s", self._database.where, error)
                time.sleep(TRY_AGAIN_S)  # servers that do not wait for locks raise a serialization error instead
        raise AssertionError("unreachable")

    def _append(self, drafts: Sequence[ActionDraft]) -> list[Recorded]:
        digests = {key: key_digest(key) for draft in drafts if (key := draft.action.key) is not None}
        partitions = sorted({draft.partition for draft in drafts})
        known_ends = self._known_ends.pop(partitions)
        known = _known(drafts, known_ends)
        if len(known_ends) == len(partitions) and (len(known) == len(digests) or self._known_ends.may_guess()):
            answers = self._append_at_once(drafts, digests, known, known_ends)
            if answers is not None:
                return answers
            known = _known(drafts, known_ends)
        transaction = self._begin(partitions, [digest for key, digest in digests.items() if key not in known])
        try:
            ends, now = self._ends(transaction)
            if known and any(ends[partition] != left.end for partition, left in known_ends.items()):
                transaction.undo()
                return self._append(drafts)  # the known ends no longer hold, and were removed, so all is queried
            starts = dict(ends)
            found, damaged = _states(transaction, digests, drafts)
            states = {**known, **found}
            clock = self._clock or (lambda: now)
            answers, records, changed = fold_drafts(drafts, states.get, ends, clock, self.rules, damaged)
        except BaseException:
            transaction.undo()
            raise
        if not records:
            transaction.undo()
            return answers
        transaction.commit(self._database.bind("append", *_arrays(records, digests, changed, ends)))
        whole = dict.fromkeys(key for key in digests if key not in damaged)
        self._store_ends(drafts, {**whole, **states, **changed}, known_ends, starts, ends)
        self._announce()
        return answers

    def _append_at_once(
        self,
        drafts: Sequence[ActionDraft],
        digests: Mapping[str, bytes],
        known: Mapping[str, State],
        known_ends: dict[int, KnownEnd],
    ) -> list[Recorded] | None:
        """Append from the known ends, in one round trip; None if that cannot be done. Keys that are not known are taken
        for new. The statement makes sure that the log has no state of theirs.
        """
        starts = {partition: left.end for partition, left in known_ends.items()}
        ends = dict(starts)
        now = self._known_ends.now_us()
        clock = self._clock or (lambda: now)
        answers, records, changed = fold_drafts(drafts, known.get, ends, clock, self.rules)
        if not records:
            return None  # a refusal must rest on the present state, not on a remembered one
        # A Mark may ask for a time that is far ahead; what the clock said counts.
        near = (now, OFFSET_MAX // 2 if self._clock else CLOCK_FAR_US)
        offsets, timestamps = zip(*[starts[partition] for partition in sorted(starts)], strict=True)
        name = "append_at_once" if len(starts) == 1 else "append_all_at_once"  # the first statement is quicker
        arrays = (*_arrays(records, digests, changed, ends), offsets, timestamps, near)
        new = [digest for key, digest in digests.items() if key not in known]
        try:
            told = self._database.execute(self._database.bind(name, *arrays, new))
        except Unavailable as error:
            if error.facts.get("sqlstate") != READ_ONLY:
                raise
            self._known_ends.met_others(known_ends)
            return None
        if not told.ntuples:
            if new:  # the query for their states also shows whether the partitions moved
                self._known_ends.guessed_wrong()
            else:
                self._known_ends.met_others(known_ends)
                known_ends.clear()
            return None
        self._known_ends.note_clock(_int(told.get_value(0, 0)))
        self._store_ends(drafts, {**dict.fromkeys(digests), **known, **changed}, known_ends, starts, ends)
        self._announce()
        return answers

    def _store_ends(
        self,
        drafts: Sequence[ActionDraft],
        states: Mapping[str, State],
        known_ends: Mapping[int, KnownEnd],
        starts: Mapping[int, PartitionEnd],
        ends: Mapping[int, PartitionEnd],
    ) -> None:
        """Note that a commit moved partitions from `starts` to `ends`: the next append may go on from there."""
        of: dict[int, dict[str, State]] = {partition: {} for partition in ends}
        for draft in drafts:
            key = draft.action.key
            if key is not None and key in states:
                of[draft.partition][key] = states[key]
        for partition, found in of.items():
            self._known_ends.store(partition, known_ends.get(partition), starts[partition], ends[partition], found)

    def _announce(self) -> None:
        """Announce that something was committed."""
        self._arrivals.announce()
        self._bell.ring()

    def _begin(self, partitions: Sequence[int], digests: Sequence[bytes]) -> Begun:
        database = self._database
        return database.begin(
            database.bind("lock_partitions", partitions, database.idle_timeout),
            database.bind("heads", digests),
        )

    def _ends(self, transaction: Begun) -> tuple[dict[int, PartitionEnd], int]:
        """Return where the partitions end, and the server's clock."""
        locked, heads = transaction.answers
        ends = {
            _int(locked.get_value(row, 0)): PartitionEnd(_int(locked.get_value(row, 1)), _int(locked.get_value(row, 2)))
            for row in range(locked.ntuples)
        }
        for row in range(heads.ntuples):
            if heads.get_value(row, 0) is None:
                now = int(heads.get_value(row, 1) or 0)
                self._known_ends.note_clock(now)
                return ends, now
        raise Corrupt(f"{self._database.where}: the server returned no time", code="fold", hint="report this as a bug")

    def raw_append(self, partition: int, *, key: str | None, header: bytes | None, value: bytes | None) -> Place:
        """Put any bytes into a partition, unfolded, as a foreign or broken writer would."""
        transaction = self._begin([partition], [])
        ends, now = self._ends(transaction)
        offset, timestamp = ends[partition]
        place = Place(partition, offset + 1, max(self._clock() if self._clock else now, timestamp + 1))
        record = Record(*place, key, header, value)
        digests = {} if key is None else {key: key_digest(key)}
        arrays = _arrays([record], digests, {}, {partition: PartitionEnd(*place[1:])})
        transaction.commit(self._database.bind("append", *arrays))
        self._announce()
        return place

    # ------------------------------------------------------------ another log instead

    def end_appends(self) -> None:
        with self._database.write() as transaction:
            transaction.execute("resume_appends")  # the constraint exists already
            transaction.execute("end_appends")

    def resume_appends(self) -> None:
        with self._database.write() as transaction:
            transaction.execute("resume_appends")

    def begin_after(self, log_id: str, offset: int, timestamp: int, keys: Iterable[KnownKey]) -> None:
        with self._database.write() as transaction:
            transaction.take_long()
            transaction.execute("forget_heads")
            for some in in_runs(map(seeded_head, keys), KEYS_A_TIME):
                latest = {head[0]: head for head in some}  # a key that was purged and lives again comes twice
                transaction.many("seed_heads", list(latest.values()))
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
        to = OFFSET_MAX if to is None else to
        bytes_max = OFFSET_MAX if bytes_max is None or not values else bytes_max
        if key is not None:
            return self._read_key(key, partition, after, to, limit, bytes_max, values)
        records = self._records(partition, after, min(to, after + limit), bytes_max, values)  # offsets have no holes
        if not records or records[0].offset != after + 1:
            newest = min(self._newest_untrimmed(partition, after), to, after + limit)
            if not records and newest > after:  # the record came meanwhile, or was lost
                records = self._records(partition, after, newest, bytes_max, values)
                if not records:
                    raise hole(partition, after + 1, newest)
        check_holes(partition, after, records)
        return RecordPage(records, records[-1].offset + 1 if records else after + 1)

    def states(self, keys: Collection[str]) -> tuple[dict[str, State], set[str]]:
        digests = {key_digest(key): key for key in keys}
        found = self._database.rows("heads", (list(digests),))
        return states_in((digests[bytes(digest)], text, summed) for digest, text, summed in found if digest is not None)

    def _records(self, partition: int, after: int, to: int, bytes_max: int, values: bool) -> list[Record]:
        if bytes_max == OFFSET_MAX:
            rows = self._database.rows("read", (partition, after, to, values), often=True)
        else:
            rows = self._database.rows("read_sized", (partition, after, to, bytes_max), often=True)
        return list(map(new_tuple, repeat(Record), rows))

    def _read_key(
        self, key: str, partition: int, after: int, to: int, limit: int, bytes_max: int, values: bool
    ) -> RecordPage:
        bounds = (partition, after, to, limit, values, bytes_max)
        rows = self._database.rows("read_key", (*bounds, _int(key_digest(key)[:8]), key), often=True)
        last_trimmed, newest, _, *first = rows[0]
        if after < last_trimmed:
            raise trimmed(partition, after, last_trimmed + 1)
        if first[0] is None:
            return RecordPage([], max(min(to, newest), after) + 1)
        full = len(rows) == limit
        size = rows[-1][2]
        if size is not None and size > bytes_max:
            full = True
            if len(rows) > 1:
                rows.pop()  # the one record above the limit
        records: list[Record] = [new_tuple(Record, row[3:]) for row in rows]
        return RecordPage(records, records[-1].offset + 1 if full else max(min(to, newest), after) + 1)

    def _newest_untrimmed(self, partition: int, after: int) -> int:
        """Return the newest offset; `NotFound.trimmed` if something after `after` was trimmed."""
        ((last_trimmed, newest),) = self._database.rows("bound", (partition,), often=True)
        if after < last_trimmed:
            raise trimmed(partition, after, last_trimmed + 1)
        return int(newest)

    def newest(self) -> list[int]:
        return [newest for _, newest, _ in self._database.rows("bounds", often=True)]

    def ends(self) -> list[Place]:
        bounds = self._database.rows("bounds", often=True)
        return [Place(partition, newest, timestamp) for partition, (_, newest, timestamp) in enumerate(bounds)]

    def now(self) -> int:
        return self._database.now_us()

    @contextmanager
    def ask_newest(self, partition: int) -> Iterator[Callable[[], int]]:
        with self._database.asking("bound", partition) as bound:
            yield lambda: int(bound()[0][1])

    def oldest(self) -> list[int]:
        return [last_trimmed + 1 for last_trimmed, _, _ in self._database.rows("bounds", often=True)]

    def wait(self, after: Mapping[int, int], timeout_s: float) -> bool:
        self._database.check()
        if not self._hears:
            self._hears = True
            self._database.listener.hear(self._channel, self._arrivals.heard)
        return self._arrivals.wait(self.newest, after, timeout_s)

    # ------------------------------------------------------------ keeping

    def trim(self, partition: int, *, to: int, pointer: int, keep_after: int) -> int:
        check_trim(to, pointer)
        ((last_trimmed, newest),) = self._database.rows("bound", (partition,), often=True)
        last = last_older(
            lambda offset: self._timestamp_at(partition, offset), last_trimmed, min(to, newest), keep_after
        )
        count = 0
        # Trimmed in pieces, and the partition's row last, so that appends need not wait long.
        for first in range(last_trimmed + 1, last + 1, TRIM_CHUNK):
            final = min(first + TRIM_CHUNK - 1, last)
            with self._database.write() as transaction:
                count += transaction.execute("trim_actions", (partition, final))
                transaction.execute("put_trimmed", (partition, final))
        return count

    def _timestamp_at(self, partition: int, offset: int) -> int:
        found = self._database.rows("place_at", (partition, offset))
        return int(found[0][0]) if found else 0  # another process trims

    def close(self) -> None:
        self._bell.close()
        self._database.close()


def _arrays(
    records: Sequence[Record],
    digests: Mapping[str, bytes],
    changed: Mapping[str, State],
    ends: Mapping[int, PartitionEnd],
) -> list[Sequence[Any]]:
    """Return the values of the statements that append: columns of records, states, and ends of partitions."""
    partitions, offsets, timestamps, keys, headers, values, lives, firsts, lasts = zip(*records, strict=True)
    hashes = [None if key is None else _int(digests[key][:8]) for key in keys]
    states = [state_text(state) for state in changed.values() if state is not None]
    sums = [state_digest(key, text) for key, text in zip(changed, states, strict=True)]
    moved = sorted(ends)
    newest, times = zip(*[ends[partition] for partition in moved], strict=True)
    return [
        partitions, offsets, timestamps, lives, firsts, lasts, hashes, keys, headers, values,
        [digests[key] for key in changed], states, sums, moved, newest, times,
    ]  # fmt: skip


def _known(drafts: Sequence[ActionDraft], known_ends: Mapping[int, KnownEnd]) -> dict[str, State]:
    """Return the remembered states of keys."""
    known: dict[str, State] = {}
    for draft in drafts:
        key, left = draft.action.key, known_ends.get(draft.partition)
        if key is not None and left is not None and key in left.states:
            known[key] = left.states[key]
    return known


def _states(
    transaction: Begun, digests: Mapping[str, bytes], drafts: Sequence[ActionDraft]
) -> tuple[dict[str, State], set[str]]:
    """Return the states of keys, and the keys whose state is damaged and not known from elsewhere."""
    heads = transaction.answers[1]
    keys = {digest: key for key, digest in digests.items()}
    found = []
    for row in range(heads.ntuples):
        digest = heads.get_value(row, 0)
        if digest is not None:
            text, summed = heads.get_value(row, 1) or b"", heads.get_value(row, 2)
            found.append((keys[digest], text.decode(errors="replace"), None if summed is None else _int(summed)))
    states, damaged = states_in(found)
    if damaged:
        states.update(known_states(drafts, damaged))
        damaged -= states.keys()
    return states, damaged


def _int(data: bytes | None) -> int:
    return int.from_bytes(data or b"", "big", signed=True)
