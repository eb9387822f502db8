"""Named points between two durable writes, at which tests end or pause a process. Nothing happens there otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

POINTS: Final = (
    "group.defined", "group.submitted", "fence.raised", "group.taken", "group.started", "step.before", "step.done",
    "step.recorded", "intent.recorded", "step.written",
    "asked.recorded", "message.sent", "answered", "hook.queued", "hook.sent", "decided", "void.done", "undo.before",
    "undo.sent", "undo.done", "rollback.step", "undo.recorded", "ended", "progress.recorded", "stream.deleted",
    "inbox.copied",
)  # fmt: skip

told: Callable[[str], None] | None = None
"""Set by `strandline.testing`."""


def reached(point: str) -> None:
    if told is not None:
        told(point)
