"""The help: every command says in a line what it does, and its example runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.cli_call import appended, call

from strandline.bench import NAMES
from strandline.cli.app import parser

ROOT = Path(__file__).parents[2]

ON_SPARK_OR_LONG = (
    "pipeline run",
    "pipeline replay",
    "pipeline rebuild",
    "pipeline reconcile",
    "pipeline export",
    "pipeline archive",
    "pipeline sweep",
    "backup",
    "restore",
    "verify",
    "schema roles",
    "pipeline prepare",
    "demo",
    "bench",
    "status",
    "pipeline resolve",
    "servers",
    "prove",
    "serve",
)
WITH_IDS = (
    *(f"work {verb}" for verb in "heartbeat done fail release requeue acknowledge drop run".split()),
    "token revoke",
)
"""Their examples name what was handed out before; tests/work/test_cli.py and tests/server/test_frame.py call them."""
GROUP = ("submit run explain list show history playback cancel resolve answer ack load-code handlers").split()
"""Each call of `s.groups`."""
OF_GROUPS = tuple(f"group {verb}" for verb in GROUP if verb != "list")
"""Their examples need a database of the user's, or code; tests/group/test_cli.py and test_code.py call them."""
MAILS = 'name = "mails"\n[key]\norder = "int"\n[data]\nto = "text"\n'


WORK = (
    "declare add run claim heartbeat done fail release get entries counts tables dead alerts requeue acknowledge drop "
    "pause resume tick"
).split()
"""Each call of `s.work` (a cursor's and a claim's too)."""


PROJECTIONS = (
    "run rebuild list status parked dead-letters pause resume rescale set-offset reset rename drop skip unpark "
    "redeliver discard switch"
).split()
"""Running and rebuilding them, and each call of `s.projections`."""
PIPELINE = "run replay export reconcile archive sweep quarantine resolve rebuild purge-expired prepare".split()
NEED_A_PROJECTION = tuple(f"projections {verb}" for verb in PROJECTIONS if verb != "list")
"""tests/projection/test_cli.py calls them."""


def commands() -> dict[str, Any]:
    """All commands by their full names."""
    found: dict[str, Any] = {}
    for name, command in parser().commands.items():
        inner = getattr(command, "commands", None)
        found |= {name: command} if inner is None else {f"{name} {part}": inner[part] for part in inner}
    return found


def example_of(name: str) -> list[str]:
    text = commands()[name].help.partition("Example: strandline ")[2]
    return shlex.split(text)


def test_commands_are_those_of_the_specification() -> None:
    assert sorted(commands()) == sorted(
        "append read head mark delete purge keys by-tag status bench demo servers doctor prove".split()
        + ["backup", "restore", "verify"]
        + [f"pipeline {part}" for part in PIPELINE]
        + [
            "plan",
            "schema repartition",
            "schema roles",
            "schema show",
            "schema upgrade",
            "serve",
            "token create",
            "token list",
            "token revoke",
        ]
        + [f"work {verb}" for verb in WORK]
        + [f"group {verb}" for verb in GROUP]
        + ["by-slices", *(f"projections {verb}" for verb in PROJECTIONS)]
    )


def specified() -> set[str]:
    """The commands that the specification names."""
    text = (ROOT / "docs/spec/README.md").read_text(encoding="utf-8").partition("## Public names: CLI")[2]
    found: set[str] = set()
    for line in text.partition("```\n")[2].partition("```")[0].splitlines():
        listed = line if line.startswith("group ") else line[:43].rstrip()  # then what it is for
        group, _, rest = listed.partition(" ")
        if group in ("pipeline", "schema", "group"):
            found |= {f"{group} {name}" for part in rest.split(", ") for name in part.split()[0].split("|")}
        elif group in ("work", "projections", "token"):
            found.add(group)
        elif listed:
            found |= {part.split()[0] for part in listed.split(", ")}
    return found


def test_every_command_of_the_specification_is_there() -> None:
    assert {"by-tag", "backup", "token", "pipeline sweep", "pipeline run", "schema repartition"} <= specified()
    groups = {name.partition(" ")[0] for name in commands()}
    assert specified() - set(commands()) - groups == set()


SAID = r"`strandline (?P<name>(?:(?:pipeline|schema|work|group|projections|token) )?[a-z][a-z-]+)"


def test_no_hint_names_a_command_that_is_not_there() -> None:
    texts = [ROOT / "README.md", *(ROOT / "src").rglob("*.py")]
    said = {match["name"] for path in texts for match in re.finditer(SAID, path.read_text())}
    assert "pipeline run" in said
    assert said - set(commands()) - {"pipeline", "schema", "work", "group", "projections", "token"} == set()


@pytest.mark.parametrize("name", ["", *commands(), "pipeline", "schema", "work", "group", "projections", "token"])
def test_flags_have_no_value(name: str) -> None:
    assert "<bool>" not in call(*name.split(), "--help").out


@pytest.mark.parametrize("name", commands())
def test_help(name: str) -> None:
    answer = call(*name.split(), "--help")
    assert (answer.code, answer.err) == (0, "")
    first = commands()[name].help.splitlines()[0]
    assert first.endswith(".")
    assert len(first) <= 66  # one line of the overview
    assert example_of(name)[: len(name.split())] == name.split()
    options = {option for parameter in commands()[name].params for option in parameter.opts}
    if name == "pipeline prepare":
        assert options == {"--json"}
    elif name not in ("bench", "demo", "servers", "prove", "plan"):
        assert {"--url", "--log", "--store", "--config", "--set", "--json"} <= options
    assert {part for part in example_of(name) if part.startswith("--")} <= options


@pytest.mark.parametrize(
    "name",
    [name for name in commands() if name not in (*ON_SPARK_OR_LONG, *WITH_IDS, *OF_GROUPS, *NEED_A_PROJECTION)],
)
def test_example_runs(name: str, url: str) -> None:
    appended(url, 11)
    if name.startswith("work "):
        Path("mails.toml").write_text(MAILS)
        assert call("work", "declare", "mails.toml", "--url", "sqlite:orders").code == 0
    argv = example_of(name)
    yes = ["--yes"] if any("--yes" in parameter.opts for parameter in commands()[name].params) else []
    answer = call(*argv, *yes)
    assert answer.code == 0, answer.err


def test_overview_shows_the_groups() -> None:
    answer = call()
    assert (answer.code, answer.err) == (0, "")
    for panel in ("Record", "Carry", "Act", "Look after", "Try"):
        assert f"─ {panel} ─" in answer.out
    assert call("--version").out.startswith("strandline 0.")
    assert call("pipeline").code == 2


def test_help_of_bench_names_every_benchmark() -> None:
    named = re.sub(r"[│╭╮╰╯─\s]+", " ", call("bench", "--help").out)
    assert f"{', '.join(NAMES)}." in named
