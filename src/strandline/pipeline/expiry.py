"""Expiry: purge the keys whose time has passed.

Every key whose stored head has an expiry in the past gets a Purge. The Purge is void if anything was recorded for the
key since that head. So a key that was revived stays, even if that is not carried yet, and purging twice is harmless.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from strandline.connect import Strandline
from strandline.fold import LifePurged
from strandline.log.api import ActionDraft
from strandline.log.cursor import PartitionCursor
from strandline.pipeline.target import JournalRef
from strandline.record import encode_header
from strandline.store.scans import expired_keys
from strandline.values.actions import Mark, Purge
from strandline.values.keys import Key

PAGE = 1000


def purge_expired(
    url: str | None = None,
    *,
    log: str | None = None,
    store: str | None = None,
    dry_run: bool = False,
    **settings: Any,
) -> list[Key]:
    """Purge expired keys, and return them. With `dry_run` they are only listed."""
    with JournalRef(url, log, store, {"schema": "check", **settings}).connect() as s:
        pages = _expired(s, _log_time(s))
        return [Key.of(key) for page in pages for key in (dict(page) if dry_run else _purge(s, page))]


def _log_time(s: Strandline) -> int:
    """Return the time of the log's clock: the timestamp of a Mark, which changes nothing."""
    mark = Mark(None, uuid.uuid4().hex)
    (recorded,) = s.log.append([ActionDraft(0, mark, encode_header(mark))])
    place = recorded.place
    if place is None:
        return 0
    if s.log.exact:
        return place.timestamp
    pointer = s.store.pointers()[0]
    cursor = PartitionCursor(s.log, 0, pointer.offset, pointer.timestamp)
    while cursor.offset < place.offset:
        cursor.read(to=place.offset, limit=PAGE, values=False)
    return cursor.timestamp


def _expired(s: Strandline, at: int) -> Iterator[list[tuple[str, int]]]:
    after = None
    while page := expired_keys(s.store, at=at, after=after, limit=PAGE):
        yield [(key, offset) for _, key, offset in page]
        after = page[-1][0], page[-1][1]


def _purge(s: Strandline, page: list[tuple[str, int]]) -> list[str]:
    drafts = []
    for key, offset in page:
        purge = Purge(key, if_offset=offset)
        drafts.append(ActionDraft(Key.of(key).partition(s.log.partitions), purge, encode_header(purge)))
    answers = s.journal.record(drafts)
    return [key for (key, _), answer in zip(page, answers, strict=True) if isinstance(answer.effect, LifePurged)]
