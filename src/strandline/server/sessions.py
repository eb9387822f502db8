"""Browser sessions: a cookie stands for a token, so that no page and no address ever has the token itself.

A session lives in the memory of its server: after a restart people log in again. Its cookie is HttpOnly and
SameSite=Strict, and a request that changes something carries the session's CSRF value as well.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from starlette.responses import Response

from strandline.server.tokens import AccessToken, TokenFile

COOKIE: Final = "strandline_session"
CSRF_HEADER: Final = "x-csrf-token"
SESSIONS_MAX: Final = 1000
"""The most sessions of a server. If one more is opened, the oldest one ends."""
SESSION_US: Final = 12 * 3600 * 10**6


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A browser that logged in with a token."""

    token_id: str
    csrf: str
    expires: int

    def csrf_is(self, given: str) -> bool:
        """Whether a request carries this session's CSRF value."""
        return hmac.compare_digest(given.encode(), self.csrf.encode())


class BrowserSessions:
    """The sessions of one server, by the digest of their cookies."""

    def __init__(self, tokens: TokenFile) -> None:
        self._tokens = tokens
        self._clock: Callable[[], int] = tokens.clock
        self._sessions: OrderedDict[str, BrowserSession] = OrderedDict()

    def open(self, token: AccessToken) -> tuple[str, BrowserSession]:
        """Open a session for a token; return the value of its cookie, and the session."""
        cookie = secrets.token_urlsafe(32)
        expires = min(self._clock() + SESSION_US, token.expires)
        session = BrowserSession(token.id, secrets.token_urlsafe(32), expires)
        self._sessions[_digest(cookie)] = session
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return cookie, session

    def find(self, cookie: str) -> tuple[BrowserSession, AccessToken] | None:
        """Return the session of a cookie and its token; None if either has ended."""
        session = self._sessions.get(_digest(cookie))
        if session is None or self._clock() >= session.expires:
            return None
        token = self._tokens.by_id(session.token_id)
        return None if token is None else (session, token)

    def close(self, cookie: str) -> None:
        """End a session. Twice is harmless."""
        self._sessions.pop(_digest(cookie), None)


def set_cookie(response: Response, cookie: str, *, path: str, secure: bool) -> None:
    """Set the session's cookie in a response."""
    response.set_cookie(COOKIE, cookie, path=path or "/", httponly=True, samesite="strict", secure=secure)


def drop_cookie(response: Response, *, path: str, secure: bool) -> None:
    """Delete the session's cookie in a response."""
    response.delete_cookie(COOKIE, path=path or "/", httponly=True, samesite="strict", secure=secure)


def _digest(cookie: str) -> str:
    return sha256(cookie.encode()).hexdigest()
