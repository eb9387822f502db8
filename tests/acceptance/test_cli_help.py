"""The help: every command says in a line what it does, and its example runs."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import typer
from tests.acceptance.cli_call import appended, call

from strandline.cli.app import app

ON_SPARK_OR_LONG = (
    "pipeline run",
    "pipeline replay",
    "pipeline prepare",
    "demo",
    "bench",
    "status",
    "pipeline resolve",
    "servers",
)


def commands() -> dict[str, Any]:
    """All commands by their full names."""
    found: dict[str, Any] = {}
    for name, command in typer.main.get_command(app()).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found |= {name: command} if inner is None else {f"{name} {part}": inner[part] for part in inner}
    return found


def example_of(name: str) -> list[str]:
    text = commands()[name].help.partition("Example: strandline ")[2]
    return shlex.split(text)


def test_commands_are_those_of_the_specification() -> None:
    assert sorted(commands()) == sorted(
        "append read head mark delete purge keys status bench demo servers doctor".split()
        + [f"pipeline {part}" for part in ("run", "replay", "quarantine", "resolve", "purge-expired", "prepare")]
        + ["schema show", "schema upgrade"]
    )


@pytest.mark.parametrize("name", commands())
def test_help(name: str) -> None:
    answer = call(*name.split(), "--help")
    assert (answer.code, answer.err) == (0, "")
    first = commands()[name].help.splitlines()[0]
    assert first.endswith(".")
    assert len(first) <= 66  # one line of the overview
    assert example_of(name)[: len(name.split())] == name.split()
    options = {option for parameter in commands()[name].params for option in parameter.opts}
    if name not in ("bench", "demo", "servers"):
        assert {"--url", "--log", "--store", "--config", "--set", "--json"} <= options
    assert {part for part in example_of(name) if part.startswith("--")} <= options


@pytest.mark.parametrize("name", [name for name in commands() if name not in ON_SPARK_OR_LONG])
def test_example_runs(name: str, url: str) -> None:
    appended(url, 11)
    argv = example_of(name)
    yes = ["--yes"] if any("--yes" in parameter.opts for parameter in commands()[name].params) else []
    answer = call(*argv, *yes)
    assert answer.code == 0, answer.err


def test_overview_shows_the_groups() -> None:
    answer = call()
    assert (answer.code, answer.err) == (0, "")
    for panel in ("Record", "Carry", "Look after", "Try"):
        assert f"─ {panel} ─" in answer.out
    assert call("--version").out.startswith("strandline 0.")
    assert call("pipeline").code == 2
