"""A small journal, carried once: what a JVM loads for that is what later ones have ready (`classes.py`).

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
"""For as long a JVM may take to end: it keeps its classes then."""


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
