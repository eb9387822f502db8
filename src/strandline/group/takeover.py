"""Groups that were admitted, and how those are taken over that the processor before may have begun.

A group is taken over once all its targets are fenced: what only barrier rows know goes into its history, then `Taken`,
so that nothing of the one before gets in behind it. An event of the one before that came in just before that counts:
the history is read again. Until it is taken over a group keeps its rows, and nothing of it is run or recorded.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Final

from strandline.errors import SeqNrConflict, Unavailable
from strandline.group.advance import TICK_S
from strandline.group.asking import Shared
from strandline.group.history import ENDS, History
from strandline.group.lease import Place
from strandline.group.plan import GroupPlan
from strandline.group.points import reached
from strandline.group.record import Record
from strandline.group.rollback import Execution
from strandline.group.target import Barrier, SqlTarget

if TYPE_CHECKING:
    from strandline.group.groups import Groups

AT_ONCE: Final = 16
READ_AT_ONCE: Final = 100
_logger: Final = logging.getLogger("strandline.group")


@dataclass(slots=True)
class Admitted:
    """A group that was admitted and is not over."""

    place: Place
    plan: GroupPlan
    execution: Execution
    targets: frozenset[str]
    """All that it may need, going forward and back."""
    running: bool = False
    parked: bool = False
    """It waits for an operator."""

    @property
    def id(self) -> str:
        return self.place.id

    @property
    def history(self) -> History:
        return self.execution.history

    @property
    def ended(self) -> bool:
        return self.execution.history.state in ENDS

    def identity(self, target: str) -> str:
        """Of a target, when the group was submitted; its name where nobody recorded that."""
        return self.history.identities.get(target, target)

    @property
    def code(self) -> Mapping[str, str]:
        """The versions of code that it uses."""
        return self.history.code if self.history.started else self.place.code


class Takeover:
    """Takes groups over, in threads of its own: a target that does not answer holds up its own groups alone."""

    def __init__(self, groups: Groups, shared: Shared, wake: Callable[[], None]) -> None:
        self._groups, self._shared, self._wake = groups, shared, wake
        self._waiting: dict[str, Admitted] = {}
        self._taking: set[str] = set()
        self._not_before = 0.0
        self._results: deque[tuple[Sequence[Admitted], BaseException | None]] = deque()

    def __contains__(self, id_: object) -> bool:
        return id_ in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def under_way(self) -> bool:
        return bool(self._taking)

    def add(self, one: Admitted) -> None:
        """The processor before may have begun it."""
        self._waiting[one.id] = one

    def begin(self) -> None:
        """Go on with those whose targets are all there now, and that are not under way."""
        if time.monotonic() < self._not_before:
            return
        batches: dict[frozenset[str], list[Admitted]] = {}
        for one in self._waiting.values():
            if one.id not in self._taking and one.targets <= self._shared.targets.keys():
                batches.setdefault(one.targets, []).append(one)
        for batch in batches.values():
            self._taking.update(one.id for one in batch)
            Thread(target=self._take, args=(batch,), name="strandline-take", daemon=True).start()

    def taken(self) -> Iterator[Admitted]:
        """Those that were taken over since. Where a target was away again, its groups wait on."""
        while self._results:
            batch, error = self._results.popleft()
            self._taking.difference_update(one.id for one in batch)
            if error is None:
                for one in batch:
                    yield self._waiting.pop(one.id)
            elif not isinstance(error, Unavailable) or not error.retryable:
                raise error
            else:
                self._not_before = time.monotonic() + TICK_S
                _logger.warning("stream %s: groups are taken over later: %s", self._groups.stream, error)

    def _take(self, batch: Sequence[Admitted]) -> None:
        error: BaseException | None = None
        try:
            barriers = self._barriers(batch)
            with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="strandline-take") as pool:
                done = [pool.submit(self._take_one, one, barriers.get(one.id, ())) for one in batch]
            for one in done:
                one.result()
            reached("group.taken")
        except BaseException as raised:  # noqa: BLE001 (whatever it is, the processor raises it)
            error = raised
        self._results.append((batch, error))
        self._wake()

    def _barriers(self, batch: Sequence[Admitted]) -> dict[str, list[Barrier]]:
        ids = [(one.id, one.history.life) for one in batch]
        found: dict[str, list[Barrier]] = {}
        for name in batch[0].targets:
            opened = self._shared.targets[name]
            if isinstance(opened.target, SqlTarget):
                for at in range(0, len(ids), READ_AT_ONCE):
                    for barrier in opened.target.barriers(opened.owner, ids[at : at + READ_AT_ONCE]):
                        found.setdefault(barrier.id.group, []).append(barrier)
        return found

    def _take_one(self, one: Admitted, barriers: Iterable[Barrier]) -> None:
        taken = one.ended
        while not taken:
            record, now = one.execution.record, self._groups.clock()
            record.restore(barriers, now)
            record.add("Taken", {"fence": self._shared.lease.fence, "at": now})
            try:
                record.flush()
                taken = True
            except SeqNrConflict:  # the lease is ours: it was the last word of the one before
                history = self._groups.load(one.id)
                if history is None:
                    raise
                record = Record(self._groups.journal, history, self._shared.lease, self._groups.settings.history_keep_s)
                one.execution = Execution(self._shared, record, one.plan, resumed=True)
                taken = one.ended
