"""Something else than the pipeline that writes a store: events at times of its own choice, with their heads."""

from __future__ import annotations

from strandline import Key
from strandline.connect import Strandline
from strandline.rows import KeyRun, PartitionBatch
from strandline.store.scans import look_at
from strandline.store.views import add_rows
from strandline.values.events import EventRow, Life, bodies
from strandline.values.heads import Head
from strandline.values.keys import key_partition
from strandline.values.payloads import JSON


def written(s: Strandline, key: Key | str, seq_nr: int, timestamp: int, *, payload: bytes = b"") -> EventRow:
    """The row of an event, stamped so."""
    life = Life(str(key), 1)
    partition = key_partition(str(key), s.store.settings.partitions)
    content = (JSON, payload or b'{"n":%d}' % seq_nr, None)
    event = (("Placed", ("blue",)), content)
    (cells,) = bodies(seq_nr, seq_nr - 1, (partition, 0, timestamp), bytes(16), None, [event], life.seed)
    return EventRow.of(life, s.store.settings.segment_size, cells)


def head_after(s: Strandline, row: EventRow) -> Head:
    """The head of its key, once it is there."""
    _, before = look_at(s.store, row.key, row.partition)
    newest = max(row.seq_nr, before.seq_nr if isinstance(before, Head) else 0)
    size, at = s.store.settings.segment_size, row.timestamp
    return Head(newest, 0, 1, row.partition, 0, at, at, None, None, size, 0, newest, 0, (), None)


def write(s: Strandline, key: Key | str, seq_nr: int, timestamp: int, *, payload: bytes = b"") -> None:
    """Write an event and its head. The pointer's time does not move: it is not the pipeline's."""
    row = written(s, key, seq_nr, timestamp, payload=payload)
    head, seen = head_after(s, row), s.store.pointers()[row.partition]
    cut = KeyRun(row.key, head, timestamp, events=[row])
    batch = PartitionBatch(seen._replace(offset=seen.offset + 1), cuts=[cut], states={row.key: head})
    add_rows(batch, s.store.views, {})
    s.store.write(batch, seen)
