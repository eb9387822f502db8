"""A host of its own with little memory for keys, until it is killed.

python -m tests.projection.killed_host URL TABLE DIALECT SOURCE GROUP_SIZE
"""

from __future__ import annotations

import sys
from typing import Any

import strandline
from strandline import ByTag
from strandline.projection import host
from strandline.projection.definition import BySlices, Projection
from strandline.projection.host import Host
from tests.projection.handlers import Writes

SOURCES: dict[str, BySlices | ByTag] = {"slices": BySlices("order"), "tag": ByTag("blue")}
SETTINGS: dict[str, Any] = {
    "keys_in_memory_max": 1000, "page_size": 1000, "refresh_interval_s": 0.02, "lease_s": 2,
    "on_failure": "park", "retries": 0, "retry_delay_s": 0.001,
}  # fmt: skip
SICK = "order|600 1"
"""The event at which the handler fails."""


def remembering(table: str, dialect: str, source: str, group_size: int) -> Projection:
    """Writes each event down, and parks a key."""
    lists: dict[str, Any] = {"group_size": group_size} if group_size else {}
    return Projection("totals", SOURCES[source], Writes(table, dialect, fails=SICK), **SETTINGS, **lists)


def main(url: str, table: str, dialect: str, source: str, group_size: str) -> None:
    host.LOOK_S = 0.1  # type: ignore[misc]
    with strandline.connect(url) as s:
        Host(s, [remembering(table, dialect, source, int(group_size))]).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
