"""How often a test does what it repeats: seldom in `make test`, often in `make soak`."""

from __future__ import annotations

import pytest


def repeats(few: int, many: int) -> pytest.MarkDecorator:
    """Parametrise `times`: few times for every statement's test, many times for the soak."""
    return pytest.mark.parametrize("times", [few, pytest.param(many, marks=pytest.mark.soak)])
