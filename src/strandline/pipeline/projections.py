"""The two calls for projections on Spark: run them, or build a new generation of one.

The host is `spark_host.py`; `projection_task.py` is the task that it sends to executors.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strandline.connect import Strandline
from strandline.errors import InvalidInput, invalid
from strandline.pipeline import jvm, session
from strandline.pipeline.spark_host import SparkHost
from strandline.pipeline.supervisor import check_shared, interrupted_in_order, open_session
from strandline.pipeline.target import JournalRef
from strandline.projection.definition import BySlices, Projection
from strandline.projection.offset_store import BUILDING, ProjectionRow
from strandline.store.api import Store
from strandline.store.scans import keys_cut_short

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def project(
    url: str | None = None,
    projections: Sequence[Projection] = (),
    *,
    log: str | None = None,
    store: str | None = None,
    offset_store: str | None = None,
    once: bool = False,
    stop: threading.Event | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    **settings: Any,
) -> None:
    """Run projections on Spark until `stop` is set, or with `once` up to what is in the store now.

    `offset_store` is what `connect` calls `projections`: where offsets are, if not beside the store. Plain hosts may
    run the same ones before, after and meanwhile. Without a `spark` session one is started on `master`, this machine by
    default, and ended. Handlers travel to the tasks: they are functions or objects of the program itself, or of modules
    that the executors can import, too.
    """
    for each in projections:
        if isinstance(each, Projection) and not each.settings.use_strandline:
            hint = "run it in plain processes: Host(s, […]), or `strandline projections run`"
            raise invalid(
                "setting", "use_strandline", "false on Spark", allowed="true on Spark", got=False, hint=hint
            )  # fmt: skip
    target = JournalRef(url, log, store, _where(settings, offset_store))
    with target.connect() as s, suppress(jvm.JvmUnwanted), _host(s, target, projections, stop, spark, master) as host:
        goal = s.store.pointers()
        if once:
            host.until, host.gives_up = lambda: host.has_done(goal), True
        host.run()


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result of a rebuild."""

    projection: str
    generation: int
    state: str
    """`ready` once the generation has reached what the serving one has done; `building` if it was stopped before."""


def rebuild(
    url: str | None = None,
    projection: Projection | None = None,
    *,
    log: str | None = None,
    store: str | None = None,
    offset_store: str | None = None,
    ranges: int | None = None,
    allow_deleted: bool = False,
    stop: threading.Event | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    **settings: Any,
) -> Rebuilt:
    """Build a generation of a projection beside the serving one, up to what the serving one has done, and never past
    it.

    Its number is the projection's `generation`, higher than the serving one's. A rebuild that was killed goes on at the
    next call. Afterwards hosts of this generation take over, and `s.projections.switch` lets it serve. The generation
    is cut into `ranges`, by default one for each partition. Deleted events cannot be delivered: if there are any,
    `allow_deleted` must say that the caller knows.
    """
    if not isinstance(projection, Projection):
        raise invalid("setting", "projection", "cannot be rebuilt", allowed="a Projection", got=projection)
    target = JournalRef(url, log, store, _where(settings, offset_store))
    with target.connect() as s:
        if begin(s, projection, ranges, allow_deleted=allow_deleted).state == BUILDING:
            with suppress(jvm.JvmUnwanted), _host(s, target, [projection], stop, spark, master) as host:
                host.until, host.gives_up = lambda: host.state_of(projection) != BUILDING, True
                host.run()
        with s.open_offsets(projection.settings.offset_store, create=False).store.closed_after() as offsets:
            state = offsets.find(projection.name, projection.generation).state
    return Rebuilt(projection.name, projection.generation, state)


def _where(settings: dict[str, Any], offset_store: str | None) -> dict[str, Any]:
    named = {} if offset_store is None else {"projections": offset_store}
    return {"schema": "check", **named, **settings}


def begin(s: Strandline, projection: Projection, ranges: int | None, *, allow_deleted: bool) -> ProjectionRow:
    """Begin a generation; one that was begun goes on."""
    settings, source = projection.settings, projection.source
    if not isinstance(source, BySlices) or not settings.use_strandline:
        allowed = "a Projection of events by slices, with the strandline"
        raise invalid("setting", "projection", "cannot be rebuilt", allowed=allowed, got=projection)
    start = {"beginning": 0, "now": s.strandline()}.get(str(settings.start), settings.start)
    with s.open_offsets(settings.offset_store, create=False).store.closed_after() as offsets:
        offsets.find(projection.name)
        if not allow_deleted:
            _check_deleted(s.store, source.entity_type)
        return offsets.begin_generation(
            projection.name, projection.generation, source.text, start=int(start),
            count=ranges or s.store.settings.partitions, history_id=s.store.settings.history_id,
            revisions=[pointer.revision for pointer in s.store.pointers()],
        )  # fmt: skip


def _check_deleted(store: Store, entity_type: str) -> None:
    """Raise `InvalidInput.deleted_events` if events of this type were deleted or purged, as far as heads tell."""
    count = keys_cut_short(store, entity_type)
    if count:
        raise InvalidInput(
            f"{entity_type}: events of {count} keys were deleted, and are not in a rebuild",
            code="deleted_events",
            hint="if the handler can do without them, rebuild with allow_deleted",
            field="projection",
            keys=count,
        )


@contextmanager
def _host(
    s: Strandline,
    target: JournalRef,
    projections: Sequence[Projection],
    stop: threading.Event | None,
    spark: SparkSession | None,
    master: str | None,
) -> Iterator[SparkHost]:
    """Open a host in this process, and its session."""
    where = spark.sparkContext.master if spark else master
    check_shared(s, where)
    stop = stop or threading.Event()
    with interrupted_in_order(stop), open_session(spark, master, stop) as running:
        place = jvm.temporary_folder()
        referred = target.by_reference(place)
        session.send_files(running, referred.files)
        yield SparkHost(s, projections, referred, running, stop)
