"""Queries by tag, as callers ask for them: what is given is checked, then a feed begins."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from strandline.errors import invalid
from strandline.journal import checks
from strandline.query.by_tag import NO_END, StrandlineTagFeed, TagFeed
from strandline.query.pointer_watch import PointerWatch
from strandline.query.stored_tags import StoredTags
from strandline.query.tag_offset import TagOffset, TagView
from strandline.query.tag_search import SearchingTagFeed
from strandline.query.tag_settings import GivenTagSettings, TagSettings
from strandline.query.times import time_us
from strandline.store.api import Store
from strandline.values.answers import Appended
from strandline.values.buckets import TIMESTAMP_END, bucket_start
from strandline.values.keys import Key

WAIT_S: Final = 0.02


class GivenTagQuery(GivenTagSettings, total=False):
    """The arguments that a caller may give beside the tag, for type checkers."""

    after: TagOffset | str | None
    from_: datetime | int | None
    to: datetime | int | None
    live: bool
    seen: Mapping[str, tuple[int, int]] | Mapping[Key, tuple[int, int]] | None


def by_tag(
    store: Store,
    watch: PointerWatch,
    tag: object,
    *,
    after: object = None,
    from_: object = None,
    to: object = None,
    live: object = False,
    seen: object = None,
    **settings: Any,
) -> TagFeed:
    """Check what a caller gives, and begin a query. Nothing is read before the first event is asked for."""
    view = TagView(checks.tag(tag), store.settings.history_id)
    checked = TagSettings.of(settings, ("after", "from_", "to", "live", "seen"))
    if after is not None and from_ is not None:
        raise invalid("offset_ambiguous", "after", "given with from_", allowed="after or from_, not both", got=after)
    start = None
    if after is not None:
        start = (after if isinstance(after, TagOffset) else TagOffset.parse(_text(after))).check(view)
    elif from_ is not None:
        start = TagOffset.before(view, _time(from_, "from_"))
    given = start is not None
    if checked.first_time_bucket != "auto":
        first = bucket_start(checked.first_time_bucket, store.settings.bucket_size)
        start = start or TagOffset.before(view, first)
    end = NO_END if to is None else _time(to, "to")
    if start is not None and end < start.timestamp:
        raise invalid("empty_range", "to", "before the start", allowed=f"{start.timestamp} or later", got=to)
    if not isinstance(live, bool):
        raise invalid("setting", "live", "not true or false", allowed="true or false", got=live, setting="live")
    source = StoredTags(store, watch, view.tag, view.history_id)
    known = _seen(seen)
    if checked.use_strandline:
        return StrandlineTagFeed(source, checked, start=start, to=end, live=live, seen=known)
    return SearchingTagFeed(source, checked, start=start, to=end, live=live, seen=known, offset_given=given)


def _text(after: object) -> str:
    if not isinstance(after, str):
        code = "offset_foreign" if hasattr(after, "timestamp") else "offset_format"
        allowed = "the offset of an event of this query, or its text"
        raise invalid(code, "after", "not an offset of this query", allowed=allowed, got=after)
    return after


def _time(value: object, field: str) -> int:
    timestamp = time_us(value, field)
    if timestamp >= TIMESTAMP_END:
        raise invalid("time_range", field, "after 9999", allowed="1970 to 9999", got=value)
    return timestamp


def _seen(given: object) -> dict[str, tuple[int, int]]:
    if given is None:
        return {}
    allowed = "{key: (life, tag_seq_nr)}"
    if not isinstance(given, Mapping):
        raise invalid("setting", "seen", "not a mapping", allowed=allowed, got=given, setting="seen")
    checked = {}
    for key, numbers in given.items():
        pair = tuple(numbers) if isinstance(numbers, (tuple, list)) else ()
        if len(pair) != 2 or not all(type(number) is int and number >= 1 for number in pair):
            raise invalid("setting", "seen", "not life and number", allowed=allowed, got=numbers, setting="seen")
        checked[str(Key.of(key))] = pair
    return checked


def wait_for_strandline(watch: PointerWatch, at: object, timeout_s: float | timedelta) -> bool:
    """Wait; return whether the strandline reaches a timestamp, or passes the append that `append` returned, in time."""
    end_s = time.monotonic() + checks.timeout_s(timeout_s)
    appended = at if isinstance(at, Appended) else None
    timestamp = appended.timestamp if appended is not None else time_us(at, "at")
    while True:
        pointers = watch.now()
        if timestamp is None and appended is not None:
            # The append is from an earlier log, which may have had more partitions: every pointer is past its offsets.
            pointer = pointers[min(appended.partition, len(pointers) - 1)]
            timestamp = pointer.timestamp if pointer.offset >= appended.offset else None
        if timestamp is not None and timestamp <= min(pointer.timestamp for pointer in pointers):
            return True
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            return False
        time.sleep(min(WAIT_S, left_s))
