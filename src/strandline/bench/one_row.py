"""The smallest stream that Spark can run with Python in it: a source that always has one more row.

What a micro-batch of it costs, into a sink that does nothing, is the floor under any pipeline in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

NAME = "strandline_one_row"


class OneRow(DataSource):
    """Format `strandline_one_row`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "number long"

    def streamReader(self, schema: Any) -> OneRowReader:  # noqa: N802 (Spark's names)
        return OneRowReader()


class OneRowReader(DataSourceStreamReader):
    """One partition, one row a batch."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"number": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        return {"number": start["number"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(end["number"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)
