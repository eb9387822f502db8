"""Connect: opens a log, a store and what works on them, from one URL or from one each.

sqlite:FOLDER                       log.db and store.db in a folder, which is made if its parent is there
log=sqlite:FILE, store=sqlite:FILE  the files themselves
postgresql://HOST/DATABASE          log and store in one schema of a database
memory:                             for tests and trials: it ends with its process

Any log goes with any store: `strandline.urls` says how each is named, `strandline.backends` how it is opened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Unpack, cast

from strandline.backends import backend_of
from strandline.clock import now_us
from strandline.closed_at_end import ClosedAtEnd
from strandline.errors import NotFound, SchemaMismatch, Unsupported, closed, counted, invalid
from strandline.fold import FoldRules
from strandline.group import mail
from strandline.group.definition import Group
from strandline.group.groups import Groups, check_named
from strandline.group.listing import StreamStatus, streams_of
from strandline.group.open_targets import Target
from strandline.group.record import load
from strandline.group.settings import GroupSettings
from strandline.group.target import TargetDatabase as OpenedTarget
from strandline.group.targets import open_target
from strandline.journal.journal import Journal
from strandline.journal.status import Status, StatusSection, status_of, strandline_of
from strandline.log.api import Log, UnfoldedLog
from strandline.projection.host import Offsets
from strandline.projection.liveness import FileLockLiveness, HeartbeatLiveness
from strandline.projection.management import Projections
from strandline.projection.offset_store import PART, OffsetStore
from strandline.query.by_slices import SliceFeed
from strandline.query.by_tag import TagFeed
from strandline.query.pointer_watch import PointerWatch
from strandline.query.slice_queries import GivenSliceQuery, by_slices
from strandline.query.tags import GivenTagQuery, by_tag, wait_for_strandline
from strandline.settings import GivenSettings, Settings, check_clock
from strandline.sql.api import Database, Part
from strandline.store.api import Store
from strandline.store.sql_store import part_of
from strandline.urls import Url, Urls, sql_url, target_of, urls_of
from strandline.values.answers import Appended
from strandline.work.catalog import PART as WORK
from strandline.work.declaration import WorkDeclaration
from strandline.work.journal import WorkJournal
from strandline.work.opening import Opens, WorkJournals

_logger: Final = logging.getLogger(__name__)


class Strandline(ClosedAtEnd):
    """A log and a store that belong together, and what works on them. A context manager."""

    def __init__(
        self,
        log: Log,
        store: Store,
        settings: Settings | None = None,
        *,
        clock: Callable[[], int] = now_us,
        urls: Urls | None = None,
        work: WorkJournals | None = None,
    ) -> None:
        """`urls` name log and store in errors; `work` opens work journals."""
        self.log, self.store = log, store
        self.settings = settings or Settings()
        store.archive.place = self.settings.archive
        self.shared = True
        """Whether other processes can open this log and store."""
        self.local = False
        """Whether such processes must run on this machine."""
        self._clock = clock
        self._groups: list[Groups] = []
        self._urls = urls
        self._work = work
        self._closed = False
        check_pair(log, store, urls)
        self.journal = Journal(log, store, self.settings, clock)
        self.pointer_watch = PointerWatch(store)
        """Reads the pointers once for all live queries and projections."""

    @property
    def urls(self) -> Urls | None:
        """The URLs of log and store; None if they were opened without URLs."""
        return self._urls

    def strandline(self) -> int:
        """Return the time (µs) up to which every event is in the store; 0 while a partition was never replicated."""
        self.check()
        return strandline_of(self.store.pointers())

    def by_slices(self, entity_type: str, lo: int, hi: int, **how: Unpack[GivenSliceQuery]) -> SliceFeed:
        """Return events of an entity type in slices `lo`..`hi`, by (timestamp, seq_nr, key), each once. A context
        manager.

            with s.by_slices("order", 0, 1023) as events: ...                      all that is in the store now
            with s.by_slices("order", 0, 255, after=offset, live=True) as events:  from an offset on, without end

        `after` is an event's `offset` or a query's `resume_offset` (or its text), `from_` and `to` (both included) are
        times, `filter` is {"types": …, "tags": …}; settings: `page_size`, `refresh_interval_s`, `gap_timeout_s`,
        `keys_in_memory_max`; `use_strandline=False` for a store that other programs write, too: resume such a query
        with its `resume_offset`, since events may come late.
        """
        self.check()
        return by_slices(self.store, self.pointer_watch, entity_type, lo, hi, **how)

    def groups(
        self,
        stream: str = "default",
        *,
        targets: Mapping[str, str | Target] | None = None,
        handlers: Mapping[str, Callable[[Any], Any]] | None = None,
        named: Mapping[str, Callable[..., Group]] | None = None,
        **settings: Any,
    ) -> Groups:
        """Return event groups of a stream, on databases that are named here.

            groups = s.groups(targets={"shop": "sqlite:shop.db"}, handlers={"price": price})

        `handlers` are called by their names and no others; `named` are functions that make groups. Settings are those
        of `strandline.group.settings`. It is closed with this connection.
        """
        self.check()
        checked = GroupSettings.of(settings)
        check_named("targets", targets or {}, "NAME: URL or Target", lambda one: isinstance(one, (str, Target)))
        given = {name: Target(one) if isinstance(one, str) else one for name, one in (targets or {}).items()}
        for name, one in given.items():
            target_of(name, one.url)

        def opened(name: str, target: Target) -> OpenedTarget:
            return open_target(
                target_of(name, target.url),
                connections=checked.parallel_groups + checked.parallel_steps,
                consistency=target.consistency,
                settings=self.settings,
            )

        made = Groups(
            self.journal,
            self.log,
            stream=stream,
            targets=given,
            handlers=handlers or {},
            named=named or {},
            settings=checked,
            open_target=opened,
            boxes=self._box,
            clock=self._clock,
            bytes_max=(self.settings.event_bytes_max, self.settings.append_bytes_max),
            carried=self,
        )
        self._groups.append(made)
        return made

    def streams(self) -> list[StreamStatus]:
        """Return the status of those streams of event groups of which the pipeline has carried something."""
        self.check()
        return streams_of(self.journal, lambda group: load(self.journal, group))

    def _box(self, name: str) -> WorkJournal:
        """Return a work journal that takes messages of event groups."""
        journal = self.work(name)
        if (journal.columns.key, journal.columns.data) != (mail.KEY, mail.DATA):
            raise NotFound(
                f"work journal {name} takes no messages of groups: it has other columns",
                code="work_journal",
                hint=f"declare one with key={mail.KEY}, data={mail.DATA}",
                journal=name,
            )
        return journal

    @property
    def projections(self) -> Projections:
        """Return the operators' calls for projections whose offsets are in the default place:
        list status pause resume set_offset reset skip rename drop rescale switch parked unpark dead_letters redeliver
        discard."""
        return Projections(self.store, lambda: self.open_offsets(None, create=False), self._behind_log_s)

    def _behind_log_s(self) -> tuple[float, bool]:
        """Return how far the strandline is behind the log, and whether a pipeline runs."""
        status = self.status(parts=False)
        return max(partition.lag_s for partition in status.partitions), status.lease_holder is not None

    def open_offsets(self, url: str | None = None, *, create: bool = True) -> Offsets:
        """Open an offset store: at `url`, else `projections.db` of an embedded folder, or the store's database."""
        self.check()
        place = self._offsets_url() if url is None else sql_url("offset_store", url)
        settings = replace(self.settings, schema="create" if create else "check")
        database = backend_of(place).open_database(place, PART, settings, None, fixed={})
        if place.path is None:
            return Offsets(OffsetStore(database), lambda host: HeartbeatLiveness())
        path = place.path.resolve()  # symbolic links are resolved, so that hosts given different paths find each other
        return Offsets(OffsetStore(database), lambda host: FileLockLiveness(path, host))

    def _offsets_url(self) -> Url:
        found = self._urls.projections if self._urls is not None else None
        if found is None:
            raise invalid(
                "setting",
                "offset_store",
                "not given",
                allowed="the URL of an SQL database",
                got="nothing",
                hint='this store has no SQL: give connect(…, projections="sqlite:FILE"), or --projections sqlite:FILE',
            )
        return found

    def work(self, declaration: WorkDeclaration | str, *, url: str | None = None) -> WorkJournal:
        """Return a work journal: by its declaration, made if it is not there, or by its name, which must be there.

            mails = s.work(WorkDeclaration("mails", key={"order": "int"}, data={"to": "text"}, lease_s=60))

        It is in `work.db` of a folder, in the schema of a PostgreSQL URL, or where `work=` of `connect` or `url` here
        says. It is closed with this connection.
        """
        if self._work is None:
            raise no_work_url()
        return self._work.open(declaration, url)

    def by_tag(self, tag: str, **how: Unpack[GivenTagQuery]) -> TagFeed:
        """Return events with this tag, of all keys, in one order, each once. An iterator, and a context manager.

            with s.by_tag("blue") as events: ...                             all that is in the store now
            with s.by_tag("blue", after=offset, live=True) as events: ...    from an offset on, without end

        `after` is an event's `offset` or a query's `resume_offset` (or its text), `from_` and `to` (both included) are
        times, `seen` is {key: (life, tag_seq_nr)}; settings: `first_time_bucket`, `page_size`, `refresh_interval_s`,
        `gap_timeout_s`, `keys_in_memory_max`; `use_strandline=False` for a store that something else writes, too.
        """
        self.check()
        return by_tag(self.store, self.pointer_watch, tag, **how)

    def wait_for_strandline(self, at: int | Appended, *, timeout_s: float | timedelta = 5) -> bool:
        """Return whether everything up to a timestamp, or up to what `append` returned, was carried in time."""
        self.check()
        return wait_for_strandline(self.pointer_watch, at, timeout_s)

    def status(self, *, parts: bool = True) -> Status:
        """Return the status: how far the store is behind the log, who carries, and what to look at.

        `sections` has the status of other parts. `parts=False` leaves them out, which is quicker for frequent calls.
        """
        self.check()
        status = status_of(self.log, self.store, self.settings, self._clock())
        return status.and_parts(self._parts()) if parts else status

    def _parts(self) -> Mapping[str, Callable[[], StatusSection | None]]:
        """Return by part the function that makes its status section; the function returns None if the part has
        nothing."""
        parts: dict[str, Callable[[], StatusSection | None]] = {"streams": self._streams_section}
        if self._urls is not None and self._urls.projections is not None:
            parts["projections"] = self.projections.section
        return parts if self._work is None else {**parts, "work": self._work.section}

    def _streams_section(self) -> StatusSection:
        rows = tuple(stream._asdict() for stream in self.streams())
        return StatusSection("streams", counted(len(rows), "stream"), rows)

    def check(self) -> None:
        """Refuse a call after `close`: `InvalidInput.closed`."""
        if self._closed:
            raise closed("this connection")

    def close(self) -> None:
        """Finish what is queued, and close log and store. A second call does nothing."""
        first, self._closed = not self._closed, True
        try:
            for groups in self._groups:
                groups.close()
            self.journal.close()
        finally:  # an interrupt while one of them waits leaves no other open
            if self._work is not None:
                self._work.close()
            self.log.close()
            self.store.close()
            if first and self._urls is not None:
                _logger.info("closed: log %s, store %s", self._urls.log, self._urls.store)

    def __repr__(self) -> str:
        return f"<Strandline {self.journal!r}>"


