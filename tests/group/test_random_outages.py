"""Random groups over three targets that go away and come back, lose answers, and a log that does so, too.

Whatever happens, each group ends when all are back, all of it is there or nothing, and nobody who was asked was asked
again: the process never ended.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any
from uuid import uuid4

import pytest

from strandline.errors import Unavailable
from strandline.group.checks import ask
from strandline.group.core.parts import Hook
from strandline.group.definition import Group
from strandline.group.groups import Groups
from strandline.group.history import ENDS
from strandline.testing.lww import LwwTarget, lww
from tests.group.worlds import SqliteShop, World
from tests.repeats import repeats

ADD = "UPDATE account SET amount = amount + 1 WHERE id = :id"
CALLS = {"run_segment": True, "undo_segment": True, "void": False, "raise_fence": False, "query": False}
CELL_CALLS = {"asked": False, "sent": True, "kinds": False}
"""The calls of a target, and whether one may be done though its answer is lost."""
GROUPS = 30


class Weather:
    """Says which call fails."""

    def __init__(self, rng: random.Random) -> None:
        self.bad = False
        self.begun = Event()
        """A processor has the stream: it has asked a target."""
        self._rng, self._lock = rng, Lock()
        self._away_until: dict[str, float] = {}

    def over(self, thing: Any, call: str, name: str, *, loses: bool) -> None:
        """Let calls of a target, or of the log, fail."""
        real: Callable[..., Any] = getattr(thing, call)

        def perhaps(*given: Any, **more: Any) -> Any:
            if call == "raise_fence":
                self.begun.set()
            with self._lock:
                fails, done = self._fails(name), loses and self._rng.random() < 0.5
            if fails and done:
                real(*given, **more)
            if fails:
                raise Unavailable(f"{name} is away", code="away", hint="wait", applied="unknown" if done else "no")
            return real(*given, **more)

        setattr(thing, call, perhaps)

    def _fails(self, name: str) -> bool:
        now, rng = time.monotonic(), self._rng
        if name != "log" and rng.random() < 0.06:
            self._away_until[name] = now + rng.choice([0, 0.05, 0.2])
        return self.bad and (self._away_until.get(name, 0) > now or rng.random() < 0.03)


class Places:
    """Three targets, and what committed groups have done there."""

    def __init__(self, folder: Path) -> None:
        self.world = World(SqliteShop(folder / "shop.db"))
        self.bank = SqliteShop(folder / "bank.db")
        self.bank.execute("CREATE TABLE account (id integer PRIMARY KEY, amount integer)")
        for n in range(10):
            self.bank.execute("INSERT INTO account VALUES ($1, 0)", (n,))
            self.world.shop.execute("INSERT INTO account VALUES ($1, 'x', 0)", (10 + n,))
        self.name = uuid4().hex
        self.cells: LwwTarget = lww(self.name)
        self.cells.create("CREATE TABLE note (id int, who text, PRIMARY KEY (id))")
        self.asked: Counter[str] = Counter()
        for answer in (True, False):
            self.world.handlers[f"say {answer}"] = partial(self._says, answer)
        self.world.handlers["hook"] = lambda message: None

    def _says(self, answer: bool, message: Any) -> dict[str, Any]:
        self.asked[message.message_id] += 1
        return {"value": answer}

    def groups(self) -> Groups:
        urls = {"shop": self.world.shop.url, "bank": self.bank.url, "cells": f"lww:{self.name}"}
        return self.world.groups(targets=urls, undo_retries=100)

    def random_group(self, n: int, rng: random.Random) -> Group:
        g, names = Group(f"g{n}", post_hook=Hook("hook") if rng.random() < 0.2 else None), list[str]()
        for number in range(rng.randint(1, 5)):
            name, more = f"s{number}", dict[str, Any](depends_on=[one for one in names if rng.random() < 0.4])
            if rng.random() < 0.2:
                more["checks"] = [ask("say True")]
            kind = rng.random()
            if kind < 0.7:
                target, id_ = ("shop", rng.randrange(10, 20)) if kind < 0.35 else ("bank", rng.randrange(10))
                g.update(name, ADD, {"id": id_}, target=target, **more)
            elif kind < 0.9:
                values = {"id": 10 * n + number, "who": g.id}
                g.insert(name, "INSERT INTO note (id, who) VALUES (:id, :who)", values, target="cells", **more)
            else:
                g.empty(name, **more)
            names.append(name)
        if rng.random() < 0.3:
            g.empty("last", depends_on=names, checks=[ask("say False")])
        return g

    def check(self, submitted: list[Group], groups: Groups) -> None:
        wanted, notes = Counter[tuple[str, int]](), dict[int, str]()
        for g in submitted:
            outcome = groups.get(g.id)
            assert outcome.state in ENDS, outcome
            assert outcome.reason != "internal", outcome
            for step in g.made()["steps"] if outcome.state == "committed" else ():
                if step.get("target") == "cells":
                    notes[step["values"]["id"]] = g.id
                elif "target" in step:
                    wanted[step["target"], step["values"]["id"]] += 1
        for target, shop, first in (("shop", self.world.shop, 10), ("bank", self.bank, 0)):
            found = dict(shop.execute("SELECT id, amount FROM account"))
            assert {id_: found[id_] for id_ in range(first, first + 10)} == {
                id_: wanted[target, id_] for id_ in range(first, first + 10)
            }
        assert dict(self.cells.execute("SELECT id, who FROM note")) == notes
        assert max(self.asked.values(), default=1) == 1

    def close(self) -> None:
        self.bank.close()
        self.world.close()


@contextmanager
def running(groups: Groups) -> Iterator[Any]:
    """A processor in a thread, which ends by itself when nothing is left to do."""
    processor, errors = groups.processor(), list[BaseException]()

    def run() -> None:
        try:
            processor.run_until_idle()
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    yield thread
    thread.join(60)
    assert not thread.is_alive(), "it goes on and on"
    assert errors == []


@pytest.mark.req("G47", "G72", "G75", "G20", "S49", "RG1", "RG3")
@pytest.mark.timeout(3600)
@repeats(2, 300)
def test_all_ends_well_when_all_are_back(tmp_path: Path, times: int) -> None:
    for seed in range(times):
        rng = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        places, weather = Places(folder), Weather(rng)
        groups = places.groups()
        submitted = [places.random_group(n, rng) for n in range(GROUPS)]
        for g in submitted:
            groups.submit(g)
        for name in ("shop", "bank", "cells"):
            target = groups.targets.target(name)
            for call, loses in (CELL_CALLS if name == "cells" else CALLS).items():
                weather.over(target, call, name, loses=loses)
        if seed % 2:
            weather.over(groups.journal, "append_reserved", "log", loses=True)
            weather.over(groups.journal, "read", "log", loses=False)
        with running(groups) as thread:
            assert weather.begun.wait(30)
            weather.bad = True
            thread.join(2)
            weather.bad = False
        places.check(submitted, groups)
        places.close()
