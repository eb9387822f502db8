"""The JSON form of values that the API returns, as the command line and the HTTP server print them."""

from __future__ import annotations

import base64
import dataclasses
from datetime import timedelta
from enum import Enum
from typing import Any

from strandline.values.keys import Key


def json_form(value: Any) -> Any:
    """Return a value of the API as JSON values: records as objects, keys as text, bytes as base64."""
    if isinstance(value, (str, int, float, bool, type(None))):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Key):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: json_form(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: json_form(member) for name, member in value._asdict().items()}
    if isinstance(value, dict):
        return {str(name): json_form(member) for name, member in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_form(member) for member in value]
    return str(value)
