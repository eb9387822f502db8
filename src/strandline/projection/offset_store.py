"""The offset store: projections, their ranges and fences, rich offsets, requests and dead letters, in an SQL database.

A change of a projection's ranges (claims, rescale, reset) locks its row. A save touches its own range alone,
and proves its fence with its last statement. `tx` is always the transaction of the caller, who commits it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple
from uuid import uuid4

import orjson

from strandline.errors import InvalidInput, LeaseLost, NotFound, SchemaMismatch, Unavailable, invalid
from strandline.points import reached
from strandline.projection.layout import RangeLayout, RangeRow, done_of
from strandline.projection.liveness import Beat
from strandline.projection.offsets import KeyRow, KeyRows
from strandline.sql.api import Database, Part, Transaction
from strandline.values.keys import SLICES, slice_of
from strandline.values.ranges import Range, ranges

PART: Final = Part("projection", "strandline.projection", connections=32)
"""The most connections of a host. Its ranges share them, one for the time of each transaction."""
BUILDING, READY, SWITCHING, SERVING, RETIRED = "building", "ready", "switching", "serving", "retired"
"""The states of a generation. "ready": it has come to where the serving one was. "switching": it takes its place."""
ALL: Final = Range(0, SLICES - 1)
SERIALIZATION_TRIES: Final = 20
GRACE_S: Final = 10.0
"""The time, beyond `handler_timeout_s`, after which the server ends a handler's statement without its host."""


class ProjectionRow(NamedTuple):
    """A generation of a projection, as it is kept."""

    id: str
    name: str
    generation: int
    state: str
    epoch: int
    source: str
    start: int
    line: int
    paused: int
    target_ranges: int | None
    fence: int
    history_id: str
    revisions: str
    """The revisions of the store's pointers when the epoch began, as JSON. Events put back before
    are read in their places.
    """


class SliceRequest(NamedTuple):
    """The request of an operator to the owner of a slice."""

    id: str
    asked: int
    verb: str
    slice: int
    key: str
    life: int
    seq_nr: int
    refused: str | None


class DeadEvent(NamedTuple):
    """An event that was not handled, and why. It has no payload, because a purge must not leave one behind."""

    key: str
    life: int
    seq_nr: int
    slice: int
    timestamp: int
    attempts: int
    first_at: int
    last_at: int
    error_type: str
    message: str
    reason: str
    """skipped, parked, or operator (skipped by one)."""


class RangeClaim(NamedTuple):
    """The right to run a range, as a save proves it."""

    projection: ProjectionRow
    row: RangeRow

    @property
    def place(self) -> tuple[str, int, int, int]:
        return self.projection.id, self.projection.epoch, self.row.lo, self.row.fence


