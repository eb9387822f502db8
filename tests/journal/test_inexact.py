"""The Journal over a log that does not fold, as Kafka is one: verdicts, timestamps, marks, and the heads cache."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.connect import Strandline
from strandline.testing import carry
from tests.journal.test_lags import STORIES, Step, Story
from tests.journal.worlds import inexact


def check_at_every_lag(s: Strandline, steps: list[Step], carried: int) -> None:
    """As on exact logs; but a read leaves a Mark behind, so the end is that of before the first one."""
    story = Story(s)
    for step in steps[:carried]:
        step(story)
    carry(s)
    story.check()
    for step in steps[carried:]:
        step(story)
    end = s.log.newest()[0]
    story.check()
    while s.store.pointers()[0].offset < end:
        carry(s, limit=1)
        story.check()


CACHES = {
    "on": {},
    "off": {"heads_cache": False},
    "tight": {"heads_cache_keys_max": 1, "read_page": 1, "tail_buffer_bytes": 0},
}


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("settings", CACHES.values(), ids=CACHES)
def test_every_lag(name: str, settings: dict[str, Any]) -> None:
    for carried in range(len(STORIES[name]) + 1):
        with inexact(segment_size=3, **settings) as s:
            check_at_every_lag(s, STORIES[name], carried)
