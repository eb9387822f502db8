"""Verify: read a journal or a backup through and name every damage with its place and extent. It changes nothing.

    files     SQLite's own check of pages and indexes; of a backup, the SHA-256 of each file
    log       offsets without gaps, timestamps that grow, header, numbers and value of each record, each kept head
    store     the digest of each row; then everything that `reconcile` compares: numbers without gaps, heads and events,
              events and the kept log, views of tags, pointers

A journal may be in use meanwhile: only actions up to the pointers that were read first are compared. A backup is
checked as the journal that it would be restored to: its rows are put into files in a temporary folder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from strandline.backends import backend_of
from strandline.backends.sqlite import copying
from strandline.backup import loading
from strandline.backup.manifest import BackupManifest, Told, damaged_files, read_manifest
from strandline.backup.taking import quiet
from strandline.carry.range import Decoded, decode
from strandline.connect import Strandline, connect
from strandline.errors import Corrupt, MissingEvent, NotFound, SchemaMismatch
from strandline.fold import RefusedAppend, fold
from strandline.reconcile.findings import Difference
from strandline.reconcile.rounds import HereRunner, reconcile_rounds
from strandline.record import BadValue, Record, read_contents
from strandline.record_numbers import check_numbers
from strandline.rows import Pointer
from strandline.settings import Settings
from strandline.sql.api import Database
from strandline.store.api import StoreSettings
from strandline.store.scans import entity_types_of, keys_of
from strandline.store.sql_store import part_of
from strandline.store.tables import OWN_TABLES, Table
from strandline.store.view_list import views_of
from strandline.urls import SQL, Url, Urls, urls_of
from strandline.values.actions import Append, Mark, Place
from strandline.values.heads import Head, State
from strandline.values.keys import key_partition

RECORDS: Final = 1000
BYTES: Final = 8 * 2**20
ROWS: Final = 2000
KEYS: Final = 500
Kept = Callable[[Collection[str]], tuple[dict[str, State], set[str]]]
DAMAGES_MAX: Final = 1000
"""How many damages are listed at most; all are counted."""


class Damage(NamedTuple):
    """A part of a journal that is not as it was written."""

    place: str
    """The table, file or partition."""
    extent: str
    """The damaged rows, records, pages or bytes in that place."""
    wrong: str


@dataclass(slots=True)
class VerifyReport:
    """The counts of what `verify` read, and the damages that it found."""

    damages: list[Damage] = field(default_factory=list)
    damaged: int = 0
    """The number of all damages, listed or not."""
    files: int = 0
    bytes: int = 0
    records: int = 0
    heads: int = 0
    """Heads of the log that were compared."""
    rows: int = 0
    """Rows of the store whose digests were checked."""
    events: int = 0
    keys: int = 0
    tag_rows: int = 0
    busy: list[str] = field(default_factory=list)
    """Keys that were being written each time they were read, and so were not compared."""
    moment: int = 0
    """The moment of the backup."""
    strandline: int = 0

    def add(self, place: str, extent: object, wrong: str) -> None:
        """Note a damage."""
        self.damaged += 1
        if len(self.damages) < DAMAGES_MAX:
            self.damages.append(Damage(place, str(extent), wrong))

    def to_dict(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in COUNTED}
        return {**counts, "busy": self.busy, "damages": [damage._asdict() for damage in self.damages]}


COUNTED: Final = (
    "damaged", "files", "bytes", "records", "heads", "rows", "events", "keys", "tag_rows", "moment", "strandline",
)  # fmt: skip


def verify(
    url: str | None = None,
    *,
    log: str | None = None,
    store: str | None = None,
    work: str | None = None,
    projections: str | None = None,
    told: Told = quiet,
    **settings: Any,
) -> VerifyReport:
    """Read a journal, which may be in use, through. It may be on any log and any store."""
    checked = replace(Settings.of(settings), schema="check")
    urls = urls_of(url, log, store, work, projections)
    report = VerifyReport()
    _check_files(urls, checked, report, told)
    if not report.damaged:
        _check_rows(urls.store, checked, report, told)
        try:
            with connect(
                url, log=log, store=store, work=work, projections=projections, **{**settings, "schema": "check"}
            ) as s:
                _JournalProof(s, urls, report, told).prove()
        except (Corrupt, MissingEvent) as error:
            _opens_badly(error, report)
    return report


def verify_backup(path: str | Path, *, scratch: str | Path | None = None, told: Told = quiet) -> VerifyReport:
    """Read a backup through. `scratch` is a folder with room for another copy; by default the system's temporary
    folder.

    `Corrupt.half_copied` for a folder that is not a whole backup. If a file is damaged, only the files are checked.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    report = VerifyReport(moment=manifest.moment, strandline=manifest.strandline, bytes=manifest.bytes)
    for file, wrong in damaged_files(folder, manifest, told):
        report.add(file.name, "as a whole", wrong)
    report.files = sum(len(database.files) for database in manifest.databases)
    for database in manifest.databases:
        for file in database.files if database.scheme == "sqlite" and not report.damaged else ():
            told(f"check {file.name}", 0, file.bytes)
            for wrong in copying.damage_in(folder / file.name):
                report.add(file.name, _extent(wrong), wrong)
    if not report.damaged:
        with TemporaryDirectory(prefix="strandline-verify-", dir=scratch) as made:
            _prove_copy(manifest, folder, Path(made), report, told)
    return report