def connect(
    url: str | None = None,
    *,
    log: str | None = None,
    store: str | None = None,
    work: str | None = None,
    projections: str | None = None,
    clock: Callable[[], int] | None = None,
    **settings: Unpack[GivenSettings],
) -> Strandline:
    """Open a log and its store, or create them, by one URL or by one each.

        connect("sqlite:orders")                                      a folder, made if it is not there
        connect(log="sqlite:/a/log.db", store="sqlite:/b/store.db")   two files
        connect("postgresql://user@host/orders")                      log and store in one database
        connect("memory:")                                            for tests: ends with the process
        connect(log="kafka://…", store="cassandra://…", work="postgresql://…")    where work journals are
        connect("sqlite:orders", projections="sqlite:totals.db")      where offsets of projections are, if not there
        connect("sqlite:orders", partitions=16, append_timeout_s=2)   with settings (`strandline.settings`)

    `clock` tells microseconds; without one a server's own does. Settings are checked before anything is opened. Use it
    as a context manager, or `close`.
    """
    checked = Settings.of(settings)
    urls = urls_of(url, log, store, work, projections)
    told = clock or now_us
    check_clock(told)
    backends = [backend_of(parsed) for parsed in (urls.log, urls.store)]
    if "batch_actions_max" not in settings:
        checked = replace(checked, batch_actions_max=backend_of(urls.store).batch_actions_max)
    with ExitStack() as opened:
        # An existing store names its log: no other log is made for it.
        found = _find_store(urls.store, checked, clock)
        if found is not None:
            opened.callback(found.close)
        opened_log = open_log(urls, checked, clock, found)
        opened.callback(opened_log.close)
        opened_store = found or backend_of(urls.store).open_store(urls.store, checked, clock, opened_log)
        opened.callback(opened_store.close)
        journals = WorkJournals(_opens_work(urls, checked, clock), create=checked.schema == "create", clock=clock)
        strandline = Strandline(opened_log, opened_store, checked, clock=told, urls=urls, work=journals)
        opened.pop_all()
    strandline.shared = all(backend.shared for backend in backends)
    strandline.local = any(backend.local for backend in backends)
    made = "opened" if found is not None else "created"
    _logger.info("%s: log %s, store %s, %d partitions", made, urls.log, urls.store, opened_log.partitions)
    return strandline


