"""What other processes do to a work journal in tests: `python -m tests.work.child PLACE WHAT ARGUMENTS`."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import strandline
from strandline.errors import LeaseLost
from strandline.work import waking
from strandline.work.claims import Claim
from strandline.work.declaration import WorkDeclaration
from strandline.work.journal import WorkJournal
from strandline.work.worker import Worker
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
    elif what == "each":
        work = world.real()
        print("ready", flush=True)
        sys.stdin.readline()
        with ThreadPoolExecutor(int(arguments[0])) as pool:
            for ids in pool.map(lambda number: each(work, number), range(int(arguments[0]))):
                print(*ids, sep="\n", flush=True)
    elif what == "worker":

        def handle(claim: Claim) -> None:
            print(claim.entry.key["page"], flush=True)
            if claim.entry.key["page"] == "first":
                claim.lost.wait(20)

        with strandline.connect("memory:", work=place) as s:
            Worker(s, {"thumbs": handle}).run()
    elif what == "loop":
        work, number = world.real(), 0
        print("ready", flush=True)
        sys.stdin.readline()
        until = time.monotonic() + float(arguments[0])
        while time.monotonic() < until:
            work.add(**one(f"{os.getpid()} {number}"))
            number += 1
        print(number, flush=True)
    elif what == "exit":
        work = world.real(declaration(poll_s=600.0))
        waking.NOTIFY_S = 2.0
        work.add(**one("later", process_date=2**52))
        print("began", flush=True)
        sys.stdin.readline()
        work.add(**one("a"))
        return  # with nothing closed
    elif what == "add":
        work = world.real(declaration())
        for number in range(int(arguments[0]), int(arguments[1])):
            print(work.add(**one(f"p{number}")).outcome, flush=True)
    world.close()


def work_until_killed(place: str, told: str, declared: WorkDeclaration) -> None:
    """Claim and end entries, and write down each of it before the next.

    A claim with when it was asked for and when it was there; an end that was acknowledged.
    """
    work = World(place).real(declared)
    cursor = work.cursor("child")
    file = os.open(told, os.O_WRONLY | os.O_CREAT)
    while True:
        asked = time.monotonic()
        for claim in cursor.claim(5).claims:
            os.write(file, f"began {claim.entry.id} {claim.fence} {asked} {time.monotonic()}\n".encode())
            outcome = work.done_many([claim])[0]
            os.write(file, f"{outcome} {claim.entry.id} {claim.fence}\n".encode())


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
