"""Tag views on a real Spark: once, live beside the pipeline, and after it was told to let actions gather."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.test_replicate import pipeline, until

import strandline
from strandline import Event
from strandline.pipeline.replicate import run

KEYS = [f"order|{number}" for number in range(40)]  # over all 8 partitions


@pytest.mark.req("T21", "T22", "T26", "T46", "T52")
def test_tags_are_carried_and_shown_live(tmp_path: Path, spark: Any) -> None:
    """After `--once` every event acknowledged before it is shown; a live query follows a pipeline that runs.

    An idle pipeline starts at once by default; with `tag_flush_interval_s` actions gather for so long.
    """
    url = f"sqlite:{tmp_path}/shop"
    with strandline.connect(url) as s:
        for at, key in enumerate(KEYS):
            last = s.journal.append(key, [Event("Placed", at, tags=["blue", f"t{at % 3}"])])
        run(url, once=True, spark=spark)
        assert s.strandline() >= last.timestamp  # type: ignore[operator]
        assert [str(event.key) for event in s.by_tag("blue")] == KEYS
        assert [event.payload for event in s.by_tag("t1")] == list(range(1, 40, 3))

        got: list[Any] = []
        events = s.by_tag("blue", live=True, refresh_interval_s=0.02)
        reader = threading.Thread(target=got.extend, args=(events,))
        reader.start()
        with pipeline(url, spark, mark_idle_s=0.2, tag_flush_interval_s=0.5):
            for at, key in enumerate(KEYS):
                s.journal.append(key, [Event("Paid", at, tags=["blue"])])
            until(lambda: len(got) == 80)
            time.sleep(0.6)
            from_s = time.monotonic()
            s.journal.append(KEYS[0], [Event("Sent", 0, tags=["blue"])])
            until(lambda: len(got) == 81)
            assert time.monotonic() - from_s < 30
        events.close()
        reader.join()
        assert [(event.type, event.tag_seq_nr) for event in got if str(event.key) == KEYS[0]] == [
            ("Placed", 1), ("Paid", 2), ("Sent", 3)
        ]  # fmt: skip
        places = [event.offset for event in got]
        assert places == sorted(set(places))
