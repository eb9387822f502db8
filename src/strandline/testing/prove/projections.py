"""Programs of projections: hosts that look, run, stop and die; operators; a journal that grows and shrinks meanwhile.

Hosts run step by step (`hosts.py`), so that a program does the same each time. Processes and threads have tests of
their own.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from strandline.testing import limits
from strandline.testing.prove import journal
from strandline.testing.prove.program import Call, Program
from strandline.testing.prove.projection_run import Run
from strandline.testing.prove.projection_world import POINTS, PREFIX, SLOTS
from strandline.testing.prove.servers import Servers
from strandline.testing.prove.worlds import KAFKA_CASSANDRA

KEYS: Final = (0, 1, 3, 5, 6)
"""Of `journal.KEYS`: those of one entity type."""
MEANWHILE: Final = ("append", "delete", "purge", "carry", "pump", "pump", "lapse", "lapse", "pause", "rescale", "anew")


class Maker(journal.Maker):
    """Makes calls of a journal, of hosts and of operators."""

    archives = False

    def key(self) -> int:
        return KEYS[self.chance.randrange(self.keys)] if self.chance.random() < 0.95 else 2

    def append(self) -> dict[str, Any]:
        made = super().append()
        return {**made, "expected": None, "id": None, "silent": False, "size": self.chance.choice((0, 0, 0, 300))}

    def slot(self) -> dict[str, Any]:
        return {"slot": self.chance.randrange(SLOTS)}

    def recorded(self) -> list[Call]:
        """Some events, and all or some of them carried."""
        chance = self.chance
        calls: list[Call] = [["append", self.append()] for _ in range(chance.randint(1, 5))]
        if chance.random() < 0.3:
            calls.append(chance.choice((["delete", {"key": self.key(), "to": self.near(), "reset": False}],
                                        ["purge", {"key": self.key()}])))  # fmt: skip
            calls.append(["append", {**self.append(), "key": calls[-1][1]["key"]}])
        carried: Call = ["carry", {"partition": None, "limit": None}]
        return [*calls, carried if chance.random() < 0.7 else self.carry()]

    def failing(self) -> list[Call]:
        """A key fails, is cut anew, healed, and comes again."""
        chance, key = self.chance, self.key()
        calls: list[Call] = [["poison", {"key": key, "at": chance.choice((1, 1, 2, 3))}]]
        calls += [["append", {**self.append(), "key": key, "count": chance.choice((1, 3))}] for _ in range(2)]
        calls += [["carry", {"partition": None, "limit": None}], ["pump", {"rounds": chance.randint(1, 8)}]]
        between: list[Call] = [
            ["rescale", {"n": chance.choice((1, 2, 3, 7))}], ["kill", self.slot()],
            ["pump", {"rounds": 3}], self.world(),
            ["append", {**self.append(), "key": key}], ["skip", {"key": key, "to": self.near()}], self.arm(),
        ]  # fmt: skip
        calls += chance.sample(between, chance.randint(0, 3))
        calls.append(["heal", {}] if chance.random() < 0.7 else ["pump", {"rounds": 2}])
        nth = {"nth": chance.randrange(3)}
        again: list[Call] = [["unpark", nth], ["unpark", nth], ["redeliver", nth], ["discard", nth], self.arm()]
        return [*calls, *chance.sample(again, chance.randint(1, 4)), ["pump", {"rounds": chance.randint(1, 6)}]]

    def several_failing(self) -> list[Call]:
        """Several keys fail; then all begins elsewhere, and what waits there waits on."""
        chance = self.chance
        calls: list[Call] = [["configure", {"settings": {**host_settings(chance), "on_failure": "park", "retries": 1}}]]
        calls += [["kill", {"slot": 0}], ["host", {"slot": 0}]] if chance.random() < 0.6 else []
        for key in KEYS[: self.keys]:
            calls += [["poison", {"key": key, "at": 1}], ["append", {**self.append(), "key": key, "first": None}]]
        calls += [["carry", {"partition": None, "limit": None}], ["pump", {"rounds": 4}]]
        anew: list[Call] = [["pause", {}], ["pump", {"rounds": 3}], ["set_offset", {"nth": -1}], ["resume", {}]]
        return [*calls, *(anew if chance.random() < 0.6 else [["heal", {}]]), ["unpark", {"nth": 0}]]

    def deadly(self) -> list[Call]:
        """A process dies at an event, again and again."""
        key, slot = self.key(), self.slot()
        calls: list[Call] = [["append", {**self.append(), "key": key}], ["deadly", {"key": key}]]
        again: list[Call] = [["host", slot], ["pump", {"rounds": 2}]]
        return [*calls, ["carry", {"partition": None, "limit": None}], *again * self.chance.randint(3, 9)]

    def hanging(self) -> list[Call]:
        """A handler takes too long."""
        key = self.key()
        calls: list[Call] = [["hang", {"key": key}], ["append", {**self.append(), "key": key, "first": None}]]
        return [*calls, ["carry", {"partition": None, "limit": None}], ["pump", {"rounds": self.chance.randint(1, 4)}]]

    def removed(self) -> list[Call]:
        """Events are removed while they are read."""
        chance, key = self.chance, self.key()
        grown: Call = ["append", {**self.append(), "key": key, "count": 3, "size": 300, "first": None}]
        at = {"point": POINTS.index("before store.page"), "nth": chance.randint(1, 3), "key": key, "limit": 1000}
        what = chance.choice(("delete", "purge"))
        arm: Call = ["meanwhile", {**at, "what": what}]
        return [grown, ["carry", {"partition": None, "limit": None}], arm, ["pump", {"rounds": chance.randint(1, 3)}]]

    def not_given_back(self) -> list[Call]:
        """A range cannot be given back as its projection is paused."""
        again: Call = ["pump", {"rounds": self.chance.randint(1, 3)}]
        return [again, ["pause", {}], ["refuse", {"nth": 2 + self.chance.randint(1, 2)}], again, ["resume", {}], again]

    def many_keys(self) -> list[Call]:
        """More keys than a feed remembers."""
        calls: list[Call] = [["pump", {"rounds": 3}]]
        calls += [["append", {**self.append(), "key": key, "count": 1}] for key in range(8)]
        return [*calls, ["pump", {"rounds": 3}], ["carry", {"partition": None, "limit": 2}], ["pump", {"rounds": 2}]]

    def ahead(self) -> list[Call]:
        """Events that are carried late, partition by partition: a feed brings them first."""
        chance = self.chance
        fed = {**host_settings(chance), "feed": True, "group_size": 2, "on_failure": "skip"}
        for name in ("save_after", "save_within_s"):
            fed.pop(name, None)
        if chance.random() < 0.5:
            fed = {"feed": True, "keys_in_memory_max": chance.choice((1, 2, 3)), "refresh_interval_s": 0.01}
        slot = {"slot": 0}
        calls: list[Call] = [["pump", {"rounds": 3}]]
        if chance.random() < 0.7:
            calls = [["configure", {"settings": fed}], ["stop", slot], ["host", slot], *calls]
        for _ in range(chance.randint(1, 3)):
            calls += [
                ["append", {**self.append(), "count": chance.choice((1, 3, 5))}] for _ in range(chance.randint(2, 6))
            ]
            calls += [["pump", {"rounds": chance.randint(1, 3)}], self.carry(), ["pump", {"rounds": 1}]]
        return calls

    def begun_anew(self) -> list[Call]:
        """An operator stops it, and lets it begin elsewhere."""
        chance = self.chance
        what: Call = chance.choice((
            ["reset", {}], ["set_offset", {"nth": chance.randrange(12)}], ["rename", {}], ["reset", {}],
            ["drop", {"generation": chance.choice((None, None, 2))}], ["set_offset", {"nth": chance.randrange(12)}],
        ))  # fmt: skip
        stopped: list[Call] = [["pause", {}], ["pump", {"rounds": 3}]]
        return [*stopped, *(self.recorded() if chance.random() < 0.3 else []), what, ["resume", {}]]

    def rebuilt(self) -> list[Call]:
        """A generation is built beside the one that serves, and takes its place."""
        chance = self.chance
        calls: list[Call] = [["rebuild", {"ranges": chance.choice((None, 1, 3, 5))}], ["pump", {"rounds": 6}]]
        for _ in range(chance.randint(0, 2)):
            calls += chance.choice((self.recorded(), [self.world()], [self.world()], self.failing()))
        switch: Call = ["switch", {"force": chance.random() < 0.5}]
        lag: list[Call] = [["work", self.slot()], self.arm(), ["kill", self.slot()], *self.recorded()[:2]]
        return [*calls, ["pump", {"rounds": chance.randint(1, 6)}], switch, *chance.sample(lag, chance.randint(0, 3))]

    def arm(self) -> Call:
        """Something that happens at a seam, in the middle of a step."""
        chance = self.chance
        at = {"point": chance.randrange(len(POINTS)), "nth": chance.randint(1, 8)}
        if chance.random() < 0.4:
            return ["kill_at", at]
        what = chance.choice(MEANWHILE)
        return ["meanwhile", {**at, "what": what, "key": self.key(), "limit": chance.choice((None, 1, 1000))}]

    def world(self) -> Call:
        """Something of the world."""
        chance = self.chance
        makers: list[tuple[float, Callable[[], Call]]] = [
            (8, lambda: ["host", self.slot()]),
            (3, lambda: ["stop", self.slot()]),
            (5, lambda: ["kill", self.slot()]),
            (8, self.arm),
            (2, lambda: ["away", {"part": chance.choice(("offsets", "offsets", "store", "log"))}]),
            (2, lambda: ["back", {}]),
            (3, lambda: ["lost_commit", {"nth": chance.randint(1, 6)}]),
            (5, lambda: ["pass_time", {"seconds": chance.choice((0.06, 0.5, 1, 5, 31, 4000, 90_000))}]),
            (1, lambda: ["clock", {"seconds": chance.choice((-7200, 0.000_001, 61, 3600))}]),
            (3, lambda: ["kill_carry", {"writes": chance.randint(0, 25), "limit": chance.choice((None, 1, 4))}]),
            (2, lambda: ["hang", {"key": self.key()}]),
            (2, lambda: ["configure", {"settings": host_settings(chance)}]),
        ]  # fmt: skip
        return chance.choices([make for _, make in makers], [weight for weight, _ in makers])[0]()

    def few(self, calls: list[Call]) -> list[Call]:
        chance = self.chance
        makers: list[tuple[float, Callable[[], list[Call]]]] = [
            (20, self.recorded),
            (12, lambda: [["pump", {"rounds": chance.randint(1, 6)}]]),
            (10, lambda: [["look", self.slot()], ["work", self.slot()]]),
            (16, lambda: [self.world()]),
            (7, self.failing),
            (4, lambda: [["rescale", {"n": chance.choice((1, 2, 3, 5, 1024))}]]),
            (2, lambda: [["pause", {}]]),
            (3, lambda: [["resume", {}]]),
            (3, self.begun_anew),
            (2, self.several_failing),
            (1.5, self.deadly),
            (2, self.hanging),
            (2, self.removed),
            (6, self.ahead),
            (2, self.not_given_back),
            (1.5, self.many_keys),
            (2, self.rebuilt),
            (2, lambda: [["skip", {"key": self.key(), "to": self.near()}]]),
            (3, lambda: [["settle", {}]]),
        ]
        return chance.choices([make for _, make in makers], [weight for weight, _ in makers])[0]()


def host_settings(chance: random.Random) -> dict[str, Any]:
    """Settings of a projection that may be others each time that a host starts."""
    found: dict[str, Any] = {
        "page_size": chance.choice((1, 2, 3, 5)),
        "keys_in_memory_max": chance.choice((1, 2, 3)),
        "on_failure": chance.choice(("fail", "skip", "park", "park")),
        "retries": chance.choice((0, 0, 1, 2)),
        "retry_delay_s": chance.choice((0.001, 0.2)),
        "restart_min_s": chance.choice((0.01, 1)),
        "parked_keys_max": chance.choice((0, 1, 2, 1000, 1000)),
        "lease_s": chance.choice((0.05, 2, 30)),
        "delete_after_s": chance.choice((0, 1, 86_400)),
        "delete_interval_s": chance.choice((0.01, 5)),
        "refresh_interval_s": chance.choice((0.01, 0.25, 3)),
        "feed": chance.random() < 0.45,
        "save_within_s": chance.choice((0.001, 0.5)),
    }
    if chance.random() < 0.35:
        found["group_size"] = chance.choice((1, 2, 3, 5))
        found["group_within_s"] = chance.choice((0.001, 0.5, 3))
        del found["save_within_s"]
    else:
        found["save_after"] = chance.choice((1, 2, 3, 7))
    return {name: value for name, value in found.items() if chance.random() < 0.7 or name == "group_size"}


def make(seed: int, on: str) -> Program:
    """The program of a seed. One of five has the shipped settings and limits."""
    chance = random.Random(f"projections {on} {seed}")
    defaults = seed % 5 == 4
    settings = {"partitions": chance.choice((1, 2, 3))} if defaults else journal.settings_of(chance)
    given = {} if defaults else host_settings(chance)
    source = chance.choice(("slices", "slices", "slices", "slices", "tag", "types"))
    if source == "tag":
        given.pop("feed", None)
    given |= {"source": source, "delivery": chance.choice(("exactly_once", "exactly_once", "at_least_once"))}
    given |= {"beats": chance.random() < 0.5, "takes_s": chance.choice((0, 0, 0.3))}
    given["start"] = chance.choice(("beginning", "beginning", "beginning", "beginning", "beginning", "now"))
    maker = Maker(chance, chance.randint(1, len(KEYS)))
    calls: list[Call] = [["host", {"slot": 0}]]
    for _ in range(chance.randint(4, 10 if on == KAFKA_CASSANDRA else 30)):
        calls += maker.few(calls)
    if defaults:
        calls = [call for call in calls if call[0] != "configure"]
    if source == "tag":
        calls = [[name, {**how, "settings": {**how["settings"], "feed": False}}] if name == "configure" else [name, how]
                 for name, how in calls]  # fmt: skip
    every = {**settings, **{f"{PREFIX}{name}": value for name, value in given.items()}}
    calls = journal.analyzed(calls, "projections", on, seed)
    return Program("projections", on, calls, every, {} if defaults else limits.chosen(chance))


def run(program: Program, *, servers: Servers | None = None) -> Counter[str]:
    """Run a program; how often each call was made. `Difference` where the product is not as the model."""
    named = {name: value for name, value in program.limits.items() if name != "projection.live_feed.WAIT_S"}
    with limits.small({**named, "projection.live_feed.WAIT_S": 0.0, "projection.host.LOOK_S": 1.0}):
        ran = Run(replace(program, limits=named), servers=servers)
        with ran.stage.ruling():
            ran.run()
    return ran.done
