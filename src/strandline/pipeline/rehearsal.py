"""Carry a small journal once. The classes that the JVM loads for it go into the class archive of later JVMs
(`classes.py`).

Argument: options for the JVM.
"""

from __future__ import annotations

import sys
import tempfile

from strandline.connect import connect
from strandline.pipeline import session
from strandline.pipeline.replicate import run
from strandline.values.events import Event

EVENTS = 20
KEPT_WAIT_S = 120
"""How long a JVM may take to end: it writes its class archive at its end."""


def main(java_options: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:{folder}"
        with connect(url) as s:
            s.journal.append("rehearsal|1", [Event("Rehearsed", {"number": number}) for number in range(EVENTS)])
        session.start(conf={"spark.driver.extraJavaOptions": java_options})
        run(url, once=True)
        session.end(KEPT_WAIT_S)


if __name__ == "__main__":
    main(sys.argv[1])
