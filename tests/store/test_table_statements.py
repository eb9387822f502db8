"""Statements that follow from the declarations of tables: their texts, pinned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from strandline.sql.sections import sections
from strandline.store.table_statements import Language, declared
from strandline.store.tables import DECLARED, PACKAGE
from strandline.store.view_list import packages

PINNED = Path(__file__).with_name("table_statements.txt").read_text(encoding="utf-8")
TEXTS = re.findall(r"^(sqlite|postgres|cql) (\w+)\n    (.*)$", PINNED, re.MULTILINE)
FOLDERS = {"sqlite": ("strandline.store", "sql"), "postgres": ("strandline.store", "sql"),
           "cql": ("strandline.backends.cassandra", "cql")}  # fmt: skip


@pytest.mark.parametrize(("language", "name", "text"), TEXTS)
def test_what_a_declaration_comes_to(language: Language, name: str, text: str) -> None:
    """A text that changes is another statement on every database: read it, then write it here."""
    assert declared(name, language) == text


@pytest.mark.parametrize(("language", "name"), [pinned[:2] for pinned in TEXTS])
def test_no_file_says_the_same_once_more(language: str, name: str) -> None:
    package, folder = FOLDERS[language]
    found = sections(package, folder)
    assert not {("name", name, None), ("name", name, language)} & set(found)


def test_every_table_of_the_product_can_be_written() -> None:
    """A put is declared or in a file, for each table that a store of that kind has."""
    assert packages(None) == ()
    for table in DECLARED.values():
        if table.package == PACKAGE and table.name != "pointer":
            assert declared(f"put_{table.name}", "cql")
            assert declared(f"put_{table.name}", "sqlite")
    assert declared("put_nothing", "sqlite") is None
    assert declared("place_journal", "sqlite") is None
