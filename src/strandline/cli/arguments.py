"""What a shell gives as text, as the values that the journal takes. Ranges are the journal's own to check."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import datetime, timedelta

from strandline.clock import now_us
from strandline.errors import InvalidInput, invalid, shown
from strandline.journal import checks
from strandline.journal.checks import EXPIRE_AFTER_MAX, LIMIT_MAX
from strandline.values.answers import KEEP, Keep
from strandline.values.heads import SEQ_NR_MAX
from strandline.values.keys import Key

_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_SLICES = re.compile(r"([0-9]+)-([0-9]+)")
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([dhms])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def key_of(text: str, field: str = "KEY") -> Key:
    """A key as the shell gives it; most who get it wrong forgot the quotes."""
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


def whole_number(text: str, field: str, *, code: str, allowed: str) -> int:
    """A whole number, however large: who takes it knows the range."""
    if not _WHOLE.fullmatch(text):
        raise invalid(code, field, "not a whole number", allowed=allowed, got=text)
    return int(text)


def limit_of(text: str, most: int = LIMIT_MAX, field: str = "--limit") -> int:
    """Return how many rows to show, 1..`most`."""
    allowed = "1..2^63-1" if most == SEQ_NR_MAX else f"1..{most}"
    return checks.limit(whole_number(text, field, code="limit_range", allowed=allowed), most)


def seconds_of(text: str, field: str) -> float:
    """A number of seconds."""
    try:
        return float(text)
    except ValueError:
        raise invalid("option", field, "not a number", allowed="seconds, such as 0.5", got=text) from None


def seq_nr(text: str | None, field: str) -> int | None:
    """A seq_nr, or nothing."""
    if text is None:
        return None
    return whole_number(text, field, code="seq_nr_range", allowed="1..2^63-1")


def expected_seq_nr(text: str | None) -> int | None:
    """Where the journal must be: 0 means that there must be none."""
    if text is None:
        return None
    return whole_number(text, "--expected", code="seq_nr_range", allowed="0..2^63-1")


def time_of(text: str | None, field: str, clock: Callable[[], int] = now_us) -> datetime | int | None:
    """A time: microseconds since 1970, `+10m` from now by this clock, or as RFC 3339 writes it; or nothing."""
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return int(text)
    if text.startswith("+") and (match := _DURATION.fullmatch(text[1:])):
        return clock() + _duration(match) // timedelta(microseconds=1)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        allowed = "a time with a zone such as 2026-11-15T07:30:00Z, microseconds since 1970, or +10m (d, h, m, s)"
        raise invalid("time_format", field, "not a time", allowed=allowed, got=text) from None


def slices_of(text: str) -> tuple[int, int]:
    """The first and the last slice of a range, as `LO-HI`."""
    match = _SLICES.fullmatch(text)
    if not match:
        raise invalid("slice_range", "LO-HI", "no slices", allowed="LO-HI in 0..1023, such as 0-255", got=text)
    return int(match[1]), int(match[2])


def _duration(match: re.Match[str]) -> timedelta:
    try:
        return timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError:
        return timedelta.max


def expiry(text: str | None) -> timedelta | Keep | None:
    """`30d`, `12h`, `15m`, `45s`, or `none`; left out: as it is."""
    if text is None:
        return KEEP
    if text == "none":
        return None
    match = _DURATION.fullmatch(text)
    if not match:
        raise invalid("expire_after", "--expire-after", "no duration", allowed="30d, 12h, 15m, 45s or none", got=text)
    after = _duration(match)
    if not timedelta(0) < after <= EXPIRE_AFTER_MAX:
        raise invalid("expire_after", "--expire-after", "out of range", allowed="up to 36500d, above 0", got=text)
    return after


def pairs(texts: list[str] | None, field: str, *, code: str) -> dict[str, str]:
    """`NAME=VALUE`, any number of them; the last of a name counts."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            # Not shown: what has no name may be a secret.
            raise InvalidInput(f"{field}: no NAME=VALUE; allowed NAME=VALUE", code=code, hint=f"{field} NAME=VALUE")
        found[name] = value
    return found


def confirm(what: str, *, yes: bool) -> None:
    """Ask before something is destroyed. Without a terminal `--yes` is needed: nobody could answer."""
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
