"""A host in a process of its own that is stopped in a handler's transaction: python -m tests.projection.sleeper …"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import strandline
from strandline.projection import host
from strandline.projection.definition import BySlices, Projection
from strandline.projection.host import Host
from tests.projection.worlds import QUICK

SETTINGS: dict[str, Any] = {**QUICK, "lease_s": 1, "handler_timeout_s": 2}


def main(url: str, table: str, dialect: str) -> None:
    host.LOOK_S = 0.1  # type: ignore[misc]
    mark, asleep = "?" if dialect == "sqlite" else "%s", [False]

    def handle(tx: Any, event: Any) -> None:
        values = ", ".join([mark] * 4)
        place = (str(event.key), event.life, event.seq_nr, "sleeper")
        tx.execute(f"insert into {table} (key, life, seq_nr, by_whom) values ({values})", place)
        if event.seq_nr == 2 and not asleep[0]:
            asleep[0] = True
            os.kill(os.getpid(), signal.SIGSTOP)

    with strandline.connect(url) as s:
        Host(s, [Projection("totals", BySlices("order"), handle, **SETTINGS)]).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
