"""Examine the rows of one key in the views of its tags: by the mender of a tag's view, with nothing written.

Each row that the mender would write is a difference. Rows that no key accounts for come with the keys, as odd rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from strandline.carry.tag_findings import Mending
from strandline.carry.tag_mending import TagMender
from strandline.errors import Corrupt
from strandline.reconcile.findings import Difference
from strandline.reconcile.key_reader import KeyReader
from strandline.reconcile.sides import OddRow
from strandline.rows import life_of
from strandline.store.api import CarryMark, Store
from strandline.store.archive import page_of_life
from strandline.store.correction import Amend
from strandline.store.raw_rows import raw_row
from strandline.store.tag_scans import is_partitioned, tag_row_at
from strandline.store.tag_view import TAG_BUCKET, TAG_PLACE, TAG_PROGRESS, TAG_VIEW
from strandline.values.buckets import LENGTHS_US
from strandline.values.events import parsed_tags, parts_of
from strandline.values.heads import Head
from strandline.values.tag_rows import TagRow, resealed


class TagExaminer:
    """Examines and corrects the tag rows of keys of one partition."""

    def __init__(
        self, store: Store, keys: KeyReader, partition: int, fence: int, carry_mark: Callable[[int], CarryMark]
    ) -> None:
        self._store, self._keys, self._partition = store, keys, partition
        self._fence, self._carry_mark = fence, carry_mark
        self._partitioned = is_partitioned(store)
        self._bucket_us = LENGTHS_US[store.settings.bucket_size]

    def correct(self, key: str, odd: Sequence[OddRow], amend: Amend) -> None:
        """Mend a key's rows in the views of all its tags, if its head can be read."""
        if not self._keys.state(key)[2]:
            return
        for tag in self._tags_of(key, odd):
            mender = self._mender(tag)
            strays = self._stray_rows(tag, odd)
            if strays:
                mender.take_out(self._partition, strays, amend)
            mender.mend(self._partition, (key,), amend)

    def _tags_of(self, key: str, odd: Sequence[OddRow]) -> list[str]:
        """Return the tags of a key: those of its events, of its rows of progress, and of odd rows."""
        tags = {str(row.place[0]) for row in odd if row.table == "tag_view"}
        _, state, readable = self._keys.state(key)
        if not isinstance(state, Head) or not readable:
            return sorted(tags)
        with suppress(Corrupt):  # a damaged row of progress: its tag is one of the events', or no event has it
            kept = self._store.look(self._partition, (key,), (key,)).rows.get(key, {}).get(TAG_PROGRESS, ())
            tags.update(row[2] for row in kept)
        for _, _, body, _ in self._keys.rows(life_of(key, state.life), state):
            try:
                parts = parts_of(body)
            except (TypeError, struct.error):
                continue
            if parts.tags_at != parts.headers_at:
                tags.update(parsed_tags(body[parts.tags_at : parts.headers_at]))
        return sorted(tags)

    def _mender(self, tag: str) -> TagMender:
        return TagMender(self._store, tag, self._fence, self._carry_mark)

    def _stray_rows(self, tag: str, odd: Sequence[OddRow]) -> list[TagRow]:
        """Return the odd rows of a tag's view that are still there."""
        found = []
        for row in odd:
            if row.table == "tag_view" and row.place[0] == tag:
                there = self._tag_row(row)
                if there is not None:
                    found.append(there)
        return self._mender(tag).strays(self._partition, found) if found else []

    def _tag_row(self, row: OddRow) -> TagRow | None:
        tag, _, timestamp, key, seq_nr = row.place
        if not self._partitioned:
            return tag_row_at(self._store, str(tag), (int(timestamp), str(key), int(seq_nr)))
        there = raw_row(self._store, TAG_VIEW, row.place)
        return None if there is None else TagRow._make(there)

    def differences(self, key: str, odd: Sequence[OddRow], journal_kinds: set[str]) -> list[Difference]:
        found: list[Difference] = []
        lost_journal = journal_kinds & {"event_missing", "event_different"}
        if "head_wrong" in journal_kinds:
            return found  # the views follow from the head, so the head must be mended first
        for tag in self._tags_of(key, odd):
            strays = self._stray_rows(tag, odd)
            told = [self._stray_finding(row) for row in strays]
            elsewhere = {row.seq_nr for row in strays if row.bucket != row.timestamp // self._bucket_us}
            gone = {(row.seq_nr, row.timestamp) for row in strays}
            lost = 0
            for _, mending in self._mender(tag).examined(self._partition, (key,)):
                for each in self._of_mending(tag, key, mending):
                    follows = each.kind in ("tag_missing", "tag_place") and elsewhere & set(each.seq_nrs)
                    if not follows and not any((number, each.timestamp) in gone for number in each.seq_nrs):
                        told.append(each)
                lost += mending.counts.lost + mending.counts.unproven
            found += told
            if lost and not lost_journal:
                found.append(
                    self._keys.difference("tag_lost", key, None, (), f"{lost} rows", "nothing proves them", tag=tag)
                )
        return found

    def _stray_finding(self, row: TagRow) -> Difference:
        if row.bucket != row.timestamp // self._bucket_us:
            right = f"bucket {row.timestamp // self._bucket_us}"
            return self._tag_finding("tag_bucket", row, right, f"bucket {row.bucket}")
        _, state, _ = self._keys.state(row.key)
        alive = isinstance(state, Head) and state.life == row.life
        kind = "tag_doubled" if alive and self._is_recorded(row) else "tag_extra"
        return self._tag_finding(kind, row, "none", "a row")

    def _of_mending(self, tag: str, key: str, mending: Mending) -> Iterator[Difference]:
        """Yield the differences that a correction of a key's tag rows stands for."""
        anew = [TagRow._make(row) for row in mending.anew.get(TAG_VIEW, ())]
        gone = [TagRow._make(row) for row in mending.gone.get(TAG_VIEW, ())]
        moved = {(row.key, row.life, row.seq_nr) for row in anew}
        for row in anew:
            was = next(
                (r for r in gone if (r.seq_nr, r.timestamp, r.life) == (row.seq_nr, row.timestamp, row.life)), None
            )
            if was is not None:
                yield self._tag_finding("tag_bucket", row, f"bucket {row.bucket}", f"bucket {was.bucket}")
                continue
            there = tag_row_at(self._store, tag, (row.timestamp, row.key, row.seq_nr))
            yield self._tag_difference(row, there)
        for row in gone:
            same = (row.key, row.life, row.seq_nr)
            if same in moved and any((r.seq_nr, r.timestamp) == (row.seq_nr, row.timestamp) for r in anew):
                continue
            kind = "tag_doubled" if self._is_recorded(row) else "tag_extra"
            yield self._tag_finding(kind, row, "none", "a row")
        for table, kind in ((TAG_PLACE, "tag_place"), (TAG_BUCKET, "tag_place"), (TAG_PROGRESS, "tag_progress")):
            for row in mending.anew.get(table, ()):
                seq_nrs = (row[4],) if table is not TAG_BUCKET else ()
                yield self._keys.difference(kind, key, None, seq_nrs, f"{table.name} {tuple(row)}", "not that", tag=tag)
            for row in mending.gone.get(table, ()):
                yield self._keys.difference(kind, key, None, (row[4],), "none", f"{table.name} {tuple(row)}", tag=tag)

    def _is_recorded(self, row: TagRow) -> bool:
        """Return whether the journal has the event of a row: then the right row is elsewhere."""
        _, state, _ = self._keys.state(row.key)
        size, at = self._keys.size(state), row.seq_nr
        if isinstance(state, Head) and state.life == row.life:
            return bool(page_of_life(self._store, row.key, state, from_=at, to=at, limit=1).rows)
        return bool(self._store.page(row.key, row.life, size, from_=at, to=at, limit=1).rows)

    def _tag_difference(self, row: TagRow, there: TagRow | None) -> Difference:
        if there is None:
            return self._tag_finding("tag_missing", row, "a row", "none")
        if (there.body, there.digest, there.prev_seq_nr) != (row.body, row.digest, row.prev_seq_nr):
            return self._tag_finding("tag_digest", row, "the event of the journal", "another one")
        if there.tag_seq_nr != row.tag_seq_nr:
            return self._tag_finding("tag_number", row, f"number {row.tag_seq_nr}", f"number {there.tag_seq_nr}")
        link = (row.previous_timestamp, row.previous_seq_nr)
        if link != (there.previous_timestamp, there.previous_seq_nr):
            was = f"({there.previous_timestamp}, {there.previous_seq_nr})"
            return self._tag_finding("tag_link", row, f"link {link}", f"link {was}")
        if there.bucket != row.bucket:
            return self._tag_finding("tag_bucket", row, f"bucket {row.bucket}", f"bucket {there.bucket}")
        was = "its digest" if resealed(there).row_digest != there.row_digest else "another row"
        return self._tag_finding("tag_digest", row, "what was written", was)

    def _tag_finding(self, kind: str, row: TagRow, expected: str, found: str) -> Difference:
        return self._keys.difference(kind, row.key, row.life, (row.seq_nr,), expected, found, row.timestamp, row.tag)
