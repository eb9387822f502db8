"""The world of a real Kafka log and a real Cassandra store.

Each program has a topic of its own, which costs a tenth of a second. Making the tables of a keyspace takes seconds, so
programs have them one after the other: those that were written to are emptied before the next one.
"""

# ruff: noqa: S608 - names of tables and columns are the own ones of a store
from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final
from uuid import uuid4

from confluent_kafka.admin import AdminClient

from strandline.backends.cassandra import Session
from strandline.backends.cassandra.session import CqlRequest
from strandline.clock import now_us
from strandline.connect import Strandline, connect
from strandline.testing import carry
from strandline.testing.clock import FakeClock
from strandline.testing.faults import Crash
from strandline.testing.prove.servers import Servers
from strandline.testing.prove.worlds import World
from strandline.urls import urls_of

KEYSPACE: Final = "prove"
KEPT: Final = ("schema_step", "lock")
"""Tables of a keyspace that say what it is, and nothing of what is in it."""
TIMEOUT_S: Final = 30
WRITES: Final = (
    "SELECT table_name, count FROM system_views.local_write_latency WHERE keyspace_name = %s ALLOW FILTERING"
)


class ServerClock(FakeClock):
    """The time of this machine, which is the servers' too, moved by what a program says."""

    blurred_us = 1_000_000

    def __init__(self) -> None:
        self._ahead_us = 0

    @property
    def now(self) -> int:
        return now_us() + self._ahead_us

    @now.setter
    def now(self, value: int) -> None:
        self._ahead_us = value - now_us()

    def tick(self) -> None:
        """Time passes by itself; of two writes within a millisecond nobody says which is later."""
        time.sleep(0.002)


