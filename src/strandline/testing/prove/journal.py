"""Programs of a journal: appends, deletes, purges, reads, snapshots, and what the world does meanwhile."""

from __future__ import annotations

import random
import shutil
import tempfile
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final

from strandline import Event as NewEvent
from strandline.errors import Corrupt, InvalidInput, ReadConflict, SeqNrConflict, StrandlineError, Unavailable
from strandline.journal.replay import Wanted, replay_partition
from strandline.testing import carry, limits
from strandline.testing.faults import Crash, crash
from strandline.testing.prove.model import Action, Event, KeyModel, Life, partition_of
from strandline.testing.prove.program import Call, Difference, Program
from strandline.testing.prove.servers import Servers
from strandline.testing.prove.worlds import KAFKA_CASSANDRA, POSTGRES, SQLITE, World, world
from strandline.values.answers import Appended
from strandline.values.heads import Head

KEYS: Final = ("order|1", "order|20", "user|1", "order|日", "user|a|b", "order|2", "order|26", "user|e\u0301")
TAGS: Final = ("red", "Red", "e\u0301te\u0301")
RETENTION_S: Final = 86_400
FAULTY: Final = ("away", "lost", "kill_carry", "kill_archive", "meanwhile")
"""Calls that need something between the product and its log and store."""
SEAMS: Final = tuple(
    f"{when} {where}"
    for where in ("store.look", "store.page", "store.scan", "store.pointers", "log.read", "store.write")
    for when in ("before", "after")
)
"""Where something can happen in the middle of a call."""
REMOVAL: Final = tuple(
    f"{when} store.{what}" for what in ("mark_archived", "remove_archived") for when in ("before", "after")
)
"""Where an archive's removal can be killed."""


# ---------------------------------------------------------------- generator


