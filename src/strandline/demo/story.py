"""The story of the demo, act by act.

open ─▶ carry ─▶ kill a writer and a shipper ─▶ kill the pipeline ─▶ read without it ─▶ catch up ─▶ close ─▶ prove
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from strandline.connect import Strandline
from strandline.demo.place import words_of
from strandline.demo.proof import Proof
from strandline.demo.sampling import Sampler
from strandline.demo.shipping import Shipping
from strandline.demo.stage import Stage
from strandline.demo.tag_reader import TagReader
from strandline.demo.totals import PROCESSES, RANGES, TotalsAct
from strandline.errors import Unavailable
from strandline.pipeline.target import JournalRef
from strandline.testing.shop.checker import Finding, Report, ShownEvent, check
from strandline.testing.shop.children import Child, Children
from strandline.testing.shop.ledger import Entry, LedgerFollower, by_key, load, path_of
from strandline.testing.shop.orders import day
from strandline.testing.shop.shelf import stored_events, stored_keys

LOOK_KEYS = 200
LOOK_S = 0.05
START_S_MAX, ACT_S_MAX, ONCE_S_MAX = 180.0, 300.0, 240.0
CAUGHT_UP_S = 2.0
"""The pipeline keeps up when the strandline is no further behind."""
CATCH_S_MAX = 3.0
VICTIM = 2
TAG = "north"
"""A region: orders are tagged with theirs."""
# Shares of the writers' day: where things happen, and how far the writers may go before. They rarely have to wait.
OPENING, WRITER_KILL, UP_TO_PIPELINE_KILL, PIPELINE_KILL, UP_TO_CATCH_UP = 0.42, 0.3, 0.6, 0.45, 0.85
CLOSING, UP_TO_CLOSING = 0.9, 0.96


@dataclass(frozen=True, slots=True)
class TourSettings:
    """The settings of a tour: its size, its place."""

    folder: Path
    orders: int
    writers: int
    seconds: float
    """How long the writers take for their day, if the machine can keep up."""
    down_s: float
    """How long a writer, and the pipeline, stay down after a kill."""
    seed: int
    target: JournalRef
    """Log and store."""

    @property
    def work_file(self) -> Path:
        """Where work journals are: beside log and store, where they are files."""
        shop = self.folder / "shop"
        return (shop if shop.is_dir() else self.folder) / "work.db"

    def orders_of(self, writer: int) -> int:
        """The orders of a writer, numbered from 1."""
        return self.orders // self.writers + (writer <= self.orders % self.writers)


class Story:
    """One performance."""

    def __init__(
        self, plan: TourSettings, stage: Stage, s: Strandline, children: Children, sampler: Sampler, tasks: int
    ) -> None:
        self.plan, self.stage, self.s, self.children, self.sampler = plan, stage, s, children, sampler
        self.rate_per_s = tasks / plan.seconds / plan.writers
        self.writers: dict[int, Child] = {}
        self.pipeline: Child | None = None
        self.share = 0.0
        self.pipelines = 0
        self.strandline_before = 0
        self.tagged: TagReader | None = None
        self.shipping: Shipping | None = None
        self.totals: TotalsAct | None = None

    def play(self) -> Proof:
        """All acts."""
        self.open()
        self.carry()
        self.kill_writer()
        self.kill_pipeline()
        self.close()
        return self.prove()

    # ------------------------------------------------------------ acts

    def open(self) -> None:
        plan = self.plan
        self.stage.say(
            f"the shop opens: {plan.writers} writers, a process each, take {plan.orders:,} orders", style="bold"
        )
        for writer in range(1, plan.writers + 1):
            self.writers[writer] = self._start_writer(writer)
        self.allow(OPENING)
        self._start_pipeline("pipeline started")
        self.stage.say("`strandline pipeline run` is starting Spark; appends do not wait for it")
        self.stage.say("(where the story waits for Spark the shop pauses, so that the day does not end too early)")
        self.until("the first orders", lambda: self.sampler.last.share >= OPENING / 8, START_S_MAX)
        self.look("nothing is carried yet")

    def carry(self) -> None:
        self.until("the first batch", lambda: self.s.strandline() > 0, START_S_MAX)
        self.stage.say("Spark is up: the first batches are in the store")
        self.tagged = TagReader(self.s, TAG)
        self.stage.say(f"a live query, `strandline by-tag {TAG} --live`, follows the orders of a region from now on")
        self.shipping = Shipping(self.s, self.children, self.plan.work_file)
        self.stage.say("a projection adds a piece of work for every order shipped; a shipper carries the parcels out")
        if self.plan.target.url is not None:  # offsets of projections are in SQL
            self.totals = TotalsAct(self.s, self.plan.target, self.children)
            self.stage.say(
                "`strandline projections run` counts parcels and shipped orders, exactly once, in one process"
            )
        self.until("the pipeline to catch up", self.kept_up, ACT_S_MAX)
        behind_s = self.sampler.last.strandline_s
        self.stage.say(f"the pipeline has caught up; the strandline is {behind_s:.1f} s behind the newest event")

    def kill_writer(self) -> None:
        self.until("the orders", lambda: self.sampler.last.share >= WRITER_KILL, ACT_S_MAX)
        self.allow(UP_TO_PIPELINE_KILL)
        victim = min(VICTIM, self.plan.writers)
        cut_off = self._catch(victim)
        self.sampler.mark(f"writer {victim} killed", bad=True)
        under_way = f"in the middle of an append to {cut_off.key}" if cut_off else "between two calls"
        self.stage.say(f"kill -9: writer {victim}, {under_way}; the others go on", style="bold red")
        self.writers[victim].kill()
        self.pause(self.plan.down_s)
        self._spread_totals()
        self.writers[victim] = self._start_writer(victim)
        before = len(self._ledger(victim))
        self.until("the writer", lambda: len(self._ledger(victim)) > before + 1, START_S_MAX)
        self.sampler.mark(f"writer {victim} back")
        self.stage.say(f"writer {victim} is back and goes on from its ledger; {self._settled(victim, cut_off)}")
        if self.shipping is not None:
            self.shipping.kill_shipper()
            self.sampler.mark("shipper killed", bad=True)
            self.stage.say(
                "kill -9: the shipper; what it had in hand is the next one's when the lease ends", style="bold red"
            )

    def kill_pipeline(self) -> None:
        self.until("the orders", lambda: self.sampler.last.share >= PIPELINE_KILL, ACT_S_MAX)
        self.allow(UP_TO_CATCH_UP)
        self.sampler.mark("pipeline killed", bad=True)
        self.stage.say("kill -9: the pipeline, Spark and all; the writers do not notice", style="bold red")
        self._running().kill()
        self.pipeline = None
        if self.totals is not None:
            self.sampler.mark("a projection's process killed", bad=True)
            self.stage.say("kill -9: one of the four processes of the projection, too", style="bold red")
            self.totals.kill()
        self.pause(self.plan.down_s)
        self.look("the pipeline is dead")
        self._start_pipeline("pipeline back")
        self.stage.say("the pipeline starts again; it goes on at the pointers in the store")
        self.until("the pipeline to catch up", self.kept_up, ACT_S_MAX)
        self.stage.say(f"it has caught up; lag {self.sampler.last.lag:,} actions")
        if self.tagged is not None:
            self.stage.say(f"the live query went on by itself: {self.tagged.count:,} events with tag {TAG} so far")

    def close(self) -> None:
        self.allow(UP_TO_CLOSING)
        self.until("the orders", lambda: self.sampler.last.share >= CLOSING, ACT_S_MAX)
        self._running().end()
        self.pipeline = None
        self.sampler.mark("pipeline stopped")
        self.stage.say("the pipeline is stopped, in order this time; the writers finish their day without it")
        self.allow(1.0)
        self.until("the last orders", lambda: not any(writer.alive for writer in self.writers.values()), ACT_S_MAX)
        for writer in self.writers.values():
            writer.join(START_S_MAX)
        self.sampler.take()
        self.sampler.mark("shop closed")
        self.stage.say(f"the shop closes with {self.sampler.last.lag:,} actions that nobody has carried")

    def prove(self) -> Proof:
        ledgers = [load(path_of(self.plan.folder, writer), writer) for writer in self.writers]
        entries = by_key(ledgers)
        self.stage.say(f"reading all {len(entries):,} journals without a pipeline, and comparing them with the ledgers")
        stopped = check(entries, self._reader())
        once = self.children.command("pipeline once", "pipeline", "run", "--once", *words_of(self.plan.target))
        self.sampler.mark("pipeline run --once")
        self.stage.say("`strandline pipeline run --once` carries the rest")
        self.until("the rest", lambda: not once.alive, ONCE_S_MAX)
        once.join(START_S_MAX)
        lag = self.sampler.take().lag  # now: where reads write Marks, they lengthen the tail again
        self.stage.say("comparing the store's own rows, and every journal once more, with the ledgers")
        rows = stored_events(self.plan.target)
        stored = check(entries, lambda key: rows.get(key, ()))
        proof = Proof.of(
            ledgers, entries, stopped, stored, check(entries, self._reader()), stored_keys(self.plan.target),
            set(rows), lag, self.s.status(parts=False).quarantined,
        )  # fmt: skip
        wrong = (*self._prove_tag(), *self._prove_shipping(rows), *self._prove_totals(rows))
        return replace(proof, others=(*proof.others, *wrong))

    def _prove_tag(self) -> list[Finding]:
        if self.tagged is None:
            return []
        wrong = self.tagged.end()
        if not wrong:
            self.stage.say(f"the live query showed {self.tagged.count:,} events with tag {TAG}, each once and in order")
        return wrong

    def _prove_shipping(self, rows: Mapping[str, Sequence[ShownEvent]]) -> list[Finding]:
        if self.shipping is None:
            return []
        wrong = self.shipping.end(event for events in rows.values() for event in events)
        if not wrong:
            self.stage.say(f"{self.shipping.count:,} parcels have left, one for each order that was shipped")
        return wrong

    def _prove_totals(self, rows: Mapping[str, Sequence[ShownEvent]]) -> list[Finding]:
        if self.totals is None:
            return []
        wrong = self.totals.end(rows)
        if not wrong:
            parcels, shipped = (sum(column) for column in zip(*self.totals.sums().values(), strict=True))
            self.stage.say(
                f"the projection counted {parcels:,} parcels and {shipped:,} shipped orders: as a plain fold over the "
                "journals"
            )
        return wrong

    def _spread_totals(self) -> None:
        """One process becomes four, while it runs."""
        if self.totals is not None:
            self.until("the projection", lambda: self.totals is not None and self.totals.is_running, START_S_MAX)
            self.totals.spread()
            self.stage.say(f"the projection is cut into {RANGES} ranges, and {PROCESSES} processes share them")

    # ------------------------------------------------------------ what acts are made of

    def look(self, when: str) -> None:
        """Read some journals that nobody is writing at the moment, and compare."""
        before = self._entries()
        quiet = [key for key, calls in before.items() if all(call.answer is not None for call in calls)]
        chosen = random.Random(self.plan.seed).sample(quiet, min(LOOK_KEYS, len(quiet)))
        read = self._reader()
        seen = {key: list(read(key)) for key in chosen}
        after = self._entries()
        still = [key for key in chosen if len(after[key]) == len(before[key])]
        report = check(before, lambda key: seen[key], still)
        self._tell_look(when, report)

    def _tell_look(self, when: str, report: Report) -> None:
        if not report.sound:
            raise Unavailable(
                f"a read is wrong: {report.findings[0]}", code="away", hint=f"see the ledgers in {self.plan.folder}"
            )
        share = report.from_tail / max(1, report.events)
        self.stage.say(
            f"{when}, and {report.keys} of {report.keys} reads are right: {report.events:,} events, "
            f"{share:.0%} of them from the log's tail",
            style="green",
        )

    def _reader(self) -> Callable[[str], Iterator[ShownEvent]]:
        pointers = [partition.pointer for partition in self.s.status(parts=False).partitions]

        def read(key: str) -> Iterator[ShownEvent]:
            for event in self.s.journal.read(key):
                from_tail = event.log_offset > pointers[event.partition]
                yield ShownEvent(event.seq_nr, event.type, event.payload, event.life, from_tail)

        return read

    def kept_up(self) -> bool:
        """Return whether the pipeline that runs has carried, and is close behind the writers."""
        carried = self.s.strandline() > self.strandline_before or not self.sampler.last.lag
        return carried and self.sampler.last.strandline_s <= CAUGHT_UP_S

    def allow(self, share: float) -> None:
        """Let the writers do their day up to here."""
        self.share = max(self.share, share)
        for writer in self.writers.values():
            writer.tell(str(self.share))

    def pause(self, seconds: float) -> None:
        """Let time pass; somebody should be down for a while."""
        until = time.monotonic() + seconds
        self.until("time", lambda: time.monotonic() >= until, seconds + ACT_S_MAX)

    def until(self, what: str, condition: Callable[[], bool], timeout_s: float) -> None:
        """Wait for a condition, while everybody who should be well is."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            for child in (*self.writers.values(), *([self.pipeline] if self.pipeline else ())):
                if child.code != 128 + signal.SIGKILL:
                    child.check()
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"waited {timeout_s:.0f} s for {what}", code="timeout", hint=f"see the files in {self.plan.folder}"
                )
            time.sleep(LOOK_S)

    def _start_writer(self, writer: int) -> Child:
        plan = self.plan
        child = self.children.module(
            f"writer {writer}", "strandline.testing.shop.writer",
            plan.folder, plan.target.to_json(), plan.seed, writer, plan.orders_of(writer), self.rate_per_s,
        )  # fmt: skip
        child.tell(str(self.share))
        return child

    def _start_pipeline(self, what: str) -> None:
        self.pipelines += 1
        self.strandline_before = self.s.strandline()
        self.pipeline = self.children.command(
            f"pipeline {self.pipelines}", "pipeline", "run", *words_of(self.plan.target)
        )
        self.sampler.mark(what)

    def _running(self) -> Child:
        if self.pipeline is None:
            raise RuntimeError("no pipeline is running")
        return self.pipeline

    def _catch(self, writer: int) -> Entry | None:
        """Stop a writer in the middle of an append that has an id; None if it cannot be caught there."""
        pid = self.writers[writer].pid
        ledger = LedgerFollower(path_of(self.plan.folder, writer), writer)
        deadline = time.monotonic() + CATCH_S_MAX
        while time.monotonic() < deadline and self.writers[writer].alive:
            ledger.follow()
            if ledger.open is not None and ledger.open.append_id:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.01)
                ledger.follow()
                if ledger.open is not None and ledger.open.append_id:
                    return ledger.open
                os.kill(pid, signal.SIGCONT)
        return None

    def _settled(self, writer: int, cut_off: Entry | None) -> str:
        if cut_off is None:
            return "nothing was under way"
        again = [entry for entry in self._ledger(writer) if entry.append_id == cut_off.append_id and entry.accepted]
        if not again:
            return "what was under way is looked up in the journal"
        if again[0].duplicate:
            return "the append that was cut off had been recorded: sent again with its id, it is stored once"
        return "the append that was cut off had not been recorded: sent again with its id, it is now"

    def _ledger(self, writer: int) -> list[Entry]:
        return load(path_of(self.plan.folder, writer), writer)

    def _entries(self) -> dict[str, list[Entry]]:
        return by_key(self._ledger(writer) for writer in self.writers)


def perform(plan: TourSettings, stage: Stage) -> tuple[Proof, Sampler]:
    """Play the story in its folder. Whatever happens, no process of it is left."""
    followers = [LedgerFollower(path_of(plan.folder, writer), writer) for writer in range(1, plan.writers + 1)]
    tasks = sum(len(day(plan.seed, writer, plan.orders_of(writer))) for writer in range(1, plan.writers + 1))
    with (
        plan.target.connect() as s,
        stage,
        Children(plan.folder) as children,
        Sampler(s, followers, tasks, stage.show) as sampler,
    ):
        proof = Story(plan, stage, s, children, sampler, tasks).play()
    kept = {"orders": plan.orders, "proof": proof.kept(), "events": [event._asdict() for event in sampler.events]}
    (plan.folder / "demo.json").write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    return proof, sampler


__all__ = ["TourSettings", "perform"]
