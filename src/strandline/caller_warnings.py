"""Warnings: told at the line of the caller's that led to them, once for each line, as Python does it by default."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Final

_OURS: Final = str(Path(__file__).parent) + "/"


def caution(message: str) -> None:
    """Warn of what is allowed and may yet be regretted. The line is the nearest that is not this package's."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, RuntimeWarning, stacklevel=level)
