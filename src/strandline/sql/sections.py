"""Reads the files of statements of a package: its folder `sql` or `cql` has one file per table or subject.

A file begins with a comment that says what it is about. Each section begins with a line that names it:

    -- step: 001_journal (sqlite)              a change of the schema (`sql/steps.py`), done in the order of names
    -- step: 009_snapshot                      the same for all dialects, in PostgreSQL's types
    -- step: 011_event (sqlite, additive)      programs that do not know it go on working beside it
    -- name: put_journal (postgres)            a statement for one dialect
    -- name: page                              a statement for all dialects

A package has each name once for a dialect, whichever file it is in.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final, Literal, NamedTuple

ADDITIVE: Final = "additive"
_TITLE: Final = re.compile(r"^-- (name|step): (\w+)(?: \(([a-z, ]+)\))?$\n", re.MULTILINE)
_DIALECTS: Final = {"sqlite", "postgres"}


class Section(NamedTuple):
    """A named part of a file, with its comments."""

    kind: Literal["name", "step"]
    name: str
    dialect: str | None
    """The dialect; None: for all dialects."""
    additive: bool
    text: str


@cache
def sections(package: str, folder: str) -> dict[tuple[str, str, str | None], Section]:
    """Return all sections of a package's folder, by kind, name and dialect."""
    found: dict[tuple[str, str, str | None], Section] = {}
    for file in sorted(files(package).joinpath(folder).iterdir(), key=lambda file: file.name):
        if not file.name.endswith((".sql", ".cql")):
            continue
        for section in sections_of(file.read_text(encoding="utf-8")):
            place = (section.kind, section.name, section.dialect)
            if place in found:
                raise ValueError(f"{package} has {section.kind} {section.name} twice: the second one is in {file.name}")
            found[place] = section
    return found


def sections_of(text: str) -> list[Section]:
    """Return the sections of a file, in its order."""
    _, *parts = _TITLE.split(text)
    made = []
    for kind, name, marks, body in zip(parts[::4], parts[1::4], parts[2::4], parts[3::4], strict=True):
        marked = set(marks.split(", ")) if marks else set()
        (dialect,) = (marked & _DIALECTS) or (None,)
        if marked - _DIALECTS - {ADDITIVE}:
            raise ValueError(f"{name} is marked ({marks}): a mark is sqlite, postgres or additive")
        made.append(Section("step" if kind == "step" else "name", name, dialect, ADDITIVE in marked, body))
    return made
