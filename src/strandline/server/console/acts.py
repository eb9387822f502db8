"""The acts that operators can do from a page: each has a name, an explanation, the fields that it needs, and a record.

An act runs by `HttpCall.act`: it refuses a token without the scope `admin`, and records who, what, why, before, after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from strandline.errors import StrandlineError, counted, invalid, unknown
from strandline.group.groups import HOW
from strandline.server.console.desk import ConsoleDesk, whole
from strandline.server.console.work import LOOKED_AT, matching, matching_letters
from strandline.work.entries import PROCESSING, WAITING
from strandline.work.journal import WorkJournal

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ActField:
    """A field that an act asks for."""

    name: str
    label: str
    kind: str = "text"
    """text, number, or options."""
    options: tuple[str, ...] = ()
    help: str = ""


@dataclass(frozen=True, slots=True)
class OperatorAct:
    """An act of an operator. `do` returns the message that is shown when the act is done."""

    name: str
    title: str
    tells: str
    """The explanation that is shown before the act is done."""
    target: tuple[str, ...]
    """The names of the values that name the act's object."""
    do: Callable[[ConsoleDesk, Values], str]
    look: Callable[[ConsoleDesk, Values], Any] = lambda desk, values: None
    """Returns the state of the object, for the record: before, and after."""
    fields: tuple[ActField, ...] = ()
    destroys: bool = False
    counts: Callable[[ConsoleDesk, Values], str] | None = None
    """For an act on all objects that pass a filter: returns how many they are, as text."""

    def on(self, values: Values) -> str:
        """Return the act's object as text, for the record."""
        return " ".join(f"{name}={values[name]}" for name in self.target if values.get(name) not in (None, ""))


# ---------------------------------------------------------------- projections


def _projection(desk: ConsoleDesk, values: Values) -> dict[str, Any]:
    return {"name": values["name"], "generation": whole(values, "generation")}


def _projection_now(desk: ConsoleDesk, values: Values) -> dict[str, Any]:
    one = desk.s.projections.status(**_projection(desk, values))
    return {
        "state": one.state, "paused": one.paused, "ranges": len(one.ranges), "wanted_ranges": one.wanted_ranges,
        "parked": sum(each.parked for each in one.ranges),
        "dead_letters": sum(each.dead_letters for each in one.ranges),
    }  # fmt: skip


def _pause(desk: ConsoleDesk, values: Values) -> str:
    held = desk.s.projections.pause(**_projection(desk, values), timeout_s=5)
    return "paused" if not held else f"paused; {counted(len(held), 'range')} still to be released"


def _resume(desk: ConsoleDesk, values: Values) -> str:
    desk.s.projections.resume(**_projection(desk, values))
    return "resumed"


def _rescale(desk: ConsoleDesk, values: Values) -> str:
    done = desk.s.projections.rescale(n=whole(values, "ranges"), **_projection(desk, values), timeout_s=5)
    return "rescaled" if done else "asked for: its hosts do it when all ranges are released"


def _switch(desk: ConsoleDesk, values: Values) -> str:
    at = _projection(desk, values)
    return "switched" if desk.s.projections.switch(**at, timeout_s=5) else "asked for: its hosts end it"


def _skip(desk: ConsoleDesk, values: Values) -> str:
    desk.s.projections.skip(key=values["key"], to=whole(values, "to"), **_projection(desk, values))
    return "asked for: the owner of its range does it"


def _unpark(desk: ConsoleDesk, values: Values) -> str:
    desk.s.projections.unpark(key=values["key"], **_projection(desk, values))
    return "asked for: the owner of its range does it"


def _letter(values: Values) -> dict[str, Any]:
    return {"key": values["key"], "seq_nr": whole(values, "seq_nr"), "life": whole(values, "life")}


def _redeliver(desk: ConsoleDesk, values: Values) -> str:
    desk.s.projections.redeliver(**_letter(values), **_projection(desk, values))
    return "asked for: the owner of its range does it"


def _discard(desk: ConsoleDesk, values: Values) -> str:
    desk.s.projections.discard(**_letter(values), **_projection(desk, values))
    return "discarded"


# ---------------------------------------------------------------- groups


def _group_now(desk: ConsoleDesk, values: Values) -> dict[str, Any]:
    history = desk.groups(values["stream"]).load(values["id"])
    if history is None:
        return {}
    return {"state": history.state, "steps": {name: step.state for name, step in history.steps.items()}}


def _cancel(desk: ConsoleDesk, values: Values) -> str:
    outcome = desk.groups(values["stream"]).cancel(values["id"])
    return f"asked for; it was {outcome.state}"


