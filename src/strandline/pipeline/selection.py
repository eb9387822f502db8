"""The events that a read of the format `strandline` wants: its options and filters, as one value.

Log and store are asked by a partition's slices, times and one entity type. All other conditions are applied here, event
by event, before rows go to Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import InvalidInput, invalid, shown
from strandline.journal.replay import LAST, Wanted
from strandline.pipeline.columns import ARROW_SCHEMA, record_batch
from strandline.pipeline.target import JournalRef
from strandline.settings import parse_setting
from strandline.values.events import EventRow
from strandline.values.keys import SLICES, Key, partition_of, slice_of

BATCH_OPTIONS = (
    "url", "log", "store", "entity_type", "keys", "slices", "from", "to", "types", "tags", "tail", "tasks",
)  # fmt: skip
STREAM_OPTIONS = (
    "url", "log", "store", "entity_type", "slices", "from", "to", "types", "tags", "start", "rows_max",
)  # fmt: skip
ALL_COLUMNS: Final = tuple(ARROW_SCHEMA.names)
KEYS_MAX: Final = 1000
"""Up to this many keys are read one by one; for more keys their slices are read."""


@dataclass(frozen=True)
class Selection:
    """The events that are wanted, and the journal that has them. A set of texts selects events that have any of these;
    None selects all.
    """

    target: JournalRef
    entity_type: str | None = None
    lo: int = 0
    hi: int = SLICES - 1
    from_: int = 0
    to: int = LAST
    """Exclusive."""
    tail: bool = True
    tasks: int = 1
    start: str = "earliest"
    rows_max: int | None = None
    keys: frozenset[str] | None = None
    types: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    entity_types: frozenset[str] | None = None
    slices: frozenset[int] | None = None
    columns: tuple[str, ...] = ALL_COLUMNS

    @classmethod
    def of(cls, options: Mapping[str, str], known: Sequence[str], columns: Sequence[str] = ALL_COLUMNS) -> Selection:
        """Return options as Spark hands them over: text, whatever the case of their names."""
        given, target = known_options(options, known)
        lo, hi = _slices(given.get("slices", f"0-{SLICES - 1}"))
        chosen = cls(
            target,
            given.get("entity_type"),
            lo,
            hi,
            _time(given.get("from"), "from", 0),
            _time(given.get("to"), "to", LAST),
            _one_of(given, "tail", ("true", "false")) == "true",
            _count(given.get("tasks", "1"), "tasks", 1024),
            _one_of(given, "start", ("earliest", "latest")),
            _count(given["rows_max"], "rows_max", LAST) if "rows_max" in given else None,
            types=_texts(given, "types"),
            tags=_texts(given, "tags"),
            columns=tuple(columns),
        )
        keys = _texts(given, "keys")
        return chosen if keys is None else chosen.of_keys(str(Key.of(key)) for key in keys)

    def of_keys(self, keys: Any) -> Selection:
        """Return the selection of these keys' events alone, if they are wanted at all."""
        wanted = frozenset(keys) if self.keys is None else self.keys & frozenset(keys)
        slices = [slice_of(key) for key in wanted] or [SLICES]
        return replace(self, keys=wanted, lo=max(self.lo, min(slices)), hi=min(self.hi, max(slices)))

    @property
    def is_empty(self) -> bool:
        """Return whether no event can be in it."""
        sets = (self.keys, self.types, self.tags, self.entity_types, self.slices)
        return self.lo > self.hi or self.from_ >= self.to or any(wanted is not None and not wanted for wanted in sets)

    @property
    def by_key(self) -> bool:
        """Return whether its keys are so few that each is read by itself."""
        return self.tail and self.keys is not None and len(self.keys) <= KEYS_MAX

    def partitions(self, partitions: int) -> list[int]:
        """Return the partitions of a log that have some of the wanted slices."""
        if self.is_empty:
            return []
        return list(range(partition_of(self.lo, partitions), partition_of(self.hi, partitions) + 1))

    def wanted(self, partition: int, cut: int, after: int, to: int) -> Wanted:
        """Return the selection as a replay takes it, after one timestamp and up to another."""
        from_, to = max(after + 1, self.from_), min(to, self.to - 1)
        return Wanted(partition, cut, from_, to, (self.lo, self.hi), self.entity_type)

    def batch(self, rows: Sequence[EventRow]) -> pa.RecordBatch | None:
        """Return the events of these rows that are wanted, as columns; None if there are none."""
        kept = [row for row in rows if self._has(row)] if self._judges_rows else rows
        if not kept:
            return None
        batch = record_batch(kept, payloads="payload" in self.columns)
        for mask in self._masks(batch):
            batch = batch.filter(mask)
        if self.columns != ALL_COLUMNS:
            batch = batch.select(list(self.columns))
        return batch if batch.num_rows else None

    @property
    def _judges_rows(self) -> bool:
        return not (self.keys is None and self.entity_types is None and self.slices is None)

    def _has(self, row: EventRow) -> bool:
        return (
            (self.keys is None or row.key in self.keys)
            and (self.entity_types is None or row.entity_type in self.entity_types)
            and (self.slices is None or row.slice in self.slices)
        )

    def _masks(self, batch: pa.RecordBatch) -> Iterator[pa.Array]:
        """Yield one mask of rows for types and tags, which are in the bodies of events; none if all are wanted."""
        if self.types is not None and self.tags is not None:
            yield pc.and_(_any_type(batch, self.types), _any_tag(batch, self.tags))
        elif self.types is not None:
            yield _any_type(batch, self.types)
        elif self.tags is not None:
            yield _any_tag(batch, self.tags)


