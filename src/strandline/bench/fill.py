"""Fill a log before the clock starts: many appends in flight, through the public Journal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from strandline.bench.cases import PAYLOAD_BYTES

IN_FLIGHT = 5000


def fill_in_child(
    where: dict[str, Any], keys: int, appends: int, events: int, tags: Sequence[str] = ()
) -> dict[str, Any]:
    """`appends` appends of `events` events each, with these tags, dealt out to `keys` keys in turn."""
    import strandline

    with strandline.connect(**where) as s:
        names = [strandline.Key("order", f"{number:08d}") for number in range(keys)]
        batch = [strandline.Event("OrderPlaced", os.urandom(PAYLOAD_BYTES), tags=tuple(tags)) for _ in range(events)]
        in_flight = max(1, IN_FLIGHT // events)
        for start in range(0, appends, in_flight):
            numbers = range(start, min(start + in_flight, appends))
            futures = [s.journal.append_future(names[number % keys], batch, numbers=False) for number in numbers]
            for future in futures:
                future.result()
        return {"newest": s.log.newest()}
