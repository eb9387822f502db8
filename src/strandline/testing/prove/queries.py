"""Programs of queries: by tag and by slices, current and live, stopped and resumed, while the journal changes.

A live query shows each event once, in order (T46, P4). It is compared with the rows that the model's store has now:
what lies between two events that it shows must not be there (any more), and what it shows must have been there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from strandline.errors import MissingEvent
from strandline.query.feed import Pace, QueryClosed
from strandline.testing import limits
from strandline.testing.prove import journal
from strandline.testing.prove.journal import KEYS, TAGS, brief
from strandline.testing.prove.model import EVERYTHING, Event, partition_of, slice_rows, tag_rows
from strandline.testing.prove.program import Call, Difference, Program
from strandline.testing.prove.servers import Servers
from strandline.testing.prove.worlds import KAFKA_CASSANDRA

REFRESH_S: Final = 0.01
PAUSES_MAX: Final = 30
TYPES: Final = ("order", "user")
RANGES: Final = ((0, 1023), (0, 511), (512, 1023), (300, 700))


class Maker(journal.Maker):
    """Makes calls of a journal, and queries."""

    archives = False

    def how(self) -> dict[str, Any]:
        """Return the arguments of a query."""
        chance = self.chance
        by_tag = chance.random() < 0.5
        return {
            "tag": chance.randrange(len(TAGS)) if by_tag else None,
            "type": None if by_tag else chance.randrange(len(TYPES)),
            "range": None if by_tag else chance.choice((0, 0, 1, 2, 3)),
            "types": None if by_tag or chance.random() < 0.7 else chance.sample(range(3), chance.randint(1, 2)),
            "page": chance.choice((1, 2, 3, 5, None)),
            "memory": chance.choice((1, 2, 3, 4, None)),
        }

    def few(self, calls: list[Call]) -> list[Call]:
        """A call; or a query that has read a page when the journal changes under it."""
        chance = self.chance
        if chance.random() < 0.92:
            return super().few(calls)
        if chance.random() < 0.4:
            return self.together()
        if chance.random() < 0.3:
            return self.lost()
        key, slot = self.key(), chance.randrange(3)
        more = {**self.append(), "key": key, "expected": None, "first": None}
        changed: list[Call] = [["purge", {"key": key}], ["delete", {"key": key, "to": self.near(), "reset": False}]]
        return [
            ["append", {**more, "count": 5, "tags": [0, 1, 2]}], ["carry", {"partition": None, "limit": None}],
            ["live", {**self.how(), "slot": slot}], ["take", {"slot": slot, "count": chance.randint(1, 3)}],
            chance.choice(changed), ["append", {**more, "content": more["content"] + 1, "tags": [0, 1, 2]}],
            ["carry", {"partition": None, "limit": None}],
            *([self.meanwhile()] if chance.random() < 0.5 else []), ["take", {"slot": slot, "count": 9}],
        ]  # fmt: skip

    def looks(self) -> list[Call]:
        current = {"from_": None, "search": False}
        asked: Call = ["current", {**self.how(), **current}]
        by_tag: Call = ["current", {**self.how(), **current, "tag": 0, "type": None, "range": None, "types": None}]
        return [*super().looks(), asked, by_tag, *[["take", {"slot": slot, "count": 3}] for slot in range(3)]]

    def lost(self) -> list[Call]:
        """A key grows, and of what a query shows then one row is lost."""
        grown = [self.grown(self.key(), 3), self.grown(self.key(), 2)]
        for _, given in grown:
            given["tags"] = list(range(len(TAGS)))
        carried: Call = ["carry", {"partition": None, "limit": None}]
        return [*grown, carried, *[["lose", {**self.how(), "nth": self.chance.randrange(12)}] for _ in range(3)]]

    def together(self) -> list[Call]:
        """Events of several keys at one time, in several partitions; a query that is resumed between them."""
        slot, step = self.chance.randrange(3), self.chance.choice((61, 3600))
        grown: list[Call] = [
            ["append", {**self.append(), "key": key, "expected": None, "first": None, "id": None}]
            for key in range(self.keys)
        ]
        how = {**self.how(), "tag": None, "type": 0, "range": 0, "types": None}
        taken: list[Call] = [
            ["take", {"slot": slot, "count": self.chance.randint(1, 4)}],
            ["resume", {"slot": slot, "text": True, "event": True, "page": 2, "memory": None}],
        ]
        carried: Call = ["carry", {"partition": None, "limit": None}]
        return [carried, ["clock", {"seconds": step}], *grown, carried, ["live", {**how, "slot": slot}], *taken * 5]

    def call(self, calls: list[Call]) -> Call:
        chance = self.chance
        if chance.random() < 0.55:
            return super().call(calls)
        makers: list[tuple[float, Callable[[], Call]]] = [
            (3, lambda: ["current", {**self.how(), "from_": chance.choice((None, None, chance.randint(0, 30))),
                                     "search": chance.random() < 0.2}]),
            (1.5, lambda: ["lose", {**self.how(), "nth": chance.randrange(12)}]),
            (3, lambda: ["live", {**self.how(), "slot": chance.randrange(3)}]),
            (8, lambda: ["take", {"slot": chance.randrange(3), "count": chance.randint(1, 9)}]),
            (3, lambda: ["resume", {"slot": chance.randrange(3), "text": chance.random() < 0.5,
                                    "event": chance.random() < 0.4,
                                    "page": chance.choice((1, 2, 3, None)), "memory": chance.choice((1, 2, 3, None))}]),
        ]  # fmt: skip
        return chance.choices([make for _, make in makers], [weight for weight, _ in makers])[0]()


def make(seed: int, on: str) -> Program:
    """The program of a seed. One of five has the shipped settings and limits."""
    chance = random.Random(f"queries {on} {seed}")
    defaults = seed % 5 == 4
    settings = {"partitions": chance.choice((1, 2, 3))} if defaults else journal.settings_of(chance)
    maker = Maker(chance, chance.randint(2, len(KEYS)))
    calls: list[Call] = []
    for _ in range(chance.randint(10, 25 if on == KAFKA_CASSANDRA else 80)):
        calls += maker.few(calls)
    if defaults:
        calls = [
            [name, {**how, "memory": None, "page": None}] if "memory" in how else [name, how] for name, how in calls
        ]
    calls = journal.analyzed(calls, "queries", on, seed)
    return Program("queries", on, calls, settings, {} if defaults else limits.chosen(chance))


class NoMore(Pace):
    """A live query waits a few times, and then ends: nothing else happens while it waits."""

    def __init__(self) -> None:
        super().__init__()
        self._pauses = 0
        self._now_s = 0.0
        self.waits: Callable[[], None] = lambda: None
        """What happens while it waits."""

    def now_s(self) -> float:
        return self._now_s

    def pause(self, seconds: float) -> None:
        self._pauses += 1
        self._now_s += seconds
        self.waits()
        if self._pauses > PAUSES_MAX:
            raise QueryClosed
        super().pause(min(seconds, REFRESH_S))

    def rested(self) -> None:
        """Something was asked for anew."""
        self._pauses = 0


class Query:
    """A live query: how it was asked, where it is, and the last event that it showed."""

    def __init__(self, how: dict[str, Any], events: Any) -> None:
        self.how, self.events = how, events
        self.place: Any = None
        self.last: Any = None
        self.deaf = False
        """Whether the store was put back under it: what was purged since may be there again."""


class Run(journal.Run):
    """Runs a program with queries."""

    def __init__(self, program: Program, *, servers: Servers | None = None) -> None:
        super().__init__(program, servers=servers)
        self.queries: dict[int, Query] = {}

    # ------------------------------------------------------------ what there is

    def rows(self, how: dict[str, Any], pointers: list[int] | None = None) -> list[tuple[Any, Event, int]]:
        """Place, event and number of what a query should find in the store now, in order."""
        models = list(self.keys.values())
        at = self.pointers() if pointers is None else pointers
        if how["tag"] is not None:
            found = tag_rows(models, TAGS[how["tag"]], at, self.partitions)
            return [(row.event.tag_place, row.event, row.number) for row in found]
        return [
            (event.slice_place, event, 0) for event in slice_rows(models, at, self.partitions) if self.asks(how, event)
        ]

    def asks(self, how: dict[str, Any], event: Event) -> bool:
        """Whether a query by slices asks for an event."""
        lo, hi = RANGES[how["range"] or 0]
        type_ = TYPES[how["type"] or 0]
        chosen = how["types"]
        return (
            event.key.split("|")[0] == type_
            and lo <= partition_of(event.key, 1024) <= hi
            and (not chosen or event.type in {f"T{one}" for one in chosen})
        )

    def bound(self, how: dict[str, Any]) -> int:
        """The strandline of a query: T49, P9."""
        pointers = self.store.pointers()
        if how["tag"] is None:
            lo, hi = RANGES[how["range"] or 0]
            first, last = lo * self.partitions // 1024, hi * self.partitions // 1024
            pointers = pointers[first : last + 1]
        return min(int(pointer.timestamp) for pointer in pointers)

    def due(self, how: dict[str, Any], after: Any) -> list[tuple[Any, Event, int]]:
        """Return the events behind a place, up to the strandline."""
        bound = self.bound(how)
        rows = [row for row in self.rows(how) if row[0][0] <= bound and (after is None or row[0] > after)]
        return self.lasting(how, rows)

    def lasting(self, how: dict[str, Any], rows: list[tuple[Any, Event, int]]) -> list[tuple[Any, Event, int]]:
        """Return the rows that will still be there when the pointers of a store have come as far as its rows:
        the others may be hidden already."""
        if not self.torn:
            return rows
        left = {place for place, _, _ in self.rows(how, [EVERYTHING] * self.partitions)}
        return [row for row in rows if row[0] in left]

    def begin(self, how: dict[str, Any], **more: Any) -> Any:
        settings = {} if how["page"] is None else {"page_size": how["page"]}
        kind = "slice" if how["tag"] is None else "tag"
        if how["memory"] is not None and f"{kind}.keys_in_memory_max" in self.program.limits:
            settings["keys_in_memory_max"] = how["memory"]
        if how["tag"] is not None:
            return self.s.by_tag(TAGS[how["tag"]], **settings, **more)
        lo, hi = RANGES[how["range"] or 0]
        if how["types"]:
            more["filter"] = {"types": [f"T{one}" for one in how["types"]]}
        return self.s.by_slices(TYPES[how["type"] or 0], lo, hi, **settings, **more)

    # ------------------------------------------------------------ calls

    def do_current(self, from_: int | None, search: bool, **how: Any) -> None:
        if self.is_away:
            return
        if search:
            self.searched(how)
            return
        places = sorted(place for places in self.places.values() for _, place in places)
        start = places[from_ % len(places)] if from_ is not None and places else None
        bound = self.bound(how)
        wanted = [row for row in self.rows(how) if (start or 0) <= row[0][0] <= bound]
        with self.begin(how, **({} if start is None else {"from_": start})) as events:
            found = list(events)
        if self.torn or self.fired:
            shown = {(str(event.key), event.life, event.seq_nr) for event in found}
            there = self.rows(how)
            lasting = self.lasting(how, [row for row in wanted if row in there])
            wanted = [row for row in wanted if row in lasting or (row[1].key, row[1].life, row[1].seq_nr) in shown]
        self.compare(how, found, wanted)

    def searched(self, how: dict[str, Any]) -> None:
        """T54: without the strandline a current query shows what is in the store, up to the store's clock."""
        if self.torn or how["tag"] is None:
            return
        now = self.store.now_us()
        wanted = [row for row in self.rows(how) if row[0][0] <= now]
        if any(now - place[0] <= self.world.clock.blurred_us for place, _, _ in wanted):
            return  # whether the bound itself is shown is not said
        with self.begin(how, use_strandline=False, eventual_consistency_delay_s=0) as events:
            self.compare(how, list(events), wanted)

    def compare(self, how: dict[str, Any], found: list[Any], wanted: list[tuple[Any, Event, int]]) -> None:
        """A whole answer, event by event."""
        for event, (_, should, number) in zip(found, wanted, strict=False):
            self.compare_one(how, event, should, number)
        if len(found) != len(wanted):
            extra = [brief(self.shown(event)) for event in found[len(wanted) :]]
            lacks = [brief(should) for _, should, _ in wanted[len(found) :]]
            raise Difference(
                "query count",
                f"{_named(how)} shows {len(found)} events, not {len(wanted)}: extra {extra}, lacks {lacks}",
            )

    def compare_one(self, how: dict[str, Any], event: Any, should: Event, number: int) -> None:
        damaged = self.damaged if how["tag"] is None and self.world.transactions else set()
        found, wanted = self.shown(event), self.should(should, damaged)
        if found != wanted:
            raise Difference("query", f"{_named(how)} shows {brief(found)}, not {brief(wanted)}")
        if number and event.tag_seq_nr != number:
            raise Difference(
                "query number", f"{_named(how)} shows {brief(found)} as number {event.tag_seq_nr}, not {number}"
            )

    def do_lose(self, nth: int, **how: Any) -> None:
        """A row of a view is lost: a query by slices finds the event by key, one by tag stops at the hole (P18, T59).

        With few keys in memory neither could tell it from one that it has shown and forgotten.
        """
        if self.is_away or self.torn or self.damaged:
            return
        how = {**how, "memory": None}
        due = self.due({**how, "types": None}, None)
        if not due:
            return
        lost = due[(nth or 0) % len(due)]
        mine = [row for row in due if row[1].key == lost[1].key]
        at = mine.index(lost)
        behind = mine[at + 1] if at + 1 < len(mine) else None
        named: dict[str, Any] = {"key": lost[1].key, "life": lost[1].life, "seq_nr": lost[1].seq_nr}
        if how["tag"] is not None:
            named["tag"] = TAGS[how["tag"]]
        put_back = self.world.lose("slice_view" if how["tag"] is None else "tag_view", named)
        if put_back is None:
            return
        try:
            left = [row for row in due if row is not lost]
            if how["tag"] is not None and behind is not None:
                self.stops_at(how, left[: left.index(behind)], lost, mine[at - 1] if at else None)
            else:
                shown = [row for each in left for row in ((lost, each) if each is behind else (each,))]
                wanted = [row for row in shown if how["tag"] is not None or self.asks(how, row[1])]
                with self.begin(how) as events:
                    self.compare(how, list(events), wanted)
        finally:
            put_back()

    def stops_at(self, how: dict[str, Any], wanted: list[Any], lost: Any, last: Any) -> None:
        """A query by tag shows what lies before a hole, names the hole, and where to go on: T60, T61."""
        _, event, number = lost
        found: list[Any] = []
        try:
            with self.begin(how, gap_timeout_s=0) as events:
                found.extend(events)
        except MissingEvent as error:
            hole = error
        else:
            raise Difference("query hole", f"{_named(how)} shows {len(found)} events, and passes over number {number}")
        self.compare(how, found, wanted)
        known = hole.facts["last_known_offset"]
        said = hole.name, hole.facts["missing"], None if known is None else (known.timestamp, known.key, known.seq_nr)
        before = None if last is None else (last[1].timestamp, last[1].key, last[1].seq_nr)
        should = "MissingEvent.tag_hole", {event.key: (event.life, number, number, 1)}, before
        if said != should:
            raise Difference("query hole", f"{_named(how)} stops with {said}, not {should}")

    def do_live(self, slot: int, **how: Any) -> None:
        if self.is_away:
            return
        self.queries[slot] = Query(how, self.start(how))

    def start(self, how: dict[str, Any], **more: Any) -> Any:
        events = self.begin(how, live=True, refresh_interval_s=REFRESH_S, **more)
        events._pace = NoMore()
        return events

    def do_take(self, slot: int, count: int) -> None:
        """Take events as far as there are some; each is the next one that is due."""
        query = self.queries.get(slot)
        if query is None:
            return
        if self.is_away:  # it waits, and goes on when all is back (T78)
            query.events._pace.waits = self.world.faults.away.clear
            away = set(self.world.faults.away)
            self.world.faults.away.clear()
            due = self.due(query.how, query.place)
            self.world.faults.away.update(away)
            if not due:
                return
            query.events._pace.rested()
            event = next(query.events, None)
            self.world.faults.away.clear()
            if event is None:
                raise Difference("query waits", f"{_named(query.how)} waits behind {query.place} after an outage")
            self.shown_by(query, event, due)
        for _ in range(count):
            due = self.due(query.how, query.place)
            if not due:
                return
            query.events._pace.rested()
            event = next(query.events, None)
            now = self.due(query.how, query.place) if self.fired else due
            if event is None and now:
                waits = f"{_named(query.how)} waits behind {query.place}; due is {brief(now[0][1])}"
                raise Difference("query waits", waits)
            if event is None:  # what was due was removed meanwhile
                query.events = self.start(query.how, **self.behind(query))
                return
            due = [row for row in due if row in now]
            self.shown_by(query, event, due)

    def shown_by(self, query: Query, event: Any, due: list[tuple[Any, Event, int]]) -> None:
        """Check an event that a live query shows: it was in the store, and nothing that is there was passed over."""
        ever = {(e.key, e.life, e.seq_nr): e for model in self.keys.values() for e in _ever(model)}
        found = ever.get((str(event.key), event.life, event.seq_nr))
        if found is None:
            raise Difference(
                "query invents", f"{_named(query.how)} shows {brief(self.shown(event))}, which was never recorded"
            )
        place = found.slice_place if query.how["tag"] is None else found.tag_place
        if query.place is not None and place <= query.place:
            raise Difference(
                "query repeats", f"{_named(query.how)} shows {brief(self.shown(event))} behind {query.place}"
            )
        if due and due[0][0] < place:
            raise Difference(
                "query loses", f"{_named(query.how)} shows {brief(self.shown(event))}, passing over {brief(due[0][1])}"
            )
        number = next((number for at, _, number in due if at == place), 0)
        self.compare_one(query.how, event, found, number)
        query.place, query.last = place, event

    def do_resume(self, slot: int, text: bool, event: bool, page: int | None, memory: int | None) -> None:
        """Stop a query and go on with a new one, at its own offset or at that of its last event."""
        query = self.queries.get(slot)
        if query is None or self.is_away:
            return
        offset = query.last.offset if event and query.last is not None else query.events.resume_offset
        query.events.close()
        query.how = {**query.how, "page": page, "memory": memory}
        given = {} if offset is None else {"after": str(offset) if text else offset}
        if not self.torn:
            with self.begin(query.how, **given) as events:  # the rest, and nothing else
                self.compare(query.how, list(events), self.due(query.how, query.place))
        query.events = self.start(query.how, **given)

    # ------------------------------------------------------------ the world

    def restarted(self) -> None:
        """A new process: queries go on at the offset that was saved."""
        super().restarted()
        for query in self.queries.values():
            query.events = self.start(query.how, **self.behind(query))

    def behind(self, query: Query) -> dict[str, Any]:
        """Where to go on behind the last event that a query showed."""
        return {} if query.last is None else {"after": str(query.last.offset)}

    def do_put_back(self) -> None:
        super().do_put_back()
        if self.kept is not None:
            self.queries.clear()

    def do_damage(self, key: int, at: int) -> None:
        super().do_damage(key, at)
        self.queries.clear()

    def end(self) -> None:
        self.world.faults.away.clear()
        for slot in self.queries:
            self.do_take(slot, 10_000)
        super().end()
        for how in self.every_way():
            self.do_current(None, False, **how)
        for slot in self.queries:
            self.do_take(slot, 10_000)

    def every_way(self) -> list[dict[str, Any]]:
        """Each tag, and each entity type, with a small memory and pages."""
        base: dict[str, Any] = {"tag": None, "type": None, "range": 0, "types": None, "page": 2, "memory": 2}
        return [{**base, "tag": tag} for tag in range(len(TAGS))] + [{**base, "type": one} for one in range(len(TYPES))]


def _ever(model: Any) -> list[Event]:
    """Every event of a key that was ever recorded."""
    found: list[Event] = []
    for index in range(len(model.actions)):
        life = model.life(model.actions[index].offset)
        if model.actions[index].what == "append" and life:
            found += [event for event in life.all if event.offset == model.actions[index].offset]
    return found


def _named(how: dict[str, Any]) -> str:
    asked = f"by_tag({TAGS[how['tag']]!r}" if how["tag"] is not None else f"by_slices({TYPES[how['type'] or 0]!r}"
    rest = {key: value for key, value in how.items() if value is not None and key not in ("tag", "type")}
    return f"{asked}, {rest})"


def run(program: Program, *, servers: Servers | None = None) -> Any:
    """Run a program; how often each call was made. `Difference` where the product is not as the model."""
    with limits.small(program.limits):
        ran = Run(program, servers=servers)
        ran.run()
    return ran.done
