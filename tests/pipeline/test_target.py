"""Where a task opens log and store."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.pipeline.target import Target


def test_what_can_be_lost_is_said_by_the_driver_and_not_again_by_every_worker(tmp_path: Path) -> None:
    target = Target(f"sqlite:{tmp_path}/shop", settings={"accept_power_loss": True})
    with pytest.warns(RuntimeWarning, match="accept_power_loss"):
        target.connect().close()
    target.open()  # a warning is an error here
    target.drop()
