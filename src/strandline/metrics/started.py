"""Metrics that were started: a registry, the counters of this process, the gauges of a journal."""

from __future__ import annotations

from contextlib import ExitStack
from threading import Thread
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, exposition

from strandline.metrics.counting import Counting
from strandline.metrics.gauges import Gauges

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from strandline.connect import Strandline


class Metrics:
    """Metrics that were started by `strandline.metrics.start`. A context manager."""

    def __init__(self, s: Strandline | None, registry: CollectorRegistry | None) -> None:
        self.registry = registry or CollectorRegistry()
        self._end = ExitStack()
        counting = Counting(self.registry)
        self._end.callback(counting.stop)
        if s is not None:
            self.watch(s)

    def watch(self, s: Strandline) -> None:
        """Add the state of this journal to each scrape."""
        gauges = Gauges(s)
        self.registry.register(gauges)
        self._end.callback(self.registry.unregister, gauges)

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """Return all figures as Prometheus reads them, and their content type. `accept` is the `Accept` header of the
        request.
        """
        encode, kind = exposition.choose_encoder(accept)
        return encode(self.registry), kind

    def serve(self, port: int, host: str = "127.0.0.1") -> int:
        """Answer `GET /metrics` in a thread of its own, until `stop`; return the port, which is a free one if 0 was
        given.
        """
        server, thread = exposition.start_http_server(port, host, self.registry)
        self._end.callback(_close, server, thread)
        return int(server.server_port)

    def stop(self) -> None:
        """Stop counting, and leave the registry as it was before. Twice is harmless."""
        self._end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _close(server: WSGIServer, thread: Thread) -> None:
    server.shutdown()
    server.server_close()
    thread.join()
