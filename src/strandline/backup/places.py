"""Places: the databases of a journal, in the order in which they are copied; and the back-ends that have no backup
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from strandline.backends import backend_of
from strandline.connect import parts
from strandline.errors import SchemaMismatch, Unsupported
from strandline.settings import Settings
from strandline.sql.api import Part
from strandline.urls import Url, Urls, identity

ORDER: Final = ("projections", "work", "store", "log")
"""The order of copies. A part is copied before the part that it reads from: so a copied log has every action that the
other copies depend on.
"""
MUST_BE: Final = ("log", "store")
_INSTEAD: Final[Mapping[str, str]] = {
    "kafka": "copy the topic with Kafka's own tools (MirrorMaker, tiered storage); a topic is another log, so a new, "
    "empty store is filled from it by `strandline pipeline run --create`",
    "cassandra": "take nodetool snapshots of all nodes, of a time before the log's copy, and put back all or none of "
    "them; `strandline doctor` tells whether store and log belong together",
    "memory": "it ends with its process; record into sqlite: or postgresql: what must be kept",
}
"""The hint for each back-end that Strandline cannot back up."""


class JournalDatabase(NamedTuple):
    """A database, and the parts of a journal that are in it."""

    url: Url
    parts: Mapping[str, Part]
    """The parts by their names in `Urls`."""

    def __str__(self) -> str:
        return f"{' and '.join(self.parts)} in {self.url}"


def places_of(urls: Urls) -> list[JournalDatabase]:
    """Return the databases of a journal, in the order in which they are copied; parts in one database are copied at
    once.

    `Unsupported.backup` for a part that is not in an SQL database.
    """
    named = {kind: url for kind, url in urls._asdict().items() if url is not None}
    for kind, url in named.items():
        if url.scheme in _INSTEAD:
            raise Unsupported(
                f"{kind}: there is no backup of {url.scheme}",
                code="backup",
                hint=_INSTEAD[url.scheme],
                scheme=url.scheme,
            )
    found: dict[object, tuple[Url, list[str]]] = {}
    for kind in ORDER:
        if kind in named:
            found.setdefault(identity(named[kind]), (named[kind], []))[1].append(kind)
    known = parts()
    made = [JournalDatabase(url, {kind: known[kind] for kind in kinds}) for url, kinds in found.values()]
    # the database's turn is that of its last part
    return sorted(made, key=lambda place: max(map(ORDER.index, place.parts)))


def there(place: JournalDatabase, settings: Settings) -> JournalDatabase:
    """Return the place with only those parts that exist there."""
    backend = backend_of(place.url)

    def is_there(part: Part) -> bool:
        try:
            backend.describe(place.url, part, settings)
        except SchemaMismatch as error:
            if error.code != "no_schema":
                raise
            return False
        return True

    return JournalDatabase(place.url, {kind: part for kind, part in place.parts.items() if is_there(part)})
