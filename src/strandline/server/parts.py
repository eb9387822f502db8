"""The parts of the server that have routes."""

from __future__ import annotations

from strandline.server import browsers, console, event_groups, health, journals, metrics, projections, queries, works
from strandline.server.routes import HttpRoute

PARTS = (health, browsers, journals, queries, projections, event_groups, works, metrics, console)


def all_routes() -> list[HttpRoute]:
    """Return the routes of all parts."""
    return [route for part in PARTS for route in part.routes()]