class Maker:
    """Makes calls at random. Numbers are relative to where the model stands, so that interesting ones are frequent."""

    archives: bool = True
    """Whether events may leave for an archive: what is asked by slices from before them would end with an error."""

    def __init__(self, chance: random.Random, keys: int) -> None:
        self.chance, self.keys = chance, keys
        self._content = 0

    def key(self) -> int:
        return self.chance.randrange(self.keys)

    def near(self) -> int:
        """How far from the last number."""
        return self.chance.choice((-3, -2, -1, -1, 0, 0, 0, 0, 1, 2))

    def append(self) -> dict[str, Any]:
        chance = self.chance
        self._content += 1
        return {
            "key": self.key(),
            "count": chance.choice((1, 1, 1, 2, 3, 5)),
            "content": chance.randint(1, self._content) if chance.random() < 0.1 else self._content,
            "tags": [tag for tag in range(len(TAGS)) if chance.random() < 0.4],
            "expected": self.near() if chance.random() < 0.25 else None,
            "first": chance.choice((-1, 0, 1, 1, 2, 4, 150, 400)) if chance.random() < 0.12 else None,
            "id": chance.randint(1, 4) if chance.random() < 0.3 else None,
            "size": chance.choice((0, 0, 0, 200, 2000)),
            "silent": chance.random() < 0.05,
        }

    def again(self, calls: list[Call]) -> Call:
        """An append with an id once more, or with the same id and another content."""
        given = [how for name, how in calls if name == "append" and how["id"] is not None]
        if not given:
            return ["append", self.append()]
        how = dict(self.chance.choice(given))
        if self.chance.random() < 0.2:
            how["content"] += 1
        return ["append", how]

    def read(self) -> dict[str, Any]:
        chance = self.chance
        return {
            "key": self.key(),
            "from_": chance.choice((None, chance.randint(1, 12))),
            "more": chance.choice((None, None, 0, 1, 4)),
            "limit": chance.choice((None, None, 1, 2, 4)),
            "backwards": chance.random() < 0.4,
        }

    def call(self, calls: list[Call]) -> Call:
        """Any call."""
        chance = self.chance
        makers: list[tuple[float, Callable[[], Call]]] = [
            (20, lambda: ["append", self.append()]),
            (3, lambda: self.again(calls)),
            (3, lambda: ["append_many", {"appends": [self.append() for _ in range(chance.randint(1, 6))]}]),
            (3, lambda: ["burst", {"appends": [self.append() for _ in range(chance.randint(2, 6))]}]),
            (6, lambda: ["delete", {"key": self.key(), "to": self.near(), "reset": chance.random() < 0.15}]),
            (3, lambda: ["purge", {"key": self.key()}]),
            (2, lambda: ["mark", {"key": self.key()}]),
            (8, lambda: ["read", self.read()]),
            (3, lambda: ["begin_read", {"key": self.key(), "slot": chance.randrange(3), "take": chance.randint(0, 3),
                                        "backwards": chance.random() < 0.4, "recover": chance.random() < 0.3}]),
            (3, lambda: ["end_read", {"slot": chance.randrange(3)}]),
            (3, lambda: ["save_snapshot", {"key": self.key(), "at": self.near(), "state": chance.randint(1, 99)}]),
            (2, lambda: ["snapshots", {"key": self.key(), "to": chance.choice((None, 1, 2, 5))}]),
            (1, lambda: ["delete_snapshots", {"key": self.key(), "to": chance.choice((None, 1, 2, 5))}]),
            (2, lambda: ["recover", {"key": self.key()}]),
            (1, lambda: ["keys", {"limit": chance.choice((1, 2, 1000))}]),
            (1, lambda: ["replay", {}]),
            (12, self.carry),
            (4, lambda: ["kill_carry", {"writes": chance.randint(0, 25), "limit": chance.choice((None, 1, 2, 4))}]),
            (3, lambda: ["new_process", {"abandoned": chance.random() < 0.5}]),
            (1.5, lambda: ["away", {"part": chance.choice(("log", "store"))}]),
            (2, lambda: ["back", {}]),
            (1, lambda: ["lost", {}]),
            (3, lambda: ["clock", {"seconds": chance.choice((-7200, -1, 0.000_001, 0.5, 61, 3600, 90_000))}]),
            (1, lambda: ["backup", {}]),
            (1, lambda: ["put_back", {}]),
            (1.5, lambda: ["trim", {}]),
            (1.5 * self.archives, lambda: ["archive", {"back": chance.choice((0, 1, 3, 8))}]),
            (1.5 * self.archives, self.kill_archive),
            (1, lambda: ["damage", {"key": self.key(), "at": self.near()}]),
            (4, self.meanwhile),
        ]  # fmt: skip
        return chance.choices([make for _, make in makers], [weight for weight, _ in makers])[0]()

    def meanwhile(self) -> Call:
        chance = self.chance
        what = chance.choice(("append", "delete", "purge", "carry", "trim"))
        return ["meanwhile", {"point": chance.randrange(len(SEAMS)), "nth": chance.randint(1, 5), "what": what,
                              "key": self.key(), "limit": chance.choice((None, 1, 2, 1000))}]  # fmt: skip

    def kill_archive(self) -> Call:
        chance = self.chance
        place = {"point": chance.randrange(len(REMOVAL)), "nth": chance.randint(1, 3)}
        return ["kill_archive", {"back": chance.choice((0, 1, 3)), **place}]

    def few(self, calls: list[Call]) -> list[Call]:
        """A call; or a few that belong together, as chance alone would seldom bring them."""
        chance = self.chance
        if chance.random() < 0.85:
            return [self.call(calls)]
        kinds = (self.changed_under_a_reader, self.killed_and_read, self.carried_in_part, self.trimmed_under_a_reader,
                 self.carried_under_a_replay, self.snapshot_and_delete)  # fmt: skip
        return chance.choices(kinds, (6, 5, 2, 1, 1, 2))[0](self.key())

    def grown(self, key: int, count: int = 5) -> Call:
        """An append that nothing refuses."""
        return ["append", {**self.append(), "key": key, "count": count, "expected": None, "first": None, "id": None}]

    def changed_under_a_reader(self, key: int) -> list[Call]:
        """A read that is begun, and goes on when its journal is another."""
        chance, slot = self.chance, self.chance.randrange(3)
        between: list[Call] = []
        for _ in range(chance.randint(1, 4)):
            made = chance.choice((
                ["append", {**self.append(), "key": key, "expected": None, "first": None}],
                ["delete", {"key": key, "to": self.near(), "reset": False}],
                ["purge", {"key": key}] if chance.random() < 0.4 else ["trim", {}],
                self.carry(), ["carry", {"partition": None, "limit": None}],
            ))  # fmt: skip
            between.append(made)
        if chance.random() < 0.5:
            return [self.grown(key), self.meanwhile(), ["read", {**self.read(), "key": key}]]
        how = {"backwards": chance.random() < 0.5, "recover": chance.random() < 0.2}
        begin: Call = ["begin_read", {"key": key, "slot": slot, "take": chance.randint(1, 3), **how}]
        return [self.grown(key), *between[:1], begin, *between[1:], ["end_read", {"slot": slot}]]

    def carried_in_part(self, key: int) -> list[Call]:
        """A task carries a range of which another attempt has carried a part since it read it."""
        appends = [self.grown(key, 1) for _ in range(self.chance.randint(2, 4))]
        other = {"what": "carry", "key": key, "limit": self.chance.choice((1, 2)), "nth": self.chance.randint(1, 2)}
        point = SEAMS.index(self.chance.choice(("after log.read", "before store.write")))
        return [*appends, ["meanwhile", {"point": point, **other}], ["carry", {"partition": None, "limit": None}]]

    def trimmed_under_a_reader(self, key: int) -> list[Call]:
        """The log is carried and trimmed under a read that has events of the tail still to come."""
        slot = self.chance.randrange(3)
        appends = [self.grown(key, 1) for _ in range(self.chance.randint(3, 6))]
        begin = {"key": key, "slot": slot, "take": self.chance.randint(1, 2), "backwards": False, "recover": False}
        all_: Call = ["carry", {"partition": None, "limit": None}]
        return [*appends, ["begin_read", begin], all_, ["trim", {}], ["end_read", {"slot": slot}]]

    def killed_and_read(self, key: int) -> list[Call]:
        """A task dies on the way, of appends or of a purge, and everything is read before another one comes."""
        chance = self.chance
        grown = self.grown(key, 2)
        grown[1]["tags"] = list(range(len(TAGS)))
        all_: Call = ["carry", {"partition": None, "limit": None}]
        if chance.random() < 0.3:  # without transactions these are its rows: it dies before the pointer
            return [all_, grown, ["kill_carry", {"writes": 21, "limit": None}], ["replay", {}], *self.looks(), all_]
        purged: list[Call] = [all_, ["purge", {"key": key}]] if chance.random() < 0.4 else []
        killed: Call = ["kill_carry", {"writes": chance.randint(0, 30), "limit": None}]
        return [grown, *purged, killed, *self.looks(), all_]

    def looks(self) -> list[Call]:
        """Return a call that shows everything, or none."""
        return [["replay", {}]] if self.chance.random() < 0.5 else []

    def snapshot_and_delete(self, key: int) -> list[Call]:
        """Delete what is in a snapshot, as services do, and recover from it."""
        at, to = self.chance.choice((0, -1)), self.chance.choice((0, -1, -1, -2))
        more = [self.grown(key, 1)] if self.chance.random() < 0.5 else []
        return [self.grown(key, 3), ["save_snapshot", {"key": key, "at": at, "state": self.chance.randint(1, 99)}],
                ["delete", {"key": key, "to": to, "reset": False}], *more, ["recover", {"key": key}]]  # fmt: skip

    def carried_under_a_replay(self, key: int) -> list[Call]:
        """Somebody appends, and it is carried, after a replay has said where it ends."""
        how = {"point": self.chance.randrange(len(SEAMS)), "nth": self.chance.randint(1, 3), "limit": 1000}
        return [self.grown(key, 2), ["meanwhile", {**how, "what": "append", "key": key}], ["replay", {}]]

    def carry(self) -> Call:
        chance = self.chance
        return ["carry", {"partition": chance.choice((None, None, 0, 1, 2)), "limit": chance.choice((None, 1, 2, 4))}]


