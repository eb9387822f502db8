"""Queries by slices, as callers ask for them: arguments are checked, then a feed begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from strandline.errors import invalid
from strandline.journal import checks
from strandline.query.by_slices import SliceFeed, StrandlineSliceFeed
from strandline.query.filter import Filter
from strandline.query.pointer_watch import PointerWatch
from strandline.query.rich_offset import RichOffset
from strandline.query.settings import GivenSliceSettings, SliceSettings
from strandline.query.slice_search import SearchingSliceFeed
from strandline.query.slices import Slices
from strandline.query.times import time_us
from strandline.store.api import Store
from strandline.values.ranges import Range


class GivenSliceQuery(GivenSliceSettings, total=False):
    """The arguments that a caller may give beside the slices, for type checkers."""

    after: RichOffset | str | None
    from_: datetime | int | None
    to: datetime | int | None
    live: bool
    filter: Filter | Mapping[str, Iterable[str]] | None


def by_slices(
    store: Store,
    watch: PointerWatch,
    entity_type: object,
    lo: object,
    hi: object,
    *,
    after: object = None,
    from_: object = None,
    to: object = None,
    live: object = False,
    filter: object = None,  # noqa: A002 (the name that callers give)
    **settings: Any,
) -> SliceFeed:
    """Check the arguments and begin a query. The store is not read before the first event is asked for."""
    type_, range_ = checks.entity_type(entity_type), Range.of(lo, hi)
    history = store.settings.history_id
    if after is not None and from_ is not None:
        raise invalid("offset_ambiguous", "after", "given with from_", allowed="one of after and from_", got=after)
    start = RichOffset(type_, history, 0 if from_ is None else time_us(from_, "from_"))
    if after is not None:
        start = RichOffset.checked(after, type_, history)
    end = None if to is None else time_us(to, "to")
    if end is not None and end < start.timestamp:
        raise invalid("empty_range", "to", "below the start", allowed=f"{start.timestamp} or later", got=to)
    if not isinstance(live, bool):
        raise invalid("setting", "live", "not true or false", allowed="true or false", got=live)
    checked = SliceSettings.of(settings, ("after", "from_", "to", "live", "filter"))
    chosen = Filter.of(filter)
    slices = Slices(store, type_, range_)
    if checked.use_strandline:
        return StrandlineSliceFeed(slices, watch, start, to=end, live=live, chosen=chosen, settings=checked)
    return SearchingSliceFeed(
        slices, watch, start, to=end, live=live, chosen=chosen, settings=checked, resumed=after is not None
    )
