"""What a work journal promises, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta, timezone
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from strandline.errors import Corrupt, InvalidInput, LeaseLost, NotFound, SchemaMismatch, StrandlineError
from strandline.work import tables
from strandline.work.declaration import Codec
from strandline.work.entries import Priority
from strandline.work.journal import WorkJournal
from tests.work.worlds import S, World, declaration, one, pages

pytestmark = pytest.mark.req("W79")


# ---------------------------------------------------------------- declaration


def test_a_typo_in_an_add_is_found_by_type_checkers(world: World) -> None:
    """mypy runs over this file: without the error that is ignored here it would complain."""
    work = world.work()
    with pytest.raises(InvalidInput, match="prioriti: no argument of add") as refused:
        work.add({"page": "a"}, {"url": "u"}, prioriti=3)  # type: ignore[arg-type]
    assert refused.value.code == "column"
    with pytest.raises(InvalidInput, match="is set by the work journal"):
        work.add({"page": "a"}, {"url": "u"}, status="P")  # type: ignore[arg-type]


@pytest.mark.req("W8", "W10", "W13")
def test_a_process_date_may_be_a_time_from_now(world: World) -> None:
    """From now by the database's clock, whatever the machine's says."""
    work = world.work()
    work.add(**one("a"), process_date=timedelta(minutes=10))
    work.add_many([one("b", process_date=timedelta(0)), one("c", process_date=timedelta(milliseconds=1500))])
    dates = {entry.key["page"]: entry.process_date - world.clock.now for entry in work.entries()}
    assert dates == {"a": 600 * S, "b": 0, "c": 1.5 * S}
    soon = world.clock.now + 60 * S
    for bad, expiration_date, code in (
        (timedelta(microseconds=-1), 0, "delay_range"),
        (timedelta.max, 0, "time_range"),
        (timedelta(hours=1), soon, "expires_early"),
    ):
        with pytest.raises(InvalidInput) as refused:
            work.add(**one("d"), process_date=bad, expiration_date=expiration_date)
        assert refused.value.code == code
    assert len(work.entries()) == 3


@pytest.mark.req("W8")
def test_datetimes_are_dates_to_the_microsecond(world: World) -> None:
    """Whatever their zone; and what stands for never stays never."""
    work = world.work()
    date = world.clock.now + 3_600_000_001
    given = datetime(1970, 1, 1, tzinfo=timezone(timedelta(hours=-5))) + timedelta(hours=-5, microseconds=date)
    work.add(**one("a"), process_date=given, expiration_date=given + timedelta(microseconds=1))
    work.add(**one("b"), insertion_date=given - timedelta(hours=1, microseconds=2))
    (a, b) = work.entries()
    assert (a.process_date, a.expiration_date, b.expiration_date) == (date, date + 1, 0)
    assert b.insertion_date == date - 3_600_000_002


@pytest.mark.req("W80")
@pytest.mark.parametrize("merge", ["key", "none"])
def test_an_add_with_an_id_is_stored_once(world: World, merge: str) -> None:
    """A second add with the id changes nothing, whatever has become of the entry."""
    work = world.work(merge=merge, max_timeouts=1)
    cursor = work.cursor("w")
    given = uuid4()
    first = work.add(**one("a", "1"), id=given)
    assert first.outcome == "inserted"
    for again in (given, str(given)):
        assert work.add(**one("a", "2"), id=again) == ("repeated", first.id)
    (claim,) = cursor.claim(9).claims
    assert (claim.entry.id, claim.entry.data["url"]) == (first.id, "1")
    assert work.add(**one("a", "3"), id=given) == ("repeated", first.id)
    claim.done()
    assert work.add(**one("other", "4"), id=given) == ("repeated", first.id)
    assert work.entries() == []
    for page, end in (("b", lambda claim: claim.fail("no")), ("c", lambda claim: work.drop(claim.entry.id))):
        added = work.add(**one(page), id=f"event {page}")
        end(*cursor.claim(1).claims)
        assert work.add(**one(page), id=f"event {page}") == ("repeated", added.id)
    assert work.entries() == []
    found = work.add_many([one("d", id="x"), one("e", id="event b"), one("d", "2", id="x"), one("f")])
    assert [added.outcome for added in found] == ["inserted", "repeated", "repeated", "inserted"]
    assert (found[2].id, sorted(pages(cursor.claim(9)))) == (found[0].id, ["d", "f"])
    soon = one("g", expiration_date=world.clock.now + S, id="soon")
    added = work.add(**soon)
    world.clock.pass_s(2)
    assert work.add(**soon) == ("repeated", added.id), "the clock says nothing of what is not added"
    for bad in ("", "x" * 1000, 7, b"x"):
        with pytest.raises(InvalidInput, match=r"^id: not an id of an add"):
            work.add(**one("g", id=bad))


@pytest.mark.req("W80", "W23", "W30")
def test_the_id_of_an_add_that_merged_is_remembered_too(world: World) -> None:
    work = world.work()
    first = work.add(**one("a", "1"), id="1")
    assert work.add(**one("a", "2"), id="2") == ("merged", first.id)
    assert work.add(**one("a", "2 again", priority=0), id="2") == ("repeated", first.id)
    assert work.add(**one("a", "old", insertion_date=5), id="3").outcome == "stale"
    assert work.add(**one("a", "old"), id="3") == ("repeated", first.id)
    (claim,) = work.cursor("w").claim(9).claims
    assert (claim.entry.data["url"], claim.entry.priority) == ("2", 20)
    behind = work.add(**one("a", "4"), id="4")
    assert (behind.outcome, work.add(**one("a", "4"), id="4")) == ("behind", ("repeated", behind.id))


@pytest.mark.req("W80")
def test_ids_of_adds_are_kept_so_long(world: World) -> None:
    work = world.work(ids_keep_s=60)
    first = work.add(**one("a"), id="x")
    world.clock.pass_s(60)
    work.tick()
    assert work.add(**one("a"), id="x") == ("repeated", first.id)
    world.clock.pass_s(0.1)
    work.tick()
    assert work.add(**one("a"), id="x").outcome == "merged"
    assert world.work("thumbs").add(**one("a"), id="x").outcome == "repeated"


@pytest.mark.req("W80", "W43")
def test_traffic_forgets_what_is_kept_no_longer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.work.journal.TICK_S", 0.0)
    monkeypatch.setattr("strandline.work.journal.FORGET_S", 0.0)
    work = world.work(ids_keep_s=60, dead_keep_s=60, max_timeouts=1)
    work.add_many([one(f"p{number}", id=f"{number}") for number in range(1500)])
    work.cursor("w").claim(1).claims[0].fail("no")
    world.clock.pass_s(61)
    for _ in range(3):
        work.add(**one("other"))
    with work._database.read() as tx:
        assert tx.rows("oldest_id", (work._known.number,)) == [(None,)]
    assert work.dead() == []


@pytest.mark.req("W3", "W5")
def test_declaring_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    work = world.work()
    again = world.work()
    assert again.settings == work.settings
    with caplog.at_level(logging.INFO, "strandline.work"):
        world.work(lease_s=60.0)
    assert "lease_s" in caplog.text
    claim = work.cursor("w").claim(1)
    assert claim.claims == []
    assert work.settings.lease_s == 60.0, "in every process, at its next call"
    assert world.work("thumbs").settings.lease_s == 60.0
    with pytest.raises(NotFound, match="declared: thumbs") as missing:
        world.work("nails")
    assert missing.value.code == "work_journal"
    with pytest.raises(SchemaMismatch, match="tables is thumbs") as fixed:
        world.work(tables="shared")
    assert fixed.value.code == "setting"


@pytest.mark.req("W5", "W23")
@pytest.mark.parametrize("end", ["done", "fail", "lapse", "drop"])
def test_what_waits_behind_is_handed_out_though_nothing_merges_any_more(world: World, end: str) -> None:
    """merge="none" is declared while an entry waits behind a running one: the end of that lets it in all the same."""
    work = world.work()
    work.add(**one("a", "1"))
    (claim,) = work.cursor("w").claim(1).claims
    assert work.add(**one("a", "2")).outcome == "behind"
    other = world.work(merge="none")
    match end:
        case "done":
            claim.done()
        case "fail":
            claim.fail("no", delay_s=0)
        case "lapse":
            world.clock.pass_s(31)
        case "drop":
            other.drop(claim.entry.id)
    assert [claim.entry.data["url"] for claim in other.cursor("v").claim(9).claims] == ["2"]


@pytest.mark.req("W5", "W6", "W23", "W28")
@pytest.mark.parametrize("end", ["done", "fail", "lapse", "drop"])
def test_what_waits_behind_one_entry_waits_for_no_other(world: World, end: str) -> None:
    """merge="none" is declared while an entry waits behind a running one. Another entry of its key, added since, ends:
    that lets nothing in, and is folded into nothing."""
    work = world.work()
    work.add(**one("a", "1"))
    (first,) = work.cursor("w").claim(1).claims
    assert work.add(**one("a", "2")).outcome == "behind"
    work = world.work(merge="none", lease_s=10)
    work.add(**one("a", "3"))
    (later,) = work.cursor("v").claim(9).claims
    assert later.entry.data["url"] == "3"
    match end:
        case "done":
            later.done()
        case "fail":
            later.fail("no", delay_s=0)
        case "lapse":
            world.clock.pass_s(11)
        case "drop":
            work.drop(later.entry.id)
    left = [] if end in ("done", "drop") else ["3"]
    assert [entry.data["url"] for entry in work.entries()] == ["1", "2", *left]
    assert [claim.entry.data["url"] for claim in work.cursor("v").claim(9).claims] == left
    first.done()
    assert [claim.entry.data["url"] for claim in work.cursor("v").claim(9).claims] == ["2"]


@pytest.mark.req("W5", "W6", "W28", "W38", "W39")
def test_entries_of_a_key_lapse_together_and_each_ends_as_itself(world: World) -> None:
    """The first is folded with what waits behind it, the one that was added since is handed out by itself."""
    work = world.work()
    work.add(**one("a", "1"))
    work.cursor("w").claim(1)
    work.add(**one("a", "2"))
    work = world.work(merge="none")
    work.add(**one("a", "3"))
    work.cursor("v").claim(9)
    world.clock.pass_s(31)
    assert [entry.data["url"] for entry in work.entries()] == ["2", "3"]
    assert [claim.entry.data["url"] for claim in work.cursor("v").claim(9).claims] == ["2", "3"]


@pytest.mark.req("W21", "W23", "W28")
@pytest.mark.parametrize("end", ["done", "fail", "lapse", "drop"])
def test_what_waits_behind_several_waits_for_all_of_them(world: World, end: str) -> None:
    """Two entries of a key run since `merge` was "none". One that is added now waits until both have ended."""
    work = world.work(merge="none")
    work.add(**one("a", "1"))
    work.add(**one("a", "2"))
    first, second = work.cursor("w").claim(9).claims
    work = world.work()
    assert work.add(**one("a", "3")).outcome == "behind"
    match end:
        case "done":
            first.done()
        case "fail":
            first.fail("no", delay_s=0)
        case "lapse":
            world.clock.pass_s(20)
            second.heartbeat()
            world.clock.pass_s(11)
        case "drop":
            work.drop(first.entry.id)
    assert work.cursor("v").claim(9).claims == []
    second.done()
    assert [claim.entry.data["url"] for claim in work.cursor("v").claim(9).claims] == ["3"]


@pytest.mark.req("W65", "W66", "W67")
def test_two_versions_of_columns(world: World) -> None:
    old = world.work()
    old.add(**one("a"))
    new = world.work(data={"url": "text", "height": "int"})
    assert (old.version, new.version) == (1, 2)
    assert len(new.tables()) == (1 if world.is_sqlite else 2), "later adds go into a new table"
    new.add(key={"page": "b"}, data={"url": "u", "height": 3})
    old.add(**one("c"))
    assert world.work().version == 1, "columns seen before open their version"
    assert new.add(key={"page": "c"}, data={"url": "n", "height": 9}).outcome == "merged"
    found = {claim.entry.key["page"]: claim.entry for claim in old.cursor("w").claim(10).claims}
    assert found["a"].data == {"url": "u", "width": None}
    assert (found["b"].data, found["b"].version) == ({"url": "u", "height": 3}, 2)
    assert (found["c"].data, found["c"].version) == ({"url": "n", "height": 9}, 2)
    other = world.work(key={"page": "text", "site": "text"})
    assert other.add(key={"page": "a", "site": "s"}, data={"url": "u"}).outcome == "inserted"


@pytest.mark.req("W66")
def test_each_entry_is_read_by_the_columns_of_its_own_version(world: World) -> None:
    """A column that was text and is bytes now: neither is taken for the other, whoever claims."""
    old = world.work()
    old.add(**one("a", "YWJj"))
    new = world.work(data={"url": "bytes"})
    new.add(key={"page": "b"}, data={"url": b"abc"})
    wanted = {"a": "YWJj", "b": b"abc"}
    for journal in (old, new):
        assert {entry.key["page"]: entry.data["url"] for entry in journal.entries()} == wanted
        claims = journal.cursor("w").claim(5).claims
        assert {claim.entry.key["page"]: claim.entry.data["url"] for claim in claims} == wanted
        for claim in claims:
            claim.release()


@pytest.mark.req("W5", "W67")
def test_a_key_column_keeps_its_type(world: World) -> None:
    """With another type the same key would be another one: what waits would be done beside it."""
    work = world.work()
    work.add(**one("7"))
    with pytest.raises(SchemaMismatch, match="key column page is text") as refused:
        world.work(key={"page": "int"})
    assert refused.value.code == "setting"
    assert world.work("thumbs").version == 1
    assert world.work(key={"page": "text", "site": "int"}).version == 2
    with pytest.raises(SchemaMismatch, match="key column site is int"):
        world.work(key={"site": "text"})


@pytest.mark.req("W5", "W70")
def test_settings_of_shared_tables_that_change_are_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.work(tables="shared", table_rows_max=50)
    with caplog.at_level(logging.INFO, "strandline.work"):
        world.work(declaration("nails", tables="shared"))
        assert "table_rows_max" not in caplog.text
        world.work(declaration("nails", tables="shared", table_rows_max=70))
    assert "tables shared: changed table_rows_max" in caplog.text
    assert world.work("thumbs").settings.table_rows_max == 70


@pytest.mark.req("W70", "W14")
def test_journals_that_share_their_tables(world: World) -> None:
    first = world.work(declaration("first", tables="shared", table_rows_max=500))
    second = world.work(declaration("second", tables="shared"))
    assert second.settings.table_rows_max == 500, "what the set has, unless it is named"
    ids = [journal.add(**one("a")).id for journal in (first, second, first)]
    assert ids[0] == ids[2] != ids[1]
    first.pause()
    assert first.cursor("w").claim(10).claims == []
    (claim,) = second.cursor("w").claim(10).claims
    assert (claim.entry.id, first.counts().due, second.counts().running) == (ids[1], 1, 1)
    alone = world.work(declaration("third"))
    assert alone.add(**one("a")).id not in ids


# ---------------------------------------------------------------- add and merge


@pytest.mark.req("W7", "W10", "W11", "W21", "W25", "W29")
def test_an_add_merges_while_its_key_waits(world: World) -> None:
    work = world.work()
    added = work.add(**one("a", "first", priority=50))
    world.clock.pass_s(1)
    assert work.add(**one("a", "second", priority=10, expiration_date=None)) == ("merged", added.id)
    entry = work.get({"page": "a"})
    assert entry is not None
    assert (entry.data["url"], entry.priority, entry.status, entry.start_date) == ("second", 10, "W", 0)
    assert (entry.insertion_date, entry.revised_date) == (world.clock.now - S, world.clock.now)
    assert (entry.expiration_date, entry.timeout_counter, entry.fence, entry.owner) == (0, 0, 0, "")
    (claim,) = work.cursor("w").claim(5).claims
    claim.done()
    assert work.get({"page": "a"}) is None
    fresh = work.add(**one("a"))
    assert (fresh.outcome, fresh.id > added.id) == ("inserted", True)


@pytest.mark.req("W7", "W9", "W10", "W30")
def test_each_date_is_in_its_column(world: World) -> None:
    """Every column with a value of its own, as it was given; older data then merges what may still count."""
    work = world.work()
    now = world.clock.now
    work.add(
        **one("a", priority=50), insertion_date=now - 5 * S, process_date=now - 3 * S, expiration_date=now + 60 * S
    )
    entry = work.get({"page": "a"})
    assert entry is not None
    assert (entry.insertion_date, entry.process_date, entry.expiration_date) == (now - 5 * S, now - 3 * S, now + 60 * S)
    assert (entry.revised_date, entry.claimed_date, entry.retry_date, entry.start_date) == (now - 5 * S, 0, 0, 0)
    older = one("a", "older", priority=10)
    stale = work.add(**older, insertion_date=now - 6 * S, process_date=now - 1 * S, expiration_date=now + 90 * S)
    assert stale.outcome == "stale"
    entry = work.get({"page": "a"})
    assert entry is not None
    assert (entry.data["url"], entry.priority, entry.revised_date) == ("u", 10, now - 5 * S)
    assert (entry.insertion_date, entry.process_date, entry.expiration_date) == (now - 5 * S, now - 1 * S, now + 90 * S)
    world.clock.pass_s(2)
    (claim,) = work.cursor("w").claim(1).claims
    assert (claim.entry.claimed_date, claim.entry.start_date) == (world.clock.now, world.clock.now)
    assert (claim.entry.status, claim.entry.owner, claim.entry.fence > 0) == ("P", "w", True)


@pytest.mark.req("W7", "W11", "W41", "W46")
def test_each_column_that_claims_change_is_its_own(world: World) -> None:
    """After a heartbeat the start is another date than the claim, after `fail` the retry date another than both."""
    work = world.work()
    world.work(data={"url": "text"}).add(key={"page": "a"}, data={"url": "u"})
    world.clock.pass_s(1)
    (claim,) = work.cursor("w").claim(1).claims
    claimed = world.clock.now
    world.clock.pass_s(2)
    claim.heartbeat()
    began = world.clock.now
    (entry,) = work.entries(status="P")
    assert (entry.version, entry.start_date, entry.claimed_date, entry.retry_date) == (2, began, claimed, 0)
    world.clock.pass_s(3)
    claim.fail("no", delay_s=7)
    (entry,) = work.entries(status="W")
    assert (entry.start_date, entry.claimed_date, entry.timeout_counter) == (began, claimed, 1)
    assert entry.retry_date == world.clock.now + 7 * S
    world.clock.pass_s(7)
    (again,) = work.cursor("v").claim(1).claims
    assert (again.entry.owner, again.entry.claimed_date, again.entry.start_date) == ("v", *[world.clock.now] * 2)


@pytest.mark.req("W11", "W28", "W39")
def test_what_waits_again_is_shown_as_waiting_and_keeps_its_start(world: World) -> None:
    """A lapse that somebody has recorded; and one that is folded with what was added behind."""
    work = world.work()
    work.add(**one("a"))
    work.add(**one("b"))
    world.clock.pass_s(1)
    work.cursor("w").claim(2)
    began = world.clock.now
    work.add(**one("b", "behind"))
    world.clock.pass_s(31)
    work.tick()
    assert [(entry.key["page"], entry.status, entry.start_date) for entry in work.entries()] == [
        ("a", "W", began), ("b", "W", began)
    ]  # fmt: skip
    assert {claim.entry.data["url"] for claim in work.cursor("w").claim(2).claims} == {"u", "behind"}


@pytest.mark.req("W23", "W60", "RW7")
def test_an_add_while_its_key_is_processed_waits_behind(world: World) -> None:
    work = world.work()
    first = work.add(**one("a", "first"))
    cursor = work.cursor("w")
    (claim,) = cursor.claim(5).claims
    second = work.add(**one("a", "second"))
    assert (second.outcome, second.id != first.id) == ("behind", True)
    assert work.add(**one("a", "third")) == ("merged", second.id)
    assert cursor.claim(5).claims == []
    assert (work.counts().behind, work.counts().running) == (1, 1)
    waiting = work.get({"page": "a"})
    assert waiting is not None
    assert waiting.data["url"] == "third", "the waiting one first"
    claim.done()
    (again,) = cursor.claim(5).claims
    assert (again.entry.data["url"], again.entry.id) == ("third", second.id)


@pytest.mark.req("W22")
def test_keys_with_one_hash_are_two_entries(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Codec, "hash", lambda _self, _key: b"x" * 16)
    work = world.work()
    work.add_many([one("a"), one("b"), one("a")])
    cursor = work.cursor("w")
    found = [work.get({"page": page}) for page in "abc"]
    assert [entry and entry.key["page"] for entry in found] == ["a", "b", None]
    claims = {claim.entry.key["page"]: claim for claim in cursor.claim(5).claims}
    assert set(claims) == {"a", "b"}
    assert [work.add(**one(page)).outcome for page in ("a", "b")] == ["behind", "behind"]
    claims["a"].done()
    assert pages(cursor.claim(5)) == ["a"]


@pytest.mark.req("W6")
def test_without_merge_every_add_is_an_entry(world: World) -> None:
    work = world.work(merge="none")
    outcomes = [work.add(**one("a")).outcome for _ in range(3)]
    assert outcomes == ["inserted"] * 3
    claims = work.cursor("w").claim(10).claims
    assert len(claims) == 3
    claims[0].fail("again", delay_s=0)
    assert len(work.cursor("w").claim(10).claims) == 1


@pytest.mark.req("W24", "W47", "W48", "RW10")
def test_expired_is_no_entry(world: World) -> None:
    work = world.work()
    work.add(**one("a", priority=1, expiration_date=world.clock.now + 5 * S))
    held = work.add(**one("b", expiration_date=world.clock.now + 5 * S, priority=0))
    cursor = work.cursor("w")
    (claim,) = cursor.claim(1).claims
    world.clock.pass_s(5)
    assert work.get({"page": "a"}) is not None
    world.clock.now += 1
    assert work.get({"page": "a"}) is None
    assert [entry.id for entry in work.entries()] == [held.id], "what is processed stays its holder's"
    assert work.counts().due == 0
    assert cursor.claim(5).claims == []
    claim.heartbeat()
    assert work.add(**one("b")).outcome == "behind"
    assert work.add(**one("a")).outcome == "inserted"
    fresh = work.get({"page": "a"})
    assert fresh is not None
    assert (fresh.priority, fresh.expiration_date) == (20, 0), "nothing is taken over"
    claim.done()
    work.add(**one("c", expiration_date=world.clock.now + S))
    gone = next(claim for claim in cursor.claim(10).claims if claim.entry.key["page"] == "c")
    world.clock.pass_s(2)
    gone.fail("too late")
    assert (work.get({"page": "c"}), work.dead()) == (None, [])


@pytest.mark.req("W47", "W64")
def test_a_tick_removes_what_expired(world: World) -> None:
    work = world.work()
    work.add_many([one("a", expiration_date=world.clock.now + S), one("b", expiration_date=world.clock.now + 9 * S,
                   process_date=world.clock.now + 2 * S), one("c")])  # fmt: skip
    world.clock.pass_s(2)
    work.tick()
    assert sum(table.entries for table in work.tables()) == 2
    assert {entry.key["page"] for entry in work.entries()} == {"b", "c"}


@pytest.mark.req("W2", "W31")
def test_adds_of_a_batch_are_all_or_nothing(world: World) -> None:
    work = world.work()
    outcomes = work.add_many([one("a", "1"), one("b"), one("a", "2")])
    assert [added.outcome for added in outcomes] == ["inserted", "inserted", "merged"]
    assert outcomes[0].id == outcomes[2].id
    assert work.get({"page": "a"}).data["url"] == "2"  # type: ignore[union-attr]
    bad: dict[str, Any] = {"expiration_date": world.clock.now - 1}
    with pytest.raises(InvalidInput, match=r"adds\[1\] expiration_date") as refused:
        work.add_many([one("c"), one("d", **bad)])
    assert (refused.value.code, refused.value.index) == ("expires_early", 1)
    assert work.counts().due == 2
    for size in (0, 10_001):
        with pytest.raises(InvalidInput) as wrong:
            work.add_many([one("a")] * size)
        assert wrong.value.code == "batch_range"
    many = work.add_many([one(f"p{number}") for number in range(1500)])
    assert len({added.id for added in many}) == 1500
    assert [added.outcome for added in work.add_many([one("p3"), one("new")])] == ["merged", "inserted"]


# ---------------------------------------------------------------- order


@pytest.mark.req("W15", "W18", "W33")
def test_claims_come_in_order(world: World) -> None:
    work = world.work(slow_from=256, table_rows_max=400)
    random = Random(5)
    adds = [
        one(f"p{number}", priority=random.choice([0, 10, 20, 255]), process_date=world.clock.now - random.randrange(9),
            insertion_date=world.clock.now - 60 * S)
        for number in range(900)
    ]  # fmt: skip
    for at in range(0, 900, 300):
        work.add_many(adds[at : at + 300])
        work.tick()
    claims = work.cursor("w").claim(1000).claims
    order = [(claim.entry.priority, claim.entry.process_date, claim.entry.id) for claim in claims]
    assert order == sorted(order)
    assert len(order) == 900
    if not world.is_sqlite:
        assert len(work.tables()) >= 2


@pytest.mark.req("W17", "W36", "W54")
def test_what_is_not_due_holds_nothing_back(world: World) -> None:
    work = world.work()
    now = world.clock.now
    work.add(**one("later", priority=0, process_date=now + 3600 * S))
    work.add(**one("soon", priority=0, process_date=now + 5 * S))
    work.add(**one("now", priority=199))
    cursor = work.cursor("w")
    batch = cursor.claim(10)
    assert (pages(batch), batch.next_date) == (["now"], now + 5 * S)
    if not world.is_sqlite:
        assert [table.entries for table in work.tables()] == [2], "the later one lies apart"
    world.clock.now = now + 5 * S - 1
    assert cursor.claim(10).claims == []
    world.clock.now = now + 5 * S
    assert pages(cursor.claim(10)) == ["soon"]
    assert work.counts().later == 1
    world.clock.now = now + 3600 * S
    assert pages(cursor.claim(10)) == ["soon", "later", "now"], "with those that lapsed"


@pytest.mark.req("W18", "W64")
def test_one_call_brings_in_so_many_lapses(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest first; who claims again gets the others."""
    assert (tables.LAPSES_MAX, tables.DUE_MAX, tables.DUE_BYTES_MAX) == (1000, 10_000, 64 * 2**20)
    monkeypatch.setattr(tables, "LAPSES_MAX", 2)
    work = world.work()
    cursor = work.cursor("w")
    for number in range(5):
        work.add(**one(f"p{number}"))
        cursor.claim(1)
        world.clock.pass_s(1)
    world.clock.pass_s(31)
    found = [pages(cursor.claim(10)) for _ in range(3)]
    assert found == [["p0", "p1"], ["p2", "p3"], ["p4"]]