class Keyspace:
    """A keyspace whose tables are emptied, those that were written to since. A row is no sign of that: what was deleted
    would still hide what is written with an older timestamp."""

    def __init__(self, servers: Servers, name: str) -> None:
        self.name, self.url = name, f"{servers.url('cassandra')}/{name}?replication=1"
        self.session = Session(urls_of(log="memory:", store=self.url).store, TIMEOUT_S)
        self._seen: dict[str, int] = {}

    def empty(self) -> None:
        """Empty the tables that were written to since."""
        written: dict[str, int] = dict(self.asked(WRITES, (self.name,)))
        for table, count in written.items():
            if count != self._seen.get(table) and table not in KEPT:
                self.session.alter(f"TRUNCATE {self.name}.{table}")
        self._seen = written

    def asked(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows of a query that has no name."""
        return list(self.session._open().execute(query, values, timeout=TIMEOUT_S))

    def close(self) -> None:
        """Let go of it; it goes with its server."""
        self.session.close()


class Topics:
    """A place for topics."""

    def __init__(self, servers: Servers) -> None:
        self.url = servers.url("kafka")
        self._admin = AdminClient({"bootstrap.servers": self.url.removeprefix("kafka://")})

    def drop(self, topic: str) -> None:
        """Remove a topic; the broker does that when it finds time."""
        self._admin.delete_topics([topic])

    def close(self) -> None:
        """End the client now: a garbage collection in its own thread would end the process."""
        self._admin.__exit__(None, None, None)


class KafkaCassandraWorld(World):
    """A topic and a keyspace."""

    transactions = False
    keeps_backups = False

    def __init__(self, settings: dict[str, Any], *, servers: Servers, faulty: bool = True) -> None:
        self._topics = servers.keep("topics", lambda: Topics(servers), Topics.close)
        self._keyspace = servers.keep(KEYSPACE, lambda: Keyspace(servers, KEYSPACE), Keyspace.close)
        self._keyspace.empty()
        self._topic = f"prove-{uuid4().hex[:16]}"
        self._once: set[tuple[Any, ...]] = set()
        super().__init__(settings, faulty=faulty, clock=ServerClock())

    def _open(self) -> Strandline:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # one node has one replica
            return connect(
                log=f"{self._topics.url}/{self._topic}",
                store=self._keyspace.url,
                clock=self.clock,
                accept_power_loss=True,
                **self.settings,
            )

    def kill_carry(self, writes: int, limit: int | None) -> bool:
        lease = self.s.store.lease().take("a task that dies")
        try:
            with self._dying(writes):
                carry(self.s, limit=limit, lease=lease)
        except Crash:
            return True
        finally:
            lease.release()  # it would lapse
            self.new_process(abandoned=True)
        return False

    @contextmanager
    def _dying(self, writes: int) -> Iterator[None]:
        """Within, the process dies before the n-th write of a row."""
        store: Any = getattr(self.s.store, "_target", self.s.store)
        session, write, left = store._session, store._session.write, [writes]

        def row_by_row(requests: Iterable[CqlRequest]) -> None:
            for request in requests:
                for row in request.rows:
                    left[0] -= 1
                    if left[0] < 0:
                        raise Crash
                    write([request._replace(rows=[row])])

        session.write = row_by_row
        try:
            yield
        finally:
            with suppress(AttributeError):
                del session.write

    def backup(self) -> Any:
        return None

    def put_back(self, kept: Any) -> None:
        self.new_process()

    def damage(self, key: str, life: int, seq_nr: int) -> bool:
        place = f"key = %s AND life = %s AND segment = %s AND seq_nr = {seq_nr}"
        query = f"SELECT segment FROM {KEYSPACE}.journal WHERE key = %s AND life = %s AND seq_nr = %s ALLOW FILTERING"
        for (segment,) in self._keyspace.asked(query, (key, life, seq_nr)):
            where = (key, life, segment)
            found = self._keyspace.asked(f"SELECT body, writetime(body) FROM {KEYSPACE}.journal WHERE {place}", where)
            for body, written in found:
                change = f"UPDATE {KEYSPACE}.journal USING TIMESTAMP {written} SET body = %s WHERE {place}"
                self._keyspace.asked(change, (_greater(body), *where))
            return bool(found)
        return False

    def lose(self, table: str, named: dict[str, Any]) -> Callable[[], None] | None:
        """Each row once: at the same time a removal wins, and what is put back is a microsecond younger."""
        if (table, *named.values()) in self._once:
            return None
        self._once.add((table, *named.values()))
        columns = self._columns(table)
        keys = [name for name, kind in columns.items() if kind != "regular"]
        timed = next(name for name, kind in columns.items() if kind == "regular")
        wanted = " AND ".join(f"{name} = %s" for name in named)
        query = (
            f"SELECT {', '.join(columns)}, writetime({timed}) FROM {KEYSPACE}.{table} WHERE {wanted} ALLOW FILTERING"
        )
        for *row, written in self._keyspace.asked(query, tuple(named.values())):
            cells = dict(zip(columns, row, strict=True))
            place = " AND ".join(f"{name} = %s" for name in keys)
            self._keyspace.asked(
                f"DELETE FROM {KEYSPACE}.{table} USING TIMESTAMP {written} WHERE {place}",
                tuple(cells[name] for name in keys),
            )
            again = f"INSERT INTO {KEYSPACE}.{table} ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})"
            return partial(self._put_row, f"{again} USING TIMESTAMP {written + 1}", row)
        return None

    def _put_row(self, insert: str, row: Sequence[Any]) -> None:
        self._keyspace.asked(insert, tuple(row))

    def _columns(self, table: str) -> dict[str, str]:
        query = "SELECT column_name, kind FROM system_schema.columns WHERE keyspace_name = %s AND table_name = %s"
        return dict(self._keyspace.asked(query, (KEYSPACE, table)))

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]] | None:
        if not self._columns(table).keys() >= set(columns):
            return None
        return [tuple(row) for row in self._keyspace.asked(f"SELECT {', '.join(columns)} FROM {KEYSPACE}.{table}")]

    def close(self) -> None:
        super().close()
        self._topics.drop(self._topic)


def _greater(body: bytes) -> bytes:
    """Another body, which stays: of two that were written at the same time Cassandra keeps the greater one."""
    at = next(index for index in reversed(range(len(body))) if body[index] != 0xFF)
    return body[:at] + bytes([body[at] + 1]) + body[at + 1 :]
