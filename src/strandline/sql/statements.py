"""Statements of SQL, by package and name, from the files of that package (`sql/sections.py`).

A statement without a mark is for both dialects (`sql/api.py` says how). Tables that are made at run time have names of
their own: `NAME@thumbs@3` is the statement NAME with `thumbs` in the place of `{1}` and `3` in that of `{2}`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from strandline.sql.api import Declared, Dialect, undeclared
from strandline.sql.sections import sections

_LOCKED: Final = re.compile(r"\s+FOR (?:UPDATE|SHARE)(?: OF \w+)?(?: SKIP LOCKED)?")
_PLACE: Final = re.compile(r"\$(\d+)(?:::[a-z]+(?: precision)?(?:\[\])?)?")

_NAME: Final = re.compile(r"[a-z0-9_]+")


@cache
def statement(package: str, name: str, dialect: Dialect | None = None, declared: Declared = undeclared) -> str:
    """Return a statement of a package, without its comments and line ends: drivers key their caches by the text.

    `PACKAGE/NAME` is a statement of that package instead. `declared` finds those that are in no file.
    """
    other, _, name = name.rpartition("/")
    package = other or package
    name, *names = name.split("@")
    text = _in_file(package, name, dialect) or (declared(name, dialect) if dialect else None)
    if text is None:
        raise LookupError(f"{package} has no statement {name}")
    for number, given in enumerate(names, 1):
        if not _NAME.fullmatch(given):
            raise ValueError(f"not a part of a table's name: {given}")
        text = text.replace(f"{{{number}}}", given)
    text = " ".join(" ".join(line.partition("--")[0] for line in text.splitlines()).split()).rstrip(";")
    return sqlite_text(text) if dialect == "sqlite" else text


def script(package: str, name: str, dialect: Dialect | None = None) -> str:
    """Return the text of a statement as it is in its file, with its comments."""
    text = _in_file(package, name, dialect)
    if text is None:
        raise LookupError(f"{package} has no statement {name}")
    return text


def _in_file(package: str, name: str, dialect: Dialect | None) -> str | None:
    found = sections(package, "sql")
    section = found.get(("name", name, dialect)) or found.get(("name", name, None))
    return section.text if section is not None else None


def sqlite_text(text: str) -> str:
    """Return a statement as SQLite reads it: tables have no schema, values no types, and one lock is that of all
    rows."""
    text = _LOCKED.sub("", text)
    return _PLACE.sub(r"?\1", text.replace("{schema}.", ""))


@cache
def repeated(text: str, rows: int) -> str:
    """Return an INSERT with the row after VALUES repeated, so that the library inserts many rows in one step."""
    insert, values, row = text.rpartition("VALUES ")
    return insert + values + ", ".join([row] * rows)
