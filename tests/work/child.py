"""What other processes do to a work journal in tests: `python -m tests.work.child PLACE WHAT ARGUMENTS`."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from strandline.errors import LeaseLost, StrandlineError
from strandline.work.journal import Claim, WorkJournal
from tests.work.worlds import World, declaration, one


def main(place: str, what: str, *arguments: str) -> None:
    world = World(place)
    if what == "claim":
        work = world.real(declaration(lease_s=float(arguments[0])))
        (claim,) = work.cursor("child").claim(1).claims
        print(claim.fence, flush=True)
        sys.stdin.readline()
        try:
            claim.heartbeat()
        except LeaseLost:
            print("lost", flush=True)
        print(work.done_many([claim])[0], flush=True)
    elif what == "drain":
        work = world.real(declaration(lease_s=float(arguments[0]), max_timeouts=0))
        cursor = work.cursor("child")
        print("ready", flush=True)
        while True:
            try:
                for claim in cursor.claim(5).claims:
                    print("began", claim.entry.id, claim.fence, time.monotonic_ns(), flush=True)
                    outcome = work.done_many([claim])[0]
                    print(outcome, claim.entry.id, claim.fence, time.monotonic_ns(), flush=True)
                work.wait(0.05)
            except StrandlineError as error:
                print("error", type(error).__name__, error.code, flush=True)
    elif what == "each":
        work = world.real()
        print("ready", flush=True)
        sys.stdin.readline()
        with ThreadPoolExecutor(int(arguments[0])) as pool:
            for ids in pool.map(lambda number: each(work, number), range(int(arguments[0]))):
                print(*ids, sep="\n", flush=True)
    elif what == "add":
        work = world.real(declaration())
        for number in range(int(arguments[0]), int(arguments[1])):
            print(work.add(**one(f"p{number}")).outcome, flush=True)
    world.close()


def each(work: WorkJournal, number: int) -> list[int]:
    """What one cursor is handed out until nothing is left."""
    cursor, ids, done = work.cursor(f"w{number}"), list[int](), list[Claim]()
    while True:
        done = cursor.claim(20, done=done).claims
        ids += [claim.entry.id for claim in done]
        if not done and not any(work.counts()[:4]):
            return ids


if __name__ == "__main__":
    main(*sys.argv[1:])
