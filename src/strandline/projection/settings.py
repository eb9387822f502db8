"""The settings of a projection: defaults, and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from strandline.errors import invalid
from strandline.query.settings import GivenSliceSettings, SliceSettings, check_searching
from strandline.query.times import time_us
from strandline.settings import judged, one_of, within
from strandline.urls import check_sql_url

START: Final = ("beginning", "now")
GROUPED: Final = ("group_size", "group_within_s")
ONE_BY_ONE: Final = ("save_after", "save_within_s")


class GivenProjectionSettings(GivenSliceSettings, total=False):
    """The settings as `Projection` takes them, for type checkers; a test compares both."""

    delivery: Literal["exactly_once", "at_least_once"]
    save_after: int
    save_within_s: float | timedelta
    group_size: int
    group_within_s: float | timedelta
    on_failure: Literal["fail", "skip", "park"]
    retries: int
    retry_delay_s: float | timedelta
    restart_min_s: float | timedelta
    restart_max_s: float | timedelta
    handler_timeout_s: float | timedelta
    lease_s: float | timedelta
    shutdown_grace_s: float | timedelta
    delete_after_s: float | timedelta
    delete_interval_s: float | timedelta
    parked_keys_max: int
    isolation: Literal["read_committed", "repeatable_read", "serializable"]
    start: Literal["beginning", "now"] | datetime | int
    offset_store: str | None
    feed: bool
    generation: int


def _start(name: str, given: object) -> str | int:
    if isinstance(given, str) and given in START:
        return given
    if not isinstance(given, datetime | int) or isinstance(given, bool):
        raise invalid("setting", name, "unknown value", allowed="beginning, now or a time", got=given)
    return time_us(given, name)


def _sql_url(name: str, given: object) -> str:
    if not isinstance(given, str):
        raise invalid("setting", name, "no URL", allowed="the URL of an SQL database", got=given)
    check_sql_url(name, given)
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionSettings(SliceSettings):
    """The settings of how a projection reads, as a query by slices does, and how it hands over. Durations are
    seconds."""

    delivery: str = one_of("exactly_once", "exactly_once", "at_least_once")
    save_after: int = within(100, 1, 10_000)
    """The most events in one transaction (exactly once), or between two saves (at least once)."""
    save_within_s: float = within(0.5, 0.001, 60)
    group_size: int = within(20, 1, 10_000)
    group_within_s: float = within(0.5, 0.001, 60)
    on_failure: str = one_of("fail", "fail", "skip", "park")
    retries: int = within(5, 0, 1000)
    retry_delay_s: float = within(0.2, 0.001, 600)
    restart_min_s: float = within(1.0, 0.01, 3600)
    restart_max_s: float = within(30.0, 0.01, 3600)
    handler_timeout_s: float = within(60.0, 0.1, 86_400)
    lease_s: float = within(30.0, 1, 3600)
    shutdown_grace_s: float = within(10.0, 0, 600)
    delete_after_s: float = within(86_400.0, 1, 10**9)
    """How far behind the least position key rows are kept."""
    delete_interval_s: float = within(3600.0, 1, 10**9)
    parked_keys_max: int = within(1000, 0, 10**6)
    isolation: str = one_of("repeatable_read", "read_committed", "repeatable_read", "serializable")
    """The isolation level of a handler's transaction on PostgreSQL. SQLite has one writer at a time."""
    start: str | int = judged("beginning", _start)
    offset_store: str | None = judged(None, _sql_url)
    feed: bool = False
    """Whether events also come straight from the log, before the pipeline has carried them."""
    generation: int = within(1, 1, 2**31)
    grouped: bool = field(default=False, init=False)
    """Whether the handler gets lists."""

    def _complete(self, given: Mapping[str, Any]) -> None:
        if self.restart_max_s < self.restart_min_s:
            allowed = "restart_min_s or more"
            raise invalid("setting", "restart_max_s", "below restart_min_s", allowed=allowed, got=self.restart_max_s)
        check_searching(given, use_strandline=self.use_strandline)
        if not self.use_strandline and self.delete_after_s < self.back_track_period_s:
            allowed = f"back_track_period_s ({self.back_track_period_s:g}) or more"
            raise invalid("setting", "delete_after_s", "too short", allowed=allowed, got=self.delete_after_s)
        object.__setattr__(self, "grouped", any(name in given for name in GROUPED))
        for name in ONE_BY_ONE if self.grouped else ():
            if name in given:
                allowed, hint = "not with lists", "one list is one transaction, or one save: give group_size alone"
                raise invalid("setting", name, "given with group_size", allowed=allowed, got=given[name], hint=hint)
