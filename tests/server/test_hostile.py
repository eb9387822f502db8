"""Connections that mean no good: the server stays small, and a normal client does not notice them."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest

from tests.acceptance.cli_call import COMMAND, process_env

MEMORY_MAX = 200_000_000
BODY_BYTES = 64 * 2**20


@contextlib.contextmanager
def process(folder: Path, *more: str) -> Iterator[tuple[subprocess.Popen[bytes], str, str]]:
    """`strandline serve` as a process: itself, its address, and a token with all scopes."""
    argv = [*COMMAND, "serve", "--url", f"sqlite:{folder}/shop", "--port", "0", "--json", *more]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=process_env()) as running:
        assert running.stdout is not None
        try:
            told = json.loads(running.stdout.readline())
            yield running, told["url"], Path(told["admin_token"]).read_text().strip()
        finally:
            running.kill()


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) * 1024


class Attack:
    """What hostile clients do, until it is over."""

    def __init__(self, port: int, token: str, body_bytes: int) -> None:
        self.port, self.token, self.body_bytes = port, token, body_bytes
        self.over = Event()
        self.rounds = {"body": 0, "brackets": 0, "values": 0, "gzip": 0}
        self.idle = [self.connected() for _ in range(500)]
        self.slow = [self.connected() for _ in range(50)]
        self.threads = [
            Thread(target=work) for work in (self.trickle, self.pour, self.brackets, self.bombs, *[self.values] * 4)
        ]
        for thread in self.threads:
            thread.start()

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=5)

    def head(self, more: str) -> bytes:
        return (
            f"POST /journals/order%7Cbad/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: application/json\r\n{more}\r\n\r\n"
        ).encode()

    def trickle(self) -> None:
        """One byte a second: half of them in the headers, half in the body."""
        for one in self.slow[::2]:
            one.sendall(self.head("Content-Length: 1000000"))
        while not self.over.wait(1.0):
            for one in self.slow:
                with contextlib.suppress(OSError):
                    one.sendall(b"x")

    def pour(self) -> None:
        """A chunked body without end."""
        part = b"10000\r\n" + b"[" * 0x10000 + b"\r\n"
        while not self.over.is_set():
            with contextlib.suppress(OSError), self.connected() as one:
                one.sendall(self.head("Transfer-Encoding: chunked"))
                for _ in range(self.body_bytes // 0x10000):
                    one.sendall(part)
            self.rounds["body"] += 1

    def brackets(self) -> None:
        body = b'{"events":' + b"[" * 1_000_000
        while not self.over.is_set():
            with contextlib.suppress(OSError), self.connected() as one:
                one.sendall(self.head(f"Content-Length: {len(body)}") + body)
                self.rounds["brackets"] += one.recv(100).startswith(b"HTTP/1.1 413 ")

    def values(self) -> None:
        """As many small values as fit into a body: they take a hundred times as much when they are parsed."""
        body = b'{"events":[' + b"[]," * 4_000_000 + b"1]}"
        while not self.over.is_set():
            with contextlib.suppress(OSError), self.connected() as one:
                one.settimeout(60)
                one.sendall(self.head(f"Content-Length: {len(body)}") + body)
                self.rounds["values"] += one.recv(100).startswith(b"HTTP/1.1 413 ")

    def bombs(self) -> None:
        body = gzip.compress(b"[" * 50_000_000)
        while not self.over.is_set():
            with contextlib.suppress(OSError), self.connected() as one:
                one.sendall(self.head(f"Content-Encoding: gzip\r\nContent-Length: {len(body)}") + body)
                self.rounds["gzip"] += one.recv(100).startswith(b"HTTP/1.1 415 ")

    def end(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        for one in (*self.idle, *self.slow):
            one.close()


def under_attack(folder: Path, seconds: float, body_bytes: int) -> tuple[list[float], dict[str, int], int]:
    """How long a normal client's appends took, what the others did meanwhile, and the server's peak of memory."""
    with process(folder) as (running, url, token):
        attack = Attack(int(url.rpartition(":")[2]), token, body_bytes)
        other = subprocess.run(
            [*COMMAND, "token", "create", "--name", "me", "--scope", "append", "--url", f"sqlite:{folder}/shop"],
            capture_output=True, check=True, text=True, env=process_env(),
        ).stdout.strip()  # fmt: skip
        try:
            times: list[float] = []
            headers = {"Authorization": f"Bearer {other}"}
            with httpx.Client(base_url=url, headers=headers, timeout=30) as client:
                until = time.monotonic() + seconds
                while time.monotonic() < until or len(times) < 10 or not all(attack.rounds.values()):
                    began = time.monotonic()
                    answer = client.post("/journals/order%7Ca/events", json={"events": [{"type": "Placed"}]})
                    times.append(time.monotonic() - began)
                    assert answer.status_code == 200, answer.text
                    time.sleep(0.05)
        finally:
            attack.end()
        return times, attack.rounds, peak_bytes(running.pid)


@pytest.mark.req("RS3")
def test_hostile_connections_are_not_noticed(tmp_path: Path) -> None:
    times, rounds, peak = under_attack(tmp_path, 3.0, BODY_BYTES)
    assert all(rounds.values())
    assert peak < MEMORY_MAX
    assert sorted(times)[len(times) * 9 // 10 - 1] < 1.0, sorted(times)  # the machine may be busy with other things


@pytest.mark.soak
@pytest.mark.req("RS3")
def test_hostile_connections_for_long(tmp_path: Path) -> None:
    times, rounds, peak = under_attack(tmp_path, 90.0, 2 * 2**30)
    assert all(rounds.values())
    assert peak < MEMORY_MAX
    assert max(times) < 1.0


def raw(url: str, sent: bytes, *, wait_s: float = 10.0) -> bytes:
    """What a server says to these bytes, until it closes the connection."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=wait_s) as opened:
        opened.sendall(sent)
        said = b""
        with contextlib.suppress(ConnectionResetError):
            while part := opened.recv(65536):
                said += part
        return said