def _resolve(desk: ConsoleDesk, values: Values) -> str:
    desk.groups(values["stream"]).resolve(values["id"], values["step"], values["how"])
    return "asked for: its processor does it"


# ---------------------------------------------------------------- work


def _work_now(desk: ConsoleDesk, values: Values) -> dict[str, Any]:
    return desk.work(values["journal"]).counts()._asdict()


def _pause_work(desk: ConsoleDesk, values: Values) -> str:
    desk.work(values["journal"]).pause(values.get("why") or "paused from the console")
    return "paused"


def _resume_work(desk: ConsoleDesk, values: Values) -> str:
    desk.work(values["journal"]).resume()
    return "resumed"


def _requeue(desk: ConsoleDesk, values: Values) -> str:
    added = desk.work(values["journal"]).requeue(whole(values, "dead_id"))
    return f"added again: {added.outcome}"


def _acknowledge(desk: ConsoleDesk, values: Values) -> str:
    desk.work(values["journal"]).acknowledge(whole(values, "dead_id"))
    return "acknowledged"


def _drop(desk: ConsoleDesk, values: Values) -> str:
    desk.work(values["journal"]).drop(whole(values, "entry"))
    return "dropped"


def _matching_letters(desk: ConsoleDesk, values: Values) -> tuple[WorkJournal, list[int]]:
    journal = desk.work(values["journal"])
    return journal, [one.dead_id for one in matching_letters(journal, values.get("q") or "")]


def _matching_entries(desk: ConsoleDesk, values: Values) -> tuple[WorkJournal, list[int]]:
    journal = desk.work(values["journal"])
    status = PROCESSING if values.get("show") == "running" else WAITING
    entries = [one for one in journal.entries(limit=LOOKED_AT) if one.status == status]
    return journal, [one.id for one in matching(entries, values.get("q") or "", values.get("priority") or "")]


def _each(ids: list[int], do: Callable[[int], object], done: str) -> str:
    """Do the act to each object; return a message with how many were not there any more, or were refused."""
    failed: list[StrandlineError] = []
    for one in ids:
        try:
            do(one)
        except StrandlineError as error:
            failed.append(error)
    left = f"; {len(failed)} not: {failed[0].message}" if failed else ""
    return f"{len(ids) - len(failed)} {done}{left}"


def _requeue_all(desk: ConsoleDesk, values: Values) -> str:
    journal, ids = _matching_letters(desk, values)
    return _each(ids, journal.requeue, "added again")


def _acknowledge_all(desk: ConsoleDesk, values: Values) -> str:
    journal, ids = _matching_letters(desk, values)
    return _each(ids, journal.acknowledge, "acknowledged")


def _drop_all(desk: ConsoleDesk, values: Values) -> str:
    journal, ids = _matching_entries(desk, values)
    return _each(ids, journal.drop, "dropped")


def _letters_counted(desk: ConsoleDesk, values: Values) -> str:
    return counted(len(_matching_letters(desk, values)[1]), "dead letter")


def _entries_counted(desk: ConsoleDesk, values: Values) -> str:
    count = len(_matching_entries(desk, values)[1])
    return "1 entry" if count == 1 else f"{count:,} entries"


# ---------------------------------------------------------------- the list

OF_PROJECTION: Final = ("name", "generation")
OF_LETTER: Final = (*OF_PROJECTION, "key", "life", "seq_nr")
OF_GROUP: Final = ("stream", "id")
NUMBERS: Final = frozenset({"generation", "life", "seq_nr", "to", "ranges", "dead_id", "entry"})
FILTER: Final = ("journal", "show", "q", "priority")
SKIP_FIELDS: Final = (
    ActField("key", "Key", help="as order|42"),
    ActField("to", "Up to number", "number", help="the events up to it count as done"),
)
HOW_HELP: Final = (
    "retry: try the undo again. force: write what was there before, over whatever is there. "
    "accept_current: leave what is there."
)

