"""Which work journals a database has: their sets of tables, their settings, the columns of all their versions."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from strandline.errors import NotFound, SchemaMismatch
from strandline.sql.api import DATABASE_ID, Database, Part, Transaction
from strandline.work.declaration import (
    Codec,
    Columns,
    WorkDeclaration,
    WorkSettings,
    is_table_setting,
    journal_name,
    settings_of,
    settings_text,
)
from strandline.work.entries import EntryCounts
from strandline.work.rotation import CLOSED, LATER
from strandline.work.tables import Tables, first_number, of_tables
from strandline.work.upkeep import Upkeep

PART: Final = Part("work", "strandline.work", {"auto_vacuum": "incremental"}, prepared=True, sets=True)
"""The name of this part for the back-ends, which open its database."""
FIRST_SLOT: Final = 1
_log: Final = logging.getLogger("strandline.work")


class StoredJournal(NamedTuple):
    """A journal as its database has it."""

    number: int
    name: str
    set_name: str
    journal_id: str
    settings: WorkSettings
    settings_version: int
    codecs: dict[int, Codec]
    """Encoders of keys and data, by version of the columns."""
    version: int
    """The version of the columns that adds of this process use."""


def names(tx: Transaction) -> list[str]:
    """Return the names of all journals."""
    return [name for (name,) in tx.rows("journals")]


def find(tx: Transaction, name: str, columns: Columns | None = None) -> StoredJournal | None:
    """Return a journal, or None. With `columns`, only if one of its versions has them: adds use that version."""
    rows = tx.rows("journal", (journal_name(name),))
    if not rows:
        return None
    number, name, set_name, journal_id, settings, settings_version, set_settings, _ = rows[0]
    texts = dict(tx.rows("versions", (number,)))
    version = max(texts)
    if columns is not None:
        version = next((known for known, text in texts.items() if text == columns.text()), 0)
        if not version:
            return None
    codecs = {known: Codec(Columns.of(text)) for known, text in texts.items()}
    known = _stored_settings(settings, set_settings)
    return StoredJournal(number, name, set_name, journal_id, known, settings_version, codecs, version)


def _stored_settings(own: str, of_set: str) -> WorkSettings:
    """Return the settings of a journal. Settings of tables come from its set of tables."""
    shared = {field: value for field, value in asdict(settings_of(of_set)).items() if is_table_setting(field)}
    return replace(settings_of(own), **shared)


class LookedAt(NamedTuple):
    """A journal as an operator sees it."""

    name: str
    counts: EntryCounts
    tables: Counter[str]
    """The number of short-lived tables, by their states."""

    @property
    def row(self) -> dict[str, object]:
        """The row that `status` shows. `draining` are closed tables that are not empty yet."""
        return {
            "journal": self.name,
            **self.counts._asdict(),
            "tables": self.tables.total(),
            "draining": self.tables[CLOSED],
        }


def looked_at(tx: Transaction, database: Database, name: str, clock: Callable[[], int] | None) -> LookedAt:
    """Return a journal that is there."""
    number, _, set_name, *_ = tx.rows("journal", (name,))[0]
    counts = Tables(database, set_name, number, clock).counts(tx)
    return LookedAt(name, counts, Counter(state for _, state, *_ in tx.rows("tables", (set_name,))))


def opened(database: Database, name: str) -> StoredJournal:
    """Return a journal that is there."""
    with database.read() as tx:
        known = find(tx, name)
        if known is not None:
            return known
        there = names(tx)
    raise not_declared(name, there)


def not_declared(name: str, there: list[str]) -> NotFound:
    """Return the error for a name that no work journal has."""
    return NotFound(
        f"there is no work journal {name}; declared: {' '.join(there) or 'none'}",
        code="work_journal",
        hint="give s.work() a WorkDeclaration to make it; from a shell: `strandline work declare FILE`",
        journal=name,
        declared=there,
    )


def declared(database: Database, declaration: WorkDeclaration, now: int, *, create: bool) -> StoredJournal:
    """Return a journal as it is declared. Make or change it if it differs; if not `create`, refuse that."""
    with database.read() as tx:
        known = find(tx, declaration.name, declaration.columns)
    if known is not None and not _differs(known, declaration):
        return known
    if not create:
        what = "does not exist with these columns" if known is None else "was declared with other settings"
        raise SchemaMismatch(
            f"work journal {declaration.name} {what}",
            code="no_schema",
            hint='declare it once with schema="create", or give its name alone',
            journal=declaration.name,
        )
    with database.write() as tx:
        tx.rows("lock_catalog", (catalog_lock(database),))
        before = find(tx, declaration.name)
        _declare(tx, declaration, now)
        known = find(tx, declaration.name, declaration.columns)
    if known is None:
        raise RuntimeError("a journal that was declared is not there")
    if before is not None and known.version not in before.codecs:
        # Entries with other columns go into another table.
        Upkeep(database, Tables(database, known.set_name, known.number, None)).step(known.settings, close=True)
    return known


def catalog_lock(database: Database) -> int:
    """Return the advisory lock that a declaration takes."""
    digest = blake2b(f"{database.fixed[DATABASE_ID]} catalog".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _differs(known: StoredJournal, declaration: WorkDeclaration) -> bool:
    _check_tables(known.set_name, declaration)
    return known.settings != _settings_over(known.settings, declaration)


def _settings_over(before: WorkSettings, declaration: WorkDeclaration) -> WorkSettings:
    """Return the declaration's settings; those of its tables only where it names them."""
    kept = {
        field: value
        for field, value in asdict(before).items()
        if is_table_setting(field) and field not in declaration.given
    }
    return replace(declaration.settings, **kept, tables=before.tables)


