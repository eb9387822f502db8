"""Following a journal gives what reading it gives."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from strandline.testing import carry
from tests.journal.test_read import faulty
from tests.journal.worlds import BACKENDS, KEY, events, seq_nrs, world


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.req("J54")
def test_a_follower_gives_what_a_read_gives(backend: str, tmp_path: Path) -> None:
    chance = random.Random(7)
    with world(backend, tmp_path, partitions=1, tail_buffer_bytes=4096) as s:
        follower, heads, from_ = s.journal.follower(KEY), s.journal.follower(KEY), 1
        for _ in range(150):
            act = chance.choice(["append"] * 4 + ["other", "delete", "carry", "purge", "read", "read", "back"])
            if act == "append":
                s.journal.append(KEY, events(*range(chance.choice([1, 1, 2, 5]))))
            elif act == "other":
                s.journal.append("order|other", events(1))
            elif act == "delete" and from_ > 1:
                s.journal.delete(KEY, to=chance.randrange(1, from_ + 1))
            elif act == "carry":
                carry(s)
            elif act == "purge" and chance.random() < 0.3:
                s.journal.purge(KEY)
                from_ = 1
            elif act == "back":
                from_ = chance.randrange(1, from_ + 1)
            limit = chance.choice([1, 2, 3, 100])
            found = follower.read(from_=from_, limit=limit)
            assert found == list(s.journal.read(KEY, from_=from_, limit=limit))
            from_ = found[-1].seq_nr + 1 if found else from_
            assert heads.head() == s.journal.head(KEY)


@pytest.mark.req("J54")
def test_a_follower_folds_what_it_has_folded_no_second_time() -> None:
    s, faults = faulty(read_page=10)
    follower = s.journal.follower(KEY)
    for _ in range(100):
        s.journal.append(KEY, events(1))
    assert seq_nrs(iter(follower.read(from_=1, limit=1000))) == list(range(1, 101))
    before = faults.seen["before log.read"]
    s.journal.append(KEY, events(1))
    assert seq_nrs(iter(follower.read(from_=101, limit=1000))) == [101]
    assert follower.read(from_=102, limit=1000) == []
    assert faults.seen["before log.read"] == before + 1
    assert follower.known == s.journal.head(KEY)
    s.close()
