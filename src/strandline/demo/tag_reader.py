"""A live query by tag beside the writers: what it shows, and whether that is each event once and in order."""

from __future__ import annotations

import threading
from itertools import pairwise

from strandline.connect import Strandline
from strandline.errors import StrandlineError
from strandline.query.tag_offset import TagOffset
from strandline.testing.shop.checker import Finding

END_S_MAX = 30.0


class TagReader:
    """Follows a tag in a thread of its own, from the beginning, until it is told to end."""

    def __init__(self, s: Strandline, tag: str) -> None:
        self.tag = tag
        self._s = s
        self._shown: list[TagOffset] = []
        self._error: StrandlineError | None = None
        self._events = s.by_tag(tag, live=True)
        self._thread = threading.Thread(target=self._follow, name="by-tag", daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """Return how many events it has shown."""
        return len(self._shown)

    def _follow(self) -> None:
        try:
            for event in self._events:
                self._shown.append(event.offset)
        except StrandlineError as error:
            self._error = error

    def end(self) -> list[Finding]:
        """Let it come to what is in the store now, and compare; what is wrong."""
        left: list[TagOffset] = []
        try:
            left.extend(event.offset for event in self._s.by_tag(self.tag, gap_timeout_s=1))
        except StrandlineError as error:
            self._error = self._error or error
        waited = threading.Event()
        for _ in range(int(END_S_MAX / 0.1)):
            if not left or self._error is not None or left[-1] in self._shown[-1:]:
                break
            waited.wait(0.1)
        self._events.close()
        self._thread.join(END_S_MAX)
        wrong = []
        if self._error is not None:
            wrong.append(Finding("lost", f"tag {self.tag}", f"stopped: {self._error.message}"))
        missing = set(left) - set(self._shown)  # what was purged meanwhile was shown, and is gone
        if missing:
            wrong.append(Finding("lost", f"tag {self.tag}", f"did not show {len(missing)} events"))
        if any(not one < other for one, other in pairwise(self._shown)):
            wrong.append(Finding("reordered", f"tag {self.tag}", "showed events twice or out of order"))
        return wrong
