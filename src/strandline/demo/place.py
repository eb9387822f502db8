"""Where the demo plays: on a folder of SQLite files, or on servers of its own, which end with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from strandline.demo.stage import Stage
from strandline.pipeline.target import JournalRef
from strandline.servers.all import running

FILES = "sqlite"
SERVERS = {FILES: (), "postgres": ("postgres",), "kafka": ("kafka", "cassandra")}
"""What a demo can play on, and the servers that it needs for that."""
LEASE_S = 5
"""So long the pipeline that comes back waits for the one that was killed: nobody can tell it from a slow one. (A file's
lock is free at once.) The default would be most of the demo."""


def on_files(folder: Path) -> JournalRef:
    """A journal in files of the demo's folder."""
    return JournalRef(url=f"sqlite:{folder / 'shop'}")


def words_of(target: JournalRef) -> list[str]:
    """A target as the command line takes it."""
    places = {"--url": target.url, "--log": target.log, "--store": target.store}
    words = [word for option, place in places.items() if place is not None for word in (option, place)]
    return words + [word for name, value in target.settings.items() for word in ("--set", f"{name}={value}")]


@contextmanager
def play_on(on: str, folder: Path, stage: Stage) -> Iterator[JournalRef]:
    """A new journal; its servers, if it needs any, run until the end of the context."""
    if SERVERS[on]:
        stage.plain(f"starting {' and '.join(SERVERS[on])} on this machine (fetched if it is the first time)")
    with running(SERVERS[on], lambda server, took_s: None) as servers:
        urls = {server.name: server.url for server in servers}
        if on == FILES:
            yield on_files(folder)
        elif on == "postgres":
            yield JournalRef(url=urls["postgres"], settings={"lease_s": LEASE_S})
        else:
            # One broker and one node is all there is here: what they acknowledged is on one disk.
            log, store = f"{urls['kafka']}/shop", f"{urls['cassandra']}/shop?replication=1"
            yield JournalRef(log=log, store=store, settings={"lease_s": LEASE_S, "accept_power_loss": True})
