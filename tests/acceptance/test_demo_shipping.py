"""The demo's shipping: a projection that adds work, shippers that are killed, and what a comparison finds."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.query.filling import carry_all

import strandline
from strandline import Event
from strandline.demo.shipping import Shipping, compared
from strandline.testing.shop.checker import ShownEvent
from strandline.testing.shop.children import Children


@pytest.mark.req("W71", "RW1")
def test_each_parcel_leaves_once_though_shippers_are_killed(tmp_path: Path) -> None:
    with strandline.connect("memory:", partitions=2) as s, Children(tmp_path) as children:
        shipped = [ShownEvent(1, "Shipped", {"parcel": f"p{number}"}) for number in range(40)]
        for event in shipped:
            s.journal.append(f"order|{event.payload['parcel']}", [Event("Placed", 1), Event("Shipped", event.payload)])
        carry_all(s)
        shipping = Shipping(s, children, tmp_path / "work.db")
        until = time.monotonic() + 30
        while not shipping.count:
            assert time.monotonic() < until
            time.sleep(0.01)
        shipping.kill_shipper()
        assert shipping.end(shipped) == []
        assert shipping.count == 40


def test_what_the_comparison_finds() -> None:
    found = compared(["a", "b", "c"], ["b", "b", "c", "d"])
    assert sorted((finding.kind, finding.key) for finding in found) == [
        ("doubled", "parcel b"), ("ghost", "parcel d"), ("lost", "parcel a"),
    ]  # fmt: skip
