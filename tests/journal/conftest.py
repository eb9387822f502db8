"""Whether the tests of a module closed the journals that they opened.

A journal that has appended has threads of its own. They end with it, whoever forgets to close it, but not before it is
collected; until then they slow down everything else that the process does.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

NAMES = {"strandline-committer", "strandline-futures"}
END_S = 20.0


def committers() -> set[threading.Thread]:
    """The threads of journals that are open."""
    return {thread for thread in threading.enumerate() if thread.name in NAMES}


@pytest.fixture(scope="module", autouse=True)
def closed_journals() -> Iterator[None]:
    """Nothing that a module's tests opened is open after it; what is shared by modules was there before."""
    before = committers()
    yield
    left = committers() - before
    if left:
        gc.collect()  # what was closed may still end, and what nobody holds is collected
        for thread in left:
            thread.join(END_S / len(left))
        left = {thread for thread in left if thread.is_alive()}
    assert not left, f"{len(left)} threads of journals that were left open: close what a test opens"
