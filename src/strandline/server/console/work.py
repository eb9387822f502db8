"""Pages of work journals: all of them, and one with its counts, entries, claims and dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from strandline.server.console.desk import ConsoleDesk, Found, PageQuery
from strandline.server.console.texts import cut
from strandline.work.entries import PROCESSING, WAITING, DeadLetter, Entry
from strandline.work.journal import WorkJournal

LOOKED_AT: Final = 1000
SHOWN: Final = 100
SHOWS: Final = ("waiting", "running", "dead")
RANGES: Final = ((0, 9, "now"), (10, 49, "new"), (50, 179, "reset"), (180, 199, "updates"), (200, 255, "slow"))


def work_page(desk: ConsoleDesk, given: PageQuery) -> Found:
    """Return a row for every work journal."""
    rows = {section.name: section.rows for section in desk.history.status().sections}
    return {"rows": rows.get("work", ())}


def work_journal_page(desk: ConsoleDesk, given: PageQuery) -> Found:
    """Return a work journal; `show` is waiting, running or dead, `q` a text that key, owner or reason must have."""
    journal = desk.work(given.get("journal"))
    show = given.get("show") if given.get("show") in SHOWS else "waiting"
    entries = journal.entries(limit=LOOKED_AT)
    now = journal.now_us()
    wanted = [one for one in entries if one.status == (PROCESSING if show == "running" else WAITING)]
    q, priority = given.get("q"), given.get("priority")
    matched = matching(wanted, q, priority)
    letters = matching_letters(journal, q) if show == "dead" else []
    in_order = sorted(matched, key=lambda one: turn_of(one, now))
    return {
        "journal": journal.name, "counts": journal.counts(), "show": show, "shows": SHOWS, "q": q, "now": now,
        "priority": priority, "all_looked_at": len(entries) < LOOKED_AT, "looked_at": LOOKED_AT,
        "priorities": _by_priority(entries), "ranges": RANGES,
        "entries": [_entry(one, given) for one in in_order[:SHOWN]], "matched": len(matched),
        "letters": [_letter(one, given) for one in letters[:SHOWN]], "matched_letters": len(letters),
        "payloads": given.payloads, "settings": journal.settings, "columns": journal.columns,
        "target": {"journal": journal.name}, "filter": {"journal": journal.name, "show": show, "q": q,
                                                        "priority": priority},
    }  # fmt: skip


def matching(entries: Sequence[Entry], q: str, priority: str) -> list[Entry]:
    """Return the entries that a filter lets pass."""
    lo, hi = _range(priority)
    return [one for one in entries if lo <= one.priority <= hi and (not q or q in f"{text_of(one.key)} {one.owner}")]


def matching_letters(journal: WorkJournal, q: str) -> list[DeadLetter]:
    """Return the dead letters that a filter lets pass, of the first 1,000."""
    return [one for one in journal.dead(limit=LOOKED_AT) if not q or q in f"{text_of(one.key or {})} {one.reason}"]


def _range(priority: str) -> tuple[int, int]:
    for lo, hi, name in RANGES:
        if name == priority:
            return lo, hi
    return 0, 255


def due_of(one: Entry) -> int:
    """Return the time from which an entry may be claimed."""
    return max(one.process_date, one.retry_date)


def turn_of(one: Entry, now: int) -> tuple[bool, int, int]:
    """Return the sort key of an entry in the order of claims: due entries by priority, later ones by date."""
    due = due_of(one)
    return (True, due, one.priority) if due > now else (False, one.priority, due)


def text_of(columns: dict[str, Any]) -> str:
    """Return the columns of a key or of data in one line, as order=42."""
    return cut(" ".join(f"{name}={value}" for name, value in columns.items()))


def _by_priority(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    counts: Counter[tuple[str, str]] = Counter()
    for one in entries:
        name = next(name for lo, hi, name in RANGES if lo <= one.priority <= hi)
        counts[name, one.status] += 1
    most = max((counts[name, WAITING] + counts[name, PROCESSING] for _, _, name in RANGES), default=0) or 1
    return [
        {"name": name, "lo": lo, "hi": hi, "waiting": counts[name, WAITING], "running": counts[name, PROCESSING],
         "share": (counts[name, WAITING] + counts[name, PROCESSING]) / most}
        for lo, hi, name in RANGES
    ]  # fmt: skip


def _entry(one: Entry, given: PageQuery) -> dict[str, Any]:
    return {
        "id": one.id, "key": text_of(one.key), "data": text_of(one.data) if given.payloads else None,
        "priority": one.priority, "due": due_of(one), "owner": one.owner, "claimed": one.claimed_date,
        "counter": one.timeout_counter, "inserted": one.insertion_date, "fence": one.fence,
    }  # fmt: skip


def _letter(one: DeadLetter, given: PageQuery) -> dict[str, Any]:
    data = None if one.data is None or not given.payloads else text_of(one.data)
    key = "cannot be read" if one.key is None else text_of(one.key)
    return {
        "dead_id": one.dead_id, "id": one.id, "key": key, "data": data, "reason": one.reason, "at": one.date,
        "acknowledged": one.acknowledged, "priority": one.priority, "counter": one.timeout_counter,
    }  # fmt: skip
