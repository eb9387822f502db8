"""Metrics for Prometheus: counters and times of this process's calls, and the state of a journal, read at each scrape.

    from strandline import metrics

    counted = metrics.start(s)              # counts from here on; with `s` each scrape also reads that journal's state
    counted.serve(9464)                     # http://127.0.0.1:9464/metrics, or:
    body, kind = counted.text()             # to answer from your own server
    counted.stop()                          # removes all of it

Before `start` nothing is measured, and a call costs nothing extra. It needs the extra `metrics` (prometheus_client).
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
    """Count and time the calls of this process from here on, in a new registry or in the given one.

    With a connection `s` each scrape also looks at that journal, as `s.status()` does. `Unsupported.not_installed`
    without the extra `metrics`.
    """
    extras.check("metrics", "prometheus_client")
    from strandline.metrics.started import Metrics

    return Metrics(s, registry)
