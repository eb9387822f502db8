"""The settings of a query by slices: defaults and allowed values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict

from strandline.errors import invalid
from strandline.settings import CheckedSettings, within

OFF: Final = "off"
SEARCHING: Final = ("eventual_consistency_delay_s", "back_track_interval_s", "back_track_period_s")
"""The settings that only a query without the strandline has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSettings(CheckedSettings):
    """The settings of a query by slices. Durations are seconds."""

    page_size: int = within(500, 1, 1000)
    refresh_interval_s: float = within(0.25, 0.01, 60)
    """How often a live query looks whether there is more."""
    gap_timeout_s: float = within(10.0, 0, 600)
    """How long it looks for an event that should be there."""
    keys_in_memory_max: int = within(100_000, 1000, 2**31)
    use_strandline: bool = True
    """Without it, for a store that something else writes, too."""
    eventual_consistency_delay_s: float = within(0.2, 0, 3600)
    """How far it stays behind the clock of the store."""
    back_track_interval_s: float | str = within(1.0, 0.01, 3600, word=OFF)
    """How often it reads again what lies shortly behind it."""
    back_track_period_s: float = within(120.0, 1, 3600)
    """How far behind it."""

    def _complete(self, given: Mapping[str, Any]) -> None:
        check_searching(given, use_strandline=self.use_strandline)


class GivenSliceSettings(TypedDict, total=False):
    """The settings as callers give them, for type checkers; a test compares both."""

    page_size: int
    refresh_interval_s: float | timedelta
    gap_timeout_s: float | timedelta
    keys_in_memory_max: int
    use_strandline: bool
    eventual_consistency_delay_s: float | timedelta
    back_track_interval_s: float | timedelta | Literal["off"]
    back_track_period_s: float | timedelta


def check_searching(given: Mapping[str, Any], searching: Sequence[str] = SEARCHING, *, use_strandline: bool) -> None:
    """Refuse settings that have no effect with the strandline."""
    for name in searching:
        if use_strandline and name in given:
            raise invalid(
                "setting", name, "there is none with the strandline", allowed="use_strandline=False", got=given[name],
                hint="give use_strandline=False too", setting=name,
            )  # fmt: skip
