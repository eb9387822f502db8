"""The checker: what a journal shows against what the ledgers say. It shares nothing with the code that it checks.

For each key, from the ledgers alone: the events that must show with their numbers, those that may (a killed writer got
no answer), and that nothing else may. Findings have one of these kinds:

    lost        acknowledged, not deleted, and not there
    doubled     there twice
    reordered   not in the order in which it was recorded, or at another's number
    ghost       deleted, purged, refused or never recorded, and there
    changed     not what was recorded
    numbers     the answers of the journal contradict each other, or leave a hole
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from strandline.testing.shop.ledger import Entry
from strandline.testing.shop.orders import APPEND, DELETE, PURGE


class ShownEvent(NamedTuple):
    """An event that a journal shows."""

    seq_nr: int
    type: str
    payload: Any
    life: int = 1
    from_tail: bool = False


class Finding(NamedTuple):
    """Something that is wrong."""

    kind: str
    key: str
    what: str


@dataclass(slots=True)
class Report:
    """The counts of a check, and its findings."""

    keys: int = 0
    empty_keys: int = 0
    """Purged or wholly deleted, and rightly without an event."""
    events: int = 0
    from_tail: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.findings


class Owner(NamedTuple):
    """Whose a number is: the event that was acknowledged with it."""

    type: str
    payload: Any
    entry: Entry
    asked: int
    """When it was first asked for: an append that is made again may have been recorded the first time."""


@dataclass(slots=True)
class Claims:
    """The entries of the ledgers on the present life of one key."""

    key: str
    owners: dict[int, Owner] = field(default_factory=dict)
    possible: list[Entry] = field(default_factory=list)
    """Appends that nobody answered: each is there whole, or not at all."""
    delete_to: int = 0
    asked: dict[str, int] = field(default_factory=dict)
    """When the first append with this id was made."""
    ended_stamps: set[str] = field(default_factory=set)
    """Of lives that were purged."""
    findings: list[Finding] = field(default_factory=list)

    def find(self, kind: str, what: str) -> None:
        self.findings.append(Finding(kind, self.key, what))


def check(
    entries: Mapping[str, Sequence[Entry]],
    look: Callable[[str], Iterable[ShownEvent]],
    keys: Iterable[str] | None = None,
) -> Report:
    """Check keys, all where none are given, against what `look` shows of them."""
    report = Report()
    for key in entries if keys is None else keys:
        seen = list(look(key))
        report.keys += 1
        report.empty_keys += not seen
        report.events += len(seen)
        report.from_tail += sum(event.from_tail for event in seen)
        report.findings += check_key(key, entries[key], seen)
    return report


def check_key(key: str, entries: Sequence[Entry], seen: Sequence[ShownEvent]) -> list[Finding]:
    """Return the findings on the events that a key shows. `entries` are its calls, the first one first."""
    claims = claims_of(key, entries)
    _check_shape(claims, seen)
    shown = {event.seq_nr: event for event in seen}
    possible = _possible_numbers(claims, shown)
    for event in seen:
        _check_event(claims, event, possible)
    for number, owner in claims.owners.items():
        if number > claims.delete_to and number not in shown:
            claims.find("lost", f"{number} {owner.type} was acknowledged and does not show")
    last = max([*claims.owners, *possible, 0])
    unsure = bool(claims.possible)
    for number in range(1, last + 1):
        if number not in claims.owners and number not in possible and not (unsure and number <= claims.delete_to):
            claims.find("numbers", f"{number} is nobody's, and {last} was given")
    return claims.findings


def claims_of(key: str, entries: Sequence[Entry]) -> Claims:
    """Return the entries of the ledgers on a key's present life."""
    claims = Claims(key)
    settled = {entry.append_id for entry in entries if entry.accepted and entry.append_id}
    for entry in entries:
        if entry.append_id is not None:
            claims.asked.setdefault(entry.append_id, entry.started)
        if entry.do != APPEND and entry.unknown:
            continue  # whoever got no answer did it again
        if entry.do == PURGE:
            claims.ended_stamps |= {owner.payload["stamp"] for owner in claims.owners.values()}
            claims.ended_stamps |= {payload["stamp"] for open_ in claims.possible for _, payload in open_.events}
            claims.owners, claims.possible, claims.delete_to = {}, [], 0
        elif entry.do == DELETE:
            _take_delete(claims, entry)
        elif entry.do == APPEND and entry.accepted:
            _take_append(claims, entry)
        elif entry.do == APPEND and entry.unknown and entry.append_id not in settled:
            claims.possible.append(entry)
    _check_order(claims)
    return claims


def is_alive(claims: Claims) -> bool | None:
    """Whether a key has a journal, be it an empty one; None where only an unanswered append would know."""
    return True if claims.owners else None if claims.possible else False


