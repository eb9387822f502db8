"""The targets that a program names. They are opened when needed; this knows their owners and the
schema of their tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Generic, Literal, TypeVar

from strandline.group.statements.api import TargetTable
from strandline.group.target import Owner
from strandline.group.target import TargetDatabase as OpenedTarget

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """The place of a target. `shared`: other streams and writers use it too, and their order is lost."""

    url: str
    consistency: Literal["LOCAL_QUORUM", "ALL"] = "LOCAL_QUORUM"
    shared: bool = False


TargetOpener = Callable[[str, Target], OpenedTarget]


class SharedLook(Generic[T]):
    """A read of something that changes, shared by concurrent callers. Each gets the result of a
    read that began after its call.
    """

    def __init__(self, look: Callable[[], T]) -> None:
        self._look = look
        self._asked = count(1)
        self._newest = self._seen = 0
        self._looking = Lock()
        self._found: Future[T] = Future()

    def now(self) -> T:
        """Return the result, or raise the error, of a read that begins after this call."""
        mine = self._newest = next(self._asked)
        with self._looking:
            if self._seen < mine:
                newest, found = self._newest, Future[T]()
                try:
                    found.set_result(self._look())
                except Exception as error:  # noqa: BLE001 (each of them raises it)
                    found.set_exception(error)
                self._seen, self._found = newest, found
            return self._found.result()


class OpenTargets:
    """Targets of one stream, by name. Any number of threads may use them."""

    def __init__(self, given: Mapping[str, str | Target], open_: TargetOpener, history_id: str, stream: str) -> None:
        self.given = {name: Target(one) if isinstance(one, str) else one for name, one in given.items()}
        self._open, self._history_id, self._stream = open_, history_id, stream
        self._lock = Lock()
        self._opened: dict[str, OpenedTarget] = {}
        self._opening = {name: Lock() for name in self.given}
        self._owners: dict[str, Owner] = {}

    def target(self, name: str) -> OpenedTarget:
        known = self._opened.get(name)
        if known is not None:
            return known
        with self._opening[name]:  # to open a target that is away takes long: others do not wait for it
            if name not in self._opened:
                opened = self._open(name, self.given[name])
                with self._lock:
                    self._opened[name] = opened
            return self._opened[name]

    def owner(self, name: str) -> Owner:
        """Return the row that makes this stream a target's owner. Raises
        `InvalidGroup.target_taken` if another stream owns it.
        """
        target = self.target(name)
        with self._lock:
            known = self._owners.get(name)
        if known is None:
            known = target.own(self._history_id, self._stream, shared=self.given[name].shared)
            with self._lock:
                self._owners[name] = known
        return known

    def tables(self, target: str, names: Iterable[str]) -> Mapping[str, TargetTable]:
        """Return the schema of tables."""
        return self.target(target).tables(list(names))

    def changed_table(self, tables: Mapping[str, Mapping[str, TargetTable]]) -> str | None:
        """Return a table that has changed since a plan was made on it. `tables`: the plan's tables, by target."""
        for target, known in tables.items():
            now = self.tables(target, known)
            for name, table in known.items():
                if now.get(name) != table:
                    return f"{target}.{name}"
        return None

    def close(self) -> None:
        """Let go of all targets. Twice is harmless."""
        with self._lock:
            targets, self._opened, self._owners = list(self._opened.values()), {}, {}
        for target in targets:
            target.close()
