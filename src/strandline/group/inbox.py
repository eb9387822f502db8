"""The inbox of a stream: answers, acks, cancels and resolves for its groups, from any process.

Only the processor takes them out: each goes into its group's history, then it acts, then it is deleted. One that has to
wait holds back none of the others; a restart finds it again, and with it those behind it that were heard: hearing twice
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from strandline.group.names import inbox_key
from strandline.group.points import reached
from strandline.journal.journal import Journal

Message = Mapping[str, Any]
"""What came: its type, when (`at`, µs, by the log's clock), and the rest."""


class Inbox:
    """As one processor reads it."""

    def __init__(self, journal: Journal, stream: str) -> None:
        self._journal, self._key = journal, inbox_key(stream)
        head = journal.head(self._key)
        self._to = 0 if head is None else head.delete_to
        self._heard: set[int] = set()
        """Messages above that which were heard."""
        self.waiting = False
        """Whether there are messages that could not act yet."""

    def messages(self) -> list[tuple[int, Message]]:
        """All that is not deleted, with its number."""
        read = self._journal.read(self._key, from_=self._to + 1)
        return [(event.seq_nr, {"type": event.type, "at": event.timestamp, **event.payload}) for event in read]

    def hear(self, act: Callable[[Message], bool]) -> None:
        """Let each message act that did not; `act` says whether it has, or has nothing to act on."""
        self.waiting = False
        for seq_nr, message in self.messages():
            if seq_nr in self._heard or act(message):
                self._heard.add(seq_nr)
            else:
                self.waiting = True
        heard = self._to
        while heard + 1 in self._heard:
            heard += 1
        if heard > self._to:
            reached("inbox.copied")
            self._journal.delete_reserved(self._key, to=heard)
            self._heard = {seq_nr for seq_nr in self._heard if seq_nr > heard}
            self._to = heard
