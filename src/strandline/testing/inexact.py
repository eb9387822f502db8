"""A log in memory that behaves as Kafka does: it keeps records in order and leaves everything else to its users.

It does not fold, offsets have holes, its clock has milliseconds, may repeat and step back, and its newest offset is not
to be relied on. So a Journal over it finds verdicts, marks and timestamps as it does over Kafka, in a plain process.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.log.api import Answered, Draft, Page, Recorded
from strandline.log.memory import MemoryLog
from strandline.values.actions import Place


class InexactMemoryLog(MemoryLog):
    """All of `log.api.InexactLog`."""

    exact = False

    def _append(self, draft: Draft) -> Recorded:
        place = self.raw_append(draft.partition, key=draft.action.key, header=draft.header, value=draft.value)
        return Recorded(place._replace(timestamp=0))

    def _next_place(self, partition: int, at_least: int) -> Place:
        newest = self._newest[partition]
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
    ) -> Page:
        """Records of other keys are not left out: timestamps are counted over all of them."""
        return super().read(partition, after=after, to=to, limit=limit, bytes_max=bytes_max, values=values)

    def send(self, draft: Draft, answered: Answered) -> None:
        (recorded,) = self.append([draft])
        answered(recorded, None)

    def follow(self, after: Sequence[int]) -> MemoryFollower:
        self._check()
        return MemoryFollower(self, after)


class MemoryFollower:
    """Follows all partitions of a log that can be waited for."""

    def __init__(self, log: InexactMemoryLog, after: Sequence[int]) -> None:
        self._log, self._after = log, dict(enumerate(after))

    def poll(self, timeout_s: float) -> list[tuple[int, Page]]:
        if not self._log.wait(self._after, timeout_s):
            return []
        pages = []
        for partition, offset in self._after.items():
            page = self._log.read(partition, after=offset, values=False)
            if page.position > offset + 1:
                self._after[partition] = page.position - 1
                pages.append((partition, page))
        return pages

    def close(self) -> None:
        """Nothing is held."""
