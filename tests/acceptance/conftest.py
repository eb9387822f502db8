"""A folder of its own for each test."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A journal that is not there yet, in the folder where the test runs."""
    monkeypatch.chdir(tmp_path)
    return "sqlite:orders"
