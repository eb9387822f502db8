"""The schema of a keyspace: created by one process at a time, in named steps, and compared at every start.

Cassandra alters a schema statement by statement, so a creation that was killed is completed by the next start: every
statement may be repeated, and the keyspace counts as made when `schema_version`, written last, is there.

A step is a file of statements: `CREATE TABLE IF NOT EXISTS`, `ALTER TABLE … ADD`, indexes, and changes of data. A
SELECT in it gives its rows to the statement that follows it, one by one, so that a step can change rows of a table.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from strandline.backends.cassandra.address import replicas_given
from strandline.backends.cassandra.checks import (
    TARGET_VERSION_LEAST,
    check_nodes,
    check_replicas,
    check_room,
    replicas_of,
)
from strandline.backends.cassandra.session import Session
from strandline.backends.cassandra.statements import named, parts, script, statement, written
from strandline.errors import NO_JOURNAL, SchemaMismatch, Unavailable
from strandline.settings import Settings
from strandline.sql.steps import Columns, Description, SchemaStep, StepDone, check_schema, missing_steps, steps_of

LOCK_S: Final = 60.0
"""How long a lock's holder may do nothing before another process takes the lock over."""
SERVED_S: Final = 10.0
"""How long a node may refuse a table that it lists, because it lists tables before it serves them."""
ROLES: Final = ("append", "pipeline", "read")
"""The roles of a store's users (`cql/roles.cql`)."""
_PACKAGE: Final = "strandline.backends.cassandra"
_STEPS: Final = "strandline.backends.cassandra"
_VERSION: Final = "schema_version"
_TABLE: Final = re.compile(r"CREATE TABLE IF NOT EXISTS keyspace\.(\w+) \((.*), PRIMARY KEY \(\(([^)]*)\)(.*)\)\)$")
_ADDED: Final = re.compile(r"ALTER TABLE keyspace\.(\w+) ADD (\w+) (\S+)")
ROWS_A_BEAT: Final = 1000
"""How many rows a step changes before it renews its lock."""


def open_keyspace(
    session: Session, settings: Settings, fixed: Mapping[str, str], *, create: bool, lock_s: float = LOCK_S
) -> dict[str, str]:
    """Check a keyspace, or create it with what is `fixed` for ever; return what its creation fixed. A keyspace that may
    be created later is checked now for all that creation would refuse.
    """
    replicas = replicas_given(session.url)
    datacenter, nodes = check_nodes(session, settings)
    made, replication = _is_made(session), _replication(session)
    if replication and (made or settings.schema == "create"):
        _check_replication(session, settings, datacenter)
    elif settings.schema == "create":
        check_replicas(settings, replicas, new=True)
        check_room(replicas, nodes)
    if not made:
        if not create:
            raise _no_schema(session)
        if not replication:
            session.alter(statement(_PACKAGE, "create_keyspace", session.keyspace), {"replicas": replicas})
        _create(session, fixed, lock_s)
    check_schema("store", _done(session), _steps(session), _columns(session), _declared(session))
    return _settings(session)


def check_keyspace(session: Session, settings: Settings) -> None:
    """Refuse a keyspace of a user's that could lose what it acknowledged, or whose nodes are too old for groups."""
    datacenter, _ = check_nodes(session, settings, TARGET_VERSION_LEAST)
    _check_replication(session, settings, datacenter)


def describe_keyspace(session: Session) -> Description:
    """Describe a keyspace, also one whose schema is older or newer than this program's."""
    if not _is_made(session):
        raise _no_schema(session)
    return Description(
        [step.name for step in _done(session)], [step.name for step in _steps(session)], _settings(session)
    )


def upgrade_keyspace(session: Session) -> list[str]:
    """Do the missing steps; return their names."""
    if not _is_made(session):
        raise _no_schema(session)
    with _locked(session, LOCK_S) as lock:
        missing = missing_steps("store", _done(session), _steps(session))
        _do(session, lock, missing)
        _fix(session, {_VERSION: str(len(_done(session)))})
    return [step.name for step in missing]


def roles_of(keyspace: str, prefix: str) -> str:
    """Return the statements that make the roles of a store and give them their rights, with their comments."""
    text = written(_PACKAGE, "roles", keyspace)
    for role in ROLES:
        text = text.replace(f"{{{role}}}", f'"{prefix}_{role}"')
    return text


# ---------------------------------------------------------------- creating


def _create(session: Session, fixed: Mapping[str, str], lock_s: float) -> None:
    for text in script(_PACKAGE, "foundation", session.keyspace):
        session.alter(text)
    with _locked(session, lock_s) as lock:
        stored = _settings(session)
        if _VERSION in stored:
            return  # another process did it while this one waited
        _do(session, lock, missing_steps("store", _done(session), _steps(session)))
        lock.beat()
        _fix(session, {name: value for name, value in fixed.items() if name not in stored})
        _fix(session, {_VERSION: str(len(_steps(session)))})


def _do(session: Session, lock: SchemaLock, missing: list[SchemaStep]) -> None:
    numbers = {step.name: nr for nr, step in enumerate(_steps(session), 1)}
    for step in missing:
        rows: Iterable[Any] | None = None
        for text in parts(step.script):
            lock.beat()
            own = named(text, session.keyspace)
            if text.startswith("SELECT"):
                rows = session.each_row(own)
            elif rows is not None:
                _change_rows(session, lock, own, rows)
                rows = None
            elif not _is_added(session, text):
                session.alter(own)
        _rows(session, "record_step", (numbers[step.name], step.name, step.additive))


