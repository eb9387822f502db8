"""Runs the programs of many seeds, of one part or of several in turn, and makes those with a difference smaller."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import ModuleType
from typing import Final

from strandline.testing.prove import groups, journal, projections, queries, work, worlds
from strandline.testing.prove.program import Difference, Program
from strandline.testing.prove.servers import Servers
from strandline.testing.prove.shrink import shrink
from strandline.testing.rare import counting

PARTS: Final[dict[str, ModuleType]] = {
    "journal": journal, "queries": queries, "projections": projections, "work": work, "groups": groups,
}  # fmt: skip
EVERYWHERE: Final = worlds.ON
BACKENDS: Final[dict[str, tuple[str, ...]]] = {
    "journal": EVERYWHERE, "queries": EVERYWHERE, "projections": EVERYWHERE, "groups": EVERYWHERE,
    "work": (worlds.SQLITE, worlds.POSTGRES),
}  # fmt: skip
"""On what the programs of each part run."""
SHRINK_TRIES: Final = 400
FAILURES_MAX: Final = 20
TURN_S: Final = 10.0
"""So long the programs of one part run, until those of the next have their turn."""


@dataclass
class Failure:
    """A program that showed a difference, as small as it could be made."""

    seed: int | None
    kind: str
    message: str
    program: Program


@dataclass
class Proof:
    """The record of a run on one back-end: programs, calls, differences, rare paths."""

    part: str
    on: str
    next_seed: int = 0
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
    servers: Servers | None = None,
    tries: int = SHRINK_TRIES,
    failures_max: int = FAILURES_MAX,
    told: Callable[[Proof], None] = lambda proof: None,
    proof: Proof | None = None,
    enough: Callable[[], bool] = lambda: False,
) -> Proof:
    """Run the program of each seed. `told` hears of every program that was run. It ends early at so many kinds of
    failures, or where behind a program it is `enough`. With a `proof` it adds to that one."""
    proof = proof or Proof(part, on)
    before, begun = proof.seconds, time.monotonic()
    kinds = {failure.kind for failure in proof.failures}
    with counting() as reached:
        for seed in seeds:
            program = PARTS[part].make(seed, on)
            found = difference(program, servers=servers, calls=proof.calls)
            proof.programs += 1
            proof.next_seed = seed + 1
            if found is not None:
                proof.differing += 1
                if found[0] not in kinds:
                    kinds.add(found[0])
                    small, message = smallest(program, found, servers=servers, tries=tries)
                    proof.failures.append(Failure(seed, found[0], message, small))
            proof.seconds = before + time.monotonic() - begun
            told(proof)
            if len(proof.failures) >= failures_max or enough():
                break
    proof.reached += reached
    return proof


def prove_in_turn(
    pairs: Sequence[tuple[str, str]],
    *,
    first: int = 0,
    programs: int | None = None,
    seconds: float | None = None,
    servers: Servers | None = None,
    told: Callable[[Proof], None] = lambda proof: None,
    turned: Callable[[list[Proof]], None] = lambda proofs: None,
    stopped: Callable[[], bool] = lambda: False,
) -> list[Proof]:
    """Run programs of several parts on several back-ends, from a first seed on: so many of each, or for so long in all.

    With `seconds` each pair has the same time, a few seconds at once and at least one program, so that what ends early
    has some of everything; `turned` hears of all behind each turn. `stopped` is asked behind each program.
    """
    proofs = [Proof(part, on, next_seed=first) for part, on in pairs]
    last = None if programs is None else first + programs
    turn_s, ends = float("inf"), float("inf")
    if seconds is not None:
        turn_s, ends = min(TURN_S, seconds / max(1, len(pairs))), time.monotonic() + seconds

    def over() -> bool:
        return stopped() or (time.monotonic() >= ends and all(proof.programs for proof in proofs))

    going = list(proofs)
    while going and not over():
        proof = going.pop(0)
        turn_ends = time.monotonic() + turn_s
        seeds = count(proof.next_seed) if last is None else range(proof.next_seed, last)
        prove(
            proof.part,
            proof.on,
            seeds,
            servers=servers,
            told=told,
            proof=proof,
            enough=lambda: over() or time.monotonic() >= turn_ends,  # noqa: B023 (asked within this turn)
        )
        if proof.next_seed != last and len(proof.failures) < FAILURES_MAX:
            going.append(proof)
        turned(proofs)
    return proofs


def difference(
    program: Program, *, servers: Servers | None = None, calls: Counter[str] | None = None
) -> tuple[str, str] | None:
    """Run a program; the kind of its failure and the message, or None."""
    try:
        done = PARTS[program.part].run(program, servers=servers)
    except Difference as error:
        return error.kind, str(error)
    except Exception as error:  # noqa: BLE001 (whatever the product raises is a difference)
        return type(error).__name__, f"{type(error).__name__}: {error}"
    if calls is not None:
        calls.update(done)
    return None


def smallest(
    program: Program, found: tuple[str, str], *, servers: Servers | None = None, tries: int = SHRINK_TRIES
) -> tuple[Program, str]:
    """A smaller program that fails in the same way, and its message."""
    last = [found[1]]

    def fails(smaller: Program) -> bool:
        again = difference(smaller, servers=servers)
        if again is None or again[0] != found[0]:
            return False
        last[0] = again[1]
        return True

    return shrink(program, fails, tries=tries), last[0]
