"""Drafts, and what a log shows: what the parts of the suite share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, TypeVar

from strandline.log.api import ActionDraft, Log
from strandline.log.cursor import PartitionCursor
from strandline.record import Content, Record, content_digest, decode_header, encode_header, encode_value
from strandline.values.actions import Action, Append, Delete, Mark, Purge
from strandline.values.heads import Head
from strandline.values.keys import key_partition
from strandline.values.payloads import encode

Opened = Callable[..., Log]
T = TypeVar("T")
PARTITIONS = 4
KEY = "order|42"
HOUR_US = 3600 * 10**6
_ids = count(1)


def draft_of(
    key: str,
    *payloads: Any,
    partitions: int = PARTITIONS,
    append_id: str | None = None,
    headers: dict[str, str] | None = None,
    **fields: Any,
) -> ActionDraft:
    """An Append of one event per payload ("one" if there is none), on its way to the partition of its key."""
    contents = [Content(*encode(payload), None) for payload in payloads or ("one",)]
    events = tuple([(f"type-{index}", ()) for index in range(len(contents))])
    value = encode_value(contents)
    digest = content_digest(events, headers, value)
    action = Append(
        key, events, append_id or f"f{next(_ids):031x}", append_id is not None, digest, headers=headers, **fields
    )
    return ActionDraft(key_partition(key, partitions), action, encode_header(action), value)


def draft_with(action: Action, partition: int | None = None, partitions: int = PARTITIONS) -> ActionDraft:
    """Any other action, to the partition of its key or to a given one."""
    key = action.key
    if partition is None:
        if key is None:
            raise ValueError("an action without a key needs a partition")
        partition = key_partition(key, partitions)
    return ActionDraft(partition, action, encode_header(action))


def mark_in(partition: int, *, at_least: int | None = None, key: str | None = None) -> ActionDraft:
    """A Mark."""
    return draft_with(Mark(key, f"mark-{next(_ids)}", at_least), partition)


def delete_of(key: str, to: int, life: int | None = None) -> ActionDraft:
    """A Delete."""
    return draft_with(Delete(key, to, life))


def purge_of(key: str, if_offset: int | None = None) -> ActionDraft:
    """A Purge."""
    return draft_with(Purge(key, if_offset))


def partition_for(key: str) -> int:
    """Where a key's actions go."""
    return key_partition(key, PARTITIONS)


def keys_in(partition: int, number: int) -> list[str]:
    """Some keys of a partition."""
    candidates = (f"order|{index}" for index in count())
    found = (key for key in candidates if partition_for(key) == partition)
    return [next(found) for _ in range(number)]


def head_of(log: Log, key: str) -> Head | None:
    """The head that the log has for a key: of a Delete that is void, and so changes nothing."""
    (answer,) = log.append([delete_of(key, 1, life=2**62)])
    return answer.state if isinstance(answer.state, Head) else None


def everything(log: Log, partition: int, *, page: int = 1000) -> list[Record]:
    """All records of a partition, read page by page."""
    records: list[Record] = []
    after = log.oldest()[partition] - 1
    while True:
        found = log.read(partition, after=after, limit=page)
        records += found.records
        if found.position == after + 1:
            return records
        after = found.position - 1


def timed(log: Log, partition: int) -> list[Record]:
    """All records of a partition that was never trimmed, with the timestamps that all readers see."""
    cursor = PartitionCursor(log, partition, -1, 0)
    records: list[Record] = []
    while found := cursor.read(to=2**62, limit=1000):
        records += found
    return records


def in_threads(work: Callable[[int], T], number: int) -> list[T]:
    """Return the results of the work in so many threads at once, by their number."""
    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(work, range(number)))


def kinds(records: Sequence[Record]) -> list[str]:
    """Return the kind of action of each record, by its header."""
    return [type(decode_header(record.header)).__name__ for record in records]