ACTS: Final[Mapping[str, OperatorAct]] = {
    act.name: act
    for act in (
        OperatorAct(
            "projections.pause", "Pause the projection", "Its handlers get no event until it is resumed.",
            OF_PROJECTION, _pause, _projection_now,
        ),
        OperatorAct(
            "projections.resume", "Resume the projection", "It goes on where it stands.",
            OF_PROJECTION, _resume, _projection_now,
        ),
        OperatorAct(
            "projections.rescale", "Cut it into other ranges",
            "Its hosts release all ranges, and share the new ones.", OF_PROJECTION, _rescale, _projection_now,
            (ActField("ranges", "Ranges", "number", help="a power of two, up to 1024"),),
        ),
        OperatorAct(
            "projections.switch", "Let this generation serve",
            "The one that serves is stopped, and this one takes its place exactly where it is.",
            OF_PROJECTION, _switch, _projection_now,
        ),
        OperatorAct(
            "projections.skip", "Skip events of a key",
            "They count as done and are not handed over. This cannot be taken back.",
            OF_PROJECTION, _skip, _projection_now, SKIP_FIELDS, destroys=True,
        ),
        OperatorAct(
            "projections.unpark", "Unpark the key", "What waits of it is handed over again, in order.",
            (*OF_PROJECTION, "key"), _unpark, _projection_now,
        ),
        OperatorAct(
            "projections.redeliver", "Redeliver the dead letter", "It is handed over again, and removed.",
            OF_LETTER, _redeliver, _projection_now,
        ),
        OperatorAct(
            "projections.discard", "Discard the dead letter", "It is removed, and never handed over.",
            OF_LETTER, _discard, _projection_now, destroys=True,
        ),
        OperatorAct(
            "groups.cancel", "Cancel the group", "It is undone as a whole, unless it is decided by then.",
            OF_GROUP, _cancel, _group_now, destroys=True,
        ),
        OperatorAct(
            "groups.resolve", "Resolve the step", "Say what becomes of a step whose undo failed.",
            (*OF_GROUP, "step"), _resolve, _group_now, (ActField("how", "How", "options", HOW, HOW_HELP),),
            destroys=True,
        ),
        OperatorAct(
            "work.pause", "Pause the work journal", "Nothing is handed out until it is resumed; what runs goes on.",
            ("journal",), _pause_work, _work_now,
        ),
        OperatorAct(
            "work.resume", "Resume the work journal", "Work is handed out again.",
            ("journal",), _resume_work, _work_now,
        ),
        OperatorAct(
            "work.requeue", "Requeue the dead letter", "It is added again by the ordinary rules, and removed here.",
            ("journal", "dead_id"), _requeue, _work_now,
        ),
        OperatorAct(
            "work.acknowledge", "Acknowledge the dead letter", "It is kept, and warned of no more.",
            ("journal", "dead_id"), _acknowledge, _work_now,
        ),
        OperatorAct(
            "work.drop", "Drop the entry", "It is removed and never done. A worker that has it loses it.",
            ("journal", "entry"), _drop, _work_now, destroys=True,
        ),
        OperatorAct(
            "work.requeue_all", "Requeue all that match", "They are added again by the ordinary rules.",
            FILTER, _requeue_all, _work_now, counts=_letters_counted,
        ),
        OperatorAct(
            "work.acknowledge_all", "Acknowledge all that match", "They are kept, and warned of no more.",
            FILTER, _acknowledge_all, _work_now, counts=_letters_counted,
        ),
        OperatorAct(
            "work.drop_all", "Drop all that match", "They are removed and never done.",
            FILTER, _drop_all, _work_now, destroys=True, counts=_entries_counted,
        ),
    )
}  # fmt: skip


def act_of(name: str) -> OperatorAct:
    """Return an act by its name."""
    if name not in ACTS:
        raise unknown("act", name, ACTS)
    return ACTS[name]


def checked_target(act: OperatorAct, values: Values) -> dict[str, Any]:
    """Return the values that name an act's object; refuse values that are unknown, missing, or
    neither text nor number.
    """
    return _checked(values, act.target, FILTER[1:] if act.target == FILTER else ())


def _checked(values: Values, known: Sequence[str], optional: Sequence[str]) -> dict[str, Any]:
    for name, value in values.items():
        if name not in known:
            raise unknown("values", name, known)
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise invalid("option", name, "neither text nor a whole number", allowed="one of these", got=value)
    for name in known:
        if name not in optional and values.get(name) in (None, ""):
            raise invalid("option", name, "missing", allowed="a value", got="nothing")
    return {name: value if name in NUMBERS else str(value) for name, value in values.items()}


def checked_values(act: OperatorAct, values: Values) -> dict[str, Any]:
    """Return all values of an act: those that name its object, and its fields."""
    fields = {one.name: one for one in act.fields}
    values = _checked(values, (*act.target, *fields), FILTER[1:] if act.target == FILTER else ())
    for name, field in fields.items():
        if field.options and values[name] not in field.options:
            raise invalid("option", name, "unknown", allowed=" ".join(field.options), got=values[name])
        if field.kind == "number":
            whole(values, name)
    return dict(values)
