"""Whoever waits for what nobody carries is told so, once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from strandline import Event, Key
from strandline.connect import Strandline
from strandline.projection.definition import Projection
from strandline.query import pointer_watch
from tests.journal.worlds import world
from tests.projection.worlds import ORDERS, QUICK, running, until
from tests.query.filling import carry_all, put

SAID = "nothing has been carried"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pointer_watch, "STILL_S", 0.2)


@pytest.fixture(params=["sqlite", "postgresql"])
def s(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    with world(request.param, tmp_path, partitions=2) as opened:
        yield opened


@contextmanager
def projected(s: Strandline) -> Iterator[None]:
    projections = [Projection(name, ORDERS, lambda tx, event: None, **QUICK) for name in ("one", "two")]
    with running(s, *projections):
        yield


@contextmanager
def followed(events: Any) -> Iterator[None]:
    """A live query in a thread."""
    thread = threading.Thread(target=lambda: list(events))
    thread.start()
    try:
        yield
    finally:
        events.close()
        thread.join(20)


WAYS: dict[str, Callable[[Strandline], Any]] = {
    "by_slices": lambda s: followed(s.by_slices("order", 0, 1023, live=True, refresh_interval_s=0.01)),
    "by_tag": lambda s: followed(s.by_tag("blue", live=True, refresh_interval_s=0.01)),
    "project": projected,
}


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if SAID in record.getMessage()]


def looked(s: Strandline, times: int) -> None:
    """Wait until whoever waits has looked so often again."""
    before = s.pointer_watch.looks
    until(lambda: s.pointer_watch.looks >= before + times)


@pytest.mark.req("P92", "P8")
@pytest.mark.parametrize("way", list(WAYS))
def test_who_waits_is_told_once(s: Strandline, caplog: pytest.LogCaptureFixture, way: str) -> None:
    with WAYS[way](s):
        until(lambda: said(caplog))
        looked(s, 40)
        assert said(caplog) == [f"{SAID} yet: is a pipeline running? (strandline pipeline run)"]
        s.journal.append(Key("order", "1"), [Event("Placed", tags=["blue"])])
        carry_all(s)  # it moved, and stands still again
        until(lambda: len(said(caplog)) == 2)
        assert said(caplog)[1].startswith(f"{SAID} since 20")


@pytest.mark.req("P92")
def test_nobody_is_told_while_a_pipeline_runs_or_a_feed_brings_events(
    s: Strandline, caplog: pytest.LogCaptureFixture
) -> None:
    put(s, Key("order", "1"))
    lease = s.store.lease().take("somebody")
    try:
        with WAYS["by_slices"](s):
            looked(s, 60)
    finally:
        lease.release()
    seen: list[str] = []
    fed = Projection("totals", ORDERS, lambda tx, event: seen.append(event.type), feed=True, **QUICK)
    with running(s, fed):
        until(lambda: seen)
        looked(s, 60)
    assert said(caplog) == []