class OffsetStore:
    """The tables of `projection/sql`, opened."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def close(self) -> None:
        self.database.close()

    @contextmanager
    def closed_after(self) -> Iterator[OffsetStore]:
        """Lend the store for one use, then close it."""
        try:
            yield self
        finally:
            self.close()

    # ------------------------------------------------------------ projections

    def all(self) -> list[ProjectionRow]:
        """Return all generations of all projections."""
        return [ProjectionRow(*row) for row in self.database.rows("projections")]

    def generations(self, name: str) -> list[ProjectionRow]:
        """Return the generations of a name."""
        return [ProjectionRow(*row) for row in self.database.rows("named", (name,))]

    def find(self, name: str, generation: int | None = None) -> ProjectionRow:
        """Return a generation, or the one that serves; `NotFound.projection`."""
        for row in self.generations(name):
            if row.generation == generation or (generation is None and row.state == SERVING):
                return row
        raise unknown_projection(name, generation)

    def ensure(
        self,
        name: str,
        generation: int,
        source: str,
        *,
        start: int,
        partitions: int,
        history_id: str,
        revisions: Sequence[int] = (),
        new: bool = True,
    ) -> ProjectionRow:
        """Return the projection; make it, with as many ranges as the log has partitions, if it does not exist. Without
        `new` nothing is made, and a missing generation raises `NotFound.projection`. `revisions` are those of the
        store's pointers: rows that were put back before them are read in their places. Raises
        `InvalidInput.projection_changed` if the projection has another source.
        """
        made = ProjectionRow(
            uuid4().hex, name, generation, SERVING, 1, source, start, start, 0, None, 0, history_id, _text(revisions)
        )

        def ensured(tx: Transaction) -> ProjectionRow:
            if not new or any(row[2] != generation for row in tx.rows("named", (name,))):
                self._known(tx, name, generation)
            return self._made(tx, made, partitions)

        return self._locked(ensured)  # if two hosts make the first generation at once, only one may serve

    def begin_generation(
        self,
        name: str,
        generation: int,
        source: str,
        *,
        start: int,
        count: int,
        history_id: str,
        revisions: Sequence[int] = (),
    ) -> ProjectionRow:
        """Begin a generation, of `count` ranges, beside the serving one. If it was begun before, it goes on. Raises
        `InvalidInput.generation_serving` if it or a later generation serves, and `NotFound.projection` if none serves.
        """
        made = ProjectionRow(
            uuid4().hex, name, generation, BUILDING, 1, source, start, start, 0, None, 0, history_id, _text(revisions)
        )

        def begun(tx: Transaction) -> ProjectionRow:
            serving = self.serving(tx, name)
            if generation <= serving.generation:
                allowed = f"a generation above {serving.generation}, which serves"
                raise invalid("generation_serving", "generation", "not a new one", allowed=allowed, got=generation)
            if orjson.loads(serving.source)[:2] != orjson.loads(source)[:2]:
                raise _changed(serving, source)
            return self._made(tx, made, count)

        return self._locked(begun)

    def _locked(self, change: Callable[[Transaction], ProjectionRow]) -> ProjectionRow:
        """Run a change in a serializable transaction, which is retried after conflicts with others."""
        for _ in range(SERIALIZATION_TRIES):
            try:
                with self.database.write(isolation="serializable") as tx:
                    return change(tx)
            except Unavailable as error:
                if error.code != "serialization":
                    raise
                refused = error
        raise refused

    def _made(self, tx: Transaction, made: ProjectionRow, count: int) -> ProjectionRow:
        """Write the row and `count` ranges of a generation unless it has a row; return the row that is there then."""
        tx.execute("add_projection", made)
        (found,) = (row for row in tx.rows("named", (made.name,)) if row[2] == made.generation)
        row = self.locked(tx, found[0])
        if row.source != made.source:
            raise _changed(row, made.source)
        if not tx.rows("ranges", (row.id, row.epoch)):
            for range_ in ranges(count):
                tx.execute("add_range", (row.id, row.epoch, *range_, 0, made.start))
        return row

    def serving(self, tx: Transaction, name: str) -> ProjectionRow:
        """Return the generation that serves; `NotFound.projection`."""
        for row in tx.rows("named", (name,)):
            if row[3] == SERVING:
                return ProjectionRow(*row)
        raise unknown_projection(name, None)

    def _known(self, tx: Transaction, name: str, generation: int) -> None:
        """Refuse a generation that does not exist: only a rebuild begins one beside others, never a host."""
        if not any(row[2] == generation for row in tx.rows("named", (name,))):
            raise unknown_projection(name, generation)

    def locked(self, tx: Transaction, id_: str) -> ProjectionRow:
        """Lock and return a projection: its ranges cannot change. Raises `NotFound.projection` if it is gone."""
        rows = tx.rows("lock_projection", (id_,))
        if not rows:
            raise unknown_projection(id_, None)
        return ProjectionRow(*rows[0])

    def change(self, tx: Transaction, row: ProjectionRow) -> None:
        """Write what changed of a projection that is locked."""
        tx.execute(
            "set_projection",
            (
                row.id, row.name, row.state, row.epoch, row.start, row.line, row.paused, row.target_ranges, row.fence,
                row.history_id, row.revisions,
            ),
        )  # fmt: skip

    def drop(self, tx: Transaction, row: ProjectionRow) -> None:
        """Remove all rows of a projection."""
        for name in ("drop_ranges", "drop_offsets"):
            tx.execute(name, (row.id, row.epoch))
        tx.execute("drop_letters", (row.id, -1))
        for name in ("drop_hosts", "drop_requests", "drop_settled", "drop_projection"):
            tx.execute(name, (row.id,))

    def begin_epoch(
        self, tx: Transaction, row: ProjectionRow, time: int, *, keep_parked: bool, revisions: Sequence[int]
    ) -> ProjectionRow:
        """Begin an epoch: everything up to a time counts as done, nothing above it. The next deletion takes the old
        rows.

        `revisions`: as for `ensure`.
        """
        fence = row.fence + 1
        new = row._replace(epoch=row.epoch + 1, line=time, fence=fence, revisions=_text(revisions))
        for old in self.ranges(tx, row):
            tx.execute("add_range", (row.id, new.epoch, *old.range, fence, time))
        if keep_parked and tx.execute("copy_parked", (row.id, row.epoch, new.epoch, time)):
            reached("projection.parked_key_kept")
        tx.execute("drop_letters", (row.id, time if keep_parked else -1))
        tx.execute("drop_settled", (row.id,))
        tx.execute("drop_ranges", (row.id, row.epoch))
        return new

    # ------------------------------------------------------------ ranges

    def ranges(self, tx: Transaction, row: ProjectionRow) -> list[RangeRow]:
        return [RangeRow(*found) for found in tx.rows("ranges", (row.id, row.epoch))]

    def claim(self, tx: Transaction, row: ProjectionRow, wanted: RangeRow, owner: str) -> RangeRow | None:
        """Claim a range of a locked projection, with a larger fence than any before; None if it is gone or owned."""
        ((fence,),) = tx.rows("raise_fence", (row.id,))
        if not tx.execute("claim_range", (row.id, row.epoch, wanted.lo, wanted.fence, fence, owner)):
            return None
        return wanted._replace(fence=fence, owner=owner, unclean_claims=wanted.unclean_claims + 1)

    def release(self, claim: RangeClaim) -> None:
        """Give a range back. Does nothing if another host has it by now."""
        with self.database.write() as tx:
            tx.execute("release_range", claim.place)

    def fail(self, claim: RangeClaim, why: str, retry_at: int) -> None:
        """Give a range back that failed."""
        with self.database.write() as tx:
            tx.execute("fail_range", (*claim.place, why, retry_at))

    def take_away(self, claim: RangeClaim, why: str, retry_at: int) -> None:
        """Free a range whose handler does not return. What that handler does later is not committed."""
        with self.database.write() as tx:
            ((fence,),) = tx.rows("raise_fence", (claim.projection.id,))
            tx.execute("free_range", (*claim.place, fence, why, retry_at))

    def reload(self, claim: RangeClaim) -> RangeClaim:
        """Wait for a running commit of the range, then return its row. Raises `LeaseLost` if another claim has it."""
        id_, epoch, lo, fence = claim.place
        with self.database.write() as tx:
            rows = tx.rows("lock_range", (id_, epoch, lo))
        if not rows or rows[0][2] != fence:
            raise lease_lost(claim)
        return claim._replace(row=RangeRow(*rows[0]))

    def cut(self, tx: Transaction, row: ProjectionRow, cut: RangeLayout) -> ProjectionRow:
        """Replace the ranges of a projection that is locked, all of which are free."""
        new = row._replace(fence=row.fence + 1, target_ranges=None)
        tx.execute("drop_ranges", (row.id, row.epoch))
        tx.execute("drop_slice_rows", (row.id, row.epoch))
        slices = [(slice_, "", 0, 0, position, None) for slice_, position in cut.slices.items()]
        tx.many("save_keys", slices, row.id, row.epoch)
        for range_, position in cut.positions.items():
            tx.execute("add_range", (row.id, row.epoch, *range_, new.fence, position))
        return new

    def done(self, tx: Transaction, row: ProjectionRow) -> list[int]:
        """Return the position of each slice."""
        return done_of(self.ranges(tx, row), self.slice_rows(tx, row))

    # ------------------------------------------------------------ offsets

    def slice_rows(self, tx: Transaction, row: ProjectionRow, range_: Range = ALL) -> dict[int, int]:
        """Return the slices that are beyond their range's position, with their own positions."""
        return dict(tx.rows("slice_rows", (row.id, row.epoch, *range_)))

    def key_rows(self, row: ProjectionRow, keys: Sequence[str]) -> KeyRows:
        """Return the rows of these keys (at least one key) and the line, read in one statement."""
        found = self.database.many("key_rows", [(slice_of(key), key) for key in keys], row.id, row.epoch)
        if not found or found[0][0] != row.epoch:
            raise LeaseLost(f"{row.name} began anew", code="lease_lost", hint="nothing is to be done")
        rows = {key: KeyRow(slice_of(key), key, *rest) for _, _, key, *rest in found if key is not None}
        return KeyRows(rows, found[0][1])

    def hold(self, tx: Transaction, claim: RangeClaim) -> None:
        """Lock a range for a handler's transaction, which ends with the next save. Raises `LeaseLost` for another
        owner. On PostgreSQL nobody else takes the range before this transaction is over, so that no two handlers write
        for one range at once.
        """
        if not tx.rows("hold_range", (*claim.place, claim.row.saves)):
            reached("projection.lost_before_a_handler")
            raise lease_lost(claim)

    def limit_handler(self, tx: Transaction, handler_timeout_s: float) -> None:
        """Raise a transaction's time-outs to what handlers may take, instead of those of our own statements. The host
        gives up a handler that takes longer; if the host hangs too, the server does.
        """
        if tx.dialect == "postgres":
            limits_s = (handler_timeout_s, handler_timeout_s + GRACE_S)
            tx.rows("limit_handler", [str(round(limit_s * 1000)) for limit_s in limits_s])
            tx.take_long(handler_timeout_s + GRACE_S)

    def save(
        self,
        tx: Transaction,
        claim: RangeClaim,
        rows: Iterable[KeyRow],
        position: int,
        counts: str,
    ) -> None:
        """Write key rows, then the range's position as the last statement. Raises `LeaseLost`
        unless this is the owner's next save.
        """
        id_, epoch, lo, fence = claim.place
        tx.many("save_keys", list(rows), id_, epoch)
        if not tx.execute("save_range", (id_, epoch, lo, fence, claim.row.saves, position, counts)):
            reached("projection.save_refused")
            raise lease_lost(claim)

    def keys_above(self, tx: Transaction, row: ProjectionRow, done: Sequence[int], range_: Range = ALL) -> list[KeyRow]:
        """Return the rows of keys that are beyond their slice: by events of a time that is half done, or by a feed."""
        found = (KeyRow(*each) for each in tx.rows("keys_above", (row.id, row.epoch, *range_, min(done))))
        return [each for each in found if each.timestamp > done[each.slice]]

    def forget(self, row: ProjectionRow, line: int) -> Iterator[int]:
        """Raise the line, then remove the key rows at or below it, also those of old epochs. Each step removes some
        rows and yields their number. A run may be left unfinished.
        """
        with self.database.write() as tx:
            tx.execute("raise_line", (row.id, row.epoch, line))
            for name in ("drop_ranges", "drop_offsets"):
                tx.execute(name, (row.id, row.epoch - 1))
        for slice_ in range(SLICES):
            with self.database.write() as tx:
                gone = tx.execute("forget_keys", (row.id, row.epoch, slice_, line))
            if gone:
                reached("projection.rows_forgotten")
            yield gone

    def parked(self, tx: Transaction, row: ProjectionRow) -> int:
        """Return how many keys wait."""
        ((count,),) = tx.rows("parked_count", (row.id, row.epoch))
        return int(count)

    def key_row(self, tx: Transaction, row: ProjectionRow, key: str) -> KeyRow | None:
        rows = tx.rows("key_row", (row.id, row.epoch, slice_of(key), key))
        return KeyRow(*rows[0]) if rows else None

    # ------------------------------------------------------------ hosts

    @contextmanager
    def look(self, id_: str) -> Iterator[tuple[Transaction, ProjectionRow]]:
        """Read a projection and all of it, at one moment."""
        with self.database.read() as tx:
            rows = tx.rows("projection_by_id", (id_,))
            if not rows:
                raise unknown_projection(id_, None)
            yield tx, ProjectionRow(*rows[0])

    def hosts(self, tx: Transaction, id_: str) -> dict[str, Beat]:
        """Return the hosts that run a projection, each with its last beat."""
        return {host: Beat(*beat) for host, *beat in tx.rows("hosts", (id_,))}

    def requests(self, tx: Transaction, id_: str) -> list[SliceRequest]:
        return [SliceRequest(*row) for row in tx.rows("requests", (id_,))]

    def ask(self, tx: Transaction, id_: str, verb: str, key: str, *, life: int = 0, seq_nr: int = 0) -> str:
        """Add a request to the owner of a key's slice, and return its id. An equal request that
        was refused is removed.
        """
        number = uuid4().hex
        tx.execute("forget_refused", (id_, verb, key, life, seq_nr))
        tx.execute("ask", (number, id_, self.database.now_us(), verb, slice_of(key), key, life, seq_nr))
        return number

    # ------------------------------------------------------------ dead letters

    def letters(self, id_: str, after: tuple[str, int, int], limit: int) -> list[DeadEvent]:
        return [DeadEvent(*row) for row in self.database.rows("letters", (id_, *after, limit))]

    def letter(self, tx: Transaction, id_: str, key: str, life: int, seq_nr: int) -> DeadEvent | None:
        """Return the dead letter of an event, if it has one."""
        rows = tx.rows("letter", (id_, key, life, seq_nr))
        return DeadEvent(*rows[0]) if rows else None


