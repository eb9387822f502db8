"""What is compared with the pipeline's batches runs as they do."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline.bench.freshness import empty_batches_in_child, pipeline_in_child
from strandline.pipeline import session


class Started(Exception):
    """A session would run now."""


def test_both_sides_start_their_session_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def start(*given: Any, **more: Any) -> None:
        more.pop("stop", None)  # whoever runs a pipeline may end it while it starts
        asked.append((given, more))
        raise Started

    url = f"sqlite:{tmp_path}/orders"
    strandline.connect(url).close()
    monkeypatch.setattr(session, "start", start)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(Started):
        pipeline_in_child(url)
    for checkpoint in (True, False):
        with pytest.raises(Started):
            empty_batches_in_child(samples=1, warm_up=1, checkpoint=checkpoint)
    ours, *theirs = asked
    assert theirs == [ours, ours]