@pytest.mark.req("W36")
@pytest.mark.parametrize("first", ["date", "lease"])
def test_the_next_date_is_the_least_of_all(world: World, first: str) -> None:
    work = world.work(lease_s=30)
    work.add(**one("held"))
    (claim,) = work.cursor("w").claim(1).claims
    ends = world.clock.now + 30 * S + 1
    due = world.clock.now + (20 if first == "date" else 40) * S
    work.add(**one("soon", process_date=due))
    assert work.cursor("v").claim(1).next_date == min(due, ends)
    claim.done()
    assert work.cursor("v").claim(1).next_date == due
    work.drop(work.entries()[0].id)
    assert work.cursor("v").claim(1).next_date is None


@pytest.mark.req("W33")
def test_a_claim_stops_after_so_many_bytes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    work = world.work()
    work.add_many([one(f"p{number}", "x" * 100) for number in range(6)])
    monkeypatch.setattr(tables, "CLAIM_BYTES_MAX", 1)
    assert len(work.cursor("w").claim(10).claims) == 1, "at least one"
    monkeypatch.setattr(tables, "CLAIM_BYTES_MAX", 250)
    assert len(work.cursor("w").claim(10).claims) == 3


@pytest.mark.req("W18", "W36", "W49", "W54")
def test_what_is_due_comes_in_by_so_many_bytes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "DUE_BYTES_MAX", 5000)
    work = world.work()
    date = world.clock.now + 60 * S
    work.add_many([one(f"p{number}", "x" * 2000, process_date=date) for number in range(8)])
    world.clock.now = date
    cursor = work.cursor("w")
    first = cursor.claim(10)
    assert (len(first.claims), first.next_date) == (3, date), "the rest can be had at once"
    with work._database.read() as tx:
        look = work._tables.look(tx)
        drawn = look.last_number - look.first_number + 1
        assert world.is_sqlite or drawn >= 8 + 3 + 3, "joining counts as rows of the table"
    assert len(pages(cursor.claim(10)) + pages(cursor.claim(10))) == 5


