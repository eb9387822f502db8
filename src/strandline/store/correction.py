"""A correction of a partition: rows to remove and to write, a head, and one record to take off the quarantine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from strandline.rows import Pointer
from strandline.store.tables import Table
from strandline.store.views import Row
from strandline.values.events import EventRow
from strandline.values.heads import Head


class Correction(NamedTuple):
    """The rows that a correction takes out and writes."""

    resolved: int | None = None
    """The offset of the record that leaves the quarantine."""
    remove: Sequence[EventRow] = ()
    replace: Sequence[EventRow] = ()
    head: tuple[str, Head] | None = None
    anew: Mapping[Table, Sequence[Row]] = {}
    """Rows of views that take the place of others, because they have more to say than their events."""
    gone: Mapping[Table, Sequence[Row]] = {}
    """Rows of views to remove."""


Amend = Callable[[Pointer, Correction], None]
"""Applies a correction, under the pointer's lock where there is one. Without transactions each row is written once.

`Unavailable.serialization` if the partition moved since the pointer was seen. Raises the pointer's revision.
"""
