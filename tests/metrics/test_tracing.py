"""Traces: a span around each thing, and one trace from the writer of an event to its handler."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import strandline
from strandline import Event, Group, SeqNrConflict, WorkDeclaration, Worker, aio, seams, tracing
from strandline.connect import Strandline
from strandline.errors import InvalidInput
from strandline.projection.definition import Projection
from strandline.testing import carry
from tests.projection.worlds import ORDERS, QUICK, caught_up, running, until

PROVIDER = TracerProvider()
TRACER = PROVIDER.get_tracer("test")


class Spans:
    """The spans that have ended, by name."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == f"strandline {name}"]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Strandline]:
    with strandline.connect(f"sqlite:{tmp_path}/shop", partitions=2) as opened:
        yield opened


@pytest.fixture
def spans() -> Iterator[Spans]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.start(provider)
    yield Spans(exporter)
    tracing.stop()


def trace_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return int(context.trace_id)


def span_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return int(context.span_id)


def handled(s: Strandline, name: str, handle: Any, **settings: Any) -> None:
    carry(s)
    with running(s, Projection(name, ORDERS, handle, **settings, **QUICK)):
        until(lambda: caught_up(s, name))


def test_one_trace_from_a_request_through_its_append_to_the_handler(s: Strandline, spans: Spans) -> None:
    with TRACER.start_as_current_span("request") as request:
        s.journal.append("order|1", [Event("Placed", metadata={"by": "ann"})])
    seen = []
    handled(s, "totals", lambda tx, event: seen.append(event.metadata))
    append, handler = spans.one("append"), spans.one("handler")
    assert append.parent is not None
    assert handler.parent is not None
    assert append.parent.span_id == request.get_span_context().span_id
    assert handler.parent.span_id == span_of(append), "in another thread, after a commit"
    assert trace_of(handler) == trace_of(append) == request.get_span_context().trace_id
    assert handler.attributes == {
        "strandline.projection": "totals", "strandline.key": "order|1", "strandline.seq_nr": 1,
        "strandline.type": "Placed",
    }  # fmt: skip
    assert seen[0].keys() == {"by", "traceparent"}, "what the caller gave is there"


def test_a_list_is_one_span_with_a_link_to_each_append(s: Strandline, spans: Spans) -> None:
    s.journal.append("order|1", [Event("Placed")])
    s.journal.append_many([("order|1", [Event("Paid")]), ("order|1", [Event("Sent")], {"expected": 2})])
    s.journal.append("order|1", [Event("Closed", metadata={"traceparent": "of the caller's own"})])
    handled(s, "lists", lambda tx, events: None, group_size=4)
    handler, (first, many, _) = spans.one("handler"), spans.named("append")
    traces = [link.context.trace_id for link in handler.links]
    assert traces[:3] == [trace_of(first), trace_of(many), trace_of(many)]
    assert dict(handler.attributes or {})["strandline.events"] == 4


def test_an_append_with_an_id_carries_no_context_so_that_it_can_be_sent_again(s: Strandline, spans: Spans) -> None:
    s.journal.append("order|1", [Event("Placed")], append_id="request 7")
    assert s.journal.append("order|1", [Event("Placed")], append_id="request 7").duplicate
    s.journal.append_many([("order|1", [Event("Paid")], {"append_id": "request 8"})])
    assert [event.metadata for event in s.journal.read("order|1")] == [None, None]
    assert len(spans.named("append")) == 3


def test_what_fails_says_so_and_what_is_refused_is_refused_as_before(s: Strandline, spans: Spans) -> None:
    s.journal.append("order|1", [Event("Placed")])
    for append in (s.journal.append, lambda *a, **k: s.journal.append_future(*a, **k).result()):
        with pytest.raises(SeqNrConflict):
            append("order|1", [Event("Placed")], expected=0)
        for wrong in ([], "text", [1], [Event("Placed", metadata="text")], None):  # type: ignore[arg-type]
            with pytest.raises(InvalidInput):
                append("order|1", wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        s.journal.append_many([("order|1",)])
    with pytest.raises(InvalidInput):
        s.journal.append_many(7)  # type: ignore[arg-type]
    until(lambda: len(_conflicts(spans)) == 2)  # a future may be told before its span
    assert spans.named("append")[0].status.is_ok


def _conflicts(spans: Spans) -> list[str]:
    events = [event for span in spans.named("append") if not span.status.is_ok for event in span.events]
    return [told for event in events if "SeqNrConflict" in (told := str(event.attributes))]


def test_reads_and_appends_of_asyncio(s: Strandline, tmp_path: Path, spans: Spans) -> None:
    async def main() -> None:
        async with aio.connect(f"sqlite:{tmp_path}/shop") as other:
            with TRACER.start_as_current_span("request"):
                await other.journal.append("order|1", [Event("Placed")])
            assert [event.seq_nr async for event in other.journal.read("order|1")] == [1]

    asyncio.run(main())
    append, read = spans.one("append"), spans.one("read")
    assert append.parent is not None
    assert read.attributes == {"strandline.key": "order|1", "strandline.events": 1}
    (event,) = s.journal.read("order|1")
    assert event.metadata is not None
    assert f"{trace_of(append):032x}" in event.metadata["traceparent"]


@pytest.mark.parametrize("at_once", [True, False])
def test_steps_of_groups_and_claims_of_work(
    s: Strandline, tmp_path: Path, spans: Spans, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.group.turn.SEGMENTS", at_once)
    (tmp_path / "shop.db").touch()
    groups = s.groups(targets={"shop": f"sqlite:{tmp_path}/shop.db"})
    group = Group("g")
    group.query("look", "select 1 as one", target="shop")
    groups.submit(group)
    groups.processor().run_until_idle()
    step = spans.one("step")
    assert dict(step.attributes or {})["strandline.group"] == "g"
    s.work(WorkDeclaration("mails", key={"order": "int"}, data={"to": "text"})).add({"order": 1}, {"to": "ann"})

    def send(claim: Any) -> None:
        s.journal.append("order|1", [Event("Sent")])
        worker.stop()

    worker = Worker(s, {"mails": send})
    worker.run()
    claim, append = spans.one("claim"), spans.one("append")
    assert dict(claim.attributes or {})["strandline.work"] == "mails"
    assert append.parent is not None
    assert append.parent.span_id == span_of(claim)


def test_after_stop_there_are_none_and_started_twice_one_each(s: Strandline, spans: Spans) -> None:
    tracing.start(TracerProvider())
    s.journal.append("order|1", [Event("Placed")])
    assert not spans.named("append"), "the second provider has them"
    tracing.stop()
    tracing.stop()
    s.journal.append("order|2", [Event("Placed")])
    assert [event.metadata for event in s.journal.read("order|2")] == [None]
    assert seams.append.now.__module__ == "strandline.journal.journal"
