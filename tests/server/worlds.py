"""A server on loopback, as a program of its own would run it, and clients of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx

from strandline.connect import Strandline
from strandline.server import app
from strandline.server.application import ServerApp
from strandline.server.listening import HttpServer
from strandline.server.tokens import SCOPES, TokenFile


class Served:
    """A server that runs in a thread, over an open connection."""

    def __init__(self, s: Strandline, application: ServerApp, server: HttpServer, token: str) -> None:
        self.s, self.app, self.server, self.token = s, application, server, token
        self.url = server.url

    def client(self, token: str | None = None, **more: Any) -> httpx.Client:
        """Return a client with a token; by default one with all scopes."""
        headers = {"Authorization": f"Bearer {token or self.token}", **more.pop("headers", {})}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, **more)

    def token_for(self, *scopes: str, entity_types: Sequence[str] | None = None, name: str = "") -> str:
        """Return a new token with these scopes."""
        name = name or f"test {time.monotonic_ns()}"
        return self.app.tokens.create(name, scopes, entity_types=entity_types)[0]


@contextmanager
def served(s: Strandline, folder: Path, *, limits: Mapping[str, Any] | None = None, **more: Any) -> Iterator[Served]:
    """Serve a connection on a free port of loopback."""
    tokens = more.pop("tokens", None) or TokenFile(folder / "http-tokens.json")
    token, _ = tokens.create("all", SCOPES)
    tls = more.pop("tls", {})
    application = app(s, tokens=tokens, limits=limits or {"token_requests_per_s": 100_000}, **more)
    server = HttpServer(application, port=0, **tls)
    thread = Thread(target=server.run, name="test-server")
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        yield Served(s, application, server, token)
    finally:
        server.stop()
        thread.join()
