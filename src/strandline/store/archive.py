"""The archive of a store: knows which events were moved from the store into files, and reads them back.

    setting `archive`      where the files are, whose they are, and the archive's time: events recorded before it may be
                           gone from the store (`ArchiveNote`)
    setting `archive_ends` by entity type and slice, the last event that was taken out: who reads by slices from before
                           it would miss something
    head                   `archive_to`: events up to this number of the key's life are in the files. So whoever knows
                           the head knows where an event is, and no file is opened for a key that has nothing there

An event's number says whether it is in the files or in the store (`archive_plan`). A reader looks only there, so an
event that is in both places is returned once. The files are found where the setting says, or where `connect(…,
archive=PATH)` says that this machine sees them. They are sorted by key, life and number, so that a reader opens only
the row groups of a file that can have the key.

Reading needs pyarrow, which the extra `spark` installs, too: `Unsupported.archive` without it. `Unavailable.away` if
the files are not there.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import orjson

from strandline.errors import Unavailable, Unsupported
from strandline.extras import install
from strandline.points import reached
from strandline.store.api import RowPage, Store
from strandline.store.archive_files import MANIFEST, ArchivedFile, Manifest, origin_of, read_manifest
from strandline.store.archived_events import event_rows, time_in_us
from strandline.store.pages import bytes_of, up_to
from strandline.values.events import EventRow, timestamp_in
from strandline.values.heads import SEQ_NR_MAX, Head
from strandline.values.keys import slice_of

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

NOTE: Final = "archive"
ENDS: Final = "archive_ends"
KEYS_KEPT: Final = 256
GROUPS_KEPT: Final = 4
FOOTERS_KEPT: Final = 256
PAGE: Final = 2000
PAGE_BYTES: Final = 8 * 2**20
BATCH: Final = 64 * 1024
ORDER_BYTES: Final = 64 * 2**20
"""About how many bytes of events are sorted at a time."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ArchiveNote:
    """The note that a store keeps of its archive."""

    path: str
    history_id: str
    """The history of the journal that wrote the files. A restored copy of the journal reads them, too."""
    before: int = 0
    """The archive's time: all heads know which of their events from before it are in the files."""
    removed: int = 0
    """Before this time, every event that may leave the store has been removed from it."""


class ArchivedTo(NamedTuple):
    """Events of a key's life up to this number are in the files."""

    key: str
    life: int
    archive_to: int


class ArchivedPlace(NamedTuple):
    """Where the row of an archived event stands, and its digest there."""

    key: str
    life: int
    segment: int
    seq_nr: int
    timestamp: int
    digest: int


class ArchivingStore(Protocol):
    """A store whose events can move into an archive."""

    def kept(self, name: str) -> str | None:
        """The text that is kept in `setting` under this name."""

    def keep(self, name: str, text: str) -> None:
        """Keep a text there."""

    def mark_archived(self, partition: int, ends: Sequence[ArchivedTo], at: int) -> None:
        """Write into the heads of these lives what is archived. Heads of ended lives are left as they are.

        It is done under the pointer's lock where there is one, else with `at`, the archive's time, as the write
        timestamp: a later Purge has a later one.
        """

    def remove_archived(self, partition: int, rows: Sequence[ArchivedPlace]) -> None:
        """Remove the rows of events from the journal and the slice view, but not from views of tags.

        Only rows with this digest are removed, under the pointer's lock. A store without transactions removes each row
        with the timestamp that the row was written with, so that a row that is put back later stays.
        """


# ---------------------------------------------------------------- where an event is


class PagePlan(NamedTuple):
    """The numbers of a page that are read from the files, and those that are read from the store."""

    files: tuple[int, int] | None
    rows: tuple[int, int] | None


def archive_plan(from_: int, to: int, archive_to: int) -> PagePlan:
    """Return which numbers of a read are in the files, and which are in the store."""
    return PagePlan(
        (from_, min(to, archive_to)) if from_ <= min(to, archive_to) else None,
        (max(from_, archive_to + 1), to) if max(from_, archive_to + 1) <= to else None,
    )