@pytest.mark.req("W19", "W20")
def test_slow_entries_wait_for_a_pass_without_others(world: World) -> None:
    work = world.work(slow_limit=2, slow_pause_s=3)
    work.add_many([one(f"s{number}", priority=200 + number) for number in range(5)])
    work.add_many([one("a"), one("b")])
    cursor, other = work.cursor("w"), work.cursor("v")
    assert pages(cursor.claim(10)) == ["a", "b"]
    empty = cursor.claim(10)
    assert (empty.claims, empty.next_date) == ([], world.clock.now + 3 * S)
    assert pages(other.claim(10)) == ["s0", "s1"], "a pass belongs to one cursor"
    assert pages(cursor.claim(1)) == ["s2"]
    work.add(**one("c", priority=Priority.UPDATES))
    assert pages(cursor.claim(10)) == ["c"]
    assert pages(cursor.claim(10)) == []
    assert pages(cursor.claim(10)) == ["s3", "s4"]


# ---------------------------------------------------------------- claims


@pytest.mark.req("W12", "W33", "W41", "W45", "RW11")
def test_a_claim(world: World) -> None:
    work = world.work()
    work.add(**one("a"))
    world.clock.pass_s(1)
    cursor = work.cursor("w1")
    (claim,) = cursor.claim(5).claims
    entry = work.get({"page": "a"})
    assert entry is not None
    assert (entry.status, entry.owner, entry.fence) == ("P", "w1", claim.fence)
    assert entry.start_date == entry.claimed_date == world.clock.now
    world.clock.pass_s(20)
    claim.heartbeat()
    entry = work.get({"page": "a"})
    assert entry is not None
    assert (entry.start_date, entry.claimed_date) == (world.clock.now, world.clock.now - 20 * S)
    world.clock.pass_s(30)
    claim.heartbeat()
    claim.done()
    claim.done()
    assert work.entries() == []
    with pytest.raises(LeaseLost):
        claim.heartbeat()


