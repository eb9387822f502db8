"""What operators do with projections. All calls work on the offset store alone, so none waits for an absent host."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import orjson

from strandline.clock import time_text
from strandline.errors import InvalidInput, LeaseHeld, NotFound, SchemaMismatch, counted, invalid
from strandline.journal import checks
from strandline.journal.checks import parse_key
from strandline.journal.status import StatusSection
from strandline.projection.definition import projection_name
from strandline.projection.generations import check_switch
from strandline.projection.host import Offsets, rescale_if_free
from strandline.projection.layout import RangeRow
from strandline.projection.offset_store import (
    ALL,
    RETIRED,
    SERVING,
    SWITCHING,
    DeadEvent,
    OffsetStore,
    ProjectionRow,
    SliceRequest,
    unknown_projection,
)
from strandline.projection.sources import tag_of
from strandline.projection.stale import Stale, partitions_listed, stale_of, was_put_back
from strandline.projection.tag_events import TagEvents
from strandline.query.slices import Slices
from strandline.query.times import time_us
from strandline.rows import Pointer
from strandline.sql.api import Transaction
from strandline.store.api import Store
from strandline.values.heads import Head
from strandline.values.keys import partition_of
from strandline.values.ranges import Range, ranges

POLL_S: Final = 0.05
COUNTED: Final = {"failed": "failed range", "parked": "parked key"}
LIMIT: Final = 1000


@dataclass(frozen=True, slots=True)
class RangeStatus:
    """The status of one range of a projection."""

    lo: int
    hi: int
    state: str
    """"waiting" for an owner, "running", "paused" or "failed"."""
    owner: str | None
    fence: int
    position: int
    behind_store_s: float
    """The time of the newest event at or below the strandline, minus the position; 0 when all is done."""
    last_error: dict[str, Any] | None
    parked: int
    dead_letters: int
    counts: dict[str, int]
    """Events since the last claim by verdict: accepted, filtered, duplicate, unseen and others."""


@dataclass(frozen=True, slots=True)
class ProjectionStatus:
    """A generation of a projection."""

    name: str
    generation: int
    state: str
    source: str
    paused: bool
    wanted_ranges: int | None
    """The number of ranges of a rescale that is not done yet."""
    line: int
    ranges: tuple[RangeStatus, ...]
    hosts: tuple[str, ...]
    behind_store_s: float
    behind_log_s: float
    """How far the strandline is behind the log. This is the pipeline's lag, not the projection's."""
    requests: tuple[SliceRequest, ...] = field(default=())
    """The requests that are not done, or were refused, with the reason."""
    warnings: tuple[str, ...] = field(default=())
    stale: Stale | None = None
    """Events that a rebuild of the store put back behind the projection's position."""

    @property
    def at_start(self) -> bool:
        """Return whether a range has done nothing yet. Then it is behind by an unknown time."""
        waiting = [one for one in self.ranges if one.behind_store_s]
        return any(not one.position for one in waiting) or not any(one.position for one in self.ranges)


