"""A session of tests: it writes row by row, remembers what it wrote, and dies or does something at a given write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from strandline.backends.cassandra import CqlRequest, Session
from strandline.backends.cassandra.store import CassandraStore
from strandline.testing.faults import crash


class RowByRow:
    """A session whose every row is a write of its own. `before` is called before each, with its number from 0."""

    def __init__(self, session: Session, before: Callable[[int], None]) -> None:
        self._session, self._before = session, before
        self.written: list[tuple[str, Sequence[Any]]] = []
        self.requests: list[CqlRequest] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def write(self, requests: Iterable[CqlRequest]) -> None:
        for request in requests:
            self.requests.append(request)
            for row in request.rows:
                self._pass(request.name, row)
                self._session.write([request._replace(rows=[row])])

    def conditional(self, name: str, values: Sequence[Any], **more: Any) -> bool:
        if name == "set_pointer":  # a lease beats whenever it likes
            self._pass(name, values)
        return self._session.conditional(name, values, **more)

    def _pass(self, name: str, row: Sequence[Any]) -> None:
        self._before(len(self.written))
        self.written.append((name, row))


def row_by_row(store: CassandraStore, before: Callable[[int], None] = lambda number: None) -> RowByRow:
    """Let a store write through such a session from now on."""
    session = RowByRow(store._session, before)
    store._session = cast(Session, session)
    return session


def dies_at(point: int) -> Callable[[int], None]:
    """Dies before the write of this number."""

    def before(number: int) -> None:
        if number == point:
            crash()

    return before