@pytest.mark.req("W33", "W45")
def test_done_with_the_next_claim(world: World) -> None:
    work = world.work()
    work.add_many([one(f"p{number}") for number in range(5)])
    cursor = work.cursor("w")
    first = cursor.claim(2)
    work.drop(first.claims[1].entry.id)
    second = cursor.claim(2, done=first.claims)
    assert (second.lost, len(second.claims)) == ([first.claims[1]], 2)
    assert work.done_many([*second.claims, first.claims[1]]) == ["done", "done", "lost"]
    assert work.counts().due == 1


@pytest.mark.req("W38", "W39", "W42", "RW3", "RW4", "RW5")
def test_a_lapse_counts_once_whoever_sees_it(world: World) -> None:
    work, other = world.work(), world.work()
    work.add(**one("a"))
    (first,) = work.cursor("w").claim(5).claims
    world.clock.pass_s(30)
    assert other.cursor("v").claim(5).claims == []
    world.clock.now += 1
    for journal in (work, other):
        seen = journal.get({"page": "a"})
        assert seen is not None
        assert (seen.status, seen.timeout_counter) == ("W", 1), "to everybody, before anybody records it"
    work.tick()
    other.tick()
    (second,) = other.cursor("v").claim(5).claims
    assert (second.entry.timeout_counter, second.fence > first.fence) == (1, True)
    for late in (first.heartbeat, first.release, lambda: first.fail("x")):
        with pytest.raises(LeaseLost):
            late()
    assert work.done_many([first]) == ["lost"]
    second.heartbeat()
    second.done()


