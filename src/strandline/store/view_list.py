"""All views that a store keeps beside the journal itself: a new one is added here."""

from __future__ import annotations

from strandline.store.api import StoreSettings
from strandline.store.tag_view import tags_view
from strandline.store.views import REPAIRS, SLICES, View


def views_of(settings: StoreSettings) -> tuple[View, ...]:
    """The views of a store, as creation fixed them."""
    return SLICES, tags_view(settings.bucket_size), REPAIRS
