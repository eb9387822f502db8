"""Each benchmark runs, prints its lines and keeps its rounds. Nothing here asserts a speed.

Each starts Spark where it needs it, at nine seconds a time: pipelines on servers are left to the soak.
"""

from __future__ import annotations

import importlib
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.bench import NAMES, run
from strandline.bench.cases import Case, CaseSettings, RoundFigure
from strandline.bench.run import BACKENDS, _measure
from strandline.errors import InvalidInput, Unavailable
from strandline.servers.cassandra import CassandraServer
from strandline.servers.kafka import KafkaServer
from strandline.servers.postgres import PostgresServer
from strandline.servers.server import Server

LINE = re.compile(r"^(\S+): ratio \d+\.\d\d \(ours [\d.e+]+ (\S+), (\S+) [\d.e+]+ \2\)$")

LINES = {
    ("append", "sqlite"): [
        "append/1-writer",
        "append/16-writers",
        "append/64-writers",
        "append/500-a-call",
        "append/many-keys",
        "append/futures",
    ],
    ("append", "postgres"): [
        "append/postgres-1-writer",
        "append/postgres-64-writers",
        "append/postgres-500-a-call",
        "append/postgres-many-keys",
        "append/postgres-futures",
    ],
    ("append", "kafka"): [
        "append/kafka-64-writers",
        "append/kafka-64-verdicts",
        "append/kafka-futures",
        "append/kafka-expected-p99",
    ],
    ("read", "sqlite"): ["read/replicated", "read/half-in-log"],
    ("read", "postgres"): ["read/postgres"],
    ("replicate", "sqlite"): ["replicate/sqlite"],
    ("replicate", "postgres"): ["replicate/postgres-postgres", "replicate/scale-cores"],
    ("replicate", "kafka-postgres"): ["replicate/kafka-postgres"],
    ("replicate", "kafka-cassandra"): ["replicate/kafka-cassandra"],
    ("replay", "postgres"): ["replay/one-event-a-key", "replay/thousand-a-key"],
    ("import", "sqlite"): ["import/sqlite"],
    ("import", "postgres"): ["import/postgres"],
    ("freshness", "sqlite"): ["freshness/p50"],
    ("memory", "sqlite"): ["memory/read-a-million"],
    ("work", "sqlite"): ["work/sqlite-drain", "work/sqlite-one-by-one"],
    ("work", "postgres"): [
        "work/drain",
        "work/drain-procrastinate",
        "work/worker",
        "work/add",
        "work/wake-now-p50",
        "work/wake-at-date-p99",
    ],
    ("server", "sqlite"): ["server/append", "server/streams", "server/first-page"],
    ("groups", "sqlite"): ["groups/expression"],
    ("groups", "postgres"): ["groups/bare", "groups/two-databases", "groups/disjoint"],
    ("slices", "sqlite"): ["slices/sqlite"],
    ("slices", "postgres"): ["slices/postgres"],
    ("project", "sqlite"): ["project/sqlite", "project/latency-p50", "project/feed-p50", "project/memory"],
    ("project", "postgres"): ["project/postgres", "project/at-least-once"],
    ("rebuild", "sqlite"): ["rebuild/sqlite"],
    ("rebuild", "postgres"): ["rebuild/postgres"],
    ("reconcile", "sqlite"): ["reconcile/clean", "reconcile/clean-with-log"],
    ("archive", "sqlite"): ["archive/write", "archive/read"],
    ("tags", "sqlite"): [
        "tags/live-p50",
        "tags/live-p99",
        "tags/current-sqlite",
        "tags/replicate-1-tag",
        "tags/replicate-5-tags",
    ],
    ("tags", "postgres"): ["tags/current-postgres", "tags/replicate-1-tag-postgres", "tags/replicate-5-tags-postgres"],
    ("tags", "cassandra"): ["tags/current-cassandra", "tags/empty-buckets"],
}
ON_DEMAND = {
    "slices/flat",
    "append/1-writer-new-keys", "append/16-writers-new-keys", "append/64-writers-new-keys",
    "append/metrics-off", "append/metrics-on", "replay/memory",
    "freshness/p50-without-checkpoint", "memory/replicate-ten-million", "replicate/scale-rows",
    "tags/flat", "work/million-later", "work/drain-snapshot-held",
    "groups/dbos",
}  # fmt: skip


def _names(output: str) -> list[str]:
    matches = [LINE.match(line) for line in output.splitlines()]
    return [match[1] if match else "" for match in matches]


def _marked(*names: str, soak: bool = False) -> list[object]:
    on_spark = ("replicate", "replay")
    marks = {name: [pytest.mark.spark, *[pytest.mark.soak] * soak] for name in on_spark}
    several = ("freshness", "tags", "project", "rebuild", "reconcile", "archive", "import")  # they start Spark so often
    for name in several:
        marks[name] = [pytest.mark.spark, pytest.mark.soak]
    return [pytest.param(name, marks=marks.get(name, [])) for name in names]


