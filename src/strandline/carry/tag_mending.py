"""Mend the view of a tag in place: its rows, places and progress are compared with the journal and corrected.

    keys of a partition ──▶ what is there ──▶ what must be there ──▶ amend: put back, corrected, taken out
    rows of the view    ──▶ those that no key accounts for       ──▶ amend: taken out

What the journal has must be in the view, under the number that it had. What the journal no longer has was deleted:
such rows stay, since only the view has them. Rows of ended lives go. What is put back at a place that had no row is
listed in table `repaired` first. The view is never emptied: a correction is one transaction, or goes in the order of
`store.phases`; killed in between, it can be run again.

The journal may be damaged itself: a row of it cannot be read, or the chain of its events or its head names an event
that is missing. Rows that the view has of such events stay, and so do numbers that they may have had: where neither
rows nor progress prove what a row should be, nothing is written, and it is counted as `unproven`.

All of it happens under the pipeline's lease. If another correction came in between, the key is looked at again. Memory
holds a few words for each tagged event of one key.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from zlib import crc32

import orjson

from strandline.carry.lost_tag_numbers import Member, recovered_numbers
from strandline.carry.tag_findings import (
    EventFacts,
    ExaminedRow,
    KeyFacts,
    Mending,
    TagRebuildCounts,
    choose_rows,
    matches,
)
from strandline.errors import Corrupt, Unavailable
from strandline.fold import segment_of
from strandline.rows import Pointer, life_of
from strandline.store.api import CarryMark, Store
from strandline.store.archive import page_of_life
from strandline.store.correction import Amend, Correction
from strandline.store.scans import MOST, entity_types_of, keys_of
from strandline.store.tables import REPAIRED, RepairedRow, repaired_number
from strandline.store.tag_scans import BUCKETS, BY_NUMBER, BY_TIME, IN_BUCKET, PLACES, is_partitioned, tag_row_at
from strandline.store.tag_view import TAG_BUCKET, TAG_PLACE, TAG_PROGRESS, TAG_VIEW
from strandline.values.buckets import LENGTHS_US
from strandline.values.events import Life, parsed_tags, parts_of
from strandline.values.heads import EndedLife, Head
from strandline.values.keys import SLICES, key_partition
from strandline.values.tag_rows import TagBucket, TagPlace, TagProgress, TagRow, resealed, row_digest

KEYS_AT_ONCE: Final = 200
ROWS_AT_ONCE: Final = 500
AMENDED_AT_ONCE: Final = 1000
PAGE_BYTES: Final = 8 * 2**20
ATTEMPTS_MAX: Final = 100
SEGMENTS_BACK: Final = 1000
"""So far back places are looked for where no progress tells the first."""
LEAST: Final = -(2**63)


class TagMender:
    """Mends the view of one tag in a store."""

    def __init__(self, store: Store, tag: str, fence: int, carry_mark: Callable[[int], CarryMark]) -> None:
        """`carry_mark` says for a partition how a Mark is carried there (`Store.correct`)."""
        self._store, self._tag, self._fence, self._carry_mark = store, tag, fence, carry_mark
        self._label = orjson.dumps(tag)
        self._bucket_us = LENGTHS_US[store.settings.bucket_size]
        self._partitioned = is_partitioned(store)
        self._buckets: set[int] = set()

    # ------------------------------------------------------------ key by key

    def mend_keys(self, partition: int) -> Iterator[TagRebuildCounts]:
        """Mend the rows of all keys of a partition; yield the counts step by step."""
        with self._store.correct(partition, "", self._carry_mark(partition), fence=self._fence) as amend:
            if self._partitioned:
                self._buckets = set(self._all_buckets())
            for keys in self._keys_in(partition):
                yield self._again(lambda: self._mend(partition, keys, amend))  # noqa: B023 - called at once

    def _keys_in(self, partition: int) -> Iterator[list[str]]:
        partitions = self._store.settings.partitions
        slices = (-(-partition * SLICES // partitions), -(-(partition + 1) * SLICES // partitions) - 1)
        for entity_type in entity_types_of(self._store):
            after = None
            while keys := keys_of(self._store, entity_type, after=after, limit=KEYS_AT_ONCE, slices=slices):
                yield keys
                after = keys[-1]

    def _again(self, work: Callable[[], TagRebuildCounts]) -> TagRebuildCounts:
        """Apply a mending. If another process corrected the partition in between, try again."""
        for _ in range(ATTEMPTS_MAX - 1):
            try:
                return work()
            except Unavailable as error:
                if error.code != "serialization":
                    raise
        return work()

    def _mend(self, partition: int, keys: Sequence[str], amend: Amend) -> TagRebuildCounts:
        seen, looked = self._look(partition, keys)
        done, waiting = TagRebuildCounts(), Mending.none()
        for key, (head, progress, readable) in looked.items():
            for part in self._of_key(key, head, progress, readable):
                waiting.add(part)
                if waiting.size >= AMENDED_AT_ONCE:
                    seen = self._amend(amend, seen, waiting)
                    done.add(waiting.counts)
                    waiting = Mending.none()
        self._amend(amend, seen, waiting)
        done.add(waiting.counts)
        return done

    def _amend(self, amend: Amend, seen: Pointer, mending: Mending) -> Pointer:
        if not mending.size:
            return seen
        listed = [
            RepairedRow(
                seen.partition, repaired_number(seen.revision, at), row.key, row.life, row.seq_nr, row.timestamp,
                row.tag, row.tag_seq_nr,
            )
            for at, row in enumerate(mending.listed)
        ]  # fmt: skip
        anew = {REPAIRED: listed, **mending.anew} if listed else mending.anew
        filled = {(table, table.place_of(row)) for table, rows in anew.items() for row in rows}
        gone = {
            table: [row for row in rows if (table, table.place_of(row)) not in filled]
            for table, rows in mending.gone.items()
        }
        amend(seen, Correction(anew=anew, gone=gone))
        self._buckets.update(bucket for _, bucket in mending.anew.get(TAG_BUCKET, ()))
        return seen._replace(revision=seen.revision + 1)

    def _look(
        self, partition: int, keys: Sequence[str]
    ) -> tuple[Pointer, dict[str, tuple[Head, TagProgress | None, bool]]]:
        """Return the pointer, and of keys that live their head and progress, and whether that could be read."""
        try:
            look = self._store.look(partition, keys, keys)
        except Corrupt:
            if len(keys) == 1:
                look = self._store.look(partition, keys)  # if this is refused, too, the head is damaged
                states = {key: state for key, state in look.states.items() if isinstance(state, Head)}
                return look.pointer, {key: (head, None, False) for key, head in states.items()}
            pointer = self._store.look(partition, ()).pointer  # the first: what comes between is noticed then
            found: dict[str, tuple[Head, TagProgress | None, bool]] = {}
            for key in keys:
                found |= self._look(partition, (key,))[1]
            return pointer, found
        found = {}
        for key in keys:
            state = look.states.get(key)
            if isinstance(state, Head):
                rows = look.rows.get(key, {}).get(TAG_PROGRESS, ())
                mine = [TagProgress._make(row) for row in rows if (row[1], row[2]) == (state.life, self._tag)]
                found[key] = state, mine[0] if mine else None, True
        return look.pointer, found

    # ------------------------------------------------------------ one key

    def _of_key(self, key: str, head: Head, progress: TagProgress | None, readable: bool) -> Iterator[Mending]:
        """Yield what must be written for a key. Rows that are only added come in pieces."""
        life = life_of(key, head.life)
        journal = self._journal(life, head)
        places = self._places(life, head, progress)
        found = self._rows(life, journal, places)
        named = {(timestamp, seq_nr) for seq_nr, (timestamp, _) in places.items()}
        if progress is not None:
            named.add((progress.timestamp, progress.seq_nr))
        kept, extra = choose_rows(found, journal, head.delete_to, named)
        members, numbers = self._members(journal, kept, places, progress, head)
        mending = Mending.none()
        mending.counts.keys = 1
        mending.counts.rows = len(members)
        for each in extra:
            mending.take(TAG_VIEW, each.row)
            mending.counts.extra += 1
        wanted: dict[int, tuple[Any, ...]] = {}
        linked: tuple[int | None, int, int] = (0, 0, 0)
        count = 0
        for member, number in zip(members, numbers, strict=True):
            seq_nr, timestamp, *_ = member
            standing, told = kept.get(seq_nr), journal.tagged.get(seq_nr)
            place = None if number is None else self._row_place(life, member, number, linked, standing)
            linked = number, timestamp, seq_nr
            mending.counts.lost += max(0, (number or 0) - count - 1)
            count = number or count + 1
            if standing is None and told is None:
                mending.counts.lost += 1
            elif place is None or (told is None and journal.lost(seq_nr)):
                mending.counts.unproven += 1
            if place is None:
                places.pop(seq_nr, None)
                continue
            if told is not None:
                if standing is None or not matches(standing, place, told):
                    wanted[seq_nr] = place
            elif standing is not None and standing.row[:10] != place:
                self._moved(standing, place, mending)
            if standing is not None and TAG_VIEW.place_of(standing.row) != TAG_VIEW.place_of(place):
                mending.take(TAG_VIEW, standing.row)
            self._check_place(life, head, place, places, mending)
            places.pop(seq_nr, None)
        for seq_nr, (timestamp, told_number) in places.items():
            segment = segment_of(seq_nr, head.segment_size)
            mending.take(TAG_PLACE, TagPlace(key, life.number, segment, self._tag, seq_nr, timestamp, told_number))
            mending.counts.places += 1
        changed = mending.gone or TAG_VIEW in mending.anew or any(seq_nr in kept for seq_nr in wanted)
        pieces = self._from_journal(life, head, wanted, kept)
        if changed:  # a number may be given again only when all of this is written
            for piece in pieces:
                mending.add(piece)
        yield mending  # places before rows, and the progress that speaks of them last
        yield from pieces
        yield self._progress(life, members, numbers, progress, journal, head, readable=readable)

    def _journal(self, life: Life, head: Head) -> KeyFacts:
        tagged: dict[int, EventFacts] = {}
        gaps: list[tuple[int, int]] = []
        doubtful: list[tuple[int, int]] = []
        first = last = 0
        low = head.delete_to + 1
        for seq_nr, prev, body, digest in self._events(life, head, low, head.seq_nr):
            if last and seq_nr > last + 1:
                gaps.append((last + 1, seq_nr - 1))
            first, last = first or seq_nr, seq_nr
            if crc32(body, life.seed) != digest:
                doubtful.append((low, seq_nr))  # the event before it is unknown
            else:
                if prev >= low:
                    doubtful.append((low, prev))
                if self._label in body and (timestamp := self._tagged(body)) is not None:
                    tagged[seq_nr] = EventFacts(timestamp, prev, digest)
            low = seq_nr + 1
        if head.prev >= low:
            doubtful.append((low, head.prev))
        return KeyFacts(tagged, gaps, doubtful, first, last)

    def _events(self, life: Life, head: Head, from_: int, to: int) -> Iterator[Any]:
        while from_ <= to:
            page = page_of_life(
                self._store, life.key, head, from_=from_, to=to, limit=ROWS_AT_ONCE, bytes_max=PAGE_BYTES
            )
            yield from page.rows
            if not page.rows or not page.more:
                return
            from_ = page.rows[-1][0] + 1

    def _tagged(self, body: bytes) -> int | None:
        """Return the timestamp of an event that has the tag."""
        try:
            parts = parts_of(body)
        except struct.error:
            return None
        return parts.timestamp if self._tag in parsed_tags(body[parts.tags_at : parts.headers_at]) else None

    def _places(self, life: Life, head: Head, progress: TagProgress | None) -> dict[int, tuple[int, int]]:
        """Return timestamp and number by seq_nr, for the events of which a table has them."""
        if not self._partitioned:
            return {}
        size, found = head.segment_size, {}
        back = head.removed_to + 1 - SEGMENTS_BACK * size
        first = progress.first_seq_nr if progress is not None else back
        first = min(first, head.removed_to + 1)
        for segment in range(segment_of(max(first, 1), size), segment_of(max(head.seq_nr, 1), size) + 1):
            after, more = None, True
            while more:
                page = self._store.scan(
                    PLACES, (life.key, life.number, segment, self._tag), after=after, limit=ROWS_AT_ONCE
                )
                found.update({seq_nr: (timestamp, number) for seq_nr, timestamp, number in page.rows})
                more = page.more and bool(page.rows)
                after = page.rows[-1][:1] if page.rows else None
        return found

    def _rows(self, life: Life, journal: KeyFacts, places: dict[int, tuple[int, int]]) -> list[ExaminedRow]:
        """Return the rows of a key and life, as far as the store can tell where they are."""
        if self._partitioned:
            told = {(told.timestamp, seq_nr) for seq_nr, told in journal.tagged.items()}
            return self._rows_at(life, told | {(timestamp, seq_nr) for seq_nr, (timestamp, _) in places.items()})
        found: list[ExaminedRow] = []
        after, more = LEAST, True
        while more:
            whose = life.key, life.number, self._tag
            page = self._store.scan(BY_NUMBER, whose, after=(after,), to=MOST, limit=ROWS_AT_ONCE, bytes_max=PAGE_BYTES)
            found += [self._found(TagRow._make(row), life) for row in page.rows]
            more = page.more and bool(page.rows)
            after = page.rows[-1][5] if page.rows else after
        return found

    def _rows_at(self, life: Life, places: set[tuple[int, int]]) -> list[ExaminedRow]:
        """Return rows at these places (timestamp, seq_nr), and at those that their links name."""
        found: list[ExaminedRow] = []
        asked: set[tuple[int, int]] = set()
        while left := sorted(places - asked):
            asked |= places
            for timestamp, seq_nr in left:
                row = tag_row_at(self._store, self._tag, (timestamp, life.key, seq_nr))
                if row is not None and row.life == life.number:
                    found.append(self._found(row, life))
                    if found[-1].link_ok and row.previous_seq_nr:
                        places = places | {(row.previous_timestamp, row.previous_seq_nr)}
        return found

    def _found(self, row: TagRow, life: Life) -> ExaminedRow:
        timestamp, seq_nr = row.timestamp, row.seq_nr
        whole = bool(row.body) and crc32(row.body, life.seed) == row.digest
        recorded = self._tagged(row.body) if whole else None
        if recorded is not None:
            timestamp, seq_nr = recorded, parts_of(row.body).seq_nr
        right = resealed(row).row_digest == row.row_digest
        sound, foreign = recorded is not None, whole and recorded is None
        return ExaminedRow(row._replace(body=b""), timestamp, seq_nr, sound, foreign, not row.body, right)

    def _members(
        self,
        journal: KeyFacts,
        kept: dict[int, ExaminedRow],
        places: dict[int, tuple[int, int]],
        progress: TagProgress | None,
        head: Head,
    ) -> tuple[list[Member], list[int | None]]:
        """Return the events of the key under the tag, in their order, with their numbers; None where nothing proves
        one."""
        told_to = head.seq_nr if progress is None else progress.seq_nr
        placed = [
            seq_nr for seq_nr in places
            if seq_nr <= head.delete_to or (seq_nr <= told_to and journal.doubts(seq_nr, seq_nr))
        ]  # fmt: skip
        members: list[Member] = []
        before = 0
        for seq_nr in sorted({*journal.tagged, *kept, *placed}):
            standing = kept.get(seq_nr)
            timestamp, told = places.get(seq_nr, (0, None))
            if standing is not None:
                timestamp, told = standing.timestamp, standing.row.tag_seq_nr if standing.link_ok else told
            if seq_nr in journal.tagged:
                timestamp = journal.tagged[seq_nr].timestamp
            follows = before > head.delete_to and journal.whole_between(before, seq_nr)
            known = follows or not journal.doubtful or not (before or head.delete_to)
            sure = known and not journal.doubts(max(before, head.delete_to) + 1, seq_nr - 1)
            members.append(Member(seq_nr, timestamp, told, follows, sure))
            before = seq_nr
        last = (progress.seq_nr, progress.tag_seq_nr) if progress is not None else None
        return members, recovered_numbers(members, whole=head.delete_to == 0, last=last)

    def _row_place(
        self,
        life: Life,
        member: Member,
        number: int,
        linked: tuple[int | None, int, int],
        standing: ExaminedRow | None,
    ) -> tuple[Any, ...] | None:
        """Return a row without its event; None if the place of the row before it is not known."""
        seq_nr, timestamp, *_ = member
        before, linked_at, linked_nr = linked
        if number == 1:
            linked_at = linked_nr = 0
        elif before != number - 1 and standing is not None and standing.link_ok:
            linked_at, linked_nr = standing.row.previous_timestamp, standing.row.previous_seq_nr  # that row was lost
        elif before is None or (before != number - 1 and not member.sure):
            return None
        place = self._tag, timestamp // self._bucket_us, timestamp, life.key, life.number, number, linked_at, linked_nr
        return (*place, row_digest(*place, seq_nr), seq_nr)

    def _moved(self, standing: ExaminedRow, place: tuple[Any, ...], mending: Mending) -> None:
        """Write anew a row whose event the journal no longer has."""
        row = standing.row
        there = tag_row_at(self._store, self._tag, (row.timestamp, row.key, row.seq_nr))
        if there is None:
            raise Unavailable("a row was moved meanwhile", code="serialization", hint="try again")
        moved = TagRow._make((*place, *there[10:]))
        mending.put(TAG_VIEW, moved)
        if standing.at_home:
            mending.counts.wrong += 1
        else:
            mending.listed.append(moved)
            mending.counts.missing += 1

    def _from_journal(
        self, life: Life, head: Head, wanted: dict[int, tuple[Any, ...]], kept: dict[int, ExaminedRow]
    ) -> Iterator[Mending]:
        """Yield rows of events that the journal has, in pieces."""
        if not wanted:
            return
        mending = Mending.none()
        for cells in self._events(life, head, min(wanted), max(wanted)):
            place = wanted.get(cells[0])
            if place is None:
                continue
            row = TagRow._make((*place, *cells[1:]))
            mending.put(TAG_VIEW, row)
            if cells[0] in kept and kept[cells[0]].at_home:
                mending.counts.wrong += 1
            else:
                mending.listed.append(row)
                mending.counts.missing += 1
            if mending.size >= AMENDED_AT_ONCE:
                yield mending
                mending = Mending.none()
        yield mending

    def _check_place(
        self, life: Life, head: Head, place: tuple[Any, ...], places: dict[int, tuple[int, int]], mending: Mending
    ) -> None:
        if not self._partitioned:
            return
        _, bucket, timestamp, key, _, number, _, _, _, seq_nr = place
        if places.get(seq_nr) != (timestamp, number):
            segment = segment_of(seq_nr, head.segment_size)
            mending.put(TAG_PLACE, TagPlace(key, life.number, segment, self._tag, seq_nr, timestamp, number))
            mending.counts.places += 1
        if bucket not in self._buckets:
            mending.put(TAG_BUCKET, TagBucket(self._tag, bucket))
            mending.counts.places += 1

    def _progress(
        self,
        life: Life,
        members: Sequence[Member],
        numbers: Sequence[int | None],
        progress: TagProgress | None,
        journal: KeyFacts,
        head: Head,
        *,
        readable: bool,
    ) -> Mending:
        mending = Mending.none()
        unknown = progress is not None and (  # the progress keeps this row's number, so that it is not given again
            progress.seq_nr <= head.delete_to or journal.doubts(progress.seq_nr, progress.seq_nr)
        )
        if not members:
            if progress is not None and not unknown:
                mending.take(TAG_PROGRESS, progress)
                mending.counts.progress = 1
            elif progress is not None:
                mending.counts.lost += progress.tag_seq_nr
            return mending
        first, last, number = members[0], members[-1], numbers[-1]
        if progress is not None and last.seq_nr < progress.seq_nr and unknown:
            mending.counts.lost += max(0, progress.tag_seq_nr - (number or len(numbers)))
            return mending
        if number is None:
            mending.counts.unproven += not readable
            return mending
        first_seq_nr = first.seq_nr
        if numbers[0] != 1 and progress is not None:
            first_seq_nr = min(first_seq_nr, progress.first_seq_nr)
        expected = TagProgress(life.key, life.number, self._tag, first_seq_nr, last.seq_nr, number, last.timestamp)
        if progress != expected or not readable:
            mending.put(TAG_PROGRESS, expected)
            mending.counts.progress = 1
        return mending

    # ------------------------------------------------------------ row by row

    def spans(self, count: int) -> list[tuple[int, int]]:
        """Return the view divided by time into a number of walks: first and last bucket of each."""
        if self._partitioned:
            buckets = next(iter(self._bucket_pages()), [])
            first = buckets[0] if buckets else None
        else:
            rows = self._store.scan(BY_TIME, (self._tag,), limit=1).rows
            first = rows[0][2] // self._bucket_us if rows else None
        if first is None:
            return []
        end = max(pointer.timestamp for pointer in self._store.pointers()) // self._bucket_us
        step = max(1, -(-(end + 1 - first) // count))
        starts = [first + at * step for at in range(count) if not at or first + at * step <= end]
        return [(start, start + step - 1) for start in starts[:-1]] + [(starts[-1], MOST // self._bucket_us - 1)]

    def walk(self, first: int, last: int) -> Iterator[TagRebuildCounts]:
        """Take out the rows of these buckets that no key accounts for, after all keys were mended."""
        for rows in self.pages(first, last):
            by_partition: dict[int, list[TagRow]] = {}
            for row in rows:
                partition = key_partition(row.key, self._store.settings.partitions)
                by_partition.setdefault(partition, []).append(row)
            for partition, some in by_partition.items():
                _, extra, placeless, lifeless = self._unaccounted(partition, some)
                if extra or placeless:
                    carry_mark = self._carry_mark(partition)
                    with self._store.correct(partition, "", carry_mark, fence=self._fence) as amend:
                        yield self._again(lambda: self._take_out(partition, some, amend))  # noqa: B023
                elif lifeless:
                    yield TagRebuildCounts(unproven=lifeless)

    def _take_out(self, partition: int, rows: Sequence[TagRow], amend: Amend) -> TagRebuildCounts:
        seen, extra, placeless, lifeless = self._unaccounted(partition, rows)
        mending = Mending.none()
        mending.counts.unproven = lifeless
        homeless = {row.key for row, _ in placeless}
        for row, segment in placeless:
            number = row.tag_seq_nr if resealed(row) == row else 0
            place = TagPlace(row.key, row.life, segment, self._tag, row.seq_nr, row.timestamp, number)
            mending.put(TAG_PLACE, place)
            mending.counts.places += 1
        for row in extra:
            mending.take(TAG_VIEW, row)
            mending.counts.extra += 1
            found = self._found(row, life_of(row.key, row.life))
            home = found.timestamp, row.key, found.seq_nr
            lives = self._partitioned and found.body_ok and not self._is_ended(partition, row)
            if lives and tag_row_at(self._store, self._tag, home) is None:
                back = self._at_home(row, found)
                mending.put(TAG_VIEW, back)
                mending.listed.append(back)
                homeless.add(row.key)
        before = self._counted(partition, sorted(homeless))
        self._amend(amend, seen, mending)
        counts = mending.counts
        if homeless:
            self._buckets = set(self._all_buckets())
            counts.add(self._mend(partition, sorted(homeless), amend))
            for name in ("keys", "rows", "lost", "unproven"):  # they were counted before these rows were found
                setattr(counts, name, getattr(counts, name) - getattr(before, name))
        return counts

    def _counted(self, partition: int, keys: Sequence[str]) -> TagRebuildCounts:
        """Count what a rebuild would change for these keys. Nothing is written."""
        found = TagRebuildCounts()
        if keys:
            for key, (head, progress, readable) in self._look(partition, keys)[1].items():
                for part in self._of_key(key, head, progress, readable):
                    found.add(part.counts)
        return found

    def _at_home(self, row: TagRow, found: ExaminedRow) -> TagRow:
        """Return a row at the place that its body says."""
        bucket = found.timestamp // self._bucket_us
        return resealed(row._replace(bucket=bucket, timestamp=found.timestamp, seq_nr=found.seq_nr))

    def _is_ended(self, partition: int, row: TagRow) -> bool:
        state = self._store.look(partition, (row.key,)).states.get(row.key)
        return not isinstance(state, Head) or state.life != row.life

    def _unaccounted(
        self, partition: int, rows: Sequence[TagRow]
    ) -> tuple[Pointer, list[TagRow], list[tuple[TagRow, int]], int]:
        """Return the rows to remove: of ended lives and, where rows are found by their places, those that belong
        elsewhere. Then the rows, with their segments, whose place was lost; and the number of rows of a life that the
        store does not know, neither as present nor as ended: its head may be lost.
        """
        look = self._store.look(partition, sorted({row.key for row in rows}))
        extra: list[TagRow] = []
        placeless: list[tuple[TagRow, int]] = []
        lifeless = 0
        for row in rows:
            state = look.states.get(row.key)
            if not isinstance(state, Head) or state.life != row.life:
                over = state is not None and row.life < state.life + isinstance(state, EndedLife)
                if not over and self._found(row, life_of(row.key, row.life)).body_ok:
                    lifeless += 1
                else:
                    extra.append(row)
            elif self._partitioned:
                found = self._found(row, life_of(row.key, row.life))
                segment = segment_of(row.seq_nr, state.segment_size)
                place = self._place_of(row, segment)
                if row.bucket != row.timestamp // self._bucket_us or not found.at_home or found.foreign:
                    extra.append(row)
                elif place == row.timestamp:
                    continue
                elif (found.body_ok or found.link_ok) and not self._is_row(place, row):
                    placeless.append((row, segment))
                else:
                    extra.append(row)
        return look.pointer, extra, placeless, lifeless

    def _is_row(self, timestamp: int | None, row: TagRow) -> bool:
        """Return whether the event of a row has a row at this time."""
        return (
            timestamp is not None and tag_row_at(self._store, self._tag, (timestamp, row.key, row.seq_nr)) is not None
        )

    def _place_of(self, row: TagRow, segment: int) -> int | None:
        """Return the timestamp that the tables give for the row of this number."""
        whose = (row.key, row.life, segment, self._tag)
        places = self._store.scan(PLACES, whose, after=(row.seq_nr - 1,), to=row.seq_nr, limit=1).rows
        return places[0][1] if places and places[0][0] == row.seq_nr else None

    def strays(self, partition: int, rows: Sequence[TagRow]) -> list[TagRow]:
        """Return the rows that no key accounts for, or whose place is not listed."""
        _, extra, placeless, _ = self._unaccounted(partition, rows)
        return [*extra, *(row for row, _ in placeless)]

    def examined(self, partition: int, keys: Sequence[str]) -> Iterator[tuple[str, Mending]]:
        """Yield what would be written for keys, with nothing written."""
        if self._partitioned:
            self._buckets = set(self._all_buckets())
        for key, (head, progress, readable) in self._look(partition, keys)[1].items():
            for part in self._of_key(key, head, progress, readable):
                yield key, part

    def mend(self, partition: int, keys: Sequence[str], amend: Amend) -> TagRebuildCounts:
        """Mend the rows of these keys."""
        if self._partitioned:
            self._buckets = set(self._all_buckets())
        return self._again(lambda: self._mend(partition, keys, amend))

    def take_out(self, partition: int, rows: Sequence[TagRow], amend: Amend) -> TagRebuildCounts:
        """Remove from the view those of these rows that no key accounts for."""
        return self._again(lambda: self._take_out(partition, rows, amend))

    def pages(self, first: int, last: int) -> Iterator[list[TagRow]]:
        """Yield the rows of these buckets."""
        if not self._partitioned:
            yield from self.between(first * self._bucket_us, (last + 1) * self._bucket_us - 1)
            return
        for buckets in self._bucket_pages(first - 1, last):
            for bucket in buckets:
                yield from self._scanned(IN_BUCKET, (self._tag, bucket), None, None)

    def between(self, first_us: int, last_us: int) -> Iterator[list[TagRow]]:
        """Yield the rows of this stretch of time; of stores that are not partitioned."""
        if first_us <= last_us:
            yield from self._scanned(BY_TIME, (self._tag,), (first_us, "", 0), last_us)

    def _scanned(self, scan: Any, equal: tuple[Any, ...], after: Any, to: Any) -> Iterator[list[TagRow]]:
        more = True
        while more:
            page = self._store.scan(scan, equal, after=after, to=to, limit=ROWS_AT_ONCE, bytes_max=PAGE_BYTES)
            if page.rows:
                yield list(map(TagRow._make, page.rows))
                after = scan.place_of(page.rows[-1])
            more = page.more and bool(page.rows)

    def _bucket_pages(self, after: int = -1, last: int = MOST) -> Iterator[list[int]]:
        more = True
        while more:
            page = self._store.scan(BUCKETS, (self._tag,), after=(after,), to=last, limit=ROWS_AT_ONCE)
            if page.rows:
                yield [bucket for (bucket,) in page.rows]
                after = page.rows[-1][0]
            more = page.more and bool(page.rows)

    def _all_buckets(self) -> Iterator[int]:
        for buckets in self._bucket_pages():
            yield from buckets
