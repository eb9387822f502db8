"""A session that shows its page, in a process of its own: where it listens, and what the jobs there are called."""

from __future__ import annotations

import json
import sys
from typing import Any
from urllib.request import urlopen

import psutil

import strandline
from strandline import BySlices, Event, Projection
from strandline.pipeline import project, reconcile, run, session


def does_nothing(tx: Any, event: Any) -> None:
    """Handle an event."""


def main(url: str) -> None:
    told: list[str] = []
    session.show_page(told.append)
    spark = session.start("local[1]", short=True, conf={"spark.ui.port": "0"})
    with strandline.connect(url, partitions=1) as s:
        s.journal.append("order|1", [Event("Placed", 1)])
    run(url, once=True, spark=spark)
    project(url, [Projection("totals", BySlices("order"), does_nothing)], once=True, spark=spark)
    reconcile(url, spark=spark)
    listening = {
        connection.laddr.ip
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }
    with urlopen(f"{told[0]}/api/v1/applications/{spark.sparkContext.applicationId}/jobs", timeout=60) as page:
        names = [job.get("description", job["name"]) for job in json.load(page)]
    print(json.dumps({"told": told, "listening": sorted(listening), "names": names}))
    session.end()


if __name__ == "__main__":
    main(sys.argv[1])
