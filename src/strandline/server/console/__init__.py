"""The console: pages for people, served beside the API.

The first page shows problems first, then activity; others show journals, projections, groups, work, and the record of
admin acts. Pages are rendered here; a stream of server-sent events renews the regions of a page that have changed. One
style sheet and one module of JavaScript are served from `static` as they are: there is no build step, and no file comes
from another site.
"""

from __future__ import annotations

from functools import partial

from strandline.server.console import handlers
from strandline.server.console.pages import PAGES
from strandline.server.fields import OBJECT, HttpField, text
from strandline.server.routes import EVENTS_MEDIA, HttpRoute

HTML = ("text/html",)
NAMES = ("at", "act", "values", "why", "key", "name", "generation", "stream", "id", "journal", "version", "file")
FIELDS = {name: text("Of the console.") for name in (*NAMES, *(name for one in PAGES for name in one.query))}


def routes() -> list[HttpRoute]:
    """Return the routes of this part."""
    shown = [
        HttpRoute(
            "GET", f"/console{one.path}", partial(handlers.show, one), one.title, scope=one.scope, query=one.query,
            fields=FIELDS, media=HTML, in_document=False, refusal=handlers.problem_page,
        )
        for one in PAGES
    ]  # fmt: skip
    return [
        *shown,
        HttpRoute(
            "GET", "/", handlers.first_page, "Go to the console.", refusal=handlers.problem_page, in_document=False
        ),
        _route("GET", "/live", handlers.live, "Stream what changes of a page.", query=("at",), needs=("at",),
               media=(EVENTS_MEDIA,)),
        _route("GET", "/find", handlers.find, "Go to a key.", query=("key",), needs=("key",)),
        _route("GET", "/ask", handlers.ask, "Ask before an act.", query=("act", "values"), needs=("act", "values")),
        _route("POST", "/acts", handlers.do_act, "Do an act.", body=("act", "values", "why"), needs=("act", "values"),
               fields={**FIELDS, "values": HttpField(OBJECT, "What it is done to, and what it asks for.")}),
        _route("GET", "/journals/{key}/events.csv", handlers.events_csv, "Events as CSV.", scope="read",
               query=("payloads",), media=("text/csv",)),
        _route("GET", "/login", handlers.login_page, "Ask for a token.", open=True, media=HTML),
        _route("POST", "/login", handlers.login, "Open a session.", open=True, reads_body=True, media=HTML),
        _route("GET", "/static/{version}/{file}", handlers.static, "A file of the console.", open=True),
    ]  # fmt: skip


def _route(method: str, path: str, handle: object, summary: str, **more: object) -> HttpRoute:
    return HttpRoute(method, f"/console{path}", handle, summary, in_document=False, **{"fields": FIELDS, **more})  # type: ignore[arg-type]
