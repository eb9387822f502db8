"""The problems of a journal, the worst first, each with a link to the page where an operator can act. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from strandline.errors import counted
from strandline.journal.status import Status
from strandline.server.console.texts import query, seconds, segment

LAG_S: Final = 60.0
"""Events that wait longer than this to be carried or handled are a problem."""


class Trouble(NamedTuple):
    """Something that an operator should look at."""

    level: str
    """`bad`: a part stands still or data is lost. `warn`: that may happen soon, or an operator should look."""
    text: str
    hint: str
    link: str
    """The path below the console's own address; "" for no link."""


def troubles(status: Status) -> list[Trouble]:
    """Return the problems, the worst first."""
    rows = {section.name: section.rows for section in status.sections}
    found = [*_of_pipeline(status), *_of_sections(status)]
    for row in rows.get("projections", ()):
        found += _of_projection(row)
    for row in rows.get("streams", ()):
        found += _of_stream(row)
    for row in rows.get("work", ()):
        found += _of_work(row)
    return sorted(found, key=lambda one: one.level != "bad")


def _of_pipeline(status: Status) -> Iterator[Trouble]:
    waiting = sum(one.lag_actions for one in status.partitions)
    oldest_s = max(one.lag_s for one in status.partitions)
    if waiting and status.lease_holder is None:
        level = "bad" if oldest_s > LAG_S else "warn"
        text = f"No pipeline runs: {counted(waiting, 'action')} not carried, the oldest for {seconds(oldest_s)}"
        yield Trouble(level, text, "start it: strandline pipeline run; reads are right meanwhile", "")
    elif oldest_s > LAG_S:
        text = f"The pipeline is behind: {counted(waiting, 'action')} not carried, the oldest for {seconds(oldest_s)}"
        yield Trouble("warn", text, "see which partition lags, and what the pipeline says", "")
    for one in status.partitions:
        if one.last_error is not None:
            yield Trouble("bad", f"Partition {one.partition} fails", one.last_error, "")
        if one.lost is not None:
            first, last = one.lost
            text = f"Partition {one.partition}: the log forgot offsets {first} to {last} before they were carried"
            yield Trouble("bad", text, "they are lost to the store: strandline doctor says more", "")
    if status.quarantined:
        text = f"{counted(status.quarantined, 'record')} in quarantine"
        yield Trouble("warn", text, "strandline pipeline quarantine, then pipeline resolve", "")


def _of_sections(status: Status) -> Iterator[Trouble]:
    for section in status.sections:
        if section.error is not None:
            yield Trouble("bad", f"{section.name} cannot be looked at", section.error.message, "")


def _of_projection(row: Mapping[str, Any]) -> Iterator[Trouble]:
    name, link = row["name"], f"/projections/{segment(row['name'])}/{row['generation']}"
    if row["failed"]:
        yield Trouble("bad", f"{name}: {counted(row['failed'], 'range')} failed", "its error stands there", link)
    if row["parked"]:
        yield Trouble("warn", f"{name}: {counted(row['parked'], 'parked key')}", "mend, then unpark", link)
    unparked = row["dead_letters"] - row["parked"]
    if unparked > 0:
        yield Trouble("warn", f"{name}: {counted(unparked, 'dead letter')}", "redeliver or discard", link)
    if row["stale"]:
        text = f"{name} is stale: {counted(row['stale'], 'event')} put back behind it"
        yield Trouble("warn", text, "rebuild it: strandline projections rebuild", link)
    behind = row["behind_store_s"]
    if behind is None or behind > LAG_S:
        said = "has not begun" if behind is None else f"is {seconds(behind)} behind"
        why = f"it is {row['state']}"
        if not row["failed"]:
            yield Trouble("warn", f"{name} {said}", why, link)


def _of_stream(row: Mapping[str, Any]) -> Iterator[Trouble]:
    stream = row["stream"]
    if row["rollback_failed"]:
        text = f"Waiting for an operator: {counted(row['rollback_failed'], 'group')} of stream {stream}"
        link = f"/groups{query(stream=stream, state='rollback_failed')}"
        yield Trouble("bad", text, "say what becomes of the steps whose undo failed", link)
    if row["away"]:
        text = f"Stream {stream}: {', '.join(row['away'])} cannot be reached"
        yield Trouble("bad", text, "its groups wait for it", f"/groups{query(stream=stream, state='open')}")
    if row["queued"] and row["holder"] is None:
        text = f"Nobody runs stream {stream}, with {counted(row['queued'], 'group')} in it"
        yield Trouble("warn", text, "start one: strandline group run", f"/groups{query(stream=stream, state='open')}")


def _of_work(row: Mapping[str, Any]) -> Iterator[Trouble]:
    name, link = row["journal"], f"/work/{segment(row['journal'])}"
    if row["unacknowledged"]:
        text = f"{name}: {counted(row['unacknowledged'], 'dead letter')} not acknowledged"
        yield Trouble("warn", text, "requeue, or acknowledge", f"{link}?show=dead")
    if row["paused"] is not None:
        yield Trouble("warn", f"{name} is paused", row["paused"], link)
    elif row["oldest_due_s"] > LAG_S:
        text = f"{name}: work has been due for {seconds(row['oldest_due_s'])}"
        yield Trouble("warn", text, f"{row['due']} due, {row['running']} running", link)