def _opens_work(urls: Urls, settings: Settings, clock: Callable[[], int] | None) -> Opens:
    """Return a function that opens the database of work journals, when the first one is asked for."""

    def opens(url: str | None, *, create: bool) -> Database:
        found = urls.work if url is None else sql_url("work", url)
        if found is None:
            raise no_work_url()
        how = settings if create else replace(settings, schema="check")
        return backend_of(found).open_database(found, WORK, how, clock, fixed={})

    return opens


def parts() -> dict[str, Part]:
    """Return the parts that URLs may name, by the fields of `urls.Urls`, for `schema show` and `schema upgrade`."""
    return {"log": Part("log", "strandline.log"), "store": part_of(), "work": WORK, "projections": PART}


def no_work_url() -> Unsupported:
    """Return the error for a work journal where no SQL database is named that it could be in."""
    return Unsupported(
        "work: no SQL database is named for work journals",
        code="work_url",
        hint="give work= a sqlite: or postgresql: URL",
    )


def open_log(urls: Urls, settings: Settings, clock: Callable[[], int] | None, store: Store | None) -> Log:
    """Open the log of a store, or make one where there is no store yet."""
    try:
        log = backend_of(urls.log).open_log(urls.log, settings, clock, create=store is None)
        if store is not None and not log.exact:
            cast(UnfoldedLog, log).count_from(store.settings.log_starts)
        return log
    except SchemaMismatch as error:
        if store is None or error.code != "no_schema":
            raise
        raise SchemaMismatch(
            f"there is no log at {urls.log}; the store at {urls.store} has one: its id is {store.settings.log_id}",
            code="log_replaced",
            hint="is the log's URL right? If so, put the log back; a restored backup brings both",
            stored=store.settings.log_id,
            given=None,
        ) from None


