"""The objects that the console of one server uses: its journal, an hour's history, and open groups
and work journals.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.errors import InvalidInput, NotFound
from strandline.group.groups import Groups
from strandline.server.console.history import StatusHistory
from strandline.values.heads import SEQ_NR_MAX
from strandline.work.journal import WorkJournal

if TYPE_CHECKING:
    from strandline.connect import Strandline


class ConsoleDesk:
    """The console's objects of one server. Any number of threads may use them."""

    def __init__(self, s: Strandline, groups: Mapping[str, Groups], *, show_payloads: bool) -> None:
        """`show_payloads`: whether pages show payloads, rows and data without being asked to."""
        self.s, self.show_payloads = s, show_payloads
        self.history = StatusHistory(s)
        self._groups = dict(groups)
        self._work: dict[str, WorkJournal] = {}
        self._opening = Lock()

    def groups(self, stream: str) -> Groups:
        """Return the groups of a stream: those that the server was given; for other streams groups without targets, to
        show and to act on.
        """
        with self._opening:
            if stream not in self._groups:
                if not any(one.stream == stream for one in self.s.streams()):
                    raise NotFound(f"there is no stream {stream!r:.220}", code="group", hint="see the list of streams")
                self._groups[stream] = self.s.groups(stream)
            return self._groups[stream]

    def work(self, name: str) -> WorkJournal:
        """Return an existing work journal."""
        with self._opening:
            if name not in self._work:
                self._work[name] = self.s.work(name)
            return self._work[name]


class PageQuery(NamedTuple):
    """The values that a page was asked with, and the caller's rights."""

    values: Mapping[str, str]
    """The values of the path and the query string."""
    payloads: bool
    """Whether payloads, rows and data are shown."""
    admin: bool
    """Whether the token may act, and see the record of acts."""

    def get(self, name: str) -> str:
        """Return a value; "" for one that was not given."""
        return self.values.get(name, "")


Found = dict[str, Any]
"""What a template is rendered with."""


def whole(values: Mapping[str, Any], name: str) -> int:
    """Return a value that is a whole number."""
    try:
        found = int(values[name])
        if not 0 <= found <= SEQ_NR_MAX:
            raise ValueError(found)
        return found
    except (KeyError, TypeError, ValueError):
        raise InvalidInput(
            f"{name}: not a whole number; allowed 0..2^63-1", code="option", hint="give a number", field=name
        ) from None
