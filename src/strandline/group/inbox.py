"""The inbox of a stream: answers, acks, cancels and resolves for its groups, from any process.

Only the processor takes messages out. Each goes into its group's history, then acts, then is deleted. A message that
has to wait delays only the deletion of later ones, not their effect. After a restart the processor reads it again
together with the later ones; to act twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from strandline.group.names import inbox_key
from strandline.group.points import reached
from strandline.journal.journal import Journal

Message = Mapping[str, Any]
"""A message that came: its type, its time (`at`, µs, by the log's clock), and the rest."""


class Inbox:
    """The inbox as one processor reads it: each message once, however long one of them waits."""

    def __init__(self, journal: Journal, stream: str) -> None:
        self._journal, self._key = journal, inbox_key(stream)
        self._deleted_to = self._read_to = -1
        """-1 before the first look."""
        self._waiting: dict[int, Message] = {}

    @property
    def waiting(self) -> bool:
        """Return whether there are messages that have not acted yet."""
        return bool(self._waiting)

    def is_empty(self) -> bool:
        """Return whether every message that came has acted."""
        head = self._journal.head(self._key)
        return not self._waiting and (head is None or head.seq_nr <= self._read_to)

    def hear(self, act: Callable[[Message], bool]) -> None:
        """Let each message act that has not yet. `act` returns whether the message has acted, or
        has nothing to act on.
        """
        if self._read_to < 0:
            head = self._journal.head(self._key)
            self._deleted_to = self._read_to = 0 if head is None else head.delete_to
        for seq_nr, message in list(self._waiting.items()):
            if act(message):
                del self._waiting[seq_nr]
        for event in self._journal.read(self._key, from_=self._read_to + 1):
            message = {"type": event.type, "at": event.timestamp, **event.payload}
            if not act(message):
                reached("group.message_waits")
                self._waiting[event.seq_nr] = message
            self._read_to = event.seq_nr
        heard = min(self._waiting, default=self._read_to + 1) - 1
        if heard > self._deleted_to:
            reached("inbox.copied")
            self._journal.delete_reserved(self._key, to=heard)
            self._deleted_to = heard
