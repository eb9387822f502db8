"""A program: calls, and events of the world, as plain data that can be printed, run again and made smaller."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

Call = list[Any]
"""A name, then its arguments by name: `["append", {"key": 0, "count": 2}]`."""


class Difference(AssertionError):
    """The product did something else than the model. `kind` names what it was in a few words."""

    def __init__(self, kind: str, message: str, at: str = "") -> None:
        super().__init__(f"{at}{kind}: {message}")
        self.kind, self.message = kind, message


@dataclass(frozen=True)
class Program:
    """A program: the back-end, settings and limits that it runs with, and its calls."""

    part: str
    on: str
    calls: list[Call]
    settings: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)

    def with_calls(self, calls: list[Call]) -> Self:
        """Return this program with other calls."""
        return replace(self, calls=calls)

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str) -> Self:
        """Return the program that `to_json` printed."""
        return cls(**json.loads(text))

    def command(self) -> str:
        """Return the command that runs it again."""
        return f"strandline prove {self.part} --program {shlex.quote(self.to_json())}"

    def __str__(self) -> str:
        lines = [f"{self.part} on {self.on}, settings {self.settings}, limits {self.limits}"]
        lines += [f"  {index}: {_shown(call)}" for index, call in enumerate(self.calls)]
        return "\n".join(lines)


def _shown(call: Call) -> str:
    name, how = call
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in how.items() if value is not None)})"