def _prove_copy(manifest: BackupManifest, folder: Path, made: Path, report: VerifyReport, told: Told) -> None:
    kept = None if manifest.parts["log"].scheme == "sqlite" else partial(loading.heads_of, made)
    try:
        loading.load(manifest, folder, made, told)
        urls = urls_of(log=f"sqlite:{made}/log.db", store=f"sqlite:{made}/store.db")
        _check_rows(urls.store, Settings(schema="check"), report, told)
        with connect(log=urls.log.text, store=urls.store.text, schema="check") as s:
            _JournalProof(s, urls, report, told, kept).prove()
            _check_pointers(manifest, s.store.pointers(), report)
    except (Corrupt, MissingEvent) as error:
        _opens_badly(error, report)


def _check_pointers(manifest: BackupManifest, pointers: list[Pointer], report: VerifyReport) -> None:
    for pointer, said in zip(pointers, manifest.pointers, strict=True):
        if pointer.offset != said:
            report.add("manifest.json", f"pointer {pointer.partition}", f"{said}; the store is at {pointer.offset}")


def _check_files(urls: Urls, settings: Settings, report: VerifyReport, told: Told) -> None:
    """Run SQLite's own check on each file."""
    for path in dict.fromkeys(url.path for url in urls if url is not None):
        if path is None or not path.exists():
            continue
        told(f"check {path}", 0, path.stat().st_size)
        for wrong in copying.damage_in_use(path, settings):
            report.add(str(path), _extent(wrong), wrong)
        report.files += 1
        report.bytes += path.stat().st_size


def _extent(wrong: str) -> str:
    """Return the damaged place in a message of SQLite's check."""
    return wrong.splitlines()[0].removeprefix("*** ").removesuffix(" ***").partition(":")[0][:100]


def _check_rows(url: Url, settings: Settings, report: VerifyReport, told: Told) -> None:
    """Check the digest of each row of a store on SQL."""
    if url.scheme not in SQL:
        return
    with closing(backend_of(url).open_database(url, part_of(), settings, None, fixed={})) as database:
        views = views_of(StoreSettings("", 1, 1))
        for table in (*OWN_TABLES, *(table for view in views for table in view.tables)):
            if table.version is None or table.partitioned_only:
                continue
            told(f"read table {table.name}", 0, 0)
            try:
                _check_table(database, table, report)
            except Corrupt as error:
                report.add(f"table {table.name}", "from there on", error.message)


