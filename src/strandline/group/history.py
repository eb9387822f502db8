"""The history of a group: what is recorded in `group|<id>`, and the state that it comes to. A pure fold.

    group   defined → queued → running → committed
            running → rolling_back → rolled_back | aborted
            rolling_back → rollback_failed → (resolve) rolling_back
    step    waiting → running → succeeded | failed | unknown;  waiting → skipped
            with an intent → undoing → undone | undo_failed;  undo_failed → (resolve) undoing

The history has everything that was received: rows, results, answers, verdicts. So a group resumes from its history, and
can be played back without handlers and targets. Long values go into pages (`Page`): rows before their `Result`, a
definition behind its `Defined`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import orjson

from strandline.errors import Corrupt
from strandline.group.core.encoding import decoded, encoded
from strandline.group.core.parts import IDENTITY, Data
from strandline.group.core.step import StepState, identity
from strandline.group.target import Done

PAGE_BYTES: Final = 512 * 1024
WHOLE: Final = ("", "definition")
"""The place of the pages of a definition and its plan."""
ENDS: Final = ("committed", "rolled_back", "aborted")
Payload = Mapping[str, Any]


class HistoryEvent(NamedTuple):
    """An event of a history, before or after it is in the log. `n` is its seq_nr there."""

    n: int
    type: str
    payload: Payload


@dataclass(slots=True)
class Undoing:
    """The state of the undo of a step."""

    state: Literal["undoing", "undone", "undo_failed"] = "undoing"
    detail: str = ""
    conflicts: list[Any] = field(default_factory=list)
    how: str | None = None
    """The decision of an operator."""
    over: int = 0
    """The timestamp at which cells are put back over writes of others."""


@dataclass(slots=True)
class Question:
    """A message to a handler."""

    step: str
    recipe: str
    timeout_s: float = 0.0
    box: str | None = None
    """The work journal that it went to; None: a handler of the processor's own process."""
    asked: int = 0
    """The time when it was asked last: microseconds since the group started."""
    tries: int = 1
    """The number of times that it was asked, because no result came."""
    sent: bool = False
    acked: bool = False
    answered: bool = False
    answer: Payload | None = None


@dataclass(slots=True)
class Message:
    """The message that is sent to a hook."""

    step: str
    when: str
    n: int
    payload: Payload
    done: bool = False


