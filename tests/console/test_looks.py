"""What the console makes of what it finds, without a server: troubles, texts, pictures."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markupsafe import Markup

from strandline import BySlices, ByTag
from strandline.errors import Unavailable
from strandline.journal.status import PartitionStatus, Status, StatusSection
from strandline.server.console.drawing import Bar, graph, line, timeline, took
from strandline.server.console.history import KEPT_S, Rate, StatusSample, rates, span_of
from strandline.server.console.projections import source_text
from strandline.server.console.texts import csv_cell, csv_text, cut, number, payload_text, seconds, visible, when
from strandline.server.console.troubles import Trouble, troubles

WELL = PartitionStatus(0, 9, 1, 9, 0, 0, 0.0)
FINE = Status((WELL,), 1, 0.1, "somebody", 1, 0, "full", ())
PROJECTION = {
    "name": "totals", "generation": 1, "state": "serving", "behind_store_s": 0.0, "ranges": 4, "failed": 0, "stale": 0,
    "parked": 0, "dead_letters": 0,
}  # fmt: skip
STREAM = {"stream": "default", "holder": "me", "queued": 0, "open": 0, "rollback_failed": 0, "away": ()}
WORK = {"journal": "mails", "due": 3, "running": 1, "unacknowledged": 0, "paused": None, "oldest_due_s": 1.0}


def of(name: str, row: dict[str, Any], **changes: Any) -> list[Trouble]:
    """The troubles of a journal that is fine but for one row."""
    return troubles(replace(FINE, sections=(StatusSection(name, "", ({**row, **changes},)),)))


def test_nothing_is_wrong_where_nothing_is() -> None:
    sections = (
        StatusSection("projections", "", (PROJECTION,)),
        StatusSection("streams", "", (STREAM,)),
        StatusSection("work", "", (WORK,)),
    )
    assert troubles(replace(FINE, sections=sections)) == []


@pytest.mark.parametrize(
    ("level", "text", "changes", "partition"),
    [
        ("bad", "No pipeline runs: 5 actions not carried", {"lease_holder": None}, {"lag_actions": 5, "lag_s": 61.0}),
        ("warn", "No pipeline runs: 1 action not carried", {"lease_holder": None}, {"lag_actions": 1, "lag_s": 1.0}),
        ("warn", "The pipeline is behind", {}, {"lag_actions": 5, "lag_s": 61.0}),
        ("bad", "Partition 0 fails", {}, {"last_error": "no space"}),
        ("bad", "forgot offsets 3 to 7", {}, {"lost": (3, 7)}),
        ("warn", "2 records in quarantine", {"quarantined": 2}, {}),
    ],
)
def test_troubles_of_the_pipeline(level: str, text: str, changes: Any, partition: Any) -> None:
    (found,) = troubles(replace(FINE, partitions=(replace(WELL, **partition),), **changes))
    assert (found.level, text in found.text) == (level, True), found


def test_troubles_of_parts() -> None:
    (failed,) = of("projections", PROJECTION, failed=1, behind_store_s=900.0)
    assert (failed.level, failed.text, failed.link) == ("bad", "totals: 1 range failed", "/projections/totals/1")
    assert [one.text for one in of("projections", PROJECTION, parked=2, dead_letters=5)] == [
        "totals: 2 parked keys", "totals: 3 dead letters",
    ]  # fmt: skip
    (stale,) = of("projections", PROJECTION, stale=3, state="serving, stale")
    assert (stale.level, stale.text) == ("warn", "totals is stale: 3 events put back behind it")
    assert of("projections", PROJECTION, behind_store_s=None)[0].text == "totals has not begun"
    assert of("projections", PROJECTION, behind_store_s=90.0)[0].text == "totals is 90 s behind"
    (waits,) = of("streams", STREAM, rollback_failed=1)
    assert (waits.level, waits.link) == ("bad", "/groups?stream=default&state=rollback_failed")
    assert "bank cannot be reached" in of("streams", STREAM, away=("bank",))[0].text
    assert "Nobody runs stream default" in of("streams", STREAM, holder=None, queued=1)[0].text
    assert of("work", WORK, unacknowledged=1)[0].link == "/work/mails?show=dead"
    assert [one.hint for one in of("work", WORK, paused="for lunch", oldest_due_s=99.0)] == ["for lunch"]
    assert "due for 99 s" in of("work", WORK, oldest_due_s=99.0)[0].text
    away = StatusSection("work", "", error=Unavailable("the database is away", code="away"))
    assert troubles(replace(FINE, sections=(away,)))[0].hint == "the database is away"


def test_the_worst_comes_first() -> None:
    several = replace(FINE, quarantined=1, partitions=(replace(WELL, last_error="x"),))
    assert [one.level for one in troubles(several)] == ["bad", "warn"]


# ---------------------------------------------------------------- texts


@pytest.mark.req("D3")
@given(st.text())
def test_a_csv_cell_is_no_formula_and_nothing_is_lost(text: str) -> None:
    told = csv_cell(text)
    assert told.removeprefix("'") == text or told == text
    assert not told.startswith(("=", "+", "-", "@", "\t", "\r"))


@pytest.mark.req("D3")
def test_csv_as_a_spreadsheet_reads_it() -> None:
    made = csv_text(["a", "b"], [["=1+1", 2], ["+x", -3], ["@y", 'say "no"'], ["-1\n2", None]])
    assert list(csv.reader(io.StringIO(made))) == [
        ["a", "b"], ["'=1+1", "2"], ["'+x", "-3"], ["'@y", 'say "no"'], ["'-1\n2", ""],
    ]  # fmt: skip


@pytest.mark.req("D3")
def test_a_payload_is_text_cut_at_10_kb() -> None:
    assert payload_text({"a": [1, None]}) == '{\n  "a": [\n    1,\n    null\n  ]\n}'
    assert payload_text(b"plain") == "plain"
    assert payload_text(b"\xff\x00\x01") == "ff 0001"
    assert cut("ä" * 5000) == "ä" * 5000
    assert cut("ä" * 5001) == "ä" * 5000 + "\n… cut: 2 more bytes"
    assert len(payload_text(bytes(range(256)) * 1000).encode()) < 10_100


TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u200b\ufeff\0\x1b"


@pytest.mark.req("D3")
@given(st.text())
@example(TURNING)
def test_what_turns_or_hides_is_shown_by_its_number(text: str) -> None:
    shown = visible(text)
    assert not set(shown) & set(TURNING)
    assert visible(shown) == shown


def test_what_is_no_text_of_a_user_is_left() -> None:
    assert [visible(value) for value in (1, 1.5, True, None, Markup("<b>"))] == [1, 1.5, True, None, Markup("<b>")]
    assert visible("a\u202eb\tc\nd") == "a⟨U+202E⟩b\tc\nd"


def test_a_source_as_a_person_reads_it() -> None:
    assert source_text(BySlices("order").text) == "slices of order"
    assert source_text(BySlices("order", filter={"types": ["B", "A"], "tags": ["x"]}).text) == (
        "slices of order, types A B, tags x"
    )
    assert source_text(ByTag("blue").text) == "tag blue"


def test_figures() -> None:
    assert [seconds(one) for one in (None, 0.0, 0.0405, 1.23, 42.0, 600.0, 9000.0, 200_000.0)] == [
        "from the start", "0 s", "40 ms", "1.2 s", "42 s", "10 min", "2.5 h", "2 days",
    ]  # fmt: skip
    assert [number(one) for one in (0.0, 3.14, 99, 12_345, 123_456, 12_345_678)] == [
        "0", "3.1", "99", "12,345", "123k", "12.3M",
    ]  # fmt: skip
    assert [took(one) for one in (0, 12, 1500, 20_000, 2_500_000, 180_000_000)] == [
        "0", "12 µs", "1.5 ms", "20 ms", "2.5 s", "3 min",
    ]  # fmt: skip
    assert ">2026-11-20 10:00:00<" in when(1_795_168_800_000_000)
    assert "never" in when(0)


# ---------------------------------------------------------------- history, pictures


def samples(*recorded: int, every_s: float = 5.0) -> list[StatusSample]:
    return [StatusSample(n * every_s, count, count, 0, 0.0, {}) for n, count in enumerate(recorded)]


def test_rates_between_samples() -> None:
    assert rates(samples(0, 50, 50, 75), "recorded") == [Rate(5.0, 10.0), Rate(10.0, 0.0), Rate(15.0, 5.0)]
    assert rates(samples(50, 10), "recorded") == [Rate(5.0, 0.0)], "a log that was made anew"
    assert rates([], "recorded") == []


def test_a_picture_goes_back_as_far_as_there_is_something() -> None:
    assert span_of([]) == span_of(samples(0, 1)) == (60.0, "last minute")
    assert span_of(samples(*range(61)))[1] == "last 5 min"
    assert span_of(samples(*range(720))) == (KEPT_S, "last hour")


def test_a_line_ends_at_its_newest_value() -> None:
    drawn = line([(0.0, 1.0), (30.0, 3.0), (60.0, 2.0)], 60.0, 'rate "<now>"')
    assert drawn.count("<polyline") == 1
    assert "300.0," in drawn
    assert "&lt;now&gt;" in drawn
    assert "<polyline" not in line([], 60.0, "none")


def test_a_graph_leaves_out_what_follows_from_others() -> None:
    states = {"a": ("succeeded", "1 ms"), "b": ("failed", ""), "<c>": ("waiting", "")}
    drawn = graph(states, {"b": ["a"], "<c>": ["a", "b", "gone"]}, "steps")
    assert drawn.count('class="edge"') == 2
    assert "&lt;c&gt;" in drawn
    assert graph({"a": ("x", ""), "b": ("x", "")}, {"a": ["b"], "b": ["a"]}, "a circle").count("<rect") == 2


def test_a_timeline_has_a_bar_for_each() -> None:
    drawn = timeline([Bar("a", 0, 1000, "succeeded"), Bar("undo a", 2000, 2500, "undone", undo=True)], "g")
    assert drawn.count("<rect") == 2
    assert 'class="bar state-undone undo"' in drawn
    assert timeline([Bar("a", 5, 5, "failed")], "one moment").count("<rect") == 1
