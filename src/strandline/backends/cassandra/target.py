"""A Cassandra keyspace of the user's as a target of groups: writes with timestamps, images with write times and TTLs.

Values of images are bytes as Cassandra stores them, in hexadecimal: exact for every type, and never interpreted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar, Final, TypeVar
from uuid import UUID, uuid4

from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.cluster import Cluster
from cassandra.cluster import Session as DriverSession
from cassandra.protocol import ResultMessage, SyntaxException, _ProtocolHandler, read_int
from cassandra.query import BoundStatement, PreparedStatement

from strandline.backends.cassandra.driver_errors import FAILURES, outcome_of
from strandline.backends.cassandra.session import Session
from strandline.backends.cassandra.statements import statement
from strandline.clock import now_us
from strandline.errors import InvalidGroup, SchemaMismatch
from strandline.group.cells import Back, rows_written, undo_of
from strandline.group.core.encoding import Opaque
from strandline.group.statements import texts
from strandline.group.statements.api import Column, Dialect, Given, Plan, Table, Template
from strandline.group.statements.binding import Bound, Unbound, bound
from strandline.group.statements.cql import TIMESTAMP, CqlShape
from strandline.group.target import (
    Cells,
    Conflict,
    Failed,
    Image,
    Limits,
    NotUndone,
    OnConflict,
    Owner,
    Rows,
    Undone,
    Work,
    Wrote,
)
from strandline.urls import Url

_TYPES: Final = {"varchar": "text"}
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


class _Session(Session):
    """Statements of users: unqualified names are those of the keyspace."""

    raw: DriverSession
    """Beside the other one: its rows are bytes."""

    def opened(self) -> DriverSession:
        """The driver's own."""
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


