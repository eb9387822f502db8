"""What type checkers are told of queries and projections is what these take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, Literal, get_type_hints

import pytest

import strandline
from strandline import BySlices, InvalidInput, Projection, aio
from strandline.projection.settings import GivenProjectionSettings, ProjectionSettings
from strandline.query.settings import GivenSliceSettings, SliceSettings
from strandline.query.tag_settings import GivenTagSettings, TagSettings

ORDERS = BySlices("order")


def told_to_checkers(kind: Any) -> dict[str, Any]:
    """What a type checker is to accept for each setting."""
    hints, told = get_type_hints(kind), {}
    for one in fields(kind):
        if not one.init:
            continue
        facts = one.metadata
        accepted = hints[one.name]
        if facts.get("word"):
            accepted = float | timedelta | Literal[facts["word"]]
        elif facts.get("allowed"):
            accepted = Literal[facts["allowed"]]
        elif accepted is float:
            accepted = float | timedelta
        told[one.name] = accepted
    return told


@pytest.mark.req("P93")
@pytest.mark.parametrize(
    ("given", "kind", "special"),
    [
        (GivenProjectionSettings, ProjectionSettings, {"start": Literal["beginning", "now"] | datetime | int}),
        (GivenSliceSettings, SliceSettings, {}),
        (GivenTagSettings, TagSettings, {}),
    ],
)
def test_type_checkers_are_told_the_same_settings(given: Any, kind: Any, special: dict[str, Any]) -> None:
    assert get_type_hints(given) == {**told_to_checkers(kind), **special}
    assert not given.__required_keys__


@pytest.mark.req("P93")
def test_type_checkers_refuse_what_is_refused() -> None:
    """mypy, which reads these tests, complains of each `ignore` that nothing needs."""
    with strandline.connect("memory:") as s:
        refusals: list[Callable[[], object]] = [
            lambda: Projection("totals", ORDERS, print, delivry="at_least_once"),  # type: ignore[call-arg]
            lambda: Projection("totals", ORDERS, print, on_failure="retry"),  # type: ignore[arg-type]
            lambda: Projection("totals", ORDERS, print, save_after="7"),  # type: ignore[arg-type]
            lambda: Projection("totals", ORDERS, print, start="yesterday"),  # type: ignore[arg-type]
            lambda: s.by_tag("blue", aftr=None),  # type: ignore[call-arg]
            lambda: s.by_tag("blue", live="yes"),  # type: ignore[arg-type]
            lambda: s.by_slices("order", 0, 1023, form_=5),  # type: ignore[call-arg]
            lambda: s.by_slices("order", 0, 1023, page_size="7"),  # type: ignore[arg-type]
        ]
        for refused in refusals:
            with pytest.raises(InvalidInput) as raised:
                refused()
            assert raised.value.code == "setting"
        s.by_tag("blue", from_=5, gap_timeout_s=timedelta(seconds=1), seen={"order|1": (1, 1)}).close()
        s.by_slices("order", 0, 1023, after=None, filter={"types": ["Paid"]}, live=True).close()
    Projection("mails", ORDERS, lambda event: None, delivery="at_least_once", lease_s=timedelta(seconds=9))


def typed_for_asyncio(s: aio.Strandline) -> None:
    """Read by mypy alone."""
    s.by_tag("blue", aftr=None)  # type: ignore[call-arg]
    s.by_slices("order", 0, 1023, form_=5)  # type: ignore[call-arg]
