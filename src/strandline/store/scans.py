"""Scans: queries that read a store's tables page by page, declared as data.

A scan names a table, the columns that must be equal, the columns of its order, and how far it goes. SQL and CQL run the
statement of its name in the table's package, with these values in this order:

    the values of `equal`, lowest and highest slice if there is `between`, the place `after` which rows are wanted, the
    greatest value of the first column of the order unless it is `unbounded`, how many rows

Stores in memory filter (`scanned`). A view declares scans of its own in the same way. The store's own scans follow
below, each with a function that runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from strandline.rows import Pointer, QuarantineRow
from strandline.store.api import RowPage, Store
from strandline.store.pages import FIRST_ROWS, GrowingPage
from strandline.store.tables import (
    JOURNAL,
    METAJOURNAL,
    QUARANTINE,
    REPAIRED,
    SNAPSHOT,
    RepairedRow,
    SnapshotRow,
    Table,
)
from strandline.values.heads import State
from strandline.values.keys import SLICES, slice_of

MOST: Final = 2**63 - 1
LISTED_BYTES_MAX: Final = 64 * 2**20
HEADS_AT_ONCE: Final = 1000


class Scan(NamedTuple):
    """A way to go through a table."""

    name: str
    table: Table
    equal: tuple[str, ...]
    order: tuple[str, ...]
    """Columns whose values are a row's place in the scan. None: `equal` finds one row at most."""
    columns: tuple[str, ...] = ()
    """The columns that rows have, as plain tuples. Empty: whole rows, checked by their digest."""
    between: str | None = None
    """The column that must lie between two values: slices."""
    descending: bool = False
    """Whether the last row comes first: `after` is then the greatest place that may come, and `to` the least."""
    distinct: bool = False
    unbounded: bool = False
    light: bool = False
    """Whether a page is bounded without counting its rows, because SQL leaves out large bodies, or there are none. None
    stands for such a body, and a reader that wants it asks for its event."""
    large_apart: bool = False
    """SQL: the statement takes one more value, a size, and leaves out larger bodies, so that a page of small rows needs
    no second query."""

    def values(
        self, equal: Sequence[Any], slices: tuple[int, int] | None, after: Sequence[Any] | None, to: Any, limit: int
    ) -> tuple[Any, ...]:
        """Return the values for the scan's statement."""
        between = () if self.between is None else slices or (0, SLICES - 1)
        start = self.start if after is None else after
        bound = () if self.unbounded or not self.order else (self.end if to is None else to,)
        return (*equal, *between, *start, *bound, limit)

    @property
    def start(self) -> tuple[Any, ...]:
        """The place before all others."""
        if self.descending:
            return (MOST,) * len(self.order)
        kinds = [self.table.columns[self.table.at(name)].kind for name in self.order]
        return tuple(["" if kind == "text" else b"" if kind == "blob" else -1 for kind in kinds])

    @property
    def end(self) -> int:
        """The place after all others."""
        return 0 if self.descending else MOST

    def place_of(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """Return the place of a row that this scan gave."""
        names = self.columns or [column.name for column in self.table.columns]
        return tuple([row[names.index(name)] for name in self.order])


def scanned(
    scan: Scan,
    rows: Iterable[Sequence[Any]],
    equal: Sequence[Any],
    slices: tuple[int, int] | None,
    after: Sequence[Any] | None,
    to: Any,
) -> Iterator[Any]:
    """Yield the rows that a scan selects from whole rows, in its order: for stores that have no statements."""
    at = scan.table.at
    wanted = [(at(name), value) for name, value in zip(scan.equal, equal, strict=True)]
    order = [at(name) for name in scan.order]
    lo, hi = slices or (0, SLICES - 1)
    start, end = scan.start if after is None else after, scan.end if to is None else to
    found = []
    for row in rows:
        place = [row[index] for index in order]
        if any(row[index] != value for index, value in wanted) or None in place:
            continue
        if scan.between is not None and not lo <= row[at(scan.between)] <= hi:
            continue
        if not order:
            found.append(((), row))
            continue
        beyond = False if scan.unbounded else place[0] < end if scan.descending else place[0] > end
        if not beyond and (_sorted(place) <= _sorted(start) if scan.descending else _sorted(place) > _sorted(start)):
            found.append((_sorted(place), row))
    found.sort(key=lambda item: item[0], reverse=scan.descending)
    shown = (tuple([row[at(name)] for name in scan.columns]) if scan.columns else row for _, row in found)
    return iter(dict.fromkeys(shown)) if scan.distinct else shown


def _sorted(place: Sequence[Any]) -> tuple[Any, ...]:
    """Return a place as its bytes sort it."""
    return tuple([value.encode() if isinstance(value, str) else value for value in place])


class Asked(NamedTuple):
    """A page of a scan, as `Store.scan` is asked for it."""

    equal: Sequence[Any]
    after: Sequence[Any] | None
    limit: int
    slices: tuple[int, int] | None = None
    bytes_max: int | None = None


def scan_each(store: Store, scan: Scan, asked: Sequence[Asked], to: Any) -> list[RowPage]:
    """Return a page of each of these scans, up to the same value; in one round trip where the store can do that.

    A wrapper of a store, which must see each scan, is asked for one scan after the other.
    """
    together = getattr(type(store), "scan_each", None)
    if together is not None and len(asked) > 1:
        pages: list[RowPage] = together(store, scan, asked, to)
        return pages
    return [
        store.scan(scan, each.equal, after=each.after, to=to, limit=each.limit, slices=each.slices,
                   bytes_max=each.bytes_max)
        for each in asked
    ]  # fmt: skip


def page_of(rows: Iterator[Any], limit: int, bytes_max: int | None, size_of: Callable[[Any], int]) -> RowPage:
    """Return the first of these rows, within bounds, and whether there is one more."""
    kept: list[Any] = []
    left = MOST if bytes_max is None else bytes_max
    for row in islice(rows, limit):
        kept.append(row)
        left -= size_of(row)
        if left <= 0:
            break
    return RowPage(kept, next(rows, None) is not None)


def grown(
    scan: Scan,
    ask: Callable[[Sequence[Any] | None, int], list[Any]],
    after: Sequence[Any] | None,
    limit: int,
    bytes_max: int | None,
    first: int = FIRST_ROWS,
) -> RowPage:
    """Return a page of a store that can count rows and not bytes; `ask` returns a number of rows after a place.

    `first` is how many to ask for before the size of any is known.
    """
    if bytes_max is None or not scan.order:
        rows = ask(after, limit)
        return RowPage(rows, bool(scan.order) and len(rows) == limit)
    page = GrowingPage(limit, bytes_max, bytes_in(scan), first)
    more = True
    while page.asks and more:
        asked = page.asks
        rows = ask(after, asked)
        had = len(page.rows)
        page.add(rows)
        more = len(rows) == asked or len(page.rows) - had < len(rows)
        if rows:
            after = scan.place_of(rows[-1])
    return RowPage(page.rows, more)


def bytes_in(scan: Scan) -> Callable[[Any], int]:
    """Return a function that says how large a row of a scan is: its bytes."""
    names = scan.columns or tuple(column.name for column in scan.table.columns)
    blobs = [
        names.index(column.name) for column in scan.table.columns if column.kind == "blob" and column.name in names
    ]
    if len(blobs) == 1:
        (blob,) = blobs
        return lambda row: len(row[blob] or b"")
    return lambda row: sum([len(row[index] or b"") for index in blobs])


# ---------------------------------------------------------------- the store's own

EVENTS: Final = Scan("range", JOURNAL, ("entity_type", "partition"), ("timestamp", "seq_nr"), between="slice")
ALL_EVENTS: Final = Scan("range_of_all", JOURNAL, ("partition",), ("timestamp", "seq_nr"), between="slice")
"""Events of a partition by time: of one type, and of all."""
_PLACE: Final = ("timestamp", "seq_nr", "key")
SLICE_ROWS: Final = Scan(
    "slice_rows", JOURNAL, ("entity_type", "partition"), _PLACE, (*_PLACE, "life", "prev_seq_nr", "body", "digest"),
    between="slice", light=True,
)  # fmt: skip
"""The same as queries by slices want them: plain tuples that sort as these queries do."""
SLICE_PLACES: Final = Scan(
    "slice_places", JOURNAL, ("entity_type", "partition"), _PLACE, (*_PLACE, "life", "prev_seq_nr"), between="slice",
    light=True,
)  # fmt: skip
"""The same without bodies, for a reader that has most of the bodies already."""
LAST_KEY: Final = "\U0010ffff"
"""Sorts behind every key."""
KEYS: Final = Scan("keys", METAJOURNAL, ("entity_type",), ("slice", "key"), ("slice", "key"))
HEADS: Final = Scan(
    "heads_of_type", METAJOURNAL, ("entity_type",), ("slice", "key"), ("slice", "key", "delete_to", "life")
)
EXPIRED: Final = Scan("expired", METAJOURNAL, (), ("expire_at", "key"), ("expire_at", "key", "log_offset"))
ENTITY_TYPES: Final = Scan(
    "entity_types", METAJOURNAL, (), ("entity_type",), ("entity_type",), distinct=True, unbounded=True
)
QUARANTINED: Final = Scan("quarantined", QUARANTINE, (), ("partition", "log_offset"))
SNAPSHOTS: Final = Scan("snapshots", SNAPSHOT, ("key", "life"), ("seq_nr",), ("seq_nr", "timestamp", "form"))
SNAPSHOT_LIVES: Final = Scan(
    "snapshot_lives", SNAPSHOT, (), ("key", "life"), ("key", "life"), distinct=True, unbounded=True
)
"""The lives that have snapshots. Only stores that need no partition key have this scan."""
PUT_BACK: Final = Scan("put_back", REPAIRED, ("partition",), ("number",))
LAST_SNAPSHOT: Final = Scan("last_snapshot", SNAPSHOT, ("key", "life"), ("seq_nr",), descending=True)


def look_at(store: Store, key: str, partition: int) -> tuple[Pointer, State]:
    """Return the partition's pointer, and the state of one key."""
    look = store.look(partition, (key,))
    return look.pointer, look.states.get(key)


def look_at_all(store: Store, keys: Mapping[str, int]) -> dict[str, tuple[Pointer, State]]:
    """Return pointers and states of many keys, each given with its partition, in one request for all partitions."""
    pointers = store.pointers()  # The pointers are read first: the other order would lose actions.
    states = store.look(min(keys.values()), keys).states
    return {key: (pointers[partition], states.get(key)) for key, partition in keys.items()}


def events_of(
    store: Store,
    partition: int,
    *,
    after: tuple[int, int],
    to: int,
    limit: int,
    entity_type: str | None = None,
    slices: tuple[int, int] | None = None,
    bytes_max: int | None = None,
) -> RowPage:
    """Return events of a partition by (timestamp, seq_nr), after that place, up to timestamp `to`."""
    scan, equal = (ALL_EVENTS, (partition,)) if entity_type is None else (EVENTS, (entity_type, partition))
    return store.scan(scan, equal, after=after, to=to, limit=limit, slices=slices, bytes_max=bytes_max)


def keys_of(
    store: Store, entity_type: str, *, after: str | None, limit: int, slices: tuple[int, int] | None = None
) -> list[str]:
    """Written keys with a head, by slice, then bytes, after that key; purged ones not. `slices`: lo and hi."""
    lo, hi = slices or (0, SLICES - 1)
    place = (lo, "") if after is None or slice_of(after) < lo else (slice_of(after), after)
    return [key for _, key in store.scan(KEYS, (entity_type,), after=place, to=hi, limit=limit).rows]


def keys_cut_short(store: Store, entity_type: str) -> int:
    """Return how many keys of a type have lost events to a delete or an earlier life, as far as their heads tell."""
    count, after, more = 0, (0, ""), True
    while more:
        page = store.scan(HEADS, (entity_type,), after=after, to=SLICES - 1, limit=HEADS_AT_ONCE)
        count += sum(delete_to > 0 or life > 1 for _, _, delete_to, life in page.rows)
        more = page.more and bool(page.rows)
        after = page.rows[-1][:2] if page.rows else after
    return count


def expired_keys(store: Store, *, at: int, after: tuple[int, str] | None, limit: int) -> list[tuple[int, str, int]]:
    """Return heads with expire_at <= `at`, after a place: (expire_at, written key, offset of the head), in this
    order."""
    return [tuple(row) for row in store.scan(EXPIRED, after=after, to=at, limit=limit).rows]


def entity_types_of(store: Store) -> list[str]:
    """Entity types that have a head, sorted by their bytes."""
    found: list[str] = []
    more = True
    while more:
        page = store.scan(ENTITY_TYPES, after=found[-1:] or None, limit=1000)
        found += [name for (name,) in page.rows]
        more = page.more and bool(page.rows)
    return found


def quarantined(store: Store, *, limit: int = 1000) -> list[QuarantineRow]:
    """Damaged and foreign records that are listed, by partition and offset, without their bytes."""
    found: list[QuarantineRow] = []
    more, after = True, None
    while more and len(found) < limit:
        page = store.scan(QUARANTINED, after=after, limit=limit - len(found), bytes_max=LISTED_BYTES_MAX)
        found += [row._replace(header=None, value=None) for row in page.rows]
        more = page.more and bool(page.rows)
        after = found[-1][:2] if found else None
    return found


def quarantined_at(store: Store, partition: int, offset: int) -> QuarantineRow | None:
    """Return a quarantined record, with its bytes."""
    rows = store.scan(QUARANTINED, after=(partition, offset - 1), to=partition, limit=1).rows
    return rows[0] if rows and rows[0][:2] == (partition, offset) else None


def put_back(
    store: Store, partition: int, *, after: int = 0, to: int | None = None, limit: int = 1000
) -> list[RepairedRow]:
    """Return rows of a partition that a repair or rebuild put back, in the order of their numbers, after one and up to
    one."""
    return store.scan(PUT_BACK, (partition,), after=(after,), to=to, limit=limit).rows


def snapshots_of(store: Store, key: str, life: int) -> list[tuple[int, int, int]]:
    """seq_nr, timestamp and form of each snapshot of a life, by seq_nr."""
    found: list[tuple[int, int, int]] = []
    more = True
    while more:
        page = store.scan(SNAPSHOTS, (key, life), after=found[-1][:1] if found else None, limit=1000)
        found += [tuple(row) for row in page.rows]
        more = page.more and bool(page.rows)
    return found


def last_snapshot(store: Store, key: str, life: int, *, from_: int, to: int) -> SnapshotRow | None:
    """Return the snapshot with the greatest seq_nr in `from_`..`to`."""
    rows = store.scan(LAST_SNAPSHOT, (key, life), after=(to,), to=from_, limit=1).rows
    return rows[0] if rows else None
