"""Reconcile on a real Spark, through the API and the command line, with its page."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.acceptance.cli_call import call
from tests.journal.worlds import last_write_wins
from tests.reconcile.planting import KEYS, TAG, Hand, all_of, history, names, plants_of
from tests.reconcile.test_planted import drop_views, of_whole

import strandline
from strandline import Event
from strandline.errors import InvalidInput, LeaseHeld, Unavailable
from strandline.pipeline.reconciling import TALLY_DDL, TaskTallies, _few, _kept_days, differing_rows, reconcile
from strandline.reconcile.findings import FrozenEnds
from strandline.reconcile.rounds import read_side
from strandline.reconcile.sides import parts_of_round
from strandline.reconcile.tallies import Tally, TallyCell, differing, signed
from strandline.store.raw_rows import tags_in_view
from strandline.store.tables import JOURNAL
from strandline.testing import FakeClock, carry


@pytest.mark.req("J116", "J118", "T83", "RR9")
def test_each_difference_is_found_once_and_mended(tmp_path: Path, spark: Any) -> None:
    url = f"sqlite:{tmp_path}/shop"
    with strandline.connect(url) as s:
        history(s)
        clean = all_of(s)
        hand = Hand(s)
        planted = sorted((kind, key, plant(hand, key)) for kind, key, plant in plants_of(s).values())
        page = tmp_path / "page.html"
        told = call("pipeline", "reconcile", "--url", url, "--json", "--html", str(page))
        assert told.code == 5
        (answer,) = told.lines
        assert sorted((f["kind"], f["key"], tuple(f["seq_nrs"])) for f in answer["findings"]) == planted
        check_page(page.read_text(encoding="utf-8"), [kind for kind, _, _ in planted])
        holder = s.store.lease().take("a pipeline")
        with pytest.raises(LeaseHeld):
            reconcile(url, repair=True, spark=spark)
        holder.release()
        report = reconcile(url, repair=True, spark=spark)
        assert (names(report.findings), report.unrepaired) == (planted, [])
        assert s.store.lease().holder() is None
        assert all_of(s) == clean
        again = call("pipeline", "reconcile", "--url", url)
        assert again.code == 0
        assert re.search(r"^\d+ events of 23 keys, .*: no difference$", again.out, re.MULTILINE)


def check_page(text: str, kinds: list[str]) -> None:
    """It is one page that loads nothing, with a picture that has a field for each place of a difference."""
    assert not re.search(r"(src|href)=", text)
    assert "no difference" not in text
    for kind in kinds:
        assert f"<code>{kind}</code>" in text
    svg = re.search(r"<svg.*</svg>", text, re.DOTALL)
    assert svg is not None
    fields = [node for node in ElementTree.fromstring(svg[0]).iter("rect") if node.get("fill-opacity")]
    assert len(fields) >= 10


@pytest.mark.req("J116")
def test_spark_finds_the_cells_that_the_plain_comparison_finds(tmp_path: Path, spark: Any) -> None:
    with strandline.connect(f"sqlite:{tmp_path}/shop") as s:
        history(s)
        hand = Hand(s)
        for kind, key, plant in plants_of(s).values():
            assert kind
            plant(hand, key)
        frozen = FrozenEnds(s.store.pointers(), s.log.oldest())
        tallies: list[Tally] = []
        for part in parts_of_round(s.store, tags_in_view(s.store)):
            tallies += read_side(s.log, s.store, s.settings, frozen, part).tallies
        rows = [(*cell, expected, found, digest, None) for cell, expected, found, digest in tallies]
        found = [
            Tally(TallyCell(row[0], row[1], row[2], row[3]), row[4], row[5], signed(int(row[6])))
            for row in differing_rows(spark.createDataFrame(rows, TALLY_DDL)).collect()
        ]
        assert sorted(found) == differing(tallies) != []


@pytest.mark.req("J116", "RR9")
def test_without_tags_nothing_is_shuffled(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs comes to the driver, and of very many cells one of each slice."""
    url = f"sqlite:{tmp_path}/shop"
    with strandline.connect(url) as s:
        s.journal.append_many([(key, [Event("Placed", 1), Event("Paid", 2), Event("Sent", 3)]) for key in KEYS])
        carry(s)
        with monkeypatch.context() as patched:
            patched.delattr("strandline.pipeline.reconciling.differing_rows")
            report = reconcile(url, spark=spark)
        assert (report.findings, report.events, report.log_events) == ([], 3 * len(KEYS), 3 * len(KEYS))
        hand = Hand(s)
        hand.remove(JOURNAL, hand.event(KEYS[5], 2))
        hand.remove(JOURNAL, hand.event(KEYS[6], 3))
        found = [("event_missing", KEYS[5], (2,)), ("event_missing", KEYS[6], (3,))]
        assert names(reconcile(url, spark=spark).findings) == found
    some = [Tally(TallyCell("log", slice_, day), 1, 0, 7) for slice_ in (3, 4) for day in (1, 2)]
    monkeypatch.setattr("strandline.pipeline.reconciling.CELLS_MAX", 3)
    assert [tally.cell.slice for tally in _few(TaskTallies(some, [])).tallies] == [3, 4]


