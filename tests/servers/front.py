"""TLS before a PostgreSQL that speaks none, as poolers and load balancers put it there."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from pathlib import Path
from typing import Self

_ASKS_FOR_TLS = bytes.fromhex("00000008 04d2162f")


class Front:
    """Takes clients at a port of loopback, by TLS alone, and hands on what they say to a server's Unix socket."""

    def __init__(self, server: Path, tls: ssl.SSLContext) -> None:
        self._server, self._tls = server, tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

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

    def _serve(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError), plain, socket.socket(socket.AF_UNIX) as server:
            if plain.recv(len(_ASKS_FOR_TLS)) != _ASKS_FOR_TLS:
                return
            plain.sendall(b"S")
            with self._tls.wrap_socket(plain, server_side=True) as client:
                server.connect(str(self._server))
                while True:
                    ready = [client] if client.pending() else select.select([client, server], [], [])[0]
                    for source in ready:
                        data = source.recv(65536)
                        if not data:
                            return
                        (server if source is client else client).sendall(data)
