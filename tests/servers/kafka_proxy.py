"""A proxy before a Kafka broker that sees what producers send, and loses an answer when a test wants it."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Self

from strandline.servers.kafka import KafkaServer
from strandline.servers.server import HOST

_PRODUCE = b"\0\0"


class KafkaProxy:
    """Passes everything on. The broker's address becomes the proxy's in all that clients are told."""

    def __init__(self, server: KafkaServer) -> None:
        self.lose_answers = 0
        """So many Produce requests still to come reach the broker, and their answers are lost with the connection."""
        self.acks: list[int] = []
        """What each Produce request asked for."""
        host, _, port = server.bootstrap.rpartition(":")
        self._server = host, int(port)
        self._listener = socket.create_server((HOST, 0))
        self.bootstrap = f"{HOST}:{self._listener.getsockname()[1]}"
        self._address, self._told = (
            HOST.encode() + struct.pack(">i", port) for port in (self._server[1], self._listener.getsockname()[1])
        )

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        lost: set[bytes] = set()
        with contextlib.suppress(OSError), client, socket.create_connection(self._server) as server:
            threading.Thread(target=self._answer, args=(client, server, lost), daemon=True).start()
            while frame := _frame(client):
                if frame[4:6] == _PRODUCE:
                    self.acks.append(_acks(frame))
                    if self.lose_answers:
                        self.lose_answers -= 1
                        lost.add(frame[8:12])  # its number, which the answer begins with
                server.sendall(frame)

    def _answer(self, client: socket.socket, server: socket.socket, lost: set[bytes]) -> None:
        with contextlib.suppress(OSError):
            while frame := _frame(server):
                if frame[4:8] in lost:
                    break
                client.sendall(frame.replace(self._address, self._told))
            client.shutdown(socket.SHUT_RDWR)


def _frame(source: socket.socket) -> bytes:
    """A request or an answer, with its length before it; nothing at the end."""
    size = _exactly(source, 4)
    return size + _exactly(source, *struct.unpack(">i", size)) if size else b""


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = source.recv(count - len(data))
        if not more:
            return b""
        data += more
    return data


def _acks(frame: bytes) -> int:
    _, _, _, name = struct.unpack_from(">hhih", frame, 4)
    # Behind the client's name stand two bytes: a transaction's name that is null, or no tags and none, in compact form.
    return int(struct.unpack_from(">h", frame, 14 + max(name, 0) + 2)[0])
