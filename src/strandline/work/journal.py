"""A work journal: `add`, claims by a cursor, dead letters, and what an operator does.

    with s.work(WorkDeclaration("mails", key={"order": "int"}, data={"to": "text"})) as mails:
        mails.add(key={"order": 7}, data={"to": "a@example.org"})
        cursor = mails.cursor(owner="w1")
        while True:
            for claim in cursor.claim(limit=10).claims:
                send(claim.entry.data["to"])
                claim.done()
            mails.wait(60.0)

Every write is one transaction; `tx=` makes it part of the caller's own. The database's clock decides.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from threading import Lock
from typing import Any, Final, Literal, Never, TypeVar
from uuid import UUID

from strandline.closed_at_end import ClosedAtEnd
from strandline.errors import (
    Corrupt,
    InvalidInput,
    LeaseLost,
    NotFound,
    StrandlineError,
    Unavailable,
    invalid,
)
from strandline.journal import checks
from strandline.points import reached
from strandline.settings import MIB
from strandline.sql.api import Database, Transaction
from strandline.work import catalog, rules
from strandline.work.catalog import StoredJournal
from strandline.work.claims import Batch, Claim, ClaimResult, Cursor, lease_lost, without_entries
from strandline.work.dates import US, Date, date_us, delay_us
from strandline.work.declaration import COLUMNS_OF_THE_SYSTEM, Codec, Columns, WorkSettings, from_base64, reserved
from strandline.work.entries import (
    PROCESSING,
    WAITING,
    Added,
    DeadLetter,
    Entry,
    EntryCounts,
    EntryDraft,
    EntryRow,
    EntryTable,
)
from strandline.work.tables import AddedAll, ClaimRef, EndedClaim, JournalState, Tables
from strandline.work.upkeep import Upkeep
from strandline.work.waking import Waking

BATCH_MAX: Final = 10_000
BATCH_BYTES_MAX: Final = 64 * MIB
CLAIM_MAX: Final = 1000
PAGE_MAX: Final = 1000
OWNER_MAX: Final = 200
TICK_S: Final = 0.1
FORGET_S: Final = 60.0
"""How often a process that uses the journal removes dead letters and ids whose retention is over."""
PRIORITIES: Final = 256
RETRIES: Final = 5
T = TypeVar("T")
_log: Final = logging.getLogger("strandline.work")


class WorkJournal(ClosedAtEnd):
    """A work journal that is open. Safe to share between threads; refused after `close` and in a forked child."""

    def __init__(
        self, database: Database, known: StoredJournal, *, clock: Callable[[], int] | None = None, owned: bool = False
    ) -> None:
        """Open a journal. `owned`: the database belongs to this journal, whose `close` closes it."""
        self.name = known.name
        self.version = known.version
        """The version of the columns that adds of this process use."""
        self._database = database
        self._known = known
        self._owned = owned
        self._tables = Tables(database, known.set_name, known.number, clock)
        self._upkeep = Upkeep(database, self._tables)
        self._waking = Waking(database, known.number, lambda: self.settings)
        self._ticking = Lock()
        self._ticked = time.monotonic()
        self._forget_at = self._ticked + FORGET_S
        self._closed = False

    # ------------------------------------------------------------ add

    def add(
        self,
        /,
        key: Mapping[str, Any],
        data: Mapping[str, Any],
        *,
        priority: int | None = None,
        insertion_date: Date | None = None,
        process_date: Date | timedelta | None = None,
        expiration_date: Date | None = None,
        id: UUID | str | None = None,  # noqa: A002 (as everywhere in this API)
        tx: object = None,
        **unknown: Never,
    ) -> Added:
        """Add an entry, or merge it with the one of its key that waits. Durable when this returns.

        Dates are microseconds since 1970 or datetimes with a zone. `process_date` None is now, a timedelta so much
        later, by the database's clock; `expiration_date` None or 0 is never. `tx` is the caller's transaction in the
        same database: the add commits with it.

        An add with an `id`, a UUID or any text, is stored once: a second one with that id changes nothing, whatever has
        become of the entry, and its outcome is `repeated`. Ids are remembered for `ids_keep_s` (7 days).
        """
        draft = self._draft(
            {"key": key, "data": data, "priority": priority, "insertion_date": insertion_date,
             "process_date": process_date, "expiration_date": expiration_date, "id": id, **unknown}
        )  # fmt: skip
        return self._add([draft], tx)[0]

    def add_many(self, adds: Iterable[Mapping[str, Any]], *, tx: object = None) -> list[Added]:
        """Add several entries, each given by the arguments of `add` as a mapping: all of them, or none."""
        given = list(adds)
        if not 1 <= len(given) <= BATCH_MAX:
            raise invalid("batch_range", "adds", f"{len(given)} adds", allowed=f"1..{BATCH_MAX}", got=len(given))
        drafts: list[EntryDraft] = []
        try:
            for one in given:
                drafts.append(self._draft(one))  # noqa: PERF401 (how many there are tells which one is refused)
        except InvalidInput as error:
            raise rules.at_index(len(drafts), error) from None
        size = sum(len(draft.data) + len(draft.key) for draft in drafts)
        if size > BATCH_BYTES_MAX:
            raise invalid("data_too_large", "adds", f"{size} bytes", allowed=f"at most {BATCH_BYTES_MAX}", got=size)
        return self._add(drafts, tx)

    def _draft(self, given: Mapping[str, Any]) -> EntryDraft:
        if not given.keys() <= _ARGUMENTS:
            name = min(given.keys() - _ARGUMENTS)
            raise self._no_argument(name, given[name])
        settings, codec = self.settings, self._codec
        key = codec.key(given.get("key"))
        data = codec.data(given.get("data"), settings.data_bytes_max)
        priority = given.get("priority")
        if priority is None:
            priority = settings.default_priority
        elif isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority < PRIORITIES:
            raise invalid(
                "priority_range", "priority", "not a priority", allowed="a whole number in 0..255", got=priority
            )
        inserted = process = expiration = add_id = None
        delay = 0
        if not given.keys() <= _USUAL:
            if (named := given.get("id")) is not None:
                add_id = bytes.fromhex(checks.id_of("id", named, code="option"))
            if isinstance(later := given.get("process_date"), timedelta):
                delay, given = delay_us("process_date", later), {**given, "process_date": None}
            inserted, process, expiration = (
                None if (date := given.get(name)) is None else date_us(name, date) for name in _DATES
            )
        if process is not None:
            rules.refuse_early(expiration or 0, max(process, inserted or 0))
        return EntryDraft(
            key, codec.hash(key), data, self.version, int(priority), inserted, process, expiration or 0,
            delay=delay, add_id=add_id,
        )  # fmt: skip

    def _no_argument(self, name: str, value: object) -> InvalidInput:
        if name in COLUMNS_OF_THE_SYSTEM:
            return reserved(name, {**self._codec.columns.key, **self._codec.columns.data})
        return invalid("column", name, "no argument of add", allowed=" ".join(sorted(_ARGUMENTS)), got=value)

    def _add(self, drafts: Sequence[EntryDraft], tx: object) -> list[Added]:
        added = self._write(lambda inner: self._added(inner, drafts, joined=tx is not None), tx)
        self._alert(added.dead)
        if tx is None:
            self._tick_if_due()
        return added.outcomes

    def _added(self, tx: Transaction, drafts: Sequence[EntryDraft], *, joined: bool) -> AddedAll:
        added = self._tables.add(tx, drafts, self.settings)
        self._waking.tell(tx, added.wake, joined=joined)
        return added

    # ------------------------------------------------------------ claim

    def cursor(self, owner: str | None = None) -> Cursor:
        """Return a cursor that claims entries under this owner's name."""
        name = f"{socket.gethostname()} {os.getpid()}" if owner is None else owner
        if not isinstance(name, str) or not 1 <= len(name) <= OWNER_MAX or "\0" in name:
            raise invalid("option", "owner", "not a name", allowed=f"text of 1..{OWNER_MAX} characters", got=owner)
        self._check()
        return Cursor(self, name)

    def done_many(self, claims: Sequence[Claim], *, tx: object = None) -> list[Literal["done", "lost"]]:
        """End claims; return `done` or `lost` for each. With `tx`, a lost claim raises
        `LeaseLost` and none is ended.
        """
        held = self._held("claims", claims)
        if not held:
            return []

        def work(inner: Transaction) -> set[int]:
            done = self._end(inner, held, joined=tx is not None)
            lost = without_entries(claims, done)
            if tx is not None and lost:
                raise lease_lost([claim.entry.id for claim in lost])
            return done

        lost = without_entries(claims, self._write(work, tx))
        for claim in claims:
            if tx is None:
                claim.over(done=claim not in lost)
            else:
                claim.in_tx = True
        return ["lost" if claim in lost else "done" for claim in claims]

    def _held(self, field: str, claims: Iterable[Claim]) -> list[ClaimRef]:
        """Return the numbers of these claims. Refuse claims of another journal: a claim here may have the same."""
        for claim in claims:
            if claim.journal.journal_id != self.journal_id:
                wrong, allowed = f"claim of work journal {claim.journal.name}", f"claims of work journal {self.name}"
                raise invalid("option", field, wrong, allowed=allowed, got=claim)
        return [claim.held for claim in claims]

    def _end(self, tx: Transaction, held: Sequence[ClaimRef], *, joined: bool) -> set[int]:
        look = self._look(tx)
        done, wake = self._tables.end(tx, look, held)
        self._waking.tell(tx, wake, joined=joined)
        return done

    def claim(self, cursor: Cursor, limit: int, done: Sequence[Claim], *, slow: bool = True) -> Batch:
        """Claim as `Cursor.claim` does. If not `slow`, leave out slow entries: the caller still has other work."""
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= CLAIM_MAX:
            raise invalid("limit_range", "limit", "out of range", allowed=f"1..{CLAIM_MAX}", got=limit)
        self._check()
        state = self._waking.begin()
        given = [claim for claim in done if not claim.was_done]
        held = self._held("done", given)
        dead: list[EntryRow] = []

        def work(tx: Transaction) -> tuple[set[int], tuple[float, int], ClaimResult]:
            dead.clear()
            look = self._look(tx, to_claim=True)
            clock = time.monotonic(), look.now
            ended: set[int] = set()
            if held:
                ended, wake = self._tables.end(tx, look, held)
                self._waking.tell(tx, wake)
            return ended, clock, self._take(tx, look, cursor, limit, dead, slow=slow)

        ended, clock, taken = self._write(work, None)
        cursor.pass_handed_out = taken.handed_out
        lost = without_entries(given, ended)
        for claim in given:
            claim.over(done=claim not in lost)
        self._alert(dead)
        self._waking.arm(state, clock, taken.next_date, taken.upkeep_date)
        claims = [Claim(self, entry, row) for entry, row in taken.entries]
        if not claims or cursor.found:
            self._tick_if_due()  # not after the first find of an idle cursor: its entries go out first
        cursor.found = bool(claims)
        return Batch(claims, taken.next_date, lost, taken.look.paused)

    def _take(
        self, tx: Transaction, look: JournalState, cursor: Cursor, limit: int, dead: list[EntryRow], *, slow: bool
    ) -> ClaimResult:
        """Claim entries below `slow_from`. If this pass found none, and `slow` is true, claim the others."""
        tables, settings = self._tables, self.settings
        if look.paused is not None:
            return ClaimResult(look, [], None, None, cursor.pass_handed_out)
        if look.lease is not None and look.lease <= look.lease_now:
            dead += tables.record_lapses(tx, look, settings)
        if look.soon is not None and look.soon <= look.now:
            tables.promote_due(tx, look)
        rows = tables.claim(tx, look, settings, cursor.owner, limit, 0, settings.slow_from)
        handed_out = cursor.pass_handed_out or bool(rows)
        pause = 0
        if not rows and settings.slow_from < PRIORITIES and slow:
            if handed_out:
                reached("work.pass_ended_before_slow_entries")
                pause, handed_out = round(settings.slow_pause_s * US), False
            else:
                most = min(limit, settings.slow_limit)
                rows = tables.claim(tx, look, settings, cursor.owner, most, settings.slow_from, PRIORITIES)
        elif not rows and slow:
            handed_out = False
        entries, unreadable = self._decoded(rows)
        tables.bury_unreadable(tx, look, settings, unreadable)
        dead += unreadable
        if len(rows) == limit and not unreadable:
            return ClaimResult(look, entries, look.now, None, handed_out)
        heads = tables.heads(tx, look.now)
        next_date = None
        if heads.ready is not None:
            wait = pause if heads.ready >= settings.slow_from else 0
            next_date = look.now if rows else look.now + (wait or cursor.busy())
        elif cursor.wait_s:
            cursor.wait_s = 0.0
        others = [heads.soon, None if heads.lease is None else look.now + heads.lease - look.lease_now, next_date]
        next_date = min((date for date in others if date is not None), default=None)
        return ClaimResult(look, entries, next_date, None if heads.expiry is None else heads.expiry + 1, handed_out)

    def _decoded(self, rows: Sequence[EntryRow]) -> tuple[list[tuple[Entry, EntryRow]], list[EntryRow]]:
        entries, unreadable = [], []
        for row in rows:
            try:
                entries.append((self._entry(row), row))
            except (ValueError, KeyError):
                unreadable.append(row)
        return entries, unreadable

    def _entry(self, row: EntryRow) -> Entry:
        """Return an entry for the claim's holder. Raises ValueError or KeyError if it cannot be decoded."""
        codec = self._codec_of(row.version)
        return _entry(row, codec.decode(row.key), codec.decode(row.data or b""))

    def _shown(self, row: EntryRow) -> Entry:
        """Return an entry for display: a key or data that cannot be decoded is empty."""
        return _entry(
            row, self._readable(row.version, row.key) or {}, self._readable(row.version, row.data or b"") or {}
        )

    def _codec_of(self, version: int) -> Codec:
        if version not in self._known.codecs:
            self._reload()
        return self._known.codecs[version]

    # ------------------------------------------------------------ claims of cursors

    def beat(self, claims: Sequence[Claim]) -> list[Claim]:
        """Send heartbeats for many claims. Mark those that are over as lost, and return them."""
        pairs = [(held.id, held.fence) for held in self._held("claims", claims)]
        beaten = self._write(lambda tx: self._tables.beat(tx, self._look(tx), pairs), None) if pairs else set()
        lost = without_entries(claims, beaten)
        for claim in lost:
            claim.lose()
        return lost

    def apply_outcome(
        self, claim: Claim, decide: Callable[[EntryRow, JournalState], EntryRow | str], reason: str
    ) -> None:
        """End a claim by `fail` or `release`."""

        def work(tx: Transaction) -> list[EntryRow]:
            look = self._look(tx)
            row = self._tables.held(tx, look, claim.entry.id, claim.fence)
            if row is None:
                raise lease_lost([claim.entry.id])
            dead = self._tables.apply_outcomes(tx, look, self.settings, [EndedClaim(row, decide(row, look), reason)])
            self._waking.tell(tx, look.now)
            return dead

        try:
            dead = self._write(work, None)
        except LeaseLost:
            claim.over(done=False)
            raise
        claim.over(done=False)
        self._alert(dead)

    def _alert(self, dead: Sequence[EntryRow]) -> None:
        for row in dead:
            _log.warning("work journal %s: entry %s is a dead letter", self.name, row.id)

    def claim_of(self, id: int, fence: int) -> Claim:  # noqa: A002 (as everywhere in this API)
        """Return a claim by its entry's id and its fence, for example one that another process took."""
        with self._read() as tx:
            rows = [row for row in self._tables.rows(tx, [id]) if row.fence == fence]
            rows = self._tables.with_data(tx, rows)
        if not rows:
            raise lease_lost([id])
        try:
            return Claim(self, self._entry(rows[0]), rows[0])
        except (ValueError, KeyError):
            hint = "let its lease end: the next claim makes a dead letter of it"
            raise Corrupt(f"entry {id} cannot be decoded", code="undecodable", hint=hint, entry=id) from None

    # ------------------------------------------------------------ look

    def get(self, key: Mapping[str, Any]) -> Entry | None:
        """Return the waiting entry of a key, else the one being processed, else None; decoded as in `entries`."""
        encoded = self._codec.key(key)
        hash_ = self._codec.hash(encoded)
        with self._read() as tx:
            rows = [row for row in self._tables.of_hashes(tx, [hash_]) if row.key == encoded]
            found = [self._shown(row) for row in self._tables.seen(tx, rows, self.settings)]
        return min(found, key=lambda entry: entry.status != WAITING, default=None)

    def entries(self, *, status: str | None = None, after: int = 0, limit: int = PAGE_MAX) -> list[Entry]:
        """Return entries in the order of ids, after a given id; with `status` only those that wait (W) or run (P).

        An entry whose lease is over is shown in the state that the next claim will give it. A key or data that cannot
        be decoded is empty.
        """
        if status not in (None, WAITING, PROCESSING):
            raise invalid("option", "status", "unknown", allowed="W or P", got=status)
        _check_page(after, limit)
        found: list[Entry] = []
        with self._read() as tx:
            while len(found) < limit:
                rows = self._tables.page(tx, after, min(limit, PAGE_MAX))
                entries = map(self._shown, self._tables.seen(tx, rows, self.settings))
                found += [entry for entry in entries if status in (None, entry.status)]
                if len(rows) < min(limit, PAGE_MAX):
                    break
                after = rows[-1].id
        return found[:limit]

    def counts(self) -> EntryCounts:
        """Count the entries that wait, that are being processed, and the dead letters."""
        with self._read() as tx:
            return self._tables.counts(tx)

    def tables(self, *, after: str = "", limit: int = PAGE_MAX) -> list[EntryTable]:
        """Return the short-lived tables in the order of their names, after a given name."""
        found: list[EntryTable] = []
        with self._read() as tx:
            for slot, state, opened, closed, *_ in tx.rows("tables", (self._known.set_name,)):
                name = self._tables.table_name(slot)
                if (len(name), name) > (len(after), after) and len(found) < limit:
                    ((count,),) = tx.rows(self._tables.named("table_entries", slot))
                    ((size,),) = tx.rows(self._tables.named("table_bytes", slot))
                    found.append(EntryTable(name, state, opened, closed, count, size))
        return found

    def now_us(self) -> int:
        """Return the time of the database's clock, which decides what is due."""
        self._check()
        with self._database.read() as tx:
            return self._tables.moment(tx).now

    def columns_of(self, part: Literal["key", "data"], texts: Mapping[str, Any]) -> dict[str, Any]:
        """Turn columns as JSON carries them, with bytes in base64, into columns as `add` takes them."""
        kinds = getattr(self._codec.columns, part)
        return {
            name: from_base64(f"{part} {name}", value) if str(kinds.get(name)).startswith("bytes") else value
            for name, value in texts.items()
        }

    def wait(self, timeout_s: float) -> bool:
        """Wait until a claim may find an entry. Return False after `timeout_s`. Reconnects by itself."""
        self._check()
        deadline = time.monotonic() + checks.timeout_s(timeout_s)
        while True:
            woken = self._waking.wait(deadline)
            if woken == "upkeep":
                self.tick()
            else:
                return woken == "look"

    # ------------------------------------------------------------ dead letters

    def dead(self, *, after: int = 0, limit: int = PAGE_MAX) -> list[DeadLetter]:
        """Return dead letters in the order of their ids, after a given id."""
        return self._dead(after, limit, alerts=False)

    def alerts(self, *, after: int = 0, limit: int = PAGE_MAX) -> list[DeadLetter]:
        """Return the dead letters that nobody has acknowledged."""
        return self._dead(after, limit, alerts=True)

    def _dead(self, after: int, limit: int, *, alerts: bool) -> list[DeadLetter]:
        _check_page(after, limit)
        with self._read() as tx:
            rows = tx.rows("dead", (self._known.number, after, limit, alerts))
        return [self._letter(row) for row in rows]

    def _letter(self, row: Sequence[Any]) -> DeadLetter:
        (dead_id, id_, key, data, version, priority, inserted, revised, expires, counter, reason, owner, date,
         acknowledged) = row  # fmt: skip
        return DeadLetter(
            dead_id, id_, self._readable(version, key), self._readable(version, data), version, priority, inserted,
            revised, expires, counter, reason, owner, date, bool(acknowledged),
        )  # fmt: skip

    def _readable(self, version: int, text: bytes) -> dict[str, Any] | None:
        try:
            return self._codec_of(version).decode(text)
        except (ValueError, KeyError):
            return None

    def requeue(self, dead_id: int, *, expiration_date: Date | None = None, tx: object = None) -> Added:
        """Add a dead letter again, by the ordinary rules, and remove it. An expired one needs another date."""
        expiration = None if expiration_date is None else date_us("expiration_date", expiration_date)

        def work(inner: Transaction) -> AddedAll:
            rows = inner.rows("take_dead", (self._known.number, dead_id))
            if not rows:
                raise self._no_letter(inner, dead_id)
            key, hash_, data, version, priority, revised, expires, number = rows[0]
            expires = expires if expiration is None else expiration
            if 0 < expires < self._tables.moment(inner).now:
                reached("work.dead_letter_has_expired")
                raise rules.expired_letter(expires)
            draft = EntryDraft(key, hash_, data, version, priority, revised, None, expires, number)
            return self._added(inner, [draft], joined=tx is not None)

        added = self._write(work, tx)
        self._alert(added.dead)
        return added.outcomes[0]

    def acknowledge(self, dead_id: int) -> None:
        """Acknowledge a dead letter: `alerts` and `status` show it no more."""

        def work(tx: Transaction) -> None:
            if not tx.execute("acknowledge", (self._known.number, dead_id)):
                raise self._no_letter(tx, dead_id)

        self._write(work, None)

    def _no_letter(self, tx: Transaction, dead_id: int) -> NotFound:
        """Return the error for an unknown dead letter. Its hint covers the usual mistake, to give the entry's id."""
        ((of_entry,),) = tx.rows("dead_of_entry", (self._known.number, dead_id))
        hint = (
            "dead() lists them by their dead_id" if of_entry is None else f"entry {dead_id} is dead letter {of_entry}"
        )
        return NotFound(f"no dead letter {dead_id}", code="dead_letter", hint=hint, dead_id=dead_id)

    # ------------------------------------------------------------ operate

    def drop(self, id: int) -> None:  # noqa: A002 (as everywhere in this API)
        """Remove an entry. Its holder gets `LeaseLost`."""

        def work(tx: Transaction) -> bool:
            look = self._look(tx)
            there, wake = self._tables.drop(tx, look, id)
            self._waking.tell(tx, wake)
            return there

        if not self._write(work, None):
            raise NotFound(f"no entry {id}", code="entry", hint="entries() lists them by their id", entry=id)

    def pause(self, reason: str = "paused") -> None:
        """Pause the journal in all processes: claims find nothing from now on. Adds and claims that are held go on."""
        self._write(lambda tx: tx.execute("pause", (self._known.number, str(reason))), None)

    def resume(self) -> None:
        """End a pause."""

        def work(tx: Transaction) -> None:
            tx.execute("pause", (self._known.number, None))
            self._waking.tell(tx, 0)

        self._write(work, None)

    def tick(self) -> None:
        """Do one step of each kind of upkeep: record lapses, remove expired rows, close, move and empty tables."""
        settings = self.settings

        def work(tx: Transaction) -> tuple[list[EntryRow], int]:
            look = self._look(tx)
            dead = self._tables.record_lapses(tx, look, settings)
            return dead, self._tables.remove_expired(tx, look, PAGE_MAX)

        self._ticked = time.monotonic()
        dead, _ = self._write(work, None)
        self._alert(dead)
        self._forget()
        self._upkeep.step(self.settings)

    def _forget(self) -> None:
        """Remove dead letters, and a bounded number of ids of adds, whose retention is over."""
        self._forget_at = time.monotonic() + FORGET_S
        number, settings = self._known.number, self.settings
        with self._read() as tx:
            now = self._tables.moment(tx).now
            ((oldest,),) = tx.rows("oldest_id", (number,))
        before = now - round(settings.ids_keep_s * US)
        if settings.dead_keep_s is None and (oldest is None or oldest >= before):
            return
        with self._database.write() as tx:
            if settings.dead_keep_s is not None:
                tx.execute("forget_dead", (number, now - round(settings.dead_keep_s * US)))
            if tx.execute("forget_ids", (number, before, PAGE_MAX)) == PAGE_MAX:
                self._forget_at = 0.0  # there may be more

    def _tick_if_due(self) -> None:
        """Do upkeep now and then, in any thread that calls. Its errors are logged, not raised."""
        if time.monotonic() - self._ticked < TICK_S or not self._ticking.acquire(blocking=False):
            return
        try:
            self._ticked = time.monotonic()
            self._upkeep.step(self.settings)
            if time.monotonic() >= self._forget_at:
                self._forget()
        except StrandlineError as error:
            _log.info("work journal %s: upkeep: %s", self.name, error)
        finally:
            self._ticking.release()

    # ------------------------------------------------------------ transactions

    @property
    def settings(self) -> WorkSettings:
        """The settings of the latest declaration, by any process."""
        return self._known.settings

    @property
    def journal_id(self) -> str:
        """The random id that tells this journal from all others."""
        return self._known.journal_id

    @property
    def columns(self) -> Columns:
        """The columns that adds of this process use."""
        return self._codec.columns

    @property
    def _codec(self) -> Codec:
        return self._known.codecs[self.version]

    def _look(self, tx: Transaction, *, to_claim: bool = False) -> JournalState:
        look = self._tables.look(tx, to_claim=to_claim)
        if look.settings_version != self._known.settings_version:
            reached("work.settings_changed_by_another")
            self._reload(tx)
        return look

    def _reload(self, tx: Transaction | None = None) -> None:
        if tx is None:
            with self._read() as own:
                return self._reload(own)
        known = catalog.find(tx, self.name)
        if known is not None:
            self._known = known._replace(version=self.version)
        return None

    def _read(self) -> Any:
        self._check()
        return self._database.read()

    def _write(self, work: Callable[[Transaction], T], tx: object) -> T:
        """Run `work` in the caller's transaction, or in one of its own, which is retried after a lost race."""
        self._check()
        for attempt in range(RETRIES):
            try:
                if tx is not None:
                    with self._database.join(tx) as joined:
                        return work(joined)
                with self._database.write() as own:
                    result = work(own)
                self._waking.flush()
                return result
            except Unavailable as error:
                if tx is not None or error.code != "serialization" or attempt == RETRIES - 1:
                    raise
            except Corrupt as error:
                if error.facts.get("sqlstate") != "23514" or attempt == RETRIES - 1:
                    raise  # 23514: the table that was chosen is gone
        raise AssertionError("unreachable")

    def _check(self) -> None:
        if self._closed:
            raise InvalidInput(f"work journal {self.name} is closed", code="closed", hint="open it again")
        self._database.check()

    def close(self) -> None:
        """Close the journal. Twice is harmless."""
        self._closed = True
        self._waking.close()
        if self._owned:
            self._database.close()

    def __repr__(self) -> str:
        return f"<WorkJournal {self.name} at {self._database.where}>"


_DATES: Final = ("insertion_date", "process_date", "expiration_date")
_USUAL: Final = frozenset({"key", "data", "priority"})
_ARGUMENTS: Final = _USUAL | {*_DATES, "id"}


def _entry(row: EntryRow, key: dict[str, Any], data: dict[str, Any]) -> Entry:
    return Entry(
        row.id, key, data, row.version, row.priority, row.insertion_date, row.revised_date, row.process_date,
        row.expiration_date, PROCESSING if row.status == PROCESSING else WAITING, row.started, row.claimed_date,
        row.retry_date, row.counter, row.fence, row.owner,
    )  # fmt: skip


def _check_page(after: object, limit: object) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= PAGE_MAX:
        raise invalid("limit_range", "limit", "out of range", allowed=f"1..{PAGE_MAX}", got=limit)
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after < 2**63:
        raise invalid("limit_range", "after", "not an id", allowed="0..2^63-1", got=after)
