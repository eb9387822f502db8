"""Import: events with append ids are recorded once each, however often and by however many writers at once.

A head remembers the last ids of its key alone, so an id by itself does not protect a writer that comes back after a
thousand events. The importer therefore says with each event which number it expects to be the last of its key, and
sends an event only from a state in which it knows of the key that this event is not there:

    unknown ── one event, expected 0 ──▶ accepted: the key was new, and all that is there is ours
       ▲              └─ refused ─▶ look: the ids that the head remembers, or if it may have forgotten some, those of
       │                              │   all events
       │                              ▼
       └── pushed out of memory ── known: so many events at once as a head remembers ids ── refused ─▶ look again

So two writers with the same events (a task that is tried again while its first attempt still runs) make one journal:
where one is behind, it is refused, looks, and leaves out what is there. No more go at once than a head remembers, so an
event that another writer was quicker with is found by its id.

Order: the events of a key are recorded in the order of `take`, as long as nobody else appends others to that key at the
same moment. A key for which that was seen gets its events one by one from then on.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, NamedTuple, cast

from strandline.errors import InvalidInput, SeqNrConflict, StrandlineError, invalid
from strandline.journal import checks, verdict
from strandline.journal.journal import Journal
from strandline.log.api import ActionDraft, Recorded
from strandline.log.committer import commits_of
from strandline.points import reached
from strandline.record import content_digest, encode_value
from strandline.settings import Settings
from strandline.values.actions import Append
from strandline.values.answers import Appended
from strandline.values.events import Event, RecordedEvent
from strandline.values.keys import Key
from strandline.values.payloads import BYTES, JSON

PATIENCE_S: Final = 60.0
"""How long an import goes on while not a single event is recorded."""
WAIT_S, WAIT_MAX_S = 0.05, 2.0
IDS_MAX: Final = 1_000_000
"""How many ids are kept in memory. A key that had to make room is looked up again."""


class ImportedEvent(NamedTuple):
    """An event to be recorded, by itself, under its own id."""

    key: Any
    event: Event
    append_id: Any
    headers: Any = None


class RefusedEvent(NamedTuple):
    """An event that cannot be recorded, and why."""

    key: str
    append_id: str
    code: str
    message: str


@dataclass
class ImportCounts:
    """The result of an import: how many events were recorded now, were there before, were refused."""

    recorded: int = 0
    duplicates: int = 0
    refused: int = 0


@dataclass(slots=True)
class ImportedKey:
    """A key whose events are known: its last number, and the digests of what its ids stand for."""

    last: int
    digests: dict[str, str] = field(default_factory=dict)
    contested: bool = False


class Importer:
    """Records events for one caller; not for several threads."""

    def __init__(self, journal: Journal, settings: Settings, partitions: int, ids_kept: int) -> None:
        """`ids_kept` is how many append ids a head remembers."""
        self._journal, self._settings, self._partitions, self._ids_kept = journal, settings, partitions, ids_kept
        self._known: OrderedDict[str, ImportedKey] = OrderedDict()
        self._ids = 0
        self.counts = ImportCounts()

    def take(self, events: Iterable[ImportedEvent]) -> list[RefusedEvent]:
        """Record these events. Return the events that cannot be recorded; the others are then durable.

        After a retryable error it tries again, until nothing has been recorded for `PATIENCE_S`: then the error is
        raised, and a further call with the same events records what is missing.
        """
        waiting: dict[str, deque[ImportedEvent]] = {}
        for event in events:
            waiting.setdefault(str(event.key), deque()).append(event)
        refused: list[RefusedEvent] = []
        progress_at, wait_s, left = time.monotonic(), WAIT_S, -1
        while waiting:
            failed = self._send(waiting, self._drafts(waiting, refused), refused)
            before, left = left, sum(map(len, waiting.values()))
            if left != before:
                progress_at, wait_s = time.monotonic(), WAIT_S
            if failed is None:
                continue
            if not failed.retryable or time.monotonic() - progress_at > PATIENCE_S:
                raise failed
            time.sleep(wait_s)
            wait_s = min(WAIT_MAX_S, 2 * wait_s)
        return refused

    # ------------------------------------------------------------ what goes next

    def _drafts(self, waiting: dict[str, deque[ImportedEvent]], refused: list[RefusedEvent]) -> list[ActionDraft]:
        """Return the next drafts of each key that waits. Events that are recorded already leave the queues."""
        drafts: list[ActionDraft] = []
        for key in list(waiting):
            drafts += self._next_of(key, waiting[key], refused)
            if not waiting[key]:
                del waiting[key]
        return drafts

    def _next_of(self, key: str, queue: deque[ImportedEvent], refused: list[RefusedEvent]) -> list[ActionDraft]:
        """Return the next drafts of a key, in order. Their events are then the first of the key's queue."""
        known = self._known.get(key)
        expected = 0 if known is None else known.last
        most = 1 if known is None or known.contested else self._ids_kept
        made: list[ActionDraft] = []
        kept: list[ImportedEvent] = []
        while queue and len(made) < most:
            one = queue[0]
            try:
                draft = self._draft(one, expected + len(made))
            except InvalidInput as error:
                refused.append(self._refused(one, error))
                queue.popleft()
                continue
            action = _append_of(draft)
            if known is not None and (digest := known.digests.get(action.append_id)) is not None:
                if digest != action.digest:
                    refused.append(self._refused(one, _reused(one)))
                else:
                    self.counts.duplicates += 1
                queue.popleft()
                continue
            made.append(draft)
            kept.append(queue.popleft())
        queue.extendleft(reversed(kept))
        return made

    def _draft(self, one: ImportedEvent, expected: int) -> ActionDraft:
        if one.append_id is None:
            raise invalid("append_id", "append_id", "missing", allowed="an id of its own for each event", got=None)
        return checks.append_draft(
            self._settings, self._partitions, one.key, [one.event],
            expected=expected, append_id=one.append_id, headers=one.headers,
        )[1]  # fmt: skip

    def _refused(self, one: ImportedEvent, error: InvalidInput) -> RefusedEvent:
        self.counts.refused += 1
        return RefusedEvent(str(one.key), str(one.append_id), error.code, error.message.replace("events[0].", ""))

    # ------------------------------------------------------------ what became of it

    def _send(
        self, waiting: dict[str, deque[ImportedEvent]], drafts: Sequence[ActionDraft], refused: list[RefusedEvent]
    ) -> StrandlineError | None:
        """Record drafts, and remove from the queues what is done. Return the error that stopped it, if one did."""
        for commit in commits_of(drafts, self._settings):
            keys = dict.fromkeys(str(draft.action.key) for draft in commit)
            try:
                outcomes = self._journal.record(commit)
                reached("import.recorded")
                failed = self._take_outcomes(waiting, commit, outcomes, refused)
            except StrandlineError as error:
                for key in keys:  # some of it may have been recorded
                    self._forget(key)
                return error
            for key in keys:
                if not waiting[key]:
                    del waiting[key]
            if failed is not None:
                return failed
        return None

    def _take_outcomes(
        self,
        waiting: dict[str, deque[ImportedEvent]],
        commit: Sequence[ActionDraft],
        outcomes: Sequence[Recorded],
        refused: list[RefusedEvent],
    ) -> StrandlineError | None:
        """Take the outcomes of a commit; return an error that is not the fault of one event."""
        left: dict[str, list[ImportedEvent]] = {}
        unsure: set[str] = set()
        failed: StrandlineError | None = None
        for draft, outcome in zip(commit, outcomes, strict=True):
            key = str(draft.action.key)
            one = waiting[key].popleft()
            try:
                answer = verdict.appended(Key.kept(key), draft, outcome, one.append_id)
            except SeqNrConflict:
                left.setdefault(key, []).append(one)
                unsure.add(key)
            except InvalidInput as error:
                refused.append(self._refused(one, error))
            except StrandlineError as error:
                left.setdefault(key, []).append(one)
                failed = error
            else:
                if not self._is_noted(key, _append_of(draft), answer):
                    unsure.add(key)
        for key, events in left.items():
            waiting[key].extendleft(reversed(events))
        for key in unsure:
            self._look_again(key, waiting[key])
        return failed

    def _is_noted(self, key: str, action: Append, answer: Appended) -> bool:
        """Note an event that is recorded now. Return False if the key may have other events that this importer does not
        know."""
        if answer.duplicate:
            self.counts.duplicates += 1
            return False
        self.counts.recorded += 1
        known = self._known.setdefault(key, ImportedKey(0))
        known.last = answer.last or 0
        known.digests[action.append_id] = action.digest
        self._known.move_to_end(key)
        self._ids += 1
        while self._ids > IDS_MAX and len(self._known) > 1:
            self._forget(next(iter(self._known)))
        return True

    def _forget(self, key: str) -> None:
        known = self._known.pop(key, None)
        if known is not None:
            self._ids -= len(known.digests)

    # ------------------------------------------------------------ what is there

    def _look_again(self, key: str, queue: Sequence[ImportedEvent]) -> None:
        """Look up the last number of a key, and the append ids that it has."""
        was_known = key in self._known
        self._forget(key)
        reached("import.looked")
        head = self._journal.head(key)
        known = ImportedKey(0 if head is None else head.seq_nr)
        if head is not None:
            if len(head.given) >= self._ids_kept:  # the head may have forgotten older ids
                known.digests.update(_digests(self._journal.read(key, to=head.seq_nr)))
            known.digests.update({each.append_id: each.digest for each in head.given})
        if was_known and queue:  # else it was another attempt at the same events
            known.contested = _id_of(queue[0]) not in known.digests
        self._known[key] = known
        self._ids += len(known.digests)


def _id_of(one: ImportedEvent) -> str:
    return checks.id_of("append_id", one.append_id, code="append_id")


def _append_of(draft: ActionDraft) -> Append:
    return cast(Append, draft.action)


def _reused(one: ImportedEvent) -> InvalidInput:
    return invalid(
        "append_id_reused", "append_id", f"used for other events of {one.key}",
        allowed="a new id, or the same events", got=one.append_id,
    )  # fmt: skip


def _digests(events: Iterator[RecordedEvent]) -> Iterator[tuple[str, str]]:
    """Yield the appends that these events came by: the id of each, and its digest."""
    for append_id, group in groupby(events, key=lambda event: event.append_id):
        listed = list(group)
        if any(event.damaged for event in listed):
            yield append_id.hex, ""  # an event of this id is there, but its content cannot be told
            continue
        headers = [(event.type, event.tags) for event in listed]
        contents = []
        for event in listed:
            metadata, payload, is_json = event.packed()
            contents.append((JSON if is_json else BYTES, payload, None if metadata is None else metadata.encode()))
        yield append_id.hex, content_digest(headers, listed[0].headers or None, encode_value(contents))
