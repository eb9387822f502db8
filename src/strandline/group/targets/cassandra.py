"""A Cassandra keyspace of the user's as a target of groups: whose it is, its schema, and the driver.

What a step is there is in `strandline.group.targets.cql`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.cluster import Cluster
from cassandra.cluster import Session as DriverSession
from cassandra.protocol import ResultMessage, SyntaxException, _ProtocolHandler, read_int
from cassandra.query import BoundStatement, PreparedStatement

from strandline.backends.cassandra.driver_errors import FAILURES, outcome_of
from strandline.backends.cassandra.schema import check_keyspace
from strandline.backends.cassandra.session import Session
from strandline.backends.cassandra.statements import statement
from strandline.clock import now_us
from strandline.errors import SchemaMismatch
from strandline.group.statements import texts
from strandline.group.statements.api import TargetColumn, TargetTable
from strandline.group.statements.binding import Bound
from strandline.group.target import Limits, Owner
from strandline.group.targets.cassandra_values import given, held
from strandline.group.targets.cql import CqlRefused, CqlSteps, serialized, unhexed
from strandline.settings import Settings
from strandline.urls import Url

ROLES: Final = {"partition_key": "partition", "clustering": "clustering", "static": "static", "regular": ""}
T = TypeVar("T")
Row = tuple[Any, ...]


class _RawResult(ResultMessage):  # type: ignore[misc]
    """Rows whose values are left as the bytes that came."""

    def recv_results_rows(
        self, f: Any, protocol_version: int, user_type_map: Any, result_metadata: Any, column_encryption_policy: Any
    ) -> None:
        del protocol_version, column_encryption_policy
        self.recv_results_metadata(f, user_type_map)
        columns = self.column_metadata or result_metadata
        self.column_names = [column[2] for column in columns]
        self.column_types = [column[3] for column in columns]
        self.parsed_rows = [tuple(self.recv_row(f, len(columns))) for _ in range(read_int(f))]


class _RawHandler(_ProtocolHandler):  # type: ignore[misc]
    message_types_by_opcode: ClassVar[dict[int, Any]] = {
        **_ProtocolHandler.message_types_by_opcode,
        ResultMessage.opcode: _RawResult,
    }


class _UserSession(Session):
    """A session for statements of users: unqualified names are those of the keyspace."""

    raw: DriverSession
    """A second session, whose rows are bytes."""

    def opened(self) -> DriverSession:
        """Return the driver's own session."""
        return self._open()

    def _connected(self) -> tuple[Cluster, DriverSession]:
        cluster, session = super()._connected()
        try:
            session.set_keyspace(self.keyspace)
            self.raw = cluster.connect(self.keyspace)
            self.raw.client_protocol_handler = _RawHandler
            self.raw.use_client_timestamp = False
        except FAILURES as error:
            cluster.shutdown()
            raise outcome_of(error, self.url, writing=False) from error
        return cluster, session


