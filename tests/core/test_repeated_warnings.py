"""A warning that comes again and again is logged once, then once a minute with how often it came."""

from __future__ import annotations

import logging
import time

import pytest

from strandline.repeated_warnings import EVERY_S, RepeatedWarnings


def test_once_then_once_a_minute_with_the_count(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    warnings = RepeatedWarnings(logging.getLogger("strandline.test"))
    for _ in range(100):
        warnings.warning("store", "it is away: %s", "no answer")
        now[0] += 1
        if now[0] == 1010:
            warnings.warning("log", "it is away: %s", "refused")
    assert [record.getMessage() for record in caplog.records] == [
        "it is away: no answer",
        "it is away: refused",
        f"it is away: no answer ({EVERY_S - 1:.0f} more like this in {EVERY_S:.0f} s)",
    ]
    now[0] += 2 * EVERY_S
    warnings.warning("store", "it is away: %s", "no answer")
    assert "39 more like this in 160 s" in caplog.messages[-1]
    now[0] += 2 * EVERY_S
    warnings.warning("store", "it is away: %s", "no answer")
    assert caplog.messages[-1] == "it is away: no answer"
