"""Arguments of a shell, turned from text into the values that the journal takes. The journal checks their ranges."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime, timedelta

from strandline.clock import now_us
from strandline.errors import InvalidInput, invalid, shown
from strandline.journal import checks
from strandline.journal.checks import EXPIRE_AFTER_MAX, LIMIT_MAX
from strandline.values import written
from strandline.values.answers import KEEP, Keep
from strandline.values.heads import SEQ_NR_MAX
from strandline.values.keys import Key
from strandline.values.written import duration_of, whole_number


def key_of(text: str, field: str = "KEY") -> Key:
    """Return the key in an argument. The hint of the error is about the most frequent mistake, missing quotes."""
    if "|" not in text:
        raise invalid(
            "key_type",
            field,
            "not a key",
            allowed='text "type|id"',
            got=text,
            hint="write it in quotes, for the shell takes | for a pipe: 'order|42'",
        )
    return Key.of(text)


def limit_of(text: str, most: int = LIMIT_MAX, field: str = "--limit") -> int:
    """Return how many rows to show, 1..`most`."""
    allowed = "1..2^63-1" if most == SEQ_NR_MAX else f"1..{most}"
    return checks.limit(whole_number(text, field, code="limit_range", allowed=allowed), most)


def seq_nr(text: str | None, field: str) -> int | None:
    """Return a seq_nr; None if none was given."""
    if text is None:
        return None
    return whole_number(text, field, code="seq_nr_range", allowed="1..2^63-1")


def expected_seq_nr(text: str | None) -> int | None:
    """Return the last seq_nr that the journal must have; 0 means that there must be no journal."""
    if text is None:
        return None
    return whole_number(text, "--expected", code="seq_nr_range", allowed="0..2^63-1")


def time_of(text: str | None, field: str, clock: Callable[[], int] = now_us) -> datetime | int | None:
    """Return a time, given as such or as `+10m` from now by this machine's clock; None if none was given."""
    return None if text is None else written.time_of(text, field, clock)


def expiry(text: str | None) -> timedelta | Keep | None:
    """Parse `30d`, `12h`, `15m`, `45s`, or `none`; without a value the expiry stays as it is."""
    if text is None:
        return KEEP
    if text == "none":
        return None
    after = duration_of(text)
    if after is None:
        raise invalid("expire_after", "--expire-after", "no duration", allowed="30d, 12h, 15m, 45s or none", got=text)
    if not timedelta(0) < after <= EXPIRE_AFTER_MAX:
        raise invalid("expire_after", "--expire-after", "out of range", allowed="up to 36500d, above 0", got=text)
    return after


def pairs(texts: list[str] | None, field: str, *, code: str) -> dict[str, str]:
    """Parse `NAME=VALUE`, any number of them; the last of a name counts."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            # The error does not show the value: without a name it may be a secret.
            raise InvalidInput(f"{field}: no NAME=VALUE; allowed NAME=VALUE", code=code, hint=f"{field} NAME=VALUE")
        found[name] = value
    return found


def confirm(what: str, *, yes: bool) -> None:
    """Ask before something is destroyed. Without a terminal `--yes` is needed, because the question
    cannot be answered.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidInput(
            f"--yes: missing; this will {what}, and there is no terminal to ask on",
            code="option",
            hint="give --yes if that is meant",
            field="--yes",
        )
    sys.stderr.write(f"This will {what}. Go on? [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline().strip()
    if answer.lower() not in ("y", "yes"):
        raise InvalidInput(
            f"not confirmed: nothing was done; got {shown(answer) or 'nothing'}",
            code="option",
            hint="answer y to go on",
        )
