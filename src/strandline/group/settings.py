"""The settings of `s.groups`: defaults, and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.settings import MIB, CheckedSettings, one_of, within

WAIT_LEAST_S, WAIT_MOST_S = 0.1, 5.0
"""Retries wait so long, doubling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings(CheckedSettings):
    """The settings of a stream's groups. Durations are seconds, sizes are bytes."""

    lease_s: float = within(5.0, 1, 300)
    parallel_groups: int = within(8, 1, 256)
    parallel_steps: int = within(16, 1, 1024)
    queue_max: int = within(10**5, 1, 10**7)
    steps_max: int = within(10_000, 1, 10**5)
    deadline_s: float = within(600.0, 0.1, 86_400)
    statement_timeout_s: float = within(30.0, 0.01, 3600)
    answer_timeout_s: float = within(30.0, 0.001, 86_400)
    retries: int = within(3, 0, 100)
    undo_retries: int = within(5, 0, 100)
    undo_wait_s: float = within(86_400.0, 0, 2_592_000)
    on_conflict: str = one_of("fail", "fail", "keep_current", "overwrite")
    rows_max: int = within(10_000, 1, 10**6)
    image_bytes_max: int = within(64 * MIB, 1, 256 * MIB)
    barrier_keep_s: float = within(604_800.0, 3600, 10**8)
    history_keep_s: float | None = within(None, 86_400, 3 * 10**9)
    clock_ahead_max_s: float = within(10.0, 0, 3600)
