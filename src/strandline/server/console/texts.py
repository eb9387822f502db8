"""Texts of pages: no text of a journal can make a page show something that is not there.

Marks that turn the direction of writing, and invisible characters, are shown by their numbers. Payloads are
text, cut at 10 kB. Cells of CSV that a spreadsheet would take for a formula begin with an apostrophe.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson
from jinja2 import Undefined
from markupsafe import Markup

SHOWN_BYTES: Final = 10_000
_HIDDEN: Final = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def visible(value: Any) -> Any:
    """Return text for a template; invisible characters and direction marks are replaced by their numbers."""
    if value is None or isinstance(value, (int, float, Markup, Undefined)):
        return value
    return _HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", str(value))


def payload_text(value: Any) -> str:
    """Return a payload as text: JSON indented, bytes as UTF-8 where they are that; cut at 10 kB."""
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = value[:SHOWN_BYTES].hex(" ", 2)
    else:
        text = orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode()
    return cut(text)


def cut(text: str) -> str:
    """Return at most 10 kB of a text, with a note of how much is left out."""
    raw = text.encode(errors="replace")
    if len(raw) <= SHOWN_BYTES:
        return text
    return raw[:SHOWN_BYTES].decode(errors="ignore") + f"\n… cut: {len(raw) - SHOWN_BYTES:,} more bytes"


def csv_text(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV that no spreadsheet takes for formulas."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(names)
    writer.writerows([csv_cell(value) for value in row] for row in rows)
    return out.getvalue()


def csv_cell(value: Any) -> Any:
    """Return a cell; a text that begins like a formula gets an apostrophe before it."""
    if not isinstance(value, str):
        return value
    return f"'{value}" if value.startswith(_FORMULA) else value


def when(us: int) -> Markup:
    """Return a time as an element: absolute here, and how long ago that is where a script runs."""
    if not us:
        return Markup('<span class="none">never</span>')
    at = datetime.fromtimestamp(us / 1e6, UTC)
    return Markup('<time datetime="{}" data-us="{}">{}</time>').format(
        at.isoformat(timespec="milliseconds"), us, f"{at:%Y-%m-%d %H:%M:%S}"
    )


def seconds(value: float | None) -> str:
    """Return a duration in seconds as a person reads it."""
    if value is None:
        return "from the start"
    if value < 0.001:
        return "0 s"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 10:
        return f"{value:.2g} s"
    if value < 120:
        return f"{value:.0f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h" if value < 172_800 else f"{value / 86_400:.0f} days"


def number(value: float) -> str:
    """Return a figure in few characters: whole ones with separators, large ones with k and M."""
    if isinstance(value, float) and value < 100:
        return f"{value:.1f}".removesuffix(".0")
    if value < 100_000:
        return f"{value:,.0f}"
    return f"{value / 1000:,.0f}k" if value < 10_000_000 else f"{value / 1e6:,.1f}M"


def segment(value: object) -> str:
    """Return a segment of a path: a key's slash is written %2F."""
    return quote(str(value), safe="")


def query(**given: object) -> str:
    """Return a query string of the given values; "" without values."""
    named = {name.rstrip("_"): str(value) for name, value in given.items() if value not in (None, "", False)}
    return f"?{urlencode(named)}" if named else ""