class Projections:
    """`s.projections`. Calls take `generation=`; the default is the serving generation."""

    def __init__(
        self, store: Store, open_offsets: Callable[[], Offsets], behind_log_s: Callable[[], tuple[float, bool]]
    ) -> None:
        self._store, self._open, self._behind_log_s = store, open_offsets, behind_log_s

    @contextmanager
    def _offsets(self, name: str | None = None) -> Iterator[Offsets]:
        """Open the offset store. A name that no projection can have is refused before it is opened."""
        if name is not None:
            projection_name(name)
        try:
            offsets = self._open()
        except SchemaMismatch as error:
            if error.code == "no_schema":  # no projection ever ran
                raise unknown_projection(name or "", None) from error
            raise
        try:
            yield offsets
        finally:
            offsets.store.close()

    def _living(self, offsets: Offsets, tx: Transaction, row: ProjectionRow) -> set[str]:
        return offsets.alive(None).living(offsets.store.hosts(tx, row.id), offsets.store.database.now_us())

    # ------------------------------------------------------------ looking

    def list(self) -> Sequence[tuple[str, int, str]]:
        """Return name, generation and state of each. The state is `serving, stale` if events were
        put back behind it.
        """
        try:
            with self._offsets() as offsets:
                listed = partitions_listed(self._store)
                return [(row.name, row.generation, self._state(offsets, row, listed)) for row in offsets.store.all()]
        except NotFound:
            return []

    def status(self, name: str, *, generation: int | None = None) -> ProjectionStatus:
        """Return the progress, owners and failures of a generation."""
        with self._offsets(name) as offsets:
            row = offsets.store.find(projection_name(name), generation)
            return self._status(offsets, row, self._behind_log_s(), partitions_listed(self._store))

    def statuses(self) -> Sequence[ProjectionStatus]:
        """Return the status of every generation."""
        try:
            with self._offsets() as offsets:
                behind, listed = self._behind_log_s(), partitions_listed(self._store)
                return [self._status(offsets, row, behind, listed) for row in offsets.store.all()]
        except NotFound:
            return []

    def section(self) -> StatusSection | None:
        """Return the section that `status` shows of all projections; None if none ever ran."""
        found = self.statuses()
        if not found:
            return None
        rows = tuple(_row(one) for one in found)
        warnings = [
            f"projection {row['name']}: {counted(row['failed'], 'range')} failed; see `strandline projections status`"
            for row in rows
            if row["failed"]
        ]
        warnings += [f"projection {one.name} is stale: {one.stale}; {stale_hint(one)}" for one in found if one.stale]
        counts = [counted(sum(row[name] for row in rows), what) for name, what in COUNTED.items()]
        return StatusSection(
            "projections", ", ".join([counted(len(rows), "projection"), *counts]), rows, tuple(warnings)
        )

    def _status(
        self, offsets: Offsets, row: ProjectionRow, behind: tuple[float, bool], listed: Sequence[int]
    ) -> ProjectionStatus:
        store, pointers = offsets.store, self._store.pointers()
        with store.look(row.id) as (tx, now):
            rows, hosts = store.ranges(tx, now), self._living(offsets, tx, now)
            requests = store.requests(tx, row.id)
            letters = dict(tx.rows("letters_by_slice", (row.id,)))
            parks = dict(tx.rows("parks_by_slice", (row.id, now.epoch)))
        stale = self._stale(offsets, now, listed)
        described = tuple(self._range(now, found, pointers, hosts, parks, letters) for found in rows)
        behind_log_s, carried = behind
        warnings = () if carried else ("no pipeline runs: projections wait for it",)
        return ProjectionStatus(
            now.name, now.generation, now.state, now.source, bool(now.paused), now.target_ranges, now.line, described,
            tuple(sorted(hosts)), max(found.behind_store_s for found in described), behind_log_s, tuple(requests),
            warnings, stale,
        )  # fmt: skip

    def _state(self, offsets: Offsets, row: ProjectionRow, listed: Sequence[int]) -> str:
        return row.state if self._stale(offsets, row, listed) is None else f"{row.state}, stale"

    def _stale(self, offsets: Offsets, row: ProjectionRow, listed: Sequence[int]) -> Stale | None:
        """Return what makes a generation stale. A retired one is never stale, because nobody reads what it made."""
        return None if row.state == RETIRED else stale_of(self._store, offsets.store, row, listed)

    def _range(
        self,
        row: ProjectionRow,
        found: RangeRow,
        pointers: Sequence[Pointer],
        hosts: set[str],
        parks: dict[int, int],
        letters: dict[int, int],
    ) -> RangeStatus:
        newest = Slices(self._store, "", found.range).newest(pointers)
        state = "paused" if row.paused else "running" if found.owner in hosts else "waiting"
        if found.failed is not None and state != "paused":
            state = "failed"
        return RangeStatus(
            found.lo, found.hi, state, found.owner if found.owner in hosts else None, found.fence, found.position,
            max(0, newest - found.position) / 1_000_000,
            None if found.failed is None else orjson.loads(found.failed),
            _within(parks, found.range), _within(letters, found.range), orjson.loads(found.counts),
        )  # fmt: skip

    # ------------------------------------------------------------ pausing, cutting anew

    def pause(self, name: str, *, generation: int | None = None, timeout_s: float = 10.0) -> Sequence[Range]:
        """Pause a projection until `resume`. Return the ranges that are still owned after `timeout_s`."""
        wait_s = checks.timeout_s(timeout_s)
        with self._offsets(name) as offsets:
            row = self._set(offsets, name, generation, paused=1)
            return self._until_free(offsets, row, wait_s)

    def resume(self, name: str, *, generation: int | None = None) -> None:
        """End a pause."""
        with self._offsets(name) as offsets:
            self._set(offsets, name, generation, paused=0)

    def rescale(self, name: str, n: int, *, generation: int | None = None, timeout_s: float = 10.0) -> bool:
        """Rescale to `n` ranges. If this returns False, a host does it once all ranges are released."""
        ranges(n)
        wait_s = checks.timeout_s(timeout_s)
        with self._offsets(name) as offsets:
            if n != 1 and tag_of(offsets.store.find(name, generation).source) is not None:
                hint = 'for more ranges, use BySlices(…, filter={"tags": …})'
                raise invalid("slice_range", "n", "a tag has one range", allowed="1", got=n, hint=hint)
            row = self._set(offsets, name, generation, target_ranges=n)
            deadline = time.monotonic() + wait_s
            while True:
                with offsets.store.database.write() as tx:
                    if rescale_if_free(offsets.store, tx, row.id, self._living(offsets, tx, row)):
                        return True
                if time.monotonic() >= deadline:
                    return False
                time.sleep(POLL_S)

    def switch(self, name: str, generation: int, *, force: bool = False, timeout_s: float = 10.0) -> bool:
        """Make a rebuilt generation take the place of the serving one, exactly where that one is.

        The serving one is stopped first. Return True if the switch is done; if False, the hosts complete it. Raises
        `Conflict.switch` while the new one is building or, without `force`, if it has parked keys or dead letters that
        the other has not.
        """
        wait_s = checks.timeout_s(timeout_s)
        with self._offsets(name) as offsets:
            store = offsets.store
            row = store.find(projection_name(name), generation)
            with store.database.write() as tx:
                old = check_switch(store, tx, row, force=force)
                store.change(tx, old._replace(paused=1))
                if store.locked(tx, row.id).state != SWITCHING:
                    store.change(tx, store.locked(tx, row.id)._replace(state=SWITCHING))
                    tx.execute("ask", (uuid4().hex, row.id, store.database.now_us(), "switch", -1, "", 0, generation))
            deadline = time.monotonic() + wait_s
            while store.find(name, generation).state != SERVING:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(POLL_S)
            return True

    def _set(self, offsets: Offsets, name: str, generation: int | None, **changes: Any) -> ProjectionRow:
        row = offsets.store.find(projection_name(name), generation)
        with offsets.store.database.write() as tx:
            row = offsets.store.locked(tx, row.id)._replace(**changes)
            offsets.store.change(tx, row)
        return row

    def _until_free(self, offsets: Offsets, row: ProjectionRow, timeout_s: float) -> Sequence[Range]:
        deadline = time.monotonic() + timeout_s
        while True:
            with offsets.store.database.read() as tx:
                living = self._living(offsets, tx, row)
                held = [found.range for found in offsets.store.ranges(tx, row) if found.owner in living]
            if not held or time.monotonic() >= deadline:
                return held
            time.sleep(POLL_S)

    # ------------------------------------------------------------ places

    def set_offset(self, name: str, time: object, *, generation: int | None = None) -> None:
        """Count all events at or below a time as done. Later events are handed over, perhaps for the second time."""
        moment = time_us(time, "time")
        pointers = self._store.pointers()
        newest = min(pointer.timestamp for pointer in pointers)
        if moment > newest:
            raise invalid("time_range", "time", "above the strandline", allowed=f"{newest} at most", got=time)
        with self._released(name, generation) as (store, tx, row):
            self._begin_epoch(store, tx, row, moment, pointers, keep_parked=True)

    def reset(self, name: str, *, generation: int | None = None) -> None:
        """Begin again at the projection's `start`, so that all events are handed over again."""
        pointers = self._store.pointers()
        with self._released(name, generation) as (store, tx, row):
            self._begin_epoch(store, tx, row, row.start, pointers, keep_parked=False)

    def _begin_epoch(
        self,
        store: OffsetStore,
        tx: Transaction,
        row: ProjectionRow,
        time: int,
        pointers: Sequence[Pointer],
        *,
        keep_parked: bool,
    ) -> None:
        """Begin at a time, as a projection of this store's history. Events that were put back so
        far are read in their places.
        """
        revisions = [pointer.revision for pointer in pointers]
        new = store.begin_epoch(tx, row, time, keep_parked=keep_parked, revisions=revisions)
        store.change(tx, new._replace(history_id=self._store.settings.history_id))

    def rename(self, name: str, new: str) -> None:
        """Rename a projection; rows and fences stay. A host that runs it under its old name ends."""
        taken = projection_name(new)
        with self._offsets(name) as offsets, offsets.store.database.write() as tx:
            store = offsets.store
            if tx.rows("named", (taken,)):
                raise invalid("projection_taken", "new", "there is one", allowed="a name that is free", got=new)
            for found in self._all(store, tx, name):
                row = store.locked(tx, found.id)
                self._check_released(offsets, tx, row)
                store.change(tx, row._replace(name=taken))

    def drop(self, name: str, *, generation: int | None = None) -> None:
        """Remove a projection with all generations, or one generation that does not serve."""
        with self._offsets(name) as offsets, offsets.store.database.write() as tx:
            store = offsets.store
            rows = [store.locked(tx, row.id) for row in self._all(store, tx, name)]
            if generation is not None:
                rows = [row for row in rows if row.generation == generation]
                if not rows:
                    hint = "see `strandline projections list`"
                    raise NotFound(f"{name} has no generation {generation}", code="projection", hint=hint)
                if rows[0].state == "serving":
                    raise invalid(
                        "generation_serving", "generation", "it serves", allowed="one that does not", got=generation
                    )
            for row in rows:
                self._check_released(offsets, tx, row)
                store.drop(tx, row)

    def _all(self, store: OffsetStore, tx: Transaction, name: str) -> Sequence[ProjectionRow]:
        rows = [ProjectionRow(*row) for row in tx.rows("named", (projection_name(name),))]
        if not rows:
            store.find(name)
        return rows

    @contextmanager
    def _released(self, name: str, generation: int | None) -> Iterator[tuple[OffsetStore, Transaction, ProjectionRow]]:
        """Lock and return a projection; refuse if a range of it is owned."""
        with self._offsets(name) as offsets:
            found = offsets.store.find(projection_name(name), generation)
            with offsets.store.database.write() as tx:
                row = offsets.store.locked(tx, found.id)
                self._check_released(offsets, tx, row)
                yield offsets.store, tx, row

    def _check_released(self, offsets: Offsets, tx: Transaction, row: ProjectionRow) -> None:
        hosts, living = offsets.store.hosts(tx, row.id), self._living(offsets, tx, row)
        for found in offsets.store.ranges(tx, row):
            if found.owner in living:
                beat = hosts[found.owner]
                until = offsets.alive(None).until(beat)
                ends = f", until {time_text(until, digits=0)} if that is dead" if until else ""
                raise LeaseHeld(
                    f"{row.name} {found.range} is run by {found.owner} since {time_text(beat.since, digits=0)}{ends}",
                    code="lease_held",
                    hint=f"`strandline projections pause {row.name}` first",
                    holder=found.owner,
                    since=beat.since,
                    until=until,
                )

    # ------------------------------------------------------------ keys and dead letters

    def skip(self, name: str, key: object, to: int, *, generation: int | None = None) -> None:
        """Count a key as done up to a number. The range's owner carries this out; `status` shows open requests."""
        _, written, slice_ = parse_key(key)
        state = self._store.look(_partition(slice_, self._store), [written]).states.get(written)
        if not isinstance(state, Head):
            allowed, hint = "a key that the store has", f"see `strandline head {written}`; is the pipeline behind?"
            raise invalid(
                "seq_nr_range", "key", "the store has no event of it", allowed=allowed, got=written, hint=hint
            )
        with self._offsets(name) as offsets:
            row = offsets.store.find(projection_name(name), generation)
            tag = tag_of(row.source)
            newest = state.seq_nr if tag is None else TagEvents(self._store, tag, ALL).last_number(written, state.life)
            if type(to) is not int or not 1 <= to <= newest:
                raise invalid("seq_nr_range", "to", "beyond the head", allowed=f"1..{newest}", got=to)
            with offsets.store.database.write() as tx:
                offsets.store.ask(tx, row.id, "skip", written, life=state.life, seq_nr=to)
                tx.execute("wake_range", (row.id, row.epoch, slice_))

    def unpark(self, name: str, key: object, *, generation: int | None = None) -> None:
        """Hand over the waiting events of a key, in order. The range's owner carries this out;
        `status` shows open requests.
        """
        _, written, _ = parse_key(key)
        with self._offsets(name) as offsets:
            row = offsets.store.find(projection_name(name), generation)
            with offsets.store.database.write() as tx:
                kept = offsets.store.key_row(tx, row, written)
                if kept is None or kept.parked is None:
                    raise NotFound(
                        f"{written} is not parked", code="parked_key", hint="see `strandline projections parked`"
                    )
                offsets.store.ask(tx, row.id, "unpark", written)

    def parked(self, name: str, *, generation: int | None = None) -> Sequence[str]:
        """Return the parked keys."""
        with self._offsets(name) as offsets:
            row = offsets.store.find(projection_name(name), generation)
            return [found[1] for found in offsets.store.database.rows("parked_keys", (row.id, row.epoch))]

    def dead_letters(
        self, name: str, *, generation: int | None = None, after: DeadEvent | None = None, limit: int = LIMIT
    ) -> Sequence[DeadEvent]:
        """Return events that were not handled, by key."""
        most = checks.limit(limit)
        if after is not None and not isinstance(after, DeadEvent):
            raise invalid("option", "after", "no dead letter", allowed="the last one that was listed", got=after)
        with self._offsets(name) as offsets:
            row = offsets.store.find(projection_name(name), generation)
            place = ("", 0, 0) if after is None else (after.key, after.life, after.seq_nr)
            return offsets.store.letters(row.id, place, most)

    def redeliver(self, name: str, key: object, seq_nr: int, *, life: int = 1, generation: int | None = None) -> None:
        """Hand over a dead letter again and remove it, or hand over an event that was put back behind the projection.
        The range's owner carries this out; `status` shows open requests. An event that was put back brings the missing
        events before it.
        """
        _, written, _ = parse_key(key)
        with self._offsets(name) as offsets:
            row = offsets.store.find(projection_name(name), generation)
            with offsets.store.database.write() as tx:
                letter = self._letter(offsets, tx, row, (written, life, seq_nr))
                if letter is not None and letter.reason == "parked":
                    raise InvalidInput(
                        f"{written} is parked", code="setting", hint="unpark it: its events wait for each other"
                    )
                offsets.store.ask(tx, row.id, "redeliver", written, life=life, seq_nr=seq_nr)

    def discard(self, name: str, key: object, seq_nr: int, *, life: int = 1, generation: int | None = None) -> None:
        """Remove a dead letter, or count an event that was put back behind the projection as done."""
        _, written, _ = parse_key(key)
        with self._offsets(name) as offsets:
            row = offsets.store.find(projection_name(name), generation)
            with offsets.store.database.write() as tx:
                if self._letter(offsets, tx, row, (written, life, seq_nr)) is None:
                    tx.execute("settle", (row.id, written, life, seq_nr))
                tx.execute("end_letter", (row.id, written, life, seq_nr))
                tx.execute("forget_refused", (row.id, "redeliver", written, life, seq_nr))

    def _letter(
        self, offsets: Offsets, tx: Transaction, row: ProjectionRow, event: tuple[str, int, int]
    ) -> DeadEvent | None:
        """Return the dead letter of an event, or None for an event that was put back. Else raise
        `NotFound.dead_letter`.
        """
        letter = offsets.store.letter(tx, row.id, *event)
        if letter is None and not was_put_back(self._store, row, *event):
            key, _, seq_nr = event
            hint = "see `strandline projections dead-letters` and `projections status`"
            raise NotFound(f"{key} {seq_nr} is no dead letter, nor was it put back", code="dead_letter", hint=hint)
        return letter


def stale_hint(one: ProjectionStatus) -> str:
    """Return what an operator can do about a projection that is stale."""
    return f"rebuild it, or hand over each with `strandline projections redeliver {one.name} KEY SEQ_NR`"


def _row(one: ProjectionStatus) -> dict[str, Any]:
    """Return a projection in one line."""
    return {
        "name": one.name,
        "generation": one.generation,
        "state": ("paused" if one.paused else one.state if one.hosts else f"{one.state}, no host")
        + (", stale" if one.stale else ""),
        "behind_store_s": None if one.at_start else one.behind_store_s,
        "ranges": len(one.ranges),
        "failed": sum(each.state == "failed" for each in one.ranges),
        "parked": sum(each.parked for each in one.ranges),
        "dead_letters": sum(each.dead_letters for each in one.ranges),
        "stale": 0 if one.stale is None else one.stale.events,
    }


def _partition(slice_: int, store: Store) -> int:
    return partition_of(slice_, store.settings.partitions)


def _within(counts: dict[int, int], range_: Range) -> int:
    return sum(count for slice_, count in counts.items() if slice_ in range_)
