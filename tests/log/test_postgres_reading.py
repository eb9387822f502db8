"""Reading a partition in PostgreSQL: what was lost is told, wherever the page begins and however small it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from strandline.backends.postgres.log import PostgresLog
from strandline.errors import MissingEvent
from strandline.testing.log_contract.made import KEY, draft_of, partition_for
from tests.log.postgres_logs import opened, parsed

PARTITION = partition_for(KEY)


@pytest.fixture
def log(url: str) -> Iterator[PostgresLog]:
    with closing(opened(url)) as made:
        made.append([draft_of(KEY, number) for number in range(20)])
        yield made


@pytest.mark.req("RA12", "RA5")
@pytest.mark.parametrize("bytes_max", [None, 2**20])
@pytest.mark.parametrize(
    ("after", "limit", "last"),
    [(3, 100, 9), (4, 100, 9), (4, 2, 6), (6, 100, 9)],
    ids=["in the page", "at its start", "all of it", "from the middle"],
)
def test_a_lost_record_is_found_by_who_reads(
    log: PostgresLog, url: str, after: int, limit: int, last: int, bytes_max: int | None
) -> None:
    with psycopg.connect(url.partition("&schema")[0], autocommit=True) as connection:
        schema = parsed(url).parameters["schema"]
        connection.execute(f'DELETE FROM "{schema}".log_action WHERE log_offset BETWEEN 5 AND 9')
    with pytest.raises(MissingEvent) as missing:
        log.read(PARTITION, after=after, limit=limit, bytes_max=bytes_max)
    assert missing.value.facts == {"partition": PARTITION, "first": max(after + 1, 5), "last": last}
    assert len(log.read(PARTITION, after=9, limit=limit, bytes_max=bytes_max).records) == min(limit, 10)
