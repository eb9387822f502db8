"""Runs a program of projections, and compares what was handed over with the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from shutil import rmtree
from typing import Any, Final

from strandline.errors import StrandlineError
from strandline.projection.offset_store import BUILDING, READY, RETIRED, SERVING, SWITCHING
from strandline.testing.prove.program import Difference
from strandline.testing.prove.projection_handler import Effect
from strandline.testing.prove.projection_model import Book, Handed, Place, wrong_switch
from strandline.testing.prove.projection_operators import OperatedRun
from strandline.testing.prove.projection_world import Kept
from strandline.values.keys import SLICES

ROUNDS_MAX: Final = 60
SAME_ROUNDS: Final = 6
"""So often nothing may change until it is taken for settled."""


class Run(OperatedRun):
    """Runs a program with hosts."""

    # ------------------------------------------------------------ running

    def run(self) -> None:
        """All calls, then everything that is left to be done and seen; `Difference` where something is wrong."""
        try:
            for index, (name, how) in enumerate(self.program.calls):
                try:
                    self.waits = 0
                    getattr(self, f"do_{name}")(**how)
                    self.done[name] += 1
                    self.check_tables()
                except Difference as difference:
                    raise Difference(difference.kind, difference.message, f"call {index}, {name}: ") from None
                except StrandlineError as error:
                    raise Difference(error.name, str(error), f"call {index}, {name}: ") from error
            self.end()
        finally:
            for host in list(self.hosts.values()):
                self.killed(host)
            self.operator.kill()
            self.world._end(self.operator.s)
            self.world.close()
            rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------ checks

    def check_tables(self) -> None:
        """After each call: ranges cover all slices, fences grow, nothing is handed over wrongly."""
        effects = self.done_so_far()
        ever = self.ever()
        rows = self.tables.projections()
        for row in rows:
            self.check_ranges(row)
            kept = self.keep(row, effects)
            self.differ(row, kept.book.wrong_handed(ever))
            kept.book.saw(self.look_at(row))
        self.check_switch(rows)
        self.generations = {row.id: self.generations[row.id] for row in rows}
        self.counted, self.begun_at = (len(effects), len(self.failures)), None

    def check_switch(self, rows: list[Any]) -> None:
        """P88: a generation that serves now had done exactly what the other one had."""
        if self.at_switch is None or self.is_away:
            return
        number, theirs, mine = self.at_switch
        if any((row.generation, row.state) == (number, SERVING) for row in rows):
            there: set[Place] = self.there()
            anew = any(row.generation == number - 1 and row.epoch > 1 for row in rows)
            aside = set(self.ever()) - set(theirs) if anew else set()  # what an operator counted as done
            for row in rows:
                shown = self.look_at(row)
                aside |= {*shown.letters, *self.generations[row.id].book.late}
                aside |= {place for place in there if place[2] > shown.parked.get(place[:2], place[2])}
            if not self.exactly_once and self.upsets:  # what was handed over and not saved is handed over again, later
                there -= set(theirs) - set(mine)
            for kind, message in wrong_switch(theirs, mine, aside, there):
                raise Difference(kind, message)
            self.at_switch = None

    def keep(self, row: Any, effects: list[Effect]) -> Kept:
        """Return the facts about a generation, brought up to now; begun anew where the product began anew."""
        kept = self.generations.get(row.id)
        if kept is None or kept.epoch != row.epoch:
            book = Book(self.exactly_once, after=row.start if kept is None or self.begun_at is None else self.begun_at)
            if kept is not None:
                book.carry_over(kept.book)
            kept = self.generations[row.id] = Kept(row.epoch, *self.counted, book, row.fence)
        if row.fence < kept.fence:
            raise Difference("fence", f"generation {row.generation}: {row.fence}, after {kept.fence}")
        kept.fence = row.fence
        kept.book.tries, kept.book.parked_max = self.tries, self.parked_max
        kept.book.handed = [Handed(one.place, one.content, one.upsets)
                            for one in effects[kept.effects :] if one.generation == row.generation]  # fmt: skip
        failures = [place for generation, place in self.failures[kept.failures :] if generation == row.generation]
        kept.book.failures = Counter(failures) + kept.book.failures_before
        return kept

    def check_ranges(self, row: Any) -> None:
        """P68, P69."""
        ranges = self.tables.ranges(row)
        if [slice_ for one in ranges for slice_ in range(one.lo, one.hi + 1)] != list(range(SLICES)):
            raise Difference("ranges", f"they are {[(one.lo, one.hi) for one in ranges]}")
        if max(one.fence for one in ranges) > row.fence:
            raise Difference("fence", f"a range has a greater one than {row.fence}: {ranges}")

    def differ(self, row: Any, found: Iterator[tuple[str, str]]) -> None:
        for kind, message in found:
            raise Difference(kind, f"generation {row.generation} ({row.state}): {message}")

    # ------------------------------------------------------------ settling

    def do_settle(self) -> None:
        """All is carried, nothing is away, and hosts look and run until nothing changes; then all must be done."""
        faults = self.world.faults
        faults.away.clear()
        faults.lost.clear()
        faults.calm()
        self.waits = 0
        self.settle()
        if not self.hosts:
            self.do_host(0)
        if self.beats:
            self.do_pass_time(61)  # who died is known to be dead
        self.deadly.clear()  # a range that fails at it would try again, and die, for ever
        same, before = 0, None
        for _ in range(ROUNDS_MAX):
            self.do_pump(1)
            if not self.hosts:
                self.do_host(0)
                if self.beats:
                    self.do_pass_time(61)
            now = self.tables.state(self.name)
            same, before = (same + 1, before) if now == before else (0, now)
            if same > SAME_ROUNDS:
                break
        else:
            raise Difference("never ends", f"after {ROUNDS_MAX} rounds: {before}")
        self.check_tables()
        self.check_done()

    def check_done(self) -> None:
        """Every event is in one place."""
        ever, there = self.ever(), self.there()
        for row in self.tables.projections():
            shown = self.look_at(row)
            if row.state == SERVING and not row.paused:
                self.differ(row, self.generations[row.id].book.wrong(ever, there, shown))
                if not shown.failed:
                    self.check_status(row)
            elif row.state in (READY, BUILDING):
                self.differ(row, self.generations[row.id].book.wrong_letters(ever, shown))

    def check_status(self, row: Any) -> None:
        """P82, P83: nothing is behind, and each range has an owner."""
        for slot in list(self.hosts):
            self.do_look(slot)  # the shortest leases end between two looks
        status = self.calls.status(self.name, generation=row.generation)
        wrong = [one for one in status.ranges if one.state != "running" or one.behind_store_s]
        if wrong or status.wanted_ranges is not None:
            raise Difference("status", f"all is done, and it shows {wrong}, wanted {status.wanted_ranges}")
        waits = [request for request in status.requests if request.refused is None and request.verb != "switch"]
        if waits:
            raise Difference("requests", f"never done: {waits}")

    def end(self) -> None:
        """Settle as it is; then heal all, let all go on, and settle again; stop, and look for leftovers."""
        self.do_settle()
        self.do_heal()
        if any(row.state == SWITCHING for row in self.tables.projections()):
            self.do_switch(force=True)  # which somebody may have resumed since
        else:
            self.do_resume()
        for row in self.tables.projections():
            for one in self.tables.parked(row):
                self.ask(lambda: self.calls.unpark(self.name, one.key, generation=row.generation))  # noqa: B023
        self.do_settle()
        self.check_healed()
        for slot in list(self.hosts):
            self.do_stop(slot)
        self.check_left()
        before = len(self.effects), len(self.tables.effects(0))
        self.do_host(1)
        self.do_settle()
        if (len(self.effects), len(self.tables.effects(0))) != before:
            raise Difference("repeated", "after an orderly stop something was handed over again")

    def check_healed(self) -> None:
        for row in self.tables.projections():
            shown = self.look_at(row)
            if row.state == SERVING and (shown.failed or [one for one in shown.parked if self.goes_on(*one)]):
                raise Difference("healed", f"nothing fails any more, and it shows {shown}")
            if row.state == SWITCHING:
                raise Difference("switch", f"generation {row.generation} never serves")

    def goes_on(self, key: str, life: int) -> bool:
        """Whether a life is not over."""
        now = self.keys[key].life()
        return now is not None and now.number == life

    def check_left(self) -> None:
        """Check that nobody runs: no host, no owner, nothing of old epochs but what goes with the next deletion run."""
        for row in self.tables.projections():
            owned = [one for one in self.tables.ranges(row) if one.owner is not None]
            hosts = self.tables.hosts(row)
            if owned or (hosts and row.state != RETIRED):  # a retired one has nobody who would bury its dead
                raise Difference("left", f"after all have stopped there are {owned} {hosts}")
        stray = self.tables.strays()
        if stray:
            raise Difference("left", f"rows of projections that are gone: {stray}")
