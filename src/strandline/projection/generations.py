"""Generations: a new build of a projection runs beside the serving one, never past it, until it takes its place.

    building ──▶ ready ──▶ switching ──▶ serving ──▶ retired
       │           │           └ the serving one is stopped; the new one does exactly what it has done, then replaces it
       └───────────┴ bounded by the position that the serving one has in the same slices

A generation that does not serve reads the store up to there. While it switches it hands over the events that are left:
slice by slice, up to the serving generation's position, and key by key where that generation's key rows are above the
position (events that a feed brought, or only some of the events at one time). The host that finds all of them done
makes the switch, in one transaction with the handler's `on_switch`. Nothing is remembered outside of the offset store:
after a crash a host works out again what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from strandline.errors import Conflict
from strandline.points import reached
from strandline.projection.layout import RangeRow
from strandline.projection.offset_store import READY, RETIRED, SERVING, SWITCHING, OffsetStore, ProjectionRow
from strandline.projection.offsets import KeyRow
from strandline.query.acceptance import Place
from strandline.query.query_row import QueryRow
from strandline.query.slices import Slices
from strandline.rows import Pointer
from strandline.sql.api import Transaction
from strandline.store.api import Store
from strandline.values.ranges import Range

OnSwitch = Callable[[Transaction, int, int], None]
Living = Callable[[Transaction, ProjectionRow], Collection[str]]
"""Returns the hosts of a projection that live."""


class Goal(NamedTuple):
    """The progress of the serving generation in some slices: their positions, and the keys that are beyond these."""

    done: list[int]
    keys: list[KeyRow]


class BoundedSlices(Slices):
    """The slices of a generation that does not serve. Reads end where the serving generation is."""

    def __init__(
        self, store: Store, entity_type: str, range_: Range, offsets: OffsetStore, name: str, living: Living
    ) -> None:
        super().__init__(store, entity_type, range_)
        self._offsets, self._name, self._living = offsets, name, living

    def bound(self, pointers: Sequence[Pointer]) -> int:
        with self._offsets.database.read() as tx:
            done = self._offsets.done(tx, self._offsets.serving(tx, self._name))
        return min(super().bound(pointers), *done[self.range.lo : self.range.hi + 1])

    def rows(self, after: Place, to: int, page_size: int, *, bodies: bool = True) -> Iterator[QueryRow]:
        """Return rows of store and archive, because events that the serving generation has done
        may be archived since.
        """
        return (
            self.rows_with_archive(after, to, page_size) if bodies else super().rows(after, to, page_size, bodies=False)
        )

    def newest(self, pointers: Sequence[Pointer]) -> int:
        """Return the bound itself, so that a build saves every position it has come to."""
        return Slices.bound(self, pointers)

    def goal(self) -> Goal | None:
        """Return the progress of the serving generation once it is stopped; None before."""
        store = self._offsets
        with store.database.read() as tx:
            serving = store.serving(tx, self._name)
            if not is_stopped(serving, store.ranges(tx, serving), self._living(tx, serving)):
                return None
            done = store.done(tx, serving)
            return Goal(done, store.keys_above(tx, serving, done, self.range))


def is_stopped(row: ProjectionRow, ranges: Sequence[RangeRow], living: Collection[str]) -> bool:
    """Return whether a generation is stopped: it is paused, and no living host owns a range of it."""
    return bool(row.paused) and not any(found.owner in living for found in ranges)


def switch_if_done(
    store: OffsetStore,
    tx: Transaction,
    row: ProjectionRow,
    living: Living,
    on_switch: OnSwitch,
) -> bool:
    """Make a switching generation serve if it has done exactly what the serving one has; return whether it serves."""
    old = store.locked(tx, store.serving(tx, row.name).id)  # always lock the older one first
    new = store.locked(tx, row.id)
    if new.state != SWITCHING:
        return new.state == SERVING
    if not is_stopped(old, store.ranges(tx, old), living(tx, old)):
        reached("projection.switch_waits_for_a_host")
        return False
    wanted, done = store.done(tx, old), store.done(tx, new)
    if any(mine < theirs for mine, theirs in zip(done, wanted, strict=True)):
        reached("projection.switch_waits_for_events")
        return False
    if any(not covers(store.key_row(tx, new, theirs.key), theirs) for theirs in store.keys_above(tx, old, wanted)):
        return False
    on_switch(tx, old.generation, new.generation)
    tx.execute("fence_all", (old.id, old.epoch, old.fence + 1))  # stops hosts that wake up late
    store.change(tx, old._replace(state=RETIRED, paused=1, fence=old.fence + 1))
    store.change(tx, new._replace(state=SERVING))
    tx.execute("drop_requests_of", (new.id, "switch"))
    return True


def covers(mine: KeyRow | None, theirs: KeyRow) -> bool:
    """Return whether a key is as far in this generation as in the other. A parked key counts as far enough."""
    if mine is None:
        return False
    return mine.parked is not None or (mine.life, mine.seq_nr) >= (theirs.life, theirs.seq_nr)


def check_switch(store: OffsetStore, tx: Transaction, row: ProjectionRow, *, force: bool) -> ProjectionRow:
    """Return the generation that serves now; `Conflict.switch` if another must not take its place yet."""
    old = store.locked(tx, store.serving(tx, row.name).id)
    new = store.locked(tx, row.id)
    if new.state not in (READY, SWITCHING):
        behind = [max(0, theirs - mine) for mine, theirs in zip(store.done(tx, new), store.done(tx, old), strict=True)]
        hint = (
            "let a rebuild, or hosts of it, come to what the serving one has done; see `strandline projections status`"
        )
        behind_text = f", {max(behind) / 1_000_000:g} s behind generation {old.generation}"
        if new.state in (SERVING, RETIRED):
            hint, behind_text = "it cannot be switched to: rebuild a higher generation", " already"
        raise Conflict(
            f"{new.name}: generation {new.generation} is {new.state}{behind_text}",
            code="switch",
            hint=hint,
            state=new.state,
            behind_s=max(behind) / 1_000_000,
        )
    parks = len(_parked(tx, new) - _parked(tx, old))
    letters = len(_letters(tx, new) - _letters(tx, old))
    if (parks or letters) and not force:
        raise Conflict(
            f"{new.name}: generation {new.generation} has {parks} parked keys and {letters} dead letters that "
            f"generation {old.generation} has not",
            code="switch",
            hint="look at them, unpark or redeliver them; with force the switch ignores them",
            parked=parks,
            dead_letters=letters,
        )
    return old


def _parked(tx: Transaction, row: ProjectionRow) -> set[str]:
    return {found[1] for found in tx.rows("parked_keys", (row.id, row.epoch))}


def _letters(tx: Transaction, row: ProjectionRow) -> set[tuple[str, int, int]]:
    return {tuple(found[:3]) for found in tx.rows("letters", (row.id, "", 0, 0, 2**62))}
