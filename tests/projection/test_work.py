"""A handler adds work in its own transaction: both are done, or neither."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import strandline
from strandline import Key
from strandline.projection.definition import Projection
from strandline.work.declaration import WorkDeclaration
from tests.journal.worlds import world
from tests.projection.worlds import BACKENDS, ORDERS, QUICK, error_of, running, until
from tests.query.filling import carry_all, put


@pytest.mark.req("P56", "W71")
@pytest.mark.parametrize("backend", BACKENDS)
def test_work_is_added_with_the_offset(backend: str, tmp_path: Path) -> None:
    with world(backend, tmp_path, partitions=2) as s:
        mails = s.work(WorkDeclaration("mails", key={"order": "text", "nr": "int"}, data={"to": "text"}))
        put(s, Key("order", "1"), 5)
        carry_all(s)
        failures, seen = [1], list[tuple[int, str, object]]()

        def handle(tx: Any, event: Any) -> None:
            added = mails.add(key={"order": event.key.entity_id, "nr": event.seq_nr}, data={"to": "a"}, tx=tx)
            seen.append((event.seq_nr, added.outcome, mails.get({"order": "1", "nr": event.seq_nr})))
            if event.seq_nr == 3 and failures:
                raise ValueError(failures.pop())

        place: dict[str, Any] = {"isolation": "read_committed"}
        if backend == "sqlite":
            place = {"offset_store": f"sqlite:{tmp_path}/orders/work.db"}
        host = strandline.Host(s, [Projection("mails", ORDERS, handle, **QUICK, **place)])
        thread = Thread(target=host.run)
        thread.start()
        try:
            until(lambda: mails.counts().due >= 5)
        finally:
            host.stop()
            thread.join()
        assert mails.counts().due == 5
        assert {(outcome, entry) for _, outcome, entry in seen} == {("inserted", None)}, (
            "seen by others when it commits"
        )
        assert [number for number, *_ in seen].count(3) == 2, "what a handler that failed had added is gone"


@pytest.mark.req("P56", "W80")
def test_work_is_added_once_by_a_handler_that_sees_events_again(tmp_path: Path) -> None:
    """At least once, elsewhere, with all defaults: the entry is done before its event comes again."""
    with world("sqlite", tmp_path, partitions=2) as s:
        mails = s.work(WorkDeclaration("mails", key={"order": "text", "nr": "int"}, data={"to": "text"}))
        put(s, Key("order", "1"), 5)
        carry_all(s)
        failures, cursor, outcomes = [1], mails.cursor("w"), list[str]()

        def handle(event: Any) -> None:
            given = {"order": event.key.entity_id, "nr": event.seq_nr}
            outcomes.append(mails.add(key=given, data={"to": "a"}, id=event.derived_id()).outcome)
            for claim in cursor.claim(9).claims:
                claim.done()
            if event.seq_nr == 3 and failures:
                raise ValueError(failures.pop())

        with running(s, Projection("mails", ORDERS, handle, **QUICK, delivery="at_least_once")):
            until(lambda: len(outcomes) >= 6)
        assert sorted(outcomes) == ["inserted"] * 5 + ["repeated"] * (len(outcomes) - 5)
        assert mails.entries() == []


@pytest.mark.req("P56", "W72")
def test_work_in_a_transaction_of_another_isolation_says_what_to_set(tmp_path: Path) -> None:
    """With all defaults, on a server."""
    with world("postgresql", tmp_path, partitions=1) as s:
        mails = s.work(WorkDeclaration("mails", key={"order": "text"}, data={"to": "text"}))
        put(s, Key("order", "1"))
        carry_all(s)

        def handle(tx: Any, event: Any) -> None:
            mails.add(key={"order": "1"}, data={"to": "a"}, tx=tx)

        with running(s, Projection("totals", ORDERS, handle, **{**QUICK, "retries": 0, "restart_max_s": 30})):
            refused = error_of(s, Key("order", "1"))
        assert refused["error"] == "InvalidInput"
        assert "its isolation is repeatable read" in refused["message"]
        assert 'for a projection give isolation="read_committed"' in refused["message"]
