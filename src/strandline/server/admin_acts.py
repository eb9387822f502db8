"""Admin acts: the acts of operators, recorded as events of the journal itself.

    admin_act|2026-11-18    AdminActAsked  {"act": id, "who": …, "why": …, "what": …, "on": …, "before": …}
                            AdminActEnded  {"act": id, "after": …} or {"act": id, "error": {"title": …, "code": …, …}}

An act is recorded before it is done, and an act that cannot be recorded is not done. If an act has no end, its process
ended meanwhile: only the object of the act shows whether it took effect. The event's timestamp is the time of the act.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from strandline.errors import InvalidInput, NotFound, StrandlineError, invalid
from strandline.journal.journal import Journal
from strandline.values.events import Event
from strandline.values.json_form import json_form

ENTITY_TYPE: Final = "admin_act"
ASKED: Final = "AdminActAsked"
ENDED: Final = "AdminActEnded"
WHY_MAX: Final = 1000
_logger: Final = logging.getLogger("strandline.server")


def day_key(now: int) -> str:
    """Return the key that has the acts of a day, by a time (µs)."""
    return f"{ENTITY_TYPE}|{datetime.fromtimestamp(now / 1e6, UTC):%Y-%m-%d}"


class AdminActs:
    """Records admin acts in a journal."""

    def __init__(self, journal: Journal, clock: Callable[[], int]) -> None:
        self._journal, self._clock = journal, clock

    def asked(self, *, who: str, why: str, what: str, on: str, before: Any = None) -> str:
        """Record that an operator is about to act, and return the act's id."""
        if len(why) > WHY_MAX or "\0" in why:
            raise invalid("option", "why", "too long", allowed=f"up to {WHY_MAX} characters", got=why)
        act = secrets.token_hex(8)
        told = {"act": act, "who": who, "why": why, "what": what, "on": on, "before": json_form(before)}
        self._append(ASKED, told)
        return act

    def ended(self, act: str, *, after: Any = None, error: BaseException | None = None) -> None:
        """Record the result of an act."""
        if error is None:
            self._append(ENDED, {"act": act, "after": json_form(after)})
        elif isinstance(error, StrandlineError):
            told = {"title": type(error).__name__, "code": error.code, "applied": error.applied}
            self._append(ENDED, {"act": act, "error": {**told, "detail": error.message}})
        else:
            self._append(ENDED, {"act": act, "error": {"title": type(error).__name__, "applied": "unknown"}})

    def _append(self, type_: str, told: dict[str, Any]) -> None:
        self._journal.append_reserved(day_key(self._clock()), [Event(type_, told)])

    def done(
        self,
        do: Callable[[], Any],
        *,
        who: str,
        why: str,
        what: str,
        on: str,
        look: Callable[[], Any] = lambda: None,
    ) -> Any:
        """Call `do` with a record of the act, and return its answer. `look` returns the state of the object before and
        after.

        If the end of the act cannot be recorded, the error is raised with `applied` "unknown".
        """
        act = self.asked(who=who, why=why, what=what, on=on, before=_looked(look))
        try:
            answer = do()
        except BaseException as error:
            try:
                self.ended(act, error=error)
            except StrandlineError as second:
                _logger.error("the end of admin act %s is not recorded: %s", act, second)
            raise
        try:
            self.ended(act, after=_looked(look))
        except StrandlineError as error:
            error.applied = "unknown"
            raise
        return answer


def _looked(look: Callable[[], Any]) -> Any:
    """Return the state of the object, or the error of looking: an error must not keep an operator from acting.

    `NotFound` and `InvalidInput` are raised: there is no object to act on.
    """
    try:
        return look()
    except (InvalidInput, NotFound):
        raise
    except StrandlineError as error:
        return {"error": error.name}
