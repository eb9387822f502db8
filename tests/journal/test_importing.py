"""Imports: events with ids are recorded once each, whoever else does the same, and whatever is killed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from strandline import Event, Unavailable, points
from strandline.connect import Strandline
from strandline.journal import importing
from strandline.journal.importing import ImportedEvent, Importer, RefusedEvent
from strandline.testing import carry
from tests.journal.worlds import BACKENDS, world

pytestmark = pytest.mark.req("J131")


@pytest.fixture(params=BACKENDS)
def s(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    with world(request.param, tmp_path, partitions=4) as opened:
        yield opened


@pytest.fixture(autouse=True)
def nothing_told() -> Iterator[None]:
    yield
    points.told = None


def importer(s: Strandline) -> Importer:
    return Importer(s.journal, s.settings, s.log.partitions, s.store.settings.rules.append_ids_kept)


def rows(key: str, count: int, first: int = 1) -> list[ImportedEvent]:
    return [ImportedEvent(key, Event("Placed", n), f"{key}-{n}") for n in range(first, first + count)]


def payloads(s: Strandline, key: str) -> list[Any]:
    return [event.payload for event in s.journal.read(key)]


def test_events_are_recorded_in_their_order_once(s: Strandline) -> None:
    """More of a key than a head remembers ids of: what it has forgotten is found among the events."""
    given = [row for n in range(100) for row in (*rows("order|1", 1, n), *rows("order|2", 1, n))] + rows("user|1", 3)
    first, second = importer(s), importer(s)
    assert first.take(given) == []
    assert (first.counts.recorded, first.counts.duplicates) == (203, 0)
    assert second.take(given) == []
    assert (second.counts.recorded, second.counts.duplicates) == (0, 203)
    carry(s)
    assert importer(s).take(random.Random(1).sample(given, 203)) == []  # in any order
    for key in ("order|1", "order|2"):
        assert payloads(s, key) == list(range(100))
    assert payloads(s, "user|1") == [1, 2, 3]


def test_an_import_goes_on_where_one_was_killed(s: Strandline) -> None:
    """At each commit in turn; every second time the store has what was recorded, and the log's tail has not."""
    given = rows("order|1", 70) + rows("order|2", 2)
    for kills in range(6):
        seen = 0

        def kill(point: str, due: int = kills) -> None:
            nonlocal seen
            seen += point == "import.recorded"
            if seen > due and point == "import.recorded":
                raise KeyboardInterrupt

        points.told = kill
        with suppress(KeyboardInterrupt):
            importer(s).take(given)
        points.told = None
        if kills % 2:
            carry(s)
    importer(s).take(given)
    assert payloads(s, "order|1") == list(range(1, 71))
    assert payloads(s, "order|2") == [1, 2]


def test_many_attempts_at_once_make_one_journal(s: Strandline) -> None:
    """A speculated task and its like: some begin late, some give the events in another order."""
    given = rows("order|1", 150) + rows("order|2", 40)
    errors: list[BaseException] = []

    def attempt(number: int) -> None:
        mine = given if number < 3 else random.Random(number).sample(given, len(given))
        try:
            one = importer(s)
            for at in range(0, len(mine), 20 + 9 * number):
                one.take(mine[at : at + 20 + 9 * number])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert sorted(payloads(s, "order|1")) == list(range(1, 151))
    assert sorted(payloads(s, "order|2")) == list(range(1, 41))


