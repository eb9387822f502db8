"""A small order service: FastAPI in front of a journal.

    pip install 'strandline' fastapi uvicorn
    ORDERS_URL=sqlite:orders uvicorn order_service:app --app-dir examples

Two things that every such service needs come from the journal itself:

- Optimistic concurrency. A client says with `If-Match` which event it saw last; of two that saw the same one, the first
  wins, the other gets 409 and the number that is the last now.
- Retries. A client that does not know whether its request arrived sends it again with the same `Idempotency-Key`: it
  gets the first answer, and the event is there once.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse

from strandline import Event, StrandlineError, aio

STATUS = {"InvalidInput": 422, "NotFound": 404, "SeqNrConflict": 409, "Conflict": 409}


@asynccontextmanager
async def connected(app: FastAPI) -> AsyncIterator[None]:
    async with aio.connect(os.environ.get("ORDERS_URL", "sqlite:orders")) as s:
        app.state.journal = s.journal
        yield


app = FastAPI(title="Orders", lifespan=connected)


@app.exception_handler(StrandlineError)
async def refused(_: Request, error: StrandlineError) -> JSONResponse:
    """Answer an error in the journal's own words; 503 says: try again."""
    status = STATUS.get(type(error).__name__, 503)
    return JSONResponse({"code": error.code, "message": error.message, "hint": error.hint}, status)


@app.post("/orders/{number}/{what}", status_code=201)
async def record(
    request: Request,
    number: str,
    what: str,
    details: dict[str, Any],
    if_match: Annotated[int | None, Header()] = None,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> dict[str, Any]:
    """Record that something happened to an order."""
    done = await request.app.state.journal.append(
        f"order|{number}", [Event(what, details)], expected=if_match, append_id=idempotency_key
    )
    return {"seq_nr": done.last, "again": done.duplicate}


@app.get("/orders/{number}")
async def history(request: Request, number: str) -> list[dict[str, Any]]:
    """Return the events of an order so far."""
    events = [event.to_dict() async for event in request.app.state.journal.read(f"order|{number}")]
    if not events:
        raise HTTPException(404, "no such order")
    return events
