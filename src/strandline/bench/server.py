"""server: appends by HTTP beside a server with nothing behind it, and the memory that readers who stop reading take.

`append`: 64 keep-alive clients, one request each at a time, each to a key of its own, every answer awaited. The peer is
uvicorn with the same requests: it reads the body and answers as many bytes. The clients are one process that parses no
JSON, so both servers have the same half of the machine.

`streams`: 1,000 clients open a live stream by tag; half of them stop reading, half read a little each second. Meanwhile
8 writers append by HTTP and another process carries. The figure is the server's peak of resident memory.

`first-page`: a browser logs in to a server that has just started, on a journal with a million keys, all carried. The
figure is the time from its request for the console's first page until it has the page and all files that this names.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from strandline.bench.cases import PAYLOAD_BYTES, Case, CaseSettings, RoundFigure
from strandline.bench.child import Child

CLIENTS: Final = 64
SECONDS, QUICK_SECONDS = 10.0, 0.5
WARM_S, QUICK_WARM_S = 2.0, 0.1
STREAMS, QUICK_STREAMS = 1_000, 10
WRITERS: Final = 8
WRITE_S, QUICK_WRITE_S = 20.0, 0.5
PATIENCE_S = 30.0
STREAMS_LIMIT_MB: Final = 200.0
KEYS, QUICK_KEYS = 1_000_000, 1_000
FIRST_PAGE_LIMIT_S: Final = 1.0
TAG: Final = "bench"
RECEIVED_BYTES: Final = 4096
SLOW_BYTES: Final = 1024


# ---------------------------------------------------------------- servers, each in a process of its own


def serve_in_child(folder: str) -> dict[str, Any]:
    """Serve a journal until it is told to end; its address and token go into a file."""
    import strandline
    from strandline.server import app
    from strandline.server.listening import HttpServer
    from strandline.server.tokens import SCOPES, TokenFile

    many = {"token_requests_per_s": 1_000_000, "token_connections_max": 10_000, "connections_max": 10_000}
    with strandline.connect(f"sqlite:{folder}/journal") as s:
        tokens = TokenFile(Path(folder) / "tokens.json")
        token, _ = tokens.create("bench", SCOPES)
        server = HttpServer(app(s, tokens=tokens, limits={**many, "idle_timeout_s": 600}), port=0)
        thread = _until_told(server.stop)
        _say_where(folder, server.port, token)
        server.run()
        thread.join()
    return {}


def bare_in_child(folder: str) -> dict[str, Any]:
    """Serve with uvicorn alone: read the body, answer as many bytes as an append does."""
    import uvicorn

    body = b'{"key":"order|00","first":1,"last":1,"partition":0,"offset":12345,"timestamp":1795038729613307,"d":0}'
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]

    async def bare(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    opened = socket.socket()
    opened.bind(("127.0.0.1", 0))
    opened.listen(512)
    server = uvicorn.Server(uvicorn.Config(bare, http="h11", lifespan="off", log_config=None, access_log=False))

    def stop() -> None:
        server.should_exit = True

    thread = _until_told(stop)
    _say_where(folder, opened.getsockname()[1], "")
    server.run([opened])
    thread.join()
    return {}


def carry_in_child(folder: str) -> dict[str, Any]:
    """Carry what is recorded, again and again, until it is told to end."""
    import strandline
    from strandline.testing import carry

    over = Event()
    thread = _until_told(over.set)
    with strandline.connect(f"sqlite:{folder}/journal") as s:
        while not over.wait(0.2):
            carry(s)
    thread.join()
    return {}


def _until_told(stop: Callable[[], None]) -> Thread:
    def listen() -> None:
        sys.stdin.readline()
        stop()

    thread = Thread(target=listen, daemon=True)
    thread.start()
    return thread


def _say_where(folder: str, port: int, token: str) -> None:
    aside = Path(folder) / "where.new"
    aside.write_text(json.dumps({"port": port, "token": token}))
    aside.rename(Path(folder) / "where.json")


@contextmanager
def _serving(function: str, folder: Path) -> Iterator[tuple[Child, int, str]]:
    with Child(function, folder=str(folder)) as child:
        place = folder / "where.json"
        while not place.exists():
            if child.process.code is not None:
                raise child.failure()
            time.sleep(0.02)
        where = json.loads(place.read_bytes())
        place.unlink()
        yield child, where["port"], where["token"]


# ---------------------------------------------------------------- clients


class Client:
    """A keep-alive connection that sends the same kind of request again and again."""

    def __init__(self, port: int, request: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request = request
        self._got = bytearray()

    def send(self) -> None:
        self.socket.sendall(self.request)

    def answered(self) -> bool:
        """Return whether the answer has come as a whole."""
        part = self.socket.recv(65536)
        if not part:
            raise RuntimeError("the server closed the connection")
        self._got += part
        end = self._got.find(b"\r\n\r\n")
        if end < 0:
            return False
        if not self._got.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"the server answered {bytes(self._got[:400])!r}")
        at = self._got.index(b"content-length: ") + 16
        length = int(self._got[at : self._got.index(b"\r\n", at)])
        if len(self._got) < end + 4 + length:
            return False
        self._got.clear()
        return True


def requests(token: str, clients: int, *, tags: str = "") -> list[bytes]:
    """The request of each client: an append of one event to its own key."""
    made = []
    event = f'{{"type":"Placed","payload":"{"x" * PAYLOAD_BYTES}"{tags}}}'
    body = f'{{"events":[{event}]}}'.encode()
    for number in range(clients):
        head = (
            f"POST /journals/order%7C{number:02}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        made.append(head.encode() + body)
    return made


def answers_in(port: int, sent: list[bytes], warm_s: float, seconds: float) -> float:
    """Answers a second of clients that each send their next request when they have the answer to the last."""
    selector = selectors.DefaultSelector()
    clients = [Client(port, request) for request in sent]
    for client in clients:
        selector.register(client.socket, selectors.EVENT_READ, client)
        client.send()
    began = time.perf_counter()
    count, counted_from = 0, began + warm_s
    while (now := time.perf_counter()) < counted_from + seconds:
        for key, _ in selector.select(1.0):
            client = key.data
            if client.answered():
                count += now >= counted_from
                client.send()
    spent = time.perf_counter() - counted_from
    selector.close()
    for client in clients:
        client.socket.close()
    return count / spent


def _appends(function: str) -> Callable[[CaseSettings], RoundFigure]:
    def measure(plan: CaseSettings) -> RoundFigure:
        warm_s, seconds = (QUICK_WARM_S, QUICK_SECONDS) if plan.quick else (WARM_S, SECONDS)
        with _serving(f"server:{function}", plan.folder) as (child, port, token):
            rate = answers_in(port, requests(token, CLIENTS), warm_s, seconds)
            child.stop()
            told = child.answer()
        return RoundFigure(rate, {"peak_rss_mb": told["peak_rss_mb"]})

    return measure


# ---------------------------------------------------------------- streams


def streams(plan: CaseSettings) -> RoundFigure:
    """The peak of a server with so many readers that are slow or have stopped."""
    count, write_s = (QUICK_STREAMS, QUICK_WRITE_S) if plan.quick else (STREAMS, WRITE_S)
    with _serving("server:serve_in_child", plan.folder) as (child, port, token):
        readers = [_reader(port, token) for _ in range(count)]
        over, taken = Event(), [0]
        slow = Thread(target=_read_slowly, args=(readers[: count // 2], over, taken))
        slow.start()
        with Child("server:carry_in_child", folder=str(plan.folder)) as carrying:
            rate = answers_in(port, requests(token, WRITERS, tags=f',"tags":["{TAG}"]'), 0.0, write_s)
            patience = time.monotonic() + PATIENCE_S
            while not taken[0] and time.monotonic() < patience:  # what was written last is still on its way
                time.sleep(0.01)
            carrying.stop()
            carrying.answer()
        over.set()
        slow.join()
        for reader in readers:
            reader.close()
        child.stop()
        peak = child.answer()["peak_rss_mb"]
    if not taken[0]:
        raise RuntimeError("the slow readers got nothing")
    return RoundFigure(peak, {"streams": count, "appends_per_s": rate, "slow_readers_bytes": taken[0]})


def _reader(port: int, token: str) -> socket.socket:
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
    opened.connect(("127.0.0.1", port))
    head = f"GET /tags/{TAG}/live HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
    opened.sendall(head.encode())
    if not opened.recv(64).startswith(b"HTTP/1.1 200"):
        raise RuntimeError("the server opened no stream")
    return opened


def _read_slowly(readers: list[socket.socket], over: Event, taken: list[int]) -> None:
    """Take a little of each stream, once a second."""
    for reader in readers:
        reader.setblocking(False)
    while not over.wait(1.0):
        for reader in readers:
            try:
                taken[0] += len(reader.recv(SLOW_BYTES))
            except BlockingIOError:
                continue


# ---------------------------------------------------------------- the console


def fill(plan: CaseSettings) -> None:
    """Record one event for each of a million keys, and carry them."""
    keys = QUICK_KEYS if plan.quick else KEYS
    where = {"url": f"sqlite:{plan.shared}/journal"}
    with Child("fill:fill_in_child", where=where, keys=keys, appends=keys, events=1) as filling:
        filling.answer()
    with Child("server:carry_once_in_child", folder=str(plan.shared)) as carrying:
        carrying.answer()


def carry_once_in_child(folder: str) -> dict[str, Any]:
    """Carry all that is recorded."""
    import strandline
    from strandline.testing import carry

    with strandline.connect(f"sqlite:{folder}/journal") as s:
        return {"events": carry(s).events}


def first_page(plan: CaseSettings) -> RoundFigure:
    """The seconds until a browser has the first page, and what it names, of a server that has just started."""
    (plan.shared / "tokens.json").unlink(missing_ok=True)
    with _serving("server:serve_in_child", plan.shared) as (child, port, token):
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/console/login", f"token={token}", form)
        answer = connection.getresponse()
        answer.read()
        cookie = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
        began = time.perf_counter()
        page = _got(connection, "/console", cookie)
        files = set(re.findall(r'"([^"]*/static/[^"]*)"', page.decode()))
        sizes = [len(_got(connection, file, cookie)) for file in sorted(files)]
        took_s = time.perf_counter() - began
        again = time.perf_counter()
        _got(connection, "/console", cookie)
        again_s = time.perf_counter() - again
        connection.close()
        child.stop()
        told = child.answer()
    details = {"page_bytes": len(page), "files_bytes": sum(sizes), "again_s": again_s}
    return RoundFigure(took_s, {**details, "peak_rss_mb": told["peak_rss_mb"]})


def _got(connection: HTTPConnection, path: str, headers: dict[str, str]) -> bytes:
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {body[:200]!r}")
    return body


CASES = [
    Case(
        "server/append", "uvicorn", "appends/s", 0.4, _appends("serve_in_child"), _appends("bare_in_child"),
        settings={"clients": CLIENTS, "seconds": SECONDS},
    ),
    Case(
        "server/streams", "limit", "MB", 1.0, streams, STREAMS_LIMIT_MB, rate=False, rounds=1,
        settings={"streams": STREAMS, "writers": WRITERS, "seconds": WRITE_S},
    ),
    Case(
        "server/first-page", "limit", "s", 1.0, first_page, FIRST_PAGE_LIMIT_S, prepare=fill, rate=False,
        settings={"keys": KEYS},
    ),
]  # fmt: skip