def test_attempts_in_one_order_keep_it(s: Strandline) -> None:
    given = rows("order|1", 200)
    threads = [threading.Thread(target=importer(s).take, args=(given,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert payloads(s, "order|1") == list(range(1, 201))


def test_others_may_append_to_the_same_key(s: Strandline) -> None:
    """What others append stands between; ids that they push out of the head's memory are still known."""
    given = rows("order|1", 120)
    one = importer(s)

    def others(point: str) -> None:
        if point == "import.recorded":
            points.told = None
            for n in range(40):
                s.journal.append("order|1", [Event("Other", -n)], append_id=f"other-{n}")

    points.told = others
    one.take(given)
    importer(s).take(given)
    found = payloads(s, "order|1")
    assert [value for value in found if value > 0] == list(range(1, 121))
    assert len(found) == 160


def test_a_key_that_others_append_to_gets_its_events_one_by_one(s: Strandline) -> None:
    """So their order is kept from then on: neighbours change places where that is first seen, nowhere else."""
    looked = 0

    def others(point: str) -> None:
        nonlocal looked
        looked += point == "import.looked"
        if point == "import.recorded":
            points.told = None
            s.journal.append("order|1", [Event("Other", 0)] * 3)
            points.told = others

    points.told = others
    importer(s).take(rows("order|1", 60))
    mine = [value for value in payloads(s, "order|1") if value]
    assert sorted(mine) == list(range(1, 61))
    assert sum(one > other for one, other in pairwise(mine)) <= 1
    assert looked > 1


@pytest.mark.req("J122")
def test_what_cannot_be_recorded_is_refused_by_itself(s: Strandline) -> None:
    s.journal.append("order|1", [Event("Placed", "other")], append_id="order|1-2")
    bad = [
        ImportedEvent("no type at all", Event("Placed", 1), "a"),
        ImportedEvent("order|1", Event("", 1), "b"),
        ImportedEvent("order|1", Event("Placed", 1, tags=[" x"]), "c"),
        ImportedEvent("order|1", Event("Placed", 1), None),
        ImportedEvent("group|1", Event("Placed", 1), "d"),
        ImportedEvent(None, Event("Placed", 1), "e"),
    ]
    one = importer(s)
    refused = one.take([*rows("order|1", 1), *bad, *rows("order|1", 3, 1), *rows("order|2", 2)])
    codes = {row.append_id: row.code for row in refused}
    assert codes == {
        "a": "key_type", "b": "events_type", "c": "invalid_tag", "None": "append_id", "d": "reserved_entity_type",
        "e": "key_type", "order|1-2": "append_id_reused",
    }  # fmt: skip
    assert (one.counts.recorded, one.counts.duplicates, one.counts.refused) == (4, 1, 7)
    assert all(isinstance(row, RefusedEvent) and row.message for row in refused)
    assert payloads(s, "order|1") == ["other", 1, 3]


def test_the_same_id_later_with_other_content_is_refused(s: Strandline) -> None:
    """Also where the head has forgotten it, by the importer that recorded it and by the next."""
    given = rows("order|1", 50)
    changed = ImportedEvent("order|1", Event("Placed", "changed"), "order|1-1")
    one = importer(s)
    one.take(given)
    assert [row.code for row in one.take([changed])] == ["append_id_reused"]
    assert [row.code for row in importer(s).take([changed, *given])] == ["append_id_reused"]
    assert payloads(s, "order|1") == list(range(1, 51))


def test_headers_metadata_and_tags_come_along_and_count_as_content(s: Strandline) -> None:
    one = ImportedEvent("order|1", Event("Placed", b"\0", ["b", "a"], {"by": "web"}), "x", {"trace": "1"})
    more = rows("order|1", 40)
    importer(s).take([one, *more])
    again = importer(s)
    assert again.take([one, *more]) == []
    assert again.counts.duplicates == 41
    event = next(s.journal.read("order|1"))
    assert (event.payload, event.tags, event.metadata, event.headers) == (
        b"\0", ("b", "a"), {"by": "web"}, {"trace": "1"},
    )  # fmt: skip
    assert [row.code for row in importer(s).take([one._replace(headers=None)])] == ["append_id_reused"]


def test_keys_that_had_to_make_room_are_looked_at_again(s: Strandline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "IDS_MAX", 20)
    given = rows("order|1", 40) + rows("order|2", 40)
    one = importer(s)
    for _ in range(2):
        for part in (given[:50], given[20:]):
            one.take(part)
    assert payloads(s, "order|1") == list(range(1, 41))
    assert payloads(s, "order|2") == list(range(1, 41))


def test_a_log_that_is_away_is_tried_again_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world("memory", tmp_path, partitions=4) as s:
        away = Unavailable("away", code="away", hint="wait", applied="no")
        answers = [away, away]
        record = s.journal.record

        def flaky(drafts: Any) -> Any:
            if answers:
                raise answers.pop()
            return record(drafts)

        monkeypatch.setattr(s.journal, "record", flaky)
        importer(s).take(rows("order|1", 40))
        assert payloads(s, "order|1") == list(range(1, 41))
        monkeypatch.setattr(importing, "PATIENCE_S", 0.2)
        answers += [away] * 1000
        with pytest.raises(Unavailable):
            importer(s).take(rows("order|2", 1))