class CassandraTarget:
    """An open keyspace. Safe to share between threads."""

    dialect: Dialect = "cassandra"

    def __init__(
        self,
        url: Url,
        *,
        timeout_s: float = 10.0,
        consistency: str = "LOCAL_QUORUM",
        read_back: bool = True,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self.name = str(url)
        self._url = url
        self._clock = clock
        self._reads_back = read_back
        self._level = getattr(ConsistencyLevel, consistency)
        self._session = _Session(url, timeout_s)
        self._prepared: dict[str, PreparedStatement] = {}

    # ------------------------------------------------------------ whose it is, and what is there

    def own(self, history_id: str, stream: str, *, shared: bool) -> Owner:
        try:
            self._session.alter(self._text("target_make"))
        except SchemaMismatch as error:
            raise SchemaMismatch(
                f"{self.name} has no table of ours, and it cannot be made: {error.message}",
                code="barrier",
                hint=f"let somebody who may run: {self._text('target_make')}",
            ) from error
        place = f"{history_id}|{stream}" if shared else texts.SOLE_OWNER
        known = [row[1] for row in self._rows("target_owners")]
        self._rows("target_add_owner", (place, known[0] if known else uuid4().hex, history_id, stream, uuid4().hex))
        for row in self._rows("target_owners"):
            found = Owner(row[1], row[2], row[3], 0, row[4])
            if (found.history_id, found.stream) == (history_id, stream):
                return found
            if not shared and row[0] == place:
                raise InvalidGroup(
                    f"{self.name} belongs to stream {found.stream!r} of history {found.history_id}",
                    code="target_taken",
                    hint="Target(..., shared=True) lets several streams use it, without an order among them; to hand "
                    f"it over: {texts.hand_over_cql(history_id, stream)}",
                )
        raise AssertionError(place)

    def tables(self, names: Sequence[str]) -> Mapping[str, Table]:
        found = {name: self._table(name) for name in names}
        return {name: table for name, table in found.items() if table is not None}

    def _table(self, asked: str) -> Table | None:
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
        return Table(
            name=f"{keyspace}.{name}",
            columns=tuple(Column(column, kind, role=ROLES[role]) for column, role, _, kind in ordered),  # type: ignore[arg-type]
            key=tuple(column for column, role, _, _ in ordered if role in {"partition_key", "clustering"}),
            what=what,
            triggers=tuple(trigger for (trigger,) in triggers),
            gc_grace_s=facts[0][0] if facts else 0,
        )

    # ------------------------------------------------------------ reading

    def query(self, plan: Plan, values: Mapping[str, Any], limits: Limits) -> Rows | Failed:
        try:
            asked = bound(plan.statement.template, values, "cassandra", limits.rows_max)
            rows, described = self._ask(asked, limits, raw=0)
        except Unbound as error:
            return Failed("binding", str(error))
        except InvalidRequest as error:
            return _failed(error)
        if len(rows) > limits.rows_max:
            return Failed("too_large", f"more than rows_max rows, {limits.rows_max:,}")
        told = plan.statement.columns
        names = told if told is not None and len(told) == len(described) else ("",) * len(described)
        columns = tuple(name or column for name, (column, _) in zip(names, described, strict=True))
        keys = plan.table.key if plan.table is not None else ()
        types = tuple(_TYPES.get(said := kind.cql_parameterized_type(), said) for _, kind in described)
        return Rows(columns, types, tuple(map(tuple, rows)), tuple(name for name in columns if name in keys))

    def image(self, work: Work) -> Cells | Failed:
        """What the step is about to change."""
        plan, limits = work.plan, work.limits
        if plan.before is None or plan.table is None:
            raise AssertionError(plan.statement.text)
        static = all(_role(plan.table, name) == "static" for name in plan.columns[len(plan.table.key) :])
        try:
            asked = bound(plan.before, work.values, "cassandra", limits.rows_max, " LIMIT 1" if static else "")
            read_at = self._clock()
            rows, described = self._ask(asked, limits, raw=len(plan.columns))
            kinds = [kind for _, kind in described[: len(plan.table.key)]]
            keys = self._keys(plan, work.values, kinds)
        except Unbound as error:
            return Failed("binding", str(error))
        except InvalidRequest as error:
            return _failed(error)
        if len(rows) > limits.rows_max:
            return Failed("too_large", f"more than rows_max rows, {limits.rows_max:,}")
        size, cells = len(plan.columns), len(plan.columns) - len(plan.table.key)
        if any(_mixed(ttl) for row in rows for ttl in row[size + cells :]):
            return Failed("statement", "elements of a collection have TTLs of their own: they cannot be put back")
        image = Image(plan.columns, len(plan.table.key), tuple(tuple(map(_hex, row[:size])) for row in rows))
        if sum(len(value or "") for row in image.rows for value in row) > 2 * limits.image_bytes_max:
            return Failed("too_large", f"an image of more than image_bytes_max, {limits.image_bytes_max:,}")
        times = tuple(tuple(map(_greatest, row[size : size + cells])) for row in rows)
        ttls = tuple(tuple(map(_greatest, row[size + cells :])) for row in rows)
        found = Cells(image, times, ttls, read_at, keys, self._applies(plan, work, image))
        return self._with_static(found, plan, limits)

    def _with_static(self, cells: Cells, plan: Plan, limits: Limits) -> Cells:
        """A row that is not there does not show the static columns of its partition: these are read by themselves."""
        if plan.table is None or plan.undo == "delete":
            return cells
        names = plan.columns[cells.image.keys :]
        static = [name for name in names if _role(plan.table, name) == "static" and name in plan.changed]
        size = len(plan.table.partition)
        known = {row[:size] for row in cells.image.rows}
        for partition in dict.fromkeys(key[:size] for key in cells.keys if key[:size] not in known) if static else ():
            found = self._current(plan.table, partition, static, limits)
            values, times, ttls = zip(*(found.get(name, (None, None, None)) for name in names), strict=True)
            row = (*partition, *(None,) * (cells.image.keys - size), *values)
            image = cells.image._replace(rows=(*cells.image.rows, row))
            cells = cells._replace(image=image, times=(*cells.times, times), ttls=(*cells.ttls, ttls))
        return cells

    def _keys(self, plan: Plan, values: Mapping[str, Any], kinds: Sequence[Any]) -> tuple[Row, ...]:
        """Of the rows that the statement writes: the columns of the key, each with all its values."""
        if plan.table is None or plan.undo == "delete":
            return ()
        shape: CqlShape = plan.statement.shape
        given = {one.column: one for one in shape.given}
        lists = {relation.columns[0]: relation.term for relation in shape.relations if relation.columns}
        parts: list[list[Any]] = []
        for name, kind in zip(plan.table.key, kinds, strict=True):
            if name in given and (given[name].parameter or given[name].value is not None):
                parts.append([_packed(kind, _value(given[name], values))])
            elif name in lists and lists[name].parameters:
                parts.append([_packed(kind, value) for value in values[lists[name].parameters[0].name]])
            else:
                parts.append([None])
        return tuple(dict.fromkeys(product(*parts)))

    def _applies(self, plan: Plan, work: Work, image: Image) -> bool:
        shape: CqlShape = plan.statement.shape
        if not shape.only_if:
            return True
        if shape.only_if == "not exists":
            return not image.rows
        if not image.rows or shape.only_if == "exists":
            return bool(image.rows)
        kinds = dict(self._types(self._text_of(plan, work)))
        for condition in shape.conditions:
            given = [_value(Given("", parameter=one.name), work.values) for one in condition.term.parameters]
            column = condition.columns[0]
            place = image.columns.index(column)
            for row in image.rows:
                found = None if row[place] is None else kinds[column].deserialize(bytes.fromhex(row[place]), 4)
                wanted = given[0] if given else _literal(condition.term)
                if not _holds(found, condition.sign, wanted):
                    return False
        return True

    def _text_of(self, plan: Plan, work: Work) -> str:
        if plan.before is None:
            raise AssertionError(plan.statement.text)
        return bound(plan.before, work.values, "cassandra", work.limits.rows_max).text

    # ------------------------------------------------------------ writing

    def write(self, work: Work, cells: Cells, timestamp: int) -> Failed | None:
        """Send the step's statement with this timestamp."""
        del cells
        shape: CqlShape = work.plan.statement.shape
        values = {**work.values, TIMESTAMP: timestamp}
        try:
            self._send(bound(shape.write, values, "cassandra", work.limits.rows_max), work.limits)
        except Unbound as error:
            return Failed("binding", str(error))
        except InvalidRequest as error:
            return _failed(error)
        return None

    def send(self, work: Work) -> Failed | None:
        """Send a statement as it is, for one that has no image."""
        try:
            self._send(bound(work.plan.statement.template, work.values, "cassandra", work.limits.rows_max), work.limits)
        except Unbound as error:
            return Failed("binding", str(error))
        except InvalidRequest as error:
            return _failed(error)
        return None

    def read_back(self, wrote: Wrote) -> Image | Failed:
        """The rows after the write, by key."""
        plan = wrote.work.plan
        states = rows_written([wrote])
        rows: list[Row] = []
        for state in states:
            found = self._current(state.table, state.key, tuple(state.last), wrote.work.limits)
            for name, (_, time, _) in found.items():
                cell = f"{state.table.name}.{name}"
                if time is not None and time > wrote.timestamp:
                    return Failed("foreign_write", f"{cell} was written by somebody else")
                if time is not None and time < wrote.timestamp and name not in plan.statement.shape.inside:
                    return Failed("not_applied", f"{cell} has not what was written")
            rows.append((*state.key, *(found[name][0] for name in state.last)))
        return Image(plan.columns, len(plan.table.key) if plan.table else 0, tuple(rows))

    def undo(
        self, writes: Sequence[Wrote], on_conflict: OnConflict, *, now: int, force: bool = False
    ) -> Undone | NotUndone:
        """Restore each cell that these writes of one group changed, once."""
        limits = writes[0].work.limits if writes else Limits()
        on_conflict = "overwrite" if force else on_conflict
        foreign: dict[tuple[str, Row, str], int] = {}
        conflicts: list[Conflict] = []
        for state in rows_written(writes) if self._reads_back or on_conflict == "overwrite" else ():
            found = self._current(state.table, state.key, tuple(state.last), limits)
            for name, (value, time, _) in found.items():
                if time is not None and time > state.last[name] + 1:
                    foreign[state.table.name, state.key, name] = time
                    conflicts.append(Conflict((*state.key, name), (state.first[name].value,), None, (value,)))
        if conflicts and on_conflict == "fail":
            return NotUndone("cells were written by others since", tuple(conflicts))
        restored = 0
        for back in undo_of(writes, now):
            for one in self._against(back, foreign, on_conflict):
                self._send(_statement(one), limits, raw=True)
                restored += 1
        return Undone(restored=restored, kept=tuple(conflicts) if on_conflict == "keep_current" else ())

    def _against(self, back: Back, foreign: Mapping[tuple[str, Row, str], int], on_conflict: OnConflict) -> list[Back]:
        """A statement without the cells that others wrote, or above these."""
        if back.how not in {"set", "unset"}:
            return [back]
        made = []
        kept = []
        for name, value in back.values:
            time = foreign.get((back.table.name, back.key, name))
            if time is None:
                kept.append((name, value))
            elif on_conflict == "overwrite":
                made.append(back._replace(values=((name, value),), timestamp=time + 1))
        return [*made, back._replace(values=tuple(kept))] if kept else made

    def _current(
        self, table: Table, key: Row, columns: Sequence[str], limits: Limits
    ) -> dict[str, tuple[Any, int | None, int | None]]:
        """Value, write time and TTL of these cells of a row."""
        if not columns:
            return {}
        selected = [texts.quoted(name) for name in columns]
        selected += [f"writetime({texts.quoted(name)})" for name in columns]
        selected += [f"ttl({texts.quoted(name)})" for name in columns]
        where = texts.equal(table.key[: len(key)], ["?"] * len(key))
        text = texts.select_cql(selected, table.name, where)
        rows, _ = self._ask(Bound(text, key), limits, raw=len(columns), raw_values=True)
        if not rows:
            return dict.fromkeys(columns, (None, None, None))
        size = len(columns)
        return {
            name: (_hex(rows[0][n]), _greatest(rows[0][size + n]), _greatest(rows[0][2 * size + n]))
            for n, name in enumerate(columns)
        }

    # ------------------------------------------------------------ the driver

    def _rows(self, name: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._ask(Bound(self._text(name), tuple(values)), Limits(), raw=0)[0]

    def _text(self, name: str) -> str:
        return statement("strandline.backends.cassandra", name, self._session.keyspace)

    def _ask(
        self, asked: Bound, limits: Limits, *, raw: int, raw_values: bool = False
    ) -> tuple[list[Row], list[tuple[str, Any]]]:
        """Rows, the first `raw` columns as bytes; and name and type of each column."""
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
            found.append(
                (*row[:raw], *(kind.from_binary(value, 4) for (_, kind), value in rest)) if raw else tuple(row)
            )
            if len(found) > limits.rows_max:
                break
        return found, types

    def _types(self, text: str) -> list[tuple[str, Any]]:
        prepared = self._call(lambda session: self._prepare(session, text), writing=False)
        return [(name, kind) for _, _, name, kind in prepared.result_metadata or ()]

    def _send(self, asked: Bound, limits: Limits, *, raw: bool = False) -> None:
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
            made.values = [_unhexed(kind, value) for kind, value in pairs]
        else:
            made.values = [None if v is None else _serialized(k, v) for k, v in zip(kinds, values, strict=True)]
        return made

    def _call(self, work: Callable[[DriverSession], T], *, writing: bool) -> T:
        session = self._session.opened()
        try:
            return work(session)
        except (InvalidRequest, SyntaxException) as error:
            raise InvalidRequest(str(error)) from error
        except FAILURES as error:
            raise outcome_of(error, self._url, writing=writing) from error

    def close(self) -> None:
        """Twice is harmless."""
        self._session.close()


def _statement(back: Back) -> Bound:
    """One statement of an undo."""
    table = back.table
    marks = ["?"] * len(back.key)
    keys = table.key[: len(back.key)]
    where = texts.equal(keys, marks)
    if back.how == "remove_row":
        return Bound(texts.remove_cql(table.name, (), where), (back.timestamp, *back.key))
    if back.how == "unset":
        names = [name for name, _ in back.values]
        return Bound(texts.remove_cql(table.name, names, where), (back.timestamp, *back.key))
    if back.how == "add_row":
        return Bound(texts.insert(table.name, keys, marks) + " USING TIMESTAMP ?", (*back.key, back.timestamp))
    names = [name for name, _ in back.values]
    values = [value for _, value in back.values]
    return Bound(texts.put_back_cql(table.name, names, where), (back.timestamp, back.ttl, *values, *back.key))


def _decoded(row: Row, types: Sequence[tuple[str, Any]], raw: int) -> Row:
    """A row of bytes, all but its first columns decoded."""
    rest = zip(types[raw:], row[raw:], strict=True)
    return (*row[:raw], *(kind.from_binary(value, 4) for (_, kind), value in rest))


def _role(table: Table, name: str) -> str:
    column = table.column(name)
    return column.role if column is not None else ""


def _value(given: Given, values: Mapping[str, Any]) -> Any:
    if not given.parameter:
        return given.value
    if given.parameter not in values:
        raise Unbound(f":{given.parameter} has no value")
    return values[given.parameter]


def _packed(kind: Any, value: Any) -> str:
    if value is None:
        raise Unbound("a key has no value")
    return _serialized(kind, value).hex()


def _serialized(kind: Any, value: Any) -> bytes:
    """As Cassandra stores it; `Unbound` for a value of another type."""
    if isinstance(value, Opaque):
        value = value.text
    if kind.typename in {"uuid", "timeuuid"} and isinstance(value, str):
        value = UUID(value)
    try:
        return kind.serialize(value, 4)  # type: ignore[no-any-return]
    except Exception as error:
        raise Unbound(f"{value!r} is no {kind.cql_parameterized_type()}: {error}") from error


def _unhexed(kind: Any, value: Any) -> bytes | None:
    if isinstance(value, int):
        return kind.serialize(value, 4)  # type: ignore[no-any-return]
    return None if value is None else bytes.fromhex(value)


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _greatest(value: Any) -> int | None:
    """Of a write time or TTL; a collection has one for each of its elements."""
    if isinstance(value, (list, tuple)):
        return max((one for one in value if one is not None), default=None)
    return value  # type: ignore[no-any-return]


def _mixed(ttl: Any) -> bool:
    return isinstance(ttl, (list, tuple)) and len(set(ttl)) > 1


def _holds(found: Any, sign: str, wanted: Any) -> bool:
    if sign == "IN":
        return found in wanted
    if found is None or wanted is None:
        return (found is wanted) == (sign == "=") if sign in {"=", "!="} else False
    signs: dict[str, Callable[[Any, Any], bool]] = {
        "=": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    }  # fmt: skip
    return signs[sign](found, wanted)


def _literal(term: Template) -> Any:
    text = term.shown().strip()
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    if text.lower() in {"true", "false", "null"}:
        return {"true": True, "false": False, "null": None}[text.lower()]
    try:
        return int(text)
    except ValueError:
        raise Unbound(f"IF … {text}: bind a value") from None


def _failed(error: BaseException) -> Failed:
    return Failed("statement", str(error))


def open_target(url: Url, *, consistency: str = "LOCAL_QUORUM", read_back: bool = True, **_: Any) -> CassandraTarget:
    """The keyspace that a URL names."""
    return CassandraTarget(url, consistency=consistency, read_back=read_back)
