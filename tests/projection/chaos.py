"""A projection that everything happens to: what its hosts run, in this process, in others, and on Spark.

python -m tests.projection.chaos URL TABLE DIALECT      a host of its own, until it is killed
"""

from __future__ import annotations

import random
import sys
import threading
from typing import Any
from uuid import uuid4

import strandline
from strandline.projection import host
from strandline.projection.definition import BySlices, Projection
from strandline.projection.host import Host

_HERE = threading.local()
LOOK_S = 0.1


class Unsteady:
    """Writes each event down with the claim that it runs under, and fails now and then."""

    def __init__(self, table: str, dialect: str, fails: float) -> None:
        self.table, self.mark, self.fails = table, "?" if dialect == "sqlite" else "%s", fails

    def start(self, context: Any) -> None:
        where = "task" if "pyspark.worker" in sys.modules else "host"
        _HERE.claim = f"{where} {uuid4().hex}"

    def handle(self, tx: Any, event: Any) -> None:
        values = ", ".join([self.mark] * 4)
        tx.execute(
            f"insert into {self.table} (key, life, seq_nr, by_whom) values ({values})",
            (str(event.key), event.life, event.seq_nr, _HERE.claim),
        )
        if random.random() < self.fails:  # after its write: that must be undone
            raise ValueError("unsteady")


def unsteady(table: str, dialect: str, fails: float = 0.02, **settings: Any) -> Projection:
    """Parks a key whose event fails twice."""
    quick = {
        "refresh_interval_s": 0.02, "retry_delay_s": 0.001, "restart_min_s": 0.01, "restart_max_s": 0.05,
        "save_after": 7, "page_size": 20, "lease_s": 2, "delete_after_s": 1, "delete_interval_s": 1,
    }  # fmt: skip
    chosen = {**quick, "on_failure": "park", "retries": 1, "parked_keys_max": 1000, **settings}
    return Projection("totals", BySlices("order"), Unsteady(table, dialect, fails), **chosen)


def main(url: str, table: str, dialect: str) -> None:
    host.LOOK_S = LOOK_S  # type: ignore[misc]
    with strandline.connect(url) as s:
        Host(s, [unsteady(table, dialect)]).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
