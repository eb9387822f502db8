"""A process that runs groups of transfers, and ends at a named point: `crash_child.py JOURNAL SHOP POINT TIME`."""

from __future__ import annotations

import sys
from typing import Any

import strandline
from strandline.group.checks import ask, is_true
from strandline.group.core.parts import Dep, Handler, Hook, Recipe
from strandline.group.definition import Group
from strandline.testing.points import kill_at
from tests.group.worlds import update

HANDLERS: dict[str, Any] = {
    "price": lambda message: {"value": 5},
    "yes": lambda message: {"value": True},
    "no": lambda message: {"value": False},
    "hook": lambda message: None,
    "undo": lambda message: None,
}


def group(id_: str, *, fails: bool, asks: bool = True) -> Group:
    """Three writes in a chain on accounts 1 and 2, with a handler, a hook and a last word."""
    g = Group(id_, post_hook=Hook("hook") if asks else None)
    if asks:
        g.empty("quote", recipes=[Recipe("price", handler="price")])
    g.update(
        "take", f"UPDATE account SET amount = amount - {':price.value' if asks else '5'} WHERE id = 1", target="shop",
        depends_on=[Dep("quote", "price")] if asks else [], pre_hook="hook" if asks else None,
    )  # fmt: skip
    update(g, "give", 2, 5, depends_on=["take"])
    g.insert("note", f"INSERT INTO note VALUES ('{id_}')", target="shop", depends_on=["give"])
    g.update(
        "mark", "UPDATE account SET name = 'undone' WHERE id = 3", target="shop", is_rollback=True
    )  # fmt: skip
    last = [ask("no" if fails else "yes")] if asks else [is_true("1 = 2" if fails else "1 = 1")]
    g.empty(
        "last", depends_on=["note"], checks=last, execute_on_failure=["mark"], undo=Handler("undo") if asks else None
    )
    if fails:
        update(g, "never", 3, 1, depends_on=["last"])
    return g


def groups_of(s: strandline.Strandline, shop: str) -> Any:
    return s.groups(targets={"shop": shop}, handlers=HANDLERS, lease_s=2)


def main(journal: str, shop: str, point: str, time: str) -> None:
    kill_at(point, int(time))
    with strandline.connect(journal) as s:
        groups = groups_of(s, shop)
        for fails in (False, True):
            for asks in (False, True):
                groups.submit(group(f"g-{fails}-{asks}".lower(), fails=fails, asks=asks))
        groups.processor().run_until_idle()


if __name__ == "__main__":
    main(*sys.argv[1:])
