"""A place in a partition to read on from, which gives every record the timestamp that all readers see.

An exact log stores timestamps. For any other log they are derived, record by record, from a place whose timestamp is
known: a pointer's, or that of an action. They come out the same from every such place.
"""

from __future__ import annotations

from typing import Final

from strandline.log.api import Log
from strandline.record import Record, derived

PAGE_BYTES: Final = 2**20
"""About how many bytes of values a reader takes at a time."""


class PartitionCursor:
    """Reads a partition page by page. `offset` and `timestamp` are those of the last record that was looked at."""

    __slots__ = ("_log", "offset", "partition", "timestamp")

    def __init__(self, log: Log, partition: int, offset: int, timestamp: int) -> None:
        self._log, self.partition = log, partition
        self.offset, self.timestamp = offset, timestamp

    def read(
        self,
        *,
        to: int,
        limit: int,
        bytes_max: int | None = None,
        key: str | None = None,
        values: bool = True,
    ) -> list[Record]:
        """Return the next records up to offset `to`. `offset` stays where it was if there are no more."""
        page = self._log.read(
            self.partition, after=self.offset, to=to, limit=limit, bytes_max=bytes_max, key=key, values=values
        )
        records = page.records
        if records:
            if not self._log.exact:
                records = derived(records, self.timestamp)
            self.timestamp = records[-1].timestamp
        self.offset = page.position - 1
        return records
