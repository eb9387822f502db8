"""What operators do with projections, with and without a host."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import InvalidInput, Key, NotFound, SchemaMismatch
from strandline.connect import Strandline
from strandline.projection.definition import BySlices, Projection
from strandline.projection.ended_lives import forget_ended
from strandline.projection.host import Host
from strandline.projection.offset_store import OffsetStore, ProjectionRow
from strandline.testing.limits import small
from strandline.values.events import RecordedEvent
from strandline.values.keys import slice_of
from tests.journal.worlds import digest
from tests.projection.worlds import ORDERS, QUICK, Table, caught_up, check_exactly_once, range_of, running, until
from tests.query.filling import carry_all, key_in, put

KEY = Key("order", "1")


def run_to_the_end(s: Strandline, table: Table, name: str = "totals", **settings: Any) -> None:
    with running(s, Projection(name, ORDERS, table.add, **{**QUICK, **settings})):
        until(lambda: caught_up(s, name))


@pytest.mark.req("P76", "P80", "P81", "P78")
def test_no_host_is_needed(s: Strandline, table: Table) -> None:
    put(s, KEY, 3)
    carry_all(s)
    run_to_the_end(s, table)
    began = time.monotonic()
    assert s.projections.pause("totals") == []
    s.projections.status("totals")
    s.projections.set_offset("totals", 5)
    s.projections.rename("totals", "sums")
    s.projections.reset("sums")
    s.projections.resume("sums")
    assert s.projections.list() == [("sums", 1, "serving")]
    s.projections.drop("sums")
    assert s.projections.list() == []
    assert time.monotonic() - began < 8


@pytest.mark.req("P78")
def test_back_and_forth(s: Strandline, table: Table) -> None:
    for _ in range(6):
        put(s, KEY)
    carry_all(s)
    times = [event.timestamp for event in s.journal.read(KEY)]
    run_to_the_end(s, table)
    s.projections.set_offset("totals", times[2])
    run_to_the_end(s, table)
    assert table.of(KEY) == [1, 2, 3, 4, 5, 6, 4, 5, 6]  # exactly what lies above it, again
    for _ in range(3):
        put(s, KEY)
    carry_all(s)
    times = [event.timestamp for event in s.journal.read(KEY)]
    s.projections.set_offset("totals", times[7])
    run_to_the_end(s, table)
    assert table.of(KEY)[9:] == [9]  # exactly the gap is left out, and the next one is accepted
    with pytest.raises(InvalidInput) as refused:
        s.projections.set_offset("totals", s.strandline() + 1)
    assert refused.value.code == "time_range"
    s.projections.reset("totals")
    run_to_the_end(s, table)
    assert table.of(KEY)[10:] == [1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.req("P78")
def test_parked_keys_at_a_new_offset(s: Strandline, table: Table) -> None:
    early, late = key_in(0, s.log.partitions), key_in(1, s.log.partitions)
    put(s, early)
    carry_all(s)
    middle = s.strandline()
    put(s, late)
    carry_all(s)

    def handle(tx: Any, event: Any) -> None:
        raise ValueError("no")

    with running(s, Projection("totals", ORDERS, handle, retries=0, on_failure="park", **QUICK)):
        until(lambda: len(s.projections.parked("totals")) == 2)
    s.projections.set_offset("totals", middle)
    assert s.projections.parked("totals") == [str(early)]
    run_to_the_end(s, table)
    assert table.rows() == [(str(late), 1, 1)]
    s.projections.reset("totals")
    assert s.projections.parked("totals") == []
    assert s.projections.dead_letters("totals") == []


@pytest.mark.req("P80", "P101")
def test_rename(s: Strandline, table: Table) -> None:
    put(s, KEY, 2)
    carry_all(s)
    run_to_the_end(s, table)
    s.projections.rename("totals", "sums")
    put(s, KEY)
    carry_all(s)
    run_to_the_end(s, table, "sums")
    check_exactly_once(s, table)
    run_to_the_end(s, table, "totals", start="now")
    with pytest.raises(InvalidInput) as refused:
        s.projections.rename("sums", "totals")
    assert refused.value.code == "projection_taken"


@pytest.mark.req("P80")
def test_a_host_under_the_old_name_ends(s: Strandline, table: Table) -> None:
    put(s, KEY, 2)
    carry_all(s)

    def renamed_meanwhile() -> None:
        with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
            until(lambda: caught_up(s))
            assert s.projections.pause("totals") == []
            s.projections.rename("totals", "sums")
            until(lambda: not s.projections.status("sums").hosts)

    with pytest.raises(NotFound) as ended:
        renamed_meanwhile()
    assert ended.value.code == "projection"
    assert s.projections.list() == [("sums", 1, "serving")]


@pytest.mark.req("P80")
@pytest.mark.parametrize("generations", [(1, 2), (2,)])
def test_a_host_that_waits_for_a_generation_does_not_make_the_old_name_anew(
    s: Strandline, table: Table, generations: tuple[int, ...]
) -> None:
    put(s, KEY, 2)
    carry_all(s)
    run_to_the_end(s, table)
    host = Host(s, [Projection("totals", ORDERS, table.add, generation=one, **QUICK) for one in generations])
    ended: list[str] = []

    def run() -> None:
        try:
            host.run()
        except NotFound as gone:
            ended.append(gone.code)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until(host.ready.is_set)
        assert s.projections.pause("totals") == []
        s.projections.rename("totals", "sums")
        until(lambda: not thread.is_alive())
    finally:
        host.stop()
        thread.join()
    assert ended == ["projection"]
    assert s.projections.list() == [("sums", 1, "serving")]


@pytest.mark.req("P33", "P77")
def test_the_deletion_run_leaves_its_host_time_for_others(
    s: Strandline, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its thousand statements may have to wait for a handler's transaction, in a file."""
    begun, forget = threading.Event(), OffsetStore.forget

    def slowly(store: OffsetStore, row: ProjectionRow, line: int) -> Iterator[int]:
        for gone in forget(store, row, line):
            begun.set()
            time.sleep(0.02)
            yield gone

    monkeypatch.setattr(OffsetStore, "forget", slowly)
    for partition in range(s.log.partitions):
        put(s, key_in(partition, s.log.partitions))
    carry_all(s)
    with running(s, Projection("totals", ORDERS, table.add, delete_after_s=1, delete_interval_s=1, **QUICK)):
        until(begun.is_set)
        assert s.projections.pause("totals", timeout_s=6) == []


