"""The limits of the HTTP server, and the meter that holds each token to its own."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from strandline.server.frame import FrameError
from strandline.settings import MIB, CheckedSettings, within

KIB: Final = 1024
METERED_MAX: Final = 10_000
"""For how many tokens the rate is remembered; the token that was used longest ago is forgotten first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits(CheckedSettings):
    """The limits of a client's requests. Durations are seconds, sizes are bytes."""

    body_bytes_max: int | None = within(None, 1, 64 * MIB, kind=int)
    """By default 1.5 × `append_bytes_max`."""
    body_values_max: int = within(300_000, 1000, 100_000_000)
    """How many values a body of JSON may have: each takes a hundred bytes or more once it is parsed."""
    header_bytes_max: int = within(16 * KIB, KIB, 256 * KIB)
    header_timeout_s: float = within(30.0, 0.1, 600)
    """How long a request's headers may take, from the start of the connection or the end of its last answer."""
    body_timeout_s: float = within(30.0, 0.1, 600)
    idle_timeout_s: float = within(30.0, 0.1, 600)
    """How long the reader of a stream may read nothing."""
    connections_max: int = within(1000, 10, 100_000)
    """How many connections the server has at most. If one more comes, the one that has been idle longest is closed."""
    token_connections_max: int = within(100, 1, 100_000)
    """How many requests of one token may be under way at once, open streams included."""
    token_requests_per_s: float = within(100.0, 0.1, 1_000_000)
    """How many requests a second one token may send; as many may come at once."""


class RequestMeter:
    """Counts the requests of each token: how many are under way, and how fast they come. Only one thread may use it."""

    def __init__(self, limits: HttpLimits, now_s: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._now_s = limits, now_s
        self._under_way: dict[str, int] = {}
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By token: how many requests it could make at once, and when that was computed."""

    @contextmanager
    def request_of(self, token_id: str) -> Iterator[None]:
        """Count one request of a token while it is under way; `FrameError` 429 if it is one too many."""
        self._take(token_id)
        under_way = self._under_way.get(token_id, 0)
        if under_way >= self._limits.token_connections_max:
            most = self._limits.token_connections_max
            raise _too_many(f"{most} requests of this token are under way", "end some of them, then call again", 1.0)
        self._under_way[token_id] = under_way + 1
        try:
            yield
        finally:
            left = self._under_way[token_id] - 1
            if left:
                self._under_way[token_id] = left
            else:
                del self._under_way[token_id]

    def _take(self, token_id: str) -> None:
        most, now = self._limits.token_requests_per_s, self._now_s()
        burst = max(1.0, most)
        left, at = self._left.pop(token_id, (burst, now))
        left = min(burst, left + (now - at) * most)
        allowed = left >= 1
        self._left[token_id] = (left - 1 if allowed else left), now
        if len(self._left) > METERED_MAX:
            self._left.popitem(last=False)
        if not allowed:
            raise _too_many(
                f"more than {most:g} requests a second of this token", "call again later", (1 - left) / most
            )


def _too_many(detail: str, hint: str, after_s: float) -> FrameError:
    after = str(max(1, round(after_s)))
    return FrameError(429, "rate", detail, hint, retryable=True, headers={"Retry-After": after})