def _take_append(claims: Claims, entry: Entry) -> None:
    answer = entry.answer or {}
    if answer["last"] - answer["first"] + 1 != len(entry.events):
        claims.find("numbers", f"{len(entry.events)} events were numbered {answer['first']}..{answer['last']}")
    if entry.expected is not None and not answer["duplicate"] and answer["first"] != entry.expected + 1:
        claims.find("numbers", f"an append that expected {entry.expected} was given {answer['first']}")
    asked = claims.asked[entry.append_id] if entry.duplicate and entry.append_id is not None else entry.started
    for number, (type_, payload) in enumerate(entry.events, answer["first"]):
        before = claims.owners.get(number)
        if before is None:
            claims.owners[number] = Owner(type_, payload, entry, asked)
        elif entry.append_id is None or before.entry.append_id != entry.append_id:
            claims.find("numbers", f"{number} was given to two appends")


def _take_delete(claims: Claims, entry: Entry) -> None:
    told = (entry.answer or {}).get("delete_to")
    most = max(claims.owners, default=0)
    meant = max(claims.delete_to, min(entry.to, most))
    if not claims.possible and told != (meant if claims.owners else None):
        claims.find("numbers", f"a delete up to {entry.to} of {most} events was answered with {told}")
    claims.delete_to = max(claims.delete_to, told or 0)


def _check_order(claims: Claims) -> None:
    """Check that a call that was answered before another was made has the lower number."""
    latest_start = 0
    for number, owner in sorted(claims.owners.items()):
        if owner.entry.ended is not None and owner.entry.ended < latest_start:
            claims.find("reordered", f"{number} {owner.type} was answered before an earlier number was asked for")
        latest_start = max(latest_start, owner.asked)


def _check_shape(claims: Claims, seen: Sequence[ShownEvent]) -> None:
    for one, next_ in pairwise(seen):
        if next_.seq_nr == one.seq_nr:
            claims.find("doubled", f"{one.seq_nr} shows twice")
        elif next_.seq_nr < one.seq_nr:
            claims.find("reordered", f"{next_.seq_nr} shows after {one.seq_nr}")
    stamps = [_stamp(event.payload) for event in seen]
    for stamp in sorted({stamp for stamp in stamps if stamp and stamps.count(stamp) > 1}) if _repeats(stamps) else ():
        claims.find("doubled", f"{stamp} shows {stamps.count(stamp)} times")
    if len({event.life for event in seen}) > 1:
        claims.find("ghost", f"lives {sorted({event.life for event in seen})} show at once")


def _check_event(claims: Claims, event: ShownEvent, possible: Mapping[int, Entry]) -> None:
    if event.seq_nr <= claims.delete_to:
        claims.find("ghost", f"{event.seq_nr} {event.type} was deleted and shows")
        return
    owner = claims.owners.get(event.seq_nr)
    if owner is not None and (event.type, event.payload) == (owner.type, owner.payload):
        return
    if event.seq_nr in possible and owner is None:
        return
    stamp = _stamp(event.payload)
    at = next((number for number, other in claims.owners.items() if other.payload["stamp"] == stamp), None)
    if at is not None and at != event.seq_nr:
        claims.find("reordered", f"{event.type} was recorded as {at} and shows as {event.seq_nr}")
    elif at is not None:
        claims.find("changed", f"{event.seq_nr} {event.type} shows {event.payload}")
    elif stamp in claims.ended_stamps:
        claims.find("ghost", f"{event.seq_nr} {event.type} was purged and shows")
    else:
        claims.find("ghost", f"{event.seq_nr} {event.type} shows and was never acknowledged")


def _possible_numbers(claims: Claims, shown: Mapping[int, ShownEvent]) -> dict[int, Entry]:
    """The numbers of unanswered appends that show as a whole, without a hole; deleted events need not."""
    found: dict[int, Entry] = {}
    for entry in claims.possible:
        stamps = [payload["stamp"] for _, payload in entry.events]
        at = {_stamp(event.payload): number for number, event in shown.items()}
        first = next((at[stamp] - n for n, stamp in enumerate(stamps) if stamp in at), None)
        if first is None:
            continue
        numbers = range(first, first + len(stamps))
        whole = all(
            number <= claims.delete_to or (number in shown and (shown[number].type, shown[number].payload) == made)
            for number, made in zip(numbers, entry.events, strict=True)
        )
        if whole:
            found.update(dict.fromkeys(numbers, entry))
    return found


def _repeats(stamps: Sequence[str | None]) -> bool:
    return len(set(stamps)) < len(stamps)


def _stamp(payload: Any) -> str | None:
    return payload.get("stamp") if isinstance(payload, dict) else None
