"""What the guide to the HTTP server shows runs as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.acceptance.cli_call import COMMAND, process_env
from tests.docs.test_readme import ROOT

from strandline.server.limits import HttpLimits

GUIDE = (ROOT / "docs/SERVER.md").read_text(encoding="utf-8")
PORT = "8765"
CALLS = """
import asyncio
import httpx

async def calls():
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop.example") as client:
        print((await client.get("/strandline/healthz")).text, (await client.get("/strandline/status")).status_code)
        client.headers["Authorization"] = "Bearer " + open("shop/admin-token").read().strip()
        print((await client.get("/strandline/openapi.json")).json()["servers"][0]["url"])
        made = await client.post("/strandline/journals/a%7Cx%2Fy/events", json={"events": [{"type": "Seen"}]})
        print(made.json()["key"], (await client.get("/strandline/journals/a%7Cx%2Fy")).headers["etag"])
        print((await client.get("/journals/a%7Cb")).status_code)

asyncio.run(calls())
s.close()
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_its_commands(tmp_path: Path) -> None:
    argv = [*COMMAND, "serve", "--url", "sqlite:shop", "--port", "0", "--json"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**process_env(), "PATH": path}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=tmp_path, env=environment) as server:
        assert server.stdout is not None
        try:
            port = json.loads(server.stdout.readline())["url"].rpartition(":")[2]
            said = []
            for block in blocks("sh"):
                for line in block.splitlines():
                    command = line.replace(f"localhost:{PORT}", f"localhost:{port}")
                    done = subprocess.run(
                        command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
                    )
                    assert (done.returncode, '"code"' in done.stdout) == (0, False), (line, done.stdout, done.stderr)
                    if line.startswith("curl"):
                        said.append(done.stdout)
        finally:
            server.terminate()
        assert server.wait(20) == 0
    appended, read, head, tagged, sliced, live, deleted, acts = said
    assert json.loads(appended)["last"] == 1
    assert json.loads(read)["payload"] == {"total": 99}
    assert json.loads(head)["seq_nr"] == 1
    assert json.loads(tagged)["key"] == json.loads(sliced)["key"] == "order|42"
    assert f"id: {json.loads(tagged)['offset']}" in live
    assert json.loads(deleted)["deleted"]["delete_to"] == 1
    assert '"why":"too old"' in acts


def test_its_program_mounts_the_server(tmp_path: Path) -> None:
    (program,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", program + CALLS], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["ok", "401", "/strandline", "a|x/y", '"1"', "404"]


def test_its_limits_are_those_that_there_are() -> None:
    table = GUIDE.partition("## Limits")[2]
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", table, re.MULTILINE)
    named = {name: default for names, default in rows for name in re.findall(r"`(\w+)`", names)}
    assert set(named) == set(HttpLimits.__dataclass_fields__)
    defaults = HttpLimits()
    for name in ("header_timeout_s", "body_timeout_s", "idle_timeout_s", "connections_max", "token_requests_per_s"):
        assert float(named[name].split()[0]) == getattr(defaults, name), name
    assert (defaults.header_bytes_max, named["header_bytes_max"].strip()) == (16 * 1024, "16 KiB")
