"""MODULE:NAME on the command line: what is wrong with a module of the user's is said as that, and never as a bug."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.acceptance.cli_call import call

import strandline

MODULES = {
    "broken_syntax": "def totals(:\n",
    "broken_name": "import os\n\ntotals = nowhere\n",
    "broken_need": "import no_such_thing_at_all\n",
    "broken_exit": "import sys\nsys.exit(3)\n",
    "whole": "from strandline import BySlices, Projection\ntotals = Projection('totals', BySlices('order'), print)\n",
    "refused": "from strandline import BySlices, Projection\ntotals = Projection('TOTALS', BySlices('order'), print)\n",
}


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # and what commands put before it goes with it
    strandline.connect("sqlite:orders").close()
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)


@pytest.mark.parametrize(
    ("named", "said", "hint"),
    [
        ("broken_syntax:totals", "broken_syntax cannot be imported: SyntaxError: ", "import broken_syntax"),
        ("broken_name:totals", "NameError: name 'nowhere' is not defined at ", "mend it"),
        ("broken_need:totals", "ModuleNotFoundError: No module named 'no_such_thing_at_all'", "mend it"),
        ("broken_exit:totals", "broken_exit cannot be imported: SystemExit: 3", "mend it"),
        ("holes:totals", "No module named 'holes'", "is holes.py in the folder that you are in"),
        ("whole:total", "there is no total in whole", "did you mean whole:totals?"),
        ("whole.py:totals", "a path, not a module", "write whole:totals"),
        ("./some/whole.py:totals", "a path, not a module", "write some.whole:totals"),
        ("whole", "not a name in a module", "give MODULE:NAME of "),
    ],
)
def test_what_cannot_be_had_is_told(named: str, said: str, hint: str) -> None:
    for command in (["projections", "run"], ["work", "run"], ["group", "run", "--handlers"]):
        answer = call(*command, named, "--url", "sqlite:orders", "--json")
        assert (answer.code, answer.name) == (2, "InvalidInput.option"), answer
        assert said in answer.problem["detail"]
        assert hint in answer.problem["hint"]
    if "broken_name" in named:
        assert "broken_name.py:3" in answer.problem["detail"]


def test_what_the_module_was_refused_is_said_as_it_is() -> None:
    assert (
        call("projections", "run", "refused:totals", "--url", "sqlite:orders", "--json").name
        == "InvalidInput.projection_name"
    )


def test_a_handler_where_a_mapping_is_meant() -> None:
    answer = call("work", "run", "whole:Projection", "--url", "sqlite:orders", "--json")
    assert (answer.name, "HANDLERS = {NAME: Projection}" in answer.problem["hint"]) == (
        "InvalidInput.option",
        True,
    )