@dataclass(slots=True)
class History:
    """The state of a group."""

    id: str
    life: int = 1
    stream: str = ""
    hash: str = ""
    definition: Payload = field(default_factory=dict)
    plan: Payload = field(default_factory=dict)
    """The plan as `stored_plan` writes it."""
    dialects: Mapping[str, Any] = field(default_factory=dict)
    identities: Mapping[str, str] = field(default_factory=dict)
    """The identity of each target's database."""
    state: str = "defined"
    last: int = 0
    """The number of the last event."""
    fence: int = 0
    place: int = 0
    started: int = 0
    ran_us: int = 0
    """How long it had been running when a processor last took it over, by the log's clock."""
    ended: int = 0
    code: dict[str, str] = field(default_factory=dict)
    """The versions of code that it uses: by name, `name@version`."""
    decided: str | None = None
    failed_step: str | None = None
    reason: str | None = None
    detail: str = ""
    cancelled: bool = False
    failure: tuple[str | None, str, str] | None = None
    """The first failure before going back was decided: step, reason, detail."""
    final: bool = False
    """Whether an irreversible step was begun. If so, cancel and deadline have no effect any more."""
    stuck: str = ""
    """The error of this program because of which nobody goes on with it."""
    steps: dict[str, StepState] = field(default_factory=dict)
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Step → before, after: rows as the target encodes them."""
    intents: dict[str, Payload] = field(default_factory=dict)
    """Step → what was going to be written on a target without transactions."""
    gone: set[str] = field(default_factory=set)
    """Steps that were done in a transaction which was rolled back."""
    voided: dict[str, bool] = field(default_factory=dict)
    """Segments of which it was found out whether they ran."""
    undo: dict[str, Undoing] = field(default_factory=dict)
    undo_failed: set[str] = field(default_factory=set)
    put_back: set[str] = field(default_factory=set)
    """Rollback steps that are done."""
    questions: dict[str, Question] = field(default_factory=dict)
    hooks: dict[str, Message] = field(default_factory=dict)
    pages: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Pages of values whose last page is still to come: by step, and which value of it."""
    rows: dict[tuple[str, str], list[Any]] = field(default_factory=dict)
    """Values that came in pages, until their event takes them."""
    _started_in_log: int = 0

    def step(self, name: str) -> StepState:
        try:
            return self.steps[name]
        except KeyError:
            return self.steps.setdefault(name, StepState())

    @property
    def waits_for_operator(self) -> bool:
        """Return whether the group waits for an operator: an undo has failed, or an error of this
        program is in the way.
        """
        return self.state == "rollback_failed" or (bool(self.stuck) and self.state not in ENDS)

    @property
    def is_start_logged(self) -> bool:
        """Return whether the log has the group's start."""
        return bool(self._started_in_log)

    @property
    def why(self) -> str | None:
        """Return the reason of its failure."""
        return self.reason or ("internal" if self.stuck else None)

    @property
    def over(self) -> bool:
        """Return whether it has ended, and all hooks were sent."""
        return self.state in ENDS and all(hook.done for hook in self.hooks.values())

    def apply(self, entry: HistoryEvent, timestamp: int = 0) -> None:
        """Apply one more event. Raises `Corrupt.history` for an event that cannot come here."""
        known = _APPLY.get(entry.type)
        if known is None or (self.last == 0) != (entry.type == "Defined"):
            raise self._unreadable(entry, f"is a {entry.type}, which does not belong there")
        try:
            known(self, entry.payload, int(entry.payload.get("at", timestamp)))
        except (KeyError, TypeError, ValueError) as error:
            raise self._unreadable(entry, f"cannot be read: {error!r}") from None
        self.last = entry.n
        if timestamp:
            self.logged([entry], timestamp)

    def _unreadable(self, entry: HistoryEvent, why: str) -> Corrupt:
        return Corrupt(
            f"event {entry.n} of group {self.id} {why}",
            code="history",
            hint="the history was written by a newer program, or is damaged",
            group=self.id,
            seq_nr=entry.n,
        )

    def logged(self, entries: Iterable[HistoryEvent], timestamp: int) -> None:
        """Note that these events are in the log since this time."""
        for entry in entries:
            if entry.type == "Started":
                self._started_in_log = timestamp
            elif entry.type == "Taken" and self._started_in_log:
                self.ran_us = timestamp - self._started_in_log


# ---------------------------------------------------------------- what each event means


def _defined(history: History, payload: Payload, at: int) -> None:
    history.hash, history.stream = payload["hash"], payload["stream"]
    history.dialects, history.identities = payload["dialects"], payload["identities"]
    if "definition" in payload:
        history.definition, history.plan = payload["definition"], payload["plan"]
    history.state = "queued"


def _page(history: History, payload: Payload, at: int) -> None:
    place = (payload["step"], payload["what"])
    if payload["n"] == 1:  # a process that died may have left some of these pages
        history.pages[place] = []
    history.pages[place].append(payload["text"])
    if payload["last"]:
        whole = orjson.loads("".join(history.pages.pop(place)))
        if place == WHOLE:
            history.definition, history.plan = whole["definition"], whole["plan"]
        else:
            history.rows[place] = whole


def _started(history: History, payload: Payload, at: int) -> None:
    history.state, history.fence, history.place = "running", payload["fence"], payload["place"]
    history.started = payload["at"]
    history.code = dict(payload.get("code", {}))


def _taken(history: History, payload: Payload, at: int) -> None:
    history.fence, history.stuck = payload["fence"], ""


def _rows(history: History, step: str, what: str, payload: Payload) -> list[Any]:
    """Return the rows of a payload. Pages count where it has none: others may be left of a process that ended."""
    paged_ = history.rows.pop((step, what), [])
    rows: list[Any] = payload.get("rows", paged_)
    return rows


def _intent(history: History, payload: Payload, at: int) -> None:
    step = history.step(payload["step"])
    history.final = history.final or bool(payload.get("final"))
    step.state, step.started = "running", step.started or at
    step.attempts += 1
    if "cells" in payload:
        cells = dict(payload["cells"])
        cells["rows"] = _rows(history, payload["step"], "cells", cells)
        (values,) = _rows(history, payload["step"], "values", payload)
        history.intents[payload["step"]] = {"values": values, **payload, "cells": cells}


