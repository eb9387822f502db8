"""Strandline: an event journal for Python.

s = strandline.connect("sqlite:orders")
s.journal.append(Key("order", "42"), [Event("OrderPlaced", {"total": 99})])
for event in s.journal.read(Key("order", "42")): ...

`strandline.pipeline`, which runs on Spark, is loaded when it is used.
"""

import typing as _typing

from strandline.connect import Strandline, connect
from strandline.errors import (
    Conflict,
    Corrupt,
    InvalidInput,
    LeaseHeld,
    LeaseLost,
    MissingEvent,
    NotFound,
    ReadConflict,
    SchemaMismatch,
    SeqNrConflict,
    StrandlineError,
    Unavailable,
    Unsupported,
)
from strandline.journal.journal import Journal
from strandline.journal.status import PartitionStatus, Status
from strandline.query.rich_offset import RichOffset
from strandline.settings import Settings
from strandline.values.answers import KEEP, Appended, Deleted, Marked, Purged, Recovery, Snapshot
from strandline.values.events import Event, RecordedEvent
from strandline.values.heads import Head
from strandline.values.keys import Key, slice_of
from strandline.values.ranges import ranges
from strandline.work.declaration import WorkDeclaration
from strandline.work.entries import Priority
from strandline.work.journal import WorkJournal
from strandline.work.worker import Worker

__version__ = "0.1.0"

if _typing.TYPE_CHECKING:
    from strandline import pipeline as pipeline
else:

    def __getattr__(name: str) -> object:
        if name != "pipeline":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return import_module(f"{__name__}.{name}")


__all__ = [
    "KEEP",
    "Appended",
    "Conflict",
    "Corrupt",
    "Deleted",
    "Event",
    "Head",
    "InvalidInput",
    "Journal",
    "Key",
    "LeaseHeld",
    "LeaseLost",
    "Marked",
    "MissingEvent",
    "NotFound",
    "PartitionStatus",
    "Priority",
    "Purged",
    "ReadConflict",
    "RecordedEvent",
    "Recovery",
    "RichOffset",
    "SchemaMismatch",
    "SeqNrConflict",
    "Settings",
    "Snapshot",
    "Status",
    "Strandline",
    "StrandlineError",
    "Unavailable",
    "Unsupported",
    "WorkDeclaration",
    "WorkJournal",
    "Worker",
    "__version__",
    "connect",
    "ranges",
    "slice_of",
]
