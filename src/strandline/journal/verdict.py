"""Verdict: what became of an action, as an answer or an error.

A log that folds by itself says it with the acknowledgement. For one that does not, the effect has to be found out
before it comes here: by folding the log, up to the action's own place, on the pointer and head that were taken before
it was sent. Where no verdict was asked for, or none came in time, a plain append is still answered, without numbers: it
is accepted whatever others write. For any other action the verdict is then unknown.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.errors import InvalidInput, SeqNrConflict, StrandlineError, Unavailable, invalid
from strandline.fold import Duplicate, EventsAppended, EventsDeleted, LifePurged, RefusedAppend
from strandline.log.api import ActionDraft, Recorded
from strandline.points import reached
from strandline.values.actions import Append, Delete, Place
from strandline.values.answers import Appended, Deleted, Marked, Purged
from strandline.values.heads import Head
from strandline.values.keys import Key
from strandline.values.tuples import new_tuple


class Noted(NamedTuple):
    """The outcome of an append of this system's own. None: no verdict came in time."""

    last: int | None
    timestamp: int | None
    life: int | None


def noted(key: Key, draft: ActionDraft, recorded: Recorded, append_id: object) -> Noted:
    """Return the answer to an append of this system's own, or raise the error that refuses it."""
    answer, effect = appended(key, draft, recorded, append_id), recorded.effect
    return Noted(
        answer.last, answer.timestamp, effect.life if isinstance(effect, (EventsAppended, Duplicate)) else None
    )


def appended(key: Key, draft: ActionDraft, recorded: Recorded, append_id: object = None) -> Appended:
    """Return the answer to an append, or raise the error that refuses it; `append_id` as the caller gave it."""
    effect, place = recorded.effect, recorded.place
    if type(effect) is EventsAppended and place is not None:
        first, last, _, _ = effect
        return new_tuple(Appended, (key, first, last, *place, False))
    if isinstance(effect, Duplicate):
        reached("append.answered_from_its_id")
        known = effect.answer
        return Appended(key, known.first, known.last, draft.partition, known.offset, known.timestamp, duplicate=True)
    if isinstance(effect, RefusedAppend) and isinstance(draft.action, Append):
        raise _refused(draft.action, effect, append_id)
    if is_plain(draft) and place is not None:
        reached("append.without_its_numbers")
        return Appended(key, None, None, place.partition, place.offset, None)
    raise _unknown(str(key))


def of_many(
    key: Key, draft: ActionDraft, append_id: object, outcome: Recorded | BaseException
) -> Appended | StrandlineError:
    """Return the answer to one of many appends, or its error."""
    if isinstance(outcome, Recorded):
        try:
            return appended(key, draft, outcome, append_id)
        except StrandlineError as error:
            return error
    if isinstance(outcome, StrandlineError):
        return outcome
    raise outcome


def not_tried(failed: StrandlineError) -> StrandlineError:
    """Return the error for appends behind a failed commit: the log never got them."""
    reached("append_many.behind_a_failed_commit")
    hint = "call again" if failed.retryable else failed.hint
    return type(failed)(
        f"not tried, because a commit before it failed: {failed.message}", code=failed.code, hint=hint, applied="no"
    )


def deleted(draft: ActionDraft, recorded: Recorded) -> Deleted | None:
    """Return the answer to a delete; None if it was void."""
    place = _place(draft, recorded)
    if isinstance(recorded.effect, EventsDeleted):
        return Deleted(recorded.effect.to, place.partition, place.offset)
    if isinstance(draft.action, Delete) and draft.action.life is None and isinstance(recorded.state, Head):
        return Deleted(recorded.state.delete_to, place.partition, place.offset)
    return None


def purged(draft: ActionDraft, recorded: Recorded) -> Purged:
    """Return the answer to a purge."""
    place = _place(draft, recorded)
    effect = recorded.effect
    return Purged(place.partition, place.offset, effect.life if isinstance(effect, LifePurged) else None)


def marked(id_: str, draft: ActionDraft, recorded: Recorded) -> Marked:
    """Return the answer to a mark, which needs no verdict. It has no time where the log does not tell one."""
    place = recorded.place
    if place is None:
        raise _unknown(str(draft.action.key))
    return Marked(id_, place.partition, place.offset, place.timestamp or None)


def _place(draft: ActionDraft, recorded: Recorded) -> Place:
    if recorded.place is None or not recorded.folded:
        raise _unknown(str(draft.action.key))
    return recorded.place


def is_plain(draft: ActionDraft) -> bool:
    """Return whether it is an append that is always accepted: without `expected`, `first` and append id."""
    action = draft.action
    return isinstance(action, Append) and action.expected is None and action.first is None and not action.id_given


def _refused(action: Append, refused: RefusedAppend, append_id: object) -> StrandlineError:
    key, actual = action.key, refused.actual
    if refused.code == "expected":
        return SeqNrConflict(
            f"{key}: expected {action.expected}, head is {actual}",
            code="expected",
            hint="read the journal again, decide anew, and append with the number found",
            key=key,
            expected=action.expected,
            actual=actual,
        )
    if refused.code == "first":
        return SeqNrConflict(
            f"{key}: first is {action.first}, head is {actual}",
            code="first",
            hint="read the journal again; first must be above every number given so far",
            key=key,
            first=action.first,
            actual=actual,
        )
    if refused.code == "append_id_reused":
        reached("append.id_of_other_events")
        given = str(append_id or action.append_id)
        return invalid(
            "append_id_reused",
            "append_id",
            f"used for other events of {key}",
            allowed="a new id, or the same events",
            got=given,
            hint="give each append an id of its own; repeat one only with the same events and headers",
            key=key,
            append_id=given,
        )
    return InvalidInput(
        f"first: out of range; allowed up to 2^63-1, and at most 100 empty segments above {actual}; got {action.first}",
        code="seq_nr_range",
        hint="seq_nr is 1..2^63-1, and a gap may leave at most 100 segments empty",
        field="first",
        key=key,
        actual=actual,
    )


def _unknown(key: str) -> Unavailable:
    return Unavailable(
        f"{key}: recorded, but its outcome is not known yet",
        code="timeout",
        applied="unknown",
        hint="repeat it with its append id, or read the head",
        key=key,
    )
