"""Slices and ranges of slices."""

from __future__ import annotations

import pytest

from strandline import InvalidInput, ranges, slice_of
from strandline.values.keys import SLICES, partition_of
from strandline.values.ranges import Range


@pytest.mark.req("P1")
@pytest.mark.parametrize(
    ("written", "slice_"),
    [
        ("order|42", 601),
        ("order|1", 1018),
        ("order|2", 576),
        ("ORDER|42", 159),
        ("order|a|b", 315),
        ("user|日本", 496),
        ("user|Zo\u00eb", 823),
        ("user|Zoe\u0308", 377),
    ],
)
def test_a_slice_is_the_same_for_ever(written: str, slice_: int) -> None:
    assert slice_of(written) == slice_


@pytest.mark.req("P2")
def test_each_slice_lies_in_one_range_whatever_their_number() -> None:
    for n in range(1, SLICES + 1):
        cut = ranges(n)
        assert [s for lo, hi in cut for s in range(lo, hi + 1)] == list(range(SLICES))
        assert len(cut) == n
        sizes = [hi - lo for lo, hi in cut]
        assert max(sizes) - min(sizes) <= 1
    assert ranges(3) == [(0, 341), (342, 682), (683, 1023)]


@pytest.mark.req("P2")
@pytest.mark.parametrize("n", [1, 3, 8, 100, 1024])
def test_a_partition_holds_the_range_of_its_number(n: int) -> None:
    cut = ranges(n)
    for slice_ in range(SLICES):
        assert slice_ in cut[partition_of(slice_, n)]
    for partition, range_ in enumerate(cut):
        assert list(range_.partitions(n)) == [partition]
        assert range_.covers(partition, n)
        assert range_.lo == range_.hi or not Range(range_.lo + 1, range_.hi).covers(partition, n)


@pytest.mark.req("P93")
@pytest.mark.parametrize("n", [0, 1025, -1, True, 1.0, "4", None])
def test_no_number_of_ranges(n: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        ranges(n)  # type: ignore[arg-type]
    assert refused.value.code == "slice_range"


@pytest.mark.req("P93")
@pytest.mark.parametrize(("lo", "hi"), [(1, 0), (-1, 5), (0, 1024), (True, 5), ("0", 5), (0, None)])
def test_no_range(lo: object, hi: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        Range.of(lo, hi)
    assert refused.value.code == "slice_range"
