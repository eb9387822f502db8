"""The actions that a decision about a group may consist of, as values. The group's driver carries them out."""

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
    """Ask a question and bring its answer into the history."""

    step: str
    recipe: str
    handler: str
    timeout_s: float | None
    kind: Literal["produce", "undo", "start"] = "produce"


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to a hook. The group does not wait for it."""

    message_id: str


@dataclass(frozen=True, slots=True)
class Void:
    """Find out whether a segment ran. If it did not run, this makes sure that it never will."""

    segment: str


@dataclass(frozen=True, slots=True)
class UndoSegment:
    """Put back what a segment changed."""

    segment: str


@dataclass(frozen=True, slots=True)
class Decide:
    """Record in the log that the group goes back."""

    step: str | None
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class End:
    """Record in the log that the group has ended."""

    end: Literal["committed", "rolled_back", "aborted"]


Action = Note | Run | Ask | Send | Void | UndoSegment | Decide | End
