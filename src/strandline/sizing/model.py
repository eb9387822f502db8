"""The model: it takes a load and figures, and returns lines with their reasons. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from math import ceil, log2
from typing import Any, Final, NamedTuple

import orjson

from strandline.errors import invalid

CORES: Final = 4
"""The cores of an executor, and of a node."""
LOAD: Final = 0.5
"""How busy a machine may be at the peak: half is left for restarts, compactions, and the work of a
machine that died.
"""
NODE_BYTES: Final = 1_000_000_000_000
"""The most data of a node: more would take too long to stream to a new one."""
PARTITIONS_LEAST, PARTITIONS_MOST = 8, 1024
REPLICAS: Final = 3
ROOM: Final = 2.0
"""How much larger the disk must be than the data, for compactions, vacuum, checkpoints."""
BACKENDS: Final = ("sqlite", "postgres", "kafka-cassandra")
EVENTS_MOST: Final = 1_000_000.0


class Figure(NamedTuple):
    """A measured number, its subject, and the benchmark that it comes from."""

    value: float
    of: str
    source: str


Figures = Mapping[str, Figure]


class Line(NamedTuple):
    """One thing that is needed."""

    name: str
    value: float
    unit: str
    why: str


@dataclass(frozen=True, slots=True)
class Load:
    """The events that come in, on an average second, and how long they are kept."""

    events_per_s: float
    bytes: float
    """The size of an event's payload and metadata."""
    retention_s: float
    """How long the store keeps events."""
    log_retention_s: float = 7 * 86400
    peak: float = 2.0
    """How many times as busy as an average minute the busiest one is."""
    events_per_append: float = 1.0
    tags: float = 0.0
    on: str | None = None
    """The back-ends; None for the smallest ones that can hold the load."""

    def check(self) -> None:
        """Raise `InvalidInput.option` for numbers that no plan can be made of."""
        bounds = {
            "events_per_s": (0.001, EVENTS_MOST), "bytes": (0, 10**7), "retention_s": (1, 10**10),
            "log_retention_s": (1, 10**10), "peak": (1, 1000), "events_per_append": (1, 10**4), "tags": (0, 100),
        }  # fmt: skip
        for name, (least, most) in bounds.items():
            given = getattr(self, name)
            if not least <= given <= most:
                allowed = f"{least:g} to {most:g}"
                raise invalid("option", name, "out of bounds", allowed=allowed, got=f"{given:g}")
        if self.on is not None and self.on not in BACKENDS:
            raise invalid("option", "on", "unknown", allowed=", ".join(BACKENDS), got=self.on)


def published() -> Figures:
    """Return the figures of `docs/BENCHMARKS.md` that the model uses."""
    told: dict[str, dict[str, Any]] = orjson.loads((files("strandline.sizing") / "figures.json").read_bytes())
    return {name: Figure(float(one["value"]), one["of"], one["from"]) for name, one in told.items()}


def plan(load: Load, figures: Figures) -> list[Line]:
    """Return the lines of what a load needs."""
    load.check()
    return list(_lines(load, {name: figure.value for name, figure in figures.items()}))


def backends_for(load: Load, known: Mapping[str, float]) -> str:
    """Return the smallest back-ends that hold a load."""
    return next(name for name in BACKENDS if _holds(name, load, known))


def _holds(name: str, load: Load, known: Mapping[str, float]) -> bool:
    """Return whether the peak is at most half of these back-ends' measured rate, or they can grow."""
    if name == "kafka-cassandra":
        return True
    events = load.events_per_s * load.peak
    return (
        events / load.events_per_append <= LOAD * known[f"{name}_appends_per_s"]
        and events <= LOAD * known[f"{name}_events_per_s"]
    )


def _lines(load: Load, known: Mapping[str, float]) -> Iterator[Line]:
    on = load.on or backends_for(load, known)
    events = load.events_per_s * load.peak
    clustered = on == "kafka-cassandra"
    yield Line("peak", events, "events/s", f"{load.events_per_s:g} on average, {load.peak:g} times as many at the peak")
    why = "as asked for" if load.on else "the smallest whose measured appends/s and events/s are twice the peak"
    if not _holds(on, load, known):
        why += "; nobody has measured it at half of such a rate"
    yield Line("back-ends", BACKENDS.index(on), on, why)
    core_us = known["carry_cassandra_core_us" if clustered else "carry_core_us"] + load.tags * known["tag_core_us"]
    cores = events * core_us / 10**6 / LOAD
    whole = max(1, ceil(cores))
    yield Line(
        "executor cores", whole, "cores",
        f"{core_us:.0f} us of a core per event ({load.tags:g} tags each), {LOAD:.0%} busy at the peak; more cores take "
        f"as long per event ({known['more_cores']:g}), more rows too ({known['more_rows']:g})",
    )  # fmt: skip
    yield Line("executors", ceil(whole / CORES), f"of {CORES} cores", "local[*] on one machine does for one of them")
    wanted = max(PARTITIONS_LEAST, 2 * whole)
    partitions = min(PARTITIONS_MOST, 2 ** ceil(log2(wanted)))
    yield Line(
        "partitions", partitions, "",
        "a partition is carried by one core at a time: two for each core, so that a slow one is not waited for; a "
        f"power of 2, {PARTITIONS_LEAST} to {PARTITIONS_MOST}",
    )  # fmt: skip
    replicas = REPLICAS if clustered else 1
    in_log, in_store = load.bytes + known["log_bytes"], load.bytes + known["store_bytes"]
    if clustered:
        rate = events * in_log * REPLICAS
        yield Line(
            "brokers", max(REPLICAS, ceil(rate / known["broker_bytes_per_s"])), "",
            f"{rate / 10**6:.1f} MB/s with {REPLICAS} replicas, {known['broker_bytes_per_s'] / 10**6:.0f} MB/s each; "
            f"{REPLICAS} at least",
        )  # fmt: skip
    log = load.events_per_s * in_log * load.log_retention_s * replicas * ROOM
    yield Line(
        "log disk", log / 10**9, "GB",
        f"{in_log:.0f} bytes an event for {load.log_retention_s / 86400:g} days, {replicas} replicas, "
        f"{ROOM:g} times the data",
    )  # fmt: skip
    rows = 1 + load.tags + clustered
    data = load.events_per_s * in_store * rows * load.retention_s * replicas
    yield Line(
        "store disk", data * ROOM / 10**9, "GB",
        f"{in_store:.0f} bytes an event, {rows:g} times (tags{', view of slices' if clustered else ''}), for "
        f"{load.retention_s / 86400:g} days, "
        f"{replicas} replicas, {ROOM:g} times the data",
    )  # fmt: skip
    if clustered:
        by_load, by_disk = ceil(whole * REPLICAS / CORES), ceil(data / NODE_BYTES)
        yield Line(
            "nodes", max(REPLICAS, by_load, by_disk), f"of {CORES} cores",
            f"{by_load} for {REPLICAS} replicas of each write, {by_disk} for {NODE_BYTES / 10**12:g} TB of data each, "
            f"{REPLICAS} at least",
        )  # fmt: skip
    services = events / load.events_per_append * known["record_core_us"] / 10**6 / LOAD
    yield Line(
        "service cores", max(1, ceil(services)), "cores",
        f"{known['record_core_us']:.0f} us of a core per append of {load.events_per_append:g} events, beside its work",
    )  # fmt: skip
