"""Limits made small, so that a few dozen calls meet every edge: pages, caches, windows, waits.

    with limits.small({"log.cursor.PAGE_BYTES": 1, "tag.keys_in_memory_max": 2}):
        ...

A limit is a constant of a module, or the least that a setting may be. Both are listed here by name, each with how small
it can be made. A constant is replaced in the modules that read it, and a least in the table of its settings, so the
product has no code for this, and pays nothing. Within, all connections of the process have the small limits.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final, NamedTuple


class Constant(NamedTuple):
    """A constant, the modules that read it, and values that are small."""

    modules: tuple[str, ...]
    small: tuple[float, ...]


class Least(NamedTuple):
    """The least that a setting may be: where its settings are declared, and how small it can be made."""

    place: str
    setting: str
    small: float


CONSTANTS: Final[Mapping[str, Constant]] = {
    "log.cursor.PAGE_BYTES": Constant(
        ("log.cursor", "journal.tail", "journal.judge", "journal.read", "journal.replay", "projection.live_feed",
         "carry.range", "reconcile.kept_log"),
        (1, 300),
    ),
    "journal.read.STORE_PAGE_BYTES": Constant(("journal.read", "journal.replay"), (1, 300)),
    "journal.replay.PAGE": Constant(("journal.replay",), (1, 2, 3)),
    "journal.replay.FIRST_PAGE": Constant(("journal.replay",), (1, 2)),
    "journal.tail.HEADER_REMEMBERED_BYTES_MAX": Constant(("journal.tail",), (0,)),
    "journal.heads_cache.BYTES_A_KEY": Constant(("journal.heads_cache",), (1, 500)),
    "journal.heads_cache.CUT_EVERY_S": Constant(("journal.heads_cache",), (0.0,)),
    "journal.heads_cache.POLL_S": Constant(("journal.heads_cache",), (0.002,)),
    "journal.checks.IDS_AT_ONCE": Constant(("journal.checks",), (1, 2)),
    "carry.range.PAGE_RECORDS": Constant(("carry.range",), (1, 2, 3)),
    "query.feed.PAGE_BYTES": Constant(("query.feed", "query.slices", "query.stored_tags"), (1, 600, 3000)),
    "backends.sqlite.log.UNPLACED_MAX": Constant(("backends.sqlite.log",), (1, 3)),
    "backends.sqlite.log_heads.NEW_TO_GUESS": Constant(("backends.sqlite.log_heads",), (1, 2)),
    "backends.sqlite.log_heads.CACHED_MAX": Constant(("backends.sqlite.log_heads",), (0, 1)),
    "query.look_back.STEP": Constant(("query.look_back", "projection.tag_events"), (1, 2)),
    "query.stored_tags.AT_ONCE": Constant(("query.stored_tags",), (1, 2)),
    "pipeline.removing.ROWS_AT_ONCE": Constant(("pipeline.removing",), (1, 2, 3)),
    "store.archive.PAGE": Constant(("store.archive",), (1, 2, 3)),
    "store.archive.GROUPS_KEPT": Constant(("store.archive",), (0, 1)),
    "store.archive.KEYS_KEPT": Constant(("store.archive",), (0, 1)),
    "store.pages.LARGE_BYTES": Constant(("store.pages",), (1, 200)),
    "store.scans.HEADS_AT_ONCE": Constant(("store.scans",), (1, 2)),
    "projection.live_feed.PAGE_RECORDS": Constant(("projection.live_feed",), (1, 2)),
    "projection.live_feed.ROWS_MAX": Constant(("projection.live_feed",), (1, 3)),
    "projection.live_feed.CUT_EVERY_S": Constant(("projection.live_feed",), (0.01,)),
    "projection.live_feed.WAIT_S": Constant(("projection.live_feed",), (0.01,)),
    "projection.ended_lives.AT_ONCE": Constant(("projection.ended_lives",), (1, 2)),
    "projection.range_state.RELOAD_S": Constant(("projection.range_state",), (0.02,)),
    "projection.range_reader.IDLE_SAVE_S": Constant(("projection.range_reader",), (0.0, 0.05)),
    "projection.stale.AT_ONCE": Constant(("projection.stale",), (1, 2)),
    "group.log_news.FOLLOW_S": Constant(("group.log_news",), (0.005,)),
    "group.settings.WAIT_LEAST_S": Constant(
        ("group.settings", "group.tries", "group.messages", "group.fences", "group.record"), (0.002,)
    ),
    "projection.host.LOOK_S": Constant(("projection.host",), (0.02,)),
}  # fmt: skip
"""By name, which is the module and the constant."""
LEASTS: Final[Mapping[str, Least]] = {
    "tag.keys_in_memory_max": Least("query.tag_settings:TagSettings", "keys_in_memory_max", 1),
    "slice.keys_in_memory_max": Least("query.settings:SliceSettings", "keys_in_memory_max", 1),
    "projection.keys_in_memory_max": Least("projection.settings:ProjectionSettings", "keys_in_memory_max", 1),
    "projection.lease_s": Least("projection.settings:ProjectionSettings", "lease_s", 0.05),
    "projection.delete_after_s": Least("projection.settings:ProjectionSettings", "delete_after_s", 0),
    "projection.delete_interval_s": Least("projection.settings:ProjectionSettings", "delete_interval_s", 0.01),
    "group.lease_s": Least("group.settings:GroupSettings", "lease_s", 0.2),
    "connect.batch_bytes_max": Least("settings:Settings", "batch_bytes_max", 1),
    "connect.lease_s": Least("settings:Settings", "lease_s", 0.05),
}
"""By name, which is what the setting is given to, and the setting."""


def all_names() -> list[str]:
    """Every limit that can be made small."""
    return [*CONSTANTS, *LEASTS]


def chosen(chance: random.Random, share: float = 0.5) -> dict[str, float]:
    """Some limits, each with one of its small values; every least."""
    found = {name: chance.choice(one.small) for name, one in CONSTANTS.items() if chance.random() < share}
    return {**found, **{name: one.small for name, one in LEASTS.items()}}


@contextmanager
def small(values: Mapping[str, float]) -> Iterator[None]:
    """Within, these limits have these values; `ValueError` for a name that is not there."""
    unknown = sorted(set(values) - set(all_names()))
    if unknown:
        raise ValueError(f"there is no limit {unknown[0]!r}; there are: {' '.join(all_names())}")
    with ExitStack() as undo:
        for name, value in values.items():
            if name in CONSTANTS:
                for module in CONSTANTS[name].modules:
                    _replace(undo, importlib.import_module(f"strandline.{module}"), name.rpartition(".")[2], value)
            else:
                _lower(undo, LEASTS[name], value)
        yield


def _replace(undo: ExitStack, owner: Any, attribute: str, value: Any) -> None:
    undo.callback(setattr, owner, attribute, getattr(owner, attribute))
    setattr(owner, attribute, value)


def _lower(undo: ExitStack, least: Least, value: float) -> None:
    module, _, name = least.place.partition(":")
    owner = getattr(importlib.import_module(f"strandline.{module}"), name)
    (declared,) = [one for one in fields(owner) if one.name == least.setting]
    _replace(undo, declared, "metadata", MappingProxyType({**declared.metadata, "least": value}))
