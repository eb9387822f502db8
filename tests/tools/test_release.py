"""A release: pinned with hashes, looked at, the same bytes each time, with a list of what it brings."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools import release

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.req("D10")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what says which packages are needed."""
    for name in ("pyproject.toml", release.LOCK):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_each_package_is_pinned_with_hashes_and_nothing_else_is_installed() -> None:
    assert release.unpinned(ROOT) == []
    locked = release.pins(ROOT / release.LOCK)
    assert {name: version(name) for name in ("apsw", "starlette", "bandit")} == {
        name: locked[name][0] for name in ("apsw", "starlette", "bandit")
    }
    text = (ROOT / release.LOCK).read_text(encoding="utf-8")
    assert not re.search(r"https?://|^-", text, re.MULTILINE)
    installs = [
        line for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if "pip install --" in line
    ]
    assert len(installs) == 2
    assert "--no-deps --require-hashes --requirement constraints.txt" in installs[0]
    assert "--no-deps --no-build-isolation" in installs[1]


@pytest.mark.parametrize(
    ("of", "to", "said"),
    [
        (r"^(apsw==\S+ )\\\n(?: +--hash.*\n)+", r"\1\n", "no hash"),
        (r"^apsw==\S+", "apsw>=3", "not one version"),
        (r"^apsw==\S+", "apsw==3.52.0.1", "the lock has 3.52.0.1"),
        (r"^apsw==", "gone==", "the lock has none"),
    ],
)
def test_a_package_that_is_not_pinned_is_named(project: Path, of: str, to: str, said: str) -> None:
    lock = project / release.LOCK
    changed, count = re.subn(of, to, lock.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert count == 1
    lock.write_text(changed, encoding="utf-8")
    faults = release.unpinned(project)
    assert faults
    assert any("apsw" in fault and said in fault for fault in faults)


def test_few_packages_are_needed_and_each_for_a_reason() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {Requirement(text).name for text in told["dependencies"]}
    assert needed == {"apsw", "orjson", "rich", "sqlglot", "typer"}
    extras = {
        Requirement(text).name
        for extra, texts in told["optional-dependencies"].items()
        if extra not in release.OF_A_CHECKOUT
        for text in texts
    }
    reasons = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8").partition("\n## Dependencies\n")[2]
    assert [
        name for name in sorted(needed | extras) if not re.search(rf"^\| [^|]*\b{name}\b", reasons, re.MULTILINE)
    ] == []


def test_the_code_keeps_the_rules() -> None:
    assert release.rules(ROOT) == []


@pytest.mark.soak
def test_the_code_has_no_high_finding() -> None:
    """`make audit` and `make release` look, too. It takes long, and finds little that the rules do not."""
    assert release.high(ROOT / "src") == []


def test_what_is_bad_is_found(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "src/bad.py").write_text("import subprocess\nsubprocess.call('ls ' + input(), shell=True)  # nosec\n")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert any("B602" in found for found in release.high(tmp_path / "src"))
    assert any("S602" in found for found in release.rules(tmp_path))


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"dependencies": [{"name": "a", "version": "1", "vulns": []}]}, []),
        ({"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1"}]}]}, ["a 1: CVE-1"]),
        (
            {"dependencies": [{"name": "a", "skip_reason": "not found"}]},
            ["not run: pip-audit could not look at 1 of 1 packages"],
        ),
        (None, ["not run: pip-audit reached no advisories: ['no such host']"]),
    ],
    ids=["nothing known", "something known", "nobody was asked", "no answer"],
)  # fmt: skip
def test_what_the_advisories_say_is_told(
    answer: object, outcome: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool ends with 0 and says that nothing is known also where it reached nobody."""
    program = tmp_path / "pip-audit"
    said = f"echo '{json.dumps(answer)}'" if answer else "echo 'no such host' >&2; exit 1"
    program.write_text(f"#!/bin/sh\n{said}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert release.vulnerable(ROOT / release.LOCK) == outcome
    assert release.is_not_run(outcome) == bool(outcome and "not run" in outcome[0])
    program.unlink()
    assert release.is_not_run(release.vulnerable(ROOT / release.LOCK))


def test_a_release_is_the_same_bytes_each_time_and_says_what_it_brings(tmp_path: Path) -> None:
    wheel, sdist, bill, sums = release.build(tmp_path)
    assert (wheel.suffix, sdist.name.endswith(".tar.gz")) == (".whl", True)
    assert [line.split()[1] for line in sums.read_text().splitlines()] == [wheel.name, sdist.name, bill.name]
    told = json.loads(bill.read_text())
    assert told["bomFormat"] == "CycloneDX"
    assert told == json.loads(json.dumps(release.bill_of_materials()))
    by_name = {one["name"].lower(): one for one in told["components"]}
    for name in ("apsw", "orjson", "rich", "sqlglot", "typer", "markdown-it-py"):
        assert (by_name[name]["scope"], by_name[name]["version"]) == ("required", version(name))
        assert by_name[name]["purl"] == f"pkg:pypi/{name}@{version(name)}"
    for name in ("pyspark", "py4j", "psycopg", "starlette", "uvicorn", "confluent-kafka"):
        assert by_name[name]["scope"] == "optional"
    assert not {"pytest", "bandit", "ruff", "dbos"} & by_name.keys()
    assert all(one.get("licenses") for one in told["components"])
    graph = {one["ref"]: one["dependsOn"] for one in told["dependencies"]}
    assert set(graph) == {one["bom-ref"] for one in [*told["components"], told["metadata"]["component"]]}


def test_a_wheel_that_differs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def differs(root: Path, folder: Path, age_s: int) -> list[Path]:
        folder.mkdir(parents=True)
        made = folder / "strandline.whl"
        made.write_text(str(age_s))
        return [made]

    monkeypatch.setattr(release, "built", differs)
    with pytest.raises(SystemExit, match="not the same"):
        release.build(tmp_path)
