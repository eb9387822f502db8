"""`/metrics` of the server."""

from __future__ import annotations

from pathlib import Path

import httpx

import strandline
from strandline import Event, seams
from tests.server.worlds import Served, served


def test_it_counts_from_the_first_scrape_until_the_server_ends(tmp_path: Path) -> None:
    wrappers = list(seams.append._wrappers)  # those of somebody else in this process
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
        assert seams.append.now.__module__ == "strandline.journal.journal"
        assert seams.append._wrappers == wrappers, "the methods are as they were"


def test_any_valid_token_may_scrape_and_nobody_else(server: Served) -> None:
    with server.client(server.token_for("read", entity_types=["order"])) as client:
        assert client.get("/metrics").status_code == 200
    with httpx.Client(base_url=server.url) as nobody:
        assert nobody.get("/metrics").status_code == 401
