"""A session with a cluster: named statements, prepared once; many in flight, within bounds; every wait has an end.

Opened by the first call, in the process that makes it; a forked child is refused and its parent goes on. Values of hot
statements are packed here: the driver takes three times as long for a row. Protocol 4, because the driver computes the
checksums of protocol 5 byte by byte in Python, at a third of what a small write costs; rows have digests of their own.
"""

from __future__ import annotations

import logging
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, ResponseFuture
from cassandra.cluster import Session as DriverSession
from cassandra.cqltypes import BytesType, Int32Type, LongType, UTF8Type, VarcharType
from cassandra.policies import DCAwareRoundRobinPolicy, ExponentialReconnectionPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType, BoundStatement, PreparedStatement, SimpleStatement, tuple_factory

from strandline import forks
from strandline.backends.cassandra.address import check_url, tls_of
from strandline.backends.cassandra.driver_errors import FAILURES, is_busy, not_opened, outcome_of
from strandline.backends.cassandra.nodes import NamedNodes, named_nodes
from strandline.backends.cassandra.statements import statement
from strandline.errors import closed, used_after_fork
from strandline.urls import PORTS, Url

IN_FLIGHT_MAX: Final = 256
IN_FLIGHT_BYTES_MAX: Final = 8 * 2**20
ROW_BYTES: Final = 100
"""About how many bytes a row takes beside its values."""
BATCH_ROWS_MAX: Final = 128
BATCH_BYTES_MAX: Final = 64 * 2**10
DDL_TIMEOUT_S: Final = 60
BUSY_S: Final = 0.01
"""The pause between tries while a socket is full."""
HEARTBEAT_S: Final = 5
"""How long a connection may be silent before the driver checks it."""
OWN_PACKAGE: Final = "strandline.backends.cassandra"
T = TypeVar("T")

# The driver logs every connection that fails, with a traceback. Without a handler Python would print that; users who
# want to read it configure logging.
logging.getLogger("cassandra").addHandler(logging.NullHandler())


class CqlRequest(NamedTuple):
    """A statement and the values of its rows, all of one partition key. Several rows are one batch."""

    name: str
    rows: Sequence[Sequence[Any]]
    size: int = 0
    """The bytes of the large values."""
    package: str = OWN_PACKAGE
    """The package that has the statement."""


class Query(NamedTuple):
    """A query and its values."""

    name: str
    values: Sequence[Any] = ()
    package: str = OWN_PACKAGE


