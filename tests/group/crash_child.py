"""Groups that come to every named point, and a process that ends at one: `crash_child.py JOURNAL SHOP POINT TIME`.

The same statements run on SQLite, PostgreSQL and Cassandra.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import sleep
from typing import Any

import strandline
from strandline.group import mail
from strandline.group.checks import ask, is_true
from strandline.group.core.parts import Dep, Handler, Hook, Recipe
from strandline.group.definition import Group
from strandline.group.groups import Groups
from strandline.group.lease import StreamLease
from strandline.group.open_targets import Target
from strandline.testing.points import POINTS, at, kill_at
from strandline.work.declaration import WorkDeclaration
from strandline.work.worker import Worker

HANDLERS: dict[str, Any] = {
    "price": lambda message: {"value": 5},
    "yes": lambda message: {"value": True},
    "no": lambda message: {"value": False},
    "hook": lambda message: None,
    "undo": lambda message: None,
}
BOX = WorkDeclaration("prices", key=mail.KEY, data=mail.DATA, poll_s=0.05, lease_s=0.5)
TABLES = (
    "CREATE TABLE account (id int PRIMARY KEY, name text, amount int)",
    "CREATE TABLE note (id text PRIMARY KEY)",
)
ENDS = {
    "plain-good": "committed", "asks-good": "committed", "mail-good": "committed", "last-good": "committed",
    "plain-bad": "rolled_back", "asks-bad": "rolled_back", "refused-bad": "rolled_back",
}  # fmt: skip
CELLS_ALONE = {"step.written", "undo.sent"}
SQL_ALONE = {"void.done", "fence.raised"}


def points_of(shop: str) -> set[str]:
    """The points that there are on a target."""
    return set(POINTS) - (SQL_ALONE if shop.startswith("cassandra") else CELLS_ALONE)


def _read(g: Group, name: str, id_: int, more: int, *, by: str = "", **depends: Any) -> Dep:
    """Read an account; what its new amount is."""
    text = f"SELECT amount FROM account WHERE id = {id_}"
    new = Recipe(f"{name}_new", expression=f"amount + {by or more}")
    g.query(name, text, target="shop", recipes=[new], **depends)
    return Dep(name, f"{name}_new")


def _set(g: Group, name: str, id_: int, new: Dep, **more: Any) -> None:
    text = f"UPDATE account SET amount = :{new.recipe}.value WHERE id = {id_}"
    g.update(name, text, target="shop", depends_on=[new], **more)


def group(id_: str, shop: str) -> Group:
    """Money from account 1 to 2, and a note; with handlers, hooks, mail or a last word, where its name says so."""
    kind, _, end = id_.partition("-")
    fails, asks = end == "bad", kind == "asks"
    g = Group(id_, post_hook=Hook("hook") if asks else None)
    handler = {"asks": "price", "mail": "work:prices"}.get(kind)
    quote: dict[str, Any] = {}
    if handler is not None:
        g.empty("quote", recipes=[Recipe("price", handler=handler, timeout_s=30)])
        quote = {"depends_on": [Dep("quote", "price")]}
    take = _read(g, "old1", 1, -5, by="0 - :price.value" if handler else "", **quote)
    _set(g, "take", 1, take, pre_hook="hook" if asks else None)
    give = _read(g, "old2", 2, 5, depends_on=["take"])
    _set(g, "give", 2, give)
    text = f"INSERT INTO note (id) VALUES ('{'there' if kind == 'refused' else id_}')"
    if kind == "refused" and shop.startswith("cassandra"):
        text += " IF NOT EXISTS"
    g.insert("note", text, target="shop", depends_on=["give"], irreversible=kind == "last")
    if kind == "last":
        return g
    g.update("mark", "UPDATE account SET name = 'undone' WHERE id = 3", target="shop", is_rollback=True)
    last = [ask("no" if fails else "yes")] if asks else [is_true("1 = 2" if fails else "1 = 1")]
    undo = Handler("undo") if asks else None
    g.empty("last", depends_on=["note"], checks=last, execute_on_failure=["mark"], undo=undo)
    if fails:
        g.update("never", "UPDATE account SET amount = 1 WHERE id = 3", target="shop", depends_on=["last"])
    return g


def groups_of(s: strandline.Strandline, shop: str) -> Groups:
    return s.groups(targets={"shop": Target(shop, shared=shop.startswith("cassandra"))}, handlers=HANDLERS, lease_s=1)


@contextmanager
def answering(s: strandline.Strandline, groups: Groups) -> Iterator[None]:
    """Somebody who answers what comes by mail."""
    s.work(BOX)
    worker = Worker(s, {"prices": groups.answering(HANDLERS["price"])})
    thread = Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(30)


def run_all(s: strandline.Strandline, shop: str) -> Groups:
    """Submit all that is not there yet, and run until nothing is left."""
    groups = groups_of(s, shop)
    with answering(s, groups):
        for id_ in ENDS:
            groups.submit(group(id_, shop))
        groups.processor().run_until_idle()
    return groups


def stop(go: str) -> None:
    """Stand still until a file is there, and let the lease's beat do so: as a process that is stopped, but that none of
    its threads is stopped inside a transaction of SQLite (others would wait for that). When it goes on, what it does
    next is as good as sent: it asks no clock before."""
    beat, still = StreamLease._beat, Event()

    def waiting(self: StreamLease, **more: Any) -> None:
        still.wait(60)
        beat(self, **more)

    StreamLease._beat = waiting  # type: ignore[method-assign]
    Path(f"{go}.there").touch()
    while not Path(go).exists():
        sleep(0.01)
    StreamLease.check = lambda self: None  # type: ignore[method-assign]
    still.set()


def main(journal: str, shop: str, point: str, time: str, go: str = "") -> None:
    if go:
        at(point, lambda: stop(go), int(time))
    else:
        kill_at(point, int(time))
    with strandline.connect(journal, accept_power_loss=shop.startswith("cassandra")) as s:
        run_all(s, shop)


if __name__ == "__main__":
    main(*sys.argv[1:])
