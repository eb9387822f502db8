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
    CycleFound,
    GroupIdTaken,
    InvalidExpression,
    InvalidGroup,
    InvalidInput,
    LeaseHeld,
    LeaseLost,
    MissingEvent,
    NotFound,
    NotInvertible,
    ReadConflict,
    SchemaMismatch,
    SeqNrConflict,
    StrandlineError,
    Unavailable,
    Unsupported,
)
from strandline.group.checks import (
    affected_rows_at_least,
    affected_rows_equal,
    affected_rows_less_than,
    ask,
    is_true,
    no_exception,
    query_check,
    row_absent,
    row_exists,
)
from strandline.group.core.parts import (
    Dep,
    Handler,
    Hook,
    Need,
    Produce,
    Produced,
    Recipe,
    Refused,
    StartHandler,
    Undo,
)
from strandline.group.definition import Group
from strandline.group.groups import Groups
from strandline.group.open_targets import Target
from strandline.group.outcome import Outcome
from strandline.journal.journal import Journal
from strandline.journal.status import PartitionStatus, Status
from strandline.projection.definition import BySlices, ByTag, Projection
from strandline.projection.host import Host
from strandline.projection.management import ProjectionStatus
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
    "BySlices",
    "ByTag",
    "Conflict",
    "Corrupt",
    "CycleFound",
    "Deleted",
    "Dep",
    "Event",
    "Group",
    "GroupIdTaken",
    "Groups",
    "Handler",
    "Head",
    "Hook",
    "Host",
    "InvalidExpression",
    "InvalidGroup",
    "InvalidInput",
    "Journal",
    "Key",
    "LeaseHeld",
    "LeaseLost",
    "Marked",
    "MissingEvent",
    "Need",
    "NotFound",
    "NotInvertible",
    "Outcome",
    "PartitionStatus",
    "Priority",
    "Produce",
    "Produced",
    "Projection",
    "ProjectionStatus",
    "Purged",
    "ReadConflict",
    "Recipe",
    "RecordedEvent",
    "Recovery",
    "Refused",
    "RichOffset",
    "SchemaMismatch",
    "SeqNrConflict",
    "Settings",
    "Snapshot",
    "StartHandler",
    "Status",
    "Strandline",
    "StrandlineError",
    "Target",
    "Unavailable",
    "Undo",
    "Unsupported",
    "WorkDeclaration",
    "WorkJournal",
    "Worker",
    "__version__",
    "affected_rows_at_least",
    "affected_rows_equal",
    "affected_rows_less_than",
    "ask",
    "connect",
    "is_true",
    "no_exception",
    "query_check",
    "ranges",
    "row_absent",
    "row_exists",
    "slice_of",
]
