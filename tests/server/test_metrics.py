"""`/metrics` of the server."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import httpx
from starlette.types import Message

import strandline
from strandline import Event, seams
from strandline.server import app
from strandline.server.application import ServerApp
from tests.server.worlds import served


def test_it_counts_from_the_first_scrape_until_the_server_ends(tmp_path: Path) -> None:
    with strandline.connect(f"sqlite:{tmp_path}/shop") as s:
        with served(s, tmp_path) as server, server.client() as client:
            s.journal.append("order|1", [Event("Placed")])
            first = client.get("/metrics")
            assert first.headers["content-type"].startswith("text/plain; version=")
            assert "strandline_events_appended_total 0.0" in first.text
            assert "strandline_up 1.0" in first.text
            s.journal.append("order|1", [Event("Paid")])
            assert "strandline_events_appended_total 1.0" in client.get("/metrics").text
            open_metrics = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
            assert open_metrics.text.endswith("# EOF\n")
        assert_nothing_is_counted()


def assert_nothing_is_counted() -> None:
    assert seams.append.now.__module__ == "strandline.journal.journal"
    assert not hasattr(seams.append.now, "__wrapped__"), "the methods are as they were"


def test_it_counts_until_the_lifespan_of_an_asgi_server_ends_and_anew_in_the_next_one(tmp_path: Path) -> None:
    async def one_lifespan(application: ServerApp, token: str) -> None:
        said: asyncio.Queue[Message] = asyncio.Queue()
        answered: asyncio.Queue[Message] = asyncio.Queue()
        living = asyncio.create_task(application({"type": "lifespan"}, said.get, answered.put))
        await said.put({"type": "lifespan.startup"})
        assert (await answered.get())["type"] == "lifespan.startup.complete"
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(application),
            base_url="http://localhost",
            headers={"Authorization": f"Bearer {token}"},
        ) as client:
            await client.get("/metrics")
            await asyncio.to_thread(application.s.journal.append, "order|1", [Event("Placed")])
            assert "strandline_events_appended_total 1.0" in (await client.get("/metrics")).text
        await said.put({"type": "lifespan.shutdown"})
        assert (await answered.get())["type"] == "lifespan.shutdown.complete"
        assert_nothing_is_counted()
        await living

    with strandline.connect(f"sqlite:{tmp_path}/shop") as s, closing(app(s)) as application:
        for _ in range(2):
            asyncio.run(one_lifespan(application, (tmp_path / "shop/admin-token").read_text().strip()))


def test_any_valid_token_may_scrape_and_nobody_else(tmp_path: Path) -> None:
    with strandline.connect(f"sqlite:{tmp_path}/shop") as s, served(s, tmp_path) as server:  # which counts till its end
        with server.client(server.token_for("read", entity_types=["order"])) as client:
            assert client.get("/metrics").status_code == 200
        with httpx.Client(base_url=server.url) as nobody:
            assert nobody.get("/metrics").status_code == 401
