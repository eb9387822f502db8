"""Watches the log for a processor: tells it when entries come into its stream or its inbox."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from strandline.errors import StrandlineError
from strandline.group.advance import TICK_S
from strandline.group.names import inbox_key, stream_key
from strandline.log.api import Log
from strandline.values.keys import key_partition

FOLLOW_S: Final = 0.1
_logger: Final = logging.getLogger("strandline.group")


def follow(log: Log, stream: str, told: Callable[[], None], is_over: Callable[[], bool]) -> None:
    """Call `told` whenever there may be news, until `is_over`. Other keys of the same partitions are news, too."""
    partitions = {key_partition(key, log.partitions) for key in (stream_key(stream), inbox_key(stream))}
    after = dict.fromkeys(partitions, -2)
    while not is_over():
        try:
            newest = log.newest()
            now = {partition: newest[partition] for partition in partitions}
            if now == after:
                log.wait(after, FOLLOW_S)
                continue
            after = now
            told()
        except StrandlineError as error:
            _logger.warning("stream %s cannot be followed: %s", stream, error)
            time.sleep(TICK_S)
        except Exception:  # without this thread the processor would get no more news
            _logger.exception("stream %s is followed anew", stream)
            time.sleep(TICK_S)
