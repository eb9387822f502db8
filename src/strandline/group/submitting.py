"""Records a group: checks it against targets and handlers, begins its history, and puts it at the end of the stream.

    checked and planned ──▶ `Defined` in group|<id> ──▶ entry in group_stream|<stream>

A process that is killed between these two appends leaves a group that never runs. A second submit completes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final, NamedTuple

import orjson

from strandline.errors import GroupIdTaken, InvalidGroup, InvalidInput, SeqNrConflict, StrandlineError, Unavailable
from strandline.group import lease as leases
from strandline.group.advance import place_of
from strandline.group.core.names import Problem, is_id, refusal
from strandline.group.definition import Group, hash_of
from strandline.group.history import History, HistoryEvent, defined
from strandline.group.in_process import InProcess, Slip
from strandline.group.names import group_key, stream_key
from strandline.group.open_targets import OpenTargets, SharedLook
from strandline.group.plan import GroupPlan, NoHandler, shape_of
from strandline.group.planning import planned
from strandline.group.points import reached
from strandline.group.record import event_of, load
from strandline.group.settings import GroupSettings
from strandline.group.statements.api import Dialect
from strandline.group.stored_plan import SHAPE_BYTES_MAX, stored
from strandline.journal.journal import Journal
from strandline.values.events import Event

SHAPES_MAX: Final = 256


class _Right(NamedTuple):
    """The plan of a definition in which nothing is wrong."""

    plan: GroupPlan
    stored: dict[str, Any]
    targets: frozenset[str]
    look: SharedLook[str | None]
    """It names a table that is not what the plan rests on any more."""


class _Checked(NamedTuple):
    """A group in which nothing is wrong."""

    definition: dict[str, Any]
    hash: str
    stored: dict[str, Any]
    """Its plan as JSON."""
    targets: frozenset[str]
    plan: GroupPlan | None = None
    """Its plan as a processor runs it, where that was made on the way."""


class Submitter:
    """Puts groups into one stream. Any number of threads may use it."""

    def __init__(
        self,
        journal: Journal,
        stream: str,
        settings: GroupSettings,
        targets: OpenTargets,
        no_handler: NoHandler,
        near: InProcess,
    ) -> None:
        self._journal, self._stream, self._settings = journal, stream, settings
        self._targets, self._no_handler, self._near = targets, no_handler, near
        self._right: dict[bytes, _Right] = {}
        """The plans of groups in which nothing was wrong, by shape."""
        self._backlog = (0.0, 0)
        self._entries = journal.follower(stream_key(stream))

    def submit(self, group: Group) -> bool:
        """Record a group and put it at the end of the stream; return whether that was still to be done.

        Returns when both are durable.
        """
        try:
            checked = self._checked(group)
        except StrandlineError:  # tables have changed, or a target is away: what was submitted stays so
            if not self._is_defined(group):
                raise
            reached("group.submitted_again_unchecked")
            return False
        self._check_queue()
        slip = self._near.expect(group.id)
        try:
            submitted = self._define(checked, slip)
            if submitted:
                reached("group.defined")
                entry = Event("Submitted", {"group": group.id})
                self._journal.append_reserved(stream_key(self._stream), [entry])
                reached("group.submitted")
        except BaseException:
            self._near.forget(group.id)
            raise
        return submitted

    def _is_defined(self, group: Group) -> bool:
        """Return whether a group that cannot be checked now is in its stream already."""
        known = load(self._journal, group.id) if is_id(group.id) and not group.slips else None
        if known is None or known.hash != hash_of(group.made()):
            return False
        if known.stream != self._stream or known.state != "queued":
            return True
        told = leases.said(self._journal, self._stream)  # its submitter may have died between the two appends
        return place_of(self._journal, self._stream, group.id, told) is not None

    def _define(self, checked: _Checked, slip: Slip) -> bool:
        """Begin a history; return whether the group, then or before, was defined for this stream and has not begun."""
        id_ = slip.id
        dialects = {name: self._targets.target(name).dialect for name in checked.targets}
        identities = {name: self._targets.owner(name).identity for name in checked.targets}
        head = {"hash": checked.hash, "stream": self._stream, "dialects": dialects, "identities": identities}
        events = defined(checked.definition, checked.stored, **head)
        entries = [HistoryEvent(n, type_, payload) for n, (type_, payload) in enumerate(events, 1)]
        try:
            noted = self._journal.append_reserved(group_key(id_), [*map(event_of, entries)], expected=0)
        except SeqNrConflict:
            self._near.forget(id_)
            known = load(self._journal, id_)
            if known is None:
                raise
            check_same(known, checked.hash)
            reached("group.submitted_again")
            return known.stream == self._stream and known.state == "queued"
        except InvalidInput as error:
            if error.code not in ("append_too_large", "event_too_large"):
                raise
            raise refusal([Problem("append_too_large", None, error.message)], id_) from None
        self._near.define(slip, noted.life, entries, checked.plan)
        return True

    def _checked(self, group: Group) -> _Checked:
        """Return what a history begins with, of a group in which nothing is wrong."""
        try:
            definition = group.made()
            shape = orjson.dumps(shape_of(definition))
        except Exception:  # noqa: BLE001 (something is wrong with it, which is told with all the rest)
            shape = b""
        right = self._right.get(shape)
        if right is not None and is_id(group.id) and not group.slips and self._still(right):
            reached("group.checked_by_its_shape")
            # All texts were checked with the first group of this shape, and values are encoded.
            plan = right.plan.with_values(definition).placed(self._identities(right.targets))
            made = {**right.stored, **plan.made_order()}
            return _Checked(definition, sha256(orjson.dumps(definition)).hexdigest(), made, right.targets, plan)
        plan = self.plan(group)
        look = SharedLook(lambda: self._targets.changed_table(plan.tables))
        right = _Right(plan, stored(plan), plan.targets, look)
        if 0 < len(shape) <= SHAPE_BYTES_MAX:
            if len(self._right) >= SHAPES_MAX:
                self._right.clear()
            self._right[shape] = right
        definition = group.made()
        return _Checked(definition, hash_of(definition), {**right.stored, **plan.made_order()}, right.targets)

    def _identities(self, targets: Iterable[str]) -> dict[str, str]:
        """Return the identities of these targets, where two names lead to one database."""
        found = {name: self._targets.owner(name).identity for name in targets}
        return found if len(set(found.values())) < len(found) else {}

    def _still(self, right: _Right) -> bool:
        """Return whether a definition that was valid before is still valid with the present tables and handlers."""
        try:
            for target in right.targets:
                self._targets.owner(target)
        except InvalidGroup:
            return False
        return right.look.now() is None and not any(map(self._no_handler, right.plan.handlers))

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
        settings = self._settings
        tables, no_handler = targets.tables, self._no_handler
        return planned(
            group, dialects, tables, no_handler, settings.steps_max, settings.barrier_keep_s,
            self._identities({step.target for step in group.steps.values() if step.target} & dialects.keys()),
        )  # fmt: skip

    def _check_queue(self) -> None:
        looked, behind = self._backlog
        if time.monotonic() - looked > 1.0:
            self._backlog = (time.monotonic(), behind)  # other threads use the old figure meanwhile
            head = self._entries.head()
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
    """Raise `GroupIdTaken` if a group that is there has another definition."""
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
