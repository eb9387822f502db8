"""Runs the programs of many seeds, and makes those that show a difference smaller."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Final

from strandline.errors import InvalidInput
from strandline.testing.prove import groups, journal, projections, queries, work, worlds
from strandline.testing.prove.program import Difference, Program
from strandline.testing.prove.shrink import shrink
from strandline.testing.rare import counting

PARTS: Final[dict[str, ModuleType]] = {
    "journal": journal, "queries": queries, "projections": projections, "work": work, "groups": groups,
}  # fmt: skip
SHRINK_TRIES: Final = 400
FAILURES_MAX: Final = 20


@dataclass
class Failure:
    """A program that showed a difference, as small as it could be made."""

    seed: int | None
    kind: str
    message: str
    program: Program


@dataclass
class Proof:
    """What was run on one back-end: programs, calls, differences, rare paths."""

    part: str
    on: str
    programs: int = 0
    seconds: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    differing: int = 0
    """Programs that showed a difference; of each kind one is in `failures`."""


def prove(
    part: str,
    on: str,
    seeds: Iterable[int],
    *,
    url: str | None = None,
    tries: int = SHRINK_TRIES,
    failures_max: int = FAILURES_MAX,
    told: Callable[[Proof], None] = lambda proof: None,
) -> Proof:
    """Run the program of each seed. `told` hears of every program that was run. It ends early at so many kinds of
    failures."""
    proof, begun = Proof(part, on), time.monotonic()
    kinds: set[str] = set()
    with counting() as reached:
        for seed in seeds:
            program = PARTS[part].make(seed, on)
            found = difference(program, url=url, calls=proof.calls)
            proof.programs += 1
            proof.seconds = time.monotonic() - begun
            if found is not None:
                proof.differing += 1
                if found[0] not in kinds:
                    kinds.add(found[0])
                    small, message = smallest(program, found, url=url, tries=tries)
                    proof.failures.append(Failure(seed, found[0], message, small))
            proof.reached = reached
            told(proof)
            if len(proof.failures) >= failures_max:
                break
    proof.seconds = time.monotonic() - begun
    return proof


def difference(
    program: Program, *, url: str | None = None, calls: Counter[str] | None = None
) -> tuple[str, str] | None:
    """Run a program; the kind of its failure and the message, or None."""
    try:
        done = PARTS[program.part].run(program, url=url)
    except Difference as error:
        return error.kind, str(error)
    except Exception as error:  # noqa: BLE001 (whatever the product raises is a difference)
        return type(error).__name__, f"{type(error).__name__}: {error}"
    if calls is not None:
        calls.update(done)
    return None


def smallest(
    program: Program, found: tuple[str, str], *, url: str | None = None, tries: int = SHRINK_TRIES
) -> tuple[Program, str]:
    """A smaller program that fails in the same way, and its message."""
    last = [found[1]]

    def fails(smaller: Program) -> bool:
        again = difference(smaller, url=url)
        if again is None or again[0] != found[0]:
            return False
        last[0] = again[1]
        return True

    return shrink(program, fails, tries=tries), last[0]


@contextmanager
def server_for(on: str) -> Iterator[str | None]:
    """The URL of a server for a back-end that needs one; it runs within."""
    if on != worlds.POSTGRES:
        yield None
        return
    try:
        from strandline.servers.postgres import PostgresServer
    except ImportError:
        raise InvalidInput(
            "on postgres: the installed package starts no servers; a checkout of the repository does",
            code="option",
            hint="run it in a checkout, or on sqlite",
        ) from None
    with PostgresServer() as server:
        yield server.url
