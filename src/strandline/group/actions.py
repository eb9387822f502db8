"""The actions that a decision about a group comes to: values. Whoever drives the group does what they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from strandline.group.history import Payload


@dataclass(frozen=True, slots=True)
class Note:
    """An event that follows from the history alone."""

    type: str
    payload: Payload


@dataclass(frozen=True, slots=True)
class Run:
    """Execute the statements of a segment, or of a rollback step."""

    segment: str


@dataclass(frozen=True, slots=True)
class Ask:
    """See to it that a question is asked, and that its answer comes into the history."""

    step: str
    recipe: str
    handler: str
    timeout_s: float | None
    kind: Literal["produce", "undo", "start"] = "produce"


@dataclass(frozen=True, slots=True)
class Send:
    """Tell a hook; nobody waits for it."""

    message_id: str


@dataclass(frozen=True, slots=True)
class Void:
    """Find out whether a segment ran; one that did not never will."""

    segment: str


@dataclass(frozen=True, slots=True)
class UndoSegment:
    """Put back what a segment changed."""

    segment: str


@dataclass(frozen=True, slots=True)
class Decide:
    """It is decided, in the log, that the group goes back."""

    step: str | None
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class End:
    """The group has ended, in the log."""

    end: Literal["committed", "rolled_back", "aborted"]


Action = Note | Run | Ask | Send | Void | UndoSegment | Decide | End
