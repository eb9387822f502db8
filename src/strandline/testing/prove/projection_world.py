"""What programs of projections do: hosts, what happens to them, and what operators ask for."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from strandline.errors import NotFound, Unavailable
from strandline.projection.definition import BySlices, ByTag, Projection
from strandline.testing import carry
from strandline.testing.faults import Crash
from strandline.testing.prove import journal
from strandline.testing.prove.hosts import Process, Stage, SteppedHost
from strandline.testing.prove.journal import SEAMS, TAGS
from strandline.testing.prove.program import Program
from strandline.testing.prove.projection_handler import Effect, Handler
from strandline.testing.prove.projection_model import Book, Place
from strandline.testing.prove.projection_tables import Tables
from strandline.testing.prove.servers import Servers
from strandline.testing.prove.worlds import POSTGRES, SHM

PREFIX: Final = "projection."
SLOTS: Final = 3
GENERATIONS: Final = 3
POINTS: Final = (
    "before offsets.read", "before offsets.write", "before offsets.commit", "after offsets.commit", "before handler",
    "after handler", "before offsets.write", "before offsets.commit", "after offsets.commit", *SEAMS,
)  # fmt: skip
"""Where something may happen in the middle of a step."""
BELOW: Final = ("keys_in_memory_max", "lease_s", "delete_after_s", "delete_interval_s")
OWN: Final = ("source", "delivery", "beats", "takes_s", "start")
WAITS_MAX: Final = 30
FAST: Final = {"retry_delay_s": 0.01, "restart_min_s": 0.05, "restart_max_s": 3}


@dataclass
class Kept:
    """A generation as it was last seen: its epoch, and from where on effects and failures are its own."""

    epoch: int
    effects: int
    failures: int
    book: Book
    fence: int


class HostedRun(journal.Run):
    """A journal with hosts of projections beside it."""

    def __init__(self, program: Program, *, servers: Servers | None = None) -> None:
        mine = {name.removeprefix(PREFIX): value for name, value in program.settings.items() if name.startswith(PREFIX)}
        rest = {name: value for name, value in program.settings.items() if not name.startswith(PREFIX)}
        super().__init__(replace(program, settings=rest), servers=servers, faulty=True)
        self.given = {name: mine.pop(name, default) for name, default in
                      zip(OWN, ("slices", "exactly_once", False, 0, "beginning"), strict=True)}  # fmt: skip
        self.settings = mine
        self.name, self.renamed = "totals", 0
        self.stage = Stage(self.world.faults)
        self.stage.waited = self.waited
        self.waits = 0
        self.folder = Path(tempfile.mkdtemp(prefix="strandline-prove-", dir=SHM if SHM.is_dir() else None))
        self.handlers = [Handler(self, number) for number in range(1, GENERATIONS + 1)]
        self.hosts: dict[int, SteppedHost] = {}
        self.connections: dict[int, Any] = {}
        self.url = self.offsets_url()
        self.operator = Process(self.world._start(), self.url, self.stage, beats=bool(self.given["beats"]))
        self.tables = Tables(self.operator, getattr(self.world, "_name", None))
        self.effect_table = self.tables.effect
        self.leases: list[float] = [30.0]
        self.tries, self.parked_max = 1000, 0
        """Of all hosts so far: how often an event is tried at least, how many keys may be parked at most."""
        self.upsets = 0
        self.takes_s = float(self.given["takes_s"])
        self.poison: set[Place] = set()
        self.deadly: set[Place] = set()
        self.hanging: set[str] = set()
        self.effects: list[Effect] = []
        """Of handlers that write elsewhere (at least once)."""
        self.failures: list[tuple[int, Place]] = []
        self.generations: dict[str, Kept] = {}
        """By the id of a generation."""
        self.begun_at: int | None = None
        self.at_switch: tuple[Any, ...] | None = None
        """The generation that took another's place, and what both had done then."""
        self.numbers = 0
        self.counted = 0, 0

    @property
    def beats(self) -> bool:
        """Whether hosts live by their leases, and not by locks on files."""
        return bool(self.given["beats"]) or self.program.on == POSTGRES

    @property
    def exactly_once(self) -> bool:
        return bool(self.given["delivery"] != "at_least_once")

    @property
    def by_tag(self) -> bool:
        return bool(self.given["source"] == "tag")

    def offsets_url(self) -> str:
        if self.program.on == POSTGRES:
            return str(self.world._url)  # type: ignore[attr-defined]
        return f"sqlite:{self.folder}/projections.db"

    def waited(self) -> None:
        """Something waits: its host goes on, and an outage is over after a while."""
        for host in self.hosts.values():
            if host.busy:
                host.beat()
        self.waits += 1
        if self.is_away:
            self.upset()
        if self.waits > WAITS_MAX:
            self.world.faults.away.clear()

    def upset(self) -> None:
        """Something went wrong: what was not saved may come again."""
        self.upsets += 1

    # ------------------------------------------------------------ hosts

    def projections(self) -> list[Projection]:
        source: BySlices | ByTag = BySlices("order")
        if self.by_tag:
            source = ByTag(TAGS[0])
        elif self.given["source"] == "types":
            source = BySlices("order", filter={"types": ["T0", "T1"]})
        settings = dict(self.settings)
        for name in BELOW:
            if f"projection.{name}" not in self.program.limits:  # what users cannot give
                settings.pop(name, None)
        self.leases.append(float(settings.get("lease_s", 30)))
        if self.beats and self.leases[-1] < 1:
            self.takes_s = 0.0  # ranges run one after the other here: one would take the time of all
        grouped = "group_size" in settings  # of a list, one that fails is tried with the others
        self.tries = min(self.tries, 1 if grouped else settings.get("retries", 5) + 1)
        self.parked_max = max(self.parked_max, settings.get("parked_keys_max", 1000))
        how = {**FAST, **settings, "delivery": self.given["delivery"], "start": self.given["start"]}
        return [
            Projection(
                self.name,
                source,
                handler.of(exactly_once=self.exactly_once, grouped=grouped),
                **{**how, "generation": number},
            )
            for number, handler in enumerate(self.handlers, 1)
        ]

    def do_host(self, slot: int) -> None:
        """Start a host; two of three are in one process."""
        number = (slot or 0) % SLOTS
        if number in self.hosts or self.is_away:
            return
        where = number // 2
        if where not in self.connections:
            self.connections[where] = self.world._start()
        process = Process(self.connections[where], self.url, self.stage, beats=bool(self.given["beats"]))
        self.numbers += 1
        self.hosts[number] = SteppedHost(process, self.projections(), f"host-{self.numbers}")
        self.do_look(number)

    def stepping(self, host: SteppedHost, act: Callable[[], Any]) -> Any:
        """Let a host do something; it may die at it, or be over."""
        if host.busy or host not in self.hosts.values():
            return None
        host.busy = True
        try:
            return act()
        except Crash:
            host.busy = False
            self.killed(host)
        except NotFound:
            host.busy = False
            self.finished(host)
        finally:
            host.busy = False
        if any(other.busy and other.process.s is host.process.s for other in self.hosts.values()):
            raise Crash  # the process died in which the other one runs, too
        return None

    def slot_of(self, host: SteppedHost) -> int:
        return next(number for number, one in self.hosts.items() if one is host)

    def killed(self, host: SteppedHost) -> None:
        """Its process dies, and all hosts in it."""
        self.upset()
        for number, one in list(self.hosts.items()):
            if one.process.s is host.process.s and not one.busy:
                del self.hosts[number]
                one.process.kill()
        if not any(one.process.s is host.process.s for one in self.hosts.values()):
            self.closed(host)

    def closed(self, host: SteppedHost) -> None:
        for where, s in list(self.connections.items()):
            if s is host.process.s and not any(one.process.s is s for one in self.hosts.values()):
                del self.connections[where]
                self.world._end(s)

    def finished(self, host: SteppedHost) -> None:
        """It ends in order."""
        host.busy = True
        try:
            host.finish()
        except Crash:
            host.busy = False
            self.killed(host)
            return
        del self.hosts[self.slot_of(host)]
        host.process.close()
        self.closed(host)

    def do_look(self, slot: int) -> None:
        host = self.hosts.get((slot or 0) % SLOTS)
        if host is not None and self.stepping(host, host.look) is False:
            self.finished(host)

    def do_work(self, slot: int) -> None:
        host = self.hosts.get((slot or 0) % SLOTS)
        if host is not None:
            self.stepping(host, host.step)

    def do_pump(self, rounds: int) -> None:
        """All hosts look and run, again and again."""
        for _ in range(rounds or 1):
            for slot in list(self.hosts):
                self.do_look(slot)
                self.do_work(slot)
            self.do_pass_time(1.0)

    def do_stop(self, slot: int) -> None:
        host = self.hosts.get((slot or 0) % SLOTS)
        if host is not None and not host.busy:
            self.finished(host)

    def do_kill(self, slot: int) -> None:
        host = self.hosts.get((slot or 0) % SLOTS)
        if host is not None:
            self.killed(host)

    def do_configure(self, settings: dict[str, Any]) -> None:
        """Hosts that start from now on have other settings."""
        self.settings = settings or {}

    # ------------------------------------------------------------ the world

    def do_kill_at(self, point: int, nth: int) -> None:
        def die() -> None:
            raise Crash

        self.arm(POINTS[(point or 0) % len(POINTS)], nth or 1, die)

    def do_lost_commit(self, nth: int) -> None:
        """The answer to a commit of a host is lost."""

        def lost() -> None:
            self.upset()
            raise Unavailable("the answer was lost", code="away", hint="look", applied="unknown")

        self.arm("after offsets.commit", nth or 1, lost)

    def do_refuse(self, nth: int) -> None:
        """The offset store is away for one transaction."""

        def refused() -> None:
            self.upset()
            raise Unavailable("the offsets are away", code="away", hint="wait", applied="no")

        self.arm("before offsets.write", nth or 1, refused)

    def arm(self, point: str, nth: int, act: Callable[[], None]) -> None:
        """Let something happen in the middle of a step of a host."""

        def once() -> None:
            busy = any(host.busy for host in self.hosts.values())
            # Hosts of a process share its look at the pointers: another one would wait for it here, in this thread.
            looks = any(host.process.pointer_watch._lock.locked() for host in self.hosts.values())
            if not busy or looks:
                self.world.faults.meanwhile(point, 1, once)
            else:
                act()

        self.world.faults.meanwhile(point, nth, once)

    def do_meanwhile(self, point: int, nth: int, what: str, key: int, limit: int | None) -> None:
        def act() -> None:
            if what in ("append", "delete", "purge"):
                getattr(self, f"do_{what}")(**journal._MEANWHILE[what], key=key or 0)
            elif self.stage.transactions or what == "carry":
                self.carried_now(limit)
            elif what == "lapse":
                self.do_pass_time(61)
                self.do_pump(2)
            elif what == "anew":
                self.do_pass_time(61)
                self.operate("reset")
            elif what == "rescale":
                self.operate("rescale", n=(key or 0) + 1)
            else:
                self.operate(what, **({"rounds": 2} if what == "pump" else {}))

        self.arm(POINTS[(point or 0) % len(POINTS)], nth or 1, act)

    def operate(self, what: str, **how: Any) -> None:
        """Another call, in the middle of a step."""
        getattr(self, f"do_{what}")(**how)

    def carried_now(self, limit: int | None) -> None:
        with suppress(Unavailable):
            carry(self.s, lease=self.lease, limit=limit)

    def do_away(self, part: str) -> None:
        self.upset()
        self.world.faults.away.add(part or "offsets")

    def do_pass_time(self, seconds: float) -> None:
        if self.beats and (seconds or 0) >= min(self.leases) / 3:
            self.upset()
        self.stage.now_s += seconds or 0

    def do_poison(self, key: int, at: int) -> None:
        """The handler fails at an event of a key, also one that is still to come."""
        model = self.model(key)
        life = model.life()
        number = (life.seq_nr if life else 0) + (at or 0)
        self.poison.add((model.key, life.number if life else model.lives_ended() + 1, max(1, number)))

    def do_deadly(self, key: int) -> None:
        """The process dies at the last event of a key, each time."""
        life = self.model(key).life()
        if life:
            self.deadly.add((self.model(key).key, life.number, life.seq_nr))

    def do_heal(self) -> None:
        self.poison.clear()
        self.deadly.clear()

    def do_hang(self, key: int) -> None:
        """At the next event of a key the handler does not return in time."""
        self.hanging.add(self.model(key).key)

    def hangs(self) -> None:
        """A handler takes too long, and its host looks meanwhile."""
        self.upset()
        busy = next((host for host in self.hosts.values() if host.busy), None)
        if busy is not None:
            self.stage.now_s += 61
            busy.watch_handlers()

    def switched(self, tx: Any, old: int, new: int) -> None:
        """A generation takes another's place, in a transaction that is not committed yet."""
        effects = self.effects
        if self.exactly_once:
            rows = tx.execute(f"SELECT generation, key, life, seq_nr FROM {self.effect_table} ORDER BY n")  # noqa: S608
            effects = [Effect(row[0], tuple(row[1:]), "", 0) for row in rows]
        begun: dict[int, int] = {}
        for row in self.tables.projections():
            kept = self.generations.get(row.id)
            if row.name == self.name and kept is not None:  # it may have been begun anew in the middle of this call
                begun[row.generation] = kept.effects if kept.epoch == row.epoch else self.counted[0]
        self.at_switch = (
            new,
            *(
                {one.place for one in effects[begun.get(number, 0) :] if one.generation == number}
                for number in (old, new)
            ),
        )