@pytest.mark.req("J116", "J118", "RR8", "RR9")
def test_views_are_made_again_while_queries_and_appends_go_on(tmp_path: Path, spark: Any) -> None:
    url = f"sqlite:{tmp_path}/shop"
    with strandline.connect(url) as s:
        history(s)
        clean = all_of(s)
        drop_views(Hand(s), clean)
        over = threading.Event()
        failed: list[BaseException] = []

        def use() -> None:
            try:
                while not over.wait(0.02):
                    s.journal.append("later|1", [Event("Placed", 1, tags=[TAG])])
                    assert [event.seq_nr for event in s.journal.read(KEYS[5])] == [1, 2, 3, 4]
                    list(s.by_slices("order", 0, 1023))
            except BaseException as error:
                failed.append(error)

        user = threading.Thread(target=use)
        user.start()
        try:
            report = reconcile(url, repair=True, spark=spark)
        finally:
            over.set()
            user.join()
        assert failed == []
        assert {finding.kind for finding in report.findings} >= {"tag_missing", "tag_progress"}
        made = all_of(s)
        for name in made:
            wanted = [row for row in of_whole(made[name]) if "later|1" not in map(str, row)] if name == "events" else (
                of_whole(made[name])
            )  # fmt: skip
            assert wanted == of_whole(clean[name]), name
        carry(s)
        later = [event for event in s.by_tag(TAG) if str(event.key) == "later|1"]
        assert [event.tag_seq_nr for event in later] == list(range(1, len(later) + 1))


@pytest.mark.req("J116")
def test_finished_days_are_kept_for_the_next_run(tmp_path: Path, spark: Any) -> None:
    url, kept, clock = f"sqlite:{tmp_path}/shop", str(tmp_path / "kept.json"), FakeClock()
    with strandline.connect(url, clock=clock) as s:
        for _ in range(4):
            s.journal.append_many([(key, [Event("Placed", 1, tags=[TAG])]) for key in KEYS])
            clock.advance(86_400)
            s.journal.append("morning|1", [Event("Morning", 1)])
            carry(s)
        assert reconcile(url, keep=kept, spark=spark).events == 4 * (len(KEYS) + 1)
        told = call("pipeline", "reconcile", "--url", url, "--keep", kept, "--json")
        assert (told.code, told.lines[0]["days_passed_over"], told.lines[0]["slices_reread"]) == (0, 3, 0)
        assert told.lines[0]["events"] == len(KEYS) + 1
        s.journal.purge(KEYS[3])
        carry(s)
        told = call("pipeline", "reconcile", "--url", url, "--keep", kept, "--reread", "50%")
        assert told.code == 0
        assert re.search(r"2 finished days passed over; 1 slice read wholly", told.out + told.err)
        report = reconcile(url, keep=kept, spark=spark)
        assert (report.findings, report.days_passed_over, report.slices_reread) == ([], 3, 0)
        holder = Hand(s)
        holder.remove(JOURNAL, holder.event(KEYS[5], 1))
        report = reconcile(url, keep=kept, reread=1, spark=spark)
        assert names(report.findings) == [("event_missing", KEYS[5], (1,))]


@pytest.mark.req("J116")
def test_what_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    url, kept = f"sqlite:{tmp_path}/shop", str(tmp_path / "kept.json")
    with strandline.connect(url) as s:
        history(s)
    for given in ({"keep": kept, "sample": 0.5}, {"reread": 0.5}, {"keep": kept, "reread": 0}, {"keep": str(tmp_path)}):
        with pytest.raises(InvalidInput):
            reconcile(url, **given)
    assert call("pipeline", "reconcile", "--url", url, "--keep", kept, "--reread", "0%").code == 2
    with last_write_wins(partitions=4, segment_size=3) as s, pytest.raises(InvalidInput, match="no day can be passed"):
        _kept_days(s, kept, None)
    assert not Path(kept).exists()


@pytest.mark.req("J116")
def test_a_sample_and_what_is_refused(tmp_path: Path, spark: Any) -> None:
    url = f"sqlite:{tmp_path}/shop"
    with strandline.connect(url) as s:
        history(s)
    report = reconcile(url, sample=0.25, spark=spark)
    assert (report.findings, report.slices) == ([], 256)
    assert 0 < report.events < 85
    told = call("pipeline", "reconcile", "--url", url, "--sample", "50%", "--json")
    assert (told.code, told.lines[0]["slices"]) == (0, 512)
    for share in (0, 1.5, -1):
        with pytest.raises(InvalidInput):
            reconcile(url, sample=share)
    for text in ("0%", "half", "101%", "1%%"):
        assert call("pipeline", "reconcile", "--url", url, "--sample", text).code == 2
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(Unavailable):
        reconcile(url, spark=spark, stop=stopped)
