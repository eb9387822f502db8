"""A writer: a process that works through its day with the public API, and keeps a ledger of it.

    python -m strandline.testing.shop.writer FOLDER TARGET SEED WRITER ORDERS RATE_PER_S

Its parent sends how much of the day it may do, as a share of 1. Killed and started again it goes on where its ledger
ends. A call without an answer is made again if that is safe: with its append id, or because a delete or a purge may be
repeated. A plain append is not; nobody knows what became of it, and the ledger says so.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import strandline
from strandline import Event, SeqNrConflict, StrandlineError, Unavailable
from strandline.pipeline.target import JournalRef
from strandline.testing.shop.ledger import Entry, LedgerWriter, path_of
from strandline.testing.shop.orders import APPEND, DELETE, PURGE, STALE, Call, day

T = TypeVar("T")
ATTEMPTS_MAX = 1000
BEHIND_S_MAX = 1.0
SLOW_FROM, SLOWEST = 0.08, 0.1
PAUSE_S = 0.05


class Gate:
    """How much of its day a writer may do."""

    def __init__(self, tasks: int) -> None:
        self._tasks, self._allowed = tasks, 0
        self._moved = threading.Condition()

    def allow(self, share: str) -> None:
        """The parent's word."""
        with self._moved:
            self._allowed = round(float(share) * self._tasks)
            self._moved.notify_all()

    def obey(self) -> None:
        """Take the parent's word for as long as it comes."""
        # Bare reads: a thread that waits inside sys.stdin would hold up the end of the interpreter.
        rest = b""
        while data := os.read(0, 4096):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self.allow(line.decode())

    def wait(self, task: int) -> None:
        """Return when this task may be done."""
        with self._moved:
            self._moved.wait_for(lambda: task < self._allowed)

    def pace(self, task: int) -> float:
        """Full pace is 1; close before the gate slower, so that there is little to see of it."""
        if self._allowed >= self._tasks:
            return 1.0
        return max(SLOWEST, min(1.0, (self._allowed - task) / (SLOW_FROM * self._tasks)))


