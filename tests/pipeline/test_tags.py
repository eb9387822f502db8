"""Tag views on a real Spark: once, live beside the pipeline, and after it was told to let actions gather."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.cli_call import call
from tests.pipeline.test_replicate import pipeline, until
from tests.store.stores import change

import strandline
from strandline import Event
from strandline.carry.tag_findings import TagRebuildCounts
from strandline.errors import InvalidInput, LeaseHeld, MissingEvent, Unavailable
from strandline.pipeline.replicate import run
from strandline.pipeline.tag_rebuild import rebuild_tag
from strandline.store.scans import put_back

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
            of_first = s.journal.append(KEYS[0], [Event("Sent", 0, tags=["blue"])]).partition
            until(lambda: len(got) == 81)
            before, from_s = s.store.pointers()[of_first].revision, time.monotonic()
            for _ in range(25):
                s.journal.append(KEYS[0], [Event("Sent", 0, tags=["blue"])])
                time.sleep(0.1)
            until(lambda: len(got) == 106)
            writes = s.store.pointers()[of_first].revision - before
            assert 1 <= writes <= (time.monotonic() - from_s) / 0.5 + 2, "what comes within half a second goes together"
        events.close()
        reader.join()
        assert [(event.type, event.tag_seq_nr) for event in got if str(event.key) == KEYS[0]] == [
            ("Placed", 1), ("Paid", 2), *[("Sent", number) for number in range(3, 29)]
        ]  # fmt: skip
        places = [event.offset for event in got]
        assert places == sorted(set(places))


@pytest.mark.req("T81", "T84", "RR8")
def test_rebuild(tmp_path: Path, spark: Any) -> None:
    """A view with rows lost and damaged is mended while appends and a live query go on; a pipeline is refused."""
    url = f"sqlite:{tmp_path}/shop"
    with strandline.connect(url) as s:
        for at, key in enumerate(KEYS):
            s.journal.append(key, [Event("Placed", at, tags=["blue"]), Event("Paid", at, tags=["blue", "red"])])
        run(url, once=True, spark=spark)
        whole = [(str(event.key), event.tag_seq_nr, event.payload) for event in s.by_tag("blue")]
        change(
            tmp_path / "shop" / "store.db", "DELETE FROM tag_view WHERE tag = 'blue' AND seq_nr = 1 AND key < 'order|2'"
        )
        change(
            tmp_path / "shop" / "store.db",
            "UPDATE tag_view SET tag_seq_nr = tag_seq_nr + 9 WHERE tag = 'blue' AND key = 'order|9'",
        )
        change(
            tmp_path / "shop" / "store.db", "UPDATE tag_progress SET digest = 1 WHERE tag = 'red' AND key = 'order|8'"
        )
        with pytest.raises(MissingEvent):
            list(s.by_tag("blue", gap_timeout_s=0))
        holder = s.store.lease().take("a pipeline")
        with pytest.raises(LeaseHeld):
            rebuild_tag(url, "blue", spark=spark)
        holder.release()
        writing = threading.Event()
        writer = threading.Thread(target=_append_until, args=(s, writing))
        writer.start()
        done = rebuild_tag(url, "blue", spark=spark)
        red = rebuild_tag(url, "red", spark=spark)
        writing.set()
        writer.join()
        assert (done.keys, done.rows, done.missing, done.wrong, done.extra) == (40, 80, 12, 2, 0)
        assert (red.missing, red.progress) == (0, 1)
        assert [(str(event.key), event.tag_seq_nr, event.payload) for event in s.by_tag("blue")] == whole
        listed = [row for partition in range(8) for row in put_back(s.store, partition)]
        assert sorted(row.key for row in listed) == sorted(key for key in KEYS if key < "order|2")
        assert {(row.seq_nr, row.tag, row.tag_seq_nr) for row in listed} == {(1, "blue", 1)}
        told = call("pipeline", "rebuild", "--tag", "blue", "--url", url, "--json")
        assert (told.code, told.lines) == (0, [{"tag": "blue", **asdict(TagRebuildCounts(keys=40, rows=80))}])
        assert rebuild_tag(url, "nobody's", spark=spark) == TagRebuildCounts(keys=40)
        said = call("pipeline", "rebuild", "--tag", "nobody's", "--url", url).out
        assert said == "no event has the tag nobody's, and nothing is in its view: 0 rows of 40 keys\n"
        stopped = threading.Event()
        stopped.set()
        with pytest.raises(Unavailable):
            rebuild_tag(url, "blue", spark=spark, stop=stopped)
        assert s.store.lease().holder() is None
        shop = tmp_path / "shop" / "store.db"
        change(shop, "DELETE FROM journal WHERE key IN ('order|7', 'order|8') AND seq_nr = 1")
        change(shop, "DELETE FROM tag_view WHERE tag = 'blue' AND key = 'order|7' AND seq_nr = 1")
        told = call("pipeline", "rebuild", "--tag", "blue", "--url", url)
        assert (told.code, told.out) == (5, "79 rows of 40 keys: nothing can be mended\n")
        assert "1 row cannot be put back" in told.err
        assert "1 row left alone: the journal does not prove" in told.err
        assert call("pipeline", "rebuild", "--tag", "blue", "--url", url, "--json").code == 5
        run(url, once=True, spark=spark)
        assert len(list(s.by_tag("blue", seen={"order|7": (1, 1)}))) > 80, (
            "what was appended meanwhile is carried later"
        )
    with pytest.raises(InvalidInput):
        rebuild_tag(url, " blue", spark=spark)


def _append_until(s: strandline.Strandline, done: threading.Event) -> None:
    while not done.wait(0.05):
        s.journal.append(KEYS[3], [Event("Sent", 0, tags=["blue"])])
