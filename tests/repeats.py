"""How often a test does what it repeats: seldom in `make test`, often in `make soak`."""

from __future__ import annotations

import os

import pytest

SOAK = "STRANDLINE_SOAK"
"""Set where Hypothesis is to look for long."""
LONGER = 50


def repeats(few: int, many: int) -> pytest.MarkDecorator:
    """Parametrise `times`: few times for every statement's test, many times for the soak."""
    return pytest.mark.parametrize("times", [few, pytest.param(many, marks=pytest.mark.soak)])


def examples(few: int) -> int:
    """How many examples Hypothesis makes: in the soak it looks fifty times as long."""
    return LONGER * few if os.environ.get(SOAK) else few
