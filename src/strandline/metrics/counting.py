"""Counters and histograms of this process, fed by the methods of `strandline.seams`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from time import perf_counter
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from strandline import seams
from strandline.errors import Conflict, InvalidInput, LeaseLost, StrandlineError
from strandline.journal.checks import RESERVED_ENTITY_TYPES
from strandline.projection.range_runner import LOST
from strandline.seams import Method, Seam, Wrapper

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
MANY: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10000)


def outcome_of(error: BaseException) -> str:
    """Return the outcome of an append that raised: conflict, refused, unknown or failed."""
    if isinstance(error, Conflict):
        return "conflict"
    if isinstance(error, InvalidInput):
        return "refused"
    return "unknown" if isinstance(error, StrandlineError) and error.applied == "unknown" else "failed"


class Counting:
    """The counters of this process, in a registry, until `stop`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._metrics: list[Counter | Histogram] = []
        self._wrapped: list[tuple[Seam, Wrapper]] = []
        self._lost = self._counter("leases_lost", "Leases that somebody else has taken over, or that ran out", "part")
        self._of_journal()
        self._of_pipeline()
        self._of_projections()
        self._of_groups()
        self._of_work()

    def stop(self) -> None:
        """Stop counting, and take the counters out of the registry."""
        while self._wrapped:
            seam, wrapper = self._wrapped.pop()
            seam.unwrap(wrapper)
        while self._metrics:
            self._registry.unregister(self._metrics.pop())

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        made = Counter(f"strandline_{name}", says, labels, registry=self._registry)
        self._metrics.append(made)
        return made

    def _histogram(self, name: str, says: str, *labels: str, buckets: tuple[float, ...] = SECONDS) -> Histogram:
        made = Histogram(f"strandline_{name}", says, labels, registry=self._registry, buckets=buckets)
        self._metrics.append(made)
        return made

    def _wrap(self, seam: Seam, wrapper: Wrapper) -> None:
        seam.wrap(wrapper)
        self._wrapped.append((seam, wrapper))

    def _after(self, seam: Seam, say: Callable[..., object]) -> None:
        """Call `say` with the method's answer and arguments."""

        def wrapper(method: Method) -> Method:
            def said(*given: Any, **named: Any) -> Any:
                answer = method(*given, **named)
                say(answer, *given, **named)
                return answer

            return said

        self._wrap(seam, wrapper)

    def _timed(self, seam: Seam, seconds: Callable[[float], object]) -> None:
        def wrapper(method: Method) -> Method:
            def timed(*given: Any, **named: Any) -> Any:
                began = perf_counter()
                try:
                    return method(*given, **named)
                finally:
                    seconds(perf_counter() - began)

            return timed

        self._wrap(seam, wrapper)

    # ------------------------------------------------------------ journal

    def _of_journal(self) -> None:
        self._of_appends()
        commits = self._histogram("commit_seconds", "Commits of the log")
        actions = self._histogram("commit_actions", "Actions that one commit has recorded", buckets=MANY)
        self._timed(seams.commit, commits.observe)
        self._after(seams.commit, lambda _, __, drafts: actions.observe(len(drafts)))
        self._of_reads()

    def _answered(self) -> Callable[[Any, Any], None]:
        """Return a function that counts an append, by its answer or error and its events."""
        appends = self._counter("appends", "Appends by what became of them", "outcome")
        events = self._counter("events_appended", "Events that appends have recorded")
        recorded = appends.labels("recorded")

        def answered(answer: Any, given: Any) -> None:
            if isinstance(answer, BaseException):
                appends.labels(outcome_of(answer)).inc()
            elif answer.duplicate:
                appends.labels("duplicate").inc()
            else:
                recorded.inc()
                events.inc(len(given))

        return answered

    def _of_appends(self) -> None:
        answered = self._answered()
        seconds = self._histogram("append_seconds", "From the call of an append to its answer")

        def append(method: Method) -> Method:
            def measured(journal: Any, key: Any, given: Any, **how: Any) -> Any:
                began = perf_counter()
                try:
                    answer = method(journal, key, given, **how)
                except BaseException as error:
                    answered(error, given)
                    raise
                seconds.observe(perf_counter() - began)
                answered(answer, given)
                return answer

            return measured

        def append_future(method: Method) -> Method:
            def measured(journal: Any, key: Any, given: Any, **how: Any) -> Any:
                began = perf_counter()

                def told(future: Future[Any]) -> None:
                    error = future.exception()
                    if error is None:
                        seconds.observe(perf_counter() - began)
                    answered(error or future.result(), given)

                try:
                    future: Future[Any] = method(journal, key, given, **how)
                except BaseException as error:
                    answered(error, given)
                    raise
                future.add_done_callback(told)
                return future

            return measured

        def append_many(method: Method) -> Method:
            def measured(journal: Any, many: Any) -> Any:
                listed = list(many) if isinstance(many, Iterator) else many
                answers = method(journal, listed)
                for one, answer in zip(listed, answers, strict=True):
                    answered(answer, one[1])
                return answers

            return measured

        self._wrap(seams.append, append)
        self._wrap(seams.append_future, append_future)
        self._wrap(seams.append_many, append_many)

    def _of_reads(self) -> None:
        reads = self._counter("reads", "Reads of a key that have begun")
        events = self._counter("events_read", "Events that reads have given")
        seconds = self._histogram("read_seconds", "From a read's first event to its end, with what its reader does")

        def read(found: Iterator[Any]) -> Iterator[Any]:
            reads.inc()
            began, count = perf_counter(), 0
            try:
                for event in found:
                    count += 1
                    yield event
            finally:
                events.inc(count)
                seconds.observe(perf_counter() - began)

        def wrapper(method: Method) -> Method:
            def measured(journal: Any, key: Any, **how: Any) -> Any:
                found = method(journal, key, **how)
                return found if str(key).partition("|")[0] in RESERVED_ENTITY_TYPES else read(found)

            return measured

        self._wrap(seams.read, wrapper)

    # ------------------------------------------------------------ pipeline

    def _of_pipeline(self) -> None:
        actions = self._counter("carried_actions", "Actions that this process's pipeline has carried")
        events = self._counter("carried_events", "Events that it has carried")
        seconds = self._histogram("batch_seconds", "Batches of the pipeline, whatever their job")
        failed = self._counter("batch_failures", "Parts of a batch that have failed; they are tried again")

        def taken(_: Any, __: Any, results: Any, errors: Any) -> None:
            actions.inc(sum(result.actions for result in results))
            events.inc(sum(result.events for result in results))
            failed.inc(len(errors))

        def ends(_: Any, __: Any, why: BaseException) -> None:
            if isinstance(why, LeaseLost):
                self._lost.labels("pipeline").inc()

        self._after(seams.carried, taken)
        self._timed(seams.batch, seconds.observe)
        self._after(seams.pipeline_ends, ends)

    # ------------------------------------------------------------ projections

    def _of_projections(self) -> None:
        events = self._counter("handled_events", "Events that handlers have returned from", "projection")
        failed = self._counter("handler_failures", "Calls of handlers that have failed", "projection")
        seconds = self._histogram("handler_seconds", "Calls of handlers: one event, or one list", "projection")

        def hand_over(_: Any, delivery: Any, *__: Any) -> None:
            delivery._projection = projection = copy.copy(delivery._projection)
            handle, name = projection.handle, projection.name
            observe, count, fail = seconds.labels(name).observe, events.labels(name).inc, failed.labels(name).inc

            def measured(*given: Any) -> Any:
                began = perf_counter()
                try:
                    answer = handle(*given)
                except BaseException:
                    fail()
                    raise
                observe(perf_counter() - began)
                count(len(given[-1]) if isinstance(given[-1], list) else 1)
                return answer

            projection.handle = measured

        def ran(_: Any, runner: Any) -> None:
            if runner.outcome == LOST:
                self._lost.labels("projection").inc()

        self._after(seams.delivery, hand_over)
        self._after(seams.range_run, ran)

    # ------------------------------------------------------------ groups

    def _of_groups(self) -> None:
        steps = self._counter("group_steps", "Steps of event groups that ended", "outcome")
        undone = self._counter("group_undos", "Undos of steps that ended", "outcome")
        ended = self._counter("groups_ended", "Event groups that ended", "outcome")
        seconds = self._histogram("group_step_seconds", "Steps on their targets; a group that is one transaction: one")

        def added(_: Any, __: Any, type_: str, payload: Any) -> None:
            if type_ == "Result":
                steps.labels("failed" if "reason" in payload else "succeeded").inc()
            elif type_ == "UndoResult":
                undone.labels(payload["state"]).inc()
            elif type_ == "Ended":
                ended.labels(payload["end"]).inc()

        def processing(method: Method) -> Method:
            def watched(*given: Any, **named: Any) -> Any:
                try:
                    return method(*given, **named)
                except LeaseLost:
                    self._lost.labels("group").inc()
                    raise

            return watched

        self._after(seams.recorded, added)
        self._timed(seams.step, seconds.observe)
        self._timed(seams.undo, seconds.observe)
        self._timed(seams.segment, seconds.observe)
        self._wrap(seams.processing, processing)

    # ------------------------------------------------------------ work

    def _of_work(self) -> None:
        adds = self._counter("work_adds", "Entries that were added or merged", "journal", "outcome")
        claims = self._counter("work_claims", "Entries that were claimed", "journal")
        lost = self._lost.labels("work")
        over = self._counter("work_ended", "Claims that ended", "journal", "outcome")
        seconds = self._histogram("work_seconds", "Handlers of a worker, one entry each", "journal")

        def added(answers: Any, journal: Any, *_: Any, **__: Any) -> None:
            for answer in answers:
                adds.labels(journal.name, answer.outcome).inc()

        def claimed(batch: Any, journal: Any, *_: Any, **__: Any) -> None:
            claims.labels(journal.name).inc(len(batch.claims))

        def ended(_: Any, claim: Any, *, done: bool) -> None:
            if done:
                over.labels(claim.journal.name, "done").inc()

        def failed(_: Any, claim: Any, *__: Any, **___: Any) -> None:
            over.labels(claim.journal.name, "failed").inc()

        def losing(claims_of: Callable[..., Sequence[Any]]) -> Wrapper:
            """Count the claims of a call that are lost after it."""

            def wrapper(method: Method) -> Method:
                def watched(*given: Any, **named: Any) -> Any:
                    held = [claim for claim in claims_of(*given, **named) if not (claim.is_lost or claim.ended)]
                    answer = method(*given, **named)
                    lost.inc(sum(claim.is_lost for claim in held))
                    return answer

                return watched

            return wrapper

        def laned(_: Any, lane: Any, *__: Any) -> None:
            handler, observe = lane.handler, seconds.labels(lane.journal.name).observe

            def measured(claim: Any) -> Any:
                began = perf_counter()
                try:
                    return handler(claim)
                finally:
                    observe(perf_counter() - began)

            lane.handler = measured

        self._after(seams.work_add, added)
        self._after(seams.work_claim, claimed)
        self._after(seams.claim_over, ended)
        self._after(seams.claim_failed, failed)
        self._wrap(seams.work_claim, losing(lambda _, __, ___, done, **____: done))
        self._wrap(seams.work_done, losing(lambda _, claims, **__: claims))
        self._after(seams.work_beat, lambda gone, *_: lost.inc(sum(not claim.ended for claim in gone)))
        self._after(seams.lane, laned)
