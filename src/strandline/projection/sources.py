"""Where the events of a projection come from, opened: slices of an entity type, or a tag."""

from __future__ import annotations

import orjson

from strandline.projection.definition import BySlices, ByTag
from strandline.projection.tag_events import TagEvents
from strandline.query.slices import Slices
from strandline.store.api import Store
from strandline.values.ranges import Range


def opened_source(store: Store, source: BySlices | ByTag, range_: Range) -> Slices:
    """Return the events of a source in a range of slices."""
    if isinstance(source, ByTag):
        return TagEvents(store, source, range_)
    return Slices(store, source.entity_type, range_)


def tag_of(text: str) -> ByTag | None:
    """Return the tag in a source's stored text; None for a source by slices."""
    kind, name, *_ = orjson.loads(text)
    return ByTag(name) if kind == "tag" else None
