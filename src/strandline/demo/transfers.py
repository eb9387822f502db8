"""Transfers: money goes between two banks by event groups, while the processor is killed again and again.

Each bank is a database of its own, which no transaction joins. Half of the transfers fail on purpose, after they took
the money: they are undone. Whatever is killed when, the sum of all accounts never changes, and every group ends.
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
BANKS = ("here", "there")
"""Accounts with an even number are in the first one."""


class TransferResult(NamedTuple):
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
    """Take, give, and look whether there was enough."""
    g = Group(id_)
    g.update("take", TAKE, {"n": amount, "id": from_}, target=BANKS[from_ % 2])
    g.update("give", GIVE, {"n": amount, "id": to}, target=BANKS[to % 2], depends_on=["take"])
    g.query(
        "enough", "SELECT amount FROM account WHERE id = :id", {"id": from_}, target=BANKS[from_ % 2],
        depends_on=["give"], success="amount >= 0",
    )  # fmt: skip
    return g


def play(folder: Path, groups: int, kills: int, *, seed: int = 7, say: Callable[[str], None] = print) -> TransferResult:
    """Transfer money between banks in this folder, which must be empty."""
    for name in BANKS:
        _open_bank(folder, name)
    before = _sum(folder)
    rng = random.Random(seed)
    with connect(f"sqlite:{folder / 'journal'}") as s:
        made = s.groups(targets={name: f"sqlite:{_bank(folder, name)}" for name in BANKS}, lease_s=LEASE_S)
        amounts = [rng.randrange(1, 50) if n % 2 else 10 * START + n for n in range(groups)]
        pairs = [(rng.randrange(0, ACCOUNTS, 2), rng.randrange(1, ACCOUNTS, 2)) for _ in range(groups)]
        wanted = [transfer(f"t{n}", *pair, amount) for n, (pair, amount) in enumerate(zip(pairs, amounts, strict=True))]
        say(f"{groups} transfers between {ACCOUNTS} accounts in two databases; every other one is too large")
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(made.submit, wanted))
        killed = 0
        for _ in range(kills):
            killed += _killed_after(rng.randrange(1, max(2, groups // kills)), folder)
            say(f"the processor was killed; {_ended(s, groups)} of {groups} groups have ended")
        _run(folder).wait()
        ends = Counter(made.get(f"t{n}").state for n in range(groups))
    after = _sum(folder)
    say(f"{dict(ends)}; there is {after} in all accounts, as before" if after == before else f"THE SUM IS {after}")
    return TransferResult(dict(ends), before, after, killed)


def _ended(s: Strandline, groups: int) -> int:
    return sum(
        event.type == "Ended" for n in range(groups) for event in s.journal.read(f"group|t{n}", limit=1, backwards=True)
    )


def _bank(folder: Path, name: str) -> Path:
    return folder / f"{name}.db"


def _run(folder: Path) -> subprocess.Popen[bytes]:
    arguments = ["group", "run", "--until-idle", "--url", f"sqlite:{folder / 'journal'}"]
    for name in BANKS:
        arguments += ["--target", f"{name}=sqlite:{_bank(folder, name)}"]
    program = [sys.executable, "-c", "from strandline_command import main; main()", *arguments]
    return subprocess.Popen(  # noqa: S603 (our own interpreter and command)
        [*program, "--set", f"group.lease_s={LEASE_S}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=dict(os.environ),
    )  # fmt: skip


def _killed_after(steps: int, folder: Path) -> bool:
    """Let a processor do so many steps, then kill it; whether there was something to kill."""
    process = _run(folder)
    enough = _steps_done(folder) + steps
    while process.poll() is None and _steps_done(folder) < enough:
        time.sleep(0.002)
    running = process.poll() is None
    if running:
        process.send_signal(signal.SIGKILL)
    process.wait()
    return running


def _steps_done(folder: Path) -> int:
    """By the rows that each step leaves."""
    return sum(_asked(folder, name, "SELECT count(*) FROM strandline_barrier") for name in BANKS)


def _sum(folder: Path) -> int:
    """Return the sum of all accounts."""
    return sum(_asked(folder, name, "SELECT sum(amount) FROM account") for name in BANKS)


def _asked(folder: Path, name: str, text: str) -> int:
    import apsw

    connection = apsw.Connection(str(_bank(folder, name)))
    connection.set_busy_timeout(10_000)
    try:
        ((found,),) = connection.execute(text)
    finally:
        connection.close()
    return int(found)


def _open_bank(folder: Path, name: str) -> None:
    import apsw

    connection = apsw.Connection(str(_bank(folder, name)))
    connection.pragma("journal_mode", "wal")
    connection.execute("CREATE TABLE account (id integer PRIMARY KEY, amount integer NOT NULL)")
    own = range(BANKS.index(name), ACCOUNTS, 2)
    connection.executemany("INSERT INTO account VALUES (?, ?)", [(n, START) for n in own])
    connection.close()