def _find_store(url: Url, settings: Settings, clock: Callable[[], int] | None) -> Store | None:
    try:
        return backend_of(url).open_store(url, settings, clock, None)
    except SchemaMismatch as error:
        if error.code != "no_schema":
            raise
        return None


def check_pair(log: Log, store: Store, urls: Urls | None) -> None:
    """Refuse a store beside a log that was replaced, emptied or put back to an older state."""
    stored = store.settings
    if stored.log_id != log.log_id:
        names = f"{urls.log} is not the log of the store at {urls.store}" if urls else "this is not the store's log"
        hint = "is the log's URL right? If so, it was replaced: give a new store, or restore both from one backup"
        if stored.log_nr:
            hint = "give the URL of the log that took over when the journal was repartitioned"
        raise SchemaMismatch(
            f"{names}: its id is {log.log_id}, not {stored.log_id}",
            code="log_replaced",
            hint=hint,
            stored=stored.log_id,
            given=log.log_id,
        )
    if stored.partitions != log.partitions:
        raise SchemaMismatch(
            f"partitions: the store has {stored.partitions}, the log {log.partitions}",
            code="setting",
            hint="give the store's own log",
            setting="partitions",
            stored=stored.partitions,
            given=log.partitions,
        )
    for name, kept, given in zip(FoldRules._fields, stored.rules, log.rules or stored.rules, strict=True):
        if kept != given:
            raise SchemaMismatch(
                f"{name}: the store has {kept}, the log {given}",
                code="setting",
                hint="give the store's own log",
                setting=name,
                stored=kept,
                given=given,
            )
    for pointer, newest in zip(store.pointers(), log.newest(), strict=True):
        if newest < pointer.offset:
            raise SchemaMismatch(
                f"partition {pointer.partition}: the store is at offset {pointer.offset}, the log ends at {newest}",
                code="log_replaced",
                hint="the log was emptied or put back from an older copy; restore log and store from one backup",
                partition=pointer.partition,
                stored=pointer.offset,
                given=newest,
            )
