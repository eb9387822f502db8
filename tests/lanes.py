"""Lanes: `make test` runs the tests in three processes, each with servers and a Spark session of its own.

A test waits for a fifth of its time: for a lease, for a process, for an answer. Three lanes keep two cores busy.

Kafka, Cassandra and a Spark cluster take long to start and much memory, so all tests that use one of them go together
into one lane. What takes longest goes first, and what takes no time goes last, so that the lanes end together.

pytest-xdist deals out the tests. Its own groups are part of a test's name, which pytest 9.2 does not let it change, and
which nobody wants to read; so the lanes write down the groups, and the process that deals reads them.
"""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

SERVERS = "servers"
"""The group of all tests that use Kafka or Cassandra. Many use both, and many use Spark, too."""
BROWSER = "browser"
"""The group of all tests of the console: they share a browser, a server and what it shows."""
GROUPS = {
    "kafka": SERVERS, "cassandra": SERVERS, "spare_kafka": SERVERS, "spare_cassandra": SERVERS,
    "spark_cluster": "cluster", "spark": "spark",
}  # fmt: skip
"""Group by fixture; of those that a test has, the first one counts."""
ORDER = [SERVERS, "spark", "cluster", BROWSER]
PLACE = pytest.StashKey[Path]()
of_the_console = pytest.mark.lane(BROWSER)
needs_servers = pytest.mark.lane(SERVERS)
"""For a test that asks for its servers when it runs."""


class Dealer(LoadScopeScheduling):
    """Gives a lane all tests of a group, or one that has none, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # those with the most tests would come first
        self._place = place_of(config)

    @cached_property
    def _groups(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._place.read_text())
        return found

    def _split_scope(self, nodeid: str) -> str:
        return self._groups.get(nodeid, nodeid)


def place_of(config: pytest.Config) -> Path:
    """The file where the lanes write down the groups."""
    if PLACE not in config.stash:
        config.stash[PLACE] = Path(tempfile.mkdtemp(prefix="strandline-lanes-")) / "groups.json"
    return config.stash[PLACE]


def forget(config: pytest.Config) -> None:
    """Remove that file."""
    if PLACE in config.stash:
        shutil.rmtree(config.stash[PLACE].parent)


def keep_trace(place: Path) -> None:
    """If this process crashes, write there what its threads were doing: a lane's own output may be lost."""
    trace = place.with_name(f"crash-{os.getpid()}.txt")
    faulthandler.enable(os.open(trace, os.O_CREAT | os.O_WRONLY | os.O_APPEND))


def traces(config: pytest.Config) -> list[str]:
    """The traces of lanes that crashed, and of their forked children."""
    found = sorted(place_of(config).parent.glob("crash-*.txt")) if PLACE in config.stash else []
    return [text for one in found if (text := one.read_text())]


def deal(items: list[pytest.Item], place: Path) -> None:
    """Put the groups that take longest first, and write down which test is in which."""
    items.sort(key=_turn)
    aside = place.with_name(f"{os.getpid()}.json")  # the lanes write the same
    aside.write_text(json.dumps({item.nodeid: group for item in items if (group := group_of(item))}))
    aside.rename(place)


def group_of(item: pytest.Item) -> str | None:
    """The group of a test, if it uses anything that is to be started once."""
    said = item.get_closest_marker("lane")
    if said is not None:
        return str(said.args[0])
    names: Sequence[str] = getattr(item, "fixturenames", ())
    return next((group for name, group in GROUPS.items() if name in names), None)


def _turn(item: pytest.Item) -> int:
    group = group_of(item)
    if group is not None:
        return ORDER.index(group)
    takes_long = item.get_closest_marker("spark") or item.get_closest_marker("timeout")
    return len(ORDER) if takes_long else len(ORDER) + 1
