"""The demo: its checker finds what is planted, its processes die with it, and a short run proves what it says."""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import apsw
import httpx
import pytest
from rich.console import Console

import strandline
from strandline import Event
from strandline.demo import tour
from strandline.demo.drawing import png, terminal
from strandline.demo.place import on_files
from strandline.demo.proof import LedgerCounts, Proof
from strandline.demo.sampling import DemoSample, Sampler, StoryMark
from strandline.demo.stage import Stage
from strandline.demo.story import TourSettings
from strandline.errors import InvalidInput, Unsupported
from strandline.extras import install
from strandline.testing.shop.checker import Finding, Report, ShownEvent, check, check_key
from strandline.testing.shop.ledger import Entry, LedgerWriter, by_key, load, path_of
from strandline.testing.shop.orders import APPEND, DELETE, PURGE, STALE, Call, day
from strandline.testing.shop.shelf import stored_events
from strandline.testing.shop.writer import Gate, Writer

SEED, ORDERS = 3, 120
Shown = dict[str, list[ShownEvent]]


class Shop:
    """A day of a single writer, done on a journal in memory."""

    def __init__(self, folder: Path) -> None:
        self.path = path_of(folder, 1)
        self.calls = day(SEED, 1, ORDERS)
        self.s = strandline.connect("memory:")

    def work(self, share: float = 1.0) -> None:
        ledger = LedgerWriter(self.path)
        gate = Gate(len(self.calls))
        gate.allow(str(share))
        done = self.calls[: round(share * len(self.calls))]
        Writer(self.s.journal, ledger, done).work(gate, 1e9)
        ledger.close()

    def entries(self) -> dict[str, list[Entry]]:
        return by_key([load(self.path, 1)])

    def shown(self) -> Shown:
        return {
            key: [ShownEvent(e.seq_nr, e.type, e.payload, e.life) for e in self.s.journal.read(key)]
            for key in self.entries()
        }


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    shop = Shop(tmp_path_factory.mktemp("shop"))
    shop.work()
    yield shop
    shop.s.close()


def findings(entries: dict[str, list[Entry]], shown: Shown) -> list[Finding]:
    return check(entries, lambda key: shown[key]).findings


# ------------------------------------------------------------ the day


def test_a_day_is_decided_by_its_seed_and_has_everything_in_it() -> None:
    calls = day(7, 1, 1000)
    assert calls == day(7, 1, 1000)
    assert calls != day(8, 1, 1000)
    types = {type_ for call in calls for type_, _ in call.events}
    assert types == {"Placed", "ItemAdded", "Paid", "Packed", "Shipped", "Cancelled", "Reserved"}
    assert {call.do for call in calls} == {APPEND, DELETE, PURGE}
    assert any(call.twice for call in calls)
    assert any(call.expected == STALE for call in calls)
    stamps = [payload["stamp"] for call in calls for _, payload in call.events]
    assert len(stamps) == len(set(stamps))


