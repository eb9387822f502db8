"""How a SQLite file is opened: what is refused at start, what is created, what is compared, what is upgraded."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

import strandline
from strandline.backends.sqlite import checks, database, describe_database, open_database, schema, upgrade_database
from strandline.backends.sqlite.log import PART, SqliteLog
from strandline.errors import InvalidInput, SchemaMismatch, StrandlineError
from strandline.settings import Settings
from strandline.sql.api import Part
from strandline.sql.steps import SchemaStep
from strandline.testing.log_contract import draft_of, everything

upgrade = partial(upgrade_database, part=PART, settings=Settings())
KEY = "order|42"
NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders" / "log.db"


def filled(path: Path, actions: int = 200) -> SqliteLog:
    log = SqliteLog(path)
    log.append([draft_of(KEY, bytes(500), partitions=8) for _ in range(actions)])
    return log


def refusal(call: Callable[[], Any]) -> StrandlineError:
    with pytest.raises(StrandlineError) as refused:
        call()
    assert refused.value.hint
    assert refused.value.applied == "no"
    return refused.value


# ---------------------------------------------------------------- library, pragmas, place, clock


@pytest.mark.req("U1")
@pytest.mark.parametrize(
    ("version", "accepted"),
    [("3.40.1", False), ("3.51.2", False), ("3.51.3", True), ("3.52.0", False), ("3.52.1", True), ("3.54.1", True)],
)
def test_libraries_that_can_lose_commits_are_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, version: str, accepted: bool
) -> None:
    path.parent.mkdir()
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    if accepted:
        SqliteLog(path).close()
        return
    error = refusal(lambda: SqliteLog(path))
    assert (error.name, error.found, error.needed) == ("Unsupported.sqlite_version", version, "3.51.3")
    assert not path.exists()


@pytest.mark.req("U2", "RS11", "RA1")
def test_what_durability_rests_on_is_set(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(connection: apsw.Connection) -> None:
        connection.pragma("synchronous", "off")
        connection.pragma("mmap_size", 2**20)

    def found(log: SqliteLog) -> list[tuple[Any, ...]]:
        with log._database.connection() as reader:
            names = ("journal_mode", "synchronous", "mmap_size")
            return [tuple(map(connection.pragma, names)) for connection in (log._database.writer, reader)]

    monkeypatch.setattr(apsw, "connection_hooks", [careless])  # as a library with other defaults would be
    with SqliteLogs() as open_:
        assert found(open_(path)) == [("wal", 2, 0)] * 2
        with pytest.warns(RuntimeWarning, match="power cut can lose"):
            relaxed = open_(path, accept_power_loss=True)
        assert found(relaxed) == [("wal", 1, 0)] * 2


@pytest.mark.req("U2")
@pytest.mark.parametrize(
    ("name", "value", "needed"),
    [
        ("synchronous", "normal", 2),
        ("synchronous", "off", 2),
        ("journal_mode", "delete", "wal"),
        ("mmap_size", 2**20, 0),
    ],
)
def test_a_pragma_that_does_not_hold_is_refused(tmp_path: Path, name: str, value: str | int, needed: Any) -> None:
    connection = apsw.Connection(str(tmp_path / "any.db"))
    error = refusal(lambda: database.set_pragma(connection, tmp_path, name, value, needed))
    assert (error.name, error.pragma, error.needed) == ("Unsupported.sqlite_pragma", name, needed)
    connection.close()


@pytest.mark.req("U2")
def test_a_file_system_without_shared_memory_is_refused(path: Path) -> None:
    class Poor(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("poor", "unix-dotfile", iVersion=1)

    path.parent.mkdir()
    poor = Poor()
    try:
        error = refusal(lambda: SqliteLog(path, vfs="poor"))
        assert (error.name, error.pragma, error.found) == ("Unsupported.sqlite_pragma", "journal_mode", "delete")
    finally:
        poor.unregister()


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /far rw,relatime - {kind} server:/export rw
31 30 0:41 / /far/near rw - ext4 /dev/vdb rw
32 22 0:42 / /with\\040space rw - {kind} server:/export rw
"""


