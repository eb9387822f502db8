"""What rounds come to: medians, a ratio whose larger value is better, one line."""

from __future__ import annotations

import pytest

from strandline.bench.cases import Case, CaseResult, CaseSettings, RoundFigure


def _unused(plan: CaseSettings) -> RoundFigure:
    raise AssertionError(plan)


def _result(ours: list[float], theirs: list[float], *, rate: bool, unit: str) -> CaseResult:
    case = Case("append/1-writer", "eventsourcing", unit, 1.0, _unused, _unused, rate=rate)
    return CaseResult(case, [RoundFigure(value, {}) for value in ours], [RoundFigure(value, {}) for value in theirs])


def test_a_rate_is_ours_over_theirs_of_the_medians() -> None:
    result = _result([900.0, 3000.0, 3100.0], [1000.0, 2000.0, 9000.0], rate=True, unit="appends/s")
    assert result.line == "append/1-writer: ratio 1.50 (ours 3000 appends/s, eventsourcing 2000 appends/s)"


def test_of_a_duration_or_a_size_less_is_better() -> None:
    result = _result([200.0], [99.5], rate=False, unit="ms")
    assert result.line == "append/1-writer: ratio 0.50 (ours 200 ms, eventsourcing 99.5 ms)"
    assert not result.kept()["reached"]


def test_everything_of_a_round_is_kept() -> None:
    case = Case("memory/x", "limit", "MB", 1.0, _unused, 300.0, rate=False)
    kept = CaseResult(
        case, [RoundFigure(100.0, {"events": 7}), RoundFigure(120.0, {"events": 8})], [RoundFigure(300.0, {})]
    ).kept()
    assert kept["ours"]["rounds"] == [{"value": 100.0, "events": 7}, {"value": 120.0, "events": 8}]
    assert kept["ratio"] == pytest.approx(300 / 110)
    assert kept["reached"]
