"""`--metrics PORT` of a command that runs."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path

import pytest

import strandline
from strandline import Group
from strandline.cli import group as command
from strandline.cli.options import Options
from tests.acceptance.cli_call import call


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "shop.db").touch()
    with strandline.connect(f"sqlite:{tmp_path}/shop") as s:
        group = Group("g")
        group.query("look", "select 1 as one", target="shop")
        s.groups(targets={"shop": f"sqlite:{tmp_path}/shop.db"}).submit(group)
    return f"sqlite:{tmp_path}/shop"


def test_it_answers_prometheus_while_it_runs(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = []

    def ended() -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            found.append(answer.read().decode())

    real = command.opened

    class Opened:  # looks at what is counted before it closes
        def __init__(self, *given: object) -> None:
            self._real = real(*given)  # type: ignore[arg-type]

        def __enter__(self) -> object:
            return self._real.__enter__()

        def __exit__(self, *how: object) -> None:
            ended()
            self._real.__exit__(*how)  # type: ignore[arg-type]

    monkeypatch.setattr(command, "opened", Opened)
    command.run(
        Options.of({"url": url}), target=[f"shop=sqlite:{tmp_path}/shop.db"], until_idle=True, metrics=str(port)
    )
    assert 'strandline_groups_ended_total{outcome="committed"} 1.0' in found[0]
    assert "strandline_up 1.0" in found[0]
    with pytest.raises(OSError, match="refused"):
        ended()


def test_a_port_that_cannot_be_had_is_refused_before_anything_runs(url: str, tmp_path: Path) -> None:
    target = f"shop=sqlite:{tmp_path}/shop.db"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = call("group", "run", "--url", url, "--target", target, "--until-idle", "--metrics", port)
    assert (said.code, "cannot be used" in said.err) == (6, True)
    for wrong in ("0", "70000", "x"):
        said = call("group", "run", "--url", url, "--target", target, "--metrics", wrong)
        assert (said.code, "--metrics" in said.err) == (2, True)
    said = call("projections", "run", "x:y", "--url", url, "--instances", "2", "--metrics", "9464")
    assert (said.code, "port of its own" in said.err) == (2, True)
    with strandline.connect(url) as s:
        assert s.groups().get("g").state == "queued"