@pytest.mark.req("P33", "P29", "P32")
def test_key_rows_at_or_below_the_line_go(s: Strandline, table: Table) -> None:
    """A key that was silent for longer than its row was kept goes on without a look-back."""
    put(s, KEY, 7)
    put(s, Key("order", "parked"), 1)
    carry_all(s)

    def handle(tx: Any, event: Any) -> None:
        if event.key.entity_id == "parked":
            raise ValueError("no")
        table.add(tx, event)

    parking: dict[str, Any] = {**QUICK, "retries": 0, "on_failure": "park"}
    with running(s, Projection("totals", ORDERS, handle, **parking)):
        until(lambda: caught_up(s))
    store = s.open_offsets(None).store
    row = store.find("totals")
    assert set(store.key_rows(row, [str(KEY), "order|parked"]).rows) == {str(KEY), "order|parked"}
    line = min(found.position for found in s.projections.status("totals").ranges)
    assert sum(store.forget(row, line)) == 1
    found = store.key_rows(row, [str(KEY), "order|parked"])
    assert set(found.rows) == {"order|parked"}
    assert found.line == line
    put(s, KEY)
    carry_all(s)
    with running(s, Projection("totals", ORDERS, handle, **parking)):
        until(lambda: caught_up(s))
        assert "violations" not in range_of(s, KEY).counts
    assert table.of(KEY) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert sum(store.forget(row, line - 5)) == 0
    assert store.find("totals").line == line  # it only grows
    with store.database.write() as tx:  # the place of a slice, as a rescale leaves it
        tx.many("save_keys", [(slice_of(str(KEY)), "", 0, 0, line - 7, None)], row.id, row.epoch)
    list(store.forget(row, line))
    with store.database.read() as tx:
        assert store.slice_rows(tx, row) == {slice_of(str(KEY)): line - 7}
    store.close()