def test_a_writer_goes_on_where_its_ledger_ends(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    for share in (0.3, 0.3, 0.61, 1.0):
        shop.work(share)
    assert [entry.task for entry in load(shop.path, 1) if not entry.duplicate] == sorted(
        entry.task for entry in load(shop.path, 1) if not entry.duplicate
    )
    assert findings(shop.entries(), shop.shown()) == []
    shop.s.close()


@pytest.mark.parametrize("kind", ["plain", "with an id", DELETE, PURGE])
@pytest.mark.parametrize("recorded", [False, True])
def test_a_writer_settles_the_call_that_a_kill_cut_off(tmp_path: Path, kind: str, recorded: bool) -> None:
    shop = Shop(tmp_path)
    calls = enumerate(shop.calls)
    wanted: Callable[[Call], bool] = {
        "plain": lambda call: call.do == APPEND and call.append_id is None and call.expected is None,
        "with an id": lambda call: call.append_id is not None and not call.twice,
    }.get(kind, lambda call: call.do == kind)
    task, call = next((task, call) for task, call in calls if wanted(call))
    shop.work(task / len(shop.calls))
    cut_off = LedgerWriter(shop.path)
    cut_off.mean(task, call.do, call.key, events=call.events, id=call.append_id, to=call.to)
    cut_off.close()
    if recorded and call.do == APPEND:
        made = [
            strandline.Event(type_, payload, tags=[payload["region"]] if "region" in payload else [])
            for type_, payload in call.events
        ]
        shop.s.journal.append(call.key, made, append_id=None if call.append_id is None else uuid.UUID(call.append_id))
    elif recorded:
        shop.s.journal.delete(call.key, to=call.to) if call.do == DELETE else shop.s.journal.purge(call.key)
    shop.work()
    assert findings(shop.entries(), shop.shown()) == []
    again = [entry for entry in load(shop.path, 1) if entry.task == task]
    if kind == "plain":
        assert [entry.unknown for entry in again] == [True]
    else:
        assert [entry.unknown for entry in again] == [True, False]
        assert kind != "with an id" or again[-1].duplicate == recorded
    shop.s.close()


def test_a_line_that_a_kill_cut_off_says_nothing(tmp_path: Path) -> None:
    path = path_of(tmp_path, 1)
    ledger = LedgerWriter(path)
    number = ledger.mean(0, PURGE, "order|1")
    ledger.told(number, purged=True)
    ledger.close()
    with path.open("ab") as file:
        file.write(b'{"n":1,"at":12')
    ledger = LedgerWriter(path)
    ledger.mean(1, PURGE, "order|2")
    ledger.close()
    assert [(entry.number, entry.key, entry.unknown) for entry in load(path, 1)] == [
        (0, "order|1", False),
        (1, "order|2", True),
    ]


# ------------------------------------------------------------ the checker


def test_nothing_is_found_in_an_honest_journal(shop: Shop) -> None:
    shown = shop.shown()
    report = check(shop.entries(), lambda key: shown[key])
    assert report.findings == []
    assert report.keys == len(shop.entries()) > ORDERS
    assert report.empty_keys > 0
    assert report.events > 3 * ORDERS


def _key(shop: Shop, wanted: Callable[[Sequence[Entry], list[ShownEvent]], bool]) -> str:
    shown = shop.shown()
    return next(key for key, entries in shop.entries().items() if wanted(entries, shown[key]))


def _has(do: str) -> Callable[[Sequence[Entry], list[ShownEvent]], bool]:
    return lambda entries, seen: any(entry.do == do for entry in entries)


def _lost_first(seen: list[ShownEvent]) -> list[ShownEvent]:
    return seen[1:]


def _lost_last(seen: list[ShownEvent]) -> list[ShownEvent]:
    return seen[:-1]


def _all_lost(_: list[ShownEvent]) -> list[ShownEvent]:
    return []


def _shown_twice(seen: list[ShownEvent]) -> list[ShownEvent]:
    return [seen[0], *seen]


def _stored_twice(seen: list[ShownEvent]) -> list[ShownEvent]:
    return [*seen, seen[0]._replace(seq_nr=seen[-1].seq_nr + 1)]


def _swapped(seen: list[ShownEvent]) -> list[ShownEvent]:
    one, two, *rest = seen
    return [one._replace(type=two.type, payload=two.payload), two._replace(type=one.type, payload=one.payload), *rest]


def _out_of_order(seen: list[ShownEvent]) -> list[ShownEvent]:
    return [seen[1], seen[0], *seen[2:]]


def _changed(seen: list[ShownEvent]) -> list[ShownEvent]:
    return [seen[0]._replace(payload={**seen[0].payload, "total": -1}), *seen[1:]]


def _renamed(seen: list[ShownEvent]) -> list[ShownEvent]:
    return [seen[0]._replace(type="Paid"), *seen[1:]]


def _invented(seen: list[ShownEvent]) -> list[ShownEvent]:
    return [*seen, ShownEvent(seen[-1].seq_nr + 1, "Paid", {"stamp": "x"})]


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (_lost_first, "lost"),
        (_lost_last, "lost"),
        (_all_lost, "lost"),
        (_shown_twice, "doubled"),
        (_stored_twice, "doubled"),
        (_swapped, "reordered"),
        (_out_of_order, "reordered"),
        (_changed, "changed"),
        (_renamed, "changed"),
        (_invented, "ghost"),
    ],
)
def test_what_is_planted_is_found(shop: Shop, plant: Callable[[list[ShownEvent]], list[ShownEvent]], kind: str) -> None:
    key = _key(shop, lambda entries, seen: len(seen) > 3 and all(entry.do == APPEND for entry in entries))
    shown = shop.shown()
    shown[key] = plant(shown[key])
    found = findings(shop.entries(), shown)
    assert kind in {finding.kind for finding in found}
    assert {finding.key for finding in found} == {key}