class Writer:
    """One writer at work."""

    def __init__(self, journal: strandline.Journal, ledger: LedgerWriter, calls: list[Call]) -> None:
        self._journal, self._ledger, self._calls = journal, ledger, calls
        self.known: dict[str, int] = {}
        for entry in ledger.entries:
            self._learn(entry)

    def work(self, gate: Gate, rate_per_s: float) -> None:
        """Do what is left of the day, at most so fast."""
        task = self._resume()
        due = time.monotonic()
        while task < len(self._calls):
            gate.wait(task)
            due = max(due + 1 / (rate_per_s * gate.pace(task)), time.monotonic() - BEHIND_S_MAX)
            time.sleep(max(0.0, due - time.monotonic()))
            self._do(task, self._calls[task])
            task += 1

    def _resume(self) -> int:
        """The first task that is still to be done; what a kill cut off is settled."""
        if not self._ledger.entries:
            return 0
        last = self._ledger.entries[-1]
        call = self._calls[last.task]
        if last.answer is None and last.do == APPEND and last.append_id is None:
            self._ledger.told(last.number, unknown="killed")
        elif not _settles(last, call):
            self._do(last.task, call, again=last if last.answer is None else None)
        return last.task + 1

    def _do(self, task: int, call: Call, again: Entry | None = None) -> None:
        if call.do == APPEND:
            self._append(task, call, again)
        elif call.do == DELETE:
            self._again_and_again(lambda: self._delete(task, call))
        elif call.do == PURGE:
            self._again_and_again(lambda: self._purge(task, call))

    def _delete(self, task: int, call: Call) -> None:
        number = self._ledger.mean(task, DELETE, call.key, to=call.to)
        deleted = self._journal.delete(call.key, to=call.to)
        self._ledger.told(number, delete_to=None if deleted is None else deleted.delete_to)

    def _purge(self, task: int, call: Call) -> None:
        number = self._ledger.mean(task, PURGE, call.key)
        self._journal.purge(call.key)
        self._ledger.told(number, purged=True)
        self.known[call.key] = 0

    def _again_and_again(self, do: Callable[[], T]) -> T:
        """Do what may be repeated until it is done; a call that failed has no answer in the ledger."""
        for _ in range(ATTEMPTS_MAX):
            try:
                return do()
            except Unavailable:
                time.sleep(PAUSE_S)
        return do()

    def _append(self, task: int, call: Call, again: Entry | None) -> None:
        """Append; after a conflict from where the journal really is, after silence with the same id."""
        expected = again.expected if again is not None else self._expected(call)
        left = 2 if call.twice else 1
        for _ in range(ATTEMPTS_MAX):
            number = self._ledger.mean(task, APPEND, call.key, events=call.events, expected=expected, id=call.append_id)
            try:
                done = self._journal.append(
                    call.key,
                    [Event(type_, payload, tags=_tags(payload)) for type_, payload in call.events],
                    expected=expected,
                    append_id=None if call.append_id is None else UUID(call.append_id),
                )
            except SeqNrConflict as error:
                self._ledger.told(number, refused=error.name, actual=error.actual)
                if call.expected == STALE or (again is not None and self._was_recorded(again)):
                    return
                expected = error.actual
            except Unavailable as error:
                self._ledger.told(number, **{"unknown" if error.applied == "unknown" else "refused": error.name})
                if error.applied == "unknown" and call.append_id is None:
                    return
                time.sleep(PAUSE_S)
            else:
                if done.first is None:  # it is recorded, and nobody could say in time as what
                    self._ledger.told(number, unknown="recorded")
                    return
                self._ledger.told(
                    number, first=done.first, last=done.last, duplicate=done.duplicate, timestamp=done.timestamp
                )
                self.known[call.key] = max(self.known.get(call.key, 0), done.last or 0)
                left -= 1
                if not left:
                    return
        raise Unavailable(
            f"{call.key}: {ATTEMPTS_MAX} appends in vain", code="overloaded", hint="see this writer's ledger"
        )

    def _was_recorded(self, cut_off: Entry) -> bool:
        """Whether a call that a kill cut off is in the journal: ids are remembered for a while, not for ever."""
        from_ = (cut_off.expected or 0) + 1
        recorded = self._again_and_again(lambda: list(self._journal.read(cut_off.key, from_=from_)))
        if not any(str(event.append_id) == cut_off.append_id for event in recorded):
            return False
        self._ledger.told(cut_off.number, unknown="killed, found in the journal")
        return True

    def _expected(self, call: Call) -> int | None:
        if call.expected is None:
            return None
        return max(0, self.known.get(call.key, 0) - (call.expected == STALE))

    def _learn(self, entry: Entry) -> None:
        if entry.accepted and entry.answer is not None:
            self.known[entry.key] = max(self.known.get(entry.key, 0), entry.answer["last"])
        elif entry.refused and entry.answer is not None and "actual" in entry.answer:
            self.known[entry.key] = entry.answer["actual"]
        elif entry.do == PURGE:
            self.known[entry.key] = 0


def _settles(entry: Entry, call: Call) -> bool:
    """Whether a task needs nothing more after this entry."""
    if entry.answer is None:
        return False
    if entry.refused:
        return call.expected == STALE
    if entry.accepted and call.twice:
        return bool(entry.answer["duplicate"])
    return True


def _tags(payload: dict[str, object]) -> list[str]:
    return [str(payload["region"])] if "region" in payload else []


def main() -> int:
    """The process: listen, connect, work."""
    folder, target, seed, number, orders, rate_per_s = sys.argv[1:]
    ledger = LedgerWriter(path_of(Path(folder), int(number)))
    calls = day(int(seed), int(number), int(orders))
    gate = Gate(len(calls))
    threading.Thread(target=gate.obey, name="gate", daemon=True).start()
    try:
        with JournalRef.from_json(target).connect() as s:
            Writer(s.journal, ledger, calls).work(gate, float(rate_per_s))
    except StrandlineError as error:
        sys.stderr.write(f"{error.name}: {error}\n")
        return error.exit_code
    finally:
        ledger.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