@pytest.mark.req("W42")
def test_done_after_the_lease_is_over(world: World) -> None:
    work = world.work()
    work.add_many([one("a"), one("b"), one("c")])
    claims = {claim.entry.key["page"]: claim for claim in work.cursor("w").claim(5).claims}
    world.clock.pass_s(31)
    claims["a"].done()
    work.tick()
    with pytest.raises(LeaseLost):
        claims["b"].heartbeat()
    claims["b"] = work.claim_of(claims["b"].entry.id, claims["b"].fence)
    claims["b"].done()
    assert work.add(**one("c", "new")).outcome == "merged"
    with pytest.raises(LeaseLost):
        claims["c"].done()
    assert [entry.data["url"] for entry in work.entries()] == ["new"]


@pytest.mark.req("W24", "W27", "W28")
def test_what_waits_again_is_folded_into_what_waits(world: World) -> None:
    work = world.work()
    work.add(**one("a", "old", priority=1))
    cursor = work.cursor("w")
    (claim,) = cursor.claim(5).claims
    behind = work.add(**one("a", "new"))
    world.clock.pass_s(1)
    claim.fail("no")
    assert claim.lost.is_set()
    (entry,) = work.entries()
    assert (entry.id, entry.data["url"], entry.priority, entry.timeout_counter) == (behind.id, "new", 1, 0)
    (claim,) = cursor.claim(5).claims
    assert work.add(**one("a", "newer")).outcome == "behind"
    world.clock.pass_s(31)
    assert work.add(**one("a", "newest")).outcome == "merged", "the lapse is recorded first"
    (entry,) = work.entries()
    assert (entry.status, entry.data["url"], entry.timeout_counter) == ("W", "newest", 0)
    (claim,) = cursor.claim(5).claims
    work.add(**one("a", "last"))
    claim.release()
    assert [entry.data["url"] for entry in work.entries()] == ["last"]


