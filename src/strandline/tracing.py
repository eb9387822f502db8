"""Traces for OpenTelemetry: spans around append, read, carry, handler, step and claim, from the writer to the handler.

    from strandline import tracing

    tracing.start()             # with the global tracer provider, or tracing.start(provider)
    tracing.stop()

An append puts its context into the metadata of its events, as `traceparent`; the handler of a projection that gets such
an event runs in a span of the same trace. An append with an `append_id` carries no context: a repeat would have another
content, and be refused. A list of events is handled in one span with a link to each of theirs.

Before `start` nothing is traced, and tracing costs nothing. It needs the extra `otel` (opentelemetry-api).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from strandline import extras, seams
from strandline.errors import Corrupt
from strandline.seams import Method, Seam, Wrapper
from strandline.values.events import Event

if TYPE_CHECKING:
    from concurrent.futures import Future

    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, Tracer, TracerProvider

__all__ = ["start", "stop"]

PARENT: Final = "traceparent"
_on: Final[list[tuple[Seam, Wrapper]]] = []


def start(provider: TracerProvider | None = None) -> None:
    """Trace what this process does from now on. A second call replaces the provider.

    `Unsupported.not_installed` without the extra `otel`.
    """
    extras.check("otel", "opentelemetry")
    from opentelemetry import trace

    stop()
    spans = _Spans(trace.get_tracer("strandline", tracer_provider=provider))
    for seam, wrapper in spans.wrappers():
        seam.wrap(wrapper)
        _on.append((seam, wrapper))


def stop() -> None:
    """Trace nothing more. A second call does nothing."""
    while _on:
        seam, wrapper = _on.pop()
        seam.unwrap(wrapper)


class _Spans:
    """The spans of one tracer."""

    def __init__(self, tracer: Tracer) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()

    def wrappers(self) -> list[tuple[Seam, Wrapper]]:
        """Return the wrapper of each traced method."""
        around = self._around
        return [
            (seams.append, self._append),
            (seams.append_future, self._append_future),
            (seams.append_many, self._append_many),
            (seams.read, self._read),
            (seams.batch, around("strandline carry", lambda _, tasks: {"strandline.tasks": len(tasks)})),
            (seams.delivery, self._after(self._hand_over)),
            (seams.step, around("strandline step", lambda execution, one: _of_step(execution, one.name))),
            (seams.undo, around("strandline undo", _of_step)),
            (seams.segment, around("strandline step", lambda execution, run, _: _of_step(execution, run.at))),
            (seams.lane, self._after(self._lane)),
        ]

    def _around(self, name: str, says: Callable[..., dict[str, Any]]) -> Wrapper:
        def wrapper(method: Method) -> Method:
            def spanned(*given: Any) -> Any:
                with self._tracer.start_as_current_span(name, attributes=says(*given)):
                    return method(*given)

            return spanned

        return wrapper

    @staticmethod
    def _after(say: Callable[..., None]) -> Wrapper:
        def wrapper(method: Method) -> Method:
            def said(*given: Any) -> None:
                method(*given)
                say(*given)

            return said

        return wrapper

    # ------------------------------------------------------------ writer

    def _append(self, method: Method) -> Method:
        def spanned(journal: Any, key: Any, events: Any, **how: Any) -> Any:
            with self._tracer.start_as_current_span("strandline append", attributes=_of_key(key)):
                return method(journal, key, self._with_context(events, how), **how)

        return spanned

    def _append_future(self, method: Method) -> Method:
        def spanned(journal: Any, key: Any, events: Any, **how: Any) -> Future[Any]:
            from opentelemetry.trace import use_span

            span = self._tracer.start_span("strandline append", attributes=_of_key(key))
            with use_span(span, end_on_exit=False):
                try:
                    future: Future[Any] = method(journal, key, self._with_context(events, how), **how)
                except BaseException:
                    span.end()
                    raise
            future.add_done_callback(lambda done: _end(span, done.exception()))
            return future

        return spanned

    def _append_many(self, method: Method) -> Method:
        def spanned(journal: Any, many: Any) -> Any:
            listed = list(many) if isinstance(many, Iterator) else many
            with self._tracer.start_as_current_span("strandline append"):
                if isinstance(listed, Sequence):
                    listed = [self._one_of_many(one) for one in listed]
                return method(journal, listed)

        return spanned

    def _one_of_many(self, one: Any) -> Any:
        """Return one append of many, with the context added. A malformed one is returned as it is, for `append_many` to
        refuse."""
        if not isinstance(one, (tuple, list)) or not 2 <= len(one) <= 3:
            return one
        key, events, *how = one
        given = how[0] if how and isinstance(how[0], dict) else {}
        return (key, self._with_context(events, given), *how)

    def _with_context(self, events: Any, how: dict[str, Any]) -> Any:
        """Return these events with the context of now in their metadata; what is none of ours is left to be refused."""
        if how.get("append_id") is not None or not isinstance(events, (list, tuple)):
            return events
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return [_with_metadata(event, carrier) for event in events] if carrier else events

    def _read(self, method: Method) -> Method:
        def spanned(journal: Any, key: Any, **how: Any) -> Iterator[Any]:
            return self._reading(key, method(journal, key, **how))

        return spanned

    def _reading(self, key: Any, events: Iterator[Any]) -> Iterator[Any]:
        """Read within a span from the first event to the last. The span is no parent of others, because the reader's
        own work happens in between."""
        span, count, error = self._tracer.start_span("strandline read", attributes=_of_key(key)), 0, None
        try:
            for event in events:
                count += 1
                yield event
        except Exception as raised:
            error = raised
            raise
        finally:
            span.set_attribute("strandline.events", count)
            _end(span, error)

    # ------------------------------------------------------------ handler

    def _hand_over(self, delivery: Any, *_: Any) -> None:
        delivery._projection = projection = copy.copy(delivery._projection)
        handle, name = projection.handle, projection.name

        def spanned(*given: Any) -> Any:
            with self._handling(name, given[-1]):
                return handle(*given)

        projection.handle = spanned

    def _handling(self, projection: str, given: Any) -> AbstractContextManager[Span]:
        attributes: dict[str, Any] = {"strandline.projection": projection}
        if isinstance(given, list):
            attributes["strandline.events"] = len(given)
            links = [link for event in given if (link := self._link(event)) is not None]
            return self._tracer.start_as_current_span("strandline handler", attributes=attributes, links=links)
        attributes |= {**_of_key(given.key), "strandline.seq_nr": given.seq_nr, "strandline.type": given.type}
        context = self._context_of(given)
        return self._tracer.start_as_current_span("strandline handler", context, attributes=attributes)

    def _context_of(self, event: Any) -> Context | None:
        """Return the context that an event carries; None without one, or if it cannot be read."""
        try:
            metadata = event.metadata or {}
        except Corrupt:
            return None
        return self._propagator.extract(metadata) if isinstance(metadata.get(PARENT), str) else None

    def _link(self, event: Any) -> Link | None:
        from opentelemetry.trace import Link, get_current_span

        context = self._context_of(event)
        return None if context is None else Link(get_current_span(context).get_span_context())

    # ------------------------------------------------------------ work

    def _lane(self, lane: Any, *_: Any) -> None:
        handler, journal = lane.handler, lane.journal.name

        def spanned(claim: Any) -> Any:
            attributes = {"strandline.work": journal, "strandline.entry": claim.entry.id}
            with self._tracer.start_as_current_span("strandline claim", attributes=attributes):
                return handler(claim)

        lane.handler = spanned


def _with_metadata(event: Any, carrier: dict[str, str]) -> Any:
    if type(event) is not Event or not (event.metadata is None or isinstance(event.metadata, dict)):
        return event
    if event.metadata is not None and PARENT in event.metadata:
        return event  # the caller's own context is kept
    return replace(event, metadata={**(event.metadata or {}), **carrier})


def _of_key(key: Any) -> dict[str, Any]:
    return {"strandline.key": str(key)[:600]}


def _of_step(execution: Any, step: str) -> dict[str, Any]:
    return {"strandline.group": execution.step_id(step).group, "strandline.step": step}


def _end(span: Span, error: BaseException | None) -> None:
    from opentelemetry.trace import StatusCode

    if error is not None:
        span.record_exception(error)
        span.set_status(StatusCode.ERROR, str(error))
    span.end()
