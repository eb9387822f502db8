"""Who is let in, and what is refused before anything of the journal is asked."""

from __future__ import annotations

import ssl
import stat
import time
import warnings
from pathlib import Path

import httpx
import pytest

import strandline
from strandline.clock import now_us
from strandline.connect import Strandline
from strandline.errors import Unsupported
from strandline.server import app
from strandline.server.admin_acts import day_key
from strandline.server.listening import check_tls
from strandline.server.tokens import SCOPES, TokenFile
from tests.acceptance.cli_call import call
from tests.projection.worlds import until
from tests.server.worlds import Served, served
from tests.servers.authority import Authority

DAY_US = 86_400 * 10**6


def problem(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of a refusal, in the form that every refusal has."""
    told = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert told["status"] == answer.status_code
    assert set(told) - {"field"} == set(
        "title code status detail hint applied retryable facts request_id".split()
    )  # fmt: skip
    return answer.status_code, told["code"]


@pytest.mark.req("RS1")
@pytest.mark.parametrize("path", ["/journals/order%7C1", "/console/journals/order%7C1"])
def test_an_answer_to_a_bug_shows_nothing_of_the_program(
    server: Served, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It names the request, by which the log has the rest."""

    def broken(*_: object) -> None:
        raise RuntimeError("an inner matter")

    monkeypatch.setattr(server.s.journal, "head", broken)
    with server.client() as client:
        if path.startswith("/console"):
            client.post("/console/login", data={"token": server.token})
            del client.headers["Authorization"]
        answer = client.get(path)
    assert answer.status_code == 500
    assert not any(word in answer.text for word in ("Traceback", "RuntimeError", "inner matter", "broken", ".py"))
    (logged,) = [record for record in caplog.records if record.getMessage().startswith("bug: ")]
    assert "an inner matter" in str(logged.exc_info and logged.exc_info[1])
    assert str(logged.getMessage()).rpartition(" ")[2] in answer.text


OPEN = ("/healthz", "/login", "/console/login", "/console/static/{version}/{file}")


@pytest.mark.req("D1")
def test_only_healthz_is_open_and_says_only_ok(server: Served) -> None:
    with httpx.Client(base_url=server.url) as nobody:
        assert nobody.get("/healthz").text == "ok"
        for route in server.app.table.routes:
            if route.path in OPEN:
                continue
            path = route.path.replace("{", "").replace("}", "")
            refused = nobody.request(route.method, path)
            if route.refusal is not None:  # a page of the console
                assert (refused.status_code, refused.headers["location"]) == (303, "/console/login"), route
            else:
                assert problem(refused) == (401, "unauthorized"), route
        assert problem(nobody.get("/no/such/path")) == (401, "unauthorized")


@pytest.mark.req("D1")
def test_a_foreign_host_and_a_page_from_elsewhere_are_refused(server: Served, client: httpx.Client) -> None:
    port = server.server.port
    for name in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert client.get("/healthz", headers={"Host": name}).status_code == 200
    for name in ("evil.example", f"evil.example:{port}", "", "localhost.evil.example", "[::2]"):
        assert problem(client.get("/healthz", headers={"Host": name})) == (421, "host")
    own = client.get("/openapi.json", headers={"Origin": server.url})
    assert own.status_code == 200
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        answer = client.get("/openapi.json", headers={"Origin": origin})
        assert problem(answer) == (403, "origin")
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.req("D2")
def test_a_wrong_an_expired_and_a_revoked_token_get_one_text(s: Strandline, tmp_path: Path) -> None:
    now = [time.time_ns() // 1000]
    tokens = TokenFile(tmp_path / "tokens.json", clock=lambda: now[0])
    good, kept = tokens.create("a", ["read"])
    revoked, gone = tokens.create("b", ["read"])
    tokens.revoke(gone.id)
    texts: set[str] = set()
    with served(s, tmp_path, tokens=tokens) as running:

        def said(token: str | None) -> tuple[int, str]:
            headers = {} if token is None else {"Authorization": token}
            answer = httpx.get(f"{running.url}/openapi.json", headers=headers)
            if answer.status_code == 401:
                assert answer.headers["www-authenticate"] == "Bearer"
                told = answer.json()
                del told["request_id"]
                texts.add(str(told))
            return answer.status_code, answer.json().get("code", "")

        assert said(f"Bearer {good}")[0] == 200
        swapped = good[:-1] + ("A" if good[-1] != "A" else "B")
        for wrong in (None, "", "Bearer", f"Basic {good}", f"Bearer {swapped}", f"Bearer {revoked}", "Bearer x"):
            assert said(wrong) == (401, "unauthorized")
        now[0] = kept.expires
        assert said(f"Bearer {good}") == (401, "unauthorized")
        assert len(texts) == 1


@pytest.mark.req("D2")
def test_tokens_are_kept_as_digests_for_this_user_alone(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    text, kept = tokens.create("shop", ["append", "read"], entity_types=["order"])
    assert text.startswith(f"sl_{kept.id}_")
    assert kept.expires - kept.created == 90 * DAY_US
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600
    secret = text.split("_", 2)[2]
    assert len(secret) == 43  # 32 bytes
    assert secret not in tokens.path.read_text()
    tokens.create("shop", ["read"])  # two are valid at once, so that clients can change over
    with pytest.raises(strandline.InvalidInput, match="2 valid tokens"):
        tokens.create("shop", ["read"])
    tokens.revoke(kept.id)
    tokens.create("shop", ["read"])
    tokens.path.chmod(0o640)
    with pytest.raises(Unsupported) as caught:
        TokenFile(tokens.path).find(text)
    assert caught.value.name == "Unsupported.secret_mode"


@pytest.mark.req("D2")
def test_a_revoked_token_is_refused_by_the_next_request(server: Served) -> None:
    token = server.token_for("read")
    with server.client(token) as client:
        assert client.get("/openapi.json").status_code == 200
        TokenFile(server.app.tokens.path).revoke(token.split("_")[1])  # another process has another object
        until(lambda: client.get("/openapi.json").status_code == 401, timeout_s=1.0)


@pytest.mark.req("D11")
def test_no_one_is_let_in_where_tokens_cannot_be_read(s: Strandline, tmp_path: Path) -> None:
    with served(s, tmp_path) as running, running.client() as client:
        assert client.get("/openapi.json").status_code == 200
        kept = running.app.tokens.path.read_bytes()
        running.app.tokens.path.write_bytes(b"{")
        until(lambda: client.get("/openapi.json").status_code == 503)  # the file is looked at every few milliseconds
        assert problem(client.get("/openapi.json")) == (503, "away")
        running.app.tokens.path.unlink()
        assert problem(client.get("/openapi.json")) == (503, "away")
        running.app.tokens.path.write_bytes(kept)
        running.app.tokens.path.chmod(0o600)
        until(lambda: client.get("/openapi.json").status_code == 200)


@pytest.mark.req("D1")
def test_the_first_start_makes_an_admin_token_in_a_file_of_its_own(s: Strandline, tmp_path: Path) -> None:
    app(s, tokens=tmp_path / "tokens.json").close()
    place = tmp_path / "admin-token"
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    token = TokenFile(tmp_path / "tokens.json").find(place.read_text().strip())
    assert token is not None
    assert token.scopes == SCOPES
    place.unlink()
    app(s, tokens=tmp_path / "tokens.json").close()
    assert not place.exists()


def test_a_browser_has_a_strict_cookie_and_a_csrf_value(server: Served) -> None:
    with httpx.Client(base_url=server.url) as browser:
        assert problem(browser.post("/login", data={"token": "sl_a_" + "b" * 43})) == (401, "unauthorized")
        entered = browser.post("/login", data={"token": server.token})
        assert entered.status_code == 303
        words = {word.strip().lower() for word in entered.headers["set-cookie"].split(";")[1:]}
        assert {"httponly", "samesite=strict"} <= words
        assert server.token not in entered.headers["set-cookie"]
        session = browser.get("/session").json()
        assert session["name"] == "all"
        assert problem(browser.post("/logout")) == (403, "csrf")
        assert problem(browser.post("/logout", headers={"X-CSRF-Token": "no"})) == (403, "csrf")
        foreign = {"X-CSRF-Token": session["csrf"], "Origin": "http://evil.example"}
        assert problem(browser.post("/logout", headers=foreign)) == (403, "origin")
        cookie = browser.cookies["strandline_session"]
        assert browser.post("/logout", headers={"X-CSRF-Token": session["csrf"]}).status_code == 204
        browser.cookies.set("strandline_session", cookie)
        assert problem(browser.get("/session")) == (401, "unauthorized")


def test_every_answer_forbids_framing_sniffing_keeping_and_inline_code(client: httpx.Client) -> None:
    for path in ("/healthz", "/openapi.json", "/no"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


def test_paths_methods_and_headers(client: httpx.Client) -> None:
    assert problem(client.get("/nothing")) == (404, "path")
    refused = client.put("/healthz")
    assert problem(refused) == (405, "method")
    assert refused.headers["allow"] == "GET, HEAD"
    assert problem(client.get("/healthz", headers={"X": "y" * 17_000})) == (431, "headers_too_large")


def test_a_token_has_a_rate_and_so_many_requests_at_once(s: Strandline, tmp_path: Path) -> None:
    with served(s, tmp_path, limits={"token_requests_per_s": 5}) as running, running.client() as client:
        answers = [client.get("/openapi.json") for _ in range(8)]
        refused = [answer for answer in answers if answer.status_code != 200]
        assert 1 <= len(refused) <= 3
        assert {problem(answer) for answer in refused} == {(429, "rate")}
        assert int(refused[0].headers["retry-after"]) >= 1
        with running.client(running.token_for("read")) as other:
            assert other.get("/openapi.json").status_code == 200


@pytest.mark.req("U14")
def test_an_open_server_and_a_key_for_everybody_are_refused(s: Strandline, tmp_path: Path) -> None:
    refused = call("serve", "--url", f"sqlite:{tmp_path}/shop", "--host", "0.0.0.0", "--json")
    assert (refused.code, refused.name) == (7, "Unsupported.open_server")
    assert not (tmp_path / "shop").exists()
    key = tmp_path / "key.pem"
    key.write_text("no key")
    key.chmod(0o644)
    refused = call(
        "serve", "--url", f"sqlite:{tmp_path}/shop", "--host", "0.0.0.0", "--certificate", str(key), "--key", str(key),
        "--json",
    )  # fmt: skip
    assert (refused.code, refused.name) == (7, "Unsupported.secret_mode")


@pytest.mark.req("U14", "D4")
def test_tls_from_1_2_on_with_a_key_for_this_user_alone(s: Strandline, tmp_path: Path) -> None:
    authority = Authority(tmp_path).start()
    signed = authority.signed("server", "DNS:localhost")
    signed.key.chmod(0o600)
    tls = {"certificate": signed.certificate, "key": signed.key}
    with served(s, tmp_path, tls=tls, hosts=["localhost"]) as running:
        url = running.url.replace("127.0.0.1", "localhost")
        assert url.startswith("https://")
        trusts = ssl.create_default_context(cafile=str(authority.certificate))
        with httpx.Client(base_url=url, verify=trusts) as client:
            assert client.get("/healthz").text == "ok"
            entered = client.post("/login", data={"token": running.token})
            assert "secure" in entered.headers["set-cookie"].lower()
        old = ssl.create_default_context(cafile=str(authority.certificate))
        old.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(httpx.ConnectError), httpx.Client(base_url=url, verify=old) as client:
            client.get("/healthz")
        with pytest.raises(httpx.ConnectError), httpx.Client(base_url=url) as client:
            client.get("/healthz")  # it trusts others
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.com"):
        with pytest.raises(Unsupported) as caught:
            check_tls(host, None, None)
        assert caught.value.name == "Unsupported.open_server"
    for own in (None, "127.0.0.1", "::1", "localhost"):
        assert check_tls(own, None, None) is False
    assert check_tls("0.0.0.0", signed.certificate, signed.key) is True


@pytest.mark.req("D11")
def test_tokens_are_made_and_revoked_with_a_record(tmp_path: Path) -> None:
    url, before = f"sqlite:{tmp_path}/shop", now_us()
    made = call("token", "create", "--name", "shop", "--scope", "read", "--why", "for the shop", "--url", url, "--json")
    assert made.code == 0
    (told,) = made.lines
    assert call("token", "revoke", told["id"], "--url", url, "--json").code == 0
    (listed,) = call("token", "list", "--url", url, "--json").lines
    assert listed["state"] == "revoked"
    assert told["token"] not in str(listed)
    with strandline.connect(url) as s:
        events = [event for key in (day_key(before), day_key(now_us())) for event in s.journal.read(key)]
    events = sorted(set(events), key=lambda event: event.timestamp)  # the day may have changed meanwhile
    assert [event.type for event in events] == ["AdminActAsked", "AdminActEnded"] * 2
    asked, ended = events[0].payload, events[1].payload
    assert (asked["what"], asked["on"], asked["why"], asked["before"]) == ("token.create", "shop", "for the shop", [])
    assert asked["who"]
    assert asked["act"] == ended["act"]
    assert ended["after"][0]["id"] == told["id"]
    assert told["token"] not in str([event.payload for event in events])
