"""Transfers: money goes from account to account by event groups, while the processor is killed again and again.

Half of the transfers fail on purpose, after they took the money: they are undone. Whatever is killed when, the sum of
all accounts never changes, and every group ends.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from strandline.connect import Strandline, connect
from strandline.group.definition import Group

ACCOUNTS, START = 50, 1000
THREADS = 8
LEASE_S = 2
TAKE = "UPDATE account SET amount = amount - :n WHERE id = :id"
GIVE = "UPDATE account SET amount = amount + :n WHERE id = :id"


class Told(NamedTuple):
    """The result of the transfers."""

    ends: dict[str, int]
    """How many groups ended how."""
    sum_before: int
    sum_after: int
    kills: int

    @property
    def sound(self) -> bool:
        return self.sum_before == self.sum_after and set(self.ends) <= {"committed", "rolled_back", "aborted"}


def transfer(id_: str, from_: int, to: int, amount: int) -> Group:
    """Take, look whether there was enough, give."""
    g = Group(id_)
    g.update("take", TAKE, {"n": amount, "id": from_}, target="bank")
    g.query(
        "enough", "SELECT amount FROM account WHERE id = :id", {"id": from_}, target="bank", depends_on=["take"],
        success="amount >= 0",
    )  # fmt: skip
    g.update("give", GIVE, {"n": amount, "id": to}, target="bank", depends_on=["enough"])
    return g


def play(folder: Path, groups: int, kills: int, *, seed: int = 7, say: Callable[[str], None] = print) -> Told:
    """Transfer money in a bank in this folder, which must be empty."""
    bank, journal = folder / "bank.db", folder / "journal"
    before = _open_bank(bank)
    rng = random.Random(seed)
    with connect(f"sqlite:{journal}") as s:
        made = s.groups(targets={"bank": f"sqlite:{bank}"}, lease_s=LEASE_S)
        amounts = [rng.randrange(1, 50) if n % 2 else 10 * START + n for n in range(groups)]
        pairs = [(rng.randrange(0, ACCOUNTS, 2), rng.randrange(1, ACCOUNTS, 2)) for _ in range(groups)]
        wanted = [transfer(f"t{n}", *pair, amount) for n, (pair, amount) in enumerate(zip(pairs, amounts, strict=True))]
        say(f"{groups} transfers between {ACCOUNTS} accounts with {before} in all; every other one is too large")
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(made.submit, wanted))
        killed = 0
        for _ in range(kills):
            killed += _killed_after(rng.randrange(1, max(2, groups // kills)), bank, journal)
            say(f"the processor was killed; {_ended(s, groups)} of {groups} groups have ended")
        _run(bank, journal).wait()
        ends = Counter(made.get(f"t{n}").state for n in range(groups))
    after = _sum(bank)
    say(f"{dict(ends)}; there is {after} in all accounts, as before" if after == before else f"THE SUM IS {after}")
    return Told(dict(ends), before, after, killed)


def _ended(s: Strandline, groups: int) -> int:
    return sum(
        event.type == "Ended" for n in range(groups) for event in s.journal.read(f"group|t{n}", limit=1, backwards=True)
    )


def _run(bank: Path, journal: Path) -> subprocess.Popen[bytes]:
    arguments = ["group", "run", "--until-idle", "--url", f"sqlite:{journal}", "--target", f"bank=sqlite:{bank}"]
    program = [sys.executable, "-c", "from strandline_command import main; main()", *arguments]
    return subprocess.Popen(  # noqa: S603 (our own interpreter and command)
        [*program, "--set", f"group.lease_s={LEASE_S}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=dict(os.environ),
    )  # fmt: skip


def _killed_after(steps: int, bank: Path, journal: Path) -> bool:
    """Let a processor do so many steps, then kill it; whether there was something to kill."""
    process = _run(bank, journal)
    enough = _steps_done(bank) + steps
    while process.poll() is None and _steps_done(bank) < enough:
        time.sleep(0.002)
    running = process.poll() is None
    if running:
        process.send_signal(signal.SIGKILL)
    process.wait()
    return running


def _steps_done(path: Path) -> int:
    """By the rows that each step leaves."""
    import apsw

    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(10_000)
    try:
        ((found,),) = connection.execute("SELECT count(*) FROM strandline_barrier")
    finally:
        connection.close()
    return int(found)


def _open_bank(path: Path) -> int:
    import apsw

    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.execute("CREATE TABLE account (id integer PRIMARY KEY, amount integer NOT NULL)")
    connection.executemany("INSERT INTO account VALUES (?, ?)", [(n, START) for n in range(ACCOUNTS)])
    connection.close()
    return _sum(path)


def _sum(path: Path) -> int:
    import apsw

    connection = apsw.Connection(str(path))
    ((found,),) = connection.execute("SELECT sum(amount) FROM account")
    connection.close()
    return int(found)