def _text(revisions: Sequence[int]) -> str:
    return orjson.dumps(list(revisions)).decode()


def _changed(row: ProjectionRow, source: str) -> InvalidInput:
    return InvalidInput(
        f"{row.name}: its source is {row.source}; given {source}",
        code="projection_changed",
        hint="give another name or generation; to see all events again, reset it under its old source",
        field="source",
    )


def check_history(row: ProjectionRow, history_id: str) -> None:
    """Raise `SchemaMismatch.log_replaced` for a projection of another history: its events may not
    be those of this store.
    """
    if row.history_id != history_id:
        raise SchemaMismatch(
            f"{row.name} was made from another history than the store's",
            code="log_replaced",
            hint=f"`strandline projections reset {row.name}`, or set-offset, begins it anew on this store's history",
            stored=row.history_id,
            given=history_id,
        )


def unknown_projection(name: str, generation: int | None) -> NotFound:
    of = "" if generation is None else f", generation {generation}"
    hint = "see `strandline projections list`; a projection is made when a host runs it first"
    return NotFound(f"there is no projection {name}{of}".rstrip(), code="projection", hint=hint, projection=name)


def lease_lost(claim: RangeClaim) -> LeaseLost:
    return LeaseLost(
        f"{claim.projection.name} {claim.row.range}: another host has the range",
        code="lease_lost",
        hint="nothing is to be done: its owner goes on",
        applied="no",
    )
