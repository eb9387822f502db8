"""The record of admin acts, as pages show it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from strandline.clock import now_us
from strandline.server.admin_acts import ASKED, day_key
from strandline.server.console.desk import ConsoleDesk, Found, PageQuery

if TYPE_CHECKING:
    from strandline.connect import Strandline

DAYS = 14
SHOWN = 100


def record_page(desk: ConsoleDesk, given: PageQuery) -> Found:
    """Return the acts of a day: `day` as 2026-11-18, or today."""
    today = datetime.now(UTC).date()
    days = [str(today - timedelta(days=back)) for back in range(DAYS)]
    day = given.get("day") or days[0]
    return {"day": day, "days": days, "acts": _acts(desk.s, f"admin_act|{day}", SHOWN)}


def recent_acts(s: Strandline, limit: int) -> list[dict[str, Any]]:
    """Return the newest acts of today."""
    return _acts(s, day_key(now_us()), limit)


def _acts(s: Strandline, key: str, limit: int) -> list[dict[str, Any]]:
    """Return the acts of a day, the newest first, each with its result."""
    ended: dict[str, Any] = {}
    found = []
    for event in s.journal.read(key, backwards=True, limit=2 * limit):
        told = event.payload
        if event.type == ASKED:
            end = ended.get(told["act"])
            found.append({**told, "at": event.timestamp, "end": end, "changes": list(_changes(told, end))})
        else:
            ended[told["act"]] = told
    return found[:limit]


def _changes(asked: dict[str, Any], end: dict[str, Any] | None) -> Iterator[tuple[str, Any, Any]]:
    """Yield the values that differ before and after: the name, and both values."""
    before, after = asked.get("before"), (end or {}).get("after")
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before.keys() | after.keys():
            if before.get(name) != after.get(name):
                yield name, before.get(name), after.get(name)
