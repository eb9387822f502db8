"""A short measurement on this machine: the core time that carrying an event takes, and the bytes of an event."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from strandline.carry.range import carry_up_to
from strandline.connect import connect
from strandline.sizing.model import Figure, Figures
from strandline.values.events import Event

EVENTS: Final = 20_000
A_CALL: Final = 500
KEYS: Final = 200
PAYLOAD: Final = "x" * 140
CORE_FIGURES: Final = ("record_core_us", "carry_core_us", "carry_cassandra_core_us", "tag_core_us")


def measured(figures: Figures, *, events: int = EVENTS) -> Figures:
    """Return figures of this machine: bytes as measured, and all core times scaled by the one that is measured."""
    found = _measure(events)
    factor = found["measured_carry_core_us"] / figures["measured_carry_core_us"].value
    made = dict(figures)
    for name, value in found.items():
        made[name] = Figure(value, figures[name].of, "measured now, on this machine")
    for name in CORE_FIGURES:
        source = f"{figures[name].source}, times {factor:.2f} for this machine"
        made[name] = Figure(figures[name].value * factor, figures[name].of, source)
    return made


def _measure(events: int) -> Mapping[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        with connect(f"sqlite:{folder}/j") as s:
            some = [Event("Placed", PAYLOAD)]
            for start in range(0, events, A_CALL):
                s.journal.append_many([(f"order|{n % KEYS}", some) for n in range(start, min(start + A_CALL, events))])
            lease = s.store.lease().take("a measurement")
            began = time.process_time()
            for partition, newest in enumerate(s.log.newest()):
                carry_up_to(s.log, s.store, partition, newest, lease.fence, s.settings)
            spent = time.process_time() - began
            lease.release()
        sizes = {part: (Path(folder) / "j" / f"{part}.db").stat().st_size for part in ("log", "store")}
    payload = len(PAYLOAD) + 2
    return {
        "measured_carry_core_us": spent * 10**6 / events,
        "log_bytes": max(0.0, sizes["log"] / events - payload),
        "store_bytes": max(0.0, sizes["store"] / events - payload),
    }
