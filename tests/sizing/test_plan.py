"""What a load needs: as much as the figures say, more for more, and never less than is safe."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline import InvalidInput
from strandline.sizing import Load, plan, published
from strandline.sizing.measuring import measured
from strandline.sizing.model import BACKENDS
from tests.acceptance.cli_call import call

DAY = 86400
LOAD = Load(20_000, 300, 90 * DAY, on="kafka-cassandra")
BENCHMARKS = Path(__file__).parents[2] / "docs/BENCHMARKS.md"


def values(load: Load) -> dict[str, float]:
    return {line.name: line.value for line in plan(load, published())}


def test_what_a_load_needs() -> None:
    """Worked out by hand from the published figures."""
    found = values(LOAD)
    assert found["executor cores"] == 23  # 40,000 a second at the peak, 282 us each, half of a core used
    assert found["executors"] == 6
    assert found["partitions"] == 64
    assert found["brokers"] == 3
    assert found["log disk"] == pytest.approx(20_000 * 611 * 7 * DAY * 3 * 2 / 10**9)
    assert found["store disk"] == pytest.approx(20_000 * 505 * 2 * 90 * DAY * 3 * 2 / 10**9)
    assert values(replace(LOAD, tags=1))["store disk"] == pytest.approx(1.5 * found["store disk"])
    assert values(replace(LOAD, tags=1))["executor cores"] == 25


@settings(max_examples=60, deadline=None)
@given(
    events=st.floats(1, 500_000), size=st.floats(0, 10_000), days=st.floats(1, 3000), tags=st.floats(0, 5),
    on=st.sampled_from(BACKENDS),
)  # fmt: skip
def test_more_needs_no_less(events: float, size: float, days: float, tags: float, on: str) -> None:
    load = Load(events, size, days * DAY, tags=tags, on=on)
    found = values(load)
    for more in (
        replace(load, events_per_s=2 * events), replace(load, bytes=2 * size), replace(load, tags=tags + 1),
        replace(load, retention_s=2 * load.retention_s), replace(load, peak=3.0),
    ):  # fmt: skip
        assert all(needed >= found[name] for name, needed in values(more).items())
    assert found["partitions"] in {2**power for power in range(3, 11)}
    if on == "kafka-cassandra":
        assert min(found["brokers"], found["nodes"]) >= 3


@pytest.mark.parametrize(
    ("events", "chosen"), [(1_000, "sqlite"), (6_000, "kafka-cassandra"), (10**6, "kafka-cassandra")]
)
def test_the_smallest_back_ends_that_hold_it(events: float, chosen: str) -> None:
    lines = {line.name: line for line in plan(Load(events, 150, DAY, peak=1 if events == 10**6 else 2.5), published())}
    assert lines["back-ends"].unit == chosen


def test_every_figure_names_a_benchmark_that_is_published() -> None:
    text = BENCHMARKS.read_text()
    for name, figure in published().items():
        assert figure.value > 0
        if figure.source not in ("assumed", "strandline plan --measure"):
            for line in re.split(", ", figure.source):
                assert line in text, name


def test_a_measurement_of_this_machine() -> None:
    figures = measured(published(), events=1000)
    factor = figures["measured_carry_core_us"].value / published()["measured_carry_core_us"].value
    assert factor > 0
    assert figures["carry_core_us"].value == pytest.approx(published()["carry_core_us"].value * factor)
    assert "this machine" in figures["store_bytes"].source
    assert figures["store_bytes"].value > 50
    assert figures["broker_bytes_per_s"] == published()["broker_bytes_per_s"]


def test_the_command() -> None:
    given = ["plan", "--events-per-s", "20000", "--bytes", "300", "--retention", "90d", "--on", "kafka-cassandra"]
    answer = call(*given, "--json")
    assert answer.code == 0, answer.err
    told = json.loads(answer.out)
    assert {line["name"]: line["value"] for line in told["lines"]} == values(LOAD)
    assert told["figures"]["carry_core_us"]["source"] == "replicate/scale-cores"
    text = call(*given).out
    assert all(line["why"] in text for line in told["lines"])


@pytest.mark.parametrize(
    ("more", "named"),
    [(["--retention", "soon"], "--retention"), (["--events-per-s", "0"], "events_per_s"), (["--on", "oracle"], "on")],
)
def test_what_no_plan_is_made_of(more: list[str], named: str) -> None:
    answer = call("plan", "--events-per-s", "1", "--bytes", "1", "--retention", "1d", *more)
    assert answer.code == 2
    assert named in answer.err


def test_bounds() -> None:
    with pytest.raises(InvalidInput):
        plan(Load(2_000_000, 1, 1), published())
