"""The server as a process of its own: sockets, TLS, and an end in order.

By default it listens on loopback; on any other address it needs TLS. Requests need a token in both cases.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Final

import uvicorn

from strandline.errors import Unavailable, Unsupported, invalid, unusable, unusable_files
from strandline.server.application import LOOPBACK_HOSTS, ServerApp
from strandline.server.connections import connections_of
from strandline.server.tokens import check_mode
from strandline.urls import is_loopback

PORT: Final = 8765
SEND_BUFFER_BYTES: Final = 64 * 1024
"""How much of an answer the kernel buffers; by default it would buffer megabytes for each slow reader."""
LOOPBACK: Final = ("127.0.0.1", "::1")


class HttpServer:
    """A server that listens. `run` returns after `stop`."""

    def __init__(
        self,
        app: ServerApp,
        *,
        host: str | None = None,
        port: int = PORT,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
    ) -> None:
        """Open the sockets. `host` None is 127.0.0.1, and ::1 if the machine has it; `port` 0 is any free one."""
        tls = check_tls(host, certificate, key)
        self.app = app
        self.sockets = _sockets(LOOPBACK if host is None else (host,), port)
        self.port: int = self.sockets[0].getsockname()[1]
        shown = host or LOOPBACK[0]
        name = f"[{shown}]" if ":" in shown else shown
        self.url = f"{'https' if tls else 'http'}://{name}:{self.port}"
        limits = app.limits
        config = uvicorn.Config(
            app,
            http=connections_of(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # bytes that are not HTTP are answered, not logged
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=max(1, round(limits.header_timeout_s)),
            timeout_graceful_shutdown=max(1, round(app.s.settings.shutdown_grace_s)),
            h11_max_incomplete_event_size=limits.header_bytes_max,
            ssl_certfile=None if certificate is None else str(certificate),
            ssl_keyfile=None if key is None else str(key),
        )
        self._server = _UvicornServer(config, app)

    def run(self) -> None:
        """Serve until `stop`; then take no new request, and let those under way end, or cut them off after the grace.

        The event loop has a thread of its own: in the main thread it would take the caller's signals.
        """
        failed: list[BaseException] = []

        def serve() -> None:
            try:
                self._server.run(self.sockets)
            except BaseException as error:  # noqa: BLE001 (it is raised below)
                failed.append(error)

        thread = Thread(target=serve, name="strandline-server")
        thread.start()
        try:
            thread.join()
        finally:
            self.stop()
            thread.join()
            self.app.close()
        if failed:
            raise failed[0]

    @property
    def started(self) -> bool:
        """Whether it takes requests."""
        return self._server.started

    def stop(self) -> None:
        """Let `run` end; any thread may call this."""
        self._server.should_exit = True


class _UvicornServer(uvicorn.Server):
    """uvicorn's server, which leaves signals to its caller and stops the application when it ends."""

    def __init__(self, config: uvicorn.Config, app: ServerApp) -> None:
        super().__init__(config)
        self._app = app

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.stop()
        await super().shutdown(sockets)


def check_tls(host: str | None, certificate: str | Path | None, key: str | Path | None) -> bool:
    """Whether the server speaks TLS; `Unsupported` for an open server and for a key that others can read."""
    if (certificate is None) != (key is None):
        raise invalid("option", "--certificate, --key", "one without the other", allowed="both, or none", got="one")
    if certificate is None or key is None:
        if host is not None and not is_loopback(host):
            raise Unsupported(
                f"--host {host}: every machine of that network could read what is sent; there is no TLS",
                code="open_server",
                hint="give --certificate FILE and --key FILE, or stay on 127.0.0.1 behind a proxy that speaks TLS",
                host=host,
            )
        return False
    try:
        check_mode(Path(key), Path(key).stat().st_mode)
    except OSError as error:
        raise unusable_files({"certificate": str(certificate), "key": str(key)}, str(error)) from None
    return True


def hosts_of(host: str | None, more: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names by which clients may call a server that listens there."""
    own = [] if host is None or host in ("0.0.0.0", "::") else [f"[{host}]" if ":" in host else host]  # noqa: S104
    return (*LOOPBACK_HOSTS, *own, *more)


def _sockets(hosts: Sequence[str], port: int) -> list[socket.socket]:
    opened: list[socket.socket] = []
    try:
        for host in hosts:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            try:
                opened.append(_listening(family, host, opened[0].getsockname()[1] if opened else port))
            except OSError as error:
                if opened and not isinstance(error, socket.gaierror):
                    continue  # a machine without IPv6 has the first one
                raise
    except socket.gaierror as error:
        raise invalid("option", "--host", f"no address: {error.strerror}", allowed="an address", got=hosts[0]) from None
    except PermissionError as error:
        raise unusable(f"{hosts[0]} port {port}", error.strerror) from None
    except OverflowError:
        raise invalid("url_port", "--port", "out of range", allowed="0..65535", got=port) from None
    except OSError as error:
        hint = "stop what uses it, or choose another one with --port"
        where = f"{hosts[0]} port {port}"
        raise Unavailable(f"{where} cannot be used: {error.strerror}", code="away", hint=hint) from None
    return opened


def _listening(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((host, port))
        made.listen(512)
    except BaseException:
        made.close()
        raise
    return made
