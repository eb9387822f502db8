"""Metrics for Prometheus: what this process does, counted and timed, and how a journal stands, looked at when asked.

    from strandline import metrics

    counted = metrics.start(s)              # counts from here on; `s`: how that journal stands, at each scrape
    counted.serve(9464)                     # http://127.0.0.1:9464/metrics, or:
    body, kind = counted.text()             # to answer with from a server of one's own
    counted.stop()                          # takes all of it away again

Nothing is measured before `start`, and nothing costs anything. It needs the extra `metrics` (prometheus_client).
`docs/METRICS.md` lists every name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline import extras

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from strandline.connect import Strandline
    from strandline.metrics.started import Metrics

__all__ = ["start"]


def start(s: Strandline | None = None, *, registry: CollectorRegistry | None = None) -> Metrics:
    """Count and time what this process does from here on, in a registry of its own or in the one that is given.

    With a connection `s` each scrape also looks at that journal, as `s.status()` does. `Unsupported.not_installed`
    without the extra `metrics`.
    """
    extras.check("metrics", "prometheus_client")
    from strandline.metrics.started import Metrics

    return Metrics(s, registry)
