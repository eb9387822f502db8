"""What a work journal should say, from `docs/spec/work.md`: entries in a list, and every rule in a few lines.

Dates are microseconds. Nothing is indexed: every question goes through all entries.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

US = 1_000_000


@dataclass
class Entry:
    """An entry, waiting or claimed."""

    id: int
    key: int
    data: Any
    priority: int
    insertion: int
    revised: int
    process: int
    expiration: int
    behind: int = 0
    """The id of the claimed entry behind which it waits (W23)."""
    claimed: bool = False
    lapsed: bool = False
    """Whether somebody noticed that its lease is over: it waits, but `done` of its last claim still ends it (W42)."""
    fence: int = 0
    owner: str = ""
    start: int = 0
    beat: int = 0
    lease: int = 0
    counter: int = 0
    retry: int = 0

    @property
    def date(self) -> int:
        return self.retry or self.process

    def expired(self, now: int) -> bool:
        """W47."""
        return 0 < self.expiration < now

    def runs(self, now: int) -> bool:
        """Whether somebody holds a live claim on it."""
        return self.claimed and now - self.beat <= self.lease

    def over(self, now: int) -> bool:
        """Whether its lease has ended and nobody has noticed."""
        return self.claimed and now - self.beat > self.lease


@dataclass
class Letter:
    """A dead letter."""

    entry: Entry
    reason: str
    dead_id: int = 0
    acknowledged: bool = False


@dataclass
class WorkModel:
    """A work journal. Calls say what they should answer; `now` is the database's clock."""

    settings: dict[str, Any]
    entries: list[Entry] = field(default_factory=list)
    dead: list[Letter] = field(default_factory=list)
    paused: bool = False
    ids: dict[str, int] = field(default_factory=dict)
    """W80: by the id of an add, the entry that it went to."""

    # ------------------------------------------------------------ helpers

    def of_key(self, key: int) -> tuple[Entry | None, Entry | None]:
        """The entry of a key that is claimed, and the one that waits."""
        mine = [entry for entry in self.entries if entry.key == key]
        return (
            next((entry for entry in mine if entry.claimed), None),
            next((entry for entry in mine if not entry.claimed), None),
        )

    def by_fence(self, id_: int, fence: int) -> Entry | None:
        return next((entry for entry in self.entries if entry.id == id_ and entry.fence == fence), None)

    def _remove(self, entry: Entry) -> None:
        self.entries = [one for one in self.entries if one is not entry]
        for other in self.entries:
            if other.behind == entry.id:
                other.behind = 0

    def _back(self, entry: Entry, now: int, *, counted: bool, retry: int, reason: str, lapsed: bool = False) -> None:
        """A claim ends otherwise than by done (3.1): gone, a dead letter, or it waits again, folded if it must be."""
        # What has expired is no entry, removed or not (W47): nothing is folded into it.
        self.entries = [one for one in self.entries if one.behind != entry.id or not one.expired(now)]
        if entry.expired(now):
            self._remove(entry)
            return
        if counted:
            entry.counter = min(255, entry.counter + 1)
            if 0 < self.settings["max_timeouts"] <= entry.counter:
                self._remove(entry)
                self.dead.append(Letter(entry, reason))
                return
        entry.claimed, entry.lapsed = False, lapsed
        if not lapsed:
            entry.fence = -entry.fence  # the claim is over
        entry.retry = retry or entry.retry
        other = next((one for one in self.entries if one.behind == entry.id), None)
        if other is not None:
            self._remove(entry)
            self._fold(entry, other)

    def _fold(self, ended: Entry, waiting: Entry) -> None:
        """W28, into the one that waits."""
        if ended.revised > waiting.revised:
            waiting.data, waiting.revised = ended.data, ended.revised
        waiting.priority = min(ended.priority, waiting.priority)
        waiting.process = self._date(ended.process, waiting.process, ended.insertion)
        waiting.insertion = min(ended.insertion, waiting.insertion)
        waiting.expiration = _later(ended.expiration, waiting.expiration)
        waiting.start, waiting.counter, waiting.retry, waiting.behind = ended.start, 0, 0, 0

    def _date(self, before: int, new: int, insertion: int) -> int:
        """W25, W26."""
        if self.settings["merge_process_date"] == "smallest":
            return min(before, new)
        date = max(before, new)
        delay = self.settings["max_delay_s"]
        return date if delay is None else min(date, max(before, insertion + round(delay * US)))

    def record(self, now: int, key: int | None = None) -> None:
        """W38, W39: lapses are noticed, of all keys or of one."""
        for entry in [one for one in self.entries if one.over(now) and key in (None, one.key)]:
            self._back(entry, now, counted=True, retry=0, reason="timeout", lapsed=True)

    # ------------------------------------------------------------ calls

    def add(
        self, now: int, key: int, data: Any, priority: int, insertion: int | None, process: int | None, delay: int,
        expiration: int, add_id: str | None = None,
    ) -> tuple[str, int | None]:  # fmt: skip
        """The outcome, and the id if that is known. W21 to W30, W80."""
        if process is not None and 0 < expiration < max(process, insertion or 0):
            return "expires_early", None  # what needs no clock is checked first (W2)
        if add_id is not None and add_id in self.ids:
            return "repeated", self.ids[add_id]
        if insertion is not None and insertion > now + 60 * US:
            return "time_ahead", None
        if process is None and 0 < expiration < now + delay:
            return "expires_early", None
        if self.settings["merge"] == "none":
            inserted = now if insertion is None else insertion
            date = max(now + delay if process is None else process, inserted)
            self._entered(Entry(0, key, data, priority, inserted, inserted, date, expiration), add_id)
            return "inserted", None
        self.record(now, key)
        self.entries = [one for one in self.entries if one.claimed or not (one.key == key and one.expired(now))]
        running, waiting = self.of_key(key)
        revised = waiting.revised if waiting else 0
        inserted = max(now, revised) if insertion is None else insertion
        date = max(now + delay if process is None else process, inserted)
        if waiting is None:
            behind = 0 if running is None else running.id
            self._entered(Entry(0, key, data, priority, inserted, inserted, date, expiration, behind), add_id)
            return ("behind" if behind else "inserted"), None
        if add_id is not None:
            self.ids[add_id] = waiting.id
        waiting.priority = min(waiting.priority, priority)
        waiting.expiration = _later(waiting.expiration, expiration)
        waiting.process = self._date(waiting.process, date, waiting.insertion)
        if inserted < revised:
            return "stale", waiting.id
        waiting.data, waiting.revised, waiting.counter, waiting.retry = data, inserted, 0, 0
        waiting.fence, waiting.owner, waiting.lapsed = 0, "", False
        return "merged", waiting.id

    def _entered(self, entry: Entry, add_id: str | None) -> None:
        """A new one, without an id until that is known."""
        self.entries.append(entry)
        if add_id is not None:
            self.ids[add_id] = 0

    def named(self, number: int, id_: int) -> None:
        """The entry that was entered last, as this number, has an id now."""
        for entry in self.entries:
            entry.id = id_ if entry.id == number else entry.id
            entry.behind = id_ if entry.behind == number and number else entry.behind
        self.ids = {add: id_ if of == number else of for add, of in self.ids.items()}

    def ready(self, now: int) -> list[Entry]:
        """Return the entries that are due, in order (W15)."""
        due = [
            one for one in self.entries
            if not one.claimed and not one.behind and not one.expired(now) and one.date <= now
        ]  # fmt: skip
        return sorted(due, key=lambda one: (one.priority, one.date, one.id))

    def claim(self, now: int, limit: int, *, handed_out: bool) -> tuple[list[Entry], bool]:
        """Return a cursor's entries, and whether its pass has handed something out by then."""
        if self.paused:
            return [], handed_out
        self.record(now)
        slow_from = self.settings["slow_from"]
        ready = self.ready(now)
        urgent = [one for one in ready if one.priority < slow_from][:limit]
        if urgent:
            return urgent, True
        if handed_out:
            return [], False
        return [one for one in ready if one.priority >= slow_from][: min(limit, self.settings["slow_limit"])], False

    def claimed(self, now: int, entry: Entry, fence: int, owner: str) -> None:
        """W33."""
        entry.claimed, entry.lapsed, entry.fence, entry.owner = True, False, fence, owner
        entry.start = entry.beat = now
        entry.lease = round(self.settings["lease_s"] * US)

    def beat(self, now: int, id_: int, fence: int) -> bool:
        """W41, W42: whether the claim goes on."""
        entry = self.by_fence(id_, fence)
        if entry is None or not entry.runs(now):
            return False
        entry.beat = entry.start = now
        return True

    def done(self, id_: int, fence: int) -> bool:
        """W42, W45: whether this call ends the entry."""
        entry = self.by_fence(id_, fence)
        if entry is None or not (entry.claimed or entry.lapsed):
            return False
        self._remove(entry)
        return True

    def end(self, now: int, id_: int, fence: int, *, failed: bool, delay_s: float | None) -> bool:
        """`fail` or `release`: W42, W46."""
        entry = self.by_fence(id_, fence)
        if entry is None or not entry.runs(now):
            return False
        least, most = self.settings["retry_delay_s"], self.settings["retry_delay_max_s"]
        delay = min(least * 2.0**entry.counter, max(most, least)) if delay_s is None else delay_s
        retry = now + round(delay * US) if failed else 0
        self._back(entry, now, counted=failed, retry=retry, reason="failed: no")
        return True

    def drop(self, id_: int) -> bool:
        entry = next((one for one in self.entries if one.id == id_), None)
        if entry is not None:
            self._remove(entry)
        return entry is not None

    def tick(self, now: int) -> None:
        """W64: lapses are recorded, and what has expired goes."""
        self.record(now)
        self.entries = [one for one in self.entries if one.claimed or not one.expired(now)]

    def requeue(self, now: int, letter: Letter) -> tuple[str, int | None]:
        """W44."""
        old = letter.entry
        if old.expired(now):
            return "expired", None
        said = self.add(now, old.key, old.data, old.priority, old.revised, None, 0, old.expiration)
        self.dead.remove(letter)
        return said

    # ------------------------------------------------------------ what is to be seen

    def seen(self, now: int) -> list[Entry]:
        """W39, W47: as the next claim would find it; nothing is written. What is being processed is shown (W48)."""
        other = WorkModel(self.settings, [replace(entry) for entry in self.entries], list(self.dead))
        other.record(now)
        return sorted([one for one in other.entries if one.claimed or not one.expired(now)], key=lambda one: one.id)

    def next_date(self, now: int) -> int | None:
        """The first date at which a claim could find something, if nothing else happens."""
        dates = []
        for one in self.entries:
            if one.claimed:
                dates.append(max(now, one.beat + one.lease + 1))
            elif not one.behind and not one.expired(max(now, one.date)):
                dates.append(max(now, one.date))
        return min(dates, default=None)


def _later(one: int, other: int) -> int:
    return max(one, other) if one and other else 0