class Session:
    """A cluster and a keyspace of it. Safe to share between threads."""

    def __init__(self, url: Url, timeout_s: float, packages: tuple[str, ...] = ()) -> None:
        check_url(url)
        self.packages = packages
        """Packages whose steps make tables here beside the store's own."""
        self.keyspace = url.name
        self.url = url
        self._timeout_s = timeout_s
        self._generation = forks.generation
        self._opening = Lock()
        self._cluster: Cluster | None = None
        self._session: DriverSession | None = None
        self._prepared: dict[str, _Prepared] = {}
        self._closed = False

    # ------------------------------------------------------------ one statement

    def rows(self, name: str, values: Sequence[Any] = (), *, package: str = OWN_PACKAGE) -> list[Any]:
        """Return all rows of a query, page by page."""
        with self._asking(writing=False) as session:
            bound = self._bound(session, name, values, package)
            return self._patiently(lambda: list(session.execute(bound)))

    def serial_rows(self, name: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return rows as the last conditional write left them, even if that write is still under way."""
        with self._asking(writing=False) as session:
            bound = self._bound(session, name, values, OWN_PACKAGE)
            bound.consistency_level = ConsistencyLevel.SERIAL
            return self._patiently(lambda: list(session.execute(bound)))

    def conditional(self, name: str, values: Sequence[Any], *, package: str = OWN_PACKAGE) -> bool:
        """Return whether a conditional write was applied."""
        with self._asking(writing=True) as session:
            bound = self._bound(session, name, values, package)
            bound.is_idempotent = False
            return bool(self._patiently(lambda: session.execute(bound).one()[0]))

    def on_every_node(self, name: str, *, package: str) -> list[tuple[str, list[Any]]]:
        """Ask each node that is up in this data centre, and return its rows by its address."""
        text = statement(package, name, self.keyspace)
        with self._asking(writing=False) as session:
            hosts = [pool.host for pool in session.get_pools() if not pool.is_shutdown]
            found = []
            for host in sorted(hosts, key=str):
                asked = SimpleStatement(text, consistency_level=ConsistencyLevel.ONE)
                found.append((host.address, list(session.execute(asked, host=host))))
            return found

    def alter(self, text: str, values: dict[str, Any] | None = None) -> None:
        """Execute a statement that alters the schema. All processes send theirs to the same node, which does one at a
        time."""
        with self._asking(writing=True) as session:
            hosts = sorted((pool.host for pool in session.get_pools()), key=str)
            session.execute(text, values, host=hosts[0] if hosts else None, timeout=DDL_TIMEOUT_S)

    def each_row(self, text: str) -> Iterator[Any]:
        """Yield the rows of a query that has no name, page by page: for a caller that changes a schema."""
        with self._asking(writing=False) as session:
            yield from session.execute(text, timeout=DDL_TIMEOUT_S)

    def walk(self, name: str, values: Sequence[Any] = (), *, package: str = OWN_PACKAGE) -> Iterator[Any]:
        """Yield the rows of a query, fetched page by page while they are taken."""
        with self._asking(writing=False) as session:
            yield from self._patiently(lambda: session.execute(self._bound(session, name, values, package)))

    def change(self, text: str, values: Sequence[Any]) -> None:
        """Execute a write that has no name, with these values: for a caller that changes a schema."""
        with self._asking(writing=True) as session:
            prepared = self._prepared.get(text) or self._prepare_text(session, text, text)
            self._patiently(lambda: session.execute(prepared.bound(values)))

    # ------------------------------------------------------------ many at a time

    def each(self, queries: Iterable[Query | tuple[str, Sequence[Any]]]) -> Iterator[list[Any]]:
        """Yield the rows of each query, in their order. Many queries are under way at a time, to hide the network's
        latency."""
        session = self._open()
        bound = ((self._bound(session, *Query(*query)), 0) for query in queries)
        for answer in self._flight(session, bound, writing=False):
            try:
                yield list(answer)
            except FAILURES as error:
                raise outcome_of(error, self.url, writing=False) from error

    def write(self, requests: Iterable[CqlRequest]) -> None:
        """Execute all these writes, in any order; they are acknowledged when this returns."""
        session = self._open()
        for _ in self._flight(session, self._bodies(session, requests), writing=True):
            pass

    def _bodies(self, session: DriverSession, requests: Iterable[CqlRequest]) -> Iterator[tuple[Any, int]]:
        for name, rows, size, package in requests:
            prepared = self._prepare(session, name, package)
            if len(rows) == 1:
                yield prepared.bound(rows[0]), size + ROW_BYTES
                continue
            batch = BatchStatement(BatchType.UNLOGGED)
            for row in rows:
                batch.add(prepared.bound(row))
            yield batch, size + ROW_BYTES * len(rows)

    def _flight(
        self, session: DriverSession, bodies: Iterable[tuple[Any, int]], *, writing: bool
    ) -> Iterator[Iterable[Any]]:
        """Send requests, and yield their answers in order. At the limit of requests under way, half are awaited before
        more are sent."""
        under_way: deque[tuple[Any, Any, int]] = deque()
        size = 0
        try:
            for body, weight in bodies:
                if under_way and (len(under_way) >= IN_FLIGHT_MAX or size + weight > IN_FLIGHT_BYTES_MAX):
                    half = (len(under_way) + 1) // 2
                    with suppress(NoHostAvailable):  # its error is raised below
                        under_way[half - 1][1].result()  # the answers before it have come by then
                    for _ in range(half):
                        size -= under_way[0][2]
                        yield self._landed(session, *under_way.popleft())
                # No timer for each request: a node answers in time or says that it cannot, and the heartbeat finds one
                # that does neither.
                under_way.append((body, session.execute_async(body, timeout=None), weight))
                size += weight
            while under_way:
                yield self._landed(session, *under_way.popleft())
        except FAILURES as error:
            raise outcome_of(error, self.url, writing=writing) from error

    def _landed(self, session: DriverSession, body: Any, sent: ResponseFuture, _: int) -> Iterable[Any]:
        """Return the answer to a request. A request that could not be sent before is sent again."""
        return self._patiently(sent.result, lambda: session.execute(body, timeout=None))

    def _patiently(self, execute: Callable[[], T], again: Callable[[], T] | None = None) -> T:
        """Try again while nothing can be sent, up to the time-out; then raise `NoHostAvailable`."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return execute()
            except NoHostAvailable as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise
            time.sleep(BUSY_S)
            execute = again or execute

    # ------------------------------------------------------------ statements

    def _bound(self, session: DriverSession, name: str, values: Sequence[Any], package: str) -> BoundStatement:
        return self._prepare(session, name, package).bound(values)

    def _prepare(self, session: DriverSession, name: str, package: str) -> _Prepared:
        known = name if package == OWN_PACKAGE else f"{package} {name}"
        return self._prepared.get(known) or self._prepare_text(session, known, statement(package, name, self.keyspace))

    def columns(self, name: str, package: str = OWN_PACKAGE) -> list[str]:
        """Return the columns of a query's rows."""
        return self._prepare(self._open(), name, package).columns

    def _prepare_text(self, session: DriverSession, name: str, text: str) -> _Prepared:
        prepared = self._patiently(lambda: session.prepare(text))
        prepared.is_idempotent = True
        self._prepared[name] = found = _Prepared(prepared)
        return found

    # ------------------------------------------------------------ state

    def check(self) -> None:
        """Refuse a call after `close`, or in a forked child."""
        if forks.generation != self._generation:
            raise used_after_fork("this store")
        if self._closed:
            raise closed("this store")

    def close(self) -> None:
        """Close the session. A second call does nothing, nor does a call in a forked child."""
        if self._closed or forks.generation != self._generation:
            self._closed = True
            return
        self._closed = True
        with self._opening:
            if self._cluster is not None:
                self._cluster.shutdown()

    def _open(self) -> DriverSession:
        self.check()
        if self._session is not None:
            return self._session
        with self._opening:
            if self._session is None:
                self._cluster, self._session = self._connected()
            return self._session

    @contextmanager
    def _asking(self, *, writing: bool) -> Iterator[DriverSession]:
        """Give the driver's session, and translate the errors of its calls."""
        session = self._open()
        try:
            yield session
        except FAILURES as error:
            raise outcome_of(error, self.url, writing=writing) from error

    def _connected(self) -> tuple[Cluster, DriverSession]:
        cluster = None
        try:
            cluster = _cluster_of(self.url, self._timeout_s)
            session = cluster.connect()
        except FAILURES as error:
            if cluster is not None:
                cluster.shutdown()
            raise not_opened(error, self.url, self._timeout_s) from None  # the driver's error may show the password
        session.use_client_timestamp = False
        return cluster, session


class _Prepared:
    """A prepared statement, and how its values become bytes."""

    __slots__ = ("_packers", "_statement", "columns")

    def __init__(self, prepared: PreparedStatement) -> None:
        self._statement = prepared
        self.columns = [name for _, _, name, _ in prepared.result_metadata or ()]
        self._packers = [_PACKERS.get(column.type) or partial(_serialized, column.type)
                         for column in prepared.column_metadata]  # fmt: skip

    def bound(self, row: Sequence[Any]) -> BoundStatement:
        bound = BoundStatement(self._statement)
        bound.values = [None if value is None else pack(value) for pack, value in zip(self._packers, row, strict=True)]
        return bound


def _serialized(kind: Any, value: Any) -> bytes:
    return kind.serialize(value, 4)  # type: ignore[no-any-return]


def _same(value: bytes) -> bytes:
    return value


def _limited(value: int) -> bytes:
    """No column is that short; a LIMIT is."""
    return struct.pack(">i", min(value, 2**31 - 1))


_PACKERS: Final[dict[Any, Callable[[Any], bytes]]] = {
    LongType: struct.Struct(">q").pack,
    Int32Type: _limited,
    UTF8Type: str.encode,
    VarcharType: str.encode,
    BytesType: _same,
}


# ---------------------------------------------------------------- the cluster


def _cluster_of(url: Url, timeout_s: float) -> Cluster:
    local = url.parameters.get("datacenter", "")
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=local)),
        consistency_level=ConsistencyLevel.LOCAL_QUORUM,
        serial_consistency_level=ConsistencyLevel.SERIAL,
        request_timeout=timeout_s,
        row_factory=tuple_factory,
    )
    provider = None if url.user is None else PlainTextAuthProvider(url.user, url.password or "")
    places = [(host.name, host.port or PORTS[url.scheme]) for host in url.hosts]
    port = places[0][1]
    tls = tls_of(url)
    named = named_nodes(places) if tls else []
    return Cluster(
        named or places,
        port=port,
        endpoint_factory=NamedNodes(named, port),
        protocol_version=4,
        auth_provider=provider,
        ssl_context=tls,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ExponentialReconnectionPolicy(0.1, 2.0, max_attempts=None),
        connect_timeout=timeout_s,
        control_connection_timeout=timeout_s,
        idle_heartbeat_interval=HEARTBEAT_S,
        idle_heartbeat_timeout=timeout_s,
        max_schema_agreement_wait=DDL_TIMEOUT_S,
        compression=False,
    )
