"""Programs of a work journal: adds, merges, claims, every way to end one, transactions, settings, time.

Two processes work on it. The clock is the database's, and stands still until a call moves it.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import apsw

from strandline.connect import Strandline, connect
from strandline.errors import InvalidInput, LeaseLost, NotFound, StrandlineError
from strandline.testing import limits
from strandline.testing.clock import FakeClock
from strandline.testing.prove.journal import analyzed
from strandline.testing.prove.program import Call, Difference, Program
from strandline.testing.prove.servers import Servers, needed
from strandline.testing.prove.work_model import US, Entry, Letter, WorkModel
from strandline.testing.prove.worlds import POSTGRES, SHM, analyze_files, analyze_schema
from strandline.work.declaration import WorkDeclaration

SETTINGS: Final[dict[str, Any]] = {
    "merge": "key", "merge_process_date": "largest", "max_delay_s": None, "default_priority": 20, "slow_from": 200,
    "slow_limit": 1, "slow_pause_s": 1, "lease_s": 30, "max_timeouts": 3, "retry_delay_s": 1, "retry_delay_max_s": 3600,
}  # fmt: skip
"""As shipped."""
PRIORITIES: Final = (0, 10, 20, 20, 20, 199, 200, 230, 255)
PROCESSES: Final = 2
CURSORS: Final = 3


# ---------------------------------------------------------------- generator


class Maker:
    """Makes calls at random."""

    def __init__(self, chance: random.Random, keys: int) -> None:
        self.chance, self.keys = chance, keys
        self._data = 0

    def add(self) -> dict[str, Any]:
        chance = self.chance
        self._data += 1
        return {
            "key": chance.randrange(self.keys),
            "data": self._data,
            "priority": chance.choice((None, *PRIORITIES)),
            "inserted": chance.choice((-5, 0, 1, 59, 61)) if chance.random() < 0.15 else None,
            "process": chance.choice((-3, 0, 2, 9, 11, 40)) if chance.random() < 0.25 else None,
            "delay": chance.choice((1, 5, 12)) if chance.random() < 0.1 else None,
            "expires": chance.choice((1, 3, 20, 60)) if chance.random() < 0.2 else None,
            "id": chance.randint(1, 4) if chance.random() < 0.12 else None,
        }

    def slot(self) -> int:
        return self.chance.randrange(4)

    def call(self) -> Call:
        chance = self.chance
        who = {"process": chance.randrange(PROCESSES)}
        makers: list[tuple[float, Callable[[], Call]]] = [
            (20, lambda: ["add", {**who, "add": self.add()}]),
            (3, lambda: ["add_many", {**who, "adds": [self.add() for _ in range(chance.randint(1, 5))]}]),
            (3, lambda: ["add_tx", {**who, "add": self.add(), "commit": chance.random() < 0.6}]),
            (18, lambda: ["claim", {"cursor": chance.randrange(CURSORS), "limit": chance.choice((1, 1, 2, 5)),
                                    "done": chance.choice((None, None, self.slot()))}]),
            (7, lambda: ["done", {"slot": self.slot()}]),
            (2, lambda: ["done_many", {"slots": [self.slot() for _ in range(chance.randint(1, 6))]}]),
            (4, lambda: ["done_tx", {"slot": self.slot(), "commit": chance.random() < 0.6}]),
            (4, lambda: ["fail", {"slot": self.slot(), "delay_s": chance.choice((None, None, 0, 3))}]),
            (3, lambda: ["release", {"slot": self.slot()}]),
            (4, lambda: ["heartbeat", {"slot": self.slot()}]),
            (2, lambda: ["drop", {**who, "nth": chance.randrange(4)}]),
            (12, lambda: ["pass_time", {"seconds": chance.choice((0.1, 0.5, 1, 1, 2, 5, 11, 29, 31, 31, 70, 3700))}]),
            (3, lambda: ["tick", who]),
            (2, lambda: ["requeue", {**who, "nth": chance.randrange(3)}]),
            (1, lambda: ["acknowledge", {**who, "nth": chance.randrange(3)}]),
            (1, lambda: ["pause", {**who, "on": chance.random() < 0.4}]),
            (2, lambda: ["declare", {**who, "settings": declared(chance)}]),
            (2, lambda: ["new_process", who]),
        ]  # fmt: skip
        return chance.choices([make for _, make in makers], [weight for weight, _ in makers])[0]()

    def few(self) -> list[Call]:
        """A call; or a few that belong together, as chance alone would seldom bring them."""
        chance = self.chance
        if chance.random() < 0.94:
            return [self.call()]
        who = {"process": chance.randrange(PROCESSES)}
        most_urgent = {"process": None, "delay": None, "inserted": None, "expires": None, "priority": 0, "id": None}
        added: Call = ["add", {**who, "add": {**self.add(), **most_urgent}}]
        claim: Call = ["claim", {"cursor": chance.randrange(CURSORS), "limit": 5, "done": None}]
        tick: Call = ["tick", who]
        lapsed: list[Call] = [claim, ["pass_time", {"seconds": 61}], tick]
        kinds: tuple[list[Call], ...] = (
            # A lease that heartbeats made longer, looked at where it would have ended.
            [added, ["declare", {**who, "settings": {"lease_s": 30}}], claim, ["pass_time", {"seconds": 20}],
             *[["heartbeat", {"slot": slot}] for slot in range(4)], ["pass_time", {"seconds": 11}], tick],
            # Done after the lease, though its end was recorded.
            [added, *lapsed, *[["done", {"slot": slot}] for slot in range(4)]],
            # A dead letter that has expired.
            [["declare", {**who, "settings": {"max_timeouts": 1}}],
             ["add", {**who, "add": {**self.add(), **most_urgent, "expires": 70}}],
             *lapsed, ["pass_time", {"seconds": 11}], ["requeue", {**who, "nth": 0}]],
            # Failures one after the other: each waits for longer.
            [added, *[claim, *[["fail", {"slot": slot, "delay_s": None}] for slot in range(4)],
                      ["pass_time", {"seconds": 5}]] * 2],
            # An entry that has expired while it waited behind, or while it waited.
            [added, claim, ["add", {**who, "add": {**added[1]["add"], "expires": 1}}], ["pass_time", {"seconds": 61}],
             *([tick] if chance.random() < 0.5 else []), added],
        )  # fmt: skip
        return list(chance.choice(kinds))


def declared(chance: random.Random) -> dict[str, Any]:
    """Some settings that change."""
    found = {
        "lease_s": chance.choice((1, 30, 60)),
        "max_timeouts": chance.choice((0, 1, 2, 3)),
        "merge_process_date": chance.choice(("largest", "smallest")),
        "max_delay_s": chance.choice((None, 0, 4)),
        "slow_from": chance.choice((1, 20, 200, 256)),
        "slow_limit": chance.choice((1, 2)),
        "retry_delay_s": chance.choice((0, 1, 4)),
        "retry_delay_max_s": chance.choice((0, 3, 3600)),
    }
    if chance.random() < 0.1:
        found["merge"] = "none"  # for good: what several of one key would merge with is not said
    return {name: value for name, value in found.items() if chance.random() < 0.4}


def make(seed: int, on: str) -> Program:
    """The program of a seed. One of five has the shipped settings."""
    chance = random.Random(f"work {on} {seed}")
    settings = {} if seed % 5 == 4 else {**declared(chance), "table_rows_max": chance.choice((1, 2, 3, 10_000))}
    if seed % 5 == 3:
        settings["merge"] = "none"
    maker = Maker(chance, chance.randint(1, 5))
    calls: list[Call] = []
    for _ in range(chance.randint(5, 70)):
        calls += maker.few()
    return Program("work", on, analyzed(calls, "work", on, seed), settings)


# ---------------------------------------------------------------- the world


class Place:
    """Where the journal is."""

    def __init__(self, on: str, servers: Servers | None) -> None:
        self._server = needed(servers).url(on) if on == POSTGRES else ""
        self._folder = None if self._server else Path(tempfile.mkdtemp(dir=SHM if SHM.is_dir() else None))
        self._schema = f"prove_{uuid4().hex[:16]}"
        self.url = f"{self._server}&schema={self._schema}" if self._folder is None else f"sqlite:{self._folder}/journal"

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[Any]:
        """A caller's own transaction, with a table of effects; committed or rolled back."""
        connection: Any
        if self._folder is not None:
            connection = apsw.Connection(f"{self._folder}/journal/work.db")
            connection.execute("CREATE TABLE IF NOT EXISTS effect (entry INTEGER)")
            connection.execute("BEGIN IMMEDIATE")
        else:
            import psycopg

            connection = psycopg.connect(self._server)
            connection.execute(f'CREATE TABLE IF NOT EXISTS "{self._schema}".effect (entry bigint)'.encode())
            connection.execute("COMMIT")
            connection.execute("BEGIN")
        try:
            yield connection
            connection.execute("COMMIT" if commit else "ROLLBACK")
        finally:
            connection.close()

    def analyze(self) -> None:
        """Let the database count its rows."""
        if self._folder is not None:
            analyze_files(self._folder / "journal")
        else:
            analyze_schema(self._server, self._schema)

    def effect(self, connection: Any, entry: int) -> None:
        """Something that must be done once for an entry."""
        table = "effect" if self._folder is not None else f'"{self._schema}".effect'
        connection.execute(f"INSERT INTO {table} VALUES ({entry})")  # noqa: S608

    def effects(self) -> list[int]:
        with self.transaction(commit=False) as connection:
            table = "effect" if self._folder is not None else f'"{self._schema}".effect'
            return sorted(entry for (entry,) in connection.execute(f"SELECT entry FROM {table}"))  # noqa: S608

    def close(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        import psycopg

        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{self._schema}" CASCADE'.encode())


# ---------------------------------------------------------------- runner


class Run:
    """Runs a program on a work journal and on the model, and compares."""

    def __init__(self, program: Program, *, servers: Servers | None = None) -> None:
        self.program = program
        self.clock = FakeClock()
        self.place = Place(program.on, servers)
        self.model = WorkModel({**SETTINGS, **{k: v for k, v in program.settings.items() if k in SETTINGS}})
        self.tables = {k: v for k, v in program.settings.items() if k not in SETTINGS}
        self.opened: list[tuple[Strandline, Any]] = []
        self.claims: dict[int, Any] = {}
        self.passes: dict[int, bool] = dict.fromkeys(range(CURSORS), False)
        self.effects: list[int] = []
        self.over: set[int] = set()
        """The fences of claims that were done, other than in a caller's transaction."""
        self.fence = 0
        self.done: Counter[str] = Counter()
        for _ in range(PROCESSES):
            self.opened.append(self.open())
        self.cursors = [self.journal(cursor).cursor(f"w{cursor}") for cursor in range(CURSORS)]

    def declaration(self) -> WorkDeclaration:
        return WorkDeclaration("mails", key={"k": "int"}, data={"n": "int"}, **self.model.settings, **self.tables)

    def open(self) -> tuple[Strandline, Any]:
        s = connect(self.place.url, clock=self.clock)
        return s, s.work(self.declaration())

    def journal(self, process: int) -> Any:
        return self.opened[(process or 0) % PROCESSES][1]

    @property
    def now(self) -> int:
        return self.clock.now

    def run(self) -> None:
        """All calls, then everything that is left to be seen; `Difference` where something is wrong."""
        try:
            for index, (name, how) in enumerate(self.program.calls):
                try:
                    getattr(self, f"do_{name}")(**how)
                    self.done[name] += 1
                    self.check()
                except Difference as difference:
                    raise Difference(difference.kind, difference.message, f"call {index}, {name}: ") from None
                except StrandlineError as error:
                    raise Difference(error.name, str(error), f"call {index}, {name}: ") from error
            self.drain()
        finally:
            for s, _ in self.opened:
                s.close()
            self.place.close()

    # ------------------------------------------------------------ adds

    def given(self, add: dict[str, Any]) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """An add as the journal takes it, and as the model does."""
        us = {
            name: None if add[name] is None else round(add[name] * US)
            for name in ("inserted", "process", "delay", "expires")
        }
        inserted = None if us["inserted"] is None else self.now + us["inserted"]
        process = None if us["process"] is None else self.now + us["process"]
        expires = 0 if us["expires"] is None else self.now + us["expires"]
        delay = us["delay"] or 0 if process is None else 0
        asked: dict[str, Any] = {"key": {"k": add["key"] or 0}, "data": {"n": add["data"] or 0}}
        if add["priority"] is not None:
            asked["priority"] = add["priority"]
        if inserted is not None:
            asked["insertion_date"] = inserted
        if process is not None:
            asked["process_date"] = process
        elif delay:
            from datetime import timedelta

            asked["process_date"] = timedelta(microseconds=delay)
        if expires:
            asked["expiration_date"] = expires
        priority = self.model.settings["default_priority"] if add["priority"] is None else add["priority"]
        add_id = add.get("id")
        if add_id is not None:
            asked["id"] = f"add-{add_id}"
        return asked, (add["key"] or 0, add["data"] or 0, priority, inserted, process, delay, expires, add_id)

    def added(self, what: str, found: Any, wanted: tuple[str, int | None]) -> None:
        """Compare the answer to an add with the model's."""
        if isinstance(found, InvalidInput):
            if found.code != wanted[0]:
                raise Difference("add", f"{what} was refused with {found.code}, not {wanted[0]}")
            return
        if found.outcome != wanted[0] or (wanted[1] is not None and found.id != wanted[1]):
            raise Difference("add", f"{what} gave {found}, not {wanted}")
        self.model.named(0, found.id)

    def do_add(self, process: int, add: dict[str, Any]) -> None:
        asked, modelled = self.given(add)
        found: Any
        try:
            found = self.journal(process).add(**asked)
        except InvalidInput as error:
            found = error
        self.added(str(asked), found, self.model.add(self.now, *modelled))

    def do_add_many(self, process: int, adds: list[dict[str, Any]]) -> None:
        """W31: all or none."""
        given = [self.given(add) for add in adds or []]
        if not given:
            return
        before = self.saved()
        answers = []
        for _, modelled in given:
            answers.append(self.model.add(self.now, *modelled))
            self.model.named(0, -len(answers))
        refused = [code for code, _ in answers if code in ("time_ahead", "expires_early")]
        try:
            found = self.journal(process).add_many([asked for asked, _ in given])
        except InvalidInput as error:
            if error.code not in refused:
                raise
            self.restore(before)
            return
        if refused:
            raise Difference("add_many", f"{given} was taken, not refused with {refused[0]}")
        for index, (one, (outcome, id_)) in enumerate(zip(found, answers, strict=True), 1):
            self.model.named(-index, one.id)
            if one.outcome != outcome or (id_ is not None and one.id != (found[-id_ - 1].id if id_ < 0 else id_)):
                raise Difference("add_many", f"{given} gave {found}, not {answers}")

    def do_add_tx(self, process: int, add: dict[str, Any], commit: bool) -> None:
        asked, modelled = self.given(add)
        before = self.saved()
        wanted = self.model.add(self.now, *modelled)
        with self.place.transaction(commit=bool(commit)) as tx:
            found: Any
            try:
                found = self.journal(process).add(**asked, tx=tx)
            except InvalidInput as error:
                found = error
        self.added(str(asked), found, wanted)
        if not commit:
            self.restore(before)

    def saved(self) -> WorkModel:
        from copy import deepcopy

        return deepcopy(self.model)

    def restore(self, before: WorkModel) -> None:
        self.model = before

    # ------------------------------------------------------------ claims

    def do_claim(self, cursor: int, limit: int, done: int | None) -> None:
        number = (cursor or 0) % CURSORS
        ended = [] if done is None or done not in self.claims else [self.claims[done]]
        gone = [one.fence not in self.over and self.done_by(one) for one in ended]
        wanted, handed_out = self.model.claim(self.now, limit or 1, handed_out=self.passes[number])
        batch = self.cursors[number].claim(limit or 1, done=ended)
        found = [(claim.entry.id, claim.entry.data["n"]) for claim in batch.claims]
        if found != [(one.id, one.data) for one in wanted]:
            raise Difference("claim", f"cursor {number} got {found}, not {[(one.id, one.data) for one in wanted]}")
        if [one not in batch.lost for one, was in zip(ended, gone, strict=True) if was] != [True] * sum(gone):
            raise Difference("claim", f"a claim that was done is lost: {batch.lost}")
        self.passes[number] = handed_out
        for claim, entry in zip(batch.claims, wanted, strict=True):
            if claim.fence <= self.fence:
                raise Difference("fence", f"{claim.fence} after {self.fence}")
            self.fence = claim.fence
            self.model.claimed(self.now, entry, claim.fence, f"w{number}")
            self.claims[self.slot_of(claim)] = claim
        self.check_next(number, batch, limit or 1)

    def check_next(self, number: int, batch: Any, limit: int) -> None:
        """W36: a cursor that sleeps until then misses nothing."""
        if self.model.paused or len(batch.claims) >= limit:
            return
        first = self.model.next_date(self.now)
        later = round(self.model.settings["slow_pause_s"] * US) if first is not None and first <= self.now else 0
        if first is not None and (batch.next_date is None or batch.next_date > first + max(later, US)):
            raise Difference("next_date", f"cursor {number} is told {batch.next_date}; the first date is {first}")

    def slot_of(self, claim: Any) -> int:
        return int(claim.fence) % 4

    def claim_in(self, slot: int) -> Any:
        return self.claims.get(slot or 0)

    def do_done(self, slot: int) -> None:
        claim = self.claim_in(slot)
        if claim is None:
            return
        wanted = claim.fence in self.over or self.done_by(claim)  # again on the same claim: quiet (W45)
        self.lost("done", claim, wanted, claim.done)

    def done_by(self, claim: Any) -> bool:
        """Whether this call ends the entry, by the model."""
        done = self.model.done(claim.entry.id, claim.fence)
        if done:
            self.over.add(claim.fence)
        return done

    def lost(self, what: str, claim: Any, wanted: bool, call: Callable[[], Any]) -> None:
        """A call on a claim raises `LeaseLost` exactly where the model says so."""
        try:
            call()
            found = True
        except LeaseLost:
            found = False
        if found != wanted:
            raise Difference(what, f"{what} of {claim} {'worked' if found else 'is LeaseLost'}, which is wrong")

    def do_done_many(self, slots: list[int]) -> None:
        claims = [self.claims[slot] for slot in dict.fromkeys(slots or []) if slot in self.claims]
        wanted = ["done" if self.done_by(claim) else "lost" for claim in claims]
        found = self.journal(0).done_many(claims)
        if found != wanted:
            raise Difference("done_many", f"{claims} gave {found}, not {wanted}")

    def do_done_tx(self, slot: int, commit: bool) -> None:
        """W71: the effect and the end of the claim, or neither."""
        claim = self.claim_in(slot)
        if claim is None:
            return
        before = self.saved()
        wanted = self.model.done(claim.entry.id, claim.fence)
        with self.place.transaction(commit=bool(commit)) as tx:
            try:
                claim.done(tx=tx)
                found = True
                self.place.effect(tx, claim.entry.id)
            except LeaseLost:
                found = False
        if found != wanted:
            raise Difference("done_tx", f"done of {claim} {'worked' if found else 'is LeaseLost'}, which is wrong")
        if found and commit:
            self.effects.append(claim.entry.id)
        elif not commit:
            self.restore(before)

    def do_fail(self, slot: int, delay_s: float | None) -> None:
        claim = self.claim_in(slot)
        if claim is not None:
            wanted = self.model.end(self.now, claim.entry.id, claim.fence, failed=True, delay_s=delay_s)
            self.lost("fail", claim, wanted, lambda: claim.fail("no", delay_s=delay_s))

    def do_release(self, slot: int) -> None:
        claim = self.claim_in(slot)
        if claim is not None:
            wanted = self.model.end(self.now, claim.entry.id, claim.fence, failed=False, delay_s=None)
            self.lost("release", claim, wanted, claim.release)

    def do_heartbeat(self, slot: int) -> None:
        claim = self.claim_in(slot)
        if claim is not None:
            self.lost("heartbeat", claim, self.model.beat(self.now, claim.entry.id, claim.fence), claim.heartbeat)

    # ------------------------------------------------------------ operators, time, processes

    def do_drop(self, process: int, nth: int) -> None:
        ids = [entry.id for entry in self.model.entries]
        id_ = ids[(nth or 0) % len(ids)] if ids else 1
        wanted = self.model.drop(id_)
        try:
            self.journal(process).drop(id_)
            found = True
        except NotFound:
            found = False
        if found != wanted:
            raise Difference("drop", f"drop({id_}) {'worked' if found else 'is NotFound'}, which is wrong")

    def do_analyze(self) -> None:
        self.place.analyze()

    def do_pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds or 0)

    def do_tick(self, process: int) -> None:
        self.journal(process).tick()
        self.model.tick(self.now)

    def letter(self, nth: int) -> Letter | None:
        return self.model.dead[(nth or 0) % len(self.model.dead)] if self.model.dead else None

    def do_requeue(self, process: int, nth: int) -> None:
        letter = self.letter(nth)
        if letter is None:
            return
        self.check_dead()
        found: Any
        try:
            found = self.journal(process).requeue(letter.dead_id)
        except InvalidInput as error:
            found = error
        self.added(f"requeue({letter.dead_id})", found, self.model.requeue(self.now, letter))

    def do_acknowledge(self, process: int, nth: int) -> None:
        letter = self.letter(nth)
        if letter is not None:
            self.check_dead()
            self.journal(process).acknowledge(letter.dead_id)
            letter.acknowledged = True

    def do_pause(self, process: int, on: bool) -> None:
        if on:
            self.journal(process).pause("now")
        else:
            self.journal(process).resume()
        self.model.paused = bool(on)

    def do_declare(self, process: int, settings: dict[str, Any]) -> None:
        """W5: other settings, for later calls of everybody (told within `poll_s`, or by the next look)."""
        self.model.settings = {**self.model.settings, **(settings or {})}
        self.opened[(process or 0) % PROCESSES][0].work(self.declaration())
        for number in range(PROCESSES):  # whoever looks hears of it; this looks, and changes nothing
            with suppress(NotFound):
                self.journal(number).drop(1)

    def do_new_process(self, process: int) -> None:
        """A process is killed: its claims are nobody's, and lapse."""
        number = (process or 0) % PROCESSES
        before, self.opened[number] = self.opened[number], self.open()
        before[0].close()
        for cursor in range(CURSORS):
            if cursor % PROCESSES == number:
                self.cursors[cursor] = self.journal(cursor).cursor(f"w{cursor}")
                self.passes[cursor] = False
        self.claims = {slot: claim for slot, claim in self.claims.items() if claim.journal is not before[1]}

    # ------------------------------------------------------------ checks

    def check(self) -> None:
        """Everything that a user can see."""
        found = [self.shown(entry) for entry in self.journal(0).entries()]
        wanted = [self.should(entry) for entry in self.model.seen(self.now)]
        if found != wanted:
            more = [entry for entry in found if entry not in wanted]
            less = [entry for entry in wanted if entry not in found]
            raise Difference("entries", f"entries() has {more}, not {less} {FIELDS}")
        self.check_dead()

    def shown(self, entry: Any) -> tuple[Any, ...]:
        claimed = entry.status == "P"
        return (
            entry.id, entry.key["k"], entry.data["n"], entry.priority, entry.insertion_date - self.base,
            entry.revised_date - self.base, entry.process_date - self.base, entry.expiration_date and
            entry.expiration_date - self.base, entry.status, entry.timeout_counter, entry.retry_date and
            entry.retry_date - self.base, entry.start_date and entry.start_date - self.base,
            (entry.fence, entry.owner) if claimed else None,
        )  # fmt: skip

    def should(self, entry: Entry) -> tuple[Any, ...]:
        return (
            entry.id, entry.key, entry.data, entry.priority, entry.insertion - self.base, entry.revised - self.base,
            entry.process - self.base, entry.expiration and entry.expiration - self.base, "P" if entry.claimed else "W",
            entry.counter, entry.retry and entry.retry - self.base, entry.start and entry.start - self.base,
            (entry.fence, entry.owner) if entry.claimed else None,
        )  # fmt: skip

    @property
    def base(self) -> int:
        """Return the time (µs) from which dates are counted."""
        return 1_767_225_600 * US

    def check_dead(self) -> None:
        found = self.journal(0).dead()
        shown = sorted((one.id, one.data["n"], one.timeout_counter, one.reason, one.acknowledged) for one in found)
        wanted = sorted((one.entry.id, one.entry.data, one.entry.counter, one.reason, one.acknowledged)
                        for one in self.model.dead)  # fmt: skip
        if shown != wanted:
            raise Difference("dead", f"dead() has {shown}, not {wanted}")
        for letter in self.model.dead:
            letter.dead_id = next(
                one.dead_id for one in found if (one.id, one.data["n"]) == (letter.entry.id, letter.entry.data)
            )

    def drain(self) -> None:
        """Every entry is handed out in the end, once; then nothing is left, and each effect is there once."""
        if self.model.paused:
            self.do_pause(0, False)
        for _ in range(500):
            if not self.model.entries:
                break
            self.do_claim(0, 5, None)
            self.claims = {}
            for entry in [
                one for one in self.model.entries if one.claimed and one.owner == "w0" and one.runs(self.now)
            ]:
                claim = self.journal(0).claim_of(entry.id, entry.fence)
                self.claims[0] = claim
                self.do_done(0)
            self.clock.advance(7)
            self.do_tick(0)
        self.check()
        if self.model.entries:
            raise Difference("drain", f"{self.model.entries} are never handed out")
        if self.effects and self.place.effects() != sorted(self.effects):
            raise Difference("effects", f"{self.place.effects()}, not {sorted(self.effects)}")


FIELDS: Final = (
    "(id, key, data, priority, insertion, revised, process, expiration, status, counter, retry, start, claim)"
)


def run(program: Program, *, servers: Servers | None = None) -> Counter[str]:
    """Run a program; how often each call was made. `Difference` where the product is not as the model."""
    with limits.small(program.limits):
        ran = Run(program, servers=servers)
        ran.run()
    return ran.done
