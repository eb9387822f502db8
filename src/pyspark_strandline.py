"""Makes `spark.read.format("strandline")` work without a call: Spark looks for modules of this name.

Spark imports every module named `pyspark_…` at its first look-up, so this one must not fail where something is missing.
"""

from __future__ import annotations

try:
    from strandline.pipeline.events import EventsSource as DefaultSource
except ImportError:  # an extra is missing: the format is then unknown, and others' formats go on working
    pass
else:
    __all__ = ["DefaultSource"]
