"""How rows of tag views go to a server that takes them in batches: grouped, in order, within limits."""

from __future__ import annotations

import pytest

from strandline.backends.cassandra.writing import put_requests
from strandline.store.phases import Put
from strandline.store.tag_view import TAG_VIEW
from strandline.values.buckets import LENGTHS_US
from strandline.values.tag_rows import TagRow

MINUTE = LENGTHS_US["minute"]


def row(number: int, *, tag: str = "red", timestamp: int | None = None, size: int = 10) -> TagRow:
    at = number if timestamp is None else timestamp
    return TagRow(tag, at // MINUTE, at, f"k|{number}", 1, 1, 0, 0, 0, number, 0, bytes(size), 0)


@pytest.mark.req("T24")
def test_batches() -> None:
    """400 rows, limit 150: 3 batches."""
    requests = list(put_requests(Put(TAG_VIEW, [row(n) for n in range(400)]), 150, 10**6))
    assert [len(request.rows) for request in requests] == [150, 150, 100]


@pytest.mark.req("T23")
def test_no_batch_mixes_tags_or_buckets_and_older_buckets_go_first() -> None:
    rows = [row(n, tag=tag, timestamp=(2 - n % 3) * MINUTE + n) for n in range(60) for tag in ("red", "blue")]
    requests = list(put_requests(Put(TAG_VIEW, rows), 150, 10**6))
    assert len(requests) == 6
    sent = []
    for request in requests:
        (place,) = {values[:2] for values in request.rows}
        sent.append(tuple(place))
    assert sent == sorted(sent)
    assert sum(len(request.rows) for request in requests) == len(rows)


@pytest.mark.req("T25")
def test_bytes() -> None:
    """100 rows of 2 kB and one of 200 kB: no batch above the limit, the large one alone."""
    rows = (
        [row(n, size=2000) for n in range(50)] + [row(50, size=200_000)] + [row(n, size=2000) for n in range(51, 101)]
    )
    requests = list(put_requests(Put(TAG_VIEW, rows), 150, 40_960))
    large = [request for request in requests if any(len(values[11]) > 100_000 for values in request.rows)]
    assert [len(request.rows) for request in large] == [1]
    for request in requests:
        if request not in large:
            packed = sum(
                sum(len(v) if isinstance(v, (bytes, str)) else 8 for v in values) + 4 * 14 for values in request.rows
            )
            assert packed <= request.size <= 40_960
