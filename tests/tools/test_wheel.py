"""The wheel: what `pip install strandline` brings, and what it does not."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT_ONLY = {"bench", "demo", "servers"}


def test_the_wheel_has_the_product_and_not_what_a_checkout_is_for(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    rooms = {name.split("/")[1] for name in names if name.startswith("strandline/") and name.count("/") > 1}
    assert {"journal", "query", "projection", "work", "group", "pipeline", "testing"} <= rooms
    assert not rooms & CHECKOUT_ONLY
    assert "strandline/store/sql/journal.sql" in names


@pytest.mark.parametrize("command", sorted(CHECKOUT_ONLY))
def test_a_command_that_the_wheel_lacks_says_where_it_is(wheel: Path, command: str, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    call = "import sys; from strandline_command import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", call, command], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"{command}: the installed package does not have it" in done.stderr
    assert "make setup" in done.stderr