def settings_of(chance: random.Random) -> dict[str, Any]:
    """Small settings that any user could give."""
    return {
        "partitions": chance.choice((1, 1, 2, 3)),
        "segment_size": chance.choice((2, 3, 4)),
        "append_ids_kept": chance.choice((1, 2, 3)),
        "bucket_size": chance.choice(("minute", "hour", "day")),
        "read_page": chance.choice((1, 2, 3, 4)),
        "tail_buffer_bytes": chance.choice((0, 700, 3000, 2**20)),
        "group_actions_max": chance.choice((1, 2, 1000)),
        "heads_cache": chance.random() < 0.8,
        "heads_cache_keys_max": chance.choice((1, 2, 3, 1000)),
        "heads_cache_wait_s": chance.choice((0, 1)),
        "batch_actions_max": chance.choice((1, 2, 5, 1000)),
        "batch_bytes_max": chance.choice((1, 3000, 2**20)),
    }


def make(seed: int, on: str, *, part: str = "journal") -> Program:
    """The program of a seed. One of five has the shipped settings and limits."""
    chance = random.Random(f"{part} {on} {seed}")
    defaults = seed % 5 == 4
    settings = {"partitions": chance.choice((1, 2, 3))} if defaults else settings_of(chance)
    maker = Maker(chance, chance.randint(1, 4))
    calls: list[Call] = []
    for _ in range(chance.randint(5, 20 if on == KAFKA_CASSANDRA else 60)):
        calls += maker.few(calls)
    return Program(part, on, analyzed(calls, part, on, seed), settings, {} if defaults else limits.chosen(chance))


def analyzed(calls: list[Call], part: str, on: str, seed: int) -> list[Call]:
    """Return the calls of a program; one of four on a database has that count its rows somewhere among them."""
    chance = random.Random(f"analyze {part} {on} {seed}")
    if on not in (SQLITE, POSTGRES) or chance.random() >= 0.25:
        return calls
    at = chance.randint(0, len(calls))
    return [*calls[:at], ["analyze", {}], *calls[at:]]


# ---------------------------------------------------------------- runner


class Reading:
    """A read that was begun and not ended: what it showed, what it should show, whether anything was removed since."""

    def __init__(self, key: str, events: Iterator[Any], shown: list[Any], wanted: list[Event]) -> None:
        self.key, self.events, self.shown, self.wanted = key, events, shown, wanted
        self.changed = False