def _check_tables(stored: str, declaration: WorkDeclaration) -> None:
    given = declaration.settings.tables
    if "tables" in declaration.given and given != stored:
        raise SchemaMismatch(
            f"tables is {stored}, fixed at creation; given {given}",
            code="setting",
            hint=f"leave tables out, or give {stored}",
            setting="tables",
            stored=stored,
            given=given,
        )


def _declare(tx: Transaction, declaration: WorkDeclaration, now: int) -> None:
    rows = tx.rows("journal", (declaration.name,))
    if not rows:
        set_name = declaration.settings.tables or declaration.name
        _make_set(tx, set_name, declaration, now)
        text = settings_text(declaration.settings)
        tx.execute("add_journal", (declaration.name, set_name, uuid.uuid4().hex, text))
        rows = tx.rows("journal", (declaration.name,))
    number, name, set_name, _, settings, _, set_settings, _ = rows[0]
    _check_tables(set_name, declaration)
    before = _stored_settings(settings, set_settings)
    after = _settings_over(before, declaration)
    changed = [field for field, value in asdict(after).items() if value != getattr(before, field)]
    of_set = [field for field in changed if is_table_setting(field)]
    if of_set:
        tx.execute("change_set", (set_name, settings_text(after)))
        tx.execute("touch_journals", (set_name,))
        _log.info("work tables %s: changed %s", set_name, " ".join(of_set))
    if own := [field for field in changed if not is_table_setting(field)]:
        tx.execute("change_settings", (number, settings_text(after)))
        _log.info("work journal %s: changed %s", name, " ".join(own))
    texts = dict(tx.rows("versions", (number,)))
    if declaration.columns.text() not in texts.values():
        _check_key_types(name, texts.values(), declaration.columns)
        tx.execute("add_version", (number, max(texts, default=0) + 1, declaration.columns.text()))
        tx.execute("touch_journals", (set_name,))


def _check_key_types(journal: str, texts: Iterable[str], columns: Columns) -> None:
    """Refuse another type for a key column: adds would no longer find the waiting entry of the same key."""
    for text in texts:
        for name, kind in Columns.of(text).key.items():
            given = columns.key.get(name, kind)
            if given != kind:
                raise SchemaMismatch(
                    f"work journal {journal}: key column {name} is {kind}, fixed when it was declared; given {given}",
                    code="setting",
                    hint="give the column another name, or declare another journal",
                    journal=journal,
                    setting=name,
                    stored=kind,
                    given=given,
                )


def _make_set(tx: Transaction, name: str, declaration: WorkDeclaration, now: int) -> None:
    if tx.rows("set", (name,)):
        return
    ((number,),) = tx.rows("set_numbers")
    first = first_number(number + 1)
    tx.execute("add_set", (name, number + 1, settings_text(declaration.settings), first))
    if tx.dialect == "sqlite":
        connection: Any = tx.raw
        for (text,) in tx.rows("template", (name,)):
            connection.execute(text)
    else:
        tx.execute(of_tables("make_set", name, first, first_number(number + 2) - 1))
        for slot in (LATER, FIRST_SLOT):
            tx.execute(of_tables("make_table", name, slot))
    tx.execute("add_table", (name, FIRST_SLOT, now, first))
