"""The parts of the server that have routes."""

from __future__ import annotations

from strandline.server import browsers, console, health, metrics
from strandline.server.routes import HttpRoute

PARTS = (health, browsers, metrics, console)


def all_routes() -> list[HttpRoute]:
    """Return the routes of all parts."""
    return [route for part in PARTS for route in part.routes()]
