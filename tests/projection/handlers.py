"""Handlers that travel to the tasks of Spark."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


class Writes:
    """Writes each event into a table, and its key's sum into another. `dies` names a file with what kills a process;
    while the file `holds` is there, events of the key in it do not come to an end."""

    def __init__(
        self,
        table: str,
        dialect: str,
        *,
        dies: Path | None = None,
        fails: str = "",
        takes_s: float = 0.0,
        holds: Path | None = None,
    ) -> None:
        self.table, self.mark, self.dies, self.fails = table, "?" if dialect == "sqlite" else "%s", dies, fails
        self.takes_s, self.holds = takes_s, holds

    def handle(self, tx: Any, what: Any) -> None:
        for event in what if isinstance(what, list) else [what]:
            self._one(tx, event)

    def _one(self, tx: Any, event: Any) -> None:
        place = f"{event.key} {event.seq_nr}"
        if self.dies is not None and self.dies.exists():
            wanted, _, times = self.dies.read_text().partition("*")
            if place == wanted and int(times):
                self.dies.write_text(f"{wanted}*{int(times) - 1}")
                os._exit(9)
        if self.fails and place == self.fails:
            raise ValueError("no")
        time.sleep(self.takes_s)
        while self.holds is not None and self.holds.exists() and self.holds.read_text() == str(event.key):
            time.sleep(0.02)
        values = ", ".join([self.mark] * 4)
        tx.execute(
            f"insert into {self.table} (key, life, seq_nr, by_whom) values ({values})",
            (str(event.key), event.life, event.seq_nr, str(event.payload)),
        )
