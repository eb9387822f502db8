"""Warnings: shown with the caller's line that led to them, once for each line, as Python does by default."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Final

_OURS: Final = str(Path(__file__).parent) + "/"


def caution(message: str) -> None:
    """Warn of a use that is allowed but risky. The warning names the nearest line outside of this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, RuntimeWarning, stacklevel=level)
