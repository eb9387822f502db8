"""A program for a test to kill: two streams, one stuck in a task, one stuck in the source's planning.

Argument: a folder, where the files `task` and `plan` say that each got stuck, and `fork` has the pid of a fork of the
driver that lives on.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from strandline.pipeline import session


def stay(folder: str, name: str) -> None:
    (Path(folder) / name).touch()
    while True:
        time.sleep(1)


class Stuck(DataSource):
    @classmethod
    def name(cls) -> str:
        return "stuck"

    def schema(self) -> str:
        return "number int"

    def streamReader(self, schema: Any) -> StuckReader:  # noqa: N802 - Spark's name
        return StuckReader(self.options["folder"], self.options["where"])


class StuckReader(DataSourceStreamReader):
    def __init__(self, folder: str, where: str) -> None:
        self.folder, self.where = folder, where

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"at": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        if self.where == "plan":
            stay(self.folder, "plan")
        return {"at": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        stay(self.folder, "task")
        yield pa.record_batch({"number": pa.array([1], pa.int32())})


def main(folder: str) -> None:
    spark = session.start("local[2]", short=True)
    spark.dataSource.register(Stuck)
    for where in ("task", "plan"):
        stream = spark.readStream.format("stuck").option("folder", folder).option("where", where).load()
        writer = stream.writeStream.foreachBatch(lambda frame, _: frame.collect())
        query = writer.option("checkpointLocation", f"{folder}/checkpoint-{where}").start()
        while not (Path(folder) / where).exists() and query.isActive:  # one after the other: PySpark shares much
            time.sleep(0.05)
    fork = os.fork()
    if not fork:
        time.sleep(300)
        os._exit(0)
    named = Path(folder) / "fork.new"
    named.write_text(str(fork))
    named.rename(Path(folder) / "fork")  # never there without its number
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(sys.argv[1])
