"""Each benchmark runs, prints its lines and keeps its rounds. Nothing here asserts a speed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from strandline.bench import NAMES, run
from strandline.bench.cases import Case, Plan, Sample
from strandline.bench.run import _measure
from strandline.errors import InvalidInput

LINE = re.compile(r"^(\S+): ratio \d+\.\d\d \(ours [\d.e+]+ (\S+), (\S+) [\d.e+]+ \2\)$")

LINES = {
    "append": ["append/1-writer", "append/16-writers", "append/64-writers", "append/500-a-call"],
    "read": ["read/replicated", "read/half-in-log"],
    "replicate": ["replicate/sqlite"],
    "freshness": ["freshness/p50"],
    "memory": ["memory/read-a-million"],
}


def _names(output: str) -> list[str]:
    matches = [LINE.match(line) for line in output.splitlines()]
    return [match[1] if match else "" for match in matches]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.spark] * (name in {"replicate", "freshness"})) for name in NAMES]
)
def test_a_benchmark_runs_and_ends_with_its_lines(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept_in = tmp_path / "out" / "figures.json"
    results = run(name, quick=True, json_file=kept_in)
    said = capsys.readouterr()
    assert _names(said.out) == LINES[name] == [result.case.name for result in results]
    assert f"{LINES[name][0]}, round 1 of 1: ours" in " ".join(said.err.split())
    kept = json.loads(kept_in.read_text())
    assert kept["benchmark"] == name
    assert kept["quick"] is True
    assert kept["settings"]["payload_bytes"] == 150
    assert {"cpu", "cores", "file_system", "fdatasync_per_s"} <= kept["machine"].keys()
    assert {"python", "strandline", "apsw"} <= kept["versions"].keys()
    assert [result["line"] for result in kept["results"]] == said.out.splitlines()
    for result in kept["results"]:
        assert len(result["ours"]["rounds"]) == len(result["theirs"]["rounds"]) == 1


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_what_runs_on_demand_runs_when_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    run("memory", quick=True, cases=["replicate-ten-million"])
    assert _names(capsys.readouterr().out) == ["memory/replicate-ten-million"]


def test_sides_take_turns_at_going_first(tmp_path: Path) -> None:
    went: list[str] = []
    folders: set[Path] = set()

    def side(name: str, plan: Plan) -> Sample:
        assert not any(plan.folder.iterdir())
        assert (plan.shared / "filled").exists()
        (plan.folder / name).touch()
        folders.add(plan.folder)
        went.append(name)
        return Sample(1.0, {})

    case = Case(
        "x/y", "peer", "things/s", 1.0, lambda plan: side("ours", plan), lambda plan: side("theirs", plan),
        prepare=lambda plan: (plan.shared / "filled").touch(),
    )  # fmt: skip
    result = _measure(case, 3, Plan(tmp_path, tmp_path, False), lambda what, *, done=0: None)
    assert went == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert len(folders) == len(result.ours) + len(result.theirs) == 6
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("appends", {}),
        ("append", {"cases": ["17-writers"]}),
        ("append", {"cases": ["read/replicated"]}),
        ("append", {"on": ["paper"]}),
        ("append", {"on": ["kafka-cassandra"]}),
        ("append", {"on": ["sqlite"], "cases": ["postgres-1-writer"]}),
        ("append", {"rounds": 0}),
    ],
)
def test_what_is_not_known_is_refused_before_anything_runs(
    name: str, options: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        run(name, **options)  # type: ignore[arg-type]
    assert caught.value.code == "option"
    assert caught.value.hint
    assert capsys.readouterr() == ("", "")
