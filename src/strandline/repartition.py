"""Repartition: give a store another number of partitions, by moving it to a new log.

    lease ──▶ new, empty log ──▶ carry ──▶ appends end ──▶ carry to the end ──▶ heads into the new log ──▶ pair ──▶ done
             (old pairing: appends, reads)  (old pairing: reads alone)                          (new pairing: all)

Pairing is one transaction of the store; killed before it, the old log is still the store's, and takes no appends until
this was run again or taken back (`undo`). A process that has the old pairing open is refused after that: the old log
refuses its appends, and the store refuses its reads, queries and projections, because its pointers say that the log was
replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from os import getpid
from socket import gethostname
from typing import Any, Final, NamedTuple, cast

from strandline.backends import backend_of
from strandline.carry.range import carry_up_to
from strandline.connect import check_pair, open_log
from strandline.errors import InvalidInput, StrandlineError, Unsupported, invalid
from strandline.log.api import Log, ReplaceableLog
from strandline.points import reached
from strandline.settings import Settings
from strandline.store.api import Lease
from strandline.store.next_log import NextLog
from strandline.store.sql_store import SqlStore
from strandline.urls import Url, Urls, identity, log_url, urls_of

Told = Callable[[str], None]
POINTS: Final = (
    "repartition.before_appends_end",
    "repartition.appends_ended",
    "repartition.carried",
    "repartition.begun",
    "repartition.paired",
)
"""Places between two durable writes, where tests end the process."""


class Repartitioned(NamedTuple):
    """The result of a change of logs."""

    log_id: str
    """The id of the new log."""
    partitions: int
    before: int
    carried: int
    """How many actions were still carried."""
    done_before: bool
    """Whether the store went on from this log already."""


def repartition(
    partitions: int,
    to: str,
    url: str | None = None,
    *,
    log: str | None = None,
    store: str | None = None,
    told: Told = lambda _: None,
    **settings: Any,
) -> Repartitioned:
    """Let the store go on from a new log at `to`, with so many partitions. Appends are refused meanwhile.

    No pipeline may run (`LeaseHeld`). The same call continues a repartition that was broken off.
    `Unsupported.repartition` for a store that is not in an SQL database.
    """
    checked = replace(Settings.of({**settings, "partitions": partitions}), schema="check")
    urls, new_url = urls_of(url, log, store), log_url("to", to)
    if identity(new_url) == identity(urls.log):
        raise _bad_place(new_url, "the log that is there now")
    with ExitStack() as opened:
        kept = _store(urls, replace(checked, partitions=None), opened)
        before = kept.settings
        checked = replace(checked, segment_size=before.segment_size, append_ids_kept=before.append_ids_kept)
        new = _new_log(new_url, checked, before.log_id, opened)
        if new.log_id == before.log_id:
            return Repartitioned(new.log_id, new.partitions, new.partitions, 0, True)
        if before.partitions == partitions:
            raise invalid("setting", "partitions", "what it has", allowed="another number", got=partitions)
        old = _old_log(urls, replace(checked, partitions=None), kept, opened)
        check_pair(old, kept, urls)
        lease = kept.lease().take(f"repartition, {gethostname()} pid {getpid()}")
        opened.callback(lease.release)
        carried = _change(old, new, kept, lease, checked, told)
        return Repartitioned(new.log_id, partitions, before.partitions, carried, False)


def undo(url: str | None = None, *, log: str | None = None, store: str | None = None, **settings: Any) -> bool:
    """Let the log take appends again if the store is still paired with it; return whether it is."""
    checked = replace(Settings.of(settings), schema="check")
    urls = urls_of(url, log, store)
    with ExitStack() as opened:
        kept = _store(urls, checked, opened)
        old = _old_log(urls, checked, kept, opened)
        if old.log_id != kept.settings.log_id:
            return False
        lease = kept.lease().take(f"repartition --undo, {gethostname()} pid {getpid()}")
        opened.callback(lease.release)
        old.resume_appends()
        return True


def _change(
    old: ReplaceableLog, new: ReplaceableLog, store: SqlStore, lease: Lease, settings: Settings, told: Told
) -> int:
    """Carry all of a log, end it, and pair the store with its successor; return how many actions were carried."""
    told("carry what is there")
    carried = _carry(old, store, lease, settings)
    reached("repartition.before_appends_end")
    try:
        old.end_appends()
        reached("repartition.appends_ended")
        told("appends are refused; carry what came meanwhile")
        carried += _carry(old, store, lease, settings)
        newest, pointers = old.newest(), store.pointers()
        reached("repartition.carried")
        last, timestamp = max(newest) + 1, max(pointer.timestamp for pointer in pointers)
        told("write the heads into the new log")
        new.begin_after(old.log_id, last, timestamp, store.known_keys())
        reached("repartition.begun")
        told("pair the store with the new log")
        lease.check()
        store.go_on_from(NextLog(new.log_id, new.partitions, last + 1, timestamp), newest, lease.fence)
    except BaseException as error:
        # A commit whose outcome is unknown may still succeed: appends stay refused.
        if getattr(error, "applied", "no") == "no" and _still(store, old):
            old.resume_appends()
        raise
    reached("repartition.paired")
    return carried


def _carry(log: Log, store: SqlStore, lease: Lease, settings: Settings) -> int:
    """Carry what is in the log now."""
    actions = 0
    for partition, newest in enumerate(log.newest()):
        actions += carry_up_to(log, store, partition, newest, lease.fence, settings).actions
    return actions


def _still(store: SqlStore, old: Log) -> bool:
    """Return whether the store is certainly still paired with this log."""
    try:
        return store.log_now() == old.log_id
    except StrandlineError:
        return False


def _store(urls: Urls, settings: Settings, opened: ExitStack) -> SqlStore:
    found = backend_of(urls.store).open_store(urls.store, settings, None, None)
    opened.callback(found.close)
    if not isinstance(found, SqlStore):
        raise Unsupported(
            f"the store at {urls.store} cannot go on from another log: that needs a transaction over all of it",
            code="repartition",
            hint="a new store is filled from a new log: `strandline pipeline replay`, and record what it gives",
        )
    return found


def _old_log(urls: Urls, settings: Settings, store: SqlStore, opened: ExitStack) -> ReplaceableLog:
    found = open_log(urls, settings, None, store)
    opened.callback(found.close)
    return _replaceable(found, urls.log)


def _new_log(url: Url, settings: Settings, follows: str, opened: ExitStack) -> ReplaceableLog:
    """Return the log at this URL, made if there is none. It must be empty, or made by a killed run."""
    found = backend_of(url).open_log(url, replace(settings, schema="create"), None, create=True)
    opened.callback(found.close)
    new = _replaceable(found, url)
    empty = all(newest < oldest for newest, oldest in zip(new.newest(), new.oldest(), strict=True))
    if new.log_id != follows and not empty:
        raise _bad_place(url, "a log with records")
    if new.follows not in (None, follows) and new.log_id != follows:
        raise _bad_place(url, "a log that follows another one")
    return new


def _replaceable(log: Log, url: Url) -> ReplaceableLog:
    if not hasattr(log, "begin_after"):
        raise Unsupported(
            f"the log at {url} cannot be another's successor", code="repartition", hint="give a log that stays"
        )
    return cast(ReplaceableLog, log)


def _bad_place(url: Url, what: str) -> InvalidInput:
    return invalid("not_empty", "LOG_URL", what, allowed="a place where no log is yet", got=str(url))
