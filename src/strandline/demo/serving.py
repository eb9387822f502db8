"""A console on what the demo plays: from its start, to watch it, and after its end until Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from strandline.demo.stage import Stage
from strandline.errors import Unavailable
from strandline.pipeline.target import JournalRef
from strandline.server import app
from strandline.server.application import ServerApp
from strandline.server.console.handlers import desk_of
from strandline.server.listening import PORT, HttpServer
from strandline.server.tokens import ADMIN_FILE_NAME, FILE_NAME


@contextmanager
def serving(target: JournalRef, work_file: Path, folder: Path, stage: Stage) -> Iterator[None]:
    """Serve the demo's journal while it is played; then until Ctrl-C, unless what is played fails."""
    work = {} if target.url is not None and target.url.startswith("sqlite:") else {"work": f"sqlite:{work_file}"}
    with target.connect(**work) as s:
        application = app(s, tokens=folder / FILE_NAME, show_payloads=True)
        server = _listening(application)
        thread = threading.Thread(target=server.run, name="demo-server")
        thread.start()
        try:
            desk_of(application)  # its history begins
            stage.plain(f"console   {server.url}/console   (its token is in {folder / ADMIN_FILE_NAME})")
            yield
            stage.plain(
                f"console   {server.url}/console   (its token is in {folder / ADMIN_FILE_NAME}; Ctrl-C ends it)"
            )
            with suppress(KeyboardInterrupt):
                wait()
        finally:
            server.stop()
            thread.join()


def wait() -> None:
    """Wait for Ctrl-C."""
    threading.Event().wait()


def _listening(application: ServerApp) -> HttpServer:
    """The usual port, or any that is free."""
    try:
        return HttpServer(application, port=PORT)
    except Unavailable:
        return HttpServer(application, port=0)
