"""What operators ask for in programs of projections, and what there is to hand over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from orjson import loads

from strandline.errors import Conflict, InvalidInput, LeaseHeld, NotFound, Unavailable
from strandline.projection.offset_store import READY, SWITCHING
from strandline.testing.prove.journal import TAGS
from strandline.testing.prove.model import Event, partition_of, slice_rows, tag_rows
from strandline.testing.prove.projection_handler import Effect
from strandline.testing.prove.projection_model import Due, Place, Shown
from strandline.testing.prove.projection_world import GENERATIONS, HostedRun
from strandline.values.keys import SLICES


class OperatedRun(HostedRun):
    """Hosts, and operators beside them."""

    # ------------------------------------------------------------ operators

    def ask(self, call: Callable[[], Any]) -> Any:
        """Return what an operator's call gives; None if it cannot be done now."""
        try:
            return call()
        except (Unavailable, LeaseHeld, Conflict, NotFound):
            return None
        except InvalidInput as error:
            if error.code not in ("seq_nr_range", "setting", "generation_serving", "slice_range", "time_range"):
                raise
            return None

    @property
    def calls(self) -> Any:
        return self.operator.projections

    def do_pause(self) -> None:
        self.ask(lambda: self.calls.pause(self.name, timeout_s=0))

    def do_resume(self) -> None:
        self.ask(lambda: self.calls.resume(self.name))

    def do_rescale(self, n: int) -> None:
        self.ask(lambda: self.calls.rescale(self.name, min(max(1, n or 1), SLICES), timeout_s=0))

    def do_reset(self) -> None:
        def reset() -> None:
            self.calls.reset(self.name)
            self.begun_at = self.tables.serving(self.name).start
            self.count()

        self.ask(reset)

    def do_set_offset(self, nth: int) -> None:
        times = sorted(at for places in self.places.values() for _, at in places)

        def set_offset() -> None:
            self.calls.set_offset(self.name, times[(nth or 0) % len(times)])
            self.begun_at = times[(nth or 0) % len(times)]
            self.count()

        if times:
            self.ask(set_offset)

    def do_rename(self) -> None:
        new = f"totals-{self.renamed + 1}"

        def rename() -> bool:
            self.calls.rename(self.name, new)
            return True

        if self.ask(rename):
            self.name, self.renamed = new, self.renamed + 1
            for host in list(self.hosts.values()):
                self.stepping(host, host.look)  # it ends: its name is gone

    def do_drop(self, generation: int | None) -> None:
        self.ask(lambda: self.calls.drop(self.name, generation=generation))
        for host in list(self.hosts.values()):
            self.stepping(host, host.look)

    def do_skip(self, key: int, to: int) -> None:
        """P79. Which life the store has is for the product to find out."""
        name, ever = self.model(key).key, self.ever()
        mine = [place for place in ever if place[0] == name]
        if not mine:
            return
        number = max(1, max(ever[place].number for place in mine if place[1] == mine[-1][1]) + (to or 0))

        def skip() -> None:
            self.calls.skip(self.name, name, number)
            for kept in self.generations.values():
                for place in mine:
                    if ever[place].number <= number:
                        kept.book.skipped.add(place)

        self.ask(skip)

    def do_unpark(self, nth: int) -> None:
        parked = self.ask(lambda: self.calls.parked(self.name))
        if parked:
            self.ask(lambda: self.calls.unpark(self.name, parked[(nth or 0) % len(parked)]))

    def do_redeliver(self, nth: int) -> None:
        self.lettered(nth, lambda letter: self.calls.redeliver(self.name, letter.key, letter.seq_nr, life=letter.life))

    def do_discard(self, nth: int) -> None:
        def discard(letter: Any) -> None:
            self.calls.discard(self.name, letter.key, letter.seq_nr, life=letter.life)
            self.generations[self.tables.serving(self.name).id].book.discarded.add(
                self.place_of(letter.key, letter.life, letter.seq_nr)
            )

        self.lettered(nth, discard)

    def lettered(self, nth: int, call: Callable[[Any], Any]) -> None:
        letters = self.ask(lambda: self.calls.dead_letters(self.name))
        if letters:
            self.ask(lambda: call(letters[(nth or 0) % len(letters)]))

    def do_rebuild(self, ranges: int | None) -> None:
        """P84: a generation beside the one that serves, begun as a rebuild on Spark begins it."""
        if self.by_tag or self.given["start"] != "beginning":
            return

        def begin() -> None:
            store = self.operator.open_offsets().store
            row = self.tables.serving(self.name)
            if row.generation < GENERATIONS:
                settings = self.s.store.settings
                store.begin_generation(
                    self.name, row.generation + 1, row.source, start=row.start, count=ranges or settings.partitions,
                    history_id=settings.history_id, revisions=[one.revision for one in self.s.store.pointers()],
                )  # fmt: skip

        self.ask(begin)

    def do_switch(self, force: bool) -> None:
        """P88."""
        for row in self.tables.projections():
            if row.state in (READY, SWITCHING):
                self.ask(lambda: self.calls.switch(self.name, row.generation, force=bool(force), timeout_s=0))  # noqa: B023
                return

    # ------------------------------------------------------------ what there is

    def done_so_far(self) -> list[Effect]:
        """All that handlers did."""
        return self.tables.effects(self.upsets) if self.exactly_once else self.effects

    def count(self) -> None:
        """Note what was done so far: a generation that begins anew begins behind it."""
        self.counted = len(self.done_so_far()), len(self.failures)

    def ever(self) -> dict[Place, Due]:
        """All events of the source that were ever recorded."""
        found: dict[Place, Due] = {}
        for model in self.keys.values():
            numbers: Counter[int] = Counter()
            for event in events_ever(model):
                if self.by_tag and TAGS[0] not in event.tags:
                    continue
                if not self.by_tag and event.key.split("|")[0] != "order":
                    continue
                numbers[event.life] += 1
                number = numbers[event.life] if self.by_tag else event.seq_nr
                place = event.key, event.life, event.seq_nr
                order = event.tag_place if self.by_tag else event.slice_place
                passes = self.given["source"] != "types" or event.type in ("T0", "T1")
                slice_ = partition_of(event.key, SLICES)
                found[place] = Due(place, number, event.timestamp, order, str(event.payload), slice_, passes)
        return found

    def there(self) -> set[Place]:
        """Return the places of the source's events that the store has now."""
        models = list(self.keys.values())
        if self.by_tag:
            found = [row.event for row in tag_rows(models, TAGS[0], self.pointers(), self.partitions)]
        else:
            found = [
                one for one in slice_rows(models, self.pointers(), self.partitions) if one.key.startswith("order|")
            ]
        return {(event.key, event.life, event.seq_nr) for event in found}

    def place_of(self, key: str, life: int, number: int) -> Place:
        """The event that a source counts as this number."""
        return next(
            (place for place, due in self.ever().items() if (*place[:2], due.number) == (key, life, number)),
            (key, life, -number),
        )

    def look_at(self, row: Any) -> Shown:
        """Return a generation as the product shows it."""
        places = {(*place[:2], due.number): place for place, due in self.ever().items()}

        def seq_nr(key: str, life: int, number: int) -> Place:
            return places.get((key, life, number), (key, life, number if not self.by_tag else -number))

        letters = {seq_nr(*letter[:3]): letter.reason for letter in self.tables.letters(row)}
        parked = {(one.key, one.life): seq_nr(one.key, one.life, one.seq_nr)[2] for one in self.tables.parked(row)}
        failed: dict[tuple[int, int], Place | None] = {}
        for found in self.tables.ranges(row):
            if found.failed is not None:
                said = loads(found.failed)
                failed[found.lo, found.hi] = (
                    seq_nr(said["key"], said["life"], said["seq_nr"]) if "key" in said else None
                )
        return Shown(letters, {whose: max(0, number) for whose, number in parked.items()}, failed)


def events_ever(model: Any) -> list[Event]:
    """Every event of a key that was ever recorded, in order."""
    found: list[Event] = []
    for action in model.actions:
        if action.what == "append":
            life = model.life(action.offset)
            found += [event for event in life.all if event.offset == action.offset]
    return found