def _result(history: History, payload: Payload, at: int) -> None:
    name = payload["step"]
    step = history.step(name)
    step.started, step.ended = step.started or payload.get("started", at), at
    if "reason" in payload:
        step.state = "unknown" if payload.get("unknown") else "failed"
        step.reason, step.detail = payload["reason"], payload.get("detail", "")
        _fails(history, name, step.reason, step.detail)
        return
    (history.gone.add if payload.get("gone") else history.gone.discard)(name)
    rows = _rows(history, name, "rows", payload)
    columns = tuple(payload.get("columns", ()))
    step.data = Data(columns, tuple(tuple(decoded(row)) for row in rows), payload.get("affected"))
    step.state = "succeeded" if step.reason is None else step.state
    for what in ("before", "after"):
        if what in payload:
            image = dict(payload[what])
            image["rows"] = _rows(history, name, what, image)
            history.images.setdefault(name, {})[what] = image


def _asked(history: History, payload: Payload, at: int) -> None:
    known = history.questions.get(payload["message_id"])
    if known is None or known.answered:  # the question is asked anew
        tries = 1 if known is None else known.tries + 1
        known = Question(payload["step"], payload["recipe"], payload["timeout_s"], payload.get("box"), tries=tries)
        history.questions[payload["message_id"]] = known
    known.asked = payload["asked"]
    step = history.step(payload["step"])
    step.started = step.started or at


def _sent(history: History, payload: Payload, at: int) -> None:
    history.questions[payload["message_id"]].sent = True


def _acked(history: History, payload: Payload, at: int) -> None:
    history.questions[payload["message_id"]].acked = True


def _answered(history: History, payload: Payload, at: int) -> None:
    question = history.questions[payload["message_id"]]
    if not question.answered and not payload.get("late"):
        question.answered, question.answer = True, payload["answer"]


def _recipe_done(history: History, payload: Payload, at: int) -> None:
    step = history.step(payload["step"])
    step.started, step.ended = step.started or at, step.ended or at
    if payload["recipe"] == IDENTITY:  # the rows of the step are not stored twice
        step.results[IDENTITY] = identity(step.data or Data())
    else:
        step.results[payload["recipe"]] = decoded(payload["results"])


def _checked(history: History, payload: Payload, at: int) -> None:
    step = history.step(payload["step"])
    step.started, step.ended = step.started or at, step.ended or at
    step.verdicts, step.success = list(payload["verdicts"]), payload["success"]
    if not step.success:
        step.state, step.reason, step.detail = "failed", payload["reason"], payload.get("detail", "")
        _fails(history, payload["step"], step.reason, step.detail)


def _hook_queued(history: History, payload: Payload, at: int) -> None:
    message = Message(payload["step"], payload["when"], payload["n"], payload)
    history.hooks.setdefault(payload["message_id"], message)


def _hook_done(history: History, payload: Payload, at: int) -> None:
    history.hooks[payload["message_id"]].done = True


def _decided(history: History, payload: Payload, at: int) -> None:
    if history.decided is not None:
        raise ValueError("decided twice")
    history.decided = payload["decision"]
    if history.decided == "rollback":
        history.state = "rolling_back"
        history.failed_step, history.reason = payload.get("step"), payload["reason"]
        history.detail = payload.get("detail", "")
        for step in history.steps.values():
            if step.state == "waiting":  # a step without a statement has only results
                step.state = "succeeded" if step.results else "skipped"


def _voided(history: History, payload: Payload, at: int) -> None:
    history.voided[payload["segment"]] = payload["ran"]


def _undo_intent(history: History, payload: Payload, at: int) -> None:
    undo = history.undo.setdefault(payload["step"], Undoing())
    undo.state, undo.over = "undoing", payload.get("over", undo.over)
    history.step(payload["step"]).state = "undoing"


def _undo_result(history: History, payload: Payload, at: int) -> None:
    name = payload["step"]
    undo = history.undo.setdefault(name, Undoing())
    undo.state, undo.detail = payload["state"], payload.get("detail", "")
    undo.conflicts = list(payload.get("conflicts", ()))
    history.step(name).state = undo.state
    if undo.state == "undo_failed":
        history.undo_failed.add(name)
    else:
        history.undo_failed.discard(name)
        if "by" in payload:
            history.put_back.add(payload["by"])
    history.state = "rollback_failed" if history.undo_failed else "rolling_back"


