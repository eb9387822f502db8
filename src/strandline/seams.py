"""Seams: the methods that metrics and traces wrap while they are on. While they are off, methods are not wrapped.

A wrapper takes a method and returns one that measures and calls it. It stands in the class instead of the method from
`wrap` to `unwrap`, so it sees every object of this process, also those that were made before. Several may wrap one
method. The methods are named here and nowhere else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Any, Final

from strandline.group.execution import Execution
from strandline.group.processor import Processor
from strandline.group.record import GroupRecord
from strandline.journal.journal import Journal
from strandline.log.committer import Committer
from strandline.pipeline.replicate import Replication
from strandline.pipeline.supervisor import Supervisor
from strandline.projection.delivery import Delivery
from strandline.projection.range_runner import RangeRunner
from strandline.work import worker
from strandline.work.claims import Claim
from strandline.work.journal import WorkJournal

Method = Callable[..., Any]
Wrapper = Callable[[Method], Method]


class Seam:
    """A method of a class, and what is wrapped around it."""

    def __init__(self, method: Method) -> None:
        owner, self._name = method.__qualname__.split(".")
        self._class = getattr(sys.modules[method.__module__], owner)
        self._found = method
        self._wrappers: list[Wrapper] = []

    def wrap(self, wrapper: Wrapper) -> None:
        """Put a wrapper around the method, outside of those that are there."""
        with _lock:
            self._wrappers.append(wrapper)
            self._put()

    def unwrap(self, wrapper: Wrapper) -> None:
        """Take a wrapper away. The last one leaves the method as it was found."""
        with _lock:
            self._wrappers.remove(wrapper)
            self._put()

    @property
    def now(self) -> Method:
        """The method that the class has now."""
        found: Method = self._class.__dict__[self._name]
        return found

    def _put(self) -> None:
        method = self._found
        for wrapper in self._wrappers:
            method = wraps(self._found)(wrapper(method))
        setattr(self._class, self._name, method)


_lock: Final = Lock()

append: Final = Seam(Journal.append)
append_future: Final = Seam(Journal.append_future)
append_many: Final = Seam(Journal.append_many)
read: Final = Seam(Journal.read)
commit: Final = Seam(Committer._commit)
"""One commit of the log."""
batch: Final = Seam(Supervisor._batch)
"""One Spark job of the pipeline."""
carried: Final = Seam(Replication.take)
"""Replication gets the result of a batch."""
pipeline_ends: Final = Seam(Supervisor._end)
"""A job of the pipeline ends with an error."""
delivery: Final = Seam(Delivery.__init__)
"""A range of a projection gets its delivery, in which the handler is wrapped."""
range_run: Final = Seam(RangeRunner._run)
"""A range runs from its claim until it is stopped, fails, or is lost."""
step: Final = Seam(Execution.executed)
"""A query of a group, or a step on a target without transactions, is executed once."""
undo: Final = Seam(Execution.undone)
segment: Final = Seam(Execution.executed_together)
"""Steps of a group in one transaction."""
recorded: Final = Seam(GroupRecord.add)
"""An event of a group's history."""
processing: Final = Seam(Processor._work)
"""A processor runs its stream, from its lease on."""
work_add: Final = Seam(WorkJournal._add)
work_claim: Final = Seam(WorkJournal.claim)
work_done: Final = Seam(WorkJournal.done_many)
work_beat: Final = Seam(WorkJournal.beat)
claim_over: Final = Seam(Claim.over)
claim_failed: Final = Seam(Claim.fail)
lane: Final = Seam(worker._Lane.__init__)
"""A worker's lane gets a journal and its handler, which is wrapped there."""
