"""Histories as a release wrote them: `python -m tests.group.old_histories tests/group/histories/RELEASE.json.gz`.

Run it once for a release, and never change what it wrote: later programs must come to the same state by it.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from strandline.backends.memory.target import lww
from strandline.group import mail
from strandline.group.checks import affected_rows_equal, ask, is_true, query_check
from strandline.group.core.parts import Dep, Handler, Hook, Recipe
from strandline.group.definition import Group
from strandline.group.history import Entry, folded
from strandline.group.outcome import outcome_of
from strandline.work.declaration import WorkDeclaration
from tests.group.worlds import SqliteShop, World, serving, transfer, update


def groups_of() -> list[Group]:
    """One of each: committed, rolled back, aborted, stuck; with handlers, mail, hooks, checks, pages, and cells."""
    asked = Group("asked", post_hook=Hook("hook"))
    asked.empty("quote", recipes=[Recipe("price", handler="price"), Recipe("twice", expression="1 + 1")])
    text = "UPDATE account SET amount = :price.value WHERE id = 1"
    asked.update("set", text, target="shop", depends_on=[Dep("quote", "price")], checks=[affected_rows_equal(1)])
    mailed = Group("mailed")
    mailed.empty("quote", recipes=[Recipe("price", handler="work:prices", timeout_s=20)])
    bad = Group("bad")
    update(bad, "x", 1, 1, undo="back", checks=[query_check("SELECT COUNT(*) FROM account", {}, "count = 3")])
    bad.update("back", "UPDATE account SET amount = 7 WHERE id = 1", target="shop", is_rollback=True)
    bad.empty("last", depends_on=["x"], checks=[is_true("1 = 2"), ask("yes")], undo=Handler("hook"))
    stuck = Group("stuck")
    update(stuck, "x", 2, 1)
    stuck.empty("last", depends_on=["x"], checks=[ask("meddle")])
    aborted = Group("aborted")
    aborted.query("none", "SELECT amount FROM account WHERE id = 99", target="shop", success="row_count = 1")
    long = Group("long")
    long.update("x", "UPDATE account SET name = :name WHERE id = 3", {"name": "é" * 200_000}, target="shop")
    cells = Group("cells")
    cells.insert("in", "INSERT INTO seat (id, guest) VALUES (1, 'anna')", target="seats")
    cells.update("x", "UPDATE seat SET guest = 'bert' WHERE id = 1", target="seats", depends_on=["in"])
    cells.empty("last", depends_on=["x"], success="1 = 2")
    return [transfer("plain", 1, 2, 10), asked, mailed, bad, aborted, long, cells, stuck]


def state(id_: str, events: list[list[Any]]) -> Any:
    """What a history comes to, as JSON values."""
    history = folded(id_, ((Entry(n, type_, payload), 1, at) for n, (type_, payload, at) in enumerate(events, 1)))
    assert history is not None
    made = outcome_of(history)
    steps = {name: [step.state, step.results, step.affected, step.reason] for name, step in made.steps.items()}
    head = [made.state, made.failed_step, made.reason, made.stream, made.place, made.started, made.ended, history.over]
    images = {step: {what: len(image["rows"]) for what, image in both.items()} for step, both in history.images.items()}
    more = [history.hash, sorted(history.questions), sorted(history.hooks), sorted(history.intents), images]
    return json.loads(json.dumps([head, steps, more], default=str))


def read(file: Path) -> list[Any]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


def write(file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(SqliteShop(Path(folder) / "shop.db"), f"sqlite:{folder}/j")
        lww("old-histories").create("CREATE TABLE seat (id int, guest text, PRIMARY KEY (id))")
        world.s.work(WorkDeclaration("prices", key=mail.KEY, data=mail.DATA, poll_s=0.05))

        def meddle(message: Any) -> dict[str, Any]:
            world.shop.execute("UPDATE account SET amount = 777 WHERE id = 2")
            return {"value": False}

        world.handlers |= {
            "price": lambda message: {"value": 5}, "hook": lambda message: None, "meddle": meddle,
            "yes": lambda message: {"value": True},
        }  # fmt: skip
        groups = world._groups = world.groups(targets={"shop": world.shop.url, "seats": "lww:old-histories"})
        made = groups_of()
        with serving(world, world.handlers["price"]):
            for group in made:
                groups.submit(group)
            groups.processor().run_until_idle()
        found = {group.id: [list(event) for event in groups.history(group.id)] for group in made}
        world.close()
    lines = [json.dumps({"id": id_, "events": events, "state": state(id_, events)}) for id_, events in found.items()]
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
