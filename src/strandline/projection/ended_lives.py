"""Removes what is left of ended lives. A purge leaves nothing, so parked keys and dead letters of the life go, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from strandline.points import reached
from strandline.projection.offset_store import DeadEvent, OffsetStore, ProjectionRow
from strandline.projection.offsets import KeyRow
from strandline.store.api import Store
from strandline.values.heads import EndedLife, State
from strandline.values.keys import key_partition

AT_ONCE: Final = 500


def forget_ended(offsets: OffsetStore, store: Store, row: ProjectionRow) -> int:
    """Remove parked rows and dead letters of lives that have ended in the store; return their number."""
    with offsets.database.read() as tx:
        parked = [KeyRow(*found) for found in tx.rows("parked_keys", (row.id, row.epoch))]
    letters = list(_letters(offsets, row))
    lives = {(each.key, each.life) for each in parked} | {(letter.key, letter.life) for letter in letters}
    ended = _ended(store, lives)
    if not ended:
        return 0
    reached("projection.life_over")
    gone = 0
    with offsets.database.write() as tx:
        for each in parked:
            if (each.key, each.life) in ended:
                gone += tx.execute("forget_parked", (row.id, row.epoch, each.slice, each.key, each.life))
        for letter in letters:
            if (letter.key, letter.life) in ended:
                gone += tx.execute("end_letter", (row.id, letter.key, letter.life, letter.seq_nr))
    return gone


def _letters(offsets: OffsetStore, row: ProjectionRow) -> Iterator[DeadEvent]:
    place: tuple[str, int, int] = ("", 0, 0)
    while found := offsets.letters(row.id, place, AT_ONCE):
        yield from found
        place = found[-1].key, found[-1].life, found[-1].seq_nr


def _ended(store: Store, lives: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
    """Return the lives that are over. A key that the store does not know has none."""
    by_partition = sorted((key_partition(key, store.settings.partitions), key, life) for key, life in lives)
    ended = set()
    for partition, some in groupby(by_partition, key=lambda each: each[0]):
        asked = list(some)
        for start in range(0, len(asked), AT_ONCE):
            page = asked[start : start + AT_ONCE]
            states = store.look(partition, {key for _, key, _ in page}).states
            ended |= {(key, life) for _, key, life in page if _is_over(states.get(key), life)}
    return ended


def _is_over(state: State, life: int) -> bool:
    return state is not None and state.life >= life + (not isinstance(state, EndedLife))
