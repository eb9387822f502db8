"""Event groups of a stream, as a program uses them: submit, look, wait, cancel, and run.

    groups = s.groups(stream="default", targets={"shop": "sqlite:shop.db"}, handlers={"price": price})
    handle = groups.submit(group)                 # durable; nothing has been executed yet
    groups.processor().run_until_idle()           # or: strandline group run
    handle.wait(timeout_s=10).state               # committed, rolled_back or aborted

Groups of one stream behave as if they ran one after the other. Other programs can see changes of a group that still
runs. Effects of a handler elsewhere can be undone only by an undo handler.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, Final, NamedTuple, cast

import orjson

from strandline.errors import (
    InvalidGroup,
    InvalidInput,
    NotFound,
    StrandlineError,
    Unavailable,
    Unsupported,
    invalid,
    shown,
)
from strandline.group import lease as leases
from strandline.group.advance import place_of
from strandline.group.core.names import NAMES, Problem, is_id, is_name, refusal
from strandline.group.core.parts import Produced, Refused
from strandline.group.definition import Group
from strandline.group.explain import Explanation, explained
from strandline.group.handlers import Callee, Handlers, answer_of, check_handlers, check_not_inside
from strandline.group.history import ENDS, PAGE_BYTES, History
from strandline.group.holding import still_held
from strandline.group.in_process import Ending, InProcess
from strandline.group.listing import Carried, GroupList, Lister
from strandline.group.mail import WORK, Box, Boxes, box_of, code_named, code_of, group_of
from strandline.group.messages import written_answer
from strandline.group.names import group_key, inbox_key, stream_key
from strandline.group.open_targets import OpenTargets, Target, TargetOpener
from strandline.group.outcome import Outcome, outcome_of
from strandline.group.plan import GroupPlan, handler_names
from strandline.group.playback import Played, verified
from strandline.group.processor import Processor
from strandline.group.record import load, seen
from strandline.group.serving import CodeWatch, HandlerServer
from strandline.group.settings import GroupSettings
from strandline.group.statements.api import Held
from strandline.group.stored_plan import planned_again
from strandline.group.submitting import Submitter
from strandline.group.target import Barrier, SqlTarget
from strandline.journal import checks
from strandline.journal.journal import Journal
from strandline.log.api import Log
from strandline.plain_calls import check_plain
from strandline.values.events import Event
from strandline.values.keys import key_partition

LOOK_S: Final = 0.01
"""`wait` reads the log at most once in this time."""
NEAR_S: Final = 0.5
"""`wait` looks at least once in this time, though a processor of this process tells it the end."""
BARRIERS_S: Final = 1.0
"""The longest time that `get` waits for a target."""
_logger: Final = logging.getLogger("strandline.group")
HOW: Final = ("retry", "force", "accept_current")
PAGE_BYTES_LEAST: Final = 2**20


class Handle(NamedTuple):
    """A group that was submitted."""

    id: str
    groups: Groups
    ending: Ending | None = None
    """The end of the group, if a processor of this process runs it."""

    def wait(self, timeout_s: float = 30.0) -> Outcome:
        """Wait for the end of the group and return its outcome. Raises `Unavailable.timeout` if that takes longer."""
        return self.groups.wait(self.id, timeout_s)


class Groups:
    """The groups of one stream. Any number of threads may use it."""

    def __init__(
        self,
        journal: Journal,
        log: Log,
        *,
        stream: str,
        targets: Mapping[str, str | Target],
        handlers: Mapping[str, Callee],
        named: Mapping[str, Callable[..., Group]],
        settings: GroupSettings,
        open_target: TargetOpener,
        boxes: Boxes,
        clock: Callable[[], int],
        bytes_max: tuple[int, int],
        carried: Carried,
    ) -> None:
        if not is_id(stream):
            raise invalid(
                "setting", "stream", "no name of a stream", allowed="1 to 200 of A-Z a-z 0-9 . _ : ~ -", got=stream
            )
        check_named("handlers", handlers, "NAME: callable", callable)
        check_named("named", named, "NAME: function that makes a Group", callable)
        check_handlers(handlers)
        for name, function in named.items():
            check_plain(function, f"named.{name}")
        for what, most in zip(("event_bytes_max", "append_bytes_max"), bytes_max, strict=True):
            if most < PAGE_BYTES_LEAST:
                raise invalid("setting", what, "too small for groups", allowed=f"at least {PAGE_BYTES_LEAST}", got=most)
        self.journal, self.log, self.stream, self.settings, self.clock = journal, log, stream, settings, clock
        self.handlers, self._named = dict(handlers), dict(named)
        self._lister = Lister(journal, stream, self.load, carried, clock)
        self.targets = OpenTargets(targets, open_target, journal.history_id, stream)
        self.near = InProcess()
        self._submitter = Submitter(journal, stream, settings, self.targets, self._no_handler, self.near)
        self._open_box, self._boxes = boxes, dict[str, Box]()
        self._lock = Lock()
        self.calls: Handlers | None = None
        """The threads of handlers of this process's processor."""

    def close(self) -> None:
        """Let go of all targets. Twice is harmless."""
        self.targets.close()

    # ------------------------------------------------------------ handlers

    def box(self, name: str) -> Box:
        """Return a work journal that takes messages; `NotFound.work_journal` if there is none, or one with other
        columns."""
        with self._lock:
            if name not in self._boxes:
                self._boxes[name] = self._open_box(name)
            return self._boxes[name]

    def has_box(self, name: str) -> bool:
        try:
            self.box(name)
        except NotFound:
            return False
        return True

    def _no_handler(self, name: str) -> str | None:
        """Return why there is no handler of this name; None if the registry, a work journal or loaded code has it."""
        if name in self.handlers or (isinstance(name, str) and code_named(name) is not None):
            return None
        if not isinstance(name, str) or not name.startswith(WORK):
            known = ", ".join(sorted(self.handlers)) or "none"
            return f"known are: {known}; give handlers={{NAME: function}}, or --handlers MODULE:NAME"
        try:
            self.box(name.removeprefix(WORK))
        except (NotFound, InvalidInput, Unsupported) as error:
            return f"{error.message}; {error.hint}"
        return None

    def load_code(self, name: str, version: str) -> None:
        """Make another version of code valid for all groups that are submitted after this. Earlier groups keep their
        version, whenever they run. `strandline group handlers … --as NAME@VERSION` serves one.
        """
        told = {"name": name, "code": code_of(name, version)}
        self.journal.append_reserved(stream_key(self.stream), [Event("LoadCode", told)])

    def code_watch(self, code: str) -> CodeWatch:
        """Tells when no group of this stream is on a version of code (`name@version`) any more."""
        return CodeWatch(self.journal, self.stream, self.load, code)

    # ------------------------------------------------------------ submit

    def submit(self, group: Group | str, parameters: Mapping[str, Any] | None = None) -> Handle:
        """Record a group and put it at the end of the stream; returns when both are durable.

        The same group again, whenever and from anywhere, is the same group: it is executed once. Another one of its id
        is `GroupIdTaken.definition`. `group` may be the name of a function in `named`, called with `parameters`.
        """
        made = self._made(group, parameters) if isinstance(group, str) else _group(group)
        ending = self.near.ending(made.id) if is_id(made.id) else None
        return Handle(made.id, self, ending if self._submitter.submit(made) else None)

    def _made(self, name: str, parameters: Mapping[str, Any] | None) -> Group:
        if name not in self._named:
            known = ", ".join(sorted(self._named)) or "none"
            raise NotFound(f"no group is named {name!r}; known are: {known}", code="group", hint="give one of `named`")
        try:
            return self._named[name](**(parameters or {}))
        except StrandlineError:
            raise
        except Exception as error:
            problem = Problem("parameter_type", None, f"{name}: {type(error).__name__}: {error}")
            raise refusal([problem], name) from error

    def plan_of(self, history: History) -> GroupPlan:
        """Return the plan that was made when the group was submitted."""
        return planned_again(history.definition, history.plan)

    # ------------------------------------------------------------ look

    def load(self, id_: str) -> History | None:
        """Return the history of a group, folded; None if there is none."""
        return load(self.journal, id_)

    def get(self, id: str) -> Outcome:  # noqa: A002 (the specification's name)
        """Return the present outcome of a group. Raises `NotFound.group` if there is none."""
        history = self._known(id)
        told = leases.LastBeat() if history.state in ENDS else leases.said(self.journal, history.stream)
        history = self._with_barriers(history, told.away)
        if history.state in ("queued", "running") and not history.place:
            place = place_of(self.journal, history.stream, history.id, told)
            history.place = 0 if place is None else place.n
            if history.state == "queued" and not history.place and self._known(id).state == "queued":
                history.state = "defined"  # its submitter died before the group came into the stream
        calls = self.calls
        hung = tuple(sorted(calls.hung[one] for one in history.questions if one in calls.hung)) if calls else ()
        return replace(outcome_of(history, holder=told.holder, hung=hung), waits_for=self._waits_for(history, told))

    def _with_barriers(self, history: History, away: Container[str]) -> History:
        """Return a history with events that only the barrier rows of a running group tell, as far
        as its targets answer.
        """
        found: list[Barrier] = []
        for name, dialect in history.dialects.items() if history.state not in ENDS else ():
            if dialect == "cassandra" or name not in self.targets.given or history.stream != self.stream:
                continue
            if name in away:  # the processor waits for this target, `get` does not
                continue
            try:
                target, owner = cast(SqlTarget, self.targets.target(name)), self.targets.owner(name)
                found += target.barriers(owner, history.id, history.life, BARRIERS_S)
            except StrandlineError as error:
                _logger.info("barrier rows of %s are not to be seen: %s", name, error)
        seen(history, found, self.clock())
        return history

    def _waits_for(self, history: History, told: leases.LastBeat) -> str | None:
        """Return what a group waits for: a target that is away, code without a server, an answer
        by mail, or rows of a group.
        """
        if history.state in ENDS:
            return None
        for name in sorted(told.away.keys() & history.dialects.keys()):
            return f"target {name}, which is away: {told.away[name]}"
        for message_id, question in history.questions.items():
            if question.box is not None and not question.answered:
                return f"an answer to {message_id}, in work journal {question.box}"
        names = [name for name, _ in handler_names(Group.of(history.definition)) if name not in self.handlers]
        used = {code for name in names if (code := code_named(name)) is not None}
        place = None if history.started or not used else place_of(self.journal, history.stream, history.id, told)
        codes = history.code if place is None else place.code
        for name in sorted(used & codes.keys()):
            if not self.has_box(box_of(codes[name])):
                return f"{codes[name]}: `strandline group handlers MODULE:NAME --as {codes[name]}`"
        return self._waits_for_rows(history, told) if history.state == "queued" else None

    def _waits_for_rows(self, history: History, told: leases.LastBeat) -> str | None:
        """Return a text that names the group whose rows this one needs, if that group waits itself."""
        mine: tuple[Held, ...] | None = None
        for id_ in told.open:
            other = self.load(id_)
            if other is None or not other.waits_for_operator:
                continue
            mine = self.plan_of(history).holds() if mine is None else mine
            theirs = still_held(self.plan_of(other), other)
            if any(one.meets(held) for held in theirs for one in mine):
                return f"rows of group {id_}, whose undo failed: `strandline group resolve {id_} STEP HOW`"
        behind = told.behind.get(history.id)
        return None if behind is None else f"rows of group {behind}, which waits itself: see `strandline group show`"

    def history(self, id: str) -> Sequence[tuple[str, Mapping[str, Any], int]]:  # noqa: A002 (the specification's name)
        """Return everything that is recorded of a group: type, payload and timestamp (µs) of each event."""
        self._known(id)
        return [(event.type, event.payload, event.timestamp) for event in self.journal.read(group_key(id))]

    def list(self, state: str | None = None, after: str | None = None, limit: int = 100) -> GroupList:
        """Return groups of this stream; `after` of the answer goes on where it ends.

        `state` is a state, or `open`: what has not ended is exact. Ended ones, and all (None), are what the pipeline
        has carried, up to `as_of`.
        """
        return self._lister.listed(state, after, limit)

    def _known(self, id_: object) -> History:
        history = self.load(id_) if is_id(id_) and isinstance(id_, str) else None
        if history is None:
            raise NotFound(
                f"there is no group {id_!r:.220}",
                code="group",
                hint="submit it first; upper and lower case differ in ids",
            )
        return history

    def wait(self, id: str, timeout_s: float = 30.0) -> Outcome:  # noqa: A002 (the specification's name)
        """Wait for the end of a group and return its outcome. Raises `Unavailable.timeout` if that takes longer."""
        check_not_inside(self.stream)
        until = time.monotonic() + checks.timeout_s(timeout_s)
        partition = key_partition(group_key(id), self.log.partitions)
        looked, ending = 0.0, self.near.known_ending(id)
        while True:
            if ending is not None and self.near.running:
                told = ending.wait(min(max(0.0, until - time.monotonic()), NEAR_S))
                if told is not None:
                    return told
            time.sleep(max(0.0, looked + LOOK_S - time.monotonic()))  # other keys of its partition change all the time
            looked = time.monotonic()
            newest = self.log.newest()[partition]
            history = self._known(id)
            if history.state in ENDS:
                return outcome_of(history)
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise Unavailable(
                    f"group {id} has not ended within {timeout_s:g} s: it is {history.state}",
                    code="timeout",
                    hint="an operator has to resolve it: `strandline group show`, then `strandline group resolve`"
                    if history.state == "rollback_failed"
                    else "wait longer; does a processor run? see `strandline group show`",
                    state=history.state,
                )
            if ending is None or not self.near.running:
                self.log.wait({partition: newest}, min(left_s, 1.0))

    def explain(self, group: Group) -> Explanation:
        """Return what a group would do: steps with those that are added, order, rows, undo. Nothing is executed or
        recorded."""
        return explained(self._submitter.plan(_group(group)))

    def playback(self, id: str) -> Played:  # noqa: A002 (the specification's name)
        """Work a group out again from its history, without handlers and targets; the first difference is named."""
        history = self._known(id)
        return verified(history, self.plan_of(history))

    # ------------------------------------------------------------ act

    def cancel(self, id: str) -> Outcome:  # noqa: A002 (the specification's name)
        """Ask for a group to be undone, and return its present outcome. A group that is decided
        or has ended is not changed.
        """
        history = self._known(id)
        if history.state not in ENDS:
            self._tell(history.stream, "Cancel", {"group": id})
        return outcome_of(history)

    def resolve(self, id: str, step: str, how: str) -> None:  # noqa: A002 (the specification's name)
        """Decide about a step that could not be undone. `retry`: try the undo again. `force`: write the before-image
        over the present rows. `accept_current`: leave the rows as they are.
        """
        if how not in HOW:
            raise invalid("how", "how", "no way to resolve", allowed=" or ".join(HOW), got=how)
        history = self._known(id)
        undo = history.undo.get(step)
        if undo is None or undo.state != "undo_failed":
            state = history.steps[step].state if step in history.steps else "no step of this group"
            raise InvalidInput(
                f"{step} of {id} is {state}, not undo_failed",
                code="step_state",
                hint="see `strandline group show` for the steps that wait for an operator",
                step=step,
                state=state,
            )
        self._tell(history.stream, "Resolve", {"group": id, "step": step, "how": how})

    def answer(self, message_id: str, results: Mapping[str, Any] | Produced | Refused) -> None:
        """Answer a question that a group asked through a work journal, with results by name or a refusal. A late or
        second answer is recorded and changes nothing. Raises `NotFound.message` if no group asked.
        """
        history = self._asked_in(message_id, self._load_of(message_id), hooks=False)
        answer = answer_of(results)
        made = written_answer(answer)
        if answer.results is None and not isinstance(results, Refused):
            raise invalid("payload_type", "results", answer.reason, allowed="results by name, or Refused", got=results)
        size = len(orjson.dumps(made))
        if size > PAGE_BYTES:
            raise invalid("data_too_large", "results", f"{size:,} bytes", allowed=f"at most {PAGE_BYTES:,}", got=size)
        self._tell(history.stream, "Answer", {"group": history.id, "message_id": message_id, "answer": made})

    def ack(self, message_id: str) -> None:
        """Acknowledge a hook's message from a work journal. Raises `NotFound.message` if no group sent it."""
        history = self._asked_in(message_id, self._load_of(message_id), hooks=True)
        self._tell(history.stream, "Ack", {"group": history.id, "message_id": message_id})

    def _load_of(self, message_id: object) -> History | None:
        group = group_of(message_id)
        return self.load(group) if is_id(group) else None

    def _asked_in(self, message_id: object, history: History | None, *, hooks: bool) -> History:
        if history is None or (message_id not in history.questions and not (hooks and message_id in history.hooks)):
            raise NotFound(
                f"there is no message {message_id!r:.300}", code="message", hint="give the message_id of the message"
            )
        return history

    def answering(self, handlers: Callee | Mapping[str, Callee]) -> Callable[[Any], None]:
        """Return a handler for a `Worker`: it calls one of these with each message of a work journal, and answers.

        Worker(s, {"prices": groups.answering(price)}).run()        serves `work:prices`
        """
        return HandlerServer(self, handlers)

    def _tell(self, stream: str, type_: str, payload: Mapping[str, Any]) -> None:
        self.journal.append_reserved(inbox_key(stream), [Event(type_, dict(payload))])

    def processor(self) -> Processor:
        """Return a processor of this stream's groups. One processor at a time runs them; others wait."""
        return Processor(self)


def check_named(field_: str, given: object, allowed: str, fits: Callable[[Any], bool]) -> None:
    """Raise `InvalidInput.setting` for what is no mapping of names to such things."""
    if not isinstance(given, Mapping):
        raise invalid("setting", field_, "no mapping", allowed=f"{{{allowed}}}", got=given)
    for name, one in given.items():
        if field_ == "targets" and not is_name(name):
            raise invalid("setting", field_, "no name", allowed=NAMES, got=name)
        if not isinstance(name, str) or not fits(one):
            raise invalid("setting", f"{field_}.{shown(name)}", "of another kind", allowed=f"{{{allowed}}}", got=one)


def _group(given: object) -> Group:
    if isinstance(given, Group):
        return given
    if isinstance(given, Mapping):
        hint = "make it by Group(id), or of JSON by Group.of(...) and Group.from_json(...)"
    else:
        hint = "make it by Group(id), g.update(...) and so on"
    message = f"group: no Group; allowed a Group, or a name of `named`; got {shown(given)}"
    raise InvalidGroup(message, code="value", hint=hint)
