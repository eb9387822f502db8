"""The contract of an action log.

What every back-end promises: acknowledged means durable; an offset never changes its record; reading a partition gives
every record below the newest offset without holes, whatever the order of commits; timestamps strictly grow in a
partition. Offsets grow within a partition but need not be consecutive.

An *exact* log is a database: it knows where it ends, folds what it records, and stores timestamps. A log that is not
exact (`UnfoldedLog`) only keeps records in order: its end is found with a Mark, the fold is left to those who read it,
and a record's timestamp is its clock's time, from which `record.derived` makes the one that all see (see `cursor`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol

from strandline.errors import StrandlineError
from strandline.fold import Effect, FoldRules
from strandline.record import Record
from strandline.values.actions import Action, Place
from strandline.values.heads import EndedLife, Head, State


class KnownState(NamedTuple):
    """The state of a key by the store and the tail."""

    state: State


class ActionDraft(NamedTuple):
    """An action on its way into the log, encoded by its writer.

    `known` counts only where the log's own head of the key cannot be trusted. It was found out after the log said so.
    """

    partition: int
    action: Action
    header: bytes
    value: bytes | None = None
    known: KnownState | None = None


class Recorded(NamedTuple):
    """The outcome of a draft.

    A log that folds by itself says the effect and the state after it; refused and duplicate appends are then not in the
    log and have no place of their own. A log that does not fold says neither of them, and gives timestamp 0.
    """

    place: Place | None
    folded: bool = False
    effect: Effect = None
    state: State = None

    @property
    def head_damaged(self) -> bool:
        """Nothing was recorded: the log's own head of the key cannot be trusted. Try again with what is `known`."""
        return self.place is None and not self.folded


class RecordPage(NamedTuple):
    """Records in offset order, and the position after them: every record below it was looked at."""

    records: list[Record]
    position: int


class Log(Protocol):
    """A partitioned log of actions."""

    log_id: str
    partitions: int
    exact: bool
    """Whether `newest` can stand for a Mark, drafts are folded, and timestamps of records are final."""

    @property
    def rules(self) -> FoldRules | None:
        """The rules of its fold, fixed at its creation; None if it does not fold."""

    def append(self, drafts: Sequence[ActionDraft]) -> list[Recorded]:
        """Record drafts, of any partitions, in their order, in one commit; one answer each, in the same order.

        Returns when all are durable. A draft that the fold refuses fails alone, and so does one whose key has a damaged
        head (`Recorded.head_damaged`); an error means that none was recorded (`applied="no"`) or that nobody can say
        (`"unknown"`).
        """

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
        """Return records with `after` < offset <= `to`, at most `limit` of them and about `bytes_max` of value (one
        passes).

        With `key`, records of other keys may be left out (they count as looked at, and `limit` counts those given).
        With `values=False` values may be left out. Damaged and foreign records come as they are.
        `NotFound.trimmed` (with `earliest`) if something after `after` was trimmed.
        """

    def newest(self) -> list[int]:
        """Return the newest offset of each partition, -1 where there is none. Never goes back."""

    def oldest(self) -> list[int]:
        """Return the first offset of each partition that was not trimmed; newest + 1 where there is none."""

    def wait(self, after: Mapping[int, int], timeout_s: float) -> bool:
        """Wait until a partition has something after its offset; False after `timeout_s`. May wake up early."""

    def trim(self, partition: int, *, to: int, pointer: int, keep_after: int) -> int:
        """Remove records up to offset `to` that are older than timestamp `keep_after`; return how many were removed.

        `InvalidInput.trim_range` if `to` is above `pointer`. Offsets and timestamps go on as before.
        """

    def close(self) -> None:
        """Close the log's connections and files. A second call does nothing."""


class ExactLog(Log, Protocol):
    """A log that knows where it ends."""

    def ends(self) -> list[Place]:
        """Return where each partition ends: its newest offset and that record's timestamp; -1 and 0 where there was
        none."""

    def now(self) -> int:
        """Return the time by its own clock (µs), from which timestamps come; it need not be this machine's."""

    def ask_newest(self, partition: int) -> AbstractContextManager[Callable[[], int]]:
        """Ask for the newest offset of a partition. The context gives a call that waits for the answer; make it
        inside."""


KnownKey = tuple[bytes, str | None, Head | EndedLife]
"""A key: its digest, its name if it lives, and its state."""
KEYS_A_TIME: Final = 10_000


class ReplaceableLog(Log, Protocol):
    """A log that another log may take over from, or that took over from another log."""

    @property
    def follows(self) -> str | None:
        """The id of the log that it follows."""

    def end_appends(self) -> None:
        """Refuse all records from now on, of every process: `SchemaMismatch.log_replaced`. A second call does nothing.

        Returns when none is under way any more: nothing is acknowledged beyond `newest` after that.
        """

    def resume_appends(self) -> None:
        """Take records again."""

    def begin_after(self, log_id: str, offset: int, timestamp: int, keys: Iterable[KnownKey]) -> None:
        """Follow another log, while this log is empty: offsets and timestamps of all partitions go on above these.
        `keys` are all keys that the store knows; if a key comes twice, the last one counts. It may be called again.
        """


class Follower(Protocol):
    """A reader that reads on in all partitions. Used by one thread."""

    def poll(self, timeout_s: float) -> list[tuple[int, RecordPage]]:
        """Return the records after those given so far, without values, by partition; none after `timeout_s`.

        `NotFound.trimmed` if something was trimmed before it could be given.
        """

    def close(self) -> None:
        """Close the follower. A second call does nothing."""


Answered = Callable[[Recorded | None, StrandlineError | None], None]
"""Gets the outcome of a draft: its place, or the error. The log's own thread calls it, so it must return quickly."""


class UnfoldedLog(Log, Protocol):
    """A log that keeps records in order and does not fold them: its writers and readers do."""

    def send(self, draft: ActionDraft, answered: Answered) -> None:
        """Record a draft in the background. Drafts of one thread for one partition keep their order.

        Raises only errors that are known at once, such as `Unavailable.overloaded`; `answered` is not called then.
        """

    def count_from(self, offset: int) -> None:
        """Give the first record of each partition this offset. Nothing was read, sent or asked before."""

    def follow(self, after: Sequence[int], own: Callable[[Record], None]) -> Follower:
        """Follow all partitions, each after its offset.

        `own` gets each record that this log object has recorded, without its value, in a thread of the log's and before
        the sender gets its answer: where no other process wrote in between, no caller has to wait. The follower gives
        the same record, sooner or later, unless the follower has moved its partition's offset in `after` past it.
        """
