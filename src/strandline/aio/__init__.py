"""Strandline for asyncio: the same calls, to be awaited, and `async for` where the plain calls iterate.

    async with aio.connect("sqlite:orders") as s:
        await s.journal.append("order|42", [Event("Placed", {"total": 99})], expected=0)
        async for event in s.journal.read("order|42"): ...

        mails = await s.work(WorkDeclaration("mails", key={"order": "int"}, data={"to": "text"}))
        await mails.add({"order": 42}, {"to": "ann"})
        await aio.Worker(s, {"mails": send}).run()     # until it is stopped or cancelled; `send` may be a coroutine

Each call is the plain one. An append awaits the plain append's future (`Journal.append_future`) and holds no thread. A
call that waits or runs until it is stopped has a thread of its own, and so has each open stream; every other call runs
in one of `threads` threads. A stream reads on while the loop is busy, up to `AHEAD` events. Arguments, answers and
errors are those of the classes of the same names in `strandline`; handlers of projections are plain functions.

A task that stops waiting (cancelled, or timed out) does not undo a call that is under way: an append may be recorded
all the same. Send it again with the same `append_id`, and it is stored once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self, Unpack, cast

from strandline.aio.calls import (
    AHEAD,
    Awaited,
    Stream,
    called,
    in_a_thread,
    plain_handler,
    run_of,
    sent,
    streamed,
    waited,
)
from strandline.connect import Strandline as PlainStrandline
from strandline.connect import connect as plain_connect
from strandline.errors import InvalidInput
from strandline.group.definition import Group
from strandline.group.groups import Groups as PlainGroups
from strandline.group.outcome import Outcome
from strandline.group.processor import Processor as PlainProcessor
from strandline.journal.journal import Journal as PlainJournal
from strandline.projection.definition import Projection
from strandline.projection.host import Host as PlainHost
from strandline.projection.management import Projections as PlainProjections
from strandline.query.slice_queries import GivenSliceQuery
from strandline.query.tagged_event import TaggedEvent
from strandline.query.tags import GivenTagQuery
from strandline.settings import GivenSettings
from strandline.values.events import RecordedEvent
from strandline.work.claims import Claim as PlainClaim
from strandline.work.claims import Cursor as PlainCursor
from strandline.work.declaration import WorkDeclaration, WorkSettings
from strandline.work.entries import Entry
from strandline.work.journal import WorkJournal as PlainWorkJournal
from strandline.work.worker import Worker as PlainWorker

__all__ = [
    "AHEAD", "Batch", "Claim", "Cursor", "Groups", "Handle", "Host", "Journal", "Processor", "Projections",
    "Strandline", "Stream", "WorkJournal", "Worker", "connect",
]  # fmt: skip

THREADS: Final = 8


# ---------------------------------------------------------------- journal and queries


class Journal(Awaited):
    """`strandline.Journal`, to await."""

    append = sent(PlainJournal.append_future)
    append_many = called(PlainJournal.append_many)
    read = streamed(PlainJournal.read)
    head = called(PlainJournal.head)
    delete = called(PlainJournal.delete)
    purge = called(PlainJournal.purge)
    mark = called(PlainJournal.mark)
    wait_replicated = waited(PlainJournal.wait_replicated)
    entity_types = called(PlainJournal.entity_types)
    keys = called(PlainJournal.keys)
    save_snapshot = called(PlainJournal.save_snapshot)
    load_snapshot = called(PlainJournal.load_snapshot)
    snapshots = called(PlainJournal.snapshots)
    delete_snapshots = called(PlainJournal.delete_snapshots)
    recover = called(PlainJournal.recover)


# ---------------------------------------------------------------- work


class Claim(Awaited):
    """`strandline.work`'s claim, to await: `entry`, `fence`, `append_id`, `is_lost`."""

    heartbeat = called(PlainClaim.heartbeat)
    done = called(PlainClaim.done)
    fail = called(PlainClaim.fail)
    release = called(PlainClaim.release)

    @property
    def entry(self) -> Entry:
        return cast(PlainClaim, self._plain).entry

    @property
    def fence(self) -> int:
        return cast(PlainClaim, self._plain).fence

    @property
    def append_id(self) -> str:
        return cast(PlainClaim, self._plain).append_id

    @property
    def is_lost(self) -> bool:
        return cast(PlainClaim, self._plain).is_lost


class Batch(NamedTuple):
    """The claims that one call handed out, as `strandline.work.claims.Batch`."""

    claims: list[Claim]
    next_date: int | None
    lost: list[Claim]
    paused: str | None


class Cursor(Awaited):
    """Claims entries under an owner's name. Only one task at a time may use it."""

    _claim = called(PlainCursor.claim)

    async def claim(self, limit: int = 1, *, done: Sequence[Claim] = ()) -> Batch:
        """Claim the most urgent due entries, and end the claims in `done` with the same transaction."""
        batch = await self._claim(limit, done=[claim._plain for claim in done])
        ended = {id(claim._plain): claim for claim in done}
        claims = [Claim(claim, self._threads) for claim in batch.claims]
        return Batch(claims, batch.next_date, [ended[id(claim)] for claim in batch.lost], batch.paused)


