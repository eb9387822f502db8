"""Records travel through Spark as pages: nothing is lost on the way, and damage is seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import Corrupt
from strandline.pipeline.pages import EVENT_OVERHEAD_BYTES, pack, size_of, unpack
from strandline.record import Content, Record, encode_value

numbers = st.integers(0, 2**63 - 1)
texts = st.text(max_size=20).filter(lambda text: text.isprintable())
blobs = st.none() | st.binary(max_size=50)


@st.composite
def records(draw: st.DrawFn) -> Record:
    numbered = draw(st.booleans())
    life, first, last = (draw(numbers), draw(numbers), draw(numbers)) if numbered else (None, None, None)
    return Record(3, draw(numbers), draw(numbers), draw(st.none() | texts), draw(blobs), draw(blobs), life, first, last)


@given(st.lists(records(), max_size=20))
def test_a_page_gives_back_its_records(some: list[Record]) -> None:
    assert unpack(3, pack(some)) == some


@pytest.mark.req("J84")
def test_every_changed_byte_of_a_page_is_seen() -> None:
    page = pack([Record(3, 7, 1000, "order|42", b"header", b"value", 1, 1, 1)])
    for at in range(len(page)):
        damaged = bytearray(page)
        damaged[at] ^= 1
        with pytest.raises(Corrupt) as caught:
            unpack(3, bytes(damaged))
        assert caught.value.name == "Corrupt.transport"


@pytest.mark.parametrize("cut", [0, 3, 7, 8, 20, -1])
def test_a_cut_page_is_seen(cut: int) -> None:
    page = pack([Record(3, 7, 1000, "order|42", b"header", b"value")])
    with pytest.raises(Corrupt):
        unpack(3, page[:cut])


def test_size_counts_bytes_and_events() -> None:
    value = encode_value([Content(0, b"x" * 10, None)] * 3)
    some = [Record(0, 0, 0, "a|b", b"123", value), Record(0, 1, 1, None, None, None)]
    assert size_of(some) == 3 + len(value) + 3 * EVENT_OVERHEAD_BYTES
    assert size_of([Record(0, 0, 0, "a|b", None, b"\xff" * 16)]) == 16 + 2 * EVENT_OVERHEAD_BYTES, "no value has more"
