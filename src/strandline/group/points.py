"""The crash points of event groups: between two durable writes, where tests end or pause a process."""

from __future__ import annotations

from typing import Final

from strandline.points import reached

__all__ = ["POINTS", "reached"]

POINTS: Final = (
    "group.defined", "group.submitted", "fence.raised", "group.taken", "group.started", "step.before", "step.done",
    "step.recorded", "intent.recorded", "step.written",
    "asked.recorded", "message.sent", "answered", "hook.queued", "hook.sent", "decided", "void.done", "undo.before",
    "undo.sent", "undo.done", "rollback.step", "undo.recorded", "ended", "progress.recorded", "stream.deleted",
    "inbox.copied",
)  # fmt: skip