def _any_type(batch: pa.RecordBatch, types: frozenset[str]) -> pa.Array:
    return pc.is_in(batch.column("type"), pa.array(sorted(types), pa.string()))


def _any_tag(batch: pa.RecordBatch, tags: frozenset[str]) -> pa.Array:
    listed = batch.column("tags")
    found = pc.is_in(listed.flatten(), pa.array(sorted(tags), pa.string()))
    having = pc.unique(pc.list_parent_indices(listed).filter(found))
    return pc.is_in(pa.array(range(batch.num_rows), having.type), having)


# ---------------------------------------------------------------- options


def known_options(options: Mapping[str, str], known: Sequence[str]) -> tuple[dict[str, str], JournalRef]:
    """Return options by their names in lower case, and the log and store that they name; refuse unknown options."""
    given = {name.lower(): value for name, value in options.items()}
    settings = {}
    for name in sorted(given.keys() - set(known)):
        if not name.startswith("set."):
            raise bad_option(name, "unknown option", ", ".join(known), given[name])
        settings[name[4:]] = parse_setting(name[4:], given[name])
    return given, JournalRef(given.get("url"), given.get("log"), given.get("store"), settings)


def bad_option(name: str, wrong: str, allowed: str, got: object) -> InvalidInput:
    return invalid("option", f"option {shown(name, 40)}", wrong, allowed=allowed, got=got)


def _texts(given: Mapping[str, str], name: str) -> frozenset[str] | None:
    """Return one text, or several as a JSON list: a key may have any character in it."""
    text = given.get(name)
    if text is None or not text.lstrip().startswith("["):
        return None if text is None else frozenset([text])
    try:
        listed = orjson.loads(text)
    except ValueError:
        listed = None
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise bad_option(name, "not a list of texts", 'one text, or a JSON list of texts, such as ["a", "b"]', text)
    return frozenset(listed)


def _one_of(given: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = given.get(name, allowed[0]).lower()
    if value not in allowed:
        raise bad_option(name, "unknown value", " or ".join(allowed), value)
    return value


def _count(text: str, name: str, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
        raise bad_option(name, "not a number in range", f"1..{most}", text)
    return int(text)


def _slices(text: str) -> tuple[int, int]:
    lo, dash, hi = text.partition("-")
    numbers = [part for part in (lo, hi if dash else lo) if part.isascii() and part.isdigit()]
    if len(numbers) != 2 or not 0 <= int(numbers[0]) <= int(numbers[1]) < SLICES:
        raise invalid("slice_range", "slices", "not a run of slices", allowed=f"lo-hi within 0-{SLICES - 1}", got=text)
    return int(numbers[0]), int(numbers[1])


def _time(text: str | None, name: str, default: int) -> int:
    if text is None:
        return default
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise invalid("time_format", name, "not a time", allowed="ISO 8601 with a zone", got=text) from None
    if time.tzinfo is None:
        raise invalid("time_without_zone", name, "no zone", allowed="a time with a zone, such as …Z", got=text)
    if time.year < 1970:
        raise invalid("time_range", name, "before 1970", allowed="1970 to 9999", got=text)
    delta = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
