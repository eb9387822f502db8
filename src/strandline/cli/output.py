"""The output of commands: JSON lines for programs, short lines and tables for people.

Text from a journal is never sent to a terminal as it is: control characters and direction marks are shown escaped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from strandline.errors import InvalidInput
from strandline.values.json_form import json_form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

WIDTH_WITHOUT_TERMINAL = 200


def say(text: str) -> None:
    """Print a line for people, on stdout."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """Print a line for people on stderr; it is not part of the answer."""
    sys.stderr.write(text + "\n")


def emit(value: Any) -> None:
    """Print a JSON line on stdout, as UTF-8 in any locale."""
    sys.stdout.flush()
    sys.stdout.buffer.write(orjson.dumps(json_form(value)) + b"\n")


def write_file(option: str, path: str | Path, made: bytes) -> None:
    """Write a file that an option names."""
    try:
        Path(path).write_bytes(made)
    except OSError as error:
        raise InvalidInput(
            f"{option} {path}: cannot be written ({error.strerror})",
            code="option",
            hint="give a file that you can write",
        ) from None


def printable(text: str) -> str:
    """Return the text with all characters escaped that could control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def bytes_text(size: float) -> str:
    """Return a size in the unit that makes it short."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def console() -> Console:
    """Return a console on stdout. Without a terminal it is wide, so that no table is cut."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> Table:
    """Return a table without frames; the columns in `numbers` are aligned to the right."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        drawn.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    return drawn