def _resolved(history: History, payload: Payload, at: int) -> None:
    name, by = payload["step"], payload.get("by")
    undo = history.undo[name]
    undo.state, undo.how, undo.over = "undoing", payload["how"], 0
    history.undo_failed.discard(name)
    if by is not None:  # its rollback step runs again
        history.steps[by] = StepState()
    history.questions = {
        message_id: question
        for message_id, question in history.questions.items()
        if question.step != by and (question.step, question.recipe) != (name, "undo")
    }
    history.step(name).state = "undoing"
    history.state = "rollback_failed" if history.undo_failed else "rolling_back"


def _ended(history: History, payload: Payload, at: int) -> None:
    history.state, history.ended = payload["end"], at


def _cancelled(history: History, payload: Payload, at: int) -> None:
    history.cancelled = True
    if not history.final:
        _fails(history, None, "cancelled", "")


def _failed(history: History, payload: Payload, at: int) -> None:
    _fails(history, payload.get("step"), payload["reason"], payload.get("detail", ""))


def _fails(history: History, step: str | None, reason: str, detail: str) -> None:
    if history.failure is None and history.decided is None:
        history.failure = (step, reason, detail)


def _stuck(history: History, payload: Payload, at: int) -> None:
    history.stuck = payload["detail"]


_APPLY: Final[dict[str, Callable[[History, Payload, int], None]]] = {
    "Defined": _defined, "Page": _page, "Started": _started, "Taken": _taken, "Intent": _intent,
    "Result": _result, "Asked": _asked, "Sent": _sent, "Acked": _acked, "Answered": _answered,
    "RecipeDone": _recipe_done, "Checked": _checked,
    "HookQueued": _hook_queued, "HookDone": _hook_done, "Cancelled": _cancelled, "Decided": _decided,
    "Failed": _failed, "Stuck": _stuck, "Voided": _voided,
    "UndoIntent": _undo_intent, "UndoResult": _undo_result, "Resolved": _resolved, "Ended": _ended,
}  # fmt: skip


# ---------------------------------------------------------------- events that are made here


def defined(definition: Payload, plan: Payload, **head: Any) -> list[tuple[str, Payload]]:
    """Return the first events of a history: `head` (hash, stream, dialects, identities), definition and plan, in pages
    if they are long."""
    head |= {"expression_rules": 1, "statement_rules": 1}
    whole = {"definition": definition, "plan": plan}
    pages = _pages(*WHOLE, whole)
    return [("Defined", head), *pages] if pages else [("Defined", {**head, **whole})]


def result(
    step: str, done: Done, at: int, *, query: bool = False, started: int | None = None
) -> Iterator[tuple[str, Payload]]:
    """Return the events of a step that is done: its images and rows, in pages where they are long, then its
    `Result`."""
    payload: dict[str, Any] = {"step": step, "at": at, "columns": list(done.rows.columns)}
    if started is not None:
        payload["started"] = started
    if not query:
        payload["affected"] = done.affected
    rows = [encoded(row) for row in done.rows.rows]
    yield from paged(step, "rows", rows, payload)
    for what, image in (("before", done.before), ("after", done.after)):
        if image.columns:
            payload[what] = {"columns": list(image.columns), "keys": image.keys}
            yield from paged(step, what, [list(row) for row in image.rows], payload[what])
    yield "Result", payload


def paged(step: str, what: str, rows: list[Any], payload: dict[str, Any]) -> Iterator[tuple[str, Payload]]:
    """Put rows that are short into the payload, others into pages before it."""
    pages = _pages(step, what, rows)
    if not pages:
        payload["rows"] = rows
    yield from pages


def _pages(step: str, what: str, value: Any) -> list[tuple[str, Payload]]:
    """Return the events that a long value needs; none for one that fits into another event."""
    text = orjson.dumps(value).decode()
    size = PAGE_BYTES // 4  # a character has one to four bytes
    texts = [text[at : at + size] for at in range(0, len(text), size)] if len(text) > size // 2 else []
    last = len(texts)
    return [
        ("Page", {"step": step, "what": what, "n": n, "text": part, "last": n == last})
        for n, part in enumerate(texts, 1)
    ]


def folded(id_: str, entries: Iterable[tuple[HistoryEvent, int, int]]) -> History | None:
    """Return a history from its events (entry, life, timestamp); None if there are none."""
    history: History | None = None
    for entry, life, timestamp in entries:
        history = history or History(id_, life)
        history.apply(entry, timestamp)
    return history


def packed(entries: Iterable[HistoryEvent]) -> bytes:
    """Return entries as one text."""
    return orjson.dumps([[entry.n, entry.type, entry.payload] for entry in entries])
