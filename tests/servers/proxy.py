"""A proxy before a server's Unix socket that loses answers, or keeps them back, when a test wants it."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

Mischief = Literal["none", "lose answer", "lose request", "keep back"]
_SOCKET = ".s.PGSQL.5432"
_SESSION = re.compile(rb"K\0\0\0\x0c.{4}", re.DOTALL)  # what the server says of it when it is opened
_SESSION_OF_OURS = b"K\0\0\0\x0c\0\0\x30\x39"


class Proxy:
    """Passes everything on, until a client sends `trigger` while `mischief` is set; that works once.

    lose answer     the server gets it and acts, the client's connection breaks without an answer
    lose request    the connection breaks before the server gets it
    keep back       the server gets it, its answer never comes

    With `renumbers` it gives sessions numbers of its own, as poolers do.
    """

    def __init__(self, server: Path, folder: Path, trigger: bytes = b"COMMIT\0", *, renumbers: bool = False) -> None:
        self.folder = folder
        self._renumbers = renumbers
        self.mischief: Mischief = "none"
        self.done = threading.Event()
        self._server = server / _SOCKET
        self.trigger = trigger
        self._listener = socket.socket(socket.AF_UNIX)
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        self._listener.bind(str(self.folder / _SOCKET))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for opened in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            self._open += [client, server]
            server.connect(str(self._server))
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), client, server:  # closed under us when the test ends
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    if source is server:
                        client.sendall(_SESSION.sub(_SESSION_OF_OURS, data) if self._renumbers else data)
                    elif self.mischief != "none" and self.trigger in data:
                        mischief, self.mischief = self.mischief, "none"
                        self._misbehave(mischief, server, data)
                        if mischief != "keep back":
                            return
                    else:
                        server.sendall(data)

    def _misbehave(self, mischief: Mischief, server: socket.socket, data: bytes) -> None:
        if mischief != "lose request":
            server.sendall(data)
            answer = b""
            while not answer.endswith(b"Z\x00\x00\x00\x05I"):  # ready, and in no transaction
                answer += server.recv(65536)
        self.done.set()
