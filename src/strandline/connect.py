"""Connect: from a URL to a log, a store and what works on them. The only module that imports concrete back-ends.

sqlite:FOLDER                       log.db and store.db in a folder, which is made if its parent is there
log=sqlite:FILE, store=sqlite:FILE  the files themselves
memory:                             for tests and trials: it ends with its process
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from strandline.errors import InvalidInput, SchemaMismatch, Unsupported, invalid, shown
from strandline.journal.journal import Journal
from strandline.journal.status import Status, status_of, strandline_of
from strandline.log.api import Log
from strandline.settings import Settings
from strandline.store.api import Store, StoreSettings

SCHEMES: Final = ("sqlite", "memory")
LATER_SCHEMES: Final = ("postgresql", "kafka", "cassandra")
PARTITIONS_DEFAULT: Final = 8
SEGMENT_SIZE_DEFAULT: Final = 10_000
BUCKET_SIZE_DEFAULT: Final = "hour"
CLOCK_LEAST_US: Final = 1_577_836_800 * 10**6  # 2020-01-01
CLOCK_MOST_US: Final = 4_102_444_800 * 10**6  # 2100-01-01
_USER_INFO: Final = re.compile(r"(//[^/@\s:]*:)[^\s]*@")


def now_us() -> int:
    """The wall clock in microseconds."""
    return time.time_ns() // 1000


class Strandline:
    """A log and a store that belong together, and what works on them. A context manager."""

    def __init__(
        self, log: Log, store: Store, settings: Settings | None = None, *, clock: Callable[[], int] = now_us
    ) -> None:
        self.log, self.store = log, store
        self.settings = settings or Settings()
        self.shared = True
        """Whether other processes can open the same log and store."""
        self.local = False
        """Whether they must run on this machine."""
        self._clock = clock
        _check_pair(log, store)
        self.journal = Journal(log, store, self.settings, clock)

    def strandline(self) -> int:
        """Every event recorded up to this time (µs) is in the store; 0 while a partition was never replicated."""
        return strandline_of(self.store.pointers())

    def status(self) -> Status:
        """How far the store is behind the log, who carries, what to look at."""
        return status_of(self.log, self.store, self.settings, self._clock())

    def close(self) -> None:
        """Finish what is queued and let go of log and store. Twice is harmless."""
        self.journal.close()
        self.log.close()
        self.store.close()

    def __repr__(self) -> str:
        return f"<Strandline {self.journal!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(
    url: str | None = None,
    *,
    log: str | None = None,
    store: str | None = None,
    work: str | None = None,
    clock: Callable[[], int] | None = None,
    **settings: Any,
) -> Strandline:
    """Open a log and its store, or create them: by one URL, or by one each.

        connect("sqlite:orders")                                      a folder, made if it is not there
        connect(log="sqlite:/a/log.db", store="sqlite:/b/store.db")   two files
        connect("memory:")                                            for tests: ends with the process
        connect("sqlite:orders", partitions=16, append_timeout_s=2)   with settings (`strandline.settings`)

    `clock` tells microseconds. Settings are checked before anything is opened. Use it as a context manager, or `close`.
    """
    checked = Settings.of(settings)
    places = places_of(url, log, store, work)
    told = clock or now_us
    _check_clock(told)
    with ExitStack() as opened:
        # A store that is there says which log it belongs to: no other is made beside it.
        found = _find_store(places.store, checked, told)
        if found is not None:
            opened.callback(found.close)
        opened_log = _open_log(places.log, checked, told, found)
        opened.callback(opened_log.close)
        opened_store = found or _create_store(places.store, checked, opened_log, told)
        opened.callback(opened_store.close)
        strandline = Strandline(opened_log, opened_store, checked, clock=told)
        opened.pop_all()
    strandline.shared = "memory" not in (places.log.scheme, places.store.scheme)
    strandline.local = "sqlite" in (places.log.scheme, places.store.scheme)
    return strandline


# ---------------------------------------------------------------- URLs


class Place(NamedTuple):
    """Where one back-end is."""

    scheme: str
    path: Path | None


class Places(NamedTuple):
    """Where log and store are."""

    log: Place
    store: Place


def places_of(
    url: str | None = None, log: str | None = None, store: str | None = None, work: str | None = None
) -> Places:
    """Where log and store are; `InvalidInput` for a URL that cannot be meant."""
    if work is not None:
        raise Unsupported(
            f"work: {masked(work)} cannot be opened by this version",
            code="work_url",
            hint="leave work= out; work journals come with a later version",
        )
    if url is not None:
        if log is not None or store is not None:
            raise _incomplete("url", "given together with log or store", "a url, or a log and a store", url)
        place = _parse("url", url)
        if place.path is None:
            return Places(place, place)
        if place.path.exists() and not place.path.is_dir():
            raise _incomplete("url", "a file where a folder is meant", "sqlite:FOLDER", url)
        _check_parent("url", place.path, url)
        return Places(Place("sqlite", place.path / "log.db"), Place("sqlite", place.path / "store.db"))
    if log is None or store is None:
        missing = "url" if log is None and store is None else "log" if log is None else "store"
        raise _incomplete(missing, "missing", "a url, or a log and a store", "nothing")
    places = Places(_parse("log", log), _parse("store", store))
    for field, place, given in (("log", places.log, log), ("store", places.store, store)):
        if place.path is not None:
            if place.path.is_dir():
                raise _incomplete(field, "a folder where a file is meant", "sqlite:FILE", given)
            _check_parent(field, place.path, given)
    if places.log.path is not None and places.log.path == places.store.path:
        raise _incomplete("store", "the same file as the log", "a file of its own", store)
    return places


def _parse(field: str, url: object) -> Place:
    if not isinstance(url, str):
        raise invalid("url_scheme", field, "not text", allowed=_known(), got=url)
    scheme, colon, rest = url.partition(":")
    scheme = scheme.lower()
    if not colon or scheme not in SCHEMES + LATER_SCHEMES:
        raise invalid("url_scheme", field, "unknown scheme", allowed=_known(), got=masked(url), known=SCHEMES)
    _check_port(field, url)
    if scheme in LATER_SCHEMES:
        raise invalid(
            "url_scheme",
            field,
            f"{scheme} comes with a later version",
            allowed=_known(),
            got=masked(url),
            hint=f"this version knows {_known()}",
            known=SCHEMES,
        )
    path, mark, parameters = rest.partition("?")
    if mark:
        name = parameters.partition("=")[0]
        raise invalid(
            "url_parameter", field, f"unknown parameter {shown(name, 40)}", allowed="no parameters", got=masked(url)
        )
    if "\0" in path:
        raise _incomplete(field, "a path with U+0000", "sqlite:PATH", url)
    if scheme == "memory":
        if path:
            raise _incomplete(field, "a memory log or store has no name", "memory:", url)
        return Place(scheme, None)
    if not path:
        raise _incomplete(field, "no path", "sqlite:PATH", url)
    if path.startswith("//") and not path.startswith("///"):
        raise _incomplete(field, "a host where a path is meant", "sqlite:PATH", url)
    return Place(scheme, Path(path.removeprefix("//")))


def _check_parent(field: str, path: Path, url: str) -> None:
    parent = path.absolute().parent
    if not parent.is_dir():
        raise _incomplete(field, f"no folder {parent}", "a path whose parent exists", url)


def _check_port(field: str, url: str) -> None:
    # What stands before the last @ is no host, even where somebody forgot to quote a / in a password.
    hosts = re.split("[/?#]", url.partition("//")[2].rpartition("@")[2])[0]
    for host in hosts.split(","):
        _, colon, port = host.rpartition("]")[2].rpartition(":")
        if colon and not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
            raise invalid("url_port", field, "not a port", allowed="1..65535", got=shown(port, 20))


def _incomplete(field: str, wrong: str, allowed: str, url: str) -> InvalidInput:
    return invalid("url_incomplete", field, wrong, allowed=allowed, got=masked(url))


def _known() -> str:
    return "sqlite:FOLDER, memory:, or log= and store= with sqlite:FILE"


def masked(url: str) -> str:
    """A URL as it may be printed: without its password."""
    return _USER_INFO.sub(r"\1***@", url)


# ---------------------------------------------------------------- back-ends


def _open_log(place: Place, settings: Settings, clock: Callable[[], int], store: Store | None) -> Log:
    if place.path is None:
        from strandline.log.memory import MemoryLog

        return MemoryLog(
            partitions=settings.partitions or PARTITIONS_DEFAULT,
            segment_size=settings.segment_size or SEGMENT_SIZE_DEFAULT,
            clock=clock,
        )
    from strandline.log.sqlite import SqliteLog

    try:
        return SqliteLog(place.path, settings=settings, clock=clock, create=None if store is None else False)
    except SchemaMismatch as error:
        if store is None or error.code != "no_schema":
            raise
        raise SchemaMismatch(
            f"the store was filled from log {store.settings.log_id}; there is no log at {place.path}",
            code="log_replaced",
            hint="put the log back; a restored backup brings both",
            stored=store.settings.log_id,
            given=None,
        ) from None


def _find_store(place: Place, settings: Settings, clock: Callable[[], int]) -> Store | None:
    if place.path is None:
        return None
    from strandline.store.sqlite import SqliteStore

    try:
        return SqliteStore.open(place.path, settings, None, None, clock=clock)
    except SchemaMismatch as error:
        if error.code != "no_schema":
            raise
        return None


def _create_store(place: Place, settings: Settings, log: Log, clock: Callable[[], int]) -> Store:
    # Where the log folds by itself both must count segments alike.
    segment_size = getattr(log, "segment_size", settings.segment_size)
    if place.path is None:
        from strandline.store.memory import MemoryStore

        fixed = StoreSettings(
            log_id=log.log_id,
            partitions=log.partitions,
            segment_size=segment_size or SEGMENT_SIZE_DEFAULT,
            bucket_size=settings.bucket_size or BUCKET_SIZE_DEFAULT,
        )
        return MemoryStore(fixed, clock=clock)
    from strandline.store.sqlite import SqliteStore

    return SqliteStore.open(
        place.path, replace(settings, segment_size=segment_size), log.log_id, log.partitions, clock=clock
    )


def _check_pair(log: Log, store: Store) -> None:
    """A store never continues from a log that was replaced, emptied or put back to an older state."""
    stored = store.settings
    if stored.log_id != log.log_id:
        raise SchemaMismatch(
            f"the store was filled from log {stored.log_id}; this is log {log.log_id}",
            code="log_replaced",
            hint="give the store's own log, or a new store; a restored backup brings both",
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
    segment_size = getattr(log, "segment_size", stored.segment_size)
    if stored.segment_size != segment_size:
        raise SchemaMismatch(
            f"segment_size: the store has {stored.segment_size}, the log {segment_size}",
            code="setting",
            hint="give the store's own log",
            setting="segment_size",
            stored=stored.segment_size,
            given=segment_size,
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


def _check_clock(clock: Callable[[], int]) -> None:
    now = clock()
    if not CLOCK_LEAST_US <= now < CLOCK_MOST_US:
        raise Unsupported(
            f"the clock says {now} µs since 1970, which is not in 2020..2099",
            code="clock",
            hint="set the machine's clock; timestamps never go back, so a wrong one would stay",
            found=now,
        )