def _recorded(entries: Sequence[Entry]) -> list[ShownEvent]:
    """Every event that was ever acknowledged, as if nothing had been removed."""
    return [
        ShownEvent(number, type_, payload)
        for entry in entries
        if entry.accepted and entry.answer and not entry.duplicate
        for number, (type_, payload) in enumerate(entry.events, entry.answer["first"])
    ]


def test_a_purged_key_that_shows_is_found(shop: Shop) -> None:
    key = _key(shop, lambda entries, seen: _has(PURGE)(entries, seen) and not seen)
    shown = shop.shown() | {key: _recorded(shop.entries()[key])}
    assert {finding.kind for finding in findings(shop.entries(), shown)} == {"ghost"}


def test_an_event_of_a_purged_life_beside_a_new_one_is_found(shop: Shop) -> None:
    key = _key(shop, lambda entries, seen: _has(PURGE)(entries, seen) and bool(seen))
    shown = shop.shown()
    old = _recorded(shop.entries()[key])[1]._replace(life=1)
    shown[key] = [*shown[key], old]
    found = findings(shop.entries(), shown)
    assert {"ghost"} == {finding.kind for finding in found}
    assert any("purged" in finding.what for finding in found)


def test_a_deleted_event_that_shows_is_found(shop: Shop) -> None:
    key = _key(shop, lambda entries, seen: _has(DELETE)(entries, seen) and bool(seen))
    shown = shop.shown() | {key: _recorded(shop.entries()[key])}
    found = findings(shop.entries(), shown)
    assert {finding.kind for finding in found} == {"ghost"}
    assert all("deleted" in finding.what for finding in found)


def test_an_event_of_a_refused_append_that_shows_is_found(shop: Shop) -> None:
    key = _key(shop, lambda entries, seen: any(entry.refused for entry in entries) and bool(seen))
    refused = next(entry for entry in shop.entries()[key] if entry.refused)
    shown = shop.shown()
    type_, payload = refused.events[0]
    shown[key] = [*shown[key], ShownEvent(shown[key][-1].seq_nr + 1, type_, payload)]
    assert {finding.kind for finding in findings(shop.entries(), shown)} == {"ghost"}


def _appended(number: int, first: int, started: int, **more: object) -> Entry:
    made = ("Placed", {"stamp": f"s{number}"})
    answer = {"first": first, "last": first, "duplicate": False}
    entry = Entry(1, number, number, APPEND, "order|1", started, (made,), ended=started + 5, answer=answer)
    return replace(entry, **more)  # type: ignore[arg-type]


def _seen(*entries: Entry) -> list[ShownEvent]:
    return [ShownEvent(n, *entry.events[0]) for n, entry in enumerate(entries, 1)]


def test_answers_that_contradict_each_other_are_found() -> None:
    one, two = _appended(0, 1, 10), _appended(1, 1, 20)
    assert "numbers" in {finding.kind for finding in check_key("order|1", [one, two], _seen(one))}
    hole = _appended(1, 3, 20)
    seen = [*_seen(one), ShownEvent(3, *hole.events[0])]
    assert {finding.kind for finding in check_key("order|1", [one, hole], seen)} == {"numbers"}
    late = _appended(1, 2, 20, expected=0)
    assert {finding.kind for finding in check_key("order|1", [one, late], _seen(one, late))} == {"numbers"}


def test_a_number_that_an_earlier_call_should_have_is_found() -> None:
    one, two = _appended(0, 2, 10), _appended(1, 1, 20)
    assert {finding.kind for finding in check_key("order|1", [one, two], _seen(two, one))} == {"reordered"}
    beside = _appended(0, 2, 10, ended=25)
    assert check_key("order|1", [beside, two], _seen(two, beside)) == []


def test_an_append_made_again_has_the_place_of_the_first_try() -> None:
    killed = _appended(0, 1, 10, append_id="a", ended=None, answer=None)
    beside = _appended(1, 2, 20)
    again = _appended(0, 1, 40, append_id="a", answer={"first": 1, "last": 1, "duplicate": True})
    assert check_key("order|1", [killed, beside, again], _seen(again, beside)) == []
    anew = replace(again, answer={"first": 1, "last": 1, "duplicate": False})
    assert {finding.kind for finding in check_key("order|1", [killed, beside, anew], _seen(anew, beside))} == {
        "reordered"
    }