class Run:
    """Runs a program on a world and on the model, and compares."""

    def __init__(self, program: Program, *, servers: Servers | None = None, faulty: bool = False) -> None:
        """`faulty`: whether calls to log and store may fail; some calls of a program need that."""
        self.program = program
        faulty = faulty or any(name in FAULTY for name, _ in program.calls)
        self.world: World = world(program.on, program.settings, servers=servers, faulty=faulty)
        fixed = self.world.s.store.settings
        self.partitions = fixed.partitions
        self.keys = {name: KeyModel(name, fixed.segment_size, fixed.append_ids_kept) for name in KEYS}
        self.snapshots: dict[tuple[str, int], dict[int, Any]] = {}
        self.readings: dict[int, Reading] = {}
        self.damaged: set[tuple[str, int, int]] = set()
        self.kept: tuple[Any, ...] | None = None
        self.trimmed = False
        self.torn = False
        """Whether a task died half-way since all was carried: a store without transactions is ahead of its pointers."""
        self.places: dict[int, list[tuple[int, int]]] = {}
        self.lease: Any = None
        """Under which a task carries."""
        self.fired = False
        """Whether something happened in the middle of this call."""
        self.archive_folder: str | None = None
        """Where the archive is, once there is one."""
        self.done: Counter[str] = Counter()

    @property
    def s(self) -> Any:
        return self.world.s

    @property
    def journal(self) -> Any:
        return self.world.s.journal

    @property
    def store(self) -> Any:
        """The store for what the run itself asks: nothing happens in the middle of that."""
        return getattr(self.s.store, "_target", self.s.store)

    @property
    def is_away(self) -> bool:
        return bool(self.world.faults.away)

    def run(self) -> None:
        """All calls, then everything that is left to be seen; `Difference` where something is wrong."""
        try:
            for index, (name, how) in enumerate(self.program.calls):
                try:
                    self.fired = False
                    if name not in CALM:
                        self.world.faults.calm()
                    getattr(self, f"do_{name}")(**how)
                    self.done[name] += 1
                    if name != "meanwhile":
                        self.world.faults.calm()
                    if not self.is_away and name != "meanwhile":
                        self.check(how.get("key"))
                except Difference as difference:
                    raise Difference(difference.kind, difference.message, f"call {index}, {name}: ") from None
                except StrandlineError as error:
                    raise Difference(error.name, str(error), f"call {index}, {name}: ") from error
            self.end()
        finally:
            self.world.close()
            if self.archive_folder is not None:
                shutil.rmtree(self.archive_folder, ignore_errors=True)

    # ------------------------------------------------------------ helpers

    def model(self, key: int | None) -> KeyModel:
        return self.keys[KEYS[key or 0]]

    def content(self, key: int, count: int, content: int, tags: list[int], size: int) -> tuple[Any, ...]:
        """Payload, type and tags of each event, which follow from the arguments."""
        named = tuple(TAGS[tag] for tag in tags)
        pad = f"{size} bytes".ljust(size, "x") if size else ""
        return tuple(
            ([content, index, pad], f"T{(content + index) % 3}", named if index % 2 == 0 else named[:1])
            for index in range(count or 1)
        )

    def asked(self, how: dict[str, Any]) -> tuple[KeyModel, tuple[Any, ...], dict[str, Any]]:
        """The key, the events and the options of an append."""
        model = self.model(how["key"])
        given = self.content(how["key"], how["count"], how["content"] or 0, how["tags"] or [], how["size"] or 0)
        life = model.life()
        at = life.seq_nr if life else 0
        options: dict[str, Any] = {}
        if how["expected"] is not None:
            options["expected"] = max(0, at + how["expected"])
        if how["first"] is not None:
            options["first"] = max(1, at + how["first"])
        if how["id"] is not None:
            options["append_id"] = f"id-{how['id']}"
        if how["silent"]:
            options["numbers"] = False
        return model, given, options

    def events(self, given: tuple[Any, ...]) -> list[NewEvent]:
        return [NewEvent(type_, payload, tags=tags) for payload, type_, tags in given]

    def took_append(
        self, model: KeyModel, given: tuple[Any, ...], options: dict[str, Any], offset: int, at: int
    ) -> None:
        model.took(Action("append", offset, at, 0, options.get("first"), given, options.get("append_id")))

    def judge(self, model: KeyModel, given: tuple[Any, ...], options: dict[str, Any], outcome: Any) -> None:
        """Compare what became of an append with the model, which then takes note of it."""
        silent = not options.pop("numbers", True)
        wanted = model.append_answer(given, **options)
        if isinstance(outcome, Unavailable):
            self.unavailable(model, outcome, wanted[0] == "appended", lambda offset, at: self.took_append(
                model, given, options, offset, at
            ))  # fmt: skip
            return
        if isinstance(outcome, Appended) and outcome.first is None and (self.is_away or silent) and not options:
            self.world.faults.away.clear()  # J38: no verdict came, or was asked for; it is recorded all the same
            head = self.journal.head(model.key)
            if head is None or head.offset != outcome.offset:
                raise Difference("append", f"{model.key} was appended to at {outcome.offset}, its head is {head}")
            outcome = Appended(
                outcome.key, wanted[1], wanted[2], outcome.partition, outcome.offset, head.updated
            )  # fmt: skip
        found = _said(outcome)
        if found[:3] != wanted[:3] or (wanted[0] == "duplicate" and found != wanted):
            raise Difference("append", f"append to {model.key} gave {found}, not {wanted}")
        if isinstance(outcome, Appended) and not outcome.duplicate:
            if outcome.partition != partition_of(model.key, self.partitions):
                raise Difference("append", f"{model.key} went to partition {outcome.partition}")
            at = outcome.timestamp or 0
            self.placed(outcome.partition, outcome.offset, at)
            self.took_append(model, given, options, outcome.offset, at)

    def placed(self, partition: int, offset: int, timestamp: int) -> None:
        """J26: in the order of offsets, timestamps grow."""
        known = self.places.setdefault(partition, [])
        insort(known, (offset, timestamp))
        at = known.index((offset, timestamp))
        around = known[max(0, at - 1) : at + 2]
        if any(one[0] == other[0] or one[1] >= other[1] for one, other in pairwise(around)):
            raise Difference("places", f"places of partition {partition}, by offset and timestamp: {around}")

    def unavailable(self, model: KeyModel, error: Unavailable, changes: bool, took: Callable[[int, int], None]) -> None:
        """A call that failed: where nobody can say whether it took effect, the head does, once all is back."""
        if error.applied == "no":
            if not self.is_away:
                raise Difference("away", f"{model.key}: {error.name} though nothing is away: {error}")
            return
        self.world.faults.away.clear()
        head = self.journal.head(model.key)
        newest = model.actions[-1].offset if model.actions else -1
        if head is not None and changes and head.offset > newest:
            took(head.offset, head.updated)

    # ------------------------------------------------------------ calls

    def do_append(self, **how: Any) -> None:
        model, given, options = self.asked(how)
        outcome = _tried(lambda: self.journal.append(model.key, self.events(given), **options))
        self.judge(model, given, options, outcome)

    def do_append_many(self, appends: list[dict[str, Any]]) -> None:
        self.many()
        # Numbers are relative to what the model says before the call: later ones of a key often do not fit.
        asked = [self.asked({**how, "silent": False}) for how in appends or []]
        outcomes = self.journal.append_many([(m.key, self.events(given), options) for m, given, options in asked])
        for (model, given, options), outcome in zip(asked, outcomes, strict=True):
            self.judge(model, given, options, outcome)

    def do_burst(self, appends: list[dict[str, Any]]) -> None:
        self.many()
        asked = [self.asked({**how, "silent": False}) for how in appends or []]
        futures = [
            _tried(lambda: self.journal.append_future(m.key, self.events(given), **options))  # noqa: B023 (called at once)
            for m, given, options in asked
        ]
        for (model, given, options), future in zip(asked, futures, strict=True):
            outcome = future if isinstance(future, StrandlineError) else _tried(lambda: future.result(30))  # noqa: B023
            self.judge(model, given, options, outcome)

    def many(self) -> None:
        """Before several appends at once: of two that may be there the head tells the last one only."""
        self.world.faults.lost.clear()
        if not self.s.log.exact:
            self.world.faults.away.clear()

    def do_delete(self, key: int, to: int, reset: bool) -> None:
        model = self.model(key)
        life = model.life()
        number = max(1, (life.seq_nr if life else 3) + (to or 0))
        wanted = model.delete_answer(number, reset=bool(reset))
        what = "delete" if life else "reset"
        try:
            done = self.journal.delete(model.key, to=number, reset=bool(reset))
        except Unavailable as error:
            self.unavailable(
                model, error, wanted is not None, lambda offset, at: model.took(Action(what, offset, at, number))
            )
            self.removed(model.key)
            return
        if (None if done is None else done.delete_to) != wanted:
            raise Difference("delete", f"delete of {model.key} to {number} gave {done}, not {wanted}")
        if done is not None:
            model.took(Action(what, done.offset, 0, number))
        self.removed(model.key)

    def do_purge(self, key: int) -> None:
        model = self.model(key)
        life = model.life()
        try:
            done = self.journal.purge(model.key)
        except Unavailable as error:
            self.purge_unknown(model, error, life)
            return
        if done.life != (life.number if life else None):
            raise Difference(
                "purge", f"purge of {model.key} ended life {done.life}, not {life.number if life else None}"
            )
        if life:
            model.took(Action("purge", done.offset, 0))
        self.removed(model.key)

    def purge_unknown(self, model: KeyModel, error: Unavailable, life: Life | None) -> None:
        if error.applied == "no":
            self.unavailable(model, error, False, lambda offset, at: None)
            return
        self.world.faults.away.clear()
        if life and self.journal.head(model.key) is None:
            partition = partition_of(model.key, self.partitions)
            model.took(Action("purge", self.s.log.newest()[partition], 0))
        self.removed(model.key)

    def removed(self, key: str) -> None:
        """Reads under way of this key may now end with a conflict."""
        for reading in self.readings.values():
            reading.changed = reading.changed or reading.key == key

    def do_mark(self, key: int) -> None:
        self.tried(lambda: self.journal.mark(self.model(key).key))

    def tried(self, call: Callable[[], Any]) -> Any:
        """Return what a call gives; None where a part is away."""
        try:
            return call()
        except Unavailable as error:
            if not self.is_away and error.applied == "no":
                raise
        return None

    def do_read(self, key: int, from_: int | None, more: int | None, limit: int | None, backwards: bool) -> None:
        model = self.model(key)
        start = from_ or 1
        how: dict[str, Any] = {"limit": limit, "backwards": bool(backwards)}
        to = None if more is None else start + more
        before = model.read(start, to, **how)
        try:
            found = self.tried(lambda: list(self.journal.read(model.key, from_=start, to=to, **how)))
        except ReadConflict:
            if not self.fired:
                raise
            return
        if found is not None:
            self.same_as_one(model.key, found, before, model.read(start, to, **how))

    def do_begin_read(self, key: int, slot: int, take: int, backwards: bool, recover: bool) -> None:
        model = self.model(key)
        wanted = model.read(backwards=bool(backwards) and not recover)

        def begin() -> Reading:
            if recover:
                recovery = self.journal.recover(model.key)
                events = iter(recovery.events)
                after = self.recovered(model, recovery.snapshot)
                return Reading(model.key, events, list(islice(events, take)), [e for e in wanted if e.seq_nr > after])
            events = self.journal.read(model.key, backwards=bool(backwards))
            # What it shows is decided when the first event is asked for; `take` 0 asks for none yet.
            return Reading(model.key, events, list(islice(events, take)), wanted)

        reading = self.tried(begin)
        if reading is not None and (take or recover):
            self.readings[slot] = reading

    def do_end_read(self, slot: int) -> None:
        reading = self.readings.pop(slot, None)
        if reading is None:
            return
        try:
            found = reading.shown + list(reading.events)
        except ReadConflict:
            if not reading.changed:
                raise
            return
        except Unavailable:
            if not self.is_away:
                raise
            return
        self.same(reading.key, found, reading.wanted)

    # ---------------------------------------------------------------- snapshots

    def do_save_snapshot(self, key: int, at: int, state: Any) -> None:
        model = self.model(key)
        life = model.life()
        number = max(1, (life.seq_nr if life else 0) + (at or 0))
        try:
            self.journal.save_snapshot(model.key, number, {"state": state})
        except InvalidInput as error:
            if error.code != "snapshot_seq_nr" or (life and number <= life.seq_nr):
                raise
            return
        except Unavailable:
            if not self.is_away:
                raise
            return
        if life is None or number > life.seq_nr:
            raise Difference("snapshot", f"a snapshot of {model.key} at {number} was taken")
        self.snapshots.setdefault((model.key, life.number), {})[number] = {"state": state}

    def of_life(self, model: KeyModel) -> dict[int, Any]:
        life = model.life()
        return self.snapshots.get((model.key, life.number), {}) if life else {}

    def snapshots_asked(self, model: KeyModel, to: int | None) -> None:
        wanted = self.of_life(model)
        found = [one.seq_nr for one in self.journal.snapshots(model.key)]
        if found != sorted(wanted):
            raise Difference("snapshots", f"snapshots of {model.key}: {found}, not {sorted(wanted)}")
        last = max((number for number in wanted if to is None or number <= to), default=None)
        loaded = self.journal.load_snapshot(model.key, to=to)
        if (loaded and (loaded.seq_nr, loaded.state)) != (last and (last, wanted[last])):
            raise Difference("snapshot", f"load_snapshot({model.key}, to={to}): {loaded}, not {last}")

    def do_snapshots(self, key: int, to: int | None) -> None:
        if not self.is_away:
            self.snapshots_asked(self.model(key), to)

    def do_delete_snapshots(self, key: int, to: int | None) -> None:
        model = self.model(key)
        wanted = self.of_life(model)
        gone = [number for number in wanted if to is None or number <= to]
        count = self.tried(lambda: self.journal.delete_snapshots(model.key, to=to))
        if count is None:
            return
        for number in gone:
            del wanted[number]
        self.snapshots_asked(model, None)

    def do_recover(self, key: int) -> None:
        model = self.model(key)
        done = self.tried(lambda: _whole(self.journal.recover(model.key)))
        if done is None:
            return
        snapshot, events = done
        after = self.recovered(model, snapshot)
        self.same(model.key, events, [event for event in model.read() if event.seq_nr > after])

    def recovered(self, model: KeyModel, snapshot: Any) -> int:
        """J107: the newest snapshot at or above delete_to; its number, or 0."""
        life = model.life()
        usable = [number for number in self.of_life(model) if life and number >= life.delete_to]
        last = max(usable, default=None)
        if (snapshot and snapshot.seq_nr) != last:
            raise Difference("recover", f"recover({model.key}) has the snapshot {snapshot}, not {last}")
        if snapshot is not None and snapshot.state != self.of_life(model)[snapshot.seq_nr]:
            raise Difference("recover", f"recover({model.key}) has the state {snapshot.state}")
        return last or 0

    # ---------------------------------------------------------------- the world

    def do_carry(self, partition: int | None, limit: int | None) -> None:
        one = None if partition is None else partition % self.partitions
        lease = self.s.store.lease().take("a task")
        self.lease = lease
        try:
            self.tried(lambda: carry(self.s, partition=one, limit=limit, lease=lease))
        finally:
            self.lease = None
            lease.release()

    def do_meanwhile(self, point: int, nth: int, what: str, key: int, limit: int | None) -> None:
        """In the middle of the next call, somebody else does something. Of calls that it would make ambiguous nothing
        is in the middle."""

        def act() -> None:
            self.fired = True
            other = _MEANWHILE.get(what)
            if other is not None:
                getattr(self, f"do_{what}")(**other, key=key or 0)
            if limit is not None or other is None:
                carry(self.s, lease=self.lease, limit=limit)  # in the middle of a carry: the same task once more
            if what == "trim" and self.s.log.exact and self.lease is None:  # no task takes a day
                self.do_trim()

        self.world.faults.meanwhile(SEAMS[(point or 0) % len(SEAMS)], nth or 1, act)

    def do_kill_carry(self, writes: int, limit: int | None) -> None:
        if self.is_away:
            return
        self.world.faults.lost.clear()
        if self.world.kill_carry(writes or 0, limit):
            self.torn = self.torn or not self.world.transactions
        self.restarted()

    def do_new_process(self, abandoned: bool) -> None:
        self.world.faults.away.clear()
        self.world.new_process(abandoned=bool(abandoned))
        self.restarted()

    def restarted(self) -> None:
        self.readings.clear()

    def do_away(self, part: str) -> None:
        self.world.faults.away.add(part or "log")

    def do_back(self) -> None:
        self.world.faults.away.clear()

    def do_lost(self) -> None:
        """The answer to the next commit is lost: made, and nobody is told."""
        if self.world.s.log.exact:
            self.world.faults.lost.add("log")

    def do_clock(self, seconds: float) -> None:
        self.world.clock.advance(seconds or 0)

    def do_analyze(self) -> None:
        self.world.analyze()

    def do_backup(self) -> None:
        if self.is_away or not self.world.keeps_backups:
            return
        snapshots = {whose: dict(found) for whose, found in self.snapshots.items()}
        self.kept = self.world.backup(), snapshots, set(self.damaged), self.torn
        self.trimmed = False

    def do_put_back(self) -> None:
        """A backup of the store, older than the log: what it lacks comes again from the log."""
        if self.kept is None or self.trimmed or self.is_away:
            return
        kept, snapshots, damaged, self.torn = self.kept
        self.world.faults.clear()
        self.world.put_back(kept)
        self.snapshots = {whose: dict(found) for whose, found in snapshots.items()}
        self.damaged = set(damaged)
        self.restarted()

    def do_trim(self) -> None:
        """A day passes, and the log is trimmed up to the pointers, as a pipeline does (J33)."""
        if self.is_away:
            return
        now = self.world.clock.advance(RETENTION_S + 1)
        for pointer in self.s.store.pointers():
            if pointer.offset >= 0:
                keep_after = now - RETENTION_S * 1_000_000
                self.s.log.trim(pointer.partition, to=pointer.offset, pointer=pointer.offset, keep_after=keep_after)
        self.trimmed = True
        if not self.s.log.exact:  # a heads cache that nobody asks ends long before
            self.do_new_process(False)

    def do_archive(self, back: int) -> None:
        """Events leave for an archive: those before one of the last."""
        if self.is_away:
            return
        line = self.s.strandline()
        times = sorted(at for places in self.places.values() for _, at in places if at < line)
        if len(times) > (back or 0):
            from strandline.testing.archive import archive_here

            self.archive_folder = self.archive_folder or tempfile.mkdtemp(prefix="strandline-prove-")
            archive_here(self.s, Path(self.archive_folder), times[-1 - (back or 0)] + 1, rows_a_group=3)
        self.healed()

    def do_kill_archive(self, back: int, nth: int, point: int) -> None:
        if self.is_away:
            return
        self.world.faults.lost.clear()
        self.world.faults.at(REMOVAL[(point or 0) % len(REMOVAL)], crash, nth=nth or 1)
        try:
            self.do_archive(back)
        except Crash:
            self.world.new_process(abandoned=True)
            self.healed()
        finally:
            self.world.faults.clear()
        self.restarted()

    def archived(self, key: str, life: int) -> int:
        """Up to which number a life is in the archive."""
        state = self.store.look(partition_of(key, self.partitions), (key,)).states.get(key)
        return state.archive_to if isinstance(state, Head) and state.life == life else 0

    def healed(self) -> None:
        """What is damaged in the store, and was archived before, is read from the archive once it has left."""
        for whose in [whose for whose in self.damaged if whose[2] <= self.archived(*whose[:2])]:
            self.damaged.discard(whose)
            self.readings.clear()

    def do_damage(self, key: int, at: int) -> None:
        if self.is_away or self.torn:
            return
        model = self.model(key)
        pointer = self.pointers()[partition_of(model.key, self.partitions)]
        life, now = model.life(pointer), model.life()
        if not life or not now or now.number != life.number:
            return
        numbers = [event.seq_nr for event in life.events if event.seq_nr > now.delete_to]
        number = life.seq_nr + (at or 0)
        whose = model.key, life.number, number
        if number <= self.archived(model.key, life.number):
            return
        if number in numbers and whose not in self.damaged and self.world.damage(*whose):
            self.damaged.add(whose)
            self.readings.clear()  # a page that was read before shows it as it was

    def pointers(self) -> list[int]:
        return [pointer.offset for pointer in self.store.pointers()]

    def do_keys(self, limit: int) -> None:
        if not (self.is_away or self.torn):
            self.check_keys(limit or 1)

    def do_replay(self) -> None:
        """J114: a replay gives what reads give."""
        if self.is_away:
            return
        before = {name: model.read() for name, model in self.keys.items()}
        for partition, cut in enumerate(self.s.log.newest()):
            pages = replay_partition(self.s.log, self.s.store, self.s.settings, Wanted(partition, cut=cut), tail=True)
            found: dict[str, list[Any]] = {}
            for page in pages:
                for row in page:
                    found.setdefault(str(row.event.key), []).append(row.event)
            for name, model in self.keys.items():
                if partition_of(name, self.partitions) == partition:
                    # Without transactions it reads another copy of the events than reads do.
                    damaged = self.damaged if self.world.transactions else set()
                    events = sorted(found.get(name, []), key=lambda event: event.seq_nr)
                    after = [event for event in model.read() if event.offset <= cut]
                    self.same_as_one(name, events, before[name], after, damaged)

    # ---------------------------------------------------------------- checks

    def same_as_one(
        self,
        key: str,
        found: list[Any],
        before: list[Event],
        after: list[Event],
        damaged: set[tuple[str, int, int]] | None = None,
    ) -> None:
        """As `same`; where something happened in the middle of the call, as it was before or after."""
        if self.fired:
            with suppress(Difference):
                self.same(key, found, before, damaged)
                return
        self.same(key, found, after, damaged)

    def same(
        self, key: str, found: list[Any], wanted: list[Event], damaged: set[tuple[str, int, int]] | None = None
    ) -> None:
        """Events as a reader sees them."""
        shown = [self.shown(event) for event in found]
        should = [self.should(event, self.damaged if damaged is None else damaged) for event in wanted]
        if shown != should:
            raise Difference("read", f"{key} shows {_all(shown)}, not {_all(should)}")

    def shown(self, event: Any) -> tuple[Any, ...]:
        try:
            payload = event.payload
        except Corrupt:
            payload = "damaged"
        rest = (event.type, tuple(sorted(event.tags))) if payload != "damaged" else ("", ())
        return (str(event.key), event.life, event.seq_nr, event.prev_seq_nr, payload, *rest)

    def should(self, event: Event, damaged: set[tuple[str, int, int]]) -> tuple[Any, ...]:
        if (event.key, event.life, event.seq_nr) in damaged:
            return (event.key, event.life, event.seq_nr, event.prev, "damaged", "", ())
        return (event.key, event.life, event.seq_nr, event.prev, event.payload, event.type, tuple(sorted(event.tags)))

    def check(self, key: int | None) -> None:
        """A key reads as it should; without one, all of them."""
        for name in list(self.keys) if key is None else [self.model(key).key]:
            model = self.keys[name]
            if not model.actions:
                continue
            self.same(name, list(self.journal.read(name)), model.read())
            self.check_head(model, self.journal.head(name))

    def check_head(self, model: KeyModel, head: Head | None) -> None:
        life = model.life()
        found = None if head is None else (head.seq_nr, head.delete_to, head.life)
        wanted = None if life is None else (life.seq_nr, life.delete_to, life.number)
        if found != wanted:
            raise Difference("head", f"the head of {model.key} is {found}, not {wanted} (seq_nr, delete_to, life)")

    def settle(self) -> None:
        """Carry everything; the strandline is at or above all of it (J93)."""
        self.world.faults.away.clear()
        self.world.faults.lost.clear()
        carry(self.s)
        self.torn = False
        newest = max((at for places in self.places.values() for _, at in places), default=0)
        if self.s.strandline() < newest:
            raise Difference("strandline", f"it is at {self.s.strandline()}, the newest append at {newest}")

    def end(self) -> None:
        """Everything that a user can see, before and after the rest is carried; then the tables."""
        self.world.faults.away.clear()
        self.world.faults.lost.clear()
        self.world.faults.calm()
        self.fired = False
        for slot in list(self.readings):
            self.do_end_read(slot)
        self.check_all()
        self.settle()
        self.check_all()
        self.check_keys(1000)
        self.check_tables()
        self.do_new_process(False)
        self.check_all()

    def check_all(self) -> None:
        self.check(None)
        for model in self.keys.values():
            if model.actions:
                self.snapshots_asked(model, None)
                for backwards in (False, True):
                    found = list(self.journal.read(model.key, from_=2, limit=2, backwards=backwards))
                    self.same(model.key, found, model.read(2, limit=2, backwards=backwards))
        self.do_replay()

    def check_keys(self, limit: int) -> None:
        """J68: what the store holds, by slice, then bytes; purged ones not."""
        pointers = self.pointers()
        living = [
            name for name, model in self.keys.items() if model.life(pointers[partition_of(name, self.partitions)])
        ]
        types = sorted({name.split("|")[0] for name in living})
        if sorted(self.journal.entity_types()) != types:
            raise Difference("keys", f"entity types {self.journal.entity_types()}, not {types}")
        for entity_type in types:
            found: list[str] = []
            while page := self.journal.keys(entity_type, after=found[-1] if found else None, limit=limit):
                found += [str(key) for key in page]
            mine = [name for name in living if name.split("|")[0] == entity_type]
            wanted = sorted(mine, key=lambda name: (partition_of(name, 1024), name.encode()))
            if found != wanted:
                raise Difference("keys", f"keys of {entity_type}: {found}, not {wanted}")

    def check_tables(self) -> None:
        """After all was carried the tables hold what is to be seen, and nothing else."""
        lives = {name: model.life() for name, model in self.keys.items()}
        events = [(e.key, e.life, e.seq_nr) for life in lives.values() if life for e in life.events]
        tagged = [
            (tag, e.key, e.life, e.seq_nr)
            for life in lives.values() if life
            for e in life.all for tag in e.tags
        ]  # fmt: skip
        progress = {(key, life, tag) for tag, key, life, _ in tagged}
        kept = [(key, life, number) for (key, life), found in self.snapshots.items() for number in found
                if (now := lives[key]) and now.number == life]  # fmt: skip
        ends = {(name, life.number): self.archived(name, life.number) for name, life in lives.items() if life}
        self.table("journal", ("key", "life", "seq_nr"), events, ends)
        self.table("tag_view", ("tag", "key", "life", "seq_nr"), tagged)
        self.table("tag_place", ("tag", "key", "life", "seq_nr"), tagged)
        self.table("tag_progress", ("key", "life", "tag"), list(progress))
        self.table("snapshot", ("key", "life", "seq_nr"), kept)
        self.table("slice_view", ("key", "life", "seq_nr"), events, ends)
        self.table("quarantine", ("partition", "log_offset"), [])

    def table(
        self,
        name: str,
        columns: tuple[str, ...],
        wanted: list[tuple[Any, ...]],
        archived: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        """Compare a table; rows of events that are `archived` may be there or not."""
        try:
            found = self.world.rows(name, columns)
        except KeyError:  # this store has no such table
            return
        if archived and found is not None:
            found = [row for row in found if row[2] > archived.get((row[0], row[1]), 0)]
            wanted = [row for row in wanted if row[2] > archived.get((row[0], row[1]), 0)]
        if found is not None and sorted(found) != sorted(wanted):
            more, less = set(found) - set(wanted), set(wanted) - set(found)
            raise Difference(
                f"table {name}", f"table {name} has {sorted(more)} too many, lacks {sorted(less)}, {columns}"
            )


_MEANWHILE: Final[dict[str, dict[str, Any]]] = {
    "append": {"count": 2, "content": 77, "tags": [0, 1, 2], "expected": None, "first": None, "id": None, "size": 0,
               "silent": False},
    "delete": {"to": -1, "reset": False},
    "purge": {},
}  # fmt: skip
"""What somebody else does in the middle of a call; without one of these, carry."""
CALM: Final = ("read", "replay", "carry", "take", "current", "meanwhile")
"""Calls in the middle of which something may happen: they change nothing that an answer would tell."""


def _whole(recovery: Any) -> tuple[Any, list[Any]]:
    return recovery.snapshot, list(recovery.events)


def _tried(call: Callable[[], Any]) -> Any:
    """Return what a call gives, or the error that a caller must expect."""
    try:
        return call()
    except (SeqNrConflict, InvalidInput, Unavailable) as error:
        return error


def _said(outcome: Any) -> tuple[Any, ...]:
    """The outcome of an append in the words of the model."""
    if isinstance(outcome, Appended):
        if outcome.duplicate:
            return ("duplicate", outcome.first, outcome.last, outcome.offset)
        return ("appended", outcome.first, outcome.last)
    if isinstance(outcome, SeqNrConflict):
        return (outcome.code, outcome.actual)
    words = {"append_id_reused": "reused", "seq_nr_range": "range"}
    return (words.get(getattr(outcome, "code", ""), repr(outcome)),)


def brief(event: tuple[Any, ...]) -> str:
    """An event as a message says it: key, life, number, the number before, payload."""
    key, life, seq_nr, prev, payload, *_ = event
    return f"{key}#{life}.{seq_nr}<{prev}={payload[:2] if isinstance(payload, list) else payload}"


def _all(events: list[tuple[Any, ...]]) -> str:
    return f"[{', '.join(map(brief, events))}]"


def run(program: Program, *, servers: Servers | None = None) -> Counter[str]:
    """Run a program; how often each call was made. `Difference` where the product is not as the model."""
    with limits.small(program.limits):
        ran = Run(program, servers=servers)
        ran.run()
    return ran.done
