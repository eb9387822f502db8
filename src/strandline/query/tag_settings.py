"""The settings of a query by tag: defaults and allowed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict

from strandline.query.settings import OFF, SEARCHING, check_searching
from strandline.settings import CheckedSettings, judged, within

MAX: Final = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class TagSettings(CheckedSettings):
    """One value per setting of a query. Durations are seconds."""

    first_time_bucket: str = judged("auto", lambda _, given: given)
    """The first bucket to read, as text that `bucket_start` reads, and refuses, for the store's size of buckets."""
    refresh_interval_s: float = within(0.25, 0.01, 60)
    page_size: int = within(1000, 1, 1000)
    keys_in_memory_max: int = within(100_000, 1000, 2**31)
    use_strandline: bool = True
    gap_timeout_s: float = within(10.0, 0, 600)
    eventual_consistency_delay_s: float = within(5.0, 0, 3600)
    new_key_scan_timeout_s: float = within(0.1, 0, 60)
    back_track_interval_s: float | str = within(1.0, 0.01, 3600, word=OFF)
    back_track_period_s: float | str = within(5.0, 0.001, 10**9, word=MAX)

    def _complete(self, given: Mapping[str, Any]) -> None:
        check_searching(given, (*SEARCHING, "new_key_scan_timeout_s"), use_strandline=self.use_strandline)


class GivenTagSettings(TypedDict, total=False):
    """The settings as callers give them, for type checkers; a test compares both."""

    first_time_bucket: str
    refresh_interval_s: float | timedelta
    page_size: int
    keys_in_memory_max: int
    use_strandline: bool
    gap_timeout_s: float | timedelta
    eventual_consistency_delay_s: float | timedelta
    new_key_scan_timeout_s: float | timedelta
    back_track_interval_s: float | timedelta | Literal["off"]
    back_track_period_s: float | timedelta | Literal["max"]