def _runs(name: str, on: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], *servers: Server) -> None:
    lines, kept_in = LINES[name, on], tmp_path / "out" / "figures.json"
    addresses = {server.name: server.url for server in servers}
    results = run(name, quick=True, json_file=kept_in, on=[on], servers=addresses)
    said = capsys.readouterr()
    assert _names(said.out) == lines == [result.case.name for result in results]
    assert f"{lines[0]}, round 1 of 1: ours" in " ".join(said.err.split())
    assert "starting" not in said.err
    kept = json.loads(kept_in.read_text())
    assert kept["benchmark"] == name
    assert kept["quick"] is True
    assert kept["settings"]["payload_bytes"] == 150
    assert kept["settings"]["on"] == [on]
    assert {"cpu", "cores", "file_system", "fdatasync_per_s"} <= kept["machine"].keys()
    assert {"python", "strandline", "apsw"} <= kept["versions"].keys()
    assert [result["line"] for result in kept["results"]] == said.out.splitlines()
    for result in kept["results"]:
        assert len(result["ours"]["rounds"]) == len(result["theirs"]["rounds"]) == 1


def test_every_case_is_run_here() -> None:
    cases = {case.name: case.on for name in NAMES for case in importlib.import_module(f"strandline.bench.{name}").CASES}
    here = {line: on for (_, on), lines in LINES.items() for line in lines}
    assert cases.keys() == here.keys() | ON_DEMAND
    assert all(cases[line] == on for line, on in here.items())
    assert set(cases.values()) == set(BACKENDS)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", _marked(*(name for name in NAMES if (name, "sqlite") in LINES)))
def test_a_benchmark_runs_and_ends_with_its_lines(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _runs(name, "sqlite", tmp_path, capsys)


def test_a_case_of_one_that_starts_spark_runs_without_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("project", quick=True, cases=["feed-p50"])
    assert _names(capsys.readouterr().out) == ["project/feed-p50"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name",
    [
        *_marked("append", "read", "replicate", "replay", "tags", "rebuild", soak=True),
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("work", "slices", "project")),
    ],
)
def test_on_postgres(name: str, postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _runs(name, "postgres", tmp_path, capsys, postgres)


@pytest.mark.timeout(900)
def test_on_kafka(kafka: KafkaServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _runs("append", "kafka", tmp_path, capsys, kafka)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_on_cassandra(cassandra: CassandraServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _runs("tags", "cassandra", tmp_path, capsys, cassandra)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_from_kafka_to_postgres(
    kafka: KafkaServer, postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _runs("replicate", "kafka-postgres", tmp_path, capsys, kafka, postgres)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_from_kafka_to_cassandra(
    kafka: KafkaServer, cassandra: CassandraServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _runs("replicate", "kafka-cassandra", tmp_path, capsys, kafka, cassandra)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_what_runs_on_demand_runs_when_it_is_named(
    postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    run("memory", quick=True, cases=["replicate-ten-million"])
    run("replicate", quick=True, cases=["scale-rows"], servers={"postgres": postgres.url})
    run("tags", quick=True, cases=["flat"])
    assert _names(capsys.readouterr().out) == ["memory/replicate-ten-million", "replicate/scale-rows", "tags/flat"]


@pytest.fixture
def secluded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Temporary files go where a server's user cannot follow, and servers then go to another disk."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == Path("/tmp").stat().st_dev:
        pytest.skip("there is no second file system to be had")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


@pytest.mark.usefixtures("secluded", "postgres")
def test_a_server_that_cannot_be_had_is_told_and_its_cases_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    run("read", quick=True)
    said = capsys.readouterr()
    assert _names(said.out) == LINES["read", "sqlite"]
    assert "postgres cannot be had: postgres cannot keep its files on the disk of" in said.err
    assert "left out: read/postgres" in said.err


@pytest.mark.usefixtures("secluded", "postgres")
@pytest.mark.parametrize("asked", [{"on": ["sqlite", "postgres"]}, {"cases": ["replicated", "postgres"]}])
def test_who_asks_for_a_server_that_cannot_be_had_gets_an_error(
    asked: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Unavailable) as caught:
        run("read", quick=True, on=asked.get("on"), cases=asked.get("cases"))
    assert caught.value.facts["server"] == "postgres"
    assert "TMPDIR" in caught.value.hint
    assert capsys.readouterr().out == ""


def test_sides_take_turns_at_going_first(tmp_path: Path) -> None:
    went: list[str] = []
    folders: set[Path] = set()

    def side(name: str, plan: CaseSettings) -> RoundFigure:
        assert not any(plan.folder.iterdir())
        assert (plan.shared / "filled").exists()
        assert plan.servers == {"postgres": "postgresql://there"}
        (plan.folder / name).touch()
        folders.add(plan.folder)
        went.append(name)
        return RoundFigure(1.0, {})

    case = Case(
        "x/y", "peer", "things/s", 1.0, lambda plan: side("ours", plan), lambda plan: side("theirs", plan),
        prepare=lambda plan: (plan.shared / "filled").touch(),
    )  # fmt: skip
    plan = CaseSettings(tmp_path, tmp_path, False, {"postgres": "postgresql://there"})
    result = _measure(case, 3, plan, lambda what, *, done=0: None)
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
        ("append", {"on": ["sqlite", "paper"]}),
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
