"""The examples, run as they are."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from tests.journal.worlds import url_of

EXAMPLES = Path(__file__).parents[2] / "examples"
Visit = Callable[[httpx.AsyncClient], Awaitable[None]]


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def serve(visit: Visit) -> None:
    app = loaded("order_service").app

    async def served() -> None:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://orders") as client,
        ):
            await asyncio.wait_for(visit(client), 60)

    asyncio.run(served())


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_the_order_service_has_one_winner_and_stores_a_retry_once(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_URL", url_of(backend, tmp_path))

    async def visit(client: httpx.AsyncClient) -> None:
        async def post(path: str, **headers: str) -> httpx.Response:
            return await client.post(path, json={"by": "card"}, headers=headers)

        racing = await asyncio.gather(*(post("/orders/1/Placed", **{"If-Match": "0"}) for _ in range(20)))
        assert sorted(answer.status_code for answer in racing) == [201, *[409] * 19]
        lost = next(answer.json() for answer in racing if answer.status_code == 409)
        assert lost["code"] == "expected"
        again = await asyncio.gather(*(post("/orders/1/Paid", **{"Idempotency-Key": "pay 1"}) for _ in range(20)))
        assert {(answer.status_code, answer.json()["seq_nr"]) for answer in again} == {(201, 2)}
        assert sum(not answer.json()["again"] for answer in again) == 1
        history = (await client.get("/orders/1")).json()
        assert [event["type"] for event in history] == ["Placed", "Paid"]
        assert (await client.get("/orders/2")).status_code == 404
        refused = await post("/orders/1/Paid", **{"If-Match": "-1"})
        assert (refused.status_code, refused.json()["code"]) == (422, "seq_nr_range")

    serve(visit)


def test_the_shop_needs_no_arguments(tmp_path: Path) -> None:
    for arguments in ([], ["sqlite:other"], ["sqlite:other", "3"]):
        program = [sys.executable, str(EXAMPLES / "ship_orders.py"), *arguments]
        done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "3 of 3 orders shipped to Oslo\n"


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_the_shop_ships_every_order_once(backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert loaded("ship_orders").main(url_of(backend, tmp_path), 12) == 0
    assert capsys.readouterr().out == "12 of 12 orders shipped to Oslo\n"
