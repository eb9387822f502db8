"""Lanes: what uses the same server runs in one of them, and what takes long begins first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFTEST = """
import os
import pytest
from tests.conftest import (
    pytest_collection_modifyitems, pytest_configure_node, pytest_unconfigure, pytest_xdist_make_scheduler,
)

@pytest.fixture(autouse=True)
def note(request):
    with open("order", "a") as file:
        file.write(f"{os.getpid()} {request.node.originalname}\\n")

@pytest.fixture
def kafka(): pass

@pytest.fixture
def cassandra(): pass
"""
TESTS = """
import pytest

@pytest.mark.parametrize("n", range(20))
def test_quick(n): pass

@pytest.mark.parametrize("n", range(5))
def test_with_one(n, kafka): pass

@pytest.mark.parametrize("n", range(5))
def test_with_another(n, cassandra): pass
"""


def test_what_uses_a_server_is_in_one_lane_and_begins_first(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n2", tmp_path],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "30 passed" in answer.stdout, answer.stdout
    ran = [line.split() for line in (tmp_path / "order").read_text().splitlines()]
    (lane,) = {lane for lane, name in ran if name != "test_quick"}
    assert [name for found, name in ran if found == lane][:10].count("test_quick") == 0
    assert {found for found, _ in ran} > {lane}
