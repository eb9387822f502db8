"""A processor's time with the lease: it runs groups in order, and side by side where their rows allow it.

    stream ──▶ admitted, in order ──▶ waiting for rows ──▶ running ──▶ ended, or waiting for an operator
                 (1,000 ahead)          (`rows`)            (`parallel_groups` at a time)

A stream has one such processor, by a lease. A processor that takes over first raises the fence in every target
(`fences`), so that its predecessor cannot commit there any more. Then it takes the predecessor's groups over (`Taken`)
and continues them. A target that is away holds up its own groups, and those behind them on their rows; they keep their
places in line.

    threads    the caller's: the loop, which reads stream and inbox and has the timers
               a pool, for whatever asks a database: statements, appends of groups (`driver`), fences
               those of `handlers`, for whatever may wait: handlers, messages to others, news in the log
               one for the beat of the lease, which waits for nothing else
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Final

from strandline.errors import InvalidGroup, StrandlineError, Unavailable
from strandline.group import lease as leases
from strandline.group.advance import LOOK_AHEAD, TICK_S, Advance
from strandline.group.driver import Drive, Shared, Work
from strandline.group.execution import OpenTarget
from strandline.group.fences import Fences
from strandline.group.handlers import HandlerAnswer, Handlers
from strandline.group.history import ENDS, History
from strandline.group.holding import still_held
from strandline.group.inbox import Inbox, Message
from strandline.group.lease import StreamPlace
from strandline.group.log_news import follow
from strandline.group.mail import WORK, box_of, code_named
from strandline.group.plan import GroupPlan
from strandline.group.record import GroupRecord, load_all
from strandline.group.rows import RowQueues
from strandline.group.run_line import RunLine
from strandline.group.statements.api import Held
from strandline.group.timers import Due, Timers
from strandline.group.times import Times

if TYPE_CHECKING:
    from strandline.group.processor import Processor

BEHIND_MAX: Final = 100
SEGMENTS: Final = True
"""Tests compare segments with the same groups of which each step is a segment of its own."""
PAUSE_S: Final = 0.02
"""While groups run, news within this time is handled together."""
_logger: Final = logging.getLogger("strandline.group")


class Turn:
    """A processor's time with the lease. It is the host of its groups."""

    def __init__(self, processor: Processor, lease: leases.StreamLease, pool: ThreadPoolExecutor) -> None:
        self._processor, self._lease, self._pool = processor, lease, pool
        self._groups, self._settings = processor._groups, processor._settings
        self._journal, self._changed, self._near = processor._journal, processor._changed, self._groups.near
        self._targets: dict[str, OpenTarget] = {}
        """The targets that are there, as far as the loop has seen it."""
        self._handlers = self._groups.calls = Handlers(self._groups.handlers, self._groups.stream)
        clock, settings = self._groups.clock, self._settings
        self._times = Times(lease, clock)
        self._open: dict[str, Drive] = {}
        self._fences = Fences(self._groups, lease, lambda: list(self._open), self._submit, self.later, self.changed)
        self._shared = Shared(
            self._journal, settings, self._fences.there,
            self._handlers, self._groups.box, lease, clock, self._times, self,
        )  # fmt: skip
        self._done: dict[str, Drive] = {}
        """The open groups that have ended; hooks may be under way."""
        self._untaken: dict[str, Drive] = {}
        """Groups that the processor before may have begun, and that are not taken over."""
        self._taking: set[str] = set()
        self._due: deque[Due] = deque()
        """Timers whose time has come. They wait while the log is away."""
        self._advance = Advance(self._journal, lease)
        self._rows = RowQueues()
        self._line = RunLine(settings.parallel_groups)
        self._held_up: list[Drive] = []
        """Groups whose rows are free, but a target is away, or nobody serves their code."""
        self._looked = 0.0
        self._inbox = Inbox(self._journal, self._groups.stream)
        self._woken = True
        self._news = True
        """Set when stream or inbox may have new entries."""
        self._timers = Timers()
        self._error: BaseException | None = None
        self._follower: Future[HandlerAnswer] | None = None
        self._ending = False
        self._begun = False

    # ------------------------------------------------------------ the host of groups

    def submit(self, drive: Drive, work: Work | None) -> None:
        """Call `drive.go(work)` in a thread of the pool."""
        self._submit(lambda: self._work(drive, work))

    def _submit(self, work: Work) -> None:
        try:
            self._pool.submit(work)
        except RuntimeError:  # the turn is over: the next processor finds this news
            _logger.info("stream %s: something came after the end", self._groups.stream)

    def _work(self, drive: Drive, work: Work | None) -> None:
        """Go on with a group, then with other groups in the same thread, which saves waking another thread."""
        drive.go(work)
        while (one := self._next_here()) is not None:
            one.begin_here()

    def wake(self, drive: Drive, seconds: float) -> None:
        """Call `drive.woken()` after a while, if the group is still open."""
        self._after(seconds, drive.id)

    def later(self, seconds: float, call: Work) -> None:
        """Call this after a while. It must not take long."""
        self._after(seconds, call)

    def _after(self, seconds: float, due: Due) -> None:
        if self._timers.after(seconds, due) and seconds < TICK_S:
            self.changed()

    def entered(self, drive: Drive) -> None:
        """Note that a thread works on a group from now on. The caller holds the group's lock."""
        with self._changed:
            self._line.busy.add(drive.id)

    def left(self, drive: Drive) -> None:
        """Note that no thread works on a group: it waits, is put aside, or has ended. The caller
        holds the group's lock.
        """
        with self._changed:
            self._line.left(drive)
            if self._line.is_full or (self._ending and not self._line.busy):
                self._woken = True
                self._changed.notify_all()

    def load(self, id_: str) -> History | None:
        """Return the history of a group, as the log has it."""
        return self._groups.load(id_)

    def ended(self, drive: Drive) -> None:
        """Tell the waiters of a group that its end is in the log."""
        with self._changed:
            self._processor.ended[drive.history.state] += 1
        self._near.ended(drive.history)

    def lost(self, target: str, why: str) -> None:
        """Let the groups of a target that does not answer wait until it is back."""
        self._fences.lost(target, why)

    def failed(self, error: BaseException) -> None:
        """End the processor with this error."""
        with self._changed:
            self._error = self._error or error
            self._woken = True
            self._changed.notify_all()

    def changed(self) -> None:
        """Wake the loop."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    # ------------------------------------------------------------ taking over

    def begin(self) -> None:
        """Fence the previous processor on all targets that are there."""
        self._near.start(self)
        self._fences.begin()
        self._follower = self._handlers.run(self._follow, None)

    def _admit_first(self) -> None:
        """Admit the groups that the previous processor may have begun."""
        before = self._advance.position
        try:
            entries = [*self._lease.progress.open.values(), *self._advance.entries(LOOK_AHEAD)]
            for place in entries:
                self._near.forget(place.id)
            loaded = load_all(self._pool, self._groups.load, [place.id for place in entries])
        except Unavailable:
            self._advance.read_again(before)
            raise
        for place in entries:
            history = loaded[place.id]
            if place.id in self._open or history is None or history.stream != self._groups.stream or history.over:
                self._advance.over(place.n)
            else:
                self._admit(place, history, resumed=True)
        self._begun = True
        self._take_over()  # the next look may be half a second from here
        self._fences.admitted()

    def _look_for_targets(self) -> None:
        """Note targets that came or went, and groups that were taken over since."""
        self._fences.check()
        there = self._fences.there.copy()
        new = {name: one for name, one in there.items() if name not in self._targets}
        self._targets = there
        if any(self._was_another(one, name) for name in new for one in self._open.values()):
            self._admit_again()
        if self._lease.progress.away != (away := self._fences.away.copy()):
            self._lease.say(away=away)
            self._lease.beat()
        taken = [one for one in self._untaken.values() if one.taken]
        for one in taken:
            del self._untaken[one.id]
            self._taking.discard(one.id)
            if one.ended:
                self._done[one.id] = one
                self._free(self._rows.release(one.id))
                one.send_hooks()
        self._take_over()
        if new or taken:
            self._looked, self._news = 0.0, self._news or self._inbox.waiting

    def _take_over(self) -> None:
        """Go on with groups whose targets are all there now and that do not run yet."""
        for one in self._untaken.values():
            if one.id not in self._taking and not self._lacks_target(one):
                self._taking.add(one.id)
                self._submit(lambda one=one: self._take(one))  # type: ignore[misc]

    def _take(self, one: Drive) -> None:
        try:
            one.take()
        except Unavailable as error:
            if not error.retryable:
                self.failed(error)
            self._taking.discard(one.id)  # the loop tries it again
        except BaseException as error:  # noqa: BLE001 (whatever it is, the loop raises it)
            self.failed(error)
        self.changed()

    # ------------------------------------------------------------ the loop

    def loop(self, until_idle: bool) -> None:
        while True:
            self._lease.check()
            self._settle()
            if self._processor._stopping:
                return
            with self._changed:
                self._woken = False
            try:
                self._due += self._timers.due()
                self._look_for_targets()
                if not self._begun:
                    self._admit_first()
                self._look(due=bool(self._due))
                while self._due:
                    self._call(self._due.popleft())
                self._start()
                self._tick()
                if until_idle and self._idle():
                    return
            except Unavailable as error:  # the log may come back while the lease is held
                if not error.retryable:
                    raise
                _logger.warning("stream %s: %s", self._groups.stream, error)
                self._news = True
            with self._changed:
                if not self._line.at_rest and not self._woken and not self._processor._stopping:
                    self._changed.wait(self._timers.pause_s(TICK_S))

    def _call(self, due: Due) -> None:
        if not isinstance(due, str):
            due()
        elif (one := self._open.get(due)) is not None:
            one.woken()

    def _look(self, *, due: bool) -> None:
        """Read new entries of stream and inbox. An answer that came before a time-out counts."""
        news, self._news = self._news or due, False
        if news:
            self._inbox.hear(self._act_on)
            self._advance.more = True
        if self._advance.more and len(self._line.ready) < self._settings.parallel_groups:  # else it can wait
            self._admit_new()
        if self._held_up and time.monotonic() - self._looked >= TICK_S:
            self._looked = time.monotonic()
            self._line.ready.extend(self._held_up)
            self._held_up = []

    def end(self) -> None:
        """Let running groups end, or come to where they wait for an answer, a date or a target."""
        with self._changed:
            self._ending = True
        self._near.stop(self)
        self._fences.end()
        if self._follower is not None:
            self._follower.result()
        with self._changed:
            self._changed.wait_for(lambda: not self._line.busy or self._error is not None)
        self._times.settle()
        try:
            self._settle()
            for one in self._open.values():
                if one.running:
                    one.record.flush()
            self._tick(now=True)
        except StrandlineError as error:
            _logger.info("stream %s: %s", self._groups.stream, error)
            if error is self._error:
                raise

    def _follow(self, _: None) -> None:
        follow(self._groups.log, self._groups.stream, self._has_news, lambda: self._ending)

    def _has_news(self) -> None:
        """Wake the loop, because stream or inbox may have new entries."""
        self._news = True
        self.changed()
        with self._changed:
            self._changed.wait_for(lambda: self._ending or not self._line.busy, PAUSE_S)

    def _admit_new(self) -> None:
        """Read and admit new groups of the stream, as far as the look-ahead goes."""
        if (room := self._room()) <= 0:
            return
        before = self._advance.position
        try:
            entries = self._advance.entries(room)
            handed = {place.id: self._near.take(place.id) for place in entries if place.id not in self._open}
            loaded = load_all(self._pool, self._groups.load, [id_ for id_, one in handed.items() if one is None])
        except Unavailable:
            self._advance.read_again(before)
            raise
        for place in entries:
            one = None if place.id in self._open else handed[place.id]
            history = loaded.get(place.id) if one is None else one.history
            if place.id in self._open or history is None or not self._is_queued(history):
                self._advance.over(place.n)
            else:
                self._admit(place, history, None if one is None else one.plan)
        if self._inbox.waiting and entries:
            self._inbox.hear(self._act_on)

    def _is_queued(self, history: History) -> bool:
        return history.stream == self._groups.stream and history.state == "queued"

    def _room(self) -> int:
        """Return how many more entries may be read."""
        return min(LOOK_AHEAD - len(self._open), self._advance.room)

    def _admit(
        self, place: StreamPlace, history: History, plan: GroupPlan | None = None, *, resumed: bool = False
    ) -> None:
        """Let a group join the queues of the rows that it holds. `resumed`: the previous
        processor may have begun it.
        """
        plan = plan or self._groups.plan_of(history)
        plan = plan if SEGMENTS else plan.step_by_step()
        targets = self._checked(plan)
        used = {code_named(name) for name in plan.handlers if name not in self._groups.handlers}
        place = place._replace(code={name: code for name, code in place.code.items() if name in used})
        one = self._open[history.id] = Drive(self._shared, history, plan, place, targets, resumed=resumed)
        if one.ended:
            self._done[one.id] = one
            return one.send_hooks()
        if resumed:
            self._untaken[one.id] = one
        if self._rows.admit(one.id, self._places(one, plan.holds())):
            self._line.ready.append(one)
        return None

    def _checked(self, plan: GroupPlan) -> frozenset[str]:
        """Return the targets of a group. A group with a target or handler that is unknown here is not begun: it would
        fail, although another processor could run it.
        """
        targets = plan.targets
        here = {name for name in plan.handlers if not name.startswith(WORK) and code_named(name) is None}
        for what, option, needed, known in (
            ("target", "--target NAME=URL", targets, self._groups.targets.given.keys()),
            ("handler", "--handlers MODULE:NAME", here, self._groups.handlers.keys()),
        ):
            if missing := ", ".join(sorted(needed - known)):
                raise InvalidGroup(
                    f"group {plan.group.id} needs the {what} {missing}, which this processor does not have",
                    code=f"unknown_{what}",
                    hint=f"give all {what}s of the stream to its processor: {what}s=, or {option}",
                    group=plan.group.id,
                )
        return targets

    def _places(self, one: Drive, holds: Iterable[Held]) -> Iterator[Held]:
        """Give places by the targets' own identities: two names may lead to one database."""
        for held in holds:
            name = held.place[0]
            identity = self._targets[name].owner.identity if name in self._targets else one.identity(name)
            yield held._replace(place=(identity, *held.place[1:]))

    def _was_another(self, one: Drive, target: str) -> bool:
        return target in one.targets and one.identity(target) != self._targets[target].owner.identity

    def _admit_again(self) -> None:
        """Work out again which group waits for which, because a target that was away turns out to
        be another database.
        """
        with self._changed:
            self._rows, self._held_up = RowQueues(), []
            self._line.ready.clear()
            for one in sorted(self._open.values(), key=lambda one: (not one.running, one.place.n)):
                if one.ended and not one.running:
                    continue
                holds = still_held(one.plan, one.history) if one.parked else one.plan.holds()
                if self._rows.admit(one.id, self._places(one, holds)) and not one.running and not one.parked:
                    self._line.ready.append(one)

    def _free(self, ids: Iterable[Hashable]) -> None:
        """Let these groups start, as far as their rows go."""
        with self._changed:
            self._line.ready.extend(sorted((self._open[str(id_)] for id_ in ids), key=lambda one: one.place.n))

    def _start(self) -> None:
        while True:
            with self._changed:
                one = self._line.ready[0] if self._line.ready else None
            if one is None or one.id in self._taking:  # the group keeps its place, and will be taken over in a moment
                return
            can = self._can_start(one)
            with self._changed:
                if not self._line.ready or self._line.ready[0] is not one:
                    continue  # it runs already, in the place of another group
                if not can or one.ended:
                    self._line.ready.popleft()
                    self._held_up += [] if one.ended else [one]
                    continue
                if self._line.start() is None:
                    return
            one.begin()

    def _next_here(self) -> Drive | None:
        """Return the next group for a thread that has finished its own."""
        with self._changed:
            ask = not self._line.ready or self._is_open_question(self._line.ready[0]) or self._ending
            one = None if ask or self._processor._stopping or self._error is not None else self._line.start()
            if one is None and self._line.at_rest:
                self._woken = True
                self._changed.notify_all()
            return one

    def _can_start(self, one: Drive) -> bool:
        """Return whether a group's targets are there and its code is served. One cancelled before
        its start needs neither.
        """
        if one.id in self._untaken:
            return False
        if one.history.failure is not None:
            return not one.unsure or not self._lacks_target(one)
        return not self._lacks_target(one) and all(self._groups.has_box(box_of(code)) for code in one.code.values())

    def _lacks_target(self, one: Drive) -> bool:
        return not one.targets <= self._targets.keys()

    def _is_open_question(self, one: Drive) -> bool:
        """Return whether only the loop can find out if a group may start."""
        return bool(one.id in self._untaken or one.code or one.ended or self._lacks_target(one))

    def _settle(self) -> None:
        """Settle the groups that have come to rest."""
        while True:
            with self._changed:
                if self._error is not None:
                    raise self._error
                if (one := self._line.settle()) is None:
                    return
            if one.aside:
                self._held_up.append(one)
                continue
            if one.ended:
                self._done[one.id] = one
            keeps = still_held(one.plan, one.history) if one.parked else ()
            self._free(self._rows.release(one.id, self._places(one, keeps)))
            self._woken = True
            self._news = self._news or self._inbox.waiting  # a message may have waited for this one

    def _tick(self, *, now: bool = False) -> None:
        """Drop groups that have ended, and regularly record the stream's progress."""
        for one in list(self._done.values()):
            if one.history.over:
                one.record.flush()
                del self._open[one.id], self._done[one.id]
                self._advance.over(one.place.n)
        if not (now or self._advance.due()):
            return
        self._say_behind([*self._held_up, *(one for one in self._open.values() if one.parked)])
        idle = not (self._line.ready or self._line.busy or self._taking)
        stuck = idle and self._advance.room <= 0  # all groups that were read wait, and block later ones
        passed = {one.place.n for one in self._open.values() if one.parked or (stuck and not one.running)}
        if self._advance.tick((one.place for one in self._open.values()), passed):
            self._woken = self._advance.more = True

    def _say_behind(self, waiting: list[Drive]) -> None:
        """Record with the next beat which groups wait for rows of these."""
        pairs = ((str(id_), one.id) for one in waiting for id_ in self._rows.behind(one.id))
        if (behind := dict(islice(pairs, BEHIND_MAX))) != self._lease.progress.behind:
            self._lease.say(behind=behind)

    def _idle(self) -> bool:
        """Return whether nothing is left to do: what is open waits for an operator, for code, or for rows of such a
        group.

        A target that is away is waited for, if a group needs it.
        """
        if self._line.at_rest or self._line.ready or self._untaken:
            return False
        if any(one.aside or self._lacks_target(one) for one in self._held_up):
            return False
        if self._done or any(one.running for one in self._open.values()):
            return False
        if (self._room() > 0 and self._advance.behind()) or not self._inbox.is_empty():
            self._news, self._woken = True, self._woken or not self._inbox.waiting
            return False
        return True

    # ------------------------------------------------------------ inbox

    def _act_on(self, message: Message) -> bool:
        """Return whether a message has acted, or has nothing to act on. A message for a group that is not admitted or
        taken over yet waits; a resolve waits until its group has come to rest.
        """
        one = self._open.get(message["group"])
        if one is not None:
            return one.id not in self._untaken and self._tell(one, message)
        history = self._groups.load(message["group"])
        if history is None or history.state in ENDS or history.stream != self._groups.stream:
            return True
        if self._advance.behind():
            return False
        if message["type"] == "Cancel" and not history.cancelled:  # a second submit finds it cancelled
            self._near.forget(history.id)
            record = GroupRecord(self._journal, history, self._lease, self._groups.clock, self._settings.history_keep_s)
            record.add("Cancelled", {})
            record.flush()
        return True

    def _tell(self, one: Drive, message: Message) -> bool:
        """Let a message act. Return False if it has to wait, because its group runs or runs again
        after another resolve.
        """
        if message["type"] in ("Answer", "Ack"):
            one.messages.hear(message)
            one.poke()
        elif message["type"] == "Cancel":
            one.cancel()
        elif message["type"] == "Resolve" and not one.ended:
            if not one.parked:
                return False
            if message["step"] in one.history.undo_failed:
                one.resolve(message["step"], message["how"])
                one.parked = False
                self._line.ready.append(one)
        return True
