"""The ledger: a plain file per writer that says what it meant to do, and what it was told.

A line before each call, a line after it, as JSON, outside Strandline. Lines go to the operating system one by one, so
a killed writer leaves at most a call without an answer. Whatever is claimed at the end is claimed against these files.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strandline.testing.shop.orders import Made


@dataclass(slots=True)
class Entry:
    """A call that a writer made, and its answer; None where there is none."""

    writer: int
    number: int
    """Of the calls of this writer, from 0."""
    task: int
    """Which call of its day this is; made again after a conflict or a kill it has a new number and the same task."""
    do: str
    key: str
    started: int
    """Nanoseconds of the machine's monotonic clock, which all processes share."""
    events: tuple[Made, ...] = ()
    expected: int | None = None
    append_id: str | None = None
    to: int = 0
    ended: int | None = None
    answer: dict[str, Any] | None = field(default=None)

    @property
    def accepted(self) -> bool:
        """Whether the writer was told that its events are recorded."""
        return self.answer is not None and "first" in self.answer

    @property
    def duplicate(self) -> bool:
        """Whether it was told so, and that they had been before."""
        return self.answer is not None and bool(self.answer.get("duplicate"))

    @property
    def refused(self) -> bool:
        return self.answer is not None and "refused" in self.answer

    @property
    def unknown(self) -> bool:
        """Whether nobody told the writer what became of the call."""
        return self.answer is None or "unknown" in self.answer


def path_of(folder: Path, writer: int) -> Path:
    """Where a writer's ledger is."""
    return folder / f"ledger-{writer}.jsonl"


class LedgerWriter:
    """A ledger that is written to."""

    def __init__(self, path: Path) -> None:
        entries = load(path, 0)
        self.entries = entries
        self._next = len(entries)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if os.fstat(self._file).st_size and not path.read_bytes().endswith(b"\n"):
            os.write(self._file, b"\n")  # a line that was cut off says nothing

    def mean(self, task: int, do: str, key: str, **more: Any) -> int:
        """Say what will be done; the number of the entry."""
        number, self._next = self._next, self._next + 1
        self._write({"n": number, "at": time.monotonic_ns(), "task": task, "do": do, "key": key, **more})
        return number

    def told(self, number: int, **answer: Any) -> None:
        """Say how it was answered."""
        self._write({"of": number, "at": time.monotonic_ns(), **answer})

    def close(self) -> None:
        os.close(self._file)

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")


class LedgerFollower:
    """A ledger that is read while it grows; each call of `entries` takes in what is new."""

    def __init__(self, path: Path, writer: int) -> None:
        self._path, self._writer = path, writer
        self._position = 0
        self._rest = b""
        self.all: list[Entry] = []
        self.answered: list[Entry] = []

    def follow(self) -> list[Entry]:
        """All entries so far."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = self._rest + file.read()
                self._position = file.tell()
        except FileNotFoundError:
            return self.all
        *lines, self._rest = data.split(b"\n")
        for line in lines:
            self._take(line)
        return self.all

    @property
    def open(self) -> Entry | None:
        """The call that is under way, as far as has been followed."""
        return self.all[-1] if self.all and self.all[-1].answer is None else None

    def _take(self, line: bytes) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            return  # cut off by a kill
        if "of" in said:
            entry = self.all[said.pop("of")]
            entry.ended, entry.answer = said.pop("at"), said
            self.answered.append(entry)
            return
        events = tuple((type_, payload) for type_, payload in said.get("events", ()))
        self.all.append(
            Entry(
                self._writer, said["n"], said["task"], said["do"], said["key"], said["at"], events,
                said.get("expected"), said.get("id"), said.get("to", 0),
            )
        )  # fmt: skip


def load(path: Path, writer: int) -> list[Entry]:
    """All entries of a ledger."""
    return LedgerFollower(path, writer).follow()


def by_key(ledgers: Iterable[Sequence[Entry]]) -> dict[str, list[Entry]]:
    """The entries of each key in the order in which the calls were made."""
    keys: dict[str, list[Entry]] = {}
    for ledger in ledgers:
        for entry in ledger:
            keys.setdefault(entry.key, []).append(entry)
    for entries in keys.values():
        entries.sort(key=lambda entry: entry.started)
    return keys
