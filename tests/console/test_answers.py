"""What the console answers, without a browser: headers, prefixes, CSV, acts and their refusals, streams."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from threading import Thread
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from strandline import BySlices, Event, Group, Projection, WorkDeclaration
from strandline.clock import now_us
from strandline.connect import Strandline
from strandline.server import app
from strandline.server.admin_acts import day_key
from strandline.server.console.acts import ACTS
from strandline.server.console.pages import PAGES, page_at
from strandline.server.frame import FrameError
from strandline.testing import carry
from tests import lanes
from tests.console.shop import ODD, Shop
from tests.projection.worlds import QUICK, running, until
from tests.server.worlds import Served

pytestmark = lanes.of_the_console
PLACES = (
    "", "/journals", "/journals/order%7C1", "/projections", "/projections/totals/1", "/groups",
    "/groups/default/transfer-1", "/work", "/work/mails", "/acts",
)  # fmt: skip


@pytest.fixture(scope="module")
def session(server: Served) -> tuple[httpx.Cookies, str]:
    """The cookie of a browser that has logged in, and its CSRF value."""
    with httpx.Client(base_url=server.url, timeout=30) as client:
        assert client.post("/console/login", data={"token": server.token}).status_code == 303
        return client.cookies, client.get("/session").json()["csrf"]


@pytest.fixture
def browser(server: Served, session: tuple[httpx.Cookies, str]) -> Iterator[httpx.Client]:
    """A client with that session."""
    cookies, csrf = session
    with httpx.Client(base_url=server.url, timeout=30, cookies=cookies, headers={"X-CSRF-Token": csrf}) as client:
        yield client


def act(client: httpx.Client, name: str, /, **values: Any) -> httpx.Response:
    return client.post("/console/acts", json={"act": name, "values": values, "why": "a test"})


@pytest.mark.req("D3")
def test_every_page_has_the_headers_that_keep_it_to_itself(browser: httpx.Client) -> None:
    for path in (*PLACES, "/login"):
        answer = browser.get(f"/console{path}")
        assert answer.status_code == 200, path
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert not re.search(r"<style|\sstyle=|<script(?![^>]* src=)|\son\w+=|javascript:|https?://", answer.text), path


@pytest.mark.req("D3")
def test_a_change_needs_the_csrf_value_of_its_session(browser: httpx.Client, shop: Shop) -> None:
    right = browser.headers.pop("X-CSRF-Token")
    for wrong in ("", "x", right[:-1]):
        refused = browser.post(
            "/console/acts",
            json={"act": "work.pause", "values": {"journal": "mails"}, "why": "x"},
            headers={"X-CSRF-Token": wrong} if wrong else {},
        )
        assert (refused.status_code, refused.json()["code"]) == (403, "csrf")
    assert shop.s.work("mails").counts().paused is None


@pytest.mark.req("D3")
def test_csv_is_no_formula(browser: httpx.Client) -> None:
    answer = browser.get(f"/console/journals/{quote(ODD, safe='')}/events.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.text.splitlines()[0] == "seq_nr,time,type,tags,life"
    assert "<b>bold</b> =1+1" in answer.text
    shown = browser.get(f"/console/journals/{quote(ODD, safe='')}/events.csv?payloads=shown")
    assert "script" in shown.text
    assert "script" not in answer.text


def test_it_stands_below_any_prefix(server: Served, shop: Shop) -> None:
    inner = app(shop.s, tokens=server.app.tokens, groups=shop.groups)
    outer = Starlette(routes=[Mount("/in/here", inner)])

    async def look() -> None:
        transport = httpx.ASGITransport(outer)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            away = await client.get("/in/here/console/work")
            assert away.headers["location"] == "/in/here/console/login"
            door = await client.get("/in/here/console/login")
            assert 'action="/in/here/console/login"' in door.text
            await client.post("/in/here/console/login", data={"token": server.token})
            assert [cookie.path for cookie in client.cookies.jar] == ["/in/here"]
            for path in PLACES:
                answer = await client.get(f"/in/here/console{path}")
                assert answer.status_code == 200, path
                addresses = re.findall(r'(?:href|src|action)="([^"]*)"', answer.text)
                assert len(addresses) > 8
                inside = [one for one in addresses if one.startswith(("/in/here/console", "#"))]
                assert addresses == inside
                (at,) = re.findall(r'data-at="([^"]*)"', answer.text)
                assert page_at(at.replace("&amp;", "&"))[0].path.count("/") == path.count("/")
                for file in re.findall(r'"([^"]*/static/[^"]*)"', answer.text):
                    assert (await client.get(file)).status_code == 200

    asyncio.run(look())
    inner.close()


def test_a_page_that_is_not_there_says_so_as_a_page(browser: httpx.Client) -> None:
    for path, status in (
        ("/projections/nothing/1", 404), ("/groups/default/nothing", 404), ("/groups/nowhere/x", 404),
        ("/work/nothing", 404), ("/journals/no-key", 422), ("/journals/order%7C1?before=x", 422),
        ("/projections/totals/x", 422), ("/groups?state=odd", 422), ("/journals?tag=a&after=b", 422),
        ("/work/mails?unknown=1", 422),
    ):  # fmt: skip
        answer = browser.get(f"/console{path}")
        assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8"), path
        assert "Traceback" not in answer.text
    assert browser.get("/console/static/x/../handlers.py").status_code == 404
    assert browser.get("/console/static/x/..%2Fhandlers.py").status_code == 404
    with pytest.raises(FrameError):
        page_at("/nowhere")


HUGE = "9" * 5000
MANY = quote("/work/mails?" + "&".join(f"q{n}=1" for n in range(50)))
LISTS = quote('{"journal": ["x"]}')
NOTHING = quote('{"journal": "nothing"}')
HOSTILE: dict[str, tuple[str, ...]] = {
    "/live?at={}": ("", "//%5B", "/x", "%2F%2F", MANY),
    "/journals/order%7C1?before={}": (HUGE, "0", "-1", "1.5", "%D9%A3", "9223372036854775808"),
    "/journals/{}": ("%20", "%7C", "%00", "a%7C" + "x" * 600),
    "/journals?entity_type=order&after={}": ("x", "stock%7C1", "%00"),
    "/journals?entity_type={}": ("%7C", "%F0%9F%A6%80", "x" * 3000),
    "/journals?tag=blue&after={}": ("x", "0.0.0", "%00"),
    "/journals?tag={}": ("%00", "x" * 2000),
    "/projections/totals/{}": (HUGE, "0", "-1", "%00"),
    "/projections/{}/1": ("%2e%2e", "T%27--", "%00", "x" * 300),
    "/acts?day={}": ("%7C", "%00", "x" * 600, "2026-99-99"),
    "/groups?state=all&stream={}": ("%00", "x/y", "x" * 300),
    "/groups?state=open&after={}": ("x", HUGE, "%00"),
    "/groups/default/{}": ("%00", "%2F", "x" * 300),
    "/work/{}": ("%2e%2e", "%27", "%00", "x" * 300),
    "/work/mails?show={}": ("x", "%00"),
    "/ask?act=work.drop_all&values={}": ("%7B%7D", "[]", "1", LISTS, NOTHING),
    "/find?key={}": ("", "%00", "%7C"),
}


@pytest.mark.req("RS1")
@pytest.mark.parametrize("path", HOSTILE)
def test_what_is_asked_wrongly_is_refused_and_is_no_bug(browser: httpx.Client, path: str) -> None:
    for value in HOSTILE[path]:
        with browser.stream("GET", f"/console{path.format(value)}") as answer:
            assert answer.status_code < 500, path.format(value)
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                assert "Traceback" not in answer.read().decode()


@pytest.mark.req("RS1")
@pytest.mark.parametrize("name", ACTS)
def test_an_act_on_what_cannot_be_is_refused_and_is_no_bug(browser: httpx.Client, name: str) -> None:
    chosen = ACTS[name]
    known: list[dict[str, Any]] = [{}, {"stream": "default"}]
    if name not in ENOUGH:
        known += [{"journal": "mails"}, {"name": "totals", "generation": 1}]
    for value in (HUGE, str(2**63), "-1", "\0", "nothing", 2**62):
        values: dict[str, Any] = dict.fromkeys((*chosen.target, *(field.name for field in chosen.fields)), value)
        for there in known:
            given = {**values, **{one: right for one, right in there.items() if one in values}}
            answer = act(browser, name, **given)
            assert answer.status_code in {400, 404, 409, 422}, (name, given, answer.text)


ENOUGH = {"work.pause", "work.resume", "work.requeue_all", "work.acknowledge_all", "work.drop_all"} | {
    "projections.pause", "projections.resume",
}  # fmt: skip
"""Acts that need no more than a journal or a projection that is there."""


def test_each_scope_sees_its_pages_and_no_others(server: Served) -> None:
    for scope in ("append", "read", "group", "work", "admin"):
        with httpx.Client(base_url=server.url) as client:
            client.post("/console/login", data={"token": server.token_for(scope)})
            for page, path in zip(PAGES, PLACES, strict=True):
                seen = client.get(f"/console{path}").status_code
                assert seen == (200 if page.scope in (None, scope) else 403), (scope, path)
                live = client.get(f"/console/live?at={quote(path)}") if seen == 403 else None
                assert live is None or live.status_code == 403
    with httpx.Client(base_url=server.url) as client:
        client.post("/console/login", data={"token": server.token_for("read", entity_types=["order"])})
        assert client.get("/console/journals/order%7C1").status_code == 200
        for path in ("/journals/stock%7Csku-1", "/journals", "/journals/stock%7Csku-1/events.csv"):
            assert client.get(f"/console{path}").status_code == 403
        assert client.get("/console/live?at=/journals/stock%257Csku-1").status_code == 403


def test_a_stream_says_all_at_first_then_what_has_changed(browser: httpx.Client, shop: Shop) -> None:
    with browser.stream("GET", "/console/live?at=/journals/order%257C6") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = (json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: "))
        assert [region["name"] for region in next(lines)] == ["head", "events", "snapshots"]
        shop.s.journal.append("order|6", [Event("Streamed")])
        changed = next(regions for regions in lines if regions)
        assert {region["name"] for region in changed} == {"head", "events"}
        assert "Streamed" in "".join(region["html"] for region in changed)


# ---------------------------------------------------------------- acts


@pytest.mark.parametrize("name", ACTS)
def test_an_act_asks_and_refuses_what_it_does_not_know(browser: httpx.Client, name: str) -> None:
    chosen = ACTS[name]
    values = {one: "mails" if one == "journal" else "1" for one in chosen.target}
    question = browser.get("/console/ask", params={"act": name, "values": json.dumps(values)})
    assert question.status_code == 200
    assert chosen.title in question.text
    assert 'name="why"' in question.text
    first = chosen.target[0]
    wrong: list[Any] = [[], {}, {**values, "more": "1"}, {**values, first: [1]}, {**values, first: True}]
    for bad in wrong:
        refused = browser.post("/console/acts", json={"act": name, "values": bad, "why": "x"})
        assert refused.status_code == 422, (name, bad)
    silent = browser.post("/console/acts", json={"act": name, "values": values, "why": " "})
    assert (silent.status_code, "why" in silent.json()["detail"]) == (422, True)


def test_an_unknown_act_is_refused(browser: httpx.Client) -> None:
    assert act(browser, "journal.purge", key="order|1").status_code == 422
    assert browser.get("/console/ask", params={"act": "x", "values": "{}"}).status_code == 422
    assert browser.get("/console/ask", params={"act": "work.pause", "values": "no json"}).status_code == 422
    assert browser.get("/console/ask", params={"act": "work.pause", "values": "[]"}).status_code == 422


@pytest.mark.req("D11")
def test_acts_on_work(browser: httpx.Client, shop: Shop) -> None:
    jobs = shop.s.work(WorkDeclaration("jobs", key={"n": "int"}, data={"to": "text"}, max_timeouts=1))
    for n in range(6):
        jobs.add({"n": n}, {"to": "x"}, priority=n)
    for claim in jobs.cursor("me").claim(3).claims:
        claim.fail("broken")
    first, second, third = (letter.dead_id for letter in jobs.dead())
    assert act(browser, "work.pause", journal="jobs").json()["done"] == "Pause the work journal: paused"
    assert jobs.counts().paused == "a test"
    assert act(browser, "work.resume", journal="jobs").status_code == 200
    assert act(browser, "work.requeue", journal="jobs", dead_id=first).status_code == 200
    assert act(browser, "work.acknowledge", journal="jobs", dead_id=second).status_code == 200
    assert [letter.acknowledged for letter in jobs.dead()] == [True, False]
    gone = act(browser, "work.requeue", journal="jobs", dead_id=first)
    assert (gone.status_code, gone.json()["code"]) == (404, "dead_letter")
    ended, asked = (event.payload for event in shop.s.journal.read(day_key(now_us()), backwards=True, limit=2))
    assert (asked["what"], ended["error"]["code"]) == ("work.requeue", "dead_letter"), "what failed is recorded, too"
    assert act(browser, "work.acknowledge_all", journal="jobs", show="dead", q="", priority="").status_code == 200
    assert jobs.counts().unacknowledged == 0
    (entry, *_) = jobs.entries()
    assert act(browser, "work.drop", journal="jobs", entry=entry.id).status_code == 200
    done = act(browser, "work.drop_all", journal="jobs", show="waiting", q="n=4", priority="")
    assert done.json()["done"] == "Drop all that match: 1 dropped"
    assert third in [letter.dead_id for letter in jobs.dead()]
    assert len(jobs.entries()) == 2


@pytest.mark.req("D11")
def test_acts_on_projections(browser: httpx.Client, shop: Shop) -> None:
    mended = False

    def handle(tx: Any, event: Any) -> None:
        if not mended and event.type == "Placed" and str(event.key) in ("order|8", "order|9"):
            raise ValueError

    s = shop.s
    at = {"name": "acted", "generation": 1}
    with running(s, Projection("acted", BySlices("order"), handle, on_failure="skip", retries=0, **QUICK)):
        until(lambda: len(s.projections.dead_letters("acted")) == 2)
        mended = True
        letter = {**at, "life": 1, "seq_nr": 1}
        assert act(browser, "projections.redeliver", **letter, key="order|8").status_code == 200
        assert act(browser, "projections.discard", **letter, key="order|9").status_code == 200
        until(lambda: not s.projections.dead_letters("acted"))
        assert act(browser, "projections.rescale", **at, ranges="2").status_code == 200
        until(lambda: len(s.projections.status("acted").ranges) == 2)
        assert act(browser, "projections.skip", **at, key="order|8", to="1").status_code == 200
        odd = act(browser, "projections.rescale", **at, ranges="0")
        assert (odd.status_code, odd.json()["code"]) == (422, "slice_range")
    refused = act(browser, "projections.switch", **at)
    assert (refused.status_code, refused.json()["code"]) in {(409, "switch"), (422, "generation_serving")}
    assert act(browser, "projections.pause", **at).status_code == 200
    assert s.projections.status("acted").paused
    assert act(browser, "projections.resume", **at).status_code == 200


@pytest.mark.req("D11")
def test_a_group_is_cancelled(browser: httpx.Client, shop: Shop) -> None:
    group = Group("to-cancel")
    group.query("read", "select amount from account where id = 1", target="shop")
    shop.groups.submit(group)
    carry(shop.s)
    done = act(browser, "groups.cancel", stream="default", id="to-cancel")
    assert done.json()["done"] == "Cancel the group: asked for; it was queued"
    shop.groups.processor().run_until_idle()
    assert shop.groups.get("to-cancel").state == "aborted"


# ---------------------------------------------------------------- payloads, an hour


def test_payloads_are_shown_from_the_start_where_the_server_says_so(server: Served, shop: Shop) -> None:
    shown = app(shop.s, tokens=server.app.tokens, show_payloads=True)

    async def look() -> tuple[str, str]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(shown), base_url="http://localhost") as client:
            await client.post("/console/login", data={"token": server.token})
            pages = [await client.get(f"/console/journals/order%7C1{more}") for more in ("", "?payloads=hidden")]
            return pages[0].text, pages[1].text

    first, hidden = asyncio.run(look())
    assert "&#34;total&#34;" in first
    assert "total" not in hidden
    shown.close()


def test_who_looks_often_looks_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    from strandline.server.console import history

    monkeypatch.setattr(history, "FRESH_S", 60.0)
    looks = []

    class Counting:
        def status(self) -> Any:
            looks.append(1)
            return shop.s.status()

    counting: Any = Counting()
    kept = history.StatusHistory(counting)
    threads = [Thread(target=kept.status) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(looks) == 1


def test_the_history_ends_with_its_connection(tmp_path: Any) -> None:
    import strandline
    from strandline.server.console.history import StatusHistory

    s: Strandline = strandline.connect(f"sqlite:{tmp_path}/shop")
    kept = StatusHistory(s)
    kept.start()
    until(lambda: len(kept.samples()) >= 2)
    assert kept.samples()[-1].recorded == 0
    s.close()
    thread = kept._thread
    assert thread is not None
    thread.join(10)
    assert not thread.is_alive()
