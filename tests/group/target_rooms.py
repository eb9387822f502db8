"""Databases of users that steps run on: how tests make, look at and change them from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import apsw

from strandline.group.statements import parse, plan
from strandline.group.statements.api import Plan
from strandline.group.target import (
    CellTarget,
    Done,
    Failed,
    Limits,
    NotUndone,
    OnConflict,
    Owner,
    Ran,
    Segment,
    StepId,
    TargetStep,
    Undone,
    Wrote,
)
from strandline.group.targets.sql import SqlSteps
from strandline.group.targets.sqlite import SqliteTarget
from strandline.urls import urls_of


class Room(Protocol):
    """A database, seen from outside: what another program of the user's would do."""

    dialect: Any
    target: SqlSteps

    def execute(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    def close(self) -> None: ...


class SqliteRoom:
    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outside = apsw.Connection(str(path))
        self.outside.pragma("journal_mode", "wal")
        self.outside.pragma("foreign_keys", True)
        self.outside.set_busy_timeout(5000)
        self.target: SqlSteps = SqliteTarget(path)

    def execute(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return list(self.outside.execute(text, tuple(values)))

    def again(self) -> SqlSteps:
        """The same database, opened once more."""
        return SqliteTarget(self.path)

    def another(self) -> Callable[[str], object]:
        """Another program, which executes what it is given."""
        connection = apsw.Connection(str(self.path))
        connection.set_busy_timeout(5000)
        return lambda text: list(connection.execute(text))

    def close(self) -> None:
        self.target.close()  # type: ignore[attr-defined]
        self.outside.close()


class PostgresRoom:
    dialect = "postgres"

    def __init__(self, url: str, *, empty: bool = True) -> None:
        import psycopg

        from strandline.group.targets.postgres import PostgresTarget

        self.place = url
        self.url = urls_of(log=url, store=url).store
        self.outside = psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor, prepare_threshold=None)
        if empty:
            self.outside.execute("DROP SCHEMA IF EXISTS public, strandline CASCADE")
            self.outside.execute("CREATE SCHEMA public")
        self.made = PostgresTarget
        self.target: SqlSteps = PostgresTarget(self.url)

    def execute(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self.outside.execute(text, tuple(values))
        return cursor.fetchall() if cursor.description else []

    def again(self, **more: Any) -> SqlSteps:
        return self.made(self.url, **more)

    def another(self) -> Callable[[str], object]:
        import psycopg

        def execute(text: str) -> None:
            with psycopg.connect(self.place, autocommit=True) as connection:
                connection.execute(text.encode())

        return execute

    def close(self) -> None:
        self.target.close()  # type: ignore[attr-defined]
        self.outside.close()


def opened(kind: str, place: str) -> Any:
    """In another process: a room as it is."""
    return SqliteRoom(Path(place)) if kind == "sqlite" else PostgresRoom(place, empty=False)


def put_back(target: CellTarget, writes: Sequence[Wrote], on_conflict: OnConflict, now: int) -> Undone | NotUndone:
    """Undo these writes of one group on a target without transactions."""
    rows = target.rows_written(writes)
    return target.put_back(rows, Limits(), on_conflict, now=now, over=lambda time: time + 1)


class Stage:
    """A target with an owner, on which steps run one after the other."""

    def __init__(self, room: Any, fence: int = 1) -> None:
        self.room = room
        self.target = room.target
        self.owner: Owner = self.target.own("history", "default", shared=False)
        self.fence = fence
        self.target.raise_fence(self.owner, fence)
        self.segments: dict[str, Segment] = {}
        """Of one step each."""
        self.again = False
        """Whether the last one that was run had been done before."""

    def plan(self, text: str) -> Plan:
        statement = parse(text, self.room.dialect)
        return plan(statement, self.target.tables(statement.tables))

    def segment(self, text: str, values: Mapping[str, Any] | None = None, **more: Any) -> Segment:
        made = more.pop("plan", None) or self.plan(text)
        assert not made.problems, made.problems
        assert not made.obstacles or more.get("undo") is False, made.obstacles
        name = more.pop("step", f"s{len(self.segments)}")
        found = Segment(StepId("g", 1, "hash", name), (TargetStep(name, made, values or {}, **more),), self.fence)
        self.segments[name] = found
        return found

    def ran(self, segment: Segment, owner: Owner | None = None) -> Done | Failed:
        found = self.target.run_segment(owner or self.owner, segment)
        if isinstance(found, Ran):
            self.again = found.again
            return found.done[segment.steps[0].name]
        return found._replace(step="")

    def run(self, text: str, values: Mapping[str, Any] | None = None, **more: Any) -> Done | Failed:
        return self.ran(self.segment(text, values, **more))

    def done(self, text: str, values: Mapping[str, Any] | None = None, **more: Any) -> Done:
        found = self.run(text, values, **more)
        assert isinstance(found, Done), found
        return found

    def undo(self, step: str | None = None, on_conflict: OnConflict = "fail", *, told: str = "") -> Undone | NotUndone:
        name = step or list(self.segments)[-1]
        segment = self.segments[name]._replace(fence=self.fence)
        return self.target.undo_segment(self.owner, segment, on_conflict, {name: told or None})[name]

    def undo_all(self) -> None:
        for step in reversed(self.segments):
            found = self.undo(step)
            assert isinstance(found, Undone), found

    def rows(self, text: str, values: Mapping[str, Any] | None = None, limits: Limits | None = None) -> Any:
        return self.target.query(self.plan(text), values or {}, limits or Limits())