class WorkJournal(Awaited):
    """`strandline.WorkJournal`, to await."""

    add = called(PlainWorkJournal.add)
    add_many = called(PlainWorkJournal.add_many)
    get = called(PlainWorkJournal.get)
    entries = called(PlainWorkJournal.entries)
    counts = called(PlainWorkJournal.counts)
    tables = called(PlainWorkJournal.tables)
    wait = waited(PlainWorkJournal.wait)
    dead = called(PlainWorkJournal.dead)
    alerts = called(PlainWorkJournal.alerts)
    requeue = called(PlainWorkJournal.requeue)
    acknowledge = called(PlainWorkJournal.acknowledge)
    drop = called(PlainWorkJournal.drop)
    pause = called(PlainWorkJournal.pause)
    resume = called(PlainWorkJournal.resume)
    tick = called(PlainWorkJournal.tick)
    _claim_of = called(PlainWorkJournal.claim_of)
    _done_many = called(PlainWorkJournal.done_many)

    @property
    def name(self) -> str:
        return cast(PlainWorkJournal, self._plain).name

    @property
    def settings(self) -> WorkSettings:
        """Return the settings as any process declared them last."""
        return cast(PlainWorkJournal, self._plain).settings

    def cursor(self, owner: str | None = None) -> Cursor:
        """Return a cursor, which claims under an owner's name."""
        return Cursor(self._plain.cursor(owner), self._threads)

    async def claim_of(self, id: int, fence: int) -> Claim:  # noqa: A002 (as everywhere in this API)
        """Return a claim by the numbers that it was handed out with: for a caller that has them from another
        process."""
        return Claim(await self._claim_of(id, fence), self._threads)

    async def done_many(self, claims: Sequence[Claim], *, tx: object = None) -> list[Literal["done", "lost"]]:
        """End claims: `done` or `lost` for each. With `tx`, one that is lost is `LeaseLost`, and none is ended."""
        return await self._done_many([claim._plain for claim in claims], tx=tx)


class Worker(Awaited):
    """`strandline.Worker`, to await. A handler that is a coroutine function runs in the loop, with a claim to await."""

    def __init__(self, s: Strandline, handlers: Mapping[str, Callable[[Any], Any]], **how: Any) -> None:
        """`how` has `concurrency`, `owner` and `max_run_s`, as of the plain worker."""
        super().__init__(None, s._threads)
        self._s, self._handlers, self._how = s._plain, handlers, how
        self._stopped = False

    async def _started(self) -> PlainWorker:
        claimed = partial(Claim, threads=self._threads)
        handlers = {name: plain_handler(handler, claimed) for name, handler in self._handlers.items()}
        self._plain = await in_a_thread(partial(PlainWorker, self._s, handlers, **self._how))
        if self._stopped:
            self._plain.stop()
        return cast(PlainWorker, self._plain)

    run = run_of(PlainWorker.run)

    def stop(self) -> None:
        """Let `run` come to its end."""
        self._stopped = True
        if self._plain is not None:
            self._plain.stop()


# ---------------------------------------------------------------- groups


class Handle(NamedTuple):
    """A group that was submitted."""

    id: str
    groups: Groups

    async def wait(self, timeout_s: float = 30.0) -> Outcome:
        """Wait until the group has ended and return its outcome; `Unavailable.timeout` with its state if that takes too
        long.
        """
        return await self.groups.wait(self.id, timeout_s)


class Processor(Awaited):
    """Runs the groups of a stream."""

    run = run_of(PlainProcessor.run)
    run_until_idle = run_of(PlainProcessor.run_until_idle)

    async def _started(self) -> PlainProcessor:
        return cast(PlainProcessor, self._plain)

    def stop(self) -> None:
        """Start no more groups; `run` returns when those that run have ended."""
        self._plain.stop()


class Groups(Awaited):
    """`strandline.Groups`, to await."""

    get = called(PlainGroups.get)
    history = called(PlainGroups.history)
    wait = waited(PlainGroups.wait)
    explain = called(PlainGroups.explain)
    playback = called(PlainGroups.playback)
    cancel = called(PlainGroups.cancel)
    resolve = called(PlainGroups.resolve)
    list = called(PlainGroups.list)
    answer = called(PlainGroups.answer)
    ack = called(PlainGroups.ack)
    load_code = called(PlainGroups.load_code)
    close = called(PlainGroups.close)
    _submit = called(PlainGroups.submit)

    async def submit(self, group: Group | str, parameters: Mapping[str, Any] | None = None) -> Handle:
        """Record a group and put it at the end of the stream; return when both are durable."""
        return Handle((await self._submit(group, parameters)).id, self)

    def processor(self) -> Processor:
        """Return a processor for this stream's groups. One at a time runs; others wait."""
        return Processor(self._plain.processor(), self._threads)


# ---------------------------------------------------------------- projections