def _is_added(session: Session, text: str) -> bool:
    """Return whether a step that was killed has added a column already: `IF NOT EXISTS` came with Cassandra 4.1."""
    match = _ADDED.fullmatch(text)
    if match is None:
        return False
    table, column, _ = match.groups()
    return any(name == column for name, *_ in _columns(session).get(table, ()))


def _change_rows(session: Session, lock: SchemaLock, text: str, rows: Iterable[Any]) -> None:
    for nr, row in enumerate(rows, 1):
        session.change(text, row)
        if nr % ROWS_A_BEAT == 0:
            lock.beat()


def _fix(session: Session, texts: Mapping[str, str]) -> None:
    for name, value in texts.items():
        _rows(session, "fix_setting", (name, value))


class SchemaLock:
    """The right to alter a schema, proved again before each step."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._holder = uuid.uuid4().hex
        self._beat = 0

    def take(self, lock_s: float) -> None:
        """Wait for the lock, and take it over if its holder does nothing for `lock_s`."""
        seen: tuple[Any, Any] | None = None
        since = time.monotonic()
        give_up = since + 10 * lock_s
        while True:
            rows = _rows(self._session, "lock")
            holder, beat = rows[0] if rows else (None, None)
            now = time.monotonic()
            if (holder, beat) != seen:
                seen, since = (holder, beat), now
            if holder is None or now - since >= lock_s:
                self._beat = (beat or 0) + 1
                if self._set(holder, beat):
                    return
            elif now > give_up:
                raise Unavailable(
                    "another process alters the schema", code="timeout", hint="wait until it is done, then try again"
                )
            time.sleep(0.05)

    def beat(self) -> None:
        """Renew the lock; `Unavailable.serialization` if another process took it over."""
        self._beat += 1
        if not self._set(self._holder, self._beat - 1):
            raise Unavailable(
                "another process took over the change of the schema", code="serialization", hint="start again"
            )

    def free(self) -> None:
        """Release the lock."""
        self._session.conditional("free_lock", (self._holder,), package=_PACKAGE)

    def _set(self, holder: str | None, beat: int | None) -> bool:
        return self._session.conditional("take_lock", (self._holder, self._beat, holder, beat), package=_PACKAGE)


@contextmanager
def _locked(session: Session, lock_s: float) -> Iterator[SchemaLock]:
    lock = SchemaLock(session)
    lock.take(lock_s)
    try:
        yield lock
    finally:
        lock.free()


# ---------------------------------------------------------------- comparing


def _rows(session: Session, name: str, values: tuple[Any, ...] = ()) -> list[Any]:
    return session.rows(name, values, package=_PACKAGE)


def _replication(session: Session) -> list[Any]:
    return _rows(session, "keyspaces", (session.keyspace,))


def _is_made(session: Session) -> bool:
    return bool(_replication(session)) and "setting" in _columns(session) and _VERSION in _served_settings(session)


def _served_settings(session: Session) -> dict[str, str]:
    give_up = time.monotonic() + SERVED_S
    while True:
        try:
            return _settings(session)
        except (SchemaMismatch, Unavailable):  # the node does not know the table yet, or has no files for it
            if time.monotonic() > give_up:
                raise
        time.sleep(0.05)


def _settings(session: Session) -> dict[str, str]:
    return dict(_rows(session, "settings"))


def _done(session: Session) -> list[StepDone]:
    return [StepDone(name, bool(additive)) for name, additive in _rows(session, "steps_done")]


def _steps(session: Session) -> Sequence[SchemaStep]:
    """Return the store's own steps, then those of views in other packages, with the package before each name."""
    return steps_of(_STEPS, session.packages, "cql")


def _check_replication(session: Session, settings: Settings, datacenter: str) -> None:
    replication, durable = _replication(session)[0]
    check_replicas(settings, replicas_of(dict(replication), datacenter), durable=bool(durable))


def _columns(session: Session) -> Columns:
    found: dict[str, set[tuple[object, ...]]] = {}
    for table, *column in _rows(session, "columns", (session.keyspace,)):
        found.setdefault(table, set()).add(tuple(column))
    return found


def _declared(session: Session) -> Columns:
    """Return the columns that the steps make, read from their text: name, type, kind and position in the key."""
    foundation = [text.replace('"keyspace"', "keyspace") for text in script(_PACKAGE, "foundation", "keyspace")]
    found: dict[str, set[tuple[object, ...]]] = {}
    for text in [*foundation, *[part for step in _steps(session) for part in parts(step.script)]]:
        if match := _ADDED.fullmatch(text):
            table, column, type_ = match.groups()
            found[table].add((column, type_, "regular", -1))
        elif match := _TABLE.fullmatch(text):
            table, body, partition, clustering = match.groups()
            keys = {name: ("partition_key", at) for at, name in enumerate(partition.split(", "))}
            keys |= {name: ("clustering", at) for at, name in enumerate(filter(None, clustering.split(", ")))}
            columns = [column.split() for column in body.split(", ")]
            found[table] = {(name, type_, *keys.get(name, ("regular", -1))) for name, type_ in columns}
    return found


def _no_schema(session: Session) -> SchemaMismatch:
    return SchemaMismatch(
        f"keyspace {session.keyspace} has no store", code="no_schema", hint=NO_JOURNAL,
        keyspace=session.keyspace,
    )  # fmt: skip
