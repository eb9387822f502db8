"""`/metrics`: where what this process counts is read."""

from __future__ import annotations

from strandline.server.routes import HttpRoute


def routes() -> list[HttpRoute]:
    """Return the routes of this part."""
    return []
