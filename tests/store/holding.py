"""A process that holds the lease of a Cassandra store until it is killed: python -m tests.store.holding URL LEASE_S."""

from __future__ import annotations

import signal
import sys

from strandline.urls import urls_of
from tests.store.keyspaces import open_store

if __name__ == "__main__":
    store = open_store(urls_of(log="memory:", store=sys.argv[1]).store, lease_s=float(sys.argv[2]))
    store.lease().take("the one that is killed")
    sys.stdout.write("held\n")
    sys.stdout.flush()
    signal.pause()
