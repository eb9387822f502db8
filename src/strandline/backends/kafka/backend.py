"""What `connect` opens: a log in a Kafka topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.backends.api import Backend, Clock
from strandline.errors import invalid
from strandline.log.api import Log
from strandline.settings import BATCH_ACTIONS_DEFAULT, Settings
from strandline.sql.api import Part
from strandline.store.api import Store
from strandline.urls import Url

if TYPE_CHECKING:
    from strandline.sql.steps import Description


class KafkaBackend(Backend):
    shared, local = True, False
    batch_actions_max = BATCH_ACTIONS_DEFAULT

    def open_log(self, url: Url, settings: Settings, clock: Clock | None, *, create: bool) -> Log:
        from strandline.backends.kafka.client import bootstrap_of, client_of
        from strandline.backends.kafka.log import KafkaLog

        brokers, client = bootstrap_of(url), client_of(url)
        return KafkaLog(brokers, url.name, settings=settings, client=client, create=None if create else False)

    def open_store(self, url: Url, settings: Settings, clock: Clock | None, log: Log | None) -> Store:
        raise invalid("url_scheme", "store", "kafka holds no store", allowed="a store's URL", got=str(url))

    def describe(self, url: Url, part: Part, settings: Settings) -> Description:
        from strandline.sql.steps import Description

        log = self.open_log(url, settings, None, create=False)
        log.close()
        return Description([], [], {"log_id": log.log_id, "partitions": str(log.partitions)})

    def upgrade(self, url: Url, part: Part, settings: Settings) -> list[str]:
        return []  # a topic has no schema of ours


BACKEND = KafkaBackend()
