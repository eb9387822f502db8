"""Transfers with kills: the sum of all accounts never changes, and every group ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.demo.transfers import play
from tests.repeats import repeats


@pytest.mark.req("G70", "G72", "S61", "RG1", "RG3")
@repeats(1, 20)
def test_the_sum_is_constant(tmp_path: Path, times: int) -> None:
    for seed in range(times):
        folder = tmp_path / str(seed)
        folder.mkdir()
        told = play(folder, groups=40 if times == 1 else 400, kills=2 if times == 1 else 8, seed=seed)
        assert told.sound, told
        assert sum(told.ends.values()) == (40 if times == 1 else 400)
        assert told.kills > 0
        assert told.ends["committed"] > 0
        assert told.ends["rolled_back"] > 0