@pytest.mark.req("W46")
def test_back_off_and_an_add_that_ends_it(world: World) -> None:
    work = world.work(max_timeouts=0)
    work.add(**one("a"))
    cursor = work.cursor("w")
    for count, delay_s in enumerate([1, 2, 4]):
        (claim,) = cursor.claim(5).claims
        assert claim.entry.timeout_counter == count
        claim.fail("no")
        batch = cursor.claim(5)
        assert (batch.claims, batch.next_date) == ([], world.clock.now + delay_s * S)
        world.clock.pass_s(delay_s)
    (claim,) = cursor.claim(5).claims
    claim.fail("x" * 3000, delay_s=600)
    assert work.add(**one("a", "new")).outcome == "merged"
    (claim,) = cursor.claim(5).claims
    assert (claim.entry.timeout_counter, claim.entry.data["url"]) == (0, "new")
    claim.release()
    (claim,) = cursor.claim(5).claims
    assert claim.entry.timeout_counter == 0


@pytest.mark.req("W46", "W43")
def test_the_text_of_a_failure_is_cut(world: World) -> None:
    work = world.work(max_timeouts=1)
    work.add(**one("a"))
    work.cursor("w").claim(1).claims[0].fail("é" * 2000 + "x")
    assert [letter.reason for letter in work.dead()] == ["failed: " + "é" * 2000]


@pytest.mark.req("W64", "W38")
def test_a_tick_records_lapses(world: World) -> None:
    """Without any claim or add: a letter for what is at its limit, an entry that waits again for what is not."""
    work = world.work(max_timeouts=1)
    patient = world.work(declaration("nails"))
    for journal in (work, patient):
        journal.add(**one("a"))
        journal.cursor("w").claim(1)
    world.clock.pass_s(31)
    for journal in (work, patient):
        assert journal.dead() == []
        journal.tick()
    assert [(letter.reason, letter.timeout_counter) for letter in work.dead()] == [("timeout", 1)]
    (entry,) = patient.entries()
    world.clock.now -= 10 * S  # a clock that goes back brings no claim back: the lapse is written
    (again,) = patient.entries()
    assert (entry.status, entry.timeout_counter, again.status) == ("W", 1, "W")


@pytest.mark.req("W9", "W13", "W30", "RW1")
def test_a_clock_that_goes_back_and_forth_loses_nothing(world: World) -> None:
    """The database's clock is set back an hour, then forward again: work is late or early, never lost or refused."""
    work = world.work()
    work.add_many([one("a", "first"), one("b")])
    (held,) = work.cursor("w").claim(1).claims
    world.clock.pass_s(-3600)
    assert work.add(**one("b", "newer")).outcome == "merged", "no date was given, so none is stale"
    assert work.add(**one("c")).outcome == "inserted"
    held.heartbeat()
    assert pages(work.cursor("v").claim(5)) == ["c"], "what was added an hour ahead is due then"
    world.clock.pass_s(7200)
    found = {claim.entry.key["page"]: claim.entry for claim in work.cursor("v").claim(5).claims}
    assert set(found) == {"a", "b", "c"}, "leases have ended by this clock"
    assert (found["b"].data["url"], found["a"].timeout_counter) == ("newer", 1)


# ---------------------------------------------------------------- dead letters


@pytest.mark.req("W38", "W43", "W44", "W29", "RW5")
def test_the_third_time_is_a_dead_letter(world: World, caplog: pytest.LogCaptureFixture) -> None:
    work = world.work()
    added = work.add(**one("a", "data"))
    cursor = work.cursor("w")
    for _ in range(2):
        assert len(cursor.claim(5).claims) == 1
        world.clock.pass_s(31)
    (claim,) = cursor.claim(5).claims
    with caplog.at_level(logging.WARNING, "strandline.work"):
        claim.fail("it broke")
    assert caplog.text.count("dead letter") == 1
    assert cursor.claim(5).claims == []
    (letter,) = work.alerts()
    assert (letter.id, letter.reason, letter.owner, letter.timeout_counter) == (added.id, "failed: it broke", "w", 3)
    assert (letter.key, letter.data) == ({"page": "a"}, {"url": "data", "width": None})
    counts = work.counts()
    assert (counts.dead, counts.unacknowledged, counts.due) == (1, 1, 0)
    work.acknowledge(letter.dead_id)
    assert (work.alerts(), len(work.dead())) == ([], 1)
    assert work.requeue(letter.dead_id).outcome == "inserted"
    assert work.dead() == []
    (claim,) = cursor.claim(5).claims
    assert (claim.entry.timeout_counter, claim.entry.data["url"]) == (0, "data")
    for call in (work.requeue, work.acknowledge):
        with pytest.raises(NotFound) as missing:
            call(letter.dead_id)
        assert missing.value.code == "dead_letter"


@pytest.mark.req("W28", "W44", "RW1")
def test_dead_letters_and_newer_data(world: World) -> None:
    work = world.work(max_timeouts=1)
    work.add(**one("a", "old", expiration_date=world.clock.now + 60 * S))
    cursor = work.cursor("w")
    (claim,) = cursor.claim(5).claims
    world.clock.pass_s(1)
    work.add(**one("a", "new"))
    claim.fail("no")
    assert [found.entry.data["url"] for found in cursor.claim(5).claims] == ["new"], "not folded, not behind"
    work.drop(work.entries()[0].id)
    work.add(**one("a", "newer"))
    (letter,) = work.dead()
    world.clock.pass_s(60)
    with pytest.raises(InvalidInput, match="expired at") as refused:
        work.requeue(letter.dead_id)
    assert refused.value.code == "expired"
    assert work.requeue(letter.dead_id, expiration_date=0).outcome == "stale"
    assert [entry.data["url"] for entry in work.entries()] == ["newer"]


@pytest.mark.req("W6")
def test_dead_letters_are_kept_so_long(world: World) -> None:
    work = world.work(max_timeouts=1, dead_keep_s=60.0)
    work.add(**one("a"))
    work.cursor("w").claim(1).claims[0].fail("no")
    work.tick()
    assert len(work.dead()) == 1
    world.clock.pass_s(61)
    work.tick()
    assert work.dead() == []


@pytest.mark.req("W37", "W43")
def test_what_cannot_be_decoded_is_a_dead_letter_alone(world: World) -> None:
    work = world.work()
    ids = [work.add(**one(f"p{number}")).id for number in range(10)]
    with work._database.write() as tx:
        damage(work, tx, ids[4])
    batch = work.cursor("w").claim(100)
    assert [claim.entry.id for claim in batch.claims] == [*ids[:4], *ids[5:]]
    (letter,) = work.dead()
    assert (letter.id, letter.reason, letter.data, letter.key) == (ids[4], "undecodable", None, {"page": "p4"})


