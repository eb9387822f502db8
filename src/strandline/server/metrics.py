"""`/metrics`: the counters of this process and the state of its journal, as Prometheus reads them.

Counting begins with the first scrape, and ends with the server.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from starlette.responses import Response

from strandline import metrics
from strandline.server.application import ServerApp
from strandline.server.calls import HttpCall
from strandline.server.routes import HttpRoute

if TYPE_CHECKING:
    from strandline.metrics.started import Metrics

MEDIA: Final = ("text/plain", "application/openmetrics-text")
_counted: Final[WeakKeyDictionary[ServerApp, Metrics]] = WeakKeyDictionary()
_starting: Final = Lock()


async def scrape(call: HttpCall) -> Response:
    """Return all figures, in the format that the client can read."""
    body, kind = await call.run(_text, call.app, call.request.headers.get("accept", ""))
    return Response(body, headers={"Content-Type": kind})


def _text(app: ServerApp, accept: str) -> tuple[bytes, str]:
    with _starting:
        counted = _counted.get(app)
        if counted is None:
            counted = _counted[app] = metrics.start(app.s)
            app.ending.callback(_stop, app)
    return counted.text(accept)


def _stop(app: ServerApp) -> None:
    with _starting:
        _counted.pop(app).stop()


def routes() -> list[HttpRoute]:
    """Return the routes of this part."""
    answer = {"type": "string"}
    return [HttpRoute("GET", "/metrics", scrape, "Show metrics for Prometheus.", answer=answer, media=MEDIA)]
