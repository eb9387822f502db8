"""The tables of a work journal: every statement on entries, inside a transaction of the caller's choice.

The locks, on PostgreSQL (on SQLite the write lock stands for all of them):

- An add takes advisory locks on its keys, so that two adds of a key take turns. Done, fail and claims take none.
- A waiting entry belongs to the transaction that has locked its row of the order. Claims and moves pass over locked
  entries; an add waits.
- An entry that is being processed, and the one that waits behind it, belong to the transaction that has locked the row
  of the state. An add that goes behind holds that row (FOR KEY SHARE: heartbeats pass) until it commits. So `done`
  waits for the add, then looks behind, in a new snapshot, and finds its entry.
- A row that vanished while a transaction waited for it was claimed, ended or moved: it looks again (`_steady`).
- Adds, and transactions that end a claim and then look behind it, lock rows of the state before those of the order,
  each in the order of ids.

A move writes rows into another table, by a DELETE and an INSERT: an UPDATE across tables would fail transactions that
wait for the row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from strandline.clock import now_us
from strandline.errors import InvalidInput, Unavailable
from strandline.points import reached
from strandline.settings import MIB
from strandline.sql.api import DATABASE_ID, Database, Transaction
from strandline.work import rules
from strandline.work.dates import US, us
from strandline.work.declaration import WorkSettings
from strandline.work.entries import (
    BEHIND,
    LAPSED,
    NOWHERE,
    PROCESSING,
    READY,
    SOON,
    Added,
    EntryCounts,
    EntryDraft,
    EntryRow,
    mark_of,
)
from strandline.work.lease_clock import boot_id, boot_us
from strandline.work.rotation import LATER
from strandline.work.rules import DEAD, Key, Moment

KEYS_LOCKED_MAX: Final = 100
"""An add of more keys takes one lock for all adds of the journal, because a server has room for few thousand locks."""
CLAIM_BYTES_MAX: Final = 16 * MIB
LAPSES_MAX: Final = 1000
DUE_MAX: Final = 10_000
DUE_BYTES_MAX: Final = 64 * MIB
ALIKE_MIN: Final = 10
_TRIES: Final = 100
_NUMBERS: Final = 44
"""Each set of tables has its own range of 2 to the power of this many numbers."""


class JournalState(NamedTuple):
    """The state of a journal when a transaction begins."""

    now: int
    lease_now: int
    settings_version: int
    paused: str | None
    slot: int
    opened_date: int
    first_number: int
    last_number: int
    numbers: list[int]
    soon: int | None = None
    """For a claim: when the next entry becomes ready."""
    lease: int | None = None
    """For a claim: when the first lease ends, by the clock of leases."""

    @property
    def moment(self) -> Moment:
        return Moment(self.now, self.lease_now)


class ClaimRef(NamedTuple):
    """A claim as its holder knows it. The entry may have been moved to another table since."""

    id: int
    fence: int
    slot: int


class EndedClaim(NamedTuple):
    """A claim that ended by `fail`, `release` or a lapse: what becomes of its entry (by `rules`), and why."""

    row: EntryRow
    outcome: EntryRow | str
    reason: str


class Heads(NamedTuple):
    """The priority of the most urgent ready entry, and the dates of the next entry, lease end and expiry."""

    ready: int | None
    soon: int | None
    lease: int | None
    expiry: int | None


class AddedAll(NamedTuple):
    """The outcomes of adds, and what they made of entries whose lease was over."""

    outcomes: list[Added]
    wake: int | None
    """The earliest date of the entries that became due earlier than waiters know; None if there are none."""
    dead: list[EntryRow]
    """The entries that became dead letters."""


def of_tables(statement: str, set_name: str, *more: object) -> str:
    """Return the name of a statement on the tables of a set."""
    return "@".join([statement, set_name, *map(str, more)])


def first_number(set_number: int) -> int:
    """Return the first number of a set."""
    return (set_number << _NUMBERS) + 1


class Tables:
    """The tables of one journal."""

    def __init__(self, database: Database, set_name: str, journal: int, clock: Callable[[], int] | None) -> None:
        self.database = database
        self.set_name = set_name
        self.journal = journal
        self._clock = clock

    def named(self, statement: str, *more: object) -> str:
        """Return a statement on the tables of this set."""
        return of_tables(statement, self.set_name, *more)

    # ------------------------------------------------------------ the moment

    def look(self, tx: Transaction, count: int = 0, *, to_claim: bool = False) -> JournalState:
        """Return the database's clock, the current table, `count` new numbers and, if `to_claim`, the next dates."""
        if tx.dialect == "postgres":
            values = (self.journal, self.set_name, self._given_now(), count)
            ((now, *more),) = tx.rows(self.named("look_claim" if to_claim else "look"), values)
            return JournalState(now, now, *more)
        moment = self.moment(tx)
        ((_, version, paused, slot, opened, first, last, _, stored),) = tx.rows(
            self.named("look"), (self.journal, self.set_name, moment.now, count)
        )
        boot = "" if self._given_now() else boot_id()
        if stored != boot:
            tx.execute(self.named("boot"))
            tx.execute("set_boot", (self.set_name, boot))
        look = JournalState(*moment, version, paused, slot, opened, first, last, self.numbers(tx, count))
        if not to_claim:
            return look
        heads = self.heads(tx, moment.now)
        return look._replace(soon=heads.soon, lease=heads.lease)

    def moment(self, tx: Transaction) -> Moment:
        """Return the time of the database's clock and of the clock of leases."""
        given = self._given_now()
        if tx.dialect == "sqlite":
            return Moment(given or now_us(), given or boot_us())
        ((now,),) = tx.rows("now", (given,))
        return Moment(now, now)

    def _given_now(self) -> int:
        """Return the time of the clock that a test has set instead of all others; 0 if there is none."""
        return self._clock() if self._clock is not None else 0

    def numbers(self, tx: Transaction, count: int) -> list[int]:
        """Draw new numbers, which were never drawn before."""
        if not count:
            return []
        if tx.dialect == "postgres":
            return [number for (number,) in tx.rows(self.named("draw"), (count,))]
        ((after,),) = tx.rows("draw", (self.set_name, count))
        return list(range(after - count, after))

    # ------------------------------------------------------------ add

    def add(self, tx: Transaction, drafts: Sequence[EntryDraft], settings: WorkSettings) -> AddedAll:
        """Add entries, or merge them with those that wait; all of them or, if one is refused, none."""
        by_key = settings.merge == "key"
        if tx.dialect == "postgres":
            self._lock_adds(tx, drafts, by_key=by_key)
        given = {draft.add_id for draft in drafts if draft.add_id is not None}
        stored = dict(tx.many("entries_of_ids", [(self.journal, add_id) for add_id in given]))
        look = self.look(tx, len(drafts))
        for place, draft in enumerate(drafts):
            if draft.add_id in stored:
                continue
            try:
                rules.check_dates(draft, look.now)
            except InvalidInput as error:
                raise (rules.at_index(place, error) if len(drafts) > 1 else error) from None
        dead = list[EntryRow]()
        hashes = {draft.hash for draft in drafts if draft.add_id not in stored} if by_key else ()
        known = self._known(tx, look, settings, hashes, dead)
        ids = list[tuple[bytes, int, int]]()
        outcomes: list[Added] = []
        written: list[EntryRow] = []
        changed: dict[Key, EntryRow] = {}
        for draft, number in zip(drafts, look.numbers, strict=True):
            if draft.add_id in stored:
                outcomes.append(Added("repeated", stored[draft.add_id]))
                continue
            key = (draft.hash, draft.key)
            waiting, behind = known.get(key, (None, False))
            waiting = changed.get(key, waiting)
            outcome, row = rules.added(draft, waiting, settings, look.now, number, behind=behind)
            outcomes.append(Added(outcome, row.id))
            if draft.add_id is not None:
                stored[draft.add_id] = row.id
                ids.append((draft.add_id, row.id, look.now))
            if by_key:
                changed[key] = row
            else:
                written.append(row)
        originals = {key: row for key, (row, _) in known.items() if row is not None and key in changed}
        kept = [row for key, row in changed.items() if row.data is None]
        if kept:
            data = self._data(tx, kept)
            changed |= {(row.hash, row.key): row._replace(data=data[row.id]) for row in kept}
        written += changed.values()
        self._remove(tx, originals.values())
        self._write(tx, look, written)
        tx.many("keep_ids", ids, self.journal)
        before = {row.id: row.date for row in originals.values()}
        dates = [row.date for row in written if row.place != BEHIND and row.date < before.get(row.id, row.date + 1)]
        return AddedAll(outcomes, min(dates, default=None), dead)

    def _lock_adds(self, tx: Transaction, drafts: Sequence[EntryDraft], *, by_key: bool) -> None:
        """Block other adds of these keys, or with these ids, until this transaction commits."""
        locks = {self.lock_number("key", draft.hash) for draft in drafts} if by_key else set[int]()
        locks |= {self.lock_number("id", draft.add_id) for draft in drafts if draft.add_id is not None}
        all_keys = self.lock_number("keys")
        if len(locks) > KEYS_LOCKED_MAX:
            tx.rows("lock_catalog", (all_keys,))
        elif locks:
            tx.rows("lock_keys", (all_keys, sorted(locks)))

    def lock_number(self, what: str, more: bytes = b"") -> int:
        """Return the number of an advisory lock of this journal: 64 bits of a digest, so collisions are rare."""
        text = f"{self.database.fixed[DATABASE_ID]} {self.journal} {what} ".encode() + more
        return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)

    def _known(
        self, tx: Transaction, look: JournalState, settings: WorkSettings, hashes: Iterable[bytes], dead: list[EntryRow]
    ) -> dict[Key, tuple[EntryRow | None, bool]]:
        """Return by key the waiting entry, and whether another is being processed. Appends to `dead`."""
        asked = set(hashes)
        if not asked:
            return {}

        def found() -> list[EntryRow]:
            return self.of_hashes(tx, asked)

        rows = self._steady(tx, found, look.moment)
        over = [row for row in rows if row.status == PROCESSING and rules.lease_over(row, look.moment)]
        if over:
            reached("work.lapse_found_by_an_add")
            ended = [EndedClaim(row, rules.lapsed(row, settings, look.now), "timeout") for row in over]
            dead += self.apply_outcomes(tx, look, settings, ended)
            rows = self._steady(tx, found, look.moment)
        old = [row for row in rows if row.status != PROCESSING and rules.expired(row, look.now)]
        if old:
            reached("work.added_over_an_expired_one")
        self._remove(tx, old)
        gone = {row.id for row in old}
        known: dict[Key, tuple[EntryRow | None, bool]] = {}
        for row in rows:
            if row.id not in gone:
                waiting, behind = known.get((row.hash, row.key), (None, False))
                if row.status == PROCESSING:
                    known[row.hash, row.key] = waiting, True
                else:
                    known[row.hash, row.key] = waiting or row, behind
        return known

    def _steady(self, tx: Transaction, found: Callable[[], list[EntryRow]], moment: Moment | None) -> list[EntryRow]:
        """Return rows that cannot change before the commit: read, lock, read again until nothing has changed."""
        for _ in range(_TRIES):
            rows = found()
            if not rows:
                return []
            steady = tx.dialect == "sqlite" or self._hold(tx, rows, moment)
            waiting = [row for row in rows if row.status != PROCESSING]
            asked = sorted((self.journal, *position, row.id) for row in waiting for position in _positions(row))
            places = dict(tx.many(self.named("places"), asked))
            steady = steady and all(row.id in places for row in waiting)
            if steady and (tx.dialect == "sqlite" or _same(found(), rows)):
                return [row._replace(place=places.get(row.id, NOWHERE)) for row in rows]
        raise Unavailable("entries change faster than they can be locked", code="serialization", hint="call again")

    def _hold(self, tx: Transaction, rows: Sequence[EntryRow], moment: Moment | None) -> bool:
        """Lock entries that are being processed: against their end or, after their lease, against any change."""
        claimed = [row for row in rows if row.status == PROCESSING]
        live = [row.id for row in claimed if moment is not None and not rules.lease_over(row, moment)]
        over = [row.id for row in claimed if row.id not in live]
        held: set[tuple[int, int, str]] = set()
        for name, ids in (("share_running", live), ("hold_running", over)):
            if ids:
                held.update(tx.rows(self.named(name), (ids,)))
        return all((row.id, row.fence, row.status) in held for row in claimed)

    # ------------------------------------------------------------ claim

    def claim(
        self, tx: Transaction, look: JournalState, settings: WorkSettings, owner: str, limit: int, low: int, high: int
    ) -> list[EntryRow]:
        """Take the first entries with priorities from `low` up to below `high`, in their order."""
        lease = us(settings.lease_s)
        if tx.dialect == "postgres":
            values = (self.journal, low, high, look.now, limit, owner, lease, CLAIM_BYTES_MAX)
            found = [EntryRow(*row)._replace(place=NOWHERE) for row in tx.rows(self.named("claim"), values)]
            return sorted(found, key=lambda row: (row.priority, row.date, row.id))
        chosen = [EntryRow(*row) for row in tx.rows(self.named("choose"), (self.journal, low, high, look.now, limit))]
        fitting, size = [], 0
        for row in chosen:
            if size < CLAIM_BYTES_MAX:
                fitting.append(row)
            size += row.size
        fences = self.numbers(tx, len(fitting))
        rows = [
            rules.claimed(row, fence, owner, lease, look.moment) for row, fence in zip(fitting, fences, strict=True)
        ]
        tx.many(self.named("remove_order"), [(self.journal, READY, row.priority, row.date, row.id) for row in rows])
        tx.many(self.named("start"), [_state(row) for row in rows], self.journal)
        return rows

    def promote_due(self, tx: Transaction, look: JournalState) -> int:
        """Make entries ready whose date has come; return their number."""
        due, size = [], 0
        for *place, bytes_ in tx.rows(self.named("due_soon"), (self.journal, look.now, DUE_MAX)):
            if size < DUE_BYTES_MAX:
                due.append(place)
            size += bytes_
        tx.many(self.named("promote_due"), [(self.journal, SOON, 0, *row) for row in due], look.slot)
        later = [(id_,) for slot, _, id_ in due if slot == LATER]
        if later:
            tx.many(self.named("move_entry"), later, LATER, look.slot)
            tx.many(self.named("move_state"), later, LATER, look.slot)
            self.numbers(tx, len(later))  # moved entries count as rows of the table that they go to
        return len(due)

    def record_lapses(self, tx: Transaction, look: JournalState, settings: WorkSettings) -> list[EntryRow]:
        """Let entries whose lease is over wait again; return those that became dead letters."""
        ids = tx.rows(self.named("lapsed"), (self.journal, look.lease_now, LAPSES_MAX))
        rows = self.rows(tx, [id_ for (id_,) in ids])
        alive = [row for row in rows if not rules.lease_over(row, look.moment)]
        if alive:
            reached("work.lease_was_renewed")
        tx.many(self.named("look_later"), [(row.id, row.beat + row.lease + 1) for row in alive])
        over = [row for row in rows if rules.lease_over(row, look.moment)]
        return self.apply_outcomes(
            tx, look, settings, [EndedClaim(row, rules.lapsed(row, settings, look.now), "timeout") for row in over]
        )

    def heads(self, tx: Transaction, now: int) -> Heads:
        """Return the next priority and dates."""
        (found,) = tx.rows(self.named("heads"), (self.journal, now))
        return Heads(*found)

    # ------------------------------------------------------------ the end of a claim

    def end(self, tx: Transaction, look: JournalState, held: Sequence[ClaimRef]) -> tuple[set[int], int | None]:
        """End claims as done: return the entries that this call ended, and when the first of those behind them is due.

        `merge` does not matter: an entry may wait behind another since before it was changed.
        """
        ended: dict[int, Key] = {}
        left = sorted(held)
        for _ in range(_TRIES):
            gone = tx.many(self.named("end"), left)
            if tx.dialect == "sqlite":
                gone = tx.many(self.named("end_entry"), gone)
            ended |= {id_: (hash_, key) for id_, hash_, key in gone}
            left = [claim for claim in left if claim.id not in ended]
            if not left:
                break
            left = self._end_late(tx, left, ended)
            if not left:
                break
        return set(ended), self._put_in(tx, look, ended.values())

    def _end_late(self, tx: Transaction, held: Sequence[ClaimRef], ended: dict[int, Key]) -> list[ClaimRef]:
        """End claims after their lease, if nobody claimed the entry since; return claims of moved entries."""
        fences = {claim.id: claim.fence for claim in held}
        rows = self._steady(tx, lambda: self.rows(tx, fences), None)
        reached("work.done_too_late")
        mine = [row for row in rows if row.fence == fences[row.id]]
        late = [row for row in mine if row.status == LAPSED]
        self._remove(tx, late)
        if late:
            reached("work.done_after_the_lease")
        ended |= {row.id: (row.hash, row.key) for row in late}
        return sorted(ClaimRef(row.id, row.fence, row.slot) for row in mine if row.status == PROCESSING)

    def _put_in(self, tx: Transaction, look: JournalState, keys: Iterable[Key]) -> int | None:
        """Put the entries that waited only behind these keys into the order; return when the first of them is due."""
        waiting = [row for row in self._behind(tx, keys) if row.place == BEHIND]
        held = self._held_back(tx, waiting, ())
        waiting = [row for row in waiting if row.id not in held]
        self._reorder(tx, [(row, rules.placed(row, look.now)) for row in waiting])
        return min((row.date for row in waiting), default=None)

    def _behind(self, tx: Transaction, keys: Iterable[Key]) -> list[EntryRow]:
        wanted = set(keys)
        if not wanted or not tx.rows(self.named("any_behind"), (self.journal,)):
            return []
        return self._steady(tx, lambda: self._found_behind(tx, wanted), None)

    def _held_back(self, tx: Transaction, waiting: Sequence[EntryRow], ended: Collection[int]) -> set[int]:
        """Return the entries that go on waiting behind others of their keys. `ended`: entries whose claims end now.

        The entries that wait are locked, so of two claims that end at once the later one finds the other ended.
        """
        if not waiting:
            return set()
        family = self.of_hashes(tx, {row.hash for row in waiting})
        running = [row for row in family if row.status == PROCESSING and row.id not in ended]
        return {row.id for row in waiting if rules.held_back(row, running)}

    def _found_behind(self, tx: Transaction, keys: Collection[Key]) -> list[EntryRow]:
        marks = {mark_of(hash_) for hash_, _ in keys}
        rows = _rows(tx.many(self.named("behind"), [(self.journal, mark) for mark in marks]))
        return [row for row in rows if (row.hash, row.key) in keys]

    def held(self, tx: Transaction, look: JournalState, id_: int, fence: int) -> EntryRow | None:
        """Lock and return the entry of a live claim; None if the claim is over."""
        for _ in range(2):  # a move may have taken it to another table meanwhile
            if tx.dialect == "postgres":
                tx.rows(self.named("hold_running"), ([id_],))
            for row in self.rows(tx, [id_]):
                if row.fence == fence and rules.running(row, look.moment):
                    return row
        return None

    def apply_outcomes(
        self, tx: Transaction, look: JournalState, settings: WorkSettings, ended: Sequence[EndedClaim]
    ) -> list[EntryRow]:
        """Write what becomes of entries after a fail, lapse or release; return the dead letters among them.

        The caller has locked their rows of the state. An entry behind one of them is folded with it or put into the
        order.
        """
        if not ended:
            return []
        waiting = self._behind(tx, [(one.row.hash, one.row.key) for one in ended])
        removed = [row for row in waiting if rules.expired(row, look.now)]
        if removed:
            reached("work.expired_behind_one_that_ends")
        behind = {(row.hash, row.key): row for row in waiting if not rules.expired(row, look.now)}
        held = self._held_back(tx, list(behind.values()), {one.row.id for one in ended})
        waiting_again, dead = [], []
        folds: dict[int, list[EntryRow]] = {}
        for row, outcome, reason in ended:
            other = behind.get((row.hash, row.key))
            if isinstance(outcome, str):
                removed.append(row)
                if outcome == DEAD:
                    dead.append((row._replace(counter=min(row.counter + 1, rules.COUNTER_MAX)), reason))
            elif other is not None and rules.waits_for(other, row, settings):
                folds.setdefault(other.id, []).append(outcome)
            else:
                waiting_again.append(outcome)
        folded = [row for row in behind.values() if row.id in folds]
        gone = [*folded, *(row for rows in folds.values() for row in rows)]
        data = self._data(tx, [row for row, _ in dead] + gone)
        self._bury(tx, look, [(row._replace(data=data[row.id]), reason) for row, reason in dead])
        self._remove(tx, [*removed, *gone])
        written = []
        for row in folded:
            reached("work.folded_into_the_one_behind")
            both = row._replace(data=data[row.id])
            for one in folds[row.id]:
                both = rules.folded(one._replace(data=data[one.id]), both, settings, look.now)
            written.append(rules.placed(both, look.now, behind=row.id in held))
        self._write(tx, look, written)
        again = [row for row in behind.values() if row.id not in folds and row.id not in held]
        if again:
            reached("work.let_in_behind_a_dead_or_expired_one")
        self._reorder(tx, [(row, rules.placed(row, look.now)) for row in again])
        tx.many(self.named("wait_again"), [(row.id, row.status, row.counter, row.retry_date) for row in waiting_again])
        self._insert_order(tx, waiting_again)
        return [row for row, _ in dead]

    def _bury(self, tx: Transaction, look: JournalState, dead: Sequence[tuple[EntryRow, str]]) -> None:
        numbers = self.numbers(tx, len(dead))
        tx.many(
            "add_dead",
            [
                (number, row.id, row.number, row.hash, row.key, row.data, row.version, row.priority, row.insertion_date,
                 row.revised_date, row.expiration_date, row.counter, reason, row.owner, look.now)
                for (row, reason), number in zip(dead, numbers, strict=True)
            ],
            self.journal,
        )  # fmt: skip

    def beat(self, tx: Transaction, look: JournalState, pairs: Sequence[tuple[int, int]]) -> set[int]:
        """Send heartbeats; return the ids of the entries whose claim lives on."""
        beaten: set[int] = set()
        for _ in range(2):  # a move may have taken some to another table meanwhile
            left = [pair for pair in sorted(pairs) if pair[0] not in beaten]
            if left:
                found = tx.many(self.named("beat"), left, look.now, look.lease_now)
                beaten.update(id_ for (id_,) in found)
        return beaten

    # ------------------------------------------------------------ rows

    def table_name(self, slot: int) -> str:
        """Return the name of the table that holds the entries of a slot."""
        name = f"work_{self.set_name}_entry"
        return name if self.database.dialect == "sqlite" else f"{name}_{slot}"

    def rows(self, tx: Transaction, ids: Iterable[int]) -> list[EntryRow]:
        """Return entries by their ids, without their data."""
        return _rows(tx.many(self.named("whole"), [(self.journal, id_) for id_ in ids]))

    def of_hashes(self, tx: Transaction, hashes: Iterable[bytes]) -> list[EntryRow]:
        """Return entries of keys with these hashes, without their data."""
        return _rows(tx.many(self.named("find"), [(self.journal, hash_) for hash_ in hashes]))

    def page(self, tx: Transaction, after: int, limit: int) -> list[EntryRow]:
        """Return entries in the order of their ids, without their data."""
        return _rows(tx.rows(self.named("page"), (self.journal, after, limit)))

    def seen(self, tx: Transaction, rows: Sequence[EntryRow], settings: WorkSettings) -> list[EntryRow]:
        """Return unexpired entries with their data, as if every lapse were recorded already. Writes nothing."""
        moment = self.moment(tx)
        lease = self.heads(tx, moment.now).lease
        changed: dict[int, EntryRow | None] = {}
        if lease is not None and lease <= moment.lease_now:
            family = self.of_hashes(tx, {row.hash for row in rows})
            over = [row for row in family if row.status == PROCESSING and rules.lease_over(row, moment)]
            keys = {(row.hash, row.key) for row in over}
            behind = {
                (row.hash, row.key): row
                for row in self.with_data(tx, self._found_behind(tx, keys))
                if not rules.expired(row, moment.now)
            }
            if behind:
                reached("work.entry_behind_a_lapsed_one_shown")
            changed = rules.seen(self.with_data(tx, over), behind, settings, moment.now)
        now = (changed.get(row.id, row) for row in self.with_data(tx, rows))
        return [
            row for row in now
            if row is not None and (row.status == PROCESSING or not rules.expired(row, moment.now))
        ]  # fmt: skip

    def counts(self, tx: Transaction) -> EntryCounts:
        """Count the entries in each state, and the dead letters."""
        moment = self.moment(tx)
        (found,) = tx.rows(self.named("counts"), (self.journal, moment.now, moment.lease_now))
        due, later, behind, running, dead, unacknowledged, oldest, paused = found
        age_s = 0.0 if oldest is None else max(0, moment.now - oldest) / US
        return EntryCounts(due, later, behind, running, dead, unacknowledged, age_s, paused)

    def with_data(self, tx: Transaction, rows: Sequence[EntryRow]) -> list[EntryRow]:
        data = self._data(tx, rows)
        return [row._replace(data=data[row.id]) for row in rows if row.id in data]

    def _data(self, tx: Transaction, rows: Iterable[EntryRow]) -> dict[int, bytes]:
        return dict(tx.many(self.named("data_of"), [(row.id,) for row in rows]))

    def drop(self, tx: Transaction, look: JournalState, id_: int) -> tuple[bool, int | None]:
        """Remove an entry even if it is claimed. Return whether it existed, and when the entry behind it is due."""
        rows = self._steady(tx, lambda: self.rows(tx, [id_]), None)
        self._remove(tx, rows)
        wake = self._put_in(tx, look, [(row.hash, row.key) for row in rows if row.status == PROCESSING])
        return bool(rows), wake

    def remove_expired(self, tx: Transaction, look: JournalState, limit: int) -> int:
        """Remove entries that expired while they waited."""
        places = tx.rows(self.named("expired"), (self.journal, look.now, limit))
        rows = self.rows(tx, [place[3] for place in places])
        self._remove(tx, rows)
        return len(rows)

    def bury_unreadable(
        self, tx: Transaction, look: JournalState, settings: WorkSettings, rows: Sequence[EntryRow]
    ) -> None:
        """Make dead letters of claimed entries that cannot be decoded."""
        self.apply_outcomes(tx, look, settings, [EndedClaim(row, DEAD, "undecodable") for row in rows])

    def _remove(self, tx: Transaction, rows: Iterable[EntryRow]) -> None:
        rows = list(rows)
        places = [(self.journal, *position, row.id) for row in rows for position in _positions(row)]
        tx.many(self.named("remove_order"), places)
        tx.many(self.named("remove_state"), [(row.slot, row.id) for row in rows if row.fence])
        tx.many(self.named("remove_entry"), [(row.slot, row.id) for row in rows])

    def _write(self, tx: Transaction, look: JournalState, rows: Sequence[EntryRow]) -> None:
        """Write entries into the current table. Entries that are not due for a while go into the later table."""
        horizon = look.now + rules.LATER_US if tx.dialect == "postgres" else None
        slots = [look.slot if horizon is None or row.date <= horizon or row.fence else LATER for row in rows]
        both = list(zip(slots, rows, strict=True))
        if tx.dialect == "postgres":
            both = self._write_alike(tx, both)
        tx.many(self.named("insert_entry"), [(slot, *row[1:12], row.data) for slot, row in both], self.journal)
        tx.many(
            self.named("insert_order"),
            [(slot, *row.position, row.id, row.expiration_date, row.size) for slot, row in both],
            self.journal,
        )
        states = [_state(row._replace(slot=slot)) for slot, row in both if row.fence]
        tx.many(self.named("insert_state"), states, self.journal)

    def _write_alike(self, tx: Transaction, rows: Sequence[tuple[int, EntryRow]]) -> list[tuple[int, EntryRow]]:
        """Write rows that differ in number, key and data alone, as most of a large add do; return the others.

        Only a third of the columns is sent this way, and sending takes most of the time of a large add.
        """
        left, alike = [], dict[tuple[int, ...], list[EntryRow]]()
        for slot, row in rows:
            if row.fence or row.id != row.number or row.place == BEHIND:
                left.append((slot, row))
            else:
                alike.setdefault((slot, *row[5:12], *row.position), []).append(row)
        for (slot, *same), group in alike.items():
            if len(group) < ALIKE_MIN:
                left += [(slot, row) for row in group]
            else:
                given = [(row.id, row.hash, row.key, row.data) for row in group]
                tx.many(self.named("insert_alike"), given, self.journal, slot, *same)
        return left

    def _insert_order(self, tx: Transaction, rows: Iterable[EntryRow]) -> None:
        tx.many(
            self.named("insert_order"),
            [(row.slot, *row.position, row.id, row.expiration_date, row.size) for row in rows],
            self.journal,
        )

    def _reorder(self, tx: Transaction, rows: Sequence[tuple[EntryRow, EntryRow]]) -> None:
        tx.many(self.named("remove_order"), [(self.journal, *row.position, row.id) for row, _ in rows])
        self._insert_order(tx, [row for _, row in rows])


def _rows(found: Iterable[Sequence[Any]]) -> list[EntryRow]:
    return [EntryRow(*values) for values in found]


def _same(some: Iterable[EntryRow], others: Iterable[EntryRow]) -> bool:
    return set(some) == set(others)


def _positions(row: EntryRow) -> list[tuple[int, int, int]]:
    """Return every position in the order that a row may have."""
    if row.status == PROCESSING:
        return []
    return [row._replace(place=place).position for place in (READY, SOON, BEHIND)]


def _state(row: EntryRow) -> tuple[Any, ...]:
    """Return the columns that claims change, as they are written."""
    return (row.slot, row.id, row.status, row.fence, row.owner, row.start_date, row.claimed_date, row.beat, row.lease,
            row.counter, row.retry_date, row.beat + row.lease + 1)  # fmt: skip