def test_an_append_without_an_answer_is_there_whole_or_not_at_all() -> None:
    one = _appended(0, 1, 10)
    made = (("Paid", {"stamp": "a"}), ("Paid", {"stamp": "b"}))
    cut_off = Entry(1, 1, 1, APPEND, "order|1", 20, made)
    whole = [*_seen(one), ShownEvent(2, *made[0]), ShownEvent(3, *made[1])]
    assert check_key("order|1", [one, cut_off], whole) == []
    assert check_key("order|1", [one, cut_off], _seen(one)) == []
    assert {finding.kind for finding in check_key("order|1", [one, cut_off], whole[:2])} == {"ghost"}
    last = _appended(2, 4, 40)
    assert check_key("order|1", [one, cut_off, last], [*whole, ShownEvent(4, *last.events[0])]) == []


# ------------------------------------------------------------ the pictures


SAMPLES = [
    DemoSample(n / 4, n * 100, 400.0 if 20 < n < 60 else 100.0, n / 80, n * 7, n / 40, n > 30) for n in range(81)
]
EVENTS = [
    StoryMark(5.0, "writer 2 killed", True),
    StoryMark(5.1, "writer 2 back", False),
    StoryMark(19.9, "shop closed", False),
]


@pytest.mark.parametrize("unicode", [True, False])
def test_charts_for_a_terminal_fit_into_it(unicode: bool) -> None:
    lines = terminal(SAMPLES, EVENTS, 80, unicode=unicode)
    text = [line.plain for line in lines]
    assert all(len(line) <= 80 for line in text)
    assert unicode or all(line.isascii() for line in text)
    assert any("400" in line for line in text)
    assert all(any(event.what in line for line in text) for event in EVENTS)


def test_the_live_line_fits_into_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    line = Stage(console).live_line(DemoSample(99.0, 123_456, 12_345.0, 1.0, 123_456, 123.4))
    assert len(line.wrap(console, 80)) == 1
    assert line.cell_len <= 80


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    png(tmp_path / "demo.png", SAMPLES, EVENTS, "title")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


# ------------------------------------------------------------ what is refused, and how it ends


