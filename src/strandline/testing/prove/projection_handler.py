"""The handler that programs of projections run: it writes each event down, and fails, hangs or takes long as told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

from strandline.errors import Corrupt
from strandline.testing.faults import Crash
from strandline.testing.prove.hosts import Stage
from strandline.testing.prove.projection_model import Place


class Effect(NamedTuple):
    """An event that was written down: by which generation, and how often something had gone wrong by then."""

    generation: int
    place: Place
    content: str
    upsets: int


class Told(Protocol):
    """The questions that a handler asks its program."""

    stage: Stage
    upsets: int
    poison: set[Place]
    deadly: set[Place]
    hanging: set[str]
    effects: list[Effect]
    failures: list[tuple[int, Place]]
    takes_s: float
    effect_table: str

    def hangs(self) -> None: ...
    def upset(self) -> None: ...
    def switched(self, tx: Any, old: int, new: int) -> None: ...


class Handler:
    """The handler of one generation."""

    def __init__(self, told: Told, generation: int) -> None:
        self._told, self._generation = told, generation

    def of(self, *, exactly_once: bool, grouped: bool) -> Any:
        """It, with the arguments that its delivery gives."""

        def many(tx: Any, events: list[Any]) -> None:
            upsets = self._told.upsets
            for event in events:
                self._one(tx, event, upsets)

        def handle_one(tx: Any, event: Any) -> None:
            self._one(tx, event, self._told.upsets)

        def handle_list(tx: Any, events: list[Any]) -> None:
            many(tx, events)

        def take_one(event: Any) -> None:
            self._one(None, event, self._told.upsets)

        def take_list(events: list[Any]) -> None:
            many(None, events)

        handle = (handle_list if grouped else handle_one) if exactly_once else (take_list if grouped else take_one)
        return SimpleNamespace(handle=handle, on_switch=self._told.switched)

    def _one(self, tx: Any, event: Any, upsets: int) -> None:
        told, faults = self._told, self._told.stage.faults
        place = str(event.key), event.life, event.seq_nr
        faults.reached("before handler")
        told.stage.sleep(told.takes_s)
        if place[0] in told.hanging:
            told.hanging.discard(place[0])
            told.hangs()
        try:
            content = str(event.payload)
        except Corrupt:
            content = "damaged"
        if tx is not None:
            mark = "?" if tx.dialect == "sqlite" else "%s"
            values = ", ".join([mark] * 5)
            columns = "generation, key, life, seq_nr, content"
            statement = f"INSERT INTO {told.effect_table} ({columns}) VALUES ({values})"  # noqa: S608 (our own table)
            tx.execute(statement, (self._generation, *place, content))
        if place in told.deadly:
            told.failures.append((self._generation, place))
            told.upset()
            raise Crash
        if place in told.poison:  # after its write: that must be undone
            told.failures.append((self._generation, place))
            told.upset()
            raise ValueError("poison")
        if tx is None:
            told.effects.append(Effect(self._generation, place, content, upsets))
        faults.reached("after handler")