def archived_to(last: int, events: Sequence[tuple[int, int, int]], standing: Mapping[int, int]) -> int:
    """Return the number up to which all events of a life are in the files. They are known to be there up to `last`.

    `events`: number, number of the event before, and digest of each in the files, in order; `standing`: the digests in
    the store, by number. It ends before the first event that is not the same in both, and before the first gap: a
    damaged event is in no file.
    """
    for seq_nr, prev, digest in events:
        if seq_nr <= last:
            continue
        if prev > last or standing.get(seq_nr) != digest:
            break
        last = seq_nr
    return last


def page_of_life(
    store: Store,
    key: str,
    head: Head,
    *,
    from_: int,
    to: int,
    limit: int,
    bytes_max: int | None = None,
    backwards: bool = False,
) -> RowPage:
    """A page of the events of a head's life (`Store.page`), wherever they are."""
    if from_ > head.archive_to:
        return store.page(
            key, head.life, head.segment_size, from_=from_, to=to, limit=limit, bytes_max=bytes_max, backwards=backwards
        )
    parts = archive_plan(from_, to, head.archive_to)
    rows: list[Any] = []
    more = False
    for span in (parts.rows, parts.files) if backwards else (parts.files, parts.rows):
        if span is None:
            continue
        if more or len(rows) >= limit or (bytes_max is not None and bytes_max <= 0):
            return RowPage(rows, True)
        if span is parts.files:
            page = store.archive.page(
                key, head.life, *span, limit=limit - len(rows), bytes_max=bytes_max, backwards=backwards
            )
        else:
            page = store.page(
                key, head.life, head.segment_size, from_=span[0], to=span[1], limit=limit - len(rows),
                bytes_max=bytes_max, backwards=backwards,
            )  # fmt: skip
        rows, more = rows + page.rows, page.more
        if bytes_max is not None:
            bytes_max -= sum(map(bytes_of, page.rows))
    return RowPage(rows, more)


# ---------------------------------------------------------------- the files


class _ArchivedRun(NamedTuple):
    """Rows of one key and life in a row group."""

    file: str
    group: int
    at: int
    rows: int
    first: int
    last: int


