"""A program for a test to run: starts sessions that must be refused, one after the other in one JVM, and says why.

Argument: another Python that has the same packages, and one that has none. Prints one JSON object a line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from strandline.errors import Unsupported
from strandline.pipeline import replay, session


def say(name: str, error: Unsupported | None) -> None:
    told = {"case": name, "error": error and error.name, "problems": error and error.problems}
    print(json.dumps({**told, "hint": error and error.hint}), flush=True)


def started(name: str, conf: Mapping[str, str], master: str = "local[1]") -> None:
    try:
        session.start(master, short=True, conf=conf).stop()
    except Unsupported as error:
        say(name, error)
    else:
        say(name, None)


def given(name: str, python: str, conf: Mapping[str, str]) -> None:
    """A session that a user has made."""
    os.environ["PYSPARK_PYTHON"] = python
    theirs = SparkSession.builder.master("local[1]").config(map=dict(conf)).appName("theirs").getOrCreate()
    try:
        session.check(theirs)
    except Unsupported as error:
        say(name, error)
    else:
        say(name, None)
    if "python" in name:
        try:
            replay(theirs, "sqlite:nowhere")
        except Unsupported as error:
            say(f"replay on {name}", error)
    theirs.stop()
    del os.environ["PYSPARK_PYTHON"]


def main(other: str, bare: str) -> None:
    safe = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
    }
    started("ours", {})
    started("speculation", {"spark.speculation": "true"})
    started("page", {"spark.ui.enabled": "true", "spark.ui.port": "0"})
    started("every interface", {"spark.driver.bindAddress": "0.0.0.0"})
    started("cluster", {}, "spark://127.0.0.1:9")
    given("theirs", sys.executable, safe)
    given("theirs, by default", sys.executable, {**safe, "spark.ui.enabled": "true", "spark.ui.port": "0"})
    given("other python", other, safe)
    given("bare python", bare, safe)


if __name__ == "__main__":
    main(*sys.argv[1:])
