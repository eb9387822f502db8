"""The floor under appends on Kafka: the client library alone, with our bytes and settings.

Each writer hands a record to the library and waits until a thread that polls has told it of the delivery.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from strandline.bench.append import Journals, count_calls
from strandline.bench.cases import PAYLOAD_BYTES

POLL_S = 0.1


def produce_in_child(
    where: dict[str, Any], writers: int, events: int, journal_events: int, quick: bool
) -> dict[str, Any]:
    """Into the topic of a log that we made ourselves; a journal's record is made once, and sent for each call."""
    from confluent_kafka import KafkaError, Message, Producer

    import strandline
    from strandline.backends.kafka.client import HEADER, bootstrap_of, client_of, producer_config
    from strandline.journal.checks import append_draft
    from strandline.urls import urls_of

    with strandline.connect(**where) as s:
        partitions, settings = s.log.partitions, s.settings
    url = urls_of(log=where["log"], store=where["store"]).log
    producer = Producer(producer_config(bootstrap_of(url), client_of(url), settings))
    batch = [strandline.Event("OrderPlaced", os.urandom(PAYLOAD_BYTES)) for _ in range(events)]
    mine = threading.local()
    ended = threading.Event()

    def poll() -> None:
        while not ended.is_set():
            producer.poll(POLL_S)

    def call(journals: Journals) -> None:
        order, first = journals.next()
        if first == 1:
            _, draft = append_draft(settings, partitions, strandline.Key("order", order.hex), batch)
            mine.record = draft.value, (draft.action.key or "").encode(), draft.partition
            mine.headers = [(HEADER, draft.header)]
            mine.waited_for, mine.errors = threading.Lock(), []
            mine.waited_for.acquire()
        waited_for, errors = mine.waited_for, mine.errors

        def told(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                errors.append(error)
            waited_for.release()

        producer.produce(url.name, *mine.record, on_delivery=told, headers=mine.headers)
        waited_for.acquire()  # a lock is the cheapest thing that one thread can wait for and another end
        if errors:
            raise RuntimeError(f"not delivered: {errors[0]}")

    poller = threading.Thread(target=poll, daemon=True)
    poller.start()
    try:
        return count_calls(call, writers, events, journal_events, quick)
    finally:
        ended.set()
        poller.join()
