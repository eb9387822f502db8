"""Tells a forked child from the process that opened something, without asking the system at every call."""

from __future__ import annotations

import os

generation = 0
"""How many forks led to this process: grows by one in every child."""


def _forked() -> None:
    global generation  # noqa: PLW0603 (one number per process is what this module is)
    generation += 1


os.register_at_fork(after_in_child=_forked)
