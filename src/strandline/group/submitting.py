"""Recording a group: checked against its targets and handlers, into a history of its own, and at the end of the stream.

    checked and planned ──▶ `Defined` in group|<id> ──▶ entry in group_stream|<stream>

Whoever is killed in between has left a group that is never run; submitted again, it goes on from there.
"""

from __future__ import annotations

import time

from strandline.errors import GroupIdTaken, InvalidGroup, InvalidInput, SeqNrConflict, Unavailable
from strandline.group import lease as leases
from strandline.group.core.names import Problem, refusal
from strandline.group.definition import Group, hash_of
from strandline.group.history import Entry, History, defined
from strandline.group.names import group_key, stream_key
from strandline.group.open_targets import OpenTargets
from strandline.group.plan import GroupPlan, NoHandler, planned
from strandline.group.points import reached
from strandline.group.record import event_of, load
from strandline.group.settings import GroupSettings
from strandline.group.statements.api import Dialect
from strandline.journal.journal import Journal
from strandline.values.events import Event


class Submitter:
    """Puts groups into one stream. Any number of threads may use it."""

    def __init__(
        self, journal: Journal, stream: str, settings: GroupSettings, targets: OpenTargets, no_handler: NoHandler
    ) -> None:
        self._journal, self._stream, self._settings = journal, stream, settings
        self._targets, self._no_handler = targets, no_handler
        self._backlog = (0.0, 0)

    def submit(self, group: Group) -> None:
        """Record a group and put it at the end of the stream, unless it is there; returns when both are durable."""
        plan = self.plan(group)
        self._check_queue()
        tables = {
            target: {name: table.to_json() for name, table in found.items()} for target, found in plan.tables.items()
        }
        definition = group.made()
        hash_ = hash_of(definition)
        dialects = {name: self._targets.target(name).dialect for name in plan.tables}
        events = defined(definition, hash_, self._stream, tables, dialects)
        first = [event_of(Entry(n, type_, payload)) for n, (type_, payload) in enumerate(events, 1)]
        try:
            self._journal.append_reserved(group_key(group.id), first, expected=0).result()
        except SeqNrConflict:
            known = load(self._journal, group.id)
            if known is None:
                raise
            check_same(known, hash_)
            if known.stream != self._stream or known.state != "queued":
                return
        except InvalidInput as error:
            if error.code not in ("append_too_large", "event_too_large"):
                raise
            raise refusal([Problem("append_too_large", None, error.message)], group.id) from None
        reached("group.defined")
        self._journal.append_reserved(stream_key(self._stream), [Event("Submitted", {"group": group.id})]).result()
        reached("group.submitted")

    def plan(self, group: Group) -> GroupPlan:
        """Check a group against targets and handlers; one `InvalidGroup` says all that is wrong."""
        targets, dialects = self._targets, dict[str, Dialect]()
        taken: list[Problem] = []
        for name in {step.target for step in group.steps.values()} & targets.given.keys():
            if name is None:
                continue
            dialects[name] = targets.target(name).dialect
            try:
                targets.owner(name)
            except InvalidGroup as error:
                taken.append(Problem(error.code, None, f"{error.message}; {error.hint}"))
        for name in targets.given.keys() - dialects.keys():
            if any(check.target == name for step in group.steps.values() for check in step.checks):
                dialects[name] = targets.target(name).dialect
        if taken:
            raise refusal(taken, group.id)
        return planned(group, dialects, targets.tables, self._no_handler, self._settings.steps_max)

    def _check_queue(self) -> None:
        looked, behind = self._backlog
        if time.monotonic() - looked > 1.0:
            self._backlog = (time.monotonic(), behind)  # other threads take it for what it was
            head = self._journal.head(stream_key(self._stream))
            behind = (0 if head is None else head.seq_nr) - leases.said(self._journal, self._stream).done_to
            self._backlog = (time.monotonic(), behind)
        if behind > self._settings.queue_max:
            raise Unavailable(
                f"{behind:,} groups of stream {self._stream} wait; at most {self._settings.queue_max:,}",
                code="overloaded",
                hint="submit later, or run more groups at a time (parallel_groups)",
                queued=behind,
            )


def check_same(known: History, hash_: str) -> None:
    """`GroupIdTaken` if a group that is there has another definition."""
    if known.hash != hash_:
        raise GroupIdTaken(
            f"group {known.id} is another one: its definition has hash {known.hash[:16]}…, this one "
            f"{hash_[:16]}…; it is {known.state}",
            hint="give another id, or the same definition",
            group=known.id,
            stored=known.hash,
            given=hash_,
            state=known.state,
        ) from None