class Archive:
    """The archive of a store, as this process sees it. Safe to share between threads."""

    def __init__(self, store: ArchivingStore) -> None:
        self._store = store
        self.place: str | None = None
        """Where this machine sees the files, if not where the setting says."""
        self._lock = Lock()
        self._known: tuple[Path, tuple[int, int, int], Manifest] | None = None
        self._spans: OrderedDict[tuple[str, int], list[_ArchivedRun]] = OrderedDict()
        self._groups: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._footers: OrderedDict[str, Any] = OrderedDict()

    # ------------------------------------------------------------ what the store keeps

    def note(self) -> ArchiveNote | None:
        """Return the store's note of its archive, as it is now; None if none of its events ever left."""
        text = self._store.kept(NOTE)
        return None if text is None else ArchiveNote(**orjson.loads(text))

    def keep(self, note: ArchiveNote) -> None:
        """Keep another note."""
        self._store.keep(NOTE, orjson.dumps(asdict(note)).decode())

    def ends(self) -> dict[str, dict[int, tuple[int, int]]]:
        """By entity type and slice, the place (timestamp, number) of the last event that was taken out."""
        found = orjson.loads(self._store.kept(ENDS) or "{}")
        return {type_: {int(nr): (at[0], at[1]) for nr, at in ends.items()} for type_, ends in found.items()}

    def keep_ends(self, ends: Mapping[str, Mapping[int, tuple[int, int]]]) -> None:
        """Save these ends. A later end that is saved already stays."""
        now = self.ends()
        for type_, places in ends.items():
            into = now.setdefault(type_, {})
            for slice_, place in places.items():
                into[slice_] = max(place, into.get(slice_, (0, 0)))
        texts = {type_: {str(nr): place for nr, place in places.items()} for type_, places in now.items()}
        self._store.keep(ENDS, orjson.dumps(texts).decode())

    # ------------------------------------------------------------ reading

    def check(self) -> Manifest:
        """Return the manifest; `Unavailable.away` if the files are not there, `Unsupported.archive` without pyarrow."""
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise Unsupported(
                "pyarrow is not installed; needed for events that are in an archive", code="archive",
                hint=f"{install('spark')}, or pyarrow alone", missing=["pyarrow"],
            ) from None  # fmt: skip
        note = self.note()
        place = self.place or (note.path if note is not None else None)
        if place is None:
            raise _away("the archive", "the store says that events are in one, but not where")
        path = Path(place)
        try:
            found = (path / MANIFEST).stat()
        except OSError:
            raise _away(f"the archive {path}", "there is no manifest there") from None
        stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        with self._lock:
            if self._known is not None and self._known[:2] == (path, stamp):
                return self._known[2]
        manifest = read_manifest(path)
        if manifest is None:
            raise _away(f"the archive {path}", "there is no manifest there")
        if note is not None and (manifest.history_id != note.history_id or manifest.to < note.before):
            raise _away(f"the archive {path}", "these files are of another journal, or older than what was taken out")
        with self._lock:
            self._known = (path, stamp, manifest)
            self._spans.clear()
            self._groups.clear()
            self._footers.clear()
        return manifest

    def proofs(self, key: str, head: Head, history_id: str) -> list[Any]:
        """Return the events of a head's life above its `archive_to` that the files prove, as `Store.page` gives them.

        Files can be ahead of heads: events are written before they leave the store, and some never leave it. Events
        that a journal recorded after its backup was made prove nothing for the journal that was restored from it.
        """
        note = self.note()
        if note is None and self.place is None:
            return []
        manifest = self.check()
        before = manifest.to if manifest.history_id == history_id else note.before if note is not None else 0
        found: list[Any] = []
        from_, more = head.archive_to + 1, True
        while more:
            page = self.page(key, head.life, from_, SEQ_NR_MAX, limit=PAGE)
            found += [row for row in page.rows if timestamp_in(row[2])[0] < before]
            more = page.more and bool(page.rows)
            from_ = page.rows[-1][0] + 1 if page.rows else from_
        return found

    @property
    def path(self) -> Path:
        """The folder from which files were read last."""
        return self._known[0] if self._known is not None else Path()

    def page(
        self,
        key: str,
        life: int,
        from_: int,
        to: int,
        *,
        limit: int,
        bytes_max: int | None = None,
        backwards: bool = False,
    ) -> RowPage:
        """Events of a life by number, as `Store.page` gives them."""

        def read(manifest: Manifest) -> RowPage:
            spans = [span for span in self._spans_of(manifest, key, life) if span.first <= to and span.last >= from_]
            cells: list[Any] = []
            for span in reversed(spans) if backwards else spans:
                some = [row.cells for row in self._rows(span, from_, to, limit - len(cells), backwards=backwards)]
                cells += some
                cut = up_to(cells, bytes_max)
                if len(cut) < len(cells) or len(cells) >= limit:
                    return RowPage(cut, True)
            return RowPage(cells, False)

        return self._unswept(read)

    def pages(
        self,
        *,
        slices: tuple[int, int],
        after: int,
        to: int,
        entity_type: str | None = None,
    ) -> Iterator[list[EventRow]]:
        """Pages of the events of slices with a time above one, up to another: each key in the order of its numbers.

        Events of purged lives and deleted ones are among them, until a sweep.
        """
        for file in self.check().files:
            if entity_type is not None and file.entity_type != entity_type:
                continue
            if file.last_slice < slices[0] or file.first_slice > slices[1] or not _in_month(file.month, after, to):
                continue
            yield from self._unswept(lambda manifest, file=file: self._pages_of(manifest, file, slices, after, to))  # type: ignore[misc]

    def in_order(
        self, entity_type: str, slices: tuple[int, int], after: tuple[int, int], to: int
    ) -> Iterator[list[EventRow]]:
        """Yield lists of such events by (timestamp, number, key), behind a place (timestamp, number).

        Files are sorted by key. So the times of a month are read first, to choose the earliest events that memory has
        room for.
        """
        months = sorted({file.month for file in self.check().files if _in_month(file.month, after[0] - 1, to)})
        for month in months:
            place: tuple[int, int] | None = after
            while place is not None:
                rows, place = self._unswept(
                    lambda manifest, month=month, place=place: self._earliest(  # type: ignore[misc]
                        [
                            file.path for file in manifest.files
                            if (file.entity_type, file.month) == (entity_type, month)
                            and file.first_slice <= slices[1] and file.last_slice >= slices[0]
                        ],
                        slices, place, to,
                    )
                )  # fmt: skip
                yield rows

    def _earliest(
        self, files: Sequence[str], slices: tuple[int, int], after: tuple[int, int], to: int
    ) -> tuple[list[EventRow], tuple[int, int] | None]:
        """The earliest events of some files behind a place, and the place behind which there are more."""
        times: list[int] = []
        size = count = 0
        for file in files:
            with self._opened(file) as opened:
                groups = [opened.metadata.row_group(group) for group in range(opened.metadata.num_row_groups)]
                size, count = size + sum(each.total_byte_size for each in groups), count + opened.metadata.num_rows
                for batch in opened.iter_batches(batch_size=BATCH, columns=["slice", "time"]):
                    times += _times(batch.filter(_chosen(batch, slices, after[0] - 1, to)))
        most = max(1, ORDER_BYTES * count // max(1, size))
        last = to if len(times) <= most else heapq.nsmallest(most, times)[-1]
        rows: list[EventRow] = []
        for file in files:
            with self._opened(file) as opened:
                for batch in opened.iter_batches(batch_size=PAGE):
                    rows += event_rows(batch.filter(_chosen(batch, slices, after[0] - 1, last)))
        rows = [row for row in rows if (row.timestamp, row.seq_nr) > after]
        rows.sort(key=lambda row: (row.timestamp, row.seq_nr, row.key))
        return rows, None if last == to else (last, SEQ_NR_MAX)

    def _unswept(self, read: Callable[[Manifest], T]) -> T:
        """Read files. A file that a sweep has replaced meanwhile is looked up again."""
        try:
            return read(self.check())
        except FileNotFoundError:
            reached("archive.swept_meanwhile")
            with self._lock:
                self._known = None
        try:
            return read(self.check())
        except FileNotFoundError as error:
            raise _away(f"the archive {self.path}", f"{error.filename or 'a file'} is not there") from None

    def _pages_of(
        self, manifest: Manifest, file: ArchivedFile, slices: tuple[int, int], after: int, to: int
    ) -> Iterator[list[EventRow]]:
        now = _present(manifest, file)
        return iter(()) if now is None else _read(self._opened(now.path), slices, after, to)

    def _spans_of(self, manifest: Manifest, key: str, life: int) -> list[_ArchivedRun]:
        with self._lock:
            if (spans := self._spans.get((key, life))) is not None:
                self._spans.move_to_end((key, life))
                return spans
        slice_, entity_type, text = slice_of(key), key.partition("|")[0], key.encode()
        spans = []
        for file in manifest.files:
            if file.entity_type != entity_type or not file.first_slice <= slice_ <= file.last_slice:
                continue
            with self._opened(file.path) as opened:
                for group in _groups_with(opened.metadata, text):
                    table = opened.read_row_group(group, columns=["key", "life", "seq_nr"])
                    if (span := _span_in(table, file.path, group, key, life)) is not None:
                        spans.append(span)
        spans.sort(key=lambda span: span.first)
        with self._lock:
            self._spans[key, life] = spans
            while len(self._spans) > KEYS_KEPT:
                self._spans.popitem(last=False)
        return spans

    def _rows(self, span: _ArchivedRun, from_: int, to: int, limit: int, *, backwards: bool) -> list[EventRow]:
        """Return rows of a span with these numbers: the first ones in order, or the last ones with the last first."""
        table = self._group(span.file, span.group).slice(span.at, span.rows)
        numbers = table.column("seq_nr").to_pylist()
        wanted = [at for at, number in enumerate(numbers) if from_ <= number <= to]
        some = wanted[::-1][:limit] if backwards else wanted[:limit]
        if not some:
            return []
        low, high = min(some), max(some)
        rows = event_rows(table.slice(low, high - low + 1))
        return rows[::-1] if backwards else rows

    def _group(self, file: str, group: int) -> Any:
        with self._lock:
            if (table := self._groups.get((file, group))) is not None:
                self._groups.move_to_end((file, group))
                return table
        with self._opened(file) as opened:
            table = opened.read_row_group(group)
        with self._lock:
            self._groups[file, group] = table
            while len(self._groups) > GROUPS_KEPT:
                self._groups.popitem(last=False)
        return table

    def _opened(self, file: str) -> ParquetFile:
        from pyarrow.parquet import ParquetFile

        with self._lock:
            footer = self._footers.get(file)
        opened = ParquetFile(self.path / file, metadata=footer)
        with self._lock:
            self._footers[file] = opened.metadata
            while len(self._footers) > FOOTERS_KEPT:
                self._footers.popitem(last=False)
        return opened


def _present(manifest: Manifest, file: ArchivedFile) -> ArchivedFile | None:
    """Return the file, or the file that a sweep wrote in its place; None if it is gone."""
    return next((each for each in manifest.files if origin_of(each.path) == origin_of(file.path)), None)


def _read(opened: ParquetFile, slices: tuple[int, int], after: int, to: int) -> Iterator[list[EventRow]]:
    import pyarrow as pa

    chosen: list[Any] = []
    with opened:
        for batch in opened.iter_batches(batch_size=PAGE):
            chosen.append(batch.filter(_chosen(batch, slices, after, to)))
            # A batch may have few rows of these slices: rows are collected until a page is full.
            if sum(map(len, chosen)) >= PAGE or sum([one.nbytes for one in chosen]) >= PAGE_BYTES:
                yield event_rows(pa.Table.from_batches(chosen))
                chosen = []
    if rows := event_rows(pa.Table.from_batches(chosen)) if chosen else []:
        yield rows


def _chosen(batch: Any, slices: tuple[int, int], after: int, to: int) -> Any:
    """Return a mask of the rows of a batch that are of these slices, with a time above `after` and up to `to`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers, times = batch.column("slice"), batch.column("time").cast(pa.int64())
    within = pc.and_(pc.greater_equal(numbers, slices[0]), pc.less_equal(numbers, slices[1]))
    return pc.and_(within, pc.and_(pc.greater(times, after), pc.less_equal(times, to)))


def _groups_with(footer: Any, key: bytes) -> Iterator[int]:
    """The row groups that can have a key, by their statistics."""
    for group in range(footer.num_row_groups):
        column = footer.row_group(group).column(0)
        found = column.statistics
        if found is None or not found.has_min_max or _bytes(found.min) <= key <= _bytes(found.max):
            yield group


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _span_in(table: Any, file: str, group: int, key: str, life: int) -> _ArchivedRun | None:
    import pyarrow.compute as pc

    mine = pc.and_(pc.equal(table.column("key"), key), pc.equal(table.column("life"), life))
    places = pc.indices_nonzero(mine)
    if not len(places):
        return None
    first, last = places[0].as_py(), places[-1].as_py()
    numbers = table.column("seq_nr")
    return _ArchivedRun(file, group, first, last - first + 1, numbers[first].as_py(), numbers[last].as_py())


def _times(batch: Any) -> list[int]:
    import pyarrow as pa

    return batch.column("time").cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def _in_month(month: str, after: int, to: int) -> bool:
    """Whether a month has times above one and up to another."""
    year, number = int(month[:4]), int(month[5:])
    first = datetime(year, number, 1, tzinfo=UTC)
    end = datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)
    return time_in_us(first) <= to and time_in_us(end) > after


def _away(what: str, why: str) -> Unavailable:
    return Unavailable(
        f"{what} is away: {why}", code="away",
        hint="bring the folder back, or say where this machine sees it: connect(…, archive=PATH)", applied="no",
    )  # fmt: skip