class CassandraTarget(CqlSteps):
    """An open keyspace. Safe to share between threads."""

    def __init__(
        self,
        url: Url,
        *,
        timeout_s: float = 10.0,
        consistency: str = "LOCAL_QUORUM",
        settings: Settings | None = None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self.name = str(url)
        self._settings = settings or Settings()
        self._url = url
        self.clock = clock
        self._level = getattr(ConsistencyLevel, consistency)
        self._session = _UserSession(url, timeout_s)
        self._prepared: dict[str, PreparedStatement] = {}
        self._known: dict[str, tuple[list[Row], TargetTable | None]] = {}
        """Tables by name, each with the version of the schema when it was read."""

    # ------------------------------------------------------------ whose it is, and what is there

    def own(self, history_id: str, stream: str, *, shared: bool) -> Owner:
        check_keyspace(self._session, self._settings)
        try:
            self._session.alter(self._text("target_make"))
        except SchemaMismatch as error:
            raise SchemaMismatch(
                f"{self.name} lacks Strandline's table, and it cannot be made: {error.message}",
                code="barrier",
                hint=f"as a user who may, run: {self._text('target_make')}",
            ) from error
        while True:
            rows = sorted(self._rows("target_owners"), key=lambda row: bool(row[0] != texts.FIRST_OWNER))
            owners = [Owner(row[1], row[2], row[3], 0, row[4]) for row in rows]
            over = texts.hand_over_cql(history_id, stream) if rows and rows[0][0] == texts.FIRST_OWNER else ""
            mine = Owner.among(owners, self.name, history_id, stream, shared=shared, hand_over=over)
            if mine in owners:
                return mine
            place = f"{history_id}|{stream}" if owners else texts.FIRST_OWNER
            self._rows("target_add_owner", (place, mine.identity, history_id, stream, mine.row))  # one is first

    def tables(self, names: Sequence[str]) -> Mapping[str, TargetTable]:
        state = self._rows("target_state")
        for name in names:
            if name not in self._known or self._known[name][0] != state:
                self._known[name] = (state, self._table(name))
        return {name: table for name in names if (table := self._known[name][1]) is not None}

    def _table(self, asked: str) -> TargetTable | None:
        keyspace, _, name = asked.rpartition(".")
        keyspace = keyspace or self._session.keyspace
        columns = self._rows("target_columns", (keyspace, name))
        if not columns:
            return None
        facts = self._rows("target_table", (keyspace, name))
        triggers = self._rows("target_triggers", (keyspace, name))
        order = {"partition_key": 0, "clustering": 1, "static": 2, "regular": 3}
        ordered = sorted(columns, key=lambda row: (order[row[1]], row[2], row[0]))
        flags = facts[0][1] if facts else ()
        what: Any = "view" if not facts else "counter" if "counter" in (flags or ()) else "table"
        if any(kind == "counter" for _, _, _, kind in columns):
            what = "counter"
        return TargetTable(
            name=f"{keyspace}.{name}",
            columns=tuple(TargetColumn(column, kind, role=ROLES[role]) for column, role, _, kind in ordered),  # type: ignore[arg-type]
            key=tuple(column for column, role, _, _ in ordered if role in {"partition_key", "clustering"}),
            what=what,
            unsafe=tuple(f"has the trigger {trigger}" for (trigger,) in triggers),
            gc_grace_s=facts[0][0] if facts else 0,
        )

    # ------------------------------------------------------------ the driver

    def _rows(self, name: str, values: Sequence[Any] = ()) -> list[Row]:
        return self.asked(Bound(self._text(name), tuple(values)), Limits())[0]

    def _text(self, name: str) -> str:
        return statement("strandline.backends.cassandra", name, self._session.keyspace)

    def asked(
        self, asked: Bound, limits: Limits, *, raw: int = 0, raw_values: bool = False
    ) -> tuple[list[Row], list[tuple[str, Any]]]:
        """Return rows, the first `raw` columns as bytes, and name and type of each column."""
        return self._call(lambda session: self._read(session, asked, limits, raw, raw_values), writing=False)

    def _read(
        self, session: DriverSession, asked: Bound, limits: Limits, raw: int, raw_values: bool
    ) -> tuple[list[Row], list[tuple[str, Any]]]:
        prepared = self._prepare(session, asked.text)
        asking = self._bind(prepared, asked.values, raw=raw_values)
        asking.fetch_size = min(limits.rows_max + 1, 5000)
        types = [(name, kind) for _, _, name, kind in prepared.result_metadata or ()]
        found: list[Row] = []
        for row in (self._session.raw if raw else session).execute(asking, timeout=limits.timeout_s):
            rest = zip(types[raw:], row[raw:], strict=True)
            read = (kind.from_binary(value, 4) for (_, kind), value in rest) if raw else map(held, row)
            found.append((*row[:raw], *read))
            if len(found) > limits.rows_max:
                break
        return found, types

    def kinds(self, table: TargetTable) -> Mapping[str, Any]:
        text = texts.select(table.key, texts.named(table.name))
        prepared = self._call(lambda session: self._prepare(session, text), writing=False)
        return {name: kind for _, _, name, kind in prepared.result_metadata or ()}

    def sent(self, asked: Bound, limits: Limits, *, raw: bool = False) -> None:
        def send(session: DriverSession) -> None:
            writing = self._bind(self._prepare(session, asked.text), asked.values, raw=raw)
            session.execute(writing, timeout=limits.timeout_s)

        self._call(send, writing=True)

    def _prepare(self, session: DriverSession, text: str) -> PreparedStatement:
        found = self._prepared.get(text)
        if found is None:
            found = session.prepare(text)
            found.is_idempotent = True
            self._prepared[text] = found
        return found

    def _bind(self, prepared: PreparedStatement, values: Sequence[Any], *, raw: bool) -> BoundStatement:
        made = BoundStatement(prepared)
        made.consistency_level = self._level
        kinds = [column.type for column in prepared.column_metadata]
        if raw:
            pairs = zip(kinds, values, strict=True)
            made.values = [unhexed(kind, value) for kind, value in pairs]
        else:
            made.values = [None if v is None else serialized(k, given(v)) for k, v in zip(kinds, values, strict=True)]
        return made

    def _call(self, work: Callable[[DriverSession], T], *, writing: bool) -> T:
        session = self._session.opened()
        try:
            return work(session)
        except (InvalidRequest, SyntaxException) as error:
            raise CqlRefused(str(error)) from error
        except FAILURES as error:
            raise outcome_of(error, self._url, writing=writing) from error

    def close(self) -> None:
        """Close the session. A second call does nothing."""
        self._session.close()


def open_target(url: Url, *, consistency: str, settings: Settings, **_: Any) -> CassandraTarget:
    """Open the keyspace that a URL names."""
    return CassandraTarget(url, consistency=consistency, settings=settings)