def test_missing_packages_are_told_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tour, "NEEDED", ("rich", "no_such_package"))
    with pytest.raises(Unsupported) as caught:
        tour.run(folder=tmp_path / "out")
    assert "no_such_package" in str(caught.value)
    assert (caught.value.name, caught.value.hint) == ("Unsupported.not_installed", install("dev"))
    assert caught.value.exit_code == 7
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(InvalidInput, match="other things"):
        tour.run(folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_proof_that_fails_ends_with_5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Proof(
        LedgerCounts.of([], 0), Report(findings=[Finding("lost", "order|1", "is gone")]), Report(), Report(), ()
    )

    def perform(plan: TourSettings, stage: Stage) -> tuple[Proof, Sampler]:
        with plan.target.connect() as s:
            sampler = Sampler(s, [], 1, stage.show)
            sampler.take()
        return failed, sampler

    monkeypatch.setattr(tour, "perform", perform)
    said = io.StringIO()
    assert tour.run(folder=tmp_path / "out", stage=Stage(Console(file=said))) == 5
    assert "THE PROOF FAILS" in said.getvalue()
    assert "order|1" in said.getvalue()


def test_a_console_shows_it_while_it_is_played_and_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, seen = io.StringIO(), []
    whole = Proof(LedgerCounts.of([], 0), Report(), Report(), Report(), ())

    def look() -> str:
        url = re.findall(r"console +(\S+)", said.getvalue())[-1]
        token = (tmp_path / "out" / "admin-token").read_text().strip()
        with httpx.Client(base_url=url, follow_redirects=True) as client:
            client.post(f"{url}/login", data={"token": token})
            return client.get(url).text

    def perform(plan: TourSettings, stage: Stage) -> tuple[Proof, Sampler]:
        with plan.target.connect() as s:
            s.journal.append("order|1", [Event("Placed")])
            seen.append(look())
            sampler = Sampler(s, [], 1, stage.show)
            sampler.take()
        return whole, sampler

    def interrupted() -> None:
        seen.append(look())
        raise KeyboardInterrupt

    monkeypatch.setattr(tour, "perform", perform)
    monkeypatch.setattr("strandline.demo.serving.wait", interrupted)
    monkeypatch.setattr("strandline.server.console.history.FRESH_S", 0.0)
    stage = Stage(Console(file=said, width=300))
    assert tour.run(folder=tmp_path / "out", serve=True, stage=stage) == 0
    assert len(seen) == 2
    assert all("1 action not carried" in page for page in seen)
    assert "Ctrl-C ends it" in said.getvalue().splitlines()[-1]
    assert not [thread for thread in threading.enumerate() if thread.name == "demo-server"]


def test_a_demo_may_be_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[Path] = []

    def perform(plan: TourSettings, stage: Stage) -> tuple[Proof, Sampler]:
        places.append(plan.folder)
        assert [path.name for path in plan.folder.iterdir()] == [tour.MARKER]
        (plan.folder / "shop").mkdir()
        raise InterruptedError

    monkeypatch.setattr(tour, "perform", perform)
    for keep in (False, False, True, True):
        with pytest.raises(InterruptedError):
            tour.run(folder=tmp_path / "out", keep=keep, stage=Stage(Console(file=io.StringIO())))
    assert [place.name for place in places] == ["out", "out", "out-2", "out-3"]


def _marked(mark: str) -> list[int]:
    """Processes that were started, by whatever way, with this in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes() and b"State:\tZ" not in (path.parent / "status").read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def _wait(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("how", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.soak)],
)
def test_no_process_outlives_the_demo(tmp_path: Path, how: signal.Signals, code: int) -> None:
    mark = f"STRANDLINE_DEMO_TEST={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    demo = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from strandline.cli import main; sys.exit(main())",
            "demo",
            "--folder",
            tmp_path / "out",
        ],
        env={**os.environ, name: value},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        # Four writers and a pipeline, each with its keeper, and Java, beside the demo itself.
        _wait(lambda: len(_marked(mark)) >= 12 and path_of(tmp_path / "out", 1).exists())
        demo.send_signal(how)
        assert demo.wait(30) == code
        _wait(lambda: not _marked(mark), 30)
    finally:
        demo.kill()
        demo.wait()
        for pid in _marked(mark):
            os.kill(pid, signal.SIGKILL)


# ------------------------------------------------------------ a short run


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_short_run_proves_what_it_says(tmp_path: Path) -> None:
    said = io.StringIO()
    stage = Stage(Console(file=said, width=300, highlight=False))
    folder = tmp_path / "out"
    assert tour.run(folder=folder, orders=90, writers=3, seconds=6.0, down_s=0.3, stage=stage) == 0, said.getvalue()
    text = said.getvalue()
    assert "nothing lost, nothing repeated, nothing reordered" in text
    assert "100% of them from the log's tail" in text
    assert text.count("kill -9") == 4
    assert "parcels have left, one for each order that was shipped" in text
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    _try_next(text)
    _check_the_check(folder)


def _try_next(text: str) -> None:
    commands = [shlex.split(line) for line in text.partition("try next")[2].splitlines() if "--url" in line]
    assert len(commands) >= 3
    for command in commands:
        if command[1] == "serve":
            _serve_until_stopped([*command, "--port", "0"])
        else:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            assert done.returncode == 0, done.stderr
            assert done.stdout


def _serve_until_stopped(command: list[str]) -> None:
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        assert server.stderr.readline().startswith("serving http://127.0.0.1:")
        server.terminate()
        assert server.wait(timeout=60) == 0, server.stderr.read()


def _check_the_check(folder: Path) -> None:
    """An event taken out of the store's file is missed."""
    plan = TourSettings(folder, 90, 3, 1.0, 1.0, tour.SEED, on_files(folder))
    entries = by_key([load(path_of(folder, writer), writer) for writer in (1, 2, 3)])
    rows = stored_events(plan.target)
    assert check(entries, lambda key: rows.get(key, ())).findings == []
    key = next(iter(rows))
    connection = apsw.Connection(str(folder / "shop" / "store.db"))
    connection.execute("DELETE FROM journal WHERE rowid = (SELECT max(rowid) FROM journal WHERE key = ?)", (key,))
    connection.close()
    rows = stored_events(plan.target)
    assert {(finding.kind, finding.key) for finding in check(entries, lambda key: rows.get(key, ())).findings} == {
        ("lost", key)
    }
