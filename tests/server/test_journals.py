"""Append, read, head, delete, purge and the queries, over real HTTP."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import strandline
from strandline.clock import now_us
from strandline.connect import Strandline
from strandline.server.admin_acts import day_key
from strandline.testing import carry
from strandline.values.keys import key_digest
from tests.projection.worlds import until
from tests.server.test_frame import problem
from tests.server.worlds import Served, served


def placed(total: int = 1, **more: Any) -> dict[str, Any]:
    return {"type": "Placed", "payload": {"total": total}, **more}


def lines(answer: httpx.Response) -> list[Any]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def acts(s: Strandline, since: int) -> list[Any]:
    events = [event for key in {day_key(since), day_key(now_us())} for event in s.journal.read(key)]
    return [event.payload for event in events if event.timestamp >= since]


def test_what_is_appended_is_read(client: httpx.Client, s: Strandline) -> None:
    raw = base64.b64encode(b"\xff\x00").decode()
    events = [placed(5, tags=["blue"], metadata={"by": "ann"}), {"type": "Scanned", "payload_base64": raw}]
    made = client.post("/journals/order%7Ca/events", json={"events": events, "headers": {"from": "web"}})
    assert made.status_code == 200
    told = made.json()
    assert (told["key"], told["first"], told["last"], told["duplicate"]) == ("order|a", 1, 2, False)
    assert made.headers["etag"] == '"2"'
    found = lines(client.get("/journals/order%7Ca/events"))
    assert found == [event.to_dict() for event in s.journal.read("order|a")]
    assert (found[0]["payload"], found[0]["headers"], found[1]["payload_base64"]) == (
        {"total": 5},
        {"from": "web"},
        raw,
    )
    head = client.get("/journals/order%7Ca")
    assert (head.json()["seq_nr"], head.headers["etag"]) == (2, '"2"')
    for query, numbers in (("from=2", [2]), ("to=1", [1]), ("limit=1", [1]), ("backwards=true&limit=1", [2])):
        assert [one["seq_nr"] for one in lines(client.get(f"/journals/order%7Ca/events?{query}"))] == numbers


def test_an_unknown_key_is_empty_and_has_the_etag_of_no_journal(client: httpx.Client) -> None:
    assert lines(client.get("/journals/order%7Cnone/events")) == []
    head = client.get("/journals/order%7Cnone")
    assert (head.status_code, head.json(), head.headers["etag"]) == (200, None, '"0"')


@pytest.mark.parametrize("id_", ["a/b", "../x", "%2F", "a b", "é😀", "a|b", "events", "?x=1", "a+b"])
def test_a_key_is_data_whatever_stands_in_it(client: httpx.Client, s: Strandline, id_: str) -> None:
    from urllib.parse import quote

    path = f"/journals/{quote(f'data|{id_}', safe='')}/events"
    assert client.post(path, json={"events": [placed()]}).json()["key"] == f"data|{id_}"
    assert [event.payload for event in s.journal.read(f"data|{id_}")] == [{"total": 1}]
    assert len(lines(client.get(path))) == 1


def test_expected_and_an_id(client: httpx.Client) -> None:
    path = "/journals/order%7Cb/events"
    first = client.post(path, json={"events": [placed()]}, headers={"If-Match": '"0"', "Idempotency-Key": "r 1"})
    assert first.json()["last"] == 1
    again = client.post(path, json={"events": [placed()]}, headers={"If-Match": '"0"', "Idempotency-Key": "r 1"})
    assert (again.json()["first"], again.json()["duplicate"]) == (1, True)
    refused = client.post(path, json={"events": [placed()]}, headers={"If-Match": '"7"'})
    assert problem(refused) == (409, "expected")
    told = refused.json()
    assert (told["title"], told["applied"], told["retryable"]) == ("SeqNrConflict", "no", False)
    assert "expected 7" in told["detail"]
    other = client.post(path, json={"events": [placed(9)]}, headers={"Idempotency-Key": "r 1"})
    assert problem(other) == (422, "append_id_reused")
    assert problem(client.post(path, json={"events": [placed()]}, headers={"If-Match": "*"})) == (422, "seq_nr_range")
    assert len(lines(client.get(path))) == 1


def test_many_appends_have_an_answer_each(client: httpx.Client, server: Served) -> None:
    given = [
        {"key": "order|m1", "events": [placed()], "expected": 0},
        {"key": "order|m2", "events": [placed()], "expected": 5},
        {"key": "order|m3", "events": [placed(), placed(2)], "append_id": "x", "expire_after_s": 3600},
    ]
    answer = client.post("/append", json={"appends": given})
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert [next(iter(one)) for one in results] == ["appended", "error", "appended"]
    assert results[1]["error"]["code"] == "expected"
    bad = client.post("/append", json={"appends": [*given, {"key": "group|x", "events": [placed()]}]})
    assert problem(bad) == (422, "reserved_entity_type")  # bad input is refused as a whole, before anything is written
    assert bad.json()["field"].startswith("appends[3]")
    assert results[2]["appended"]["last"] == 2
    refused = client.post("/append", json={"appends": [{"key": "order|m4", "events": [placed()], "evnts": 1}]})
    assert problem(refused) == (422, "option")
    with server.client(server.token_for("append", entity_types=["order"])) as limited:
        both = [{"key": "order|m5", "events": [placed()]}, {"key": "secret|x", "events": [placed()]}]
        assert problem(limited.post("/append", json={"appends": both})) == (403, "scope")
        assert limited.post("/append", json={"appends": both[:1]}).status_code == 200


@pytest.mark.req("D2")
def test_a_scope_is_for_all_or_for_some_entity_types(server: Served) -> None:
    with server.client(server.token_for("read", entity_types=["order"])) as reader:
        assert reader.get("/journals/order%7Ca/events").status_code == 200
        assert reader.get("/keys/order").status_code == 200
        assert reader.get("/slices/order/0-9/events").status_code == 200
        for path in ("/journals/secret%7Ca", "/journals/secret%7Ca/events", "/keys/secret", "/keys", "/tags/x/events",
                     "/slices/secret/0-9/events", "/slices/secret/0-9/live", "/tags/x/live", "/status"):  # fmt: skip
            refused = reader.get(path)
            assert problem(refused) == (403, "scope"), path
            assert "read" in refused.json()["detail"]
        assert problem(reader.post("/journals/order%7Ca/events", json={"events": [placed()]})) == (403, "scope")
        assert problem(reader.delete("/journals/order%7Ca")) == (403, "scope")


BAD: list[tuple[str, bytes, dict[str, str], tuple[int, str]]] = [
    ("empty", b"", {}, (400, "empty_body")),
    ("cut", b'{"events": [', {}, (400, "invalid_json")),
    ("mark", b"\xef\xbb\xbf{}", {}, (400, "invalid_json")),
    ("not UTF-8", b'{"events": "\xff"}', {}, (400, "invalid_json")),
    ("no object", b"[]", {}, (422, "option")),
    ("unknown member", b'{"events": [], "evnts": 1}', {}, (422, "option")),
    ("missing member", b'{"first": 1}', {}, (422, "option")),
    ("no events", b'{"events": []}', {}, (422, "empty_append")),
    ("one event", b'{"events": {"type": "x"}}', {}, (422, "events_type")),
    ("of another type", b'{"events": [{"type": "x"}], "first": "1"}', {}, (422, "seq_nr_range")),
    ("no type", b'{"events": [{}]}', {}, (422, "events_type")),
    ("both payloads", b'{"events": [{"type": "x", "payload": 1, "payload_base64": ""}]}', {}, (422, "events_type")),
    ("twice", b'{"events": [], "events": []}', {}, (422, "duplicate_key")),
    ("too deep", b'{"events": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", {}, (422, "too_deep")),
    ("deep and long", b'{"events": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", {}, (422, "too_deep")),
    ("a million brackets", b'{"events": ' + b"[" * 1_000_000 + b"}", {}, (413, "body_too_large")),
    ("NaN", b'{"events": [{"type": "x", "payload": NaN}]}', {}, (422, "number_not_finite")),
    (
        "large integer",
        b'{"events": [{"type": "x", "payload": 9223372036854775808}]}',
        {},
        (422, "integer_out_of_range"),
    ),
    ("gzip", b"\x1f\x8b", {"Content-Encoding": "gzip"}, (415, "media_type")),
    ("text", b"{}", {"Content-Type": "text/plain"}, (415, "media_type")),
]


@pytest.mark.parametrize(("body", "headers", "code"), [one[1:] for one in BAD], ids=[one[0] for one in BAD])
def test_bad_bodies(
    client: httpx.Client, s: Strandline, body: bytes, headers: dict[str, str], code: tuple[int, str]
) -> None:
    sent = {"Content-Type": "application/json", **headers}
    assert problem(client.post("/journals/order%7Cbad/events", content=body, headers=sent)) == code
    assert s.journal.head("order|bad") is None


def test_a_body_that_is_too_large_is_refused(client: httpx.Client, server: Served) -> None:
    most = server.app.bodies.bytes_max
    assert most == 12 * 2**20

    def parts() -> Iterator[bytes]:
        for _ in range(most // 2**16 + 2):
            yield b"x" * 2**16

    sent = {"Content-Type": "application/json"}
    for body in (b"x" * (most + 1), parts()):
        refused = client.post("/journals/order%7Cbad/events", content=body, headers=sent)
        assert problem(refused) == (413, "body_too_large")
        assert refused.headers["connection"] == "close"
    assert client.get("/healthz").status_code == 200


def test_a_body_of_too_many_values_is_refused_before_it_is_parsed(client: httpx.Client) -> None:
    sent = {"Content-Type": "application/json"}
    for item in (b"[],", b'{"a":1},', b"1,"):
        body = b'{"events":[' + item * 400_000 + b"1]}"
        assert problem(client.post("/journals/order%7Cbad/events", content=body, headers=sent)) == (
            413,
            "body_too_large",
        )
    text = 'a, [b] {c} \\" ' * 5000  # what stands in a text is no value
    many = client.post("/journals/text%7C1/events", json={"events": [{"type": "Said", "payload": text}] * 20})
    assert many.status_code == 200
    endless = b'{"events":["' + b'\\"' * 500_000
    assert problem(client.post("/journals/order%7Cbad/events", content=endless, headers=sent)) == (400, "invalid_json")


def test_the_form_of_a_login_is_short(server: Served) -> None:
    with httpx.Client(base_url=server.url) as nobody:
        assert problem(nobody.post("/login", data={"token": "x" * 20_000})) == (413, "body_too_large")


@pytest.mark.req("D11")
def test_delete_and_purge_leave_a_record(client: httpx.Client, s: Strandline) -> None:
    since = now_us()
    client.post("/journals/order%7Cgone/events", json={"events": [placed()] * 3})
    done = client.delete("/journals/order%7Cgone/events?to=2&why=too%20old")
    assert done.json()["deleted"]["delete_to"] == 2
    assert [event.seq_nr for event in s.journal.read("order|gone")] == [3]
    assert client.delete("/journals/order%7Cgone").json()["purged"]["life"] == 1
    assert s.journal.head("order|gone") is None
    asked, ended, *more = acts(s, since)
    assert (asked["what"], asked["on"], asked["why"]) == ("journal.delete", "order|gone", "too old")
    assert asked["who"].startswith("all (token ")
    assert (asked["before"]["delete_to"], ended["after"]["delete_to"]) == (0, 2)
    assert [one.get("what") for one in more] == ["journal.purge", None]
    assert (more[0]["before"]["seq_nr"], more[1]["after"]) == (3, None)
    assert more[0]["on"] == f"key digest {key_digest('order|gone').hex()}"
    assert "order|gone" not in str(more)


# ---------------------------------------------------------------- queries


@pytest.fixture(scope="module")
def carried(s: Strandline, server: Served) -> Strandline:
    for number in range(1, 6):
        for key in ("seen|1", "seen|2"):
            s.journal.append(key, [strandline.Event("Seen", number, tags=["blue"] if number % 2 else ["red"])])
    carry(s)
    return s


def test_queries_give_what_is_in_the_store(client: httpx.Client, carried: Strandline) -> None:
    found = lines(client.get("/tags/blue/events?limit=1000"))
    with carried.by_tag("blue") as events:
        assert found == [event.to_dict() for event in events]
    assert len([one for one in found if one["key"].startswith("seen|")]) == 6
    rest = lines(client.get("/tags/blue/events", params={"after": found[2]["offset"]}))
    assert rest == found[3:]
    sliced = lines(client.get("/slices/seen/0-1023/events?tags=red"))
    assert sorted(one["payload"] for one in sliced) == [2, 2, 4, 4]
    assert len(lines(client.get("/slices/seen/0-1023/events?limit=3"))) == 3
    assert client.get("/keys/seen").json() == {"keys": sorted(["seen|1", "seen|2"], key=strandline.slice_of)}
    assert "seen" in client.get("/keys").json()["entity_types"]
    assert len(client.get("/status").json()["partitions"]) == 8


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/tags/blue/events?after=x", "offset_format"),
        ("/tags/blue/events?from=2026-11-15T07:30:00", "time_without_zone"),
        ("/tags/blue/events?from=x", "time_format"),
        ("/tags/blue/events?limit=0", "limit_range"),
        ("/slices/seen/9-3/events", "slice_range"),
        ("/slices/seen/0-1024/events", "slice_range"),
        ("/slices/seen/a/events", "slice_range"),
        ("/journals/seen/events", "key_type"),
        ("/journals/seen%7C1/events?from=0", "seq_nr_range"),
        ("/journals/seen%7C1/events?from=3&to=2", "empty_range"),
        ("/journals/seen%7C1/events?limit=abc", "limit_range"),
        ("/journals/seen%7C1/events?fron=1", "option"),
        ("/journals/seen%7C1/events?from=1&from=2", "option"),
        ("/journals/seen%7C1/events?backwards=yes", "option"),
    ],
)
def test_bad_queries(client: httpx.Client, carried: Strandline, path: str, code: str) -> None:
    assert problem(client.get(path)) == (422, code)


class Listener:
    """Reads server-sent events of a stream, in a thread."""

    def __init__(self, client: httpx.Client, path: str, headers: dict[str, str] | None = None) -> None:
        self.came: list[dict[str, str]] = []
        self.more = threading.Condition()
        self._client, self._path, self._headers = client, path, headers or {}
        self._stop = False
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        with self._client.stream("GET", self._path, headers=self._headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            told: dict[str, str] = {}
            for line in answer.iter_lines():
                if self._stop:
                    return
                name, _, value = line.partition(": ")
                if name:
                    told[name] = value
                elif "data" in told:
                    with self.more:
                        self.came.append(told)
                        self.more.notify()
                    told = {}

    def wait(self, count: int) -> list[dict[str, str]]:
        with self.more:
            assert self.more.wait_for(lambda: len(self.came) >= count, timeout=10), self.came
        return self.came

    def stop(self) -> None:
        self._stop = True


@pytest.mark.parametrize("path", ["/tags/live/live", "/slices/live/0-1023/live"])
def test_a_live_stream_goes_on_and_resumes(server: Served, s: Strandline, path: str) -> None:
    def record(number: int) -> None:
        s.journal.append("live|1", [strandline.Event("Seen", number, tags=["live"])])
        carry(s)

    before = 0 if s.journal.head("live|1") is None else s.journal.head("live|1").seq_nr  # type: ignore[union-attr]
    record(before + 1)
    with server.client() as client, server.client() as other:
        first = Listener(client, path)
        assert [json.loads(one["data"])["payload"] for one in first.wait(before + 1)] == list(range(1, before + 2))
        record(before + 2)
        last = first.wait(before + 2)[-1]
        second = Listener(other, path, {"Last-Event-ID": last["id"]})
        record(before + 3)
        assert json.loads(second.wait(1)[0]["data"])["payload"] == before + 3
        assert len(first.wait(before + 3)) == before + 3
        for one in (first, second):
            one.stop()
        record(before + 4)
        for one in (first, second):
            one.thread.join()


def test_a_stream_from_a_time_resumes_by_its_id(server: Served, s: Strandline) -> None:
    s.journal.append("since|1", [strandline.Event("Seen", number, tags=["since"]) for number in (1, 2)])
    carry(s)
    with server.client() as client, server.client() as other:
        assert problem(client.get("/tags/since/live?after=x&from=1")) == (422, "offset_ambiguous")
        assert client.head("/tags/since/live?from=1").status_code == 200  # it ends
        first = Listener(client, "/tags/since/live?from=1")
        second = Listener(other, "/tags/since/live?from=1", {"Last-Event-ID": first.wait(2)[0]["id"]})
        assert json.loads(second.wait(1)[0]["data"])["payload"] == 2
        for one in (first, second):
            one.stop()
        s.journal.append("since|1", [strandline.Event("Seen", 3, tags=["since"])])
        carry(s)
        for one in (first, second):
            one.thread.join()


def test_what_goes_wrong_on_the_way_is_the_last_line(tmp_path: Path) -> None:
    with (
        strandline.connect(f"sqlite:{tmp_path}/shop", read_page=20) as s,
        served(s, tmp_path) as running,
        running.client() as client,
    ):
        for _ in range(10):
            s.journal.append("big|1", [strandline.Event("Seen", "x" * 20_000)] * 40)
        carry(s)
        with client.stream("GET", "/journals/big%7C1/events") as answer:
            coming = answer.iter_lines()
            first = json.loads(next(coming))
            s.journal.purge("big|1")
            carry(s)
            *some, last = map(json.loads, coming)
    assert (answer.status_code, first["seq_nr"]) == (200, 1)
    assert len(some) < 399
    assert (last["error"]["title"], last["error"]["code"]) == ("ReadConflict", "journal_changed")
    assert last["error"]["hint"]


def test_a_reader_that_leaves_is_forgotten(server: Served, s: Strandline) -> None:
    s.journal.append("left|1", [strandline.Event("Seen", "x" * 20_000)] * 300)
    with server.client() as client, client.stream("GET", "/journals/left%7C1/events") as answer:
        next(answer.iter_raw())
    with server.client() as client, client.stream("GET", "/tags/left/live") as answer:
        next(answer.iter_raw())
    until(lambda: not server.app.meter._under_way)


def test_a_live_stream_ends_with_the_server(s: Strandline, tmp_path: Path) -> None:
    with served(s, tmp_path) as running, running.client() as client:
        listener = Listener(client, "/tags/nothing/live")
        with client.stream("GET", "/tags/nothing/live") as answer:
            next(answer.iter_raw())
            running.server.stop()
            listener.thread.join(timeout=10)
            assert not listener.thread.is_alive()


def test_an_idle_pipeline_wakes_no_stream(server: Served, s: Strandline, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    by_tag = s.by_tag

    def counted(tag: str, **how: Any) -> Any:
        asked.append(tag)
        return by_tag(tag, **how)

    monkeypatch.setattr(s, "by_tag", counted)
    with server.client() as client:
        listener = Listener(client, "/tags/idle/live")
        s.journal.append("idle|1", [strandline.Event("Seen", 1, tags=["idle"])])
        carry(s)
        listener.wait(1)
        before, line = len(asked), s.strandline()
        of_partition = {key.partition(8): key for key in (strandline.Key("mark", str(n)) for n in range(100))}
        for looks in (s.pointer_watch.looks, s.pointer_watch.looks + 3):
            for partition in range(8):
                s.journal.mark(of_partition[partition])
            carry(s)
            until(lambda: s.pointer_watch.looks >= looks + 3)  # noqa: B023 (called at once)
        assert s.strandline() > line
        assert len(asked) <= before + 1  # the page that was on its way
        s.journal.append("idle|1", [strandline.Event("Seen", 2, tags=["idle"])])
        carry(s)
        listener.wait(2)
        listener.stop()
        s.journal.append("idle|1", [strandline.Event("Seen", 3, tags=["idle"])])
        carry(s)
        listener.thread.join()
