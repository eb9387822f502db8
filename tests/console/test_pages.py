"""The console in a real browser: every page, live updates, acts, refusals, a connection that is lost and comes back."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

import pytest

from strandline import Event
from strandline.clock import now_us
from strandline.server.admin_acts import day_key
from tests import lanes
from tests.console.shop import ODD, PARKED, Shop
from tests.projection.worlds import until
from tests.server.worlds import Served

pytestmark = lanes.of_the_console
PICTURES = os.environ.get("STRANDLINE_PICTURES")
"""A folder: where pictures of pages are put, for the guide."""
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 800}
PAGES = {
    "": "Overview",
    "/journals": "Journals",
    "/journals?entity_type=order": "Journals order",
    "/journals?tag=gift": "Journals with tag gift",
    "/journals/order%7C1?payloads=shown": "order|1",
    "/projections": "Projections",
    "/projections/totals/1": "totals",
    "/groups?state=all": "Event groups",
    "/groups/default/transfer-2?payloads=shown": "transfer-2",
    "/groups/default/refund-9": "refund-9",
    "/work": "Work journals",
    "/work/mails?priority=new": "mails",
    "/work/mails?show=running": "mails",
    "/work/mails?show=dead": "mails",
    "/acts": "Admin acts",
}


class Visit:
    """A page of a browser that is logged in, and what went wrong in it."""

    def __init__(self, page: Any, server: Served, base: str) -> None:
        self.page, self.server, self.base = page, server, base
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.expected = ""
        """A part of a message of the browser that the test provokes."""
        page.set_default_timeout(15_000)
        page.on("console", lambda message: self._note(message.text if message.type == "error" else ""))
        page.on("pageerror", lambda error: self._note(str(error)))
        page.on("dialog", lambda dialog: self._note(f"a script has run: {dialog.message}"))
        page.on("request", lambda request: self.asked.append(request.url))

    def _note(self, text: str) -> None:
        if text and not (self.expected and self.expected in text):
            self.wrong.append(text)

    def log_in(self, token: str) -> None:
        self.page.goto(f"{self.base}/console/login")
        self.page.fill("#token", token)
        self.page.click("button")
        self.page.wait_for_url(f"{self.base}/console")

    def go(self, path: str) -> None:
        self.page.goto(f"{self.base}/console{path}")
        self.page.wait_for_selector("#link.live")

    def text(self, selector: str = "main") -> str:
        found: str = self.page.inner_text(selector)
        return found

    def until(self, true: Callable[[], Any], timeout_s: float = 10.0) -> None:
        until(lambda: (self.page.wait_for_timeout(20), true())[1], timeout_s)

    def act(self, button: str, why: str = "a test", **fields: str) -> None:
        """Press a button, answer its question, and wait until it is done."""
        self.page.click(f"button[data-act]:text-is('{button}')")
        for name, value in fields.items():
            field = self.page.locator(f"#f-{name}")
            field.select_option(value) if field.evaluate("one => one.tagName") == "SELECT" else field.fill(value)
        self.page.fill("#f-why", why)
        self.page.click("#ask-form button:not(#ask-no)")
        self.page.wait_for_selector("#ask", state="hidden")


@pytest.fixture(scope="module")
def cookies(chromium: Any, server: Served) -> Any:
    """The state of a browser that has logged in once."""
    context = chromium.new_context()
    Visit(context.new_page(), server, server.url).log_in(server.token)
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def visit(chromium: Any, server: Served, cookies: Any) -> Iterator[Visit]:
    context = chromium.new_context(storage_state=cookies, viewport=DESK)
    visit = Visit(context.new_page(), server, server.url)
    yield visit
    context.close()
    assert visit.wrong == []
    assert [url for url in visit.asked if not url.startswith(visit.base)] == [], "it asked somebody else"


def findings(page: Any) -> str:
    """What axe finds on a page."""
    from axe_playwright_python.sync_playwright import Axe

    results = Axe().run(page)
    return results.generate_report() if results.violations_count else ""


def last_act(shop: Shop) -> list[Any]:
    return [event.payload for event in shop.s.journal.read(day_key(now_us()), backwards=True, limit=2)]


# ---------------------------------------------------------------- each page


@pytest.mark.parametrize("path", PAGES)
def test_a_page_in_light_and_dark_and_on_a_phone(visit: Visit, path: str) -> None:
    page = visit.page
    visit.go(path)
    assert page.inner_text("h1").split() == PAGES[path].split()
    assert findings(page) == ""
    page.emulate_media(color_scheme="dark")
    assert findings(page) == ""
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], "it is wider than a phone"


def test_the_first_page_says_what_is_wrong_before_what_happens(visit: Visit) -> None:
    visit.go("")
    said = visit.text()
    assert "Waiting for an operator: " in said
    assert "totals: 1 parked key" in said
    assert "mails: 3 dead letters not acknowledged" in said
    assert said.index("parked key") < said.index("ACTION LOG" if "ACTION LOG" in said else "Action log")
    visit.page.click("a:has-text('totals: 1 parked key')")
    visit.page.wait_for_url("**/projections/totals/1")


def test_a_group_shows_its_graph_its_timeline_and_its_rows(visit: Visit) -> None:
    visit.go("/groups/default/transfer-2")
    page = visit.page
    assert page.locator("svg.graph g.step").count() == 5
    assert page.locator("svg.graph g.state-undone").count() == 2
    assert page.locator("svg.timeline g.undo").count() == 2
    assert page.locator("table.inner").count() == 0, "rows are shown only if they are asked for"
    page.click("text=Show payloads")
    page.wait_for_selector("table.inner")
    assert page.inner_text("table.inner >> nth=0").split() == ["id", "amount", "1", "90"], "the row before the step"


@pytest.mark.req("D3", "RS10")
def test_what_is_in_a_journal_is_text_and_hidden_until_it_is_asked_for(visit: Visit) -> None:
    visit.go(f"/journals/{quote(ODD, safe='')}")
    page = visit.page
    assert page.locator("img").count() == 0
    assert "⟨U+202E⟩" in page.inner_text("h1")
    assert "alert(1)</script>" not in page.content()
    assert "script" not in visit.text("table.events")
    page.click("text=Show payloads")
    page.wait_for_selector("tr.payload")
    shown = page.inner_text("tr.payload pre")
    assert '"html": "<script>alert(1)</script>"' in shown
    assert "abc⟨U+202E⟩def" in shown
    assert "cut: " in shown
    assert len(shown.encode()) < 10_200


def test_what_an_undo_met_is_shown_to_whoever_resolves_it(visit: Visit) -> None:
    visit.go("/groups/default/refund-9?payloads=shown")
    conflicts = visit.page.inner_text("h3:has-text('Conflicts') + table").split()
    assert conflicts[:4] == ["key", "before", "after", "current"]
    assert conflicts[4:9] == ["2", "2,", "50", "2,", "45"]


# ---------------------------------------------------------------- live


def test_it_renews_itself_and_keeps_focus_and_what_is_open(visit: Visit, shop: Shop) -> None:
    visit.go("/journals/order%7C2?payloads=shown")
    page = visit.page
    before = page.locator("table.events tbody tr:not(.payload)").count()
    page.locator("details summary >> nth=-1").click()
    page.focus("text=Hide payloads")
    shop.s.journal.append("order|2", [Event("Renewed", {"by": "test"})])
    page.wait_for_selector("td:text-is('Renewed')")
    assert page.locator("table.events tbody tr:not(.payload)").count() == before + 1
    assert page.locator("details[open]").count() == 1
    assert page.evaluate("document.activeElement.textContent") == "Hide payloads"


def test_nothing_is_renewed_while_somebody_selects_a_text_in_it(visit: Visit, shop: Shop) -> None:
    visit.go("/journals/order%7C3?payloads=shown")
    page = visit.page
    page.evaluate("getSelection().selectAllChildren(document.querySelector('tr.payload pre'))")
    shop.s.journal.append("order|3", [Event("Later")])
    with page.expect_event("request", timeout=3000):  # a look of this page's own, after several of the stream's
        page.wait_for_timeout(800)
        page.evaluate("fetch(location.href, {method: 'HEAD'})")
    assert "Later" not in visit.text("table.events")
    page.evaluate("getSelection().removeAllRanges()")
    page.wait_for_selector("td:text-is('Later')")


def test_a_hidden_tab_asks_for_nothing(visit: Visit, shop: Shop) -> None:
    visit.go("")
    page = visit.page
    hide = (
        "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.evaluate(hide % "true")
    visit.until(lambda: visit.text("#link") == "stopped while hidden")
    visit.asked.clear()
    recorded = page.inner_text(".stage .big >> nth=0")
    shop.s.journal.append("order|4", [Event("Unseen")])
    page.wait_for_timeout(700)
    assert visit.asked == []
    assert page.inner_text(".stage .big >> nth=0") == recorded
    page.evaluate(hide % "false")
    visit.until(lambda: visit.text("#link") == "live" and page.inner_text(".stage .big >> nth=0") != recorded)
    assert [url for url in visit.asked if "/live?" in url]


def test_a_lost_connection_comes_back_by_itself(chromium: Any, server: Served, shop: Shop) -> None:
    with cuttable(server.server.port) as wire:
        context = chromium.new_context(viewport=DESK)
        visit = Visit(context.new_page(), server, f"http://127.0.0.1:{wire.port}")
        visit.expected = "ERR_"
        visit.log_in(server.token)
        visit.go("/journals/order%7C5")
        wire.cut()
        visit.until(lambda: "lost" in visit.text("#link"))
        shop.s.journal.append("order|5", [Event("Meanwhile")])
        wire.mend()
        visit.page.wait_for_selector("td:text-is('Meanwhile')", timeout=15_000)
        assert visit.text("#link") == "live"
        context.close()
        assert visit.wrong == []


@pytest.mark.req("D2")
def test_a_token_that_is_revoked_ends_the_session_of_its_browser(chromium: Any, server: Served) -> None:
    text, token = server.app.tokens.create("leaver", ["read"])
    context = chromium.new_context(viewport=DESK)
    visit = Visit(context.new_page(), server, server.url)
    visit.expected = "401"
    visit.log_in(text)
    visit.page.wait_for_selector("#link.live")
    server.app.tokens.revoke(token.id)
    visit.page.wait_for_url("**/console/login", timeout=15_000)
    context.close()


# ---------------------------------------------------------------- acts


@pytest.mark.req("D11")
def test_an_act_asks_why_and_is_recorded_with_who_when_before_and_after(visit: Visit, shop: Shop) -> None:
    visit.go("/projections/mails/1")
    page = visit.page
    page.click("button:text-is('Pause')")
    page.wait_for_selector("#ask")
    assert "Its handlers get no event" in page.inner_text("#ask")
    page.click("#ask-form button:not(#ask-no)")
    assert page.is_visible("#ask"), "it wants to know why"
    page.click("#ask-no")
    assert not page.is_visible("#ask")
    assert not shop.s.projections.status("mails").paused, "nothing was done"
    visit.act("Pause", "the smtp server is down")
    page.wait_for_selector(".badge:text-is('paused')")
    assert shop.s.projections.status("mails").paused
    ended, asked = last_act(shop)
    assert asked["who"].startswith("all ")
    assert (asked["why"], asked["what"]) == ("the smtp server is down", "projections.pause")
    assert asked["on"] == "name=mails generation=1"
    assert (asked["before"]["paused"], ended["after"]["paused"]) == (False, True)
    visit.act("Resume")
    visit.until(lambda: not shop.s.projections.status("mails").paused)
    visit.go("/acts")
    assert "the smtp server is down" in visit.text()


def test_a_parked_key_is_unparked_and_handled(visit: Visit, shop: Shop) -> None:
    visit.go("/projections/prices/1")
    assert PARKED in visit.text()
    shop.mended.set()
    visit.act("Unpark")
    visit.until(lambda: "Parked keys" not in visit.text())
    assert shop.s.projections.parked("prices") == []


def test_a_step_whose_undo_failed_is_resolved(visit: Visit, shop: Shop) -> None:
    visit.go("/groups/default/refund-10")
    visit.act("Resolve pay", how="accept_current")
    shop.groups.processor().run_until_idle()
    visit.page.wait_for_selector(".badge:text-is('aborted'), .badge:text-is('rolled back')")
    assert visit.page.locator("button[data-act]").count() == 0, "there is nothing to cancel any more"


def test_acting_on_all_that_match_a_filter(visit: Visit, shop: Shop) -> None:
    visit.go("/work/parcels?show=dead")
    page = visit.page
    page.fill("input[name=q] >> nth=-1", "address")
    page.click("button:text-is('Filter')")
    page.wait_for_url("**q=address**")
    page.wait_for_selector("#link.live")
    page.click("button:text-is('Requeue all 2 that match')")
    page.wait_for_selector("#ask")
    assert "2 dead letters" in page.inner_text("#ask")
    page.fill("#f-why", "the map was mended")
    page.click("#ask-form button:not(#ask-no)")
    page.wait_for_selector("#ask", state="hidden")  # only then its end is recorded
    visit.until(lambda: "No dead letter matches" in visit.text())
    assert [letter.reason for letter in shop.s.work("parcels").dead()] == ["failed: no box is large enough"]
    assert last_act(shop)[1]["on"] == "journal=parcels show=dead q=address"


@pytest.mark.req("D11", "D3")
def test_without_the_scope_buttons_are_off_and_the_server_refuses(chromium: Any, server: Served, shop: Shop) -> None:
    context = chromium.new_context(viewport=DESK)
    visit = Visit(context.new_page(), server, server.url)
    visit.expected = "403"
    visit.log_in(server.token_for("read"))
    visit.go("/projections/mails/1")
    page = visit.page
    assert page.is_disabled("button:text-is('Pause')")
    page.evaluate(  # one script, because a renewed region has buttons that are off again
        "() => { const pause = [...document.querySelectorAll('button')].find(one => one.textContent == 'Pause');"
        " pause.disabled = false; pause.click() }"
    )
    page.fill("#f-why", "just because")
    page.click("#ask-form button:not(#ask-no)")
    visit.until(lambda: "no scope admin" in visit.text("#ask"))
    assert not shop.s.projections.status("mails").paused
    send = (
        "([csrf, body]) => fetch('acts', {method: 'POST', body, headers: "
        "{'Content-Type': 'application/json', ...(csrf ? {'X-CSRF-Token': csrf} : {})}})"
        ".then(answer => answer.json())"
    )
    visit.go("")
    body = '{"act": "work.pause", "values": {"journal": "mails"}, "why": "x"}'
    assert page.evaluate(send.replace("'acts'", "'console/acts'"), ["", body])["code"] == "csrf"
    page.goto(f"{server.url}/console/work")
    assert "no scope work" in page.inner_text("main")
    context.close()
    assert visit.wrong == []


# ---------------------------------------------------------------- keys, pictures


def test_it_can_be_used_by_keys_alone(visit: Visit) -> None:
    visit.go("")
    page = visit.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("?")
    assert page.is_visible("#keys")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("order|1")
    page.keyboard.press("Enter")
    page.wait_for_url("**/journals/order%7C1")
    page.keyboard.press("g")
    page.keyboard.press("p")
    page.wait_for_url("**/projections")
    page.wait_for_selector("#link.live")
    page.focus("button:text-is('Pause') >> nth=0")
    page.keyboard.press("Enter")
    page.wait_for_selector("#f-why")
    assert page.evaluate("document.activeElement.id") == "f-why"
    assert findings(page) == ""
    page.keyboard.press("Escape")
    assert not page.is_visible("#ask")


def test_the_door(chromium: Any, server: Served) -> None:
    context = chromium.new_context(viewport=DESK)
    visit = Visit(context.new_page(), server, server.url)
    visit.expected = "401"
    page = visit.page
    page.goto(f"{server.url}/console/work")
    assert page.url.endswith("/console/login")
    assert findings(page) == ""
    page.fill("#token", "sl_wrong_wrongwrongwrongwrong")
    page.click("button")
    assert "no valid token" in page.inner_text("[role=alert]")
    visit.log_in(server.token)
    (cookie,) = context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert server.token not in "".join(visit.asked)
    page.wait_for_selector("#link.live")
    page.click("#out")
    page.wait_for_url("**/console/login")
    page.goto(f"{server.url}/console")
    assert page.url.endswith("/console/login"), "the session is over for the server, too"
    context.close()
    assert visit.wrong == []


class Wire:
    """A connection to a server that can be cut."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._whole = True
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._whole = False
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._whole = True

    def close(self) -> None:
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._whole:
                client.close()
                continue
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._to)) as server, suppress(OSError, ValueError):
            self._open |= {client, server}
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    (client if source is server else server).sendall(data)


@contextmanager
def cuttable(port: int) -> Iterator[Wire]:
    wire = Wire(port)
    try:
        yield wire
    finally:
        wire.close()
