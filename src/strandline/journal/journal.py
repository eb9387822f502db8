"""The Journal: what a service records into and reads from.

Appends, deletes, purges and marks are actions: they go through the group commit into the log and are answered when they
are durable. Where the log does not fold by itself, the `judge` records them and finds out what became of them. Reads,
heads and snapshots join the log's unreplicated tail with the store. Appends need the log alone (where it does not fold:
plain ones), everything else needs both. A Journal may be used by any number of threads, never in a forked child.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from strandline import forks
from strandline.closed_at_end import ClosedAtEnd
from strandline.errors import (
    Conflict,
    InvalidInput,
    StrandlineError,
    Unavailable,
    closed,
    counted,
    invalid,
    used_after_fork,
)
from strandline.journal import checks, verdict
from strandline.journal.follow import JournalCursor
from strandline.journal.heads_cache import HeadsCache
from strandline.journal.judge import Judge
from strandline.journal.read import PLANS_MAX, JournalReader, journal_changed
from strandline.log.api import ActionDraft, KnownState, Log, Recorded, UnfoldedLog
from strandline.log.committer import Committer, commits_of, own_error, unchanged
from strandline.log.folding import HEAD_DAMAGED
from strandline.points import reached
from strandline.record import encode_header
from strandline.settings import Settings
from strandline.store.api import Store
from strandline.store.scans import entity_types_of, keys_of, last_snapshot, snapshots_of
from strandline.store.tables import SnapshotRow
from strandline.values.actions import Action, Delete, Mark, Purge
from strandline.values.answers import KEEP, Appended, Deleted, Keep, Marked, Purged, Recovery, Snapshot
from strandline.values.events import Event, RecordedEvent
from strandline.values.heads import SEQ_NR_MAX, Head
from strandline.values.keys import Key, partition_of
from strandline.values.payloads import BYTES, decode_json

WAIT_LEAST_S, WAIT_MOST_S = 0.001, 0.1
_logger = logging.getLogger(__name__)


class Journal(ClosedAtEnd):
    """The events of keys. Everything a caller gives is checked before anything is written."""

    def __init__(self, log: Log, store: Store, settings: Settings, clock: Callable[[], int]) -> None:
        self._log, self._store, self._settings, self._clock = log, store, settings, clock
        self._heads: HeadsCache | None = None
        self._judge: Judge | None = None
        if not log.exact:
            inexact = cast(UnfoldedLog, log)
            self._heads = HeadsCache(inexact, store, settings) if settings.heads_cache else None
            self._judge = Judge(inexact, store, settings, self._heads)
        self._committer = Committer(log, settings)
        self._reader = JournalReader(log, store, settings, self._heads)
        self._unbounded = replace(settings, append_events_max=sys.maxsize)
        self._generation = forks.generation
        self._closed = False

    @property
    def history_id(self) -> str:
        """The id that stays the same when another log takes over; a restored copy has another."""
        return self._store.settings.history_id

    # ------------------------------------------------------------ record

    def append(
        self,
        key: Key | str,
        events: Sequence[Event],
        *,
        expected: int | None = None,
        first: int | None = None,
        append_id: UUID | str | None = None,
        expire_after: timedelta | Keep | None = KEEP,
        headers: dict[str, str] | None = None,
        numbers: bool = True,
    ) -> Appended:
        """Record events as one, or not at all; the answer comes when they are durable.

        `expected`: only if the head's seq_nr is this (0: no journal yet), else `SeqNrConflict.expected`. `first`: the
        number of the first event, above all given so far. `append_id`: a UUID, or any text (an Idempotency-Key); the
        same append again gets the first answer, as long as it is one of the key's last `append_ids_kept` appends with
        an id (32, fixed at creation). A repeat that comes later is taken for a new append: give `expected`, too, which
        guards against any late repeat. `expire_after`: the journal is purged so long after its last append (None:
        never; left out: as before). `headers`: text to text, for the whole append. `numbers`: whether to wait for the
        numbers where the log does not give them itself.

            journal.append("order|42", [Event("Placed", {"total": 12})], expected=0)
        """
        known, draft = self._append_draft(key, events, expected, first, append_id, expire_after, headers)
        return verdict.appended(known, draft, self._committed(draft, numbers), append_id)

    def append_future(
        self,
        key: Key | str,
        events: Sequence[Event],
        *,
        expected: int | None = None,
        first: int | None = None,
        append_id: UUID | str | None = None,
        expire_after: timedelta | Keep | None = KEEP,
        headers: dict[str, str] | None = None,
        numbers: bool = True,
    ) -> Future[Appended]:
        """Begin an append, and do not wait. Bad input and a full queue are refused at once; the future raises all other
        errors. Appends of one thread to one key keep their order. An append that is under way cannot be cancelled.
        """
        known, draft = self._append_draft(key, events, expected, first, append_id, expire_after, headers)
        return self._sent(known, draft, numbers, append_id)

    def append_reserved(
        self,
        key: Key | str,
        events: list[Event],
        *,
        expected: int | None = None,
        append_id: Any = None,
        expire_after: timedelta | Keep | None = KEEP,
    ) -> verdict.Noted:
        """Append any number of events for a part of this system, to one of its reserved entity types."""
        self._check()
        known, draft = checks.append_draft(
            self._unbounded,
            self._log.partitions,
            key,
            events,
            expected=expected,
            append_id=append_id,
            expire_after=expire_after,
            reserved=True,
        )
        return verdict.noted(known, draft, self._committed(draft), append_id)

    def delete_reserved(self, key: Key | str, *, to: int, head: Head | None = None) -> None:
        """Remove events up to `to` of a key of a reserved type, if it has a journal. `head`: a head of the key's
        present life."""
        self._check()
        _, written, slice_ = checks.parse_key(key)
        head = head or self._reader.head(written)
        if head is not None and head.delete_to < min(to, head.seq_nr):
            self._committed(self._draft(Delete(written, min(to, head.seq_nr), head.life), slice_))

    def _sent(self, known: Key, draft: ActionDraft, numbers: bool, append_id: object) -> Future[Appended]:
        def outcome(recorded: Recorded) -> Appended:
            return verdict.appended(known, draft, self._whole(draft, recorded), append_id)

        if self._judge is None:
            return self._committer.submit(draft, outcome)
        return self._judge.submit(draft, outcome, numbers=numbers)

    def append_many(self, appends: Iterable[tuple[Any, ...] | list[Any]]) -> list[Appended | StrandlineError]:
        """Record many appends, of any keys, in few commits. Each succeeds or fails by itself.

        Each is (key, events) or (key, events, {options}), the options being those of `append`. The list that is
        returned has, in the same order, the answer of each, or the exception that `append` would have raised. Such an
        exception is an item of the list and not raised, so look at each item. Bad input in one append is raised, with
        its `index`, before anything is written. Where a commit fails, for example because the log is away, the appends
        after it are not tried: their errors have `applied="no"`.

            for answer in journal.append_many([("order|1", [placed]), ("order|2", [paid], {"expected": 3})]):
                if isinstance(answer, StrandlineError): ...   # that append failed, whatever became of the others
        """
        self._check()
        many = checks.append_drafts(self._settings, self._log.partitions, appends)
        answers: list[Appended | StrandlineError] = []
        failed: StrandlineError | None = None
        for drafts in commits_of([draft for _, draft, _, _ in many], self._settings):
            part = many[len(answers) : len(answers) + len(drafts)]
            if failed is None:
                outcomes = self._all_committed(drafts, [numbers for _, _, _, numbers in part])
            else:
                outcomes = [verdict.not_tried(failed) for _ in drafts]
            answers += [
                verdict.of_many(key, draft, append_id, outcome)
                for (key, draft, append_id, _), outcome in zip(part, outcomes, strict=True)
            ]
            if failed is None and all(map(_ends_all, outcomes)):
                failed = cast(StrandlineError, outcomes[0])
        return answers

    def _all_committed(self, drafts: Sequence[ActionDraft], numbers: list[bool]) -> list[Recorded | BaseException]:
        if self._judge is not None:
            return self._judge.append_all(drafts, numbers)
        try:
            answers = self._committer.append_all(drafts)
        except StrandlineError as error:
            return [own_error(error) for _ in drafts]
        if HEAD_DAMAGED not in answers:
            return [*answers]
        return [self._whole_or_error(*one) for one in zip(drafts, answers, strict=True)]

    def _append_draft(
        self,
        key: object,
        events: object,
        expected: object,
        first: object,
        append_id: object,
        expire_after: object,
        headers: object,
    ) -> tuple[Key, ActionDraft]:
        self._check()
        return checks.append_draft(
            self._settings,
            self._log.partitions,
            key,
            events,
            expected=expected,
            first=first,
            append_id=append_id,
            expire_after=expire_after,
            headers=headers,
        )

    def delete(self, key: Key | str, *, to: int, reset: bool = False) -> Deleted | None:
        """Remove existing events up to `to`; None if there is no journal.

        With `reset` an absent journal then stands at `to`: its next event is `to` + 1.
        """
        self._check()
        _, written, slice_ = checks.writable_key(key)
        to = checks.seq_nr(to, "to")
        action = Delete(written, to)
        if not reset:
            head = self._reader.head(written)
            if head is None:
                return None
            action = Delete(written, min(to, head.seq_nr), head.life)
        draft = self._draft(action, slice_)
        return verdict.deleted(draft, self._committed(draft))

    def purge(self, key: Key | str) -> Purged:
        """Remove the whole journal: events, head, snapshots. A second call changes nothing."""
        self._check()
        _, written, slice_ = checks.writable_key(key)
        draft = self._draft(Purge(written), slice_)
        return verdict.purged(draft, self._committed(draft))

    def mark(self, key: Key | str, *, id: str | None = None) -> Marked:  # noqa: A002 (the specification's name)
        """Write a Mark into the key's partition: a place to wait for. It changes nothing."""
        self._check()
        _, written, slice_ = checks.parse_key(key)
        named = checks.mark_id(id)
        draft = self._draft(Mark(written, named), slice_)
        return verdict.marked(named, draft, self._committed(draft, False))

    def record(self, drafts: Sequence[ActionDraft]) -> list[Recorded]:
        """Record drafts of other parts of this system, and return the outcome of each."""
        self._check()
        if self._judge is None:
            return [self._whole(*one) for one in zip(drafts, self._log.append(drafts), strict=True)]
        sent = [self._judge.submit(draft, unchanged) for draft in drafts]
        return [answer.result() for answer in sent]

    def _draft(self, action: Action, slice_: int) -> ActionDraft:
        return ActionDraft(partition_of(slice_, self._log.partitions), action, encode_header(action))

    def _committed(self, draft: ActionDraft, numbers: bool = True) -> Recorded:
        if self._judge is not None:
            return self._judge.append(draft, numbers=numbers)
        return self._whole(draft, self._committer.append(draft, self._settings.append_timeout_s))

    def _whole(self, draft: ActionDraft, recorded: Recorded) -> Recorded:
        """Return a draft's result. Where the log's head is damaged, record the draft with a head from store and
        tail."""
        if not recorded.head_damaged or draft.action.key is None:
            return recorded
        key = draft.action.key
        known = KnownState(self._reader.state(key))
        _logger.warning("the log's head of %s is damaged: it is made anew from the store and the tail", key)
        return self._committer.append(draft._replace(known=known), self._settings.append_timeout_s)

    def _whole_or_error(self, draft: ActionDraft, outcome: Recorded | BaseException) -> Recorded | BaseException:
        try:
            return self._whole(draft, outcome) if isinstance(outcome, Recorded) else outcome
        except StrandlineError as error:
            return error

    # ------------------------------------------------------------ read

    def read(
        self,
        key: Key | str,
        *,
        from_: int = 1,
        to: int | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> Iterator[RecordedEvent]:
        """Return the events of a key in order, `to` included; empty for an unknown, purged or wholly deleted one.

        `limit`: at most this many events. `backwards`: from the last to the first; so `read(key, backwards=True,
        limit=1)` gives the last event. With either of them, a read of a long journal fetches no more events than it
        returns.

        Arguments are checked at the call. What the read shows is decided when its first event is asked for: all events
        acknowledged by then, except those deleted by then. `ReadConflict.journal_changed` if the journal is deleted or
        purged under it: read again.
        """
        self._check()
        _, written, _ = checks.parse_key(key)
        first, last = checks.bounds(from_, to)
        most = SEQ_NR_MAX if limit is None else checks.limit(limit, SEQ_NR_MAX)
        if type(backwards) is not bool:
            raise invalid("setting", "backwards", "not a truth value", allowed="True or False", got=backwards)
        return self._reader.read(written, first, last, limit=most, backwards=backwards)

    def follower(self, key: Key | str) -> JournalCursor:
        """Return a cursor for parts of this system that read on in one journal again and again."""
        self._check()
        return JournalCursor(self._reader, checks.parse_key(key)[1])

    def head(self, key: Key | str) -> Head | None:
        """Return the head of a key, as a read would see it; None for a key without a journal: new, or purged.

        To append after what is there, in both cases: `expected=head.seq_nr if head else 0`.
        """
        self._check()
        return self._reader.head(checks.parse_key(key)[1])

    def entity_types(self) -> list[str]:
        """Return the entity types that the store holds."""
        self._check()
        return entity_types_of(self._store)

    def keys(self, entity_type: str, *, after: Key | str | None = None, limit: int = 1000) -> list[Key]:
        """Return the keys of an entity type that the store holds, by slice, then bytes, at most `limit`, after that
        key."""
        self._check()
        wanted = checks.entity_type(entity_type)
        last = None if after is None else checks.parse_key(after)
        if last is not None and last[0].entity_type != wanted:
            raise invalid(
                "offset_foreign", "after", "of another entity type", allowed=f"a key of {wanted}", got=last[1]
            )
        found = keys_of(self._store, wanted, after=None if last is None else last[1], limit=checks.limit(limit))
        return [Key.of(written) for written in found]

    def wait_replicated(
        self, place: Appended | Deleted | Purged | Marked, *, timeout_s: float | timedelta = 10
    ) -> None:
        """Return when the pipeline has carried that place into the store; else `Unavailable.not_replicated`."""
        self._check()
        seconds = checks.timeout_s(timeout_s)
        if not isinstance(place, (Appended, Deleted, Purged, Marked)):
            allowed = "what append, delete, purge or mark returned"
            raise invalid("offset_foreign", "place", "not a place", allowed=allowed, got=place)
        if place.offset < self._store.settings.log_starts:  # a place in an earlier log, all of which was carried
            return
        if place.partition >= self._log.partitions or place.offset > self._log.newest()[place.partition]:
            got = f"partition {place.partition}, offset {place.offset}"
            raise invalid("offset_foreign", "place", "not in this log", allowed="a place of this log", got=got)
        deadline = time.monotonic() + seconds
        pause_s = WAIT_LEAST_S
        while (pointer := self._store.pointers()[place.partition]).offset < place.offset:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise Unavailable(
                    f"partition {place.partition} is replicated up to offset {pointer.offset}, not {place.offset}",
                    code="not_replicated",
                    hint="see `strandline status`: is the pipeline running?",
                    partition=place.partition,
                    offset=place.offset,
                    pointer=pointer.offset,
                )
            time.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, WAIT_MOST_S)

    # ------------------------------------------------------------ snapshots

    def save_snapshot(self, key: Key | str, seq_nr: int, state: Any, *, life: int | None = None) -> None:
        """Save the state after the events up to `seq_nr`, directly in the store. A second one at the same seq_nr
        replaces it.

        `state` is a JSON value or bytes. `life`, if given, must be the journal's own: else `Conflict.life_ended`.
        """
        self._check()
        _, written, slice_ = checks.writable_key(key)
        form, data = checks.state_bytes(state, self._settings.event_bytes_max)
        if life is not None:
            checks.seq_nr(life, "life")
        if type(seq_nr) is not int or seq_nr < 1:
            raise _snapshot_seq_nr(seq_nr, "1 or more")
        head = self._reader.head(written)
        if life is not None and (head is None or head.life != life):
            raise Conflict(
                f"life {life} of {written} has ended",
                code="life_ended",
                hint="read the journal again and save a snapshot of what it says now",
                key=written,
                life=life,
            )
        if head is None or seq_nr > head.seq_nr:
            raise _snapshot_seq_nr(seq_nr, "a journal" if head is None else f"1..{head.seq_nr}")
        row = SnapshotRow(written, head.life, seq_nr, self._clock(), form, data)
        self._store.save(row, partition_of(slice_, self._log.partitions))

    def load_snapshot(self, key: Key | str, *, to: int | None = None) -> Snapshot | None:
        """Return the newest snapshot of the key's life, up to `to`; None if there is none."""
        self._check()
        _, written, _ = checks.parse_key(key)
        most = SEQ_NR_MAX if to is None else checks.seq_nr(to, "to")
        head = self._reader.head(written)
        return None if head is None else self._loaded(written, head.life, 1, most)

    def snapshots(self, key: Key | str) -> list[Snapshot]:
        """Return all snapshots of the key's life by seq_nr, without their states."""
        self._check()
        known, written, _ = checks.parse_key(key)
        head = self._reader.head(written)
        if head is None:
            return []
        rows = snapshots_of(self._store, written, head.life)
        return [Snapshot(known, head.life, seq_nr, timestamp, None) for seq_nr, timestamp, _ in rows]

    def delete_snapshots(self, key: Key | str, *, to: int | None = None) -> int:
        """Remove the snapshots of the key's life up to `to`; return how many were removed."""
        self._check()
        _, written, _ = checks.writable_key(key)
        most = SEQ_NR_MAX if to is None else checks.seq_nr(to, "to")
        head = self._reader.head(written)
        return 0 if head is None else self._store.remove(written, head.life, to=most)

    def recover(self, key: Key | str) -> Recovery:
        """Return the newest snapshot that no delete has passed, and the events after it, both as of one moment.

            state = recovery.snapshot.state if recovery.snapshot else {}
            for event in recovery.events: ...

        The events may be asked for later. `ReadConflict.journal_changed` if the journal was deleted or purged under
        them: recover again.
        """
        self._check()
        _, written, _ = checks.parse_key(key)
        none_in: tuple[int, int] | None = None
        for _ in range(PLANS_MAX):
            plan = self._reader.plan(written)
            head = plan.head
            if head is None:
                return Recovery(None, iter(()))
            # Snapshots are not in the log. After this plan was made, a snapshot above the plan's end may have been
            # saved, the events up to it deleted, and older snapshots dropped: then a new plan is needed. So it is if no
            # snapshot is found: deleted events may have been in one that was dropped for a newer one.
            moment = head.life, head.delete_to
            snapshot = self._loaded(written, head.life, max(1, head.delete_to), SEQ_NR_MAX)
            if snapshot is not None and snapshot.seq_nr <= head.seq_nr:
                return Recovery(snapshot, self._reader.events_after(plan, snapshot.seq_nr))
            if snapshot is None and (not head.delete_to or moment == none_in):
                if head.delete_to:
                    reached("recover.no_snapshot_since_the_delete")
                return Recovery(None, self._reader.events_after(plan, head.delete_to))
            reached("recover.planned_again")
            none_in = moment if snapshot is None else None
        raise journal_changed(written)

    def _loaded(self, written: str, life: int, from_: int, to: int) -> Snapshot | None:
        row = last_snapshot(self._store, written, life, from_=from_, to=to)
        if row is None:
            return None
        state = row.state if row.form == BYTES else decode_json(row.state or b"null")
        return Snapshot(Key.of(row.key), row.life, row.seq_nr, row.timestamp, state)

    # ------------------------------------------------------------ end

    def close(self) -> None:
        """Finish what is queued, then refuse every call. A second call does nothing; log and store stay open."""
        if not self._closed and forks.generation == self._generation:
            self._closed = True
            try:
                self._committer.close()
            finally:  # everything is closed even if one close is interrupted
                if self._judge is not None:
                    self._judge.close()
                if self._heads is not None:
                    self._heads.close()

    def __repr__(self) -> str:
        log, store = type(self._log).__name__, type(self._store).__name__
        partitions = counted(self._log.partitions, "partition")
        return f"<Journal {log} of {partitions}, {store}{', closed' if self._closed else ''}>"

    def _check(self) -> None:
        if forks.generation != self._generation:
            raise used_after_fork("this Journal")
        if self._closed:
            raise closed("this Journal")


def _snapshot_seq_nr(seq_nr: object, allowed: str) -> InvalidInput:
    return invalid("snapshot_seq_nr", "seq_nr", "not a number of this journal", allowed=allowed, got=seq_nr)


def _ends_all(outcome: object) -> bool:
    """Return whether the outcome of one append says that the next one need not be tried."""
    return isinstance(outcome, Unavailable) or (isinstance(outcome, InvalidInput) and outcome.code == "closed")
