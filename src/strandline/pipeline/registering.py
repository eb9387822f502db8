"""Registering: an Iceberg table that names an archive's Parquet files, which stay where they are.

    manifest ──its files that the table does not name──▶ add_files          ┐
    table ──its files that the manifest does not name──▶ out of the table   ┴▶ one transaction of the catalog

Only the table's metadata is written. The catalog is one that pyiceberg's own configuration names. If a run is killed
between manifest and table, the next run registers what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from strandline.errors import InvalidInput, StrandlineError, Unavailable, invalid, shown, text_of
from strandline.extras import check
from strandline.points import reached
from strandline.store.archive_files import Manifest

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

FORM: Final = "iceberg:CATALOG/NAMESPACE.TABLE"
OWNER: Final = "strandline.history-id"
"""The table's property that names the journal whose archive it shows."""
PROPERTIES: Final = {
    "gc.enabled": "false",
    "write.metadata.metrics.default": "counts",
    **{
        f"write.metadata.metrics.column.{column}": "truncate(16)"
        for column in ("key", "entity_type", "slice", "life", "seq_nr", "time", "type")
    },
}
"""The table's maintenance must not remove files, because they are part of the journal. The metadata has no text of
payloads, because it outlives a purge."""
_NAME: Final = re.compile(r"iceberg:(?P<catalog>[^/]+)/(?P<namespace>[^/]+)\.(?P<table>[^/.]+)")
_TYPES: Final = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.timestamp("us", tz="UTC"): "timestamptz",
    pa.list_(pa.string()): "list<string>",
    pa.map_(pa.string(), pa.string()): "map<string, string>",
}
"""Iceberg's names of the types that an archive's columns have."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The number of files that the table was given, and of those that were taken out of it."""

    added: int
    removed: int


class TableOfArchive:
    """The Iceberg table of an archive, which may not be there yet."""

    def __init__(self, register: str) -> None:
        """Raise `InvalidInput.option` for a name of another form, `Unsupported.not_installed` without pyiceberg."""
        found = _NAME.fullmatch(register)
        if found is None:
            raise invalid("option", "register", "not the name of a table", allowed=FORM, got=register)
        check("iceberg", "pyiceberg")
        self._catalog_name, self._namespace, self._table_name = found.groups()
        self._name = f"{self._namespace}.{self._table_name}"

    def check(self, folder: Path, history_id: str, columns: pa.Schema) -> None:
        """Raise what would stand in the way of `register`, as far as that can be seen now. Writes no table."""
        if set(str(folder)) & set("#?"):
            raise invalid("option", "register", "a folder whose path Iceberg cannot name", allowed="no # and no ?",
                          got=str(folder))  # fmt: skip
        with self._away(), self._catalog() as catalog:
            self._found(catalog, history_id, columns)

    def register(self, folder: Path, manifest: Manifest, columns: pa.Schema) -> Registered:
        """Let the table name the manifest's files, and no others; make the table if there is none."""
        with self._away("; the archive itself is written"), self._catalog() as catalog:
            table = self._found(catalog, manifest.history_id, columns)
            if table is None:
                table = catalog.create_table(self._name, schema=columns)
                reached("register.table_is_made")
            wanted = {f"file://{folder / file.path}" for file in manifest.files}
            named = {task.file.file_path: task.file for task in table.scan().plan_files()}
            missing, gone = sorted(wanted - named.keys()), sorted(named.keys() - wanted)
            if missing or gone:
                with table.transaction() as change:
                    change.set_properties({OWNER: manifest.history_id, **PROPERTIES})
                    if gone:
                        with change.update_snapshot().overwrite() as snapshot:
                            for path in gone:
                                snapshot.delete_data_file(named[path])
                    if missing:
                        change.add_files(missing, check_duplicate_files=False)
            return Registered(len(missing), len(gone))

    def _catalog(self) -> Catalog:
        from pyiceberg.catalog import load_catalog

        try:
            return load_catalog(self._catalog_name)
        except ValueError:  # its text may have the catalog's URI, with a password
            variable = f"PYICEBERG_CATALOG__{self._catalog_name.upper()}__URI"
            raise invalid(
                "option", "register", "a catalog that pyiceberg cannot open as it is configured",
                allowed="one of .pyiceberg.yaml or of environment variables", got=self._catalog_name,
                hint=f"describe it in .pyiceberg.yaml, or set {variable}",
            ) from None  # fmt: skip

    def _found(self, catalog: Catalog, history_id: str, columns: pa.Schema) -> Table | None:
        """Return the table; None if there is none. Refuse one that has other columns, or other rows."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            catalog.load_namespace_properties(self._namespace)
        except NoSuchNamespaceError:
            raise invalid(
                "option", "register", "no such namespace", allowed=f"one of the catalog {self._catalog_name}",
                got=self._namespace, hint="make the namespace in the catalog first",
            ) from None  # fmt: skip
        try:
            table = catalog.load_table(self._name)
        except NoSuchTableError:
            return None
        expected = {column.name: _TYPES[column.type] for column in columns}
        given = {column.name: str(column.field_type) for column in table.schema().fields if not column.required}
        wrong = sorted(name for name in expected if given.get(name) != expected[name])
        wrong += sorted({column.name for column in table.schema().fields} - expected.keys())
        if wrong:
            raise self._refused(f"a table of other columns ({', '.join(wrong)})")
        if table.current_snapshot() is not None and table.properties.get(OWNER) != history_id:
            raise self._refused("a table that has other rows")
        return table

    def _refused(self, wrong: str) -> InvalidInput:
        return invalid(
            "option", "register", wrong, allowed="a table that is not there yet, or that of this journal's archive",
            got=self._name, hint="name another table",
        )  # fmt: skip

    @contextmanager
    def _away(self, done: str = "") -> Iterator[None]:
        """Give an error of the catalog as `Unavailable.away`."""
        try:
            yield
        except StrandlineError:
            raise
        except Exception as error:  # each kind of catalog has errors of its own
            raise Unavailable(
                f"the Iceberg table {self._name} of the catalog {self._catalog_name} cannot be used{done}: "
                f"{type(error).__name__}: {shown(text_of(error), 300)}",
                code="away", hint="see that the catalog is there and lets you in, then run it again",
            ) from error  # fmt: skip
