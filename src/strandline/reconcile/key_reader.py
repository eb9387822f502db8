"""Reads one key: its state, and the events of a life; and makes its differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from strandline.errors import Corrupt
from strandline.reconcile.findings import Difference
from strandline.rows import Pointer
from strandline.store.api import Store
from strandline.store.archive import page_of_life
from strandline.store.tag_scans import is_partitioned
from strandline.values.events import Life
from strandline.values.heads import SEQ_NR_MAX, Head, State

ROWS_AT_ONCE: Final = 500
PAGE_BYTES: Final = 8 * 2**20


class KeyReader:
    """Reads keys of one partition."""

    def __init__(self, store: Store, partition: int) -> None:
        self._store, self._partition = store, partition
        self._partitioned = is_partitioned(store)

    def state(self, key: str) -> tuple[Pointer, State, bool]:
        """Return pointer and state, and whether the head could be read."""
        try:
            look = self._store.look(self._partition, (key,))
        except Corrupt:
            return self._store.look(self._partition, ()).pointer, None, False
        return look.pointer, look.states.get(key), True

    def size(self, state: State) -> int:
        """Return the size of a key's segments."""
        return state.segment_size if isinstance(state, Head) else self._store.settings.segment_size

    def rows(self, life: Life, head: Head, outside: Sequence[int] = ()) -> list[tuple[Any, ...]]:
        """Return the events of a life, and those with numbers outside the range in its head."""
        found: dict[int, tuple[Any, ...]] = {}
        # the files keep events that were deleted after archiving: these are not rows of the journal any more
        deleted_in_files = min(head.archive_to, head.delete_to)

        def read(from_: int, to: int) -> None:
            more = True
            while more and from_ <= to:
                page = page_of_life(
                    self._store, life.key, head, from_=from_, to=to, limit=ROWS_AT_ONCE, bytes_max=PAGE_BYTES
                )
                found.update({row[0]: tuple(row) for row in page.rows if row[0] > deleted_in_files})
                more = page.more and bool(page.rows)
                from_ = page.rows[-1][0] + 1 if page.rows else from_

        read(1 if not self._partitioned else head.removed_to + 1, SEQ_NR_MAX)
        for number in outside:
            read(number, number)
        return [found[number] for number in sorted(found)]

    def difference(
        self,
        kind: str,
        key: str,
        life: int | None,
        seq_nrs: tuple[int, ...],
        expected: str,
        found: str,
        timestamp: int = 0,
        tag: str | None = None,
    ) -> Difference:
        """Return a difference of this partition."""
        return Difference(kind, self._partition, key, life, seq_nrs, expected, found, timestamp, tag)
