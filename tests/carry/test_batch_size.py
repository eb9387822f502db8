"""How much a task holds before it commits: bytes, events, and the rows that tags make."""

from __future__ import annotations

import pytest

import strandline
from strandline import Event
from strandline.record import encode_header, tag_count
from strandline.testing import carry
from strandline.testing.store_contract.made import KEY
from strandline.values.actions import Append


@pytest.mark.req("J86")
@pytest.mark.parametrize(
    ("key", "events"),
    [
        ("order|1", [("A", ())]),
        ("order|1", [("A", ("x",))]),
        ("order|1", [("A", ("x", "y", "z"))]),
        ('or,["der|"1","2', [('A","', ('x","', ',["')), ("B", ()), ("C", ("x",))]),
    ],
)
def test_tags_are_counted_without_reading_headers(key: str, events: list[tuple[str, tuple[str, ...]]]) -> None:
    header = encode_header(Append(key, tuple(events), "0" * 32, False, "1" * 32))
    assert tag_count(header * 3, 3, 3 * len(events)) == 3 * sum(len(tags) for _, tags in events)


@pytest.mark.req("J86")
@pytest.mark.parametrize(("tags", "commits"), [(0, 1), (30, 6)])
def test_a_task_commits_when_it_holds_enough_tag_rows(tags: int, commits: int) -> None:
    """300 events are 300 KiB; with 30 tags each 9 MiB more: a commit for each MiB, about."""
    with strandline.connect("memory:", partitions=1, batch_bytes_max=2**20) as s:
        names = [f"t{number}" for number in range(tags)]
        s.journal.append_many([(f"order|{number}", [Event("Placed", number, tags=names)]) for number in range(300)])
        before = s.store.pointers()[0].revision
        carry(s)
        made = s.store.pointers()[0].revision - before
        assert commits <= made <= 2 * commits
        assert s.store.pointers()[0].offset == s.log.newest()[0]
        assert [event.payload for event in s.by_tag("t7")] == list(range(300) if tags else ())


@pytest.mark.req("J86")
def test_one_larger_action_passes() -> None:
    with strandline.connect("memory:", partitions=1, batch_bytes_max=2**20) as s:
        s.journal.append(KEY, [Event("Placed", number, tags=[f"t{n}" for n in range(40)]) for number in range(50)])
        carry(s)
        assert len(list(s.by_tag("t3"))) == 50
