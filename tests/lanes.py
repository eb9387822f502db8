"""Two lanes: `make test` runs the tests in two processes, each with servers and a Spark session of its own.

Kafka, Cassandra and a Spark cluster take long to start and much memory, so all tests that use one of them go together
into one lane. What takes longest goes first, and what takes no time goes last, so that the lanes end together.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

SERVERS = "servers"
"""The group of all tests that use Kafka or Cassandra. Many use both, and many use Spark, too."""
LANES = {
    "kafka": SERVERS, "cassandra": SERVERS, "spare_kafka": SERVERS, "spare_cassandra": SERVERS,
    "spark_cluster": "cluster", "spark": "spark",
}  # fmt: skip
"""Group by fixture; of those that a test has, the first one counts."""
ORDER = [SERVERS, "spark", "cluster"]
needs_servers = pytest.mark.xdist_group(SERVERS)
"""For a test that asks for its servers when it runs."""


def deal(items: list[pytest.Item]) -> None:
    """Give each test its group, and put the groups that take longest first."""
    for item in items:
        if group := _group(item):
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_turn)


def _group(item: pytest.Item) -> str | None:
    if item.get_closest_marker("xdist_group"):
        return None
    names: Sequence[str] = getattr(item, "fixturenames", ())
    return next((group for name, group in LANES.items() if name in names), None)


def _turn(item: pytest.Item) -> int:
    group = item.get_closest_marker("xdist_group")
    if group is not None:
        return ORDER.index(group.args[0])
    takes_long = item.get_closest_marker("spark") or item.get_closest_marker("timeout")
    return len(ORDER) if takes_long else len(ORDER) + 1
