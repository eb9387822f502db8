"""An archive of Spark's classes, already read and checked: half of what starting a session costs is spared with one.

`python -m strandline.pipeline.archive` makes it once per Java and Spark, in the user's cache (160 to 180 MB). Sessions
use it if it is there. Java checks that it fits what is installed and does without it otherwise, so it is never wrong.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.pipeline.java import Java, find_java
from strandline.pipeline.scripts import cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE_STEP_VERSION = 25  # from here on Java makes and reads its archive with options of its own
WRITE_WAIT_S = 300


def path(java: Java, spark_home: Path) -> Path:
    """Where the archive for this Java and Spark is, or would be."""
    name = hashlib.sha256(f"{java.home} {java.version} {spark_home}".encode()).hexdigest()[:16]
    return cache_folder() / f"spark-{name}.jsa"


def options(java: Java, spark_home: Path) -> list[str]:
    """What tells Java to use the archive, if there is one."""
    try:
        archive = path(java, spark_home)
        if archive.stat().st_uid != os.getuid():
            return []
    except (OSError, RuntimeError):  # none made, or no home
        return []
    option = "-XX:AOTCache" if java.version >= ONE_STEP_VERSION else "-XX:SharedArchiveFile"
    return [f"{option}={archive}", "-Xlog:disable"]  # it would say what does not fit


def make() -> Path:
    """Make the archive from what a small session uses; takes a minute. The process must have no session yet."""
    import pyspark

    from strandline.pipeline import session

    java, spark_home = find_java(), Path(pyspark.__file__).parent
    archive = path(java, spark_home)
    archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)  # a session that used it could not write another
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        aside = Path(folder) / archive.name
        option = "-XX:AOTCacheOutput" if java.version >= ONE_STEP_VERSION else "-XX:ArchiveClassesAtExit"
        spark = session.start("local[2]", conf={"spark.driver.extraJavaOptions": f"{option}={aside} -Xlog:disable"})
        _use(spark, folder, session.UNLOGGED)
        session.end(WRITE_WAIT_S)
        aside.replace(archive)
    return archive


def _use(spark: SparkSession, folder: str, stream_options: Mapping[str, str]) -> None:
    """Load the classes that our jobs load."""

    def same(batches: Any) -> Any:
        yield from batches

    frame = spark.range(0, 100, 1, 2).mapInArrow(same, "id long")
    frame.groupBy((frame.id % 7).alias("rest")).count().orderBy("rest").collect()
    frame.write.parquet(f"{folder}/parquet")
    spark.read.parquet(f"{folder}/parquet").toArrow()
    stream = spark.readStream.format("rate").load().writeStream.foreachBatch(lambda batch, _: batch.collect())
    query = stream.option("checkpointLocation", f"{folder}/checkpoint").options(**stream_options).start()
    query.awaitTermination(3)
    query.stop()


if __name__ == "__main__":
    sys.stdout.write(f"{make()}\n")
