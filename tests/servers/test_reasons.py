"""Where a server cannot be had: its tests are skipped and one table says why; in CI they fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.servers.jars import CACHE, IVY_SETTINGS
from tests.servers.fixtures import required

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.conftest import pytest_sessionfinish, pytest_terminal_summary, pytest_testnodedown
from tests.servers.fixtures import kafka
"""
TESTS = """
def test_first(kafka): pass
def test_second(kafka): pass
def test_without(): pass
"""


@pytest.mark.parametrize(
    ("name", "value", "is_required"),
    [("CI", "true", True), ("CI", "", False), ("STRANDLINE_SERVERS", "required", True)],
)
def test_who_must_have_servers(name: str, value: str, is_required: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CI", "STRANDLINE_SERVERS"):
        monkeypatch.delenv(variable, raising=False)
    assert not required()
    monkeypatch.setenv(name, value)
    assert required() is is_required


@pytest.mark.parametrize(
    ("variables", "lanes", "outcome"),
    [
        pytest.param({}, 0, "1 passed, 2 skipped", marks=pytest.mark.soak),
        ({}, 2, "1 passed, 2 skipped"),
        pytest.param({"CI": "true"}, 0, "1 passed, 2 errors", marks=pytest.mark.soak),
        ({"STRANDLINE_SERVERS": "required"}, 0, "1 passed, 2 errors"),
    ],
)
def test_a_server_that_cannot_be_had(tmp_path: Path, variables: dict[str, str], lanes: int, outcome: str) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    nowhere = tmp_path / "nowhere.xml"
    nowhere.write_text(
        "<ivysettings><settings defaultResolver='none'/><resolvers><filesystem name='none'>"
        f"<artifact pattern='{tmp_path}/none/[artifact].[ext]'/></filesystem></resolvers></ivysettings>"
    )
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "STRANDLINE_SERVERS")}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = kept | {CACHE: str(tmp_path / "cache"), IVY_SETTINGS: str(nowhere), "PYTHONPATH": path} | variables
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", f"-n{lanes}", tmp_path],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in answer.stdout
    assert answer.stdout.count("servers that could not be had") == 1
    table = answer.stdout.split("servers that could not be had")[1]
    (row,) = [line for line in table.splitlines() if line.startswith("kafka  ")]
    assert "cannot be fetched" in row
    assert answer.returncode == (1 if variables else 0)