@pytest.mark.req("U3")
@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs"]
)
def test_file_systems_without_safe_locks_are_refused(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format(kind=kind))
    for place in ("/far/orders/log.db", "/with space/log.db"):
        error = refusal(lambda place=place: checks.check_file_system(Path(place), mounts))  # type: ignore[misc]
        assert (error.name, error.found) == ("Unsupported.file_system", kind)
    for place in ("/far/near/log.db", "/farther/log.db", "/home/log.db"):
        checks.check_file_system(Path(place), mounts)


@pytest.mark.req("U3")
@pytest.mark.parametrize("kind", ["fuse", "fuseblk", "fuse.s3fs"])
def test_any_other_fuse_is_a_warning(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format(kind=kind))
    with pytest.warns(RuntimeWarning, match=kind):
        checks.check_file_system(Path("/far/log.db"), mounts)


@pytest.mark.req("U3")
def test_the_place_is_looked_at_before_anything_is_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = path.parent.parent / "mountinfo"
    mounts.write_text("22 1 254:0 / / rw,relatime - nfs4 server:/ rw\n")
    monkeypatch.setattr(checks.check_file_system, "__defaults__", (mounts,))
    assert refusal(lambda: SqliteLog(path)).name == "Unsupported.file_system"
    assert not path.parent.exists()


@pytest.mark.req("U13")
@pytest.mark.parametrize(
    ("now_s", "accepted"),
    [(0, False), (1_577_836_799, False), (1_577_836_800, True), (4_102_444_799, True), (4_102_444_800, False)],
)
def test_a_clock_that_cannot_be_right_is_refused(path: Path, now_s: int, accepted: bool) -> None:
    if accepted:
        SqliteLog(path, clock=lambda: now_s * 10**6).close()
        return
    error = refusal(lambda: SqliteLog(path, clock=lambda: now_s * 10**6))
    assert (error.name, error.found) == ("Unsupported.clock", now_s * 10**6)
    assert not path.parent.exists()


# ---------------------------------------------------------------- files


@pytest.mark.req("D4")
def test_files_are_their_owners_alone_whatever_the_umask(path: Path) -> None:
    old = os.umask(0)
    try:
        log = filled(path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"log.db": 0o600, "log.db-shm": 0o600, "log.db-wal": 0o600}
    log.close()
    assert [file.name for file in path.parent.iterdir()] == ["log.db"]


