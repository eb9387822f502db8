"""Decides what becomes of an event whose handler failed. Pure: it takes what happened, and returns what to do.

attempts left                again, after a delay that doubles
on_failure    fail           the range fails, and starts again later, at the same event
              skip           a dead letter, and the next event
              park           a dead letter, the key waits, other keys go on; with too many parked ones: fail
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from strandline.errors import StrandlineError, text_of
from strandline.projection.settings import ProjectionSettings

RETRY_DELAY_MAX_S: Final = 10.0
MESSAGE_CHARACTERS_MAX: Final = 1000
CAREFUL_AFTER_CLAIMS: Final = 3
"""After so many claims that ended in the death of their process, each event is tried alone."""


class RecoveryStep(Enum):
    """The next action after a failure."""

    RETRY = "retry"
    FAIL = "fail"
    SKIP = "skip"
    PARK = "park"


class Decision(NamedTuple):
    """A step, and how long to wait before it."""

    step: RecoveryStep
    delay_s: float = 0.0


def decide(settings: ProjectionSettings, attempts: int, parked: int) -> Decision:
    """Decide what comes after so many attempts, with so many parked keys beside this one."""
    if attempts <= settings.retries:
        return Decision(RecoveryStep.RETRY, retry_delay_s(settings, attempts))
    step = RecoveryStep(settings.on_failure)
    if step is RecoveryStep.PARK and parked >= settings.parked_keys_max:
        step = RecoveryStep.FAIL  # the handler is wrong, not the keys
    return Decision(step)


def retry_delay_s(settings: ProjectionSettings, attempts: int) -> float:
    """Return the time before the next attempt: `retry_delay_s`, doubling."""
    doubled: float = settings.retry_delay_s * 2.0 ** float(min(attempts - 1, 30))
    most: float = max(RETRY_DELAY_MAX_S, settings.retry_delay_s)
    return min(doubled, most)


def restart_delay_s(settings: ProjectionSettings, restarts: int, jitter: float) -> float:
    """Return the time before a failed range starts again. `jitter` is 0..1, and moves it by 20 % at most."""
    doubled: float = min(settings.restart_min_s * 2.0 ** float(min(restarts, 30)), settings.restart_max_s)
    return doubled * (0.8 + 0.4 * jitter)


class HandlerFailure(NamedTuple):
    """The reason why an event was not handled, in words that are kept."""

    type: str
    message: str

    @classmethod
    def of(cls, error: BaseException) -> HandlerFailure:
        hint = f": {error.hint}" if isinstance(error, StrandlineError) and error.hint else ""
        return cls(type(error).__name__, f"{text_of(error)}{hint}"[:MESSAGE_CHARACTERS_MAX])
