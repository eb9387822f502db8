"""Metrics and traces of a pipeline that runs on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import strandline
from strandline import Event, metrics, tracing


@pytest.mark.spark
def test_what_the_pipeline_carries_is_counted_and_traced(tmp_path: Path, spark: Any) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    url = f"sqlite:{tmp_path}/shop"
    with strandline.connect(url) as s:
        s.journal.append("order|1", [Event("Placed"), Event("Paid")])
    tracing.start(provider)
    try:
        with metrics.start() as counted:
            strandline.pipeline.run(url, once=True, spark=spark)
            found = {one.name: one.value for family in counted.registry.collect() for one in family.samples}
    finally:
        tracing.stop()
    assert found["strandline_carried_events_total"] == 2
    assert found["strandline_carried_actions_total"] > 1, "the append, and Marks"
    assert found["strandline_batch_failures_total"] == 0
    assert "strandline_up" not in found, "no journal was given to look at"
    batches = [span for span in exporter.get_finished_spans() if span.name == "strandline carry"]
    assert len(batches) == found["strandline_batch_seconds_count"] >= 1