def damage(work: WorkJournal, tx: Any, id_: int) -> None:
    if tx.dialect == "sqlite":
        tx.raw.execute("UPDATE work_thumbs_entry SET data = x'ff7b' WHERE id = ?", (id_,))
    else:
        schema = work._database.schema.name  # type: ignore[attr-defined]
        tx.raw.execute(f"UPDATE \"{schema}\".work_thumbs_entry SET data = '\\xff7b' WHERE id = {id_}")


# ---------------------------------------------------------------- operate


@pytest.mark.req("W77")
def test_a_pause_lasts(world: World) -> None:
    work = world.work()
    work.add_many([one("a"), one("b")])
    (claim,) = work.cursor("w").claim(1).claims
    work.pause("maintenance")
    assert world.work("thumbs").cursor("v").claim(5) == ([], None, [], "maintenance")
    claim.heartbeat()
    claim.done()
    work.add(**one("c"))
    work.resume()
    batch = work.cursor("w").claim(5)
    assert (pages(batch), batch.paused) == (["b", "c"], None)


@pytest.mark.req("W78")
def test_looking(world: World) -> None:
    work = world.work()
    ids = [work.add(**one(f"p{number}")).id for number in range(5)]
    work.cursor("w").claim(2)
    world.clock.pass_s(3)
    assert [entry.id for entry in work.entries(status="W")] == ids[2:]
    assert [entry.id for entry in work.entries(status="P")] == ids[:2]
    assert [entry.id for entry in work.entries(after=ids[1], limit=2)] == ids[2:4]
    counts = work.counts()
    assert (counts.due, counts.running, counts.oldest_due_s) == (3, 2, 3.0)
    behind = work.add(**one("p0", "behind")).id
    for shown in (work.get({"page": "p0"}), work.get({"page": "p1"}), work.get({"page": "p2"})):
        assert shown is not None
        assert (shown.id, shown.status) == {"p0": (behind, "W"), "p1": (ids[1], "P"), "p2": (ids[2], "W")}[
            shown.key["page"]
        ]
    assert work.get({"page": "p9"}) is None
    work.drop(behind)
    work.drop(ids[0])
    with pytest.raises(NotFound) as missing:
        work.drop(ids[0])
    assert missing.value.code == "entry"
    (table, *_) = work.tables()
    assert (table.state, table.entries, table.bytes > 0, table.closed_date) == ("current", 4, True, 0)


@pytest.mark.req("W28", "W39", "W78")
@pytest.mark.parametrize("last", [False, True], ids=["waits again", "dead letter"])
def test_looking_after_a_lapse_with_an_entry_behind(world: World, last: bool) -> None:
    """Nobody has recorded the lapse: who looks sees what the next claim will find, and nothing is written."""
    work = world.work(max_timeouts=1 if last else 3)
    work.add_many([one("a", "old", priority=5), one("b", "old")])
    held = {claim.entry.key["page"]: claim for claim in work.cursor("w").claim(2).claims}
    behind = work.add(**one("a", "new"))
    assert behind.outcome == "behind"
    assert [entry.status for entry in work.entries()] == ["P", "P", "W"]
    world.clock.pass_s(31)
    shown = {entry.key["page"]: entry for entry in work.entries()}
    assert [entry.id for entry in work.entries(limit=1)] == [min(entry.id for entry in shown.values())]
    assert sorted(shown) == (["a"] if last else ["a", "b"]), "what is a dead letter by now waits for nobody"
    assert (shown["a"].id, shown["a"].data["url"], shown["a"].status) == (behind.id, "new", "W")
    for page in ("a", "b"):
        assert work.get({"page": page}) == shown.get(page)
    work.tick()
    assert {entry.key["page"]: entry for entry in work.entries()} == shown
    assert (shown["a"].priority, shown["a"].timeout_counter) == ((20, 0) if last else (5, 0))
    if not last:
        assert (shown["b"].id, shown["b"].timeout_counter) == (held["b"].entry.id, 1)


@pytest.mark.req("W43")
def test_dead_letters_that_an_add_makes_are_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    work = world.work(max_timeouts=1)
    for page in "ab":
        work.add(**one(page))
    claims = work.cursor("w").claim(2).claims
    world.clock.pass_s(31)
    assert work.add(**one("a")).outcome == "inserted"
    assert [added.outcome for added in work.add_many([one("b"), one("c")])] == ["inserted", "inserted"]
    assert [f"entry {claim.entry.id} is a dead letter" in caplog.text for claim in claims] == [True, True]


@pytest.mark.req("W78")
def test_claims_of_another_journal_are_refused(world: World) -> None:
    """Ids are numbers of a database, so those of another one may be those of entries here."""
    work, other = world.work(), world.work(declaration("nails"))
    for journal in (work, other):
        journal.add(**one("a"))
    (claim,) = work.cursor("w").claim(1).claims
    cursor = other.cursor("w")
    calls = (lambda: other.done_many([claim]), lambda: cursor.claim(1, done=[claim]), lambda: other.beat([claim]))
    for call in calls:
        with pytest.raises(InvalidInput, match="claim of work journal thumbs") as refused:
            call()
        assert refused.value.code == "option"
    assert [entry.status for entry in work.entries()] == ["P"]
    assert world.work().done_many([claim]) == ["done"], "the same journal, opened again"


@pytest.mark.req("W78")
def test_tables_are_named_as_they_are(world: World) -> None:
    work = world.work()
    for number in range(10):
        work.add_many([one(f"p{number}-{n}") for n in range(5)])
        work._upkeep.step(work.settings, close=True)
    names = [table.name for table in work.tables()]
    with work._database.read() as tx:
        raw: Any = tx.raw
        if tx.dialect == "sqlite":
            there = {name for (name,) in raw.execute("SELECT name FROM sqlite_schema")}
        else:
            there = {name for (name,) in raw.execute("SELECT relname FROM pg_class").fetchall()}
    assert set(names) <= there
    assert len(names) == (1 if world.is_sqlite else 11)
    paged, after = list[str](), ""
    while page := work.tables(after=after, limit=4):
        paged += [table.name for table in page]
        after = paged[-1]
    assert paged == names


@pytest.mark.req("W37", "W78")
def test_looking_at_an_entry_that_cannot_be_decoded(world: World) -> None:
    work = world.work()
    ids = [work.add(**one(f"p{number}")).id for number in range(3)]
    with work._database.write() as tx:
        damage(work, tx, ids[1])
    assert [(entry.id, entry.key, entry.data.get("url")) for entry in work.entries()] == [
        (ids[0], {"page": "p0"}, "u"), (ids[1], {"page": "p1"}, None), (ids[2], {"page": "p2"}, "u"),
    ]  # fmt: skip
    found = work.get({"page": "p1"})
    assert found is not None
    assert (found.id, found.data) == (ids[1], {})
    (claim, *_) = work.cursor("w").claim(1).claims
    with work._database.write() as tx:
        damage(work, tx, claim.entry.id)
    with pytest.raises(Corrupt, match=f"entry {ids[0]} cannot be decoded") as refused:
        work.claim_of(claim.entry.id, claim.fence)
    assert refused.value.code == "undecodable"