@pytest.mark.req("U4")
@pytest.mark.parametrize(
    "content", [b"hello", b"", b"SQLite format 3\0", b"x" * 5000], ids=["text", "empty", "cut", "long"]
)
def test_a_file_that_is_no_database_is_refused(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    if not content:
        SqliteLog(path).close()  # an empty file is an empty place
        return
    assert refusal(lambda: SqliteLog(path)).name == "SchemaMismatch.foreign_file"
    assert path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == ["log.db"]


@pytest.mark.req("U4")
@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_database_of_another_program_is_refused_and_left_alone(path: Path, mode: str) -> None:
    path.parent.mkdir()
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA journal_mode = {mode}")
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()
    before = path.read_bytes()
    error = refusal(lambda: SqliteLog(path))
    assert error.name == "SchemaMismatch.foreign_file"
    assert (path.read_bytes(), [file.name for file in path.parent.iterdir()]) == (before, ["log.db"])


@pytest.mark.req("U4")
def test_a_file_of_another_kind_is_refused(path: Path) -> None:
    SqliteLog(path).close()
    error = refusal(lambda: open_database(path, Part("store", "strandline.store"), settings=Settings()))
    assert error.name == "SchemaMismatch.foreign_file"
    assert "a Strandline log" in error.message


@pytest.mark.req("U4")
@pytest.mark.parametrize("kept", [0.3, 0.99])
def test_half_a_copy_is_refused(path: Path, kept: float) -> None:
    filled(path).close()
    size = path.stat().st_size
    os.truncate(path, int(size * kept))
    before = path.read_bytes()
    error = refusal(lambda: SqliteLog(path))
    assert (error.name, error.found, error.needed) == ("Corrupt.half_copied", int(size * kept), size)
    assert path.read_bytes() == before


@pytest.mark.req("U4")
def test_half_a_copy_with_a_write_ahead_log_is_refused(path: Path, tmp_path: Path) -> None:
    with SqliteLogs() as open_:
        log = open_(path)
        log.append([draft_of(KEY, bytes(5000), partitions=8) for _ in range(500)])
        log._database.writer.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
        log.append([draft_of(KEY, partitions=8)])
        copy = tmp_path / "copy" / "log.db"
        copy.parent.mkdir()
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
    whole = copy.read_bytes()
    os.truncate(copy, len(whole) // 2)
    assert refusal(lambda: SqliteLog(copy)).name == "Corrupt.half_copied"
    copy.write_bytes(whole)
    with SqliteLogs() as open_:
        assert len(everything(open_(copy), 4)) == 501


def test_a_killed_checkpoint_is_no_half_copy(path: Path) -> None:
    """A file that is behind its write-ahead log is whole all the same."""
    with SqliteLogs() as open_:
        log = open_(path)
        log.append([draft_of(KEY, bytes(5000), partitions=8) for _ in range(100)])
        copy = path.parent / "copy.db"
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        assert len(everything(open_(copy), 4)) == 100


def test_places_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, code in (
        ("none/orders/log.db", "url_incomplete"),
        ("file/log.db", "url_incomplete"),
        ("", "url_incomplete"),
    ):
        error = refusal(lambda path=path: SqliteLog(tmp_path / path))  # type: ignore[misc]
        assert (type(error), error.code) == (InvalidInput, code)


def as_another_user(call: Callable[[], Any]) -> str:
    """What a call raises in a child that is not root, and its hint. It must not need to import anything."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing was raised"
        try:
            if os.geteuid() == 0:
                os.setuid(NOBODY)
            call()
        except StrandlineError as error:
            said = f"{error.name} {error.applied}: {error.message}; {error.hint}"
        except BaseException as error:
            said = repr(error)
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as answer:
        return answer.read()


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """A folder that another user may look into: pytest's own are this one's alone."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("closed", ["around", "around/orders"])
def test_a_folder_that_may_not_be_looked_into_is_away(everybodys: Path, closed: str) -> None:
    folder = everybodys / "around" / "orders"
    folder.parent.mkdir()
    strandline.connect(f"sqlite:{folder}").close()
    (everybodys / closed).chmod(0)
    calls: list[Callable[[], Any]] = [
        lambda: strandline.connect(f"sqlite:{folder}"),
        lambda: strandline.connect(log=f"sqlite:{folder}/log.db", store=f"sqlite:{folder}/store.db"),
        lambda: SqliteLog(folder / "log.db"),
        lambda: describe_database(folder / "log.db", Part("log", "strandline.log"), settings=Settings()),
        lambda: upgrade(folder / "log.db"),
    ]
    for call in calls:
        said = as_another_user(call)
        assert said.startswith("Unavailable.away no: cannot use "), said
        assert said.endswith("; check that it is there and that this user may read and write it and its folder")
    (everybodys / closed).chmod(0o700)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_folder_that_may_not_be_written_is_away(everybodys: Path) -> None:
    everybodys.chmod(0o555)
    for path in (everybodys / "log.db", everybodys / "orders" / "log.db"):
        assert as_another_user(partial(SqliteLog, path)).startswith("Unavailable.away no: cannot use ")
    everybodys.chmod(0o755)


@pytest.mark.req("RJ12")
def test_who_makes_the_folder_first_does_not_matter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process makes it right after it was looked for."""
    looked = Path.is_dir

    def is_dir(self: Path) -> bool:
        found = looked(self)
        if self == path.parent and not found:
            os.mkdir(self)  # noqa: PTH102 - Path.mkdir looks, too
        return found

    monkeypatch.setattr(Path, "is_dir", is_dir)
    SqliteLog(path).close()
    assert path.exists()


# ---------------------------------------------------------------- schema


@pytest.mark.req("J109")
def test_an_empty_place_is_created_or_refused(path: Path) -> None:
    makes: list[Callable[[], None]] = [lambda: None, path.parent.mkdir, path.touch]
    for make in makes:
        make()
        error = refusal(lambda: SqliteLog(path, settings=Settings(schema="check")))
        assert error.name == "SchemaMismatch.no_schema"
    assert path.stat().st_size == 0
    log = SqliteLog(path)
    log_id = log.log_id
    log.close()
    log = SqliteLog(path, settings=Settings(schema="check"))
    assert log.log_id == log_id
    log.close()


@pytest.mark.req("J108", "J110")
def test_steps_are_recorded_by_name_and_the_version_with_them(path: Path) -> None:
    log = SqliteLog(path)
    known = schema.schema_of("log", "strandline.log").names
    with log._database.connection() as connection:
        assert [name for (name,) in connection.execute("SELECT name FROM log_schema_step ORDER BY nr")] == known
        assert connection.execute("SELECT value FROM log_setting WHERE name = 'schema_version'").get == str(len(known))
    log.close()


@pytest.mark.req("J111", "U5", "J23")
@pytest.mark.parametrize(
    ("given", "code", "facts"),
    [
        ({"partitions": 4}, "setting", {"setting": "partitions", "stored": 8, "given": 4}),
        ({"segment_size": 5}, "setting", {"setting": "segment_size", "stored": 10_000, "given": 5}),
        ({"append_ids_kept": 31}, "setting", {"setting": "append_ids_kept", "stored": 32, "given": 31}),
    ],
)
def test_other_settings_than_those_of_creation_are_refused(path: Path, given: Any, code: str, facts: Any) -> None:
    SqliteLog(path).close()
    before = path.read_bytes()
    error = refusal(lambda: SqliteLog(path, settings=Settings(**given)))
    assert (type(error), error.code, error.facts) == (SchemaMismatch, code, facts)
    assert path.read_bytes() == before
    SqliteLog(path, settings=Settings(partitions=8, segment_size=10_000, append_ids_kept=32)).close()


@pytest.mark.req("J23")
def test_another_fold_is_refused(path: Path) -> None:
    SqliteLog(path).close()
    change(path, "UPDATE log_setting SET value = '9' WHERE name = 'fold_version'")
    error = refusal(lambda: SqliteLog(path))
    assert (error.name, error.stored) == ("SchemaMismatch.fold_version", 9)


def later_schema(*scripts: str) -> schema.SqliteSchema:
    first = schema.schema_of("log", "strandline.log").steps
    names = ("800_second", "801_third")
    return schema.schema_with(Part("log", "strandline.log"), (*first, *map(SchemaStep, names, scripts)))


@pytest.mark.req("J110", "U4", "RS5")
def test_newer_schemas_are_refused_and_older_ones_upgraded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = schema.schema_of("log", "strandline.log")
    new = later_schema("ALTER TABLE head ADD COLUMN why TEXT", "CREATE TABLE added (x INTEGER) STRICT")
    log = filled(path, 10)
    log.close()
    monkeypatch.setattr(database, "schema_of", lambda *_: new)
    before = path.read_bytes()
    error = refusal(lambda: SqliteLog(path))
    assert (error.name, error.found, error.known) == ("SchemaMismatch.version", old.names, new.names)
    assert error.remedy == error.hint == "strandline schema upgrade"
    assert path.read_bytes() == before
    assert upgrade(path) == ["800_second", "801_third"]
    assert upgrade(path) == []
    with SqliteLogs() as open_:
        assert len(everything(open_(path), 4)) == 10
    monkeypatch.setattr(database, "schema_of", lambda *_: old)
    for call in (lambda: SqliteLog(path), lambda: upgrade(path)):
        error = refusal(call)
        assert (error.name, error.found, error.known) == ("SchemaMismatch.version", new.names, old.names)
        assert "800_second" in error.message


@pytest.mark.req("J110")
def test_a_skipped_step_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = later_schema("CREATE TABLE added (x INTEGER) STRICT", "CREATE TABLE more (x INTEGER) STRICT")
    monkeypatch.setattr(database, "schema_of", lambda *_: new)
    SqliteLog(path).close()
    change(path, "DELETE FROM log_schema_step WHERE name = '800_second'")
    error = refusal(lambda: SqliteLog(path))
    assert (error.name, error.found) == ("SchemaMismatch.version", [name for name in new.names if name != "800_second"])
    change(path, "DROP TABLE added")
    assert upgrade(path) == ["800_second"]


@pytest.mark.req("J110")
@pytest.mark.parametrize(
    "tampering",
    ["ALTER TABLE action DROP COLUMN value", "ALTER TABLE head ADD COLUMN mine TEXT", "DROP TABLE head",
     "ALTER TABLE action RENAME COLUMN first TO premier"],
)  # fmt: skip
def test_columns_must_be_as_declared(path: Path, tampering: str) -> None:
    SqliteLog(path).close()
    change(path, tampering)
    error = refusal(lambda: SqliteLog(path))
    assert error.name == "SchemaMismatch.version"
    assert {"found", "known", "remedy"} <= set(error.facts)


def test_tables_of_others_are_no_concern(path: Path) -> None:
    SqliteLog(path).close()
    change(path, "CREATE TABLE notes (x)")
    change(path, "INSERT INTO notes VALUES ('mine')")
    SqliteLog(path).close()
    assert upgrade(path) == []
    with closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("SELECT x FROM notes").fetchall() == [("mine",)]


@pytest.mark.req("J110", "RJ12")
def test_an_upgrade_that_was_killed_is_ended_by_the_next(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Death before each statement in turn, as an interrupt: every step is there wholly, or not at all."""
    scripts = (
        "CREATE TABLE one (x INTEGER) STRICT; CREATE TABLE two (x INTEGER) STRICT",
        "CREATE TABLE three (x INTEGER) STRICT",
    )
    new = later_schema(*scripts)
    old = schema.schema_of("log", "strandline.log")
    ended = False
    for deadly in range(1, 100):
        file = path.with_name(f"log-{deadly}.db")
        monkeypatch.setattr(database, "schema_of", lambda *_: old)
        SqliteLog(file).close()
        monkeypatch.setattr(database, "schema_of", lambda *_: new)
        steps = iter(range(1, 1000))
        connect = database.open_for_one

        def dying(*args: Any, steps: Any = steps, connect: Any = connect, deadly: int = deadly) -> apsw.Connection:
            connection: apsw.Connection = connect(*args)

            def trace(cursor: apsw.Cursor, statement: str, bindings: Any) -> bool:
                if next(steps) == deadly:
                    raise KeyboardInterrupt
                return True

            connection.exec_trace = trace
            return connection

        with monkeypatch.context() as patched:
            patched.setattr(database, "open_for_one", dying)
            try:
                upgrade(file)
                ended = True
            except KeyboardInterrupt:
                pass
        upgrade(file)
        SqliteLog(file).close()
        if ended:
            break
    assert ended
    assert deadly > 8


# ---------------------------------------------------------------- tools


class SqliteLogs:
    """Logs that are closed at the end."""

    def __init__(self) -> None:
        self._made: list[SqliteLog] = []

    def __call__(self, path: Path, **settings: Any) -> SqliteLog:
        self._made.append(SqliteLog(path, settings=Settings(**settings)))
        return self._made[-1]

    def __enter__(self) -> SqliteLogs:
        return self

    def __exit__(self, *_: object) -> None:
        for log in self._made:
            log.close()


def change(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()
