"""Histories of a journal with tags: many keys, damaged values, deletes, purges, clocks that differ, carriers that die.

A query by tag follows each of them: live, while it is carried, and stopped and resumed now and then; current, when all
is there; with the strandline and without. Whatever happens, every event comes once and in order.

python -m tests.query.tag_histories FOLDER FIRST COUNT    carry into SQLite files, killed with -9 again and again
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from strandline.query.by_tag import NO_END, TagFeed
from strandline.query.feed import Pace, QueryClosed
from strandline.query.pointer_watch import PointerWatch
from strandline.query.stored_tags import StoredTags
from strandline.query.tag_search import SearchingTagFeed
from strandline.query.tag_settings import TagSettings
from strandline.record import Record, encode_header
from strandline.store.api import Store
from strandline.store.correction import Correction
from strandline.store.tag_scans import is_partitioned
from strandline.store.tag_view import TAG_BUCKET, TAG_PLACE, TAG_VIEW
from strandline.testing.store_contract.tagging import Shown, counted, query, shown, tagged_tape
from strandline.testing.tape import Tape
from strandline.values.actions import Mark
from strandline.values.tag_rows import TagBucket, TagPlace, TagRow
from tests.query.playing import MINUTE, SECOND, T0, VIEW, Play, row_of
from tests.store.stores import open_store

PARTITIONS = 3
FOLLOWED = ("red", "été")
REFRESH_S = 0.01


def tape_of(seed: int, *, actions: int = 120) -> Tape:
    """A log whose partitions have clocks up to two hours apart, with a Mark at the end of each."""
    chance = random.Random(seed)
    tape = tagged_tape(seed, actions=actions, keys=chance.randint(3, 20), partitions=PARTITIONS)
    for partition, records in enumerate(tape.records):
        skew = chance.randint(0, 7200) * SECOND
        tape.records[partition] = [record._replace(timestamp=record.timestamp + skew) for record in records]
    top = max(records[-1].timestamp for records in tape.records)
    for partition, records in enumerate(tape.records):
        mark = encode_header(Mark(None, f"end-{partition}"))
        records.append(Record(partition, records[-1].offset + 1, top + 1 + partition, None, mark, None))
    return tape


def top_of(tape: Tape) -> int:
    """The time that the strandline comes to."""
    return min(records[-1].timestamp for records in tape.records)


def check(tape: Tape, tag: str, got: list[Shown], *, all_of_it: bool = True) -> None:
    """Each event once, in the order of places; of a life that was purged meanwhile perhaps only the first ones."""
    places = [row[:3] for row in got]
    assert places == sorted(set(places), key=lambda place: (place[0], place[1].encode(), place[2]))
    check_numbers(got)
    wanted = [row for row in counted(tape, tag) if row.timestamp <= top_of(tape)]
    if all_of_it:
        assert [row for row in got if row in set(wanted)] == wanted
    lives = {(row.key, row.life) for row in wanted}
    state = {key: tape.state(key, 3) for key in tape.all_keys()}
    for row in got:
        known = state[row.key]
        assert (row.key, row.life) in lives or known is None or row.life <= known.life, row


def check_numbers(got: Iterable[Any]) -> None:
    """The numbers of each key and life are 1, 2, 3, … in this order."""
    last: dict[tuple[str, int], int] = {}
    for row in got:
        whose = str(row.key), row.life
        assert row.tag_seq_nr == last.get(whose, 0) + 1, (row, last.get(whose))
        last[whose] = row.tag_seq_nr


class Stages(Pace):
    """A pause of a live query lets the next stage of a history happen, until there is none."""

    def __init__(self, stages: Iterable[Callable[[], None]]) -> None:
        super().__init__()
        self._stages = iter(stages)
        self._time_s = 0.0

    def now_s(self) -> float:
        return self._time_s

    def pause(self, seconds: float) -> None:
        self._time_s += seconds
        stage = next(self._stages, None)
        if stage is None:
            raise QueryClosed
        stage()


def follow(begin: Callable[..., TagFeed], chance: random.Random, to: int) -> list[Shown]:
    """What live queries show, each resumed where the one before was stopped, up to a time."""
    got: list[Shown] = []
    after = None
    while True:
        events = begin(after=after, to=to, page_size=chance.randint(1, 40))
        with events:
            count = chance.randint(1, 60)
            for event in events:
                got += shown([event])
                count -= 1
                if not count:
                    break
            else:
                return got
            after = str(events.resume_offset)


# ---------------------------------------------------------------- in one process


def run(tape: Tape, store: Store, seed: int, stages: Iterable[Callable[[], None]]) -> None:
    """Follow a history live while its stages happen, then ask for all of it."""
    chance = random.Random(seed)
    pace = Stages(stages)
    tag = chance.choice(FOLLOWED)

    def begin(**given: Any) -> TagFeed:
        events = query(store, tag, live=True, gap_timeout_s=1, refresh_interval_s=REFRESH_S, **given)
        events._pace = pace
        return events

    check(tape, tag, follow(begin, chance, top_of(tape)))
    for each in FOLLOWED:
        wanted = [row for row in counted(tape, each) if row.timestamp <= top_of(tape)]
        assert shown(query(store, each, page_size=chance.randint(1, 50))) == wanted
        found = shown(query(store, each, use_strandline=False, eventual_consistency_delay_s=0))
        assert found == counted(tape, each)


def late_rows(store: Store, tape: Tape, seed: int, *, delay_s: float) -> None:
    """Follow rows that others write, with clocks up to 3 s apart, and that arrive late; without the strandline."""
    chance = random.Random(seed)
    writers = [(f"k|{key}", chance.uniform(-3, 0)) for key in "ABCDEFGH"]
    now = T0 + 30 * SECOND
    numbers: dict[str, int] = {}
    play = Play(end_s=30)
    rows: list[TagRow] = []
    for step in range(60):
        key, skew = chance.choice(writers)
        numbers[key] = numbers.get(key, 0) + 1
        row = row_of(key, numbers[key], now + round((step * 0.1 + skew) * SECOND) + step)
        rows.append(row)
        play.at(step * 0.1 + chance.uniform(0, 1.5), lambda row=row: _write(store, tape, row))  # type: ignore[misc]
    settings = TagSettings.of({
        "use_strandline": False, "eventual_consistency_delay_s": delay_s, "back_track_interval_s": 0.5,
        "new_key_scan_timeout_s": 3, "refresh_interval_s": 0.2,
    })  # fmt: skip
    source = StoredTags(store, PointerWatch(store), VIEW.tag, VIEW.history_id)
    source.now = lambda: now + round(play.time_s * SECOND)
    assert source.bucket_us == MINUTE
    events = SearchingTagFeed(source, settings, start=None, to=NO_END, live=True, pace=play)
    got = shown(events)
    assert sorted(row[:3] for row in got) == sorted(row.place for row in rows)
    check_numbers(got)
    if delay_s:
        assert got == sorted(got)
        assert events.searches == 0


def _write(store: Store, tape: Tape, row: TagRow) -> None:
    """Write a row as something else than the pipeline would."""
    anew: dict[Any, list[Any]] = {TAG_VIEW: [row]}
    if is_partitioned(store):
        anew[TAG_BUCKET] = [TagBucket(*row[:2])]
        anew[TAG_PLACE] = [
            TagPlace(row.key, 1, (row.seq_nr - 1) // 3, row.tag, row.seq_nr, row.timestamp, row.tag_seq_nr)
        ]
    with tape.correcting(store) as amend:
        amend(store.pointers()[0], Correction(anew=anew))


# ---------------------------------------------------------------- killed with -9


def carry_and_die(path: Path, tape: Tape, seed: int) -> None:
    """Carry to the end, in children that are killed at random moments: each next one goes on from the pointers."""
    chance = random.Random(seed)
    attempts = 0
    while True:
        attempts += 1
        child = os.fork()
        if child == 0:
            code = 1
            try:
                store = open_store(path, partitions=PARTITIONS)
                lease = store.lease().take(f"process {os.getpid()}")
                tape.carry(store, fence=lease.fence, size=chance.randint(1, 20))
                store.close()
                code = 0
            finally:
                os._exit(code)
        time.sleep(chance.random() * 0.03 * attempts)
        os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            return
        if code != -signal.SIGKILL:
            sys.exit(f"a carrier ended with {code}")


def killed_history(folder: Path, seed: int) -> None:
    """Follow a history whose carriers are killed."""
    tape, path = tape_of(seed), folder / f"{seed}.db"
    open_store(path, partitions=PARTITIONS).close()
    carrier = os.fork()
    if carrier == 0:
        code = 1
        try:
            carry_and_die(path, tape, seed)
            code = 0
        finally:
            os._exit(code)
    store = open_store(path, partitions=PARTITIONS)
    chance = random.Random(seed)
    for tag in FOLLOWED:
        live = partial(query, store, tag, live=True, refresh_interval_s=0.01)
        got = follow(live, chance, top_of(tape))
        check(tape, tag, got)
        wanted = [row for row in counted(tape, tag) if row.timestamp <= top_of(tape)]
        assert shown(query(store, tag)) == wanted
        assert shown(query(store, tag, use_strandline=False, eventual_consistency_delay_s=0)) == counted(tape, tag)
    store.close()
    code = os.waitstatus_to_exitcode(os.waitpid(carrier, 0)[1])
    if code:
        sys.exit(f"history {seed}: the carrier ended with {code}")


if __name__ == "__main__":
    place, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for number in range(first, first + count):
        try:
            killed_history(place, number)
        except BaseException:
            sys.stderr.write(f"history {number}\n")
            raise
    sys.stdout.write(f"{count} histories\n")
