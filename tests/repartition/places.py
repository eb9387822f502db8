"""Where the logs of a journal are, one after the other."""

from __future__ import annotations

from typing import Any

import strandline
from strandline.connect import Strandline
from strandline.repartition import repartition
from tests.backup.conftest import Journals


def pair_of(place: dict[str, Any]) -> dict[str, Any]:
    """The URLs of log and store, also where one URL names both."""
    if "url" not in place:
        return place
    url = place["url"]
    if url.startswith("sqlite:"):
        return {"log": f"{url}/log.db", "store": f"{url}/store.db"}
    return {"log": url, "store": url}


class Place:
    """A journal that changes its log now and then."""

    def __init__(self, journals: Journals, partitions: int, name: str = "here", **settings: Any) -> None:
        self.journals, self.settings, self.changes = journals, settings, 0
        self.where = journals.place(name)
        strandline.connect(**self.where, partitions=partitions).close()
        self.where = pair_of(self.where)

    def connect(self) -> Strandline:
        return strandline.connect(**self.where, **self.settings)

    def another_log(self) -> str:
        """The URL of a log that is not there yet."""
        self.changes += 1
        if self.where["log"].startswith("sqlite:"):
            return f"sqlite:{self.journals.folder}/log-{self.changes}.db"
        return str(pair_of(self.journals.place(f"log-{self.changes}"))["log"])

    def repartition(self, partitions: int, to: str | None = None) -> None:
        """Change the log; what connects next is beside the new one."""
        to = to or self.another_log()
        repartition(partitions, to, **self.where)
        self.where = {**self.where, "log": to}


def seq_nr(s: Strandline, key: str) -> int:
    """The number of a key's last event."""
    head = s.journal.head(key)
    return head.seq_nr if head is not None else 0
