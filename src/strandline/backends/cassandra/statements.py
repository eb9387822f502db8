"""Statements of CQL, by package and name, from the files in the folder `cql` of that package (`sql/sections.py`).

Tables are written `keyspace.NAME`. CQL takes no keyspace name as a value, so the name is put into a statement when it
is loaded: quoted, and in a form that was checked with the URL.
"""

from __future__ import annotations

import re
from functools import cache

from strandline.sql.sections import sections
from strandline.store.table_statements import declared

_KEYSPACE = re.compile(r"\bkeyspace\b(?=\.| WITH| |$)")


@cache
def statement(package: str, name: str, keyspace: str) -> str:
    """Return a statement of a package, for a keyspace."""
    return _named(_text(package, name), keyspace)


def script(package: str, name: str, keyspace: str) -> list[str]:
    """Return the statements of a section that has several."""
    return parts(statement(package, name, keyspace))


def written(package: str, name: str, keyspace: str) -> str:
    """Return a section as it is in its file, for a keyspace."""
    return named(_text(package, name), keyspace)


def _text(package: str, name: str) -> str:
    section = sections(package, "cql").get(("name", name, None))
    text = section.text if section is not None else declared(name, "cql")
    if text is None:
        raise LookupError(f"{package} has no statement {name}")
    return text


def parts(text: str) -> list[str]:
    """Return the statements of a text that has several, without its comments."""
    return [part.strip() for part in _plain(text).split(";") if part.strip()]


def _plain(text: str) -> str:
    text = " ".join(" ".join(line.partition("--")[0] for line in text.splitlines()).split()).rstrip(";")
    return text.replace("( ", "(").replace(" )", ")")


def _named(text: str, keyspace: str) -> str:
    return named(_plain(text), keyspace)


def named(text: str, keyspace: str) -> str:
    """Return a statement for a keyspace."""
    return _KEYSPACE.sub(f'"{keyspace}"', text)
