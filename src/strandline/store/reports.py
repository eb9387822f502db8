"""The errors of partitions that a pipeline reports, as the row of its lease keeps them."""

from __future__ import annotations

from collections.abc import Mapping

import orjson


def report_text(errors: Mapping[int, str]) -> str | None:
    """Errors by partition, as JSON; None if there are none."""
    return orjson.dumps({str(partition): error for partition, error in errors.items()}).decode() if errors else None


def report_in(text: str | None) -> dict[int, str]:
    """Return the errors that `report_text` wrote."""
    return {int(partition): error for partition, error in orjson.loads(text or "{}").items()}
