"""The pages of the console: the address, the scope and the template of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from strandline.server.console.acts_record import record_page
from strandline.server.console.desk import ConsoleDesk, Found, PageQuery
from strandline.server.console.groups import group_page, groups_page
from strandline.server.console.journals import journal_page, journals_page
from strandline.server.console.overview import overview
from strandline.server.console.projections import projection_page, projections_page
from strandline.server.console.work import work_journal_page, work_page
from strandline.server.frame import no_path

Load = Callable[[ConsoleDesk, PageQuery], Found]


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """A page of the console."""

    path: str
    """The path below /console."""
    part: str
    """The entry of the navigation that the page belongs to."""
    title: str
    load: Load
    """Reads the page's values from the journal, in a thread."""
    template: str
    scope: str | None
    query: tuple[str, ...] = ()


PAGES: Final = (
    ConsolePage("", "overview", "Overview", overview, "overview.html", None),
    ConsolePage(
        "/journals", "journals", "Journals", journals_page, "journals.html", "read",
        ("entity_type", "tag", "after", "payloads"),
    ),
    ConsolePage(
        "/journals/{key}", "journals", "Journal", journal_page, "journal.html", "read", ("before", "payloads")
    ),
    ConsolePage("/projections", "projections", "Projections", projections_page, "projections.html", "read", ("state",)),
    ConsolePage(
        "/projections/{name}/{generation}", "projections", "Projection", projection_page, "projection.html", "read"
    ),
    ConsolePage(
        "/groups", "groups", "Groups", groups_page, "groups.html", "group", ("stream", "state", "after")
    ),
    ConsolePage("/groups/{stream}/{id}", "groups", "Group", group_page, "group.html", "group", ("payloads",)),
    ConsolePage("/work", "work", "Work", work_page, "work.html", "work"),
    ConsolePage(
        "/work/{journal}", "work", "Work journal", work_journal_page, "work_journal.html", "work",
        ("show", "q", "priority", "payloads"),
    ),
    ConsolePage("/acts", "acts", "Admin acts", record_page, "acts.html", "admin", ("day",)),
)  # fmt: skip


def page_at(address: str) -> tuple[ConsolePage, dict[str, str]]:
    """Return the page at an address below /console, and its values; `FrameError` 404 where there is none."""
    try:
        parts = urlsplit(address)
        given = dict(parse_qsl(parts.query, max_num_fields=20))
    except ValueError:
        raise no_path() from None
    segments = [unquote(segment) for segment in parts.path.split("/")]
    for one in PAGES:
        values = _matched(one.path.split("/"), segments)
        if values is not None:
            return one, values | {name: given[name] for name in one.query if name in given}
    raise no_path()


def _matched(pattern: list[str], segments: list[str]) -> dict[str, str] | None:
    if len(pattern) != len(segments):
        return None
    values = {}
    for wanted, found in zip(pattern, segments, strict=True):
        if wanted.startswith("{"):
            values[wanted[1:-1]] = found
        elif wanted != found:
            return None
    return values


def given_of(desk: ConsoleDesk, values: Mapping[str, Any], *, admin: bool) -> PageQuery:
    """Return the query of a page."""
    texts = {name: str(value) for name, value in values.items()}
    asked = texts.get("payloads")
    return PageQuery(texts, desk.show_payloads if asked is None else asked == "shown", admin)