def test_what_is_no_http_or_comes_too_slowly_is_refused_and_closed(tmp_path: Path) -> None:
    limits = ("--limit", "header_timeout_s=0.3", "--limit", "body_timeout_s=0.3")
    with process(tmp_path, *limits) as (_, url, token):
        head = f"POST /journals/a%7Cb/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n".encode()
        said: dict[str, Any] = {
            "no HTTP": raw(url, b"hello\r\n\r\n"),
            "slow headers": raw(url, head),
            "slow body": raw(url, head + b"Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{"),
            "too large": raw(url, head + b"Content-Type: application/json\r\nContent-Length: 13000000\r\n\r\n"),
            "two lengths": raw(url, head + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            "endless headers": raw(url, head + b"X: " + b"y" * 100_000),
            "nothing": raw(url, b""),
        }
        found = {name: answer.partition(b"\r\n")[0][:12].decode() for name, answer in said.items()}
        assert found == {
            "no HTTP": "HTTP/1.1 400",
            "slow headers": "HTTP/1.1 408",
            "slow body": "HTTP/1.1 408",
            "too large": "HTTP/1.1 413",  # before any of it came
            "two lengths": "HTTP/1.1 400",
            "endless headers": "HTTP/1.1 431",
            "nothing": "",
        }
        for name, answer in said.items():
            if answer:
                assert json.loads(answer.partition(b"\r\n\r\n")[2])["title"] == "Refused", name


def test_a_reader_that_takes_nothing_is_cut_off(tmp_path: Path) -> None:
    with process(tmp_path, "--limit", "idle_timeout_s=0.5") as (_, url, token), httpx.Client(base_url=url) as client:
        headers = {"Authorization": f"Bearer {token}"}
        events = [{"type": "Placed", "payload": "x" * 100_000}] * 50
        assert client.post("/journals/big%7C1/events", json={"events": events}, headers=headers).status_code == 200
        port = int(url.rpartition(":")[2])
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.settimeout(10)
            reader.connect(("127.0.0.1", port))
            ask = f"GET /journals/big%7C1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
            reader.sendall(ask.encode())
            time.sleep(1.5)  # longer than a reader may take nothing
            took = 0
            with contextlib.suppress(ConnectionResetError):
                while part := reader.recv(65536):
                    took += len(part)
            assert 0 < took < 2_000_000  # what was on its way, and no more


@pytest.mark.req("RS2")
def test_sigterm_ends_the_server_with_what_is_under_way(tmp_path: Path) -> None:
    with process(tmp_path) as (running, url, token):
        headers = {"Authorization": f"Bearer {token}"}
        answers: list[int] = []
        stopped = Event()

        def append() -> None:
            with httpx.Client(base_url=url, headers=headers) as client:
                number = 0
                while not stopped.is_set():
                    number += 1
                    try:
                        body = {"events": [{"type": "Placed", "payload": number}]}
                        answers.append(client.post("/journals/order%7C1/events", json=body).json()["last"])
                    except httpx.TransportError:
                        return

        writer = Thread(target=append)
        writer.start()
        with httpx.stream("GET", f"{url}/tags/none/live", headers=headers, timeout=30) as live:
            assert live.status_code == 200
            while len(answers) < 5:
                time.sleep(0.01)
            os.kill(running.pid, signal.SIGTERM)
            live.read()  # it comes to its end, and is not cut off
        assert running.wait(15) == 0
        stopped.set()
        writer.join()
    import strandline

    with strandline.connect(f"sqlite:{tmp_path}/shop") as s:
        recorded = [event.payload for event in s.journal.read("order|1")]
    assert answers == list(range(1, len(answers) + 1))
    assert len(recorded) - len(answers) in (0, 1)  # one may have been recorded whose answer was cut off
