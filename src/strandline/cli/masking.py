"""Secrets in URLs: found once, and replaced by `***` in everything that is printed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

from strandline.errors import InvalidInput

MASK = "***"
TOKEN = re.compile(r"(?:--[\w-]+=)?sl_[0-9A-Za-z]+_[0-9A-Za-z_-]{16,}")
_LITERAL_LENGTH_MIN = 4
_known: set[str] = set()
# The pattern goes to the last @ before a blank, so that a password with an unquoted / or # is masked, too. A URL that
# an error cut short ends with … and may have lost its @.
_USER_INFO = re.compile(r"(?P<before>[A-Za-z][\w+.-]*://[^\s:/@]*:)(?P<secret>[^\s]*)(?P<end>@|…)")
_PARAMETER = re.compile(
    r"(?P<before>[?&][\w.-]*(?:password|secret|token|sasl_key)=)(?P<secret>[^&#\s]*)", re.IGNORECASE
)


def remember(texts: Iterable[str]) -> None:
    """Note the secrets of these texts, as written and as a driver would decode them."""
    for text in texts:
        for pattern in (_USER_INFO, _PARAMETER):
            for match in pattern.finditer(text):
                _known.update((match["secret"], unquote(match["secret"])))
    _known.difference_update({secret for secret in _known if len(secret) < _LITERAL_LENGTH_MIN})


def forget() -> None:
    """Forget all secrets, before another command line."""
    _known.clear()


def masked(text: str, *, ours: bool = False) -> str:
    """Return text without secrets: known ones, and any text in the place of a URL's secret.

    A secret that is a plain word is masked only where it stands as a word. In a text whose words are all `ours`, such
    as a hint, it is left: there it gives nothing away, and with `start` as a password the hint would lose its verb.
    """
    for secret in sorted(_known, key=len, reverse=True):
        if not secret.isalpha():
            text = text.replace(secret, MASK)
        elif not ours:
            text = re.sub(rf"(?<!\w){secret}(?!\w)", MASK, text)
    text = _USER_INFO.sub(rf"\g<before>{MASK}\g<end>", text)
    return _PARAMETER.sub(rf"\g<before>{MASK}", text)


def refuse_tokens(argv: Iterable[str]) -> None:
    """Raise `InvalidInput.secret_in_argv` for an access token: every process of the machine can read it there."""
    for place, argument in enumerate(argv, 1):
        if TOKEN.fullmatch(argument):
            raise InvalidInput(
                f"argument {place}: an access token; allowed no secret on the command line",
                code="secret_in_argv",
                hint="keep it in a file that only you can read; revoke this one, others may have seen it",
                field=f"argument {place}",
            )
