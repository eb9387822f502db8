"""What a benchmark is made of: cases, what one round of a side gave, and what all rounds came to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

PAYLOAD_BYTES = 150


class RoundFigure(NamedTuple):
    """The figure of one round of one side, in the case's unit, and what else is worth keeping."""

    value: float
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CaseSettings:
    """How a case is run: in which folder, with what effort."""

    folder: Path
    """Empty, on the disk that is measured, and removed after the round."""
    shared: Path
    """What the case prepared once for all its rounds; not to be changed."""
    quick: bool
    """Only enough work to see that it runs; the figures mean nothing."""
    servers: Mapping[str, str] = field(default_factory=dict)
    """The servers that the case needs, by name, and their addresses."""


Side = Callable[[CaseSettings], RoundFigure]


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison. `theirs` is a side like ours, or a fixed limit."""

    name: str
    peer: str
    """One word, as the line shows it."""
    unit: str
    target: float
    ours: Side
    theirs: Side | float
    on: str = "sqlite"
    """The back-end, or log and store: "kafka-postgres"."""
    prepare: Callable[[CaseSettings], None] | None = None
    """Fills the shared folder, once, before the rounds."""
    rounds: int = 3
    rate: bool = True
    """Whether more is better; else (durations, bytes) less is."""
    on_demand: bool = False
    """Runs only if it is named: it takes long or needs much disk."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What else a reader needs in order to repeat it."""

    @property
    def servers(self) -> list[str]:
        """Which servers must run."""
        return [part for part in self.on.split("-") if part != "sqlite"]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """All rounds of a case."""

    case: Case
    ours: list[RoundFigure]
    theirs: list[RoundFigure]

    @property
    def ours_median(self) -> float:
        return median(sample.value for sample in self.ours)

    @property
    def theirs_median(self) -> float:
        return median(sample.value for sample in self.theirs)

    @property
    def ratio(self) -> float:
        """The ratio of the medians; larger is better."""
        ours, theirs = self.ours_median, self.theirs_median
        return ours / theirs if self.case.rate else theirs / ours

    @property
    def line(self) -> str:
        ours, theirs = (_amount(value, self.case.unit) for value in (self.ours_median, self.theirs_median))
        return f"{self.case.name}: ratio {self.ratio:.2f} (ours {ours}, {self.case.peer} {theirs})"

    def kept(self) -> dict[str, Any]:
        """Everything, as the JSON file keeps it."""
        case = self.case
        return {
            "name": case.name,
            "line": self.line,
            "ratio": self.ratio,
            "target": case.target,
            "reached": self.ratio >= case.target,
            "unit": case.unit,
            "peer": case.peer,
            "on": case.on,
            "settings": case.settings,
            "ours": _kept(self.ours_median, self.ours),
            "theirs": _kept(self.theirs_median, self.theirs),
        }


def _kept(middle: float, samples: list[RoundFigure]) -> dict[str, Any]:
    return {"median": middle, "rounds": [{"value": value, **details} for value, details in samples]}


def _amount(value: float, unit: str) -> str:
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