@pytest.mark.req("W3")
def test_closed(world: World) -> None:
    work = world.work()
    work.add(**one("a"))
    cursor = work.cursor("w")
    (claim,) = cursor.claim(1).claims
    work.close()
    work.close()
    calls = (lambda: work.add(**one("a")), work.counts, lambda: cursor.claim(1), claim.heartbeat, lambda: work.wait(1))
    for call in calls:
        with pytest.raises(InvalidInput) as refused:
            call()
        assert refused.value.code == "closed"


@pytest.mark.req("W75")
def test_an_append_id_belongs_to_the_data(world: World) -> None:
    work = world.work(max_timeouts=1)
    work.add(**one("a"))
    cursor = work.cursor("w")
    (claim,) = cursor.claim(1).claims
    first = claim.append_id
    claim.release()
    (claim,) = cursor.claim(1).claims
    assert claim.append_id == first
    claim.fail("no")
    (letter,) = work.dead()
    work.requeue(letter.dead_id)
    (claim,) = cursor.claim(1).claims
    assert claim.append_id == first, "the same data again"
    claim.release()
    work.add(**one("a", "other"))
    (claim,) = cursor.claim(1).claims
    assert claim.append_id != first


# ---------------------------------------------------------------- bad input

BAD: list[tuple[dict[str, Any], str]] = [
    *[({"priority": value}, "priority_range") for value in (256, -1, 10.0, True, "10")],
    ({"process_date": datetime(2026, 1, 1)}, "time_without_zone"),  # noqa: DTZ001
    ({"process_date": -1}, "time_range"),
    ({"expiration_date": datetime(9999, 12, 31, tzinfo=UTC).timestamp()}, "time_range"),
    ({"process_date": 253_402_300_800_000_000}, "time_range"),
    ({"insertion_date": "ahead"}, "time_ahead"),
    ({"expiration_date": 5, "process_date": 6}, "expires_early"),
    *[({name: 1}, "column_reserved") for name in ("status", "start_date", "timeout_counter")],
    ({"colour": 1}, "column"),
    ({"key": {}}, "column"),
    ({"key": {"page": None}}, "column"),
    ({"key": {"page": ""}}, "column"),
    ({"key": {"page": "a", "x": 1}}, "column"),
    ({"data": {"url": "u", "fence": 1}}, "column_reserved"),
    ({"data": {"url": 5}}, "column_type"),
    ({"data": {"url": "u", "width": 2**63}}, "integer_out_of_range"),
    ({"data": {"url": "u", "width": True}}, "column_type"),
    ({"key": {"page": "a\0"}}, "nul_character"),
    ({"key": {"page": "\ud800"}}, "invalid_unicode"),
    ({"key": {"page": "x" * 600}}, "key_too_long"),
    ({"data": {"url": "x" * 300_000}}, "data_too_large"),
]


@pytest.mark.req("W2", "W4", "W8", "W9", "W11")
def test_bad_adds_change_nothing(world: World) -> None:
    work = world.work()
    for more, code in BAD:
        given = {**one("a"), **more}
        if given.get("insertion_date") == "ahead":
            given["insertion_date"] = world.clock.now + 3600 * S
        with pytest.raises(StrandlineError) as refused:
            work.add(**given)
        assert (refused.value.code, type(refused.value)) == (code, InvalidInput), more
        assert len(refused.value.message) < 400
        if code == "time_ahead":
            assert "is 3600 s ahead of the database's clock (limit 60)" in refused.value.message
    work.add(**one("b", insertion_date=world.clock.now + 60 * S))
    assert work.counts()[:4] == (0, 1, 0, 0)
    when = datetime.fromtimestamp(world.clock.now / S, UTC)
    work.add(**one("c", insertion_date=when))


@pytest.mark.req("W33", "W46")
def test_bad_calls(world: World) -> None:
    work = world.work()
    work.add(**one("a"))
    cursor = work.cursor("w")
    for limit in (0, 1001, True, 1.5):
        with pytest.raises(InvalidInput) as refused:
            cursor.claim(limit)  # type: ignore[arg-type]
        assert refused.value.code == "limit_range"
    (claim,) = cursor.claim(1).claims
    with pytest.raises(InvalidInput) as refused:
        claim.fail("x", delay_s=-1)
    assert refused.value.code == "delay_range"
    with pytest.raises(InvalidInput) as refused:
        work.entries(status="D")
    assert refused.value.code == "option"


@pytest.mark.req("W28", "W47")
@pytest.mark.parametrize("end", ["fail", "lapse"])
def test_an_entry_that_waits_again_is_not_folded_into_one_that_expired(world: World, end: str) -> None:
    work = world.work()
    held = work.add(**one("a"))
    (claim,) = work.cursor("w").claim(1).claims
    late = {**one("a"), "data": {"url": "late", "width": None}}
    assert work.add(**late, expiration_date=world.clock.now + 3 * S).outcome == "behind"
    world.clock.pass_s(4 if end == "fail" else 31)
    if end == "fail":
        claim.fail("no", delay_s=0)
    (seen,) = work.entries()
    (again,) = work.cursor("w").claim(5).claims
    assert (seen.id, seen.data) == (again.entry.id, again.entry.data) == (held.id, claim.entry.data)
    again.done()
    world.clock.pass_s(100)
    assert (work.entries(), work.cursor("w").claim(5).claims) == ([], [])


@pytest.mark.req("W42", "W45", "RW3")
def test_of_two_claims_on_one_entry_the_older_one_is_lost(world: World) -> None:
    work = world.work()
    work.add(**one("a"))
    cursor = work.cursor("w")
    (old,) = cursor.claim(1).claims
    world.clock.pass_s(31)
    (new,) = cursor.claim(1).claims
    assert work.claim_of(new.entry.id, new.fence).fence == new.fence > old.fence
    for call in (old.heartbeat, old.done, old.release, lambda: old.fail("no"),
                 lambda: work.claim_of(old.entry.id, old.fence)):  # fmt: skip
        with pytest.raises(LeaseLost):
            call()
    assert work.entries()[0].owner == "w"
    assert work.beat([old, new]) == [old]
    assert work.done_many([new, old]) == ["done", "lost"]
    assert (old.is_lost, new.is_lost) == (True, False)


@pytest.mark.req("W33", "W42", "W45")
def test_a_refused_call_on_a_claim_does_not_change_whether_it_can_be_done(world: World) -> None:
    """Late, and nobody took it: `done` ends it, by itself or with a claim; again it is quiet."""
    work = world.work()
    for page in ("a", "b"):
        work.add(**one(page))
    cursor = work.cursor("w")
    one_, other = cursor.claim(2).claims
    world.clock.pass_s(31)
    for claim in (one_, other):
        with pytest.raises(LeaseLost):
            claim.heartbeat()
        with pytest.raises(LeaseLost):
            claim.fail("too late")
    one_.done()
    one_.done()
    assert cursor.claim(1, done=[other]).lost == []
    other.done()
    assert work.entries() == []
