"""A log in memory that behaves as Kafka does: it keeps records in order and leaves everything else to its users.

It does not fold, offsets have holes, its clock has milliseconds, may repeat and step back, and its newest offset is not
to be relied on. So a Journal over it finds verdicts, marks and timestamps as it does over Kafka, in a plain process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from strandline.backends.memory.log import MemoryLog
from strandline.log.api import ActionDraft, Answered, Recorded, RecordPage
from strandline.record import Record
from strandline.values.actions import Place


class InexactMemoryLog(MemoryLog):
    """All of `log.api.UnfoldedLog`."""

    exact = False
    _told: tuple[Callable[[Record], None], ...] = ()

    @property
    def rules(self) -> None:
        return None

    def append(self, drafts: Sequence[ActionDraft]) -> list[Recorded]:
        return [self._recorded(draft) for draft in drafts]

    def _recorded(self, draft: ActionDraft) -> Recorded:
        partition, action, header, value, _ = draft
        place = self.raw_append(partition, key=action.key, header=header, value=value)
        for own in self._told:
            own(Record(*place, action.key, header, None))
        return Recorded(place._replace(timestamp=0))

    def _next_place(self, partition: int) -> Place:
        newest = self._ends[partition].offset
        hole = newest % 5 == 3  # as a marker of a transaction would leave one
        return Place(partition, newest + 1 + hole, self._clock() // 1000 * 1000)

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
        """Records of other keys are not left out: timestamps are counted over all of them."""
        return super().read(partition, after=after, to=to, limit=limit, bytes_max=bytes_max, values=values)

    def send(self, draft: ActionDraft, answered: Answered) -> None:
        answered(self._recorded(draft), None)

    def follow(self, after: Sequence[int], own: Callable[[Record], None]) -> MemoryFollower:
        self._check()
        self._told = (*self._told, own)
        return MemoryFollower(self, after, partial(self._end, own))

    def _end(self, own: Callable[[Record], None]) -> None:
        self._told = tuple(told for told in self._told if told is not own)


class MemoryFollower:
    """Follows all partitions of a log that can be waited for."""

    def __init__(self, log: InexactMemoryLog, after: Sequence[int], ended: Callable[[], None]) -> None:
        self._log, self._moved, self._ended = log, after, ended
        self._after = dict(enumerate(after))

    def poll(self, timeout_s: float) -> list[tuple[int, RecordPage]]:
        if not self._log.wait(self._after, timeout_s):
            return []
        pages = []
        for partition, offset in self._after.items():
            after = max(offset, self._moved[partition])
            page = self._log.read(partition, after=after, values=False)
            self._after[partition] = page.position - 1
            if page.position > after + 1:
                pages.append((partition, page))
        return pages

    def close(self) -> None:
        self._ended()
