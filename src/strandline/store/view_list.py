"""All views that a store keeps beside the journal itself: a new one is added here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strandline.store.api import StoreSettings
from strandline.store.tag_view import tags_view
from strandline.store.views import REPAIRS, SLICES, View, packages_of

VIEWS: list[Callable[[StoreSettings], View]] = [
    lambda _: SLICES,
    lambda settings: tags_view(settings.bucket_size),
    lambda _: REPAIRS,
]
"""All views, each made from the settings that creation fixed. The tables of a view do not depend on these settings."""


def views_of(settings: StoreSettings) -> tuple[View, ...]:
    """Return the views of a store."""
    return tuple([view(settings) for view in VIEWS])


def packages(views: Sequence[View] | None = None) -> tuple[str, ...]:
    """Return the packages whose steps make the tables of these views, or of all, beside the store's own."""
    return packages_of(views_of(StoreSettings("", 1, 1)) if views is None else views)