class Projections(Awaited):
    """`s.projections`, to await."""

    list = called(PlainProjections.list)
    status = called(PlainProjections.status)
    statuses = called(PlainProjections.statuses)
    section = called(PlainProjections.section)
    pause = waited(PlainProjections.pause)
    resume = called(PlainProjections.resume)
    rescale = waited(PlainProjections.rescale)
    set_offset = called(PlainProjections.set_offset)
    reset = called(PlainProjections.reset)
    rename = called(PlainProjections.rename)
    drop = called(PlainProjections.drop)
    switch = waited(PlainProjections.switch)
    skip = called(PlainProjections.skip)
    unpark = called(PlainProjections.unpark)
    parked = called(PlainProjections.parked)
    dead_letters = called(PlainProjections.dead_letters)
    redeliver = called(PlainProjections.redeliver)
    discard = called(PlainProjections.discard)


class Host(Awaited):
    """`strandline.Host`, to await. Handlers run in its threads, not in the loop."""

    def __init__(self, s: Strandline, projections: Sequence[Projection]) -> None:
        super().__init__(PlainHost(s._plain, projections), s._threads)

    async def _started(self) -> PlainHost:
        return cast(PlainHost, self._plain)

    run = run_of(PlainHost.run)

    def stop(self) -> None:
        """Let `run` end: no new event is handled, events in hand end or are undone, and ranges are released."""
        self._plain.stop()


# ---------------------------------------------------------------- the connection


class Strandline(Awaited):
    """`strandline.Strandline`, to await. An async context manager."""

    def __init__(self, plain_: PlainStrandline, threads: ThreadPoolExecutor) -> None:
        super().__init__(plain_, threads)
        self.journal = Journal(plain_.journal, threads)

    strandline = called(PlainStrandline.strandline)
    status = called(PlainStrandline.status)
    streams = called(PlainStrandline.streams)
    wait_for_strandline = waited(PlainStrandline.wait_for_strandline)
    _work = called(PlainStrandline.work)

    def by_slices(self, entity_type: str, lo: int, hi: int, **how: Unpack[GivenSliceQuery]) -> Stream[RecordedEvent]:
        """Return events of an entity type in slices `lo`..`hi`, as `strandline.Strandline.by_slices` gives them."""
        return Stream(partial(self._plain.by_slices, entity_type, lo, hi, **how))

    def by_tag(self, tag: str, **how: Unpack[GivenTagQuery]) -> Stream[TaggedEvent]:
        """Return events with a tag, as `strandline.Strandline.by_tag` gives them."""
        return Stream(partial(self._plain.by_tag, tag, **how))

    async def work(self, declaration: WorkDeclaration | str, *, url: str | None = None) -> WorkJournal:
        """Return a work journal: by its declaration, made if it is not there, or by its name, which must be there."""
        return WorkJournal(await self._work(declaration, url=url), self._threads)

    def groups(
        self, stream: str = "default", *, handlers: Mapping[str, Callable[[Any], Any]] | None = None, **how: Any
    ) -> Groups:
        """Return event groups of a stream, as the plain `groups` gives them; handlers may be coroutine functions."""
        known = {name: plain_handler(handler) for name, handler in (handlers or {}).items()}
        return Groups(self._plain.groups(stream, handlers=known, **how), self._threads)

    @property
    def projections(self) -> Projections:
        """Return the operations on projections."""
        return Projections(self._plain.projections, self._threads)

    async def close(self) -> None:
        """Finish what is queued and let go of log and store. Twice is harmless."""
        await asyncio.to_thread(self._plain.close)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Connecting:
    """The answer of `connect`: `await` it, or enter it with `async with`."""

    def __init__(self, open_: Callable[[], PlainStrandline], threads: int) -> None:
        self._open, self._count = open_, threads
        self._opened: Strandline | None = None

    async def _connected(self) -> Strandline:
        threads = ThreadPoolExecutor(self._count, thread_name_prefix="strandline-call")
        try:
            return Strandline(await asyncio.get_running_loop().run_in_executor(threads, self._open), threads)
        except BaseException:
            threads.shutdown(wait=False)
            raise

    def __await__(self) -> Generator[Any, Any, Strandline]:
        return self._connected().__await__()

    def __getattr__(self, name: str) -> Any:
        """Refuse a name that an open connection has: this connection is not open yet."""
        if name in ("journal", *vars(Strandline)) and not name.startswith("_"):
            raise InvalidInput(
                f"{name}: this connection is not open yet",
                code="closed",
                hint="write `async with aio.connect(…) as s:`, or `s = await aio.connect(…)`",
            )
        raise AttributeError(name)

    async def __aenter__(self) -> Strandline:
        self._opened = await self._connected()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()


def connect(
    url: str | None = None,
    *,
    log: str | None = None,
    store: str | None = None,
    work: str | None = None,
    projections: str | None = None,
    clock: Callable[[], int] | None = None,
    threads: int = THREADS,
    **settings: Unpack[GivenSettings],
) -> Connecting:
    """Open a log and its store as `strandline.connect` does, with the same arguments."""
    places: dict[str, Any] = {"log": log, "store": store, "work": work, "projections": projections}
    return Connecting(partial(plain_connect, url, **places, clock=clock, **settings), threads)