def _check_table(database: Database, table: Table, report: VerifyReport) -> None:
    rows = database.rows(f"first_{table.name}", (ROWS,))
    while rows:
        for values in rows:
            report.rows += 1
            try:
                table.read(values)
            except (Corrupt, SchemaMismatch) as error:
                place = ", ".join(f"{name} {values[table.at(name)]}" for name in table.place)
                report.add(f"table {table.name}", place, error.message)
        last = table.place_of(rows[-1])
        rows = database.rows(f"next_{table.name}", (ROWS, *last)) if len(rows) == ROWS else []


def _opens_badly(error: Corrupt | MissingEvent, report: VerifyReport) -> None:
    """Note the error that keeps a journal from being opened, unless its damage was found before."""
    if not report.damaged:
        report.add("the journal", "as a whole", error.message)


class _JournalProof:
    """Checks log and store."""

    def __init__(self, s: Strandline, urls: Urls, report: VerifyReport, told: Told, kept: Kept | None = None) -> None:
        log, store, settings = s.log, s.store, s.settings
        self._log, self._store, self._urls, self._settings = log, store, urls, settings
        self._report, self._told = report, told
        self._pointers = store.pointers()
        self._newest = log.newest()
        self._states: dict[str, State] = {}
        self._kept = kept or getattr(log, "states", None)
        """Returns the heads that the log keeps, if it keeps any."""

    def prove(self) -> None:
        for partition in range(self._log.partitions):
            self._told(f"read partition {partition} of the log", 0, 0)
            self._records(partition)
        self._told("compare heads", 0, 0)
        self._heads()
        self._told("compare events, heads, views and log", 0, 0)
        self._reconcile()

    # ------------------------------------------------------------ log

    def _records(self, partition: int) -> None:
        """Read the kept records of a partition, and fold its tail."""
        after, newest, timestamp = self._log.oldest()[partition] - 1, self._newest[partition], 0
        place = f"partition {partition} of the log"
        while after < newest:
            try:
                page = self._log.read(partition, after=after, to=newest, limit=RECORDS, bytes_max=BYTES)
            except NotFound as error:  # these records were trimmed meanwhile
                after = error.earliest - 1
                continue
            except (Corrupt, MissingEvent) as error:
                self._report.add(place, f"after offset {after}", error.message)
                return
            for record in page.records:
                if record.timestamp <= timestamp and self._log.exact:
                    wrong = f"its timestamp {record.timestamp} is not after {timestamp}, that of the one before it"
                    self._report.add(place, f"offset {record.offset}", wrong)
                timestamp = record.timestamp
            self._report.records += len(page.records)
            self._decoded(place, page.records)
            if page.position - 1 <= after:
                return
            after = page.position - 1

    def _decoded(self, place: str, records: list[Record]) -> None:
        decoded, newer = decode(records, self._log.partitions)
        if newer is not None:
            at, error = newer
            self._report.add(place, f"offset {at}", error.message)
            return  # the record is from a newer program, which alone can fold it
        tail = [item for item in decoded if item.record.offset > self._pointers[item.record.partition].offset]
        self._learn({item.action.key for item in tail if item.action is not None and item.action.key is not None})
        for item in decoded:
            extent = f"offset {item.record.offset}"
            if item.reason:
                self._report.add(place, extent, f"its header cannot be read: {item.reason}")
            elif isinstance(item.action, Append):
                try:
                    read_contents(item.action, item.record.value)
                except BadValue as bad:
                    self._report.add(place, extent, f"its value cannot be read: {bad.reason}")
        for item in tail:
            self._fold(place, item)

    def _learn(self, keys: set[str]) -> None:
        """Load the stored states of keys of the tail, from all partitions."""
        by_partition: dict[int, list[str]] = {}
        for key in keys - self._states.keys():
            by_partition.setdefault(self._partition_of(key), []).append(key)
        for partition, mine in by_partition.items():
            with suppress(Corrupt):  # the damaged head was noted with its row
                self._states.update({**dict.fromkeys(mine), **self._store.look(partition, mine).states})

    def _partition_of(self, key: str) -> int:
        return key_partition(key, self._log.partitions)

    def _fold(self, place: str, item: Decoded) -> None:
        action, record = item.action, item.record
        if action is None or isinstance(action, Mark) or action.key not in self._states:
            return
        before = self._states[action.key]
        after, effect = fold(before, action, Place(*record[:3]), self._store.settings.rules)
        self._states[action.key] = after
        if not self._log.exact:
            return  # a log that is not exact has refused appends, too
        try:
            if isinstance(effect, RefusedAppend):
                raise Corrupt(f"the log has an append of {action.key} that its fold refuses", code="fold", hint="")
            if not item.reason:
                check_numbers(record, before, after, effect)
        except Corrupt as error:
            self._report.add(place, f"offset {record.offset}", error.message)

    def _heads(self) -> None:
        """Compare the log's heads with those of the store, after the tail was folded."""
        if self._kept is None:
            return
        for keys in self._all_keys():
            states, damaged = self._kept(keys)
            for key in damaged:
                self._report.add("heads of the log", key, "its head is not as it was written; the next append mends it")
            self._learn(set(keys))
            for key in keys:
                self._report.heads += 1
                said, expected = states.get(key), self._states.get(key)
                if key in damaged or key not in self._states or _without_archive(said) == _without_archive(expected):
                    continue
                if said is not None and said.offset > self._newest[self._partition_of(key)]:
                    continue  # the key was written meanwhile
                wrong = f"it says {_short(said)}; store and log say {_short(expected)}"
                self._report.add("heads of the log", key, wrong)

    def _all_keys(self) -> Iterator[list[str]]:
        yield from _in_parts(list(self._states))
        for entity_type in entity_types_of(self._store):
            after = None
            while keys := keys_of(self._store, entity_type, after=after, limit=KEYS):
                after = keys[-1]
                yield [key for key in keys if key not in self._states]

    # ------------------------------------------------------------ both

    def _reconcile(self) -> None:
        found = reconcile_rounds(self._log, self._store, HereRunner(self._log, self._store, self._settings))
        report = self._report
        report.events, report.keys, report.tag_rows = found.events, found.keys, found.tag_rows
        report.busy, report.strandline = found.busy, found.strandline or report.strandline
        for finding in found.findings:
            report.add(*_damage_of(finding))


def _in_parts(keys: list[str]) -> Iterator[list[str]]:
    for at in range(0, len(keys), KEYS):
        yield keys[at : at + KEYS]


def _without_archive(state: State) -> State:
    """Return the state without the fields that only the store has: how much of the key is in the archive."""
    return state._replace(archive_to=0) if isinstance(state, Head) else state


def _short(state: State) -> str:
    if state is None:
        return "nothing"
    names = ("life", "seq_nr", "delete_to", "offset")
    return ", ".join(f"{name} {getattr(state, name)}" for name in names if hasattr(state, name))


def _damage_of(finding: Difference) -> tuple[str, str, str]:
    place = f"view of tag {finding.tag}" if finding.tag is not None else "store"
    if finding.key is None:
        return place, f"partition {finding.partition}", _words(finding)
    numbers = f", events {_run(finding.seq_nrs)}" if finding.seq_nrs else ""
    return place, f"{finding.key}, life {finding.life}{numbers}", _words(finding)


def _words(finding: Difference) -> str:
    return f"{finding.kind}: expected {finding.expected or 'nothing'}, found {finding.found or 'nothing'}"


def _run(numbers: tuple[int, ...]) -> str:
    if len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers[:10])) + (" …" if len(numbers) > 10 else "")
