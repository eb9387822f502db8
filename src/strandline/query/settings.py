"""The settings of a query by slices: defaults, and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strandline.settings import checked_settings, within


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSettings:
    """How a query by slices reads. Durations are seconds."""

    page_size: int = within(500, 1, 1000)
    refresh_interval_s: float = within(0.25, 0.01, 60)
    """How often a live query looks whether the pointers have moved."""
    gap_timeout_s: float = within(10.0, 0, 600)
    """How long it looks for an event that should be there."""
    keys_in_memory_max: int = within(100_000, 1000, 10**9)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> SliceSettings:
        return cls(**checked_settings(cls, given))
