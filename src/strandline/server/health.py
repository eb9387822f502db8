"""`/healthz`, which needs no token; and the document that describes all routes."""

from __future__ import annotations

from starlette.responses import PlainTextResponse, Response

from strandline.server.calls import HttpCall
from strandline.server.openapi import document
from strandline.server.routes import HttpRoute


async def healthz(call: HttpCall) -> Response:
    """Answer `ok`: the server takes requests. The state of the journal has no part in it."""
    return PlainTextResponse("ok")


async def openapi(call: HttpCall) -> object:
    """Return the OpenAPI document, with the prefix of this request as its server."""
    return document(call.app.table.routes, call.prefix)


def routes() -> list[HttpRoute]:
    """Return the routes of this part."""
    plain = {"type": "string", "const": "ok"}
    return [
        HttpRoute("GET", "/healthz", healthz, "Say ok.", open=True, answer=plain, media=("text/plain",)),
        HttpRoute("GET", "/openapi.json", openapi, "Describe all routes.", answer={"type": "object"}),
    ]