@pytest.mark.req("P33")
def test_a_host_runs_the_deletion(s: Strandline, table: Table) -> None:
    put(s, KEY, 3)
    carry_all(s)
    store = s.open_offsets(None).store
    with running(s, Projection("totals", ORDERS, table.add, delete_after_s=1, delete_interval_s=1, **QUICK)):
        until(lambda: caught_up(s))
        row = store.find("totals")

        def gone() -> bool:
            for partition in range(s.log.partitions):  # time goes on, and so does the strandline
                put(s, key_in(partition, s.log.partitions, "user"))
            carry_all(s)
            return not store.key_rows(row, [str(KEY)]).rows

        until(gone)
        put(s, KEY)
        carry_all(s)
        until(lambda: caught_up(s))
    check_exactly_once(s, table)
    store.close()


@pytest.mark.req("P33")
def test_a_deletion_that_takes_longer_than_its_interval_comes_to_its_end(
    s: Strandline, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that begins anew whenever it is due again would never reach the last slices."""
    put(s, KEY, 2)
    for partition in range(s.log.partitions):  # every range gets a position
        put(s, key_in(partition, s.log.partitions))
    carry_all(s)
    forget = OffsetStore.forget
    ended: list[int] = []

    def slowly(self: OffsetStore, row: Any, line: int) -> Iterator[int]:
        for gone in forget(self, row, line):
            yield gone
            time.sleep(0.001)
        ended.append(line)

    monkeypatch.setattr(OffsetStore, "forget", slowly)
    with small({"projection.delete_interval_s": 0.01, "projection.delete_after_s": 0}):
        settings: dict[str, Any] = {"delete_after_s": 0.0, "delete_interval_s": 0.01, **QUICK}
        with running(s, Projection("totals", ORDERS, table.add, **settings)):

            def over() -> bool:
                for partition in range(s.log.partitions):  # time goes on, and the line with it
                    put(s, key_in(partition, s.log.partitions))
                carry_all(s)
                return bool(ended)

            until(over, 30)


@pytest.mark.req("P33")
def test_rows_stay_for_as_long_as_they_are_to_be_kept(s: Strandline, table: Table) -> None:
    """The deletion raises the line to the least position, less `delete_after_s`: rows above it stay."""
    put(s, KEY, 3)
    for partition in range(s.log.partitions):  # every range gets a position
        put(s, key_in(partition, s.log.partitions))
    carry_all(s)
    store = s.open_offsets(None).store
    keep_s = 3600
    with running(s, Projection("totals", ORDERS, table.add, delete_after_s=keep_s, delete_interval_s=1, **QUICK)):
        until(lambda: caught_up(s))
        until(lambda: store.find("totals").line > 0)
        row = store.find("totals")
        assert row.line <= min(found.position for found in s.projections.status("totals").ranges) - keep_s * 1_000_000
        assert set(store.key_rows(row, [str(KEY)]).rows) == {str(KEY)}
    store.close()


@pytest.mark.req("P97", "J48")
def test_nothing_is_left_of_a_life_that_is_over(s: Strandline, table: Table) -> None:
    """A purge takes parked keys and dead letters of its life along, at the next deletion; those of others stay."""
    gone, again, stays = (key_in(number, s.log.partitions) for number in range(3))
    for key in (gone, again, stays):
        put(s, key, 2)
    carry_all(s)

    def handle(tx: Any, event: Any) -> None:
        if event.life == 1:
            raise ValueError("no")
        table.add(tx, event)

    parking: dict[str, Any] = {**QUICK, "retries": 0, "on_failure": "park", "delete_interval_s": 1}
    with running(s, Projection("totals", ORDERS, handle, **parking)):
        until(lambda: len(s.projections.parked("totals")) == 3)
        s.projections.skip("totals", stays, 1)
        until(lambda: len(s.projections.dead_letters("totals")) == 3)
        for key in (gone, again):
            s.journal.purge(key)
        put(s, again, 1)
        carry_all(s)
        until(lambda: table.of(again) == [1])
        until(lambda: {letter.key for letter in s.projections.dead_letters("totals")} == {str(stays)})
        until(lambda: s.projections.parked("totals") == [str(stays)])
    offsets = s.open_offsets().store
    assert forget_ended(offsets, s.store, offsets.find("totals")) == 0
    offsets.close()


@pytest.mark.req("P101")
@pytest.mark.parametrize("how", ["reset", "set_offset"])
def test_what_an_epoch_has_left_goes_with_the_next_deletion(s: Strandline, table: Table, how: str) -> None:
    put(s, KEY, 3)
    carry_all(s)
    run_to_the_end(s, table)
    if how == "reset":
        s.projections.reset("totals")
    else:
        s.projections.set_offset("totals", 5)
    offsets = s.open_offsets().store
    row = offsets.find("totals")

    def left() -> int:
        with offsets.database.read() as tx:
            return len(tx.rows("keys_above", (row.id, row.epoch - 1, 0, 1023, -1)))

    assert left()
    next(iter(offsets.forget(row, row.line)))  # its first step
    assert not left()
    offsets.close()
    run_to_the_end(s, table)
    assert table.of(KEY) == [1, 2, 3, 1, 2, 3]


@pytest.mark.req("P31", "P83", "P92")
def test_two_lags(s: Strandline, table: Table) -> None:
    put(s, KEY, 3)
    carry_all(s)
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
        until(lambda: caught_up(s))
        put(s, KEY)  # not carried
        until(lambda: s.projections.status("totals").behind_log_s > 0)
        status = s.projections.status("totals")
        assert status.behind_store_s == 0
        assert "no pipeline runs: projections wait for it" in status.warnings
        lease = s.store.lease().take("a pipeline")
        assert s.projections.status("totals").warnings == ()
        lease.release()
    carry_all(s)
    assert s.projections.status("totals").behind_store_s > 0
    run_to_the_end(s, table)
    for found in s.projections.status("totals").ranges:  # an idle range is as far as the store
        assert found.position >= s.strandline() - 1


@pytest.mark.req("P104")
def test_another_history(s: Strandline, table: Table) -> None:
    store = s.open_offsets(None).store
    row = store.ensure("totals", 1, ORDERS.text, start=0, partitions=3, history_id=s.store.settings.history_id)
    with store.database.write() as tx:
        store.change(tx, row._replace(history_id="another"))
    store.close()
    with pytest.raises(SchemaMismatch) as refused, running(s, Projection("totals", ORDERS, table.add)):
        pass
    assert refused.value.code == "log_replaced"
    s.projections.reset("totals")
    run_to_the_end(s, table)


@pytest.mark.req("P93", "P76")
def test_unknown_names(s: Strandline) -> None:
    before = digest(s)
    manage = s.projections
    calls: list[Any] = [
        lambda: manage.status("nope"), lambda: manage.pause("nope"), lambda: manage.resume("nope"),
        lambda: manage.reset("nope"), lambda: manage.set_offset("nope", 0), lambda: manage.rename("nope", "other"),
        lambda: manage.drop("nope"), lambda: manage.rescale("nope", 2), lambda: manage.dead_letters("nope"),
        lambda: manage.unpark("nope", KEY), lambda: manage.discard("nope", KEY, 1), lambda: manage.parked("nope"),
        lambda: manage.redeliver("nope", KEY, 1), lambda: manage.status("nope", generation=2),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(NotFound) as refused:
            call()
        assert refused.value.code == "projection"
    for name in ("", "Totals", "1a", "a b", "a" * 101, 5):
        with pytest.raises(InvalidInput) as bad:
            manage.status(name)  # type: ignore[arg-type]
        assert bad.value.code == "projection_name"
    for n in (0, 1025, "4"):
        with pytest.raises(InvalidInput) as bad:
            manage.rescale("totals", n)  # type: ignore[arg-type]
        assert bad.value.code == "slice_range"
    assert digest(s) == before


SETTINGS = [
    ({"delivery": "twice"}, "setting"), ({"save_after": 0}, "setting"), ({"save_after": 10_001}, "setting"),
    ({"save_within_s": 0}, "setting"), ({"group_size": 0}, "setting"), ({"group_within_s": 61}, "setting"),
    ({"on_failure": "ignore"}, "setting"), ({"retries": -1}, "setting"), ({"retries": 1001}, "setting"),
    ({"retry_delay_s": 0}, "setting"), ({"restart_min_s": 5, "restart_max_s": 4}, "setting"),
    ({"handler_timeout_s": 0}, "setting"), ({"lease_s": 0.5}, "setting"), ({"delete_after_s": 0}, "setting"),
    ({"delete_interval_s": 0}, "setting"), ({"parked_keys_max": -1}, "setting"), ({"isolation": "none"}, "setting"),
    ({"start": "yesterday"}, "setting"), ({"start": True}, "setting"), ({"offset_store": 5}, "setting"),
    ({"generation": 0}, "setting"), ({"page_size": 0}, "setting"), ({"keys_in_memory_max": 1}, "setting"),
    ({"grouped": True}, "setting"), ({"unknown": 1}, "setting"),
    ({"group_size": 5, "save_after": 5}, "setting"), ({"group_within_s": 1, "save_within_s": 1}, "setting"),
]  # fmt: skip


@pytest.mark.req("P93", "P94")
@pytest.mark.parametrize(("settings", "code"), SETTINGS)
def test_bad_settings(settings: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Projection("totals", ORDERS, print, **settings)
    assert refused.value.code == code


def _one(tx: Any, given: RecordedEvent) -> None: ...


def _many(tx: Any, given: Sequence[RecordedEvent]) -> None: ...


class _Hooked:
    def __init__(self, **hooks: Any) -> None:
        self.__dict__.update(hooks)

    def handle(self, tx: Any, event: Any) -> None: ...


@pytest.mark.req("P94", "P50", "P51", "P55")
def test_definitions_that_contradict_themselves() -> None:
    """A handler of one event that would get lists, one of lists that would get events, hooks that cannot be called."""
    once, many = {"delivery": "at_least_once"}, {"group_size": 5}
    given: list[tuple[Any, dict[str, Any], str]] = [
        (lambda tx, event: None, many, "takes one event"), (lambda event: None, {**once, **many}, "takes one event"),
        (lambda tx, events: None, {}, "takes a list"), (lambda events: None, once, "takes a list"),
        (_one, {"group_within_s": 1}, "takes one event"), (_many, {}, "takes a list"), (_Hooked(), many, "takes one"),
        (_Hooked(start=lambda: None), {}, "allowed start(context)"),
        (_Hooked(stop=lambda a, b: None), {}, "allowed stop(context)"),
        (_Hooked(on_switch=lambda tx: None), {}, "allowed on_switch(tx, old, new)"),
    ]  # fmt: skip
    for handler, settings, text in given:
        with pytest.raises(InvalidInput) as refused:
            Projection("totals", ORDERS, handler, **settings)
        assert refused.value.code == "handler"
        assert text in refused.value.message
    right: list[tuple[Any, dict[str, Any]]] = [
        (_one, {}), (_many, many), (lambda tx, each: None, many), (lambda tx, each: None, {}), (print, many),
        (_Hooked(start=print, stop=lambda context: None, on_switch=lambda tx, old, new: None), {}),
        (_Hooked(start=5), {}),
    ]  # fmt: skip
    for handler, settings in right:
        assert Projection("totals", ORDERS, handler, **settings).settings.grouped is bool(settings)


@pytest.mark.req("P94")
def test_bad_handlers_and_sources(s: Strandline) -> None:
    async def later(tx: Any, event: Any) -> None: ...

    def steps(tx: Any, event: Any) -> Iterator[int]:
        yield 1

    class Later:
        async def __call__(self, tx: Any, event: Any) -> None: ...

    class LateHook:
        def handle(self, tx: Any, event: Any) -> None: ...

        async def stop(self, context: Any) -> None: ...

    for handler in (None, 5, later, steps, Later(), LateHook()):
        with pytest.raises(InvalidInput) as refused:
            Projection("totals", ORDERS, handler)  # type: ignore[arg-type]
        assert refused.value.code == "handler"
    assert refused.value.message.startswith(
        "handler.stop: is async; allowed a plain function: it is called in a thread"
    )
    given: list[tuple[Any, Any, str]] = [
        (lambda event: None, "exactly_once", "handler: takes (event); allowed handle(tx, event);"),
        (lambda tx, event: None, "at_least_once", "handler: takes (tx, event); allowed handle(event) with"),
    ]
    for handler, delivery, text in given:
        with pytest.raises(InvalidInput) as refused:
            Projection("totals", ORDERS, handler, delivery=delivery)
        assert refused.value.message.startswith(text)
    with pytest.raises(InvalidInput, match="is a class; allowed an object of it"):
        Projection("totals", ORDERS, LateHook)
    with pytest.raises(InvalidInput, match="no connection"):
        Host("sqlite:orders", [Projection("totals", ORDERS, print)])  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="unknown scheme") as refused:
        Projection("totals", ORDERS, print, offset_store="totals.db")
    assert refused.value.hint == "did you mean sqlite:totals.db?"
    with pytest.raises(InvalidInput) as refused:
        Projection("totals", "order", print)  # type: ignore[arg-type]
    assert refused.value.code == "setting"
    for entity_type in ("", "a|b"):
        with pytest.raises(InvalidInput) as refused:
            BySlices(entity_type)
        assert refused.value.code == "invalid_key"
    with pytest.raises(InvalidInput) as refused:
        Host(s, [Projection("totals", ORDERS, print), Projection("totals", ORDERS, print)])
    assert refused.value.code == "projection_taken"
    offsets = s.open_offsets(None).store
    offsets.close()
    if offsets.database.dialect == "sqlite":
        with (
            pytest.raises(InvalidInput) as refused,
            running(s, Projection("a", ORDERS, print, isolation="read_committed")),
        ):
            pass
        assert refused.value.code == "setting"


@pytest.mark.req("P100")
def test_where_offsets_are(tmp_path: Path, s: Strandline, table: Table) -> None:
    put(s, KEY, 2)
    carry_all(s)
    elsewhere = f"sqlite:{tmp_path}/elsewhere.db"
    handled: list[int] = []

    def handle(tx: Any, event: Any) -> None:
        assert tx.dialect == "sqlite"
        handled.append(event.seq_nr)

    with running(s, Projection("totals", ORDERS, handle, offset_store=elsewhere, **QUICK)):
        until(lambda: handled == [1, 2])
    assert s.projections.list() == []
    with strandline.connect("memory:") as other, pytest.raises(InvalidInput) as refused:
        other.projections.list()
    assert refused.value.code == "setting"


@pytest.mark.req("P76", "P94")
def test_a_closed_connection_is_refused(tmp_path: Path) -> None:
    s = strandline.connect(f"sqlite:{tmp_path}/orders", partitions=2)
    projection = Projection("totals", ORDERS, print, shutdown_grace_s=0, **QUICK)
    host, ended = Host(s, [projection]), []

    def run() -> None:
        try:
            host.run()
        except InvalidInput as error:
            ended.append(error.code)

    thread = threading.Thread(target=run)
    thread.start()
    until(host.ready.is_set)
    s.close()
    thread.join(10)
    assert ended == ["closed"]
    calls: list[Any] = [
        s.projections.list, s.projections.statuses, lambda: s.projections.status("totals"), Host(s, [projection]).run,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(InvalidInput) as refused:
            call()
        assert refused.value.code == "closed"


@pytest.mark.req("P94")
@pytest.mark.parametrize("projections", [[], (), Projection("totals", ORDERS, print), ["totals"], None])
def test_what_is_no_list_of_projections(projections: Any) -> None:
    with strandline.connect("memory:") as s, pytest.raises(InvalidInput) as refused:
        Host(s, projections)
    assert refused.value.code == "setting"
    assert "Host(s, [projection])" in str(refused.value)


@pytest.mark.req("P79")
def test_a_skip_of_what_is_not_there_says_so(s: Strandline, table: Table) -> None:
    put(s, KEY, 3)
    carry_all(s)
    run_to_the_end(s, table)
    with pytest.raises(InvalidInput) as refused:
        s.projections.skip("totals", "order|never", 1)
    assert (refused.value.code, "the store has no event of it" in str(refused.value)) == ("seq_nr_range", True)
    for to in (0, 4, "1"):
        with pytest.raises(InvalidInput) as refused:
            s.projections.skip("totals", KEY, to)  # type: ignore[arg-type]
        assert "allowed 1..3" in str(refused.value)


@pytest.mark.req("P100", "P76")
def test_offsets_elsewhere_are_managed_from_there(tmp_path: Path, s: Strandline) -> None:
    put(s, KEY, 2)
    carry_all(s)
    elsewhere = f"sqlite:{tmp_path}/elsewhere.db"
    handled: list[int] = []

    def handle(tx: Any, event: Any) -> None:
        handled.append(event.seq_nr)

    with running(s, Projection("totals", ORDERS, handle, offset_store=elsewhere, **QUICK)):
        until(lambda: handled == [1, 2])
    urls = s._urls
    assert urls is not None
    with strandline.connect(urls.store.text, projections=elsewhere) as other:
        assert other.projections.list() == [("totals", 1, "serving")]
        (status,) = other.projections.statuses()
        assert status == other.projections.status("totals")
        other.projections.reset("totals")
        with running(other, Projection("totals", ORDERS, handle, **QUICK)):  # it is its own place there
            until(lambda: handled == [1, 2, 1, 2])


@pytest.mark.req("P94")
def test_bad_arguments_change_nothing(s: Strandline) -> None:
    with running(s, Projection("totals", ORDERS, lambda tx, event: None, **QUICK)):
        until(s.projections.list)
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: s.projections.pause("totals", timeout_s="5"), "timeout_s: not a duration; .* got '5'"),  # type: ignore[arg-type]
        (lambda: s.projections.rescale("totals", 3, timeout_s=-1), "timeout_s: not a duration"),
        (lambda: s.projections.switch("totals", 1, timeout_s=None), "timeout_s: not a duration"),  # type: ignore[arg-type]
        (lambda: s.projections.dead_letters("totals", limit=0), "limit: out of range"),
        (lambda: s.projections.dead_letters("totals", after="order|1"), "after: no dead letter"),  # type: ignore[arg-type]
    ]
    before = s.projections.status("totals")
    for call, said in calls:
        with pytest.raises(InvalidInput, match=said):
            call()
    after = s.projections.status("totals")
    assert (after.paused, after.wanted_ranges, len(after.ranges)) == (False, None, len(before.ranges))
    with pytest.raises(NotFound) as refused:
        s.projections.drop("totals", generation=7)
    assert refused.value.hint
