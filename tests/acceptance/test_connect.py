"""connect: URLs, what they open or make, what they refuse, and that nothing is made then."""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import strandline
from strandline import Event, InvalidInput, Key, SchemaMismatch, Unavailable, Unsupported
from strandline.backends import backend_of
from strandline.servers.postgres import PostgresServer
from strandline.testing import FakeClock, carry
from strandline.urls import urls_of

KEY = Key("order", "42")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def one(s: strandline.Strandline, payload: Any = 1) -> None:
    s.journal.append(KEY, [Event("Placed", payload)])


def payloads(s: strandline.Strandline) -> list[Any]:
    return [event.payload for event in s.journal.read(KEY)]


# ---------------------------------------------------------------- what is opened


@pytest.mark.req("J1")
def test_a_folder_is_made_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with strandline.connect("sqlite:orders") as s:
        one(s)
        carry(s)
        one(s, 2)
        assert {path.name for path in Path("orders").iterdir()} >= {"log.db", "store.db"}
    with strandline.connect(f"sqlite:{tmp_path}/orders", schema="check") as s, s.journal as journal:
        assert payloads(s) == [1, 2]
        assert journal.append(KEY, [Event("Placed", 3)]).first == 3
        assert (s.log.partitions, s.shared, s.local) == (8, True, True)


@pytest.mark.req("D4")
def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with strandline.connect(f"sqlite:{tmp_path}/orders") as s:
            one(s)
            assert stat.S_IMODE((tmp_path / "orders").stat().st_mode) == 0o700
            for path in (tmp_path / "orders").iterdir():
                assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    finally:
        os.umask(before)


@pytest.mark.req("J1")
def test_a_log_and_a_store_of_their_own(tmp_path: Path) -> None:
    places: dict[str, Any] = {"log": f"sqlite:{tmp_path}/a.db", "store": f"sqlite:{tmp_path}/b.db"}
    with strandline.connect(**places, partitions=3, segment_size=5) as s:
        one(s)
        carry(s)
    with strandline.connect(**places) as s:
        assert (s.log.partitions, s.store.settings.partitions, s.store.settings.segment_size) == (3, 3, 5)
        assert payloads(s) == [1]
    with strandline.connect(log=places["log"], store=f"sqlite:{tmp_path}/new.db") as s:
        assert s.store.settings.segment_size == 5
        assert payloads(s) == [1]


def test_memory_ends_with_its_connection() -> None:
    with strandline.connect("memory:") as s:
        one(s)
        assert (payloads(s), s.shared) == ([1], False)
    with strandline.connect("memory:", partitions=2) as s:
        assert (payloads(s), s.log.partitions) == ([], 2)
    with strandline.connect(log="memory:", store="memory:") as s:
        one(s)
        assert payloads(s) == [1]


@pytest.mark.req("J1", "RJ1")
@pytest.mark.parametrize("store", ["memory", "sqlite", "postgresql"])
@pytest.mark.parametrize("log", ["memory", "sqlite", "postgresql"])
def test_any_log_goes_with_any_store(tmp_path: Path, postgres: PostgresServer, log: str, store: str) -> None:
    def url(scheme: str, name: str) -> str:
        if scheme == "postgresql":
            return f"{postgres.url}&schema={name}_{tmp_path.name}_{uuid4().hex[:8]}"
        return "memory:" if scheme == "memory" else f"sqlite:{tmp_path}/{name}.db"

    given: dict[str, Any] = {"log": url(log, "l"), "store": url(store, "s")}
    with strandline.connect(**given, partitions=3, segment_size=5) as s:
        one(s)
        carry(s)
        one(s, 2)
        assert payloads(s) == [1, 2]
        assert s.shared == ("memory" not in {log, store})
        assert s.local == ("sqlite" in {log, store})
    if "memory" not in {log, store}:
        with strandline.connect(**given, schema="check") as s:
            assert payloads(s) == [1, 2]
            assert (s.log.partitions, s.store.settings.segment_size) == (3, 5)


@pytest.mark.req("J1")
def test_one_database_for_both(postgres: PostgresServer) -> None:
    url = postgres.database()
    with strandline.connect(url) as s:
        one(s)
        carry(s)
        one(s, 2)
        assert (payloads(s), s.shared, s.local) == ([1, 2], True, False)
    with strandline.connect(log=url, store=url, schema="check") as s:
        assert payloads(s) == [1, 2]


@pytest.mark.req("J26")
def test_the_clock_is_the_callers(tmp_path: Path) -> None:
    clock = FakeClock()
    for url in ("memory:", f"sqlite:{tmp_path}/orders"):
        with strandline.connect(url, clock=clock) as s:
            assert s.journal.append(KEY, [Event("Placed", 1)]).timestamp == clock()


# ---------------------------------------------------------------- what is refused


def _file(tmp_path: Path) -> Path:
    path = tmp_path / "a file"
    path.write_text("not a folder")
    return path


REFUSED: list[tuple[str, str, Callable[[Path], dict[str, Any]]]] = [
    ("no scheme", "url_scheme", lambda p: {"url": f"{p}/orders"}),
    ("unknown scheme", "url_scheme", lambda p: {"url": "mysql://host/db"}),
    ("empty", "url_scheme", lambda p: {"url": ""}),
    ("not text", "url_scheme", lambda p: {"url": p}),
    ("no database", "url_incomplete", lambda p: {"url": "postgresql://user:hunter22@host"}),
    ("two databases", "url_incomplete", lambda p: {"url": "postgresql://user:hunter22@host/a/b"}),
    ("no host", "url_incomplete", lambda p: {"url": "postgresql://user:hunter22@/db"}),
    ("no slashes", "url_incomplete", lambda p: {"url": "postgresql:db"}),
    ("NUL in a database", "url_incomplete", lambda p: {"url": "postgresql://user:hunter22@host/a%00b"}),
    (
        "parameter of a server",
        "url_parameter",
        lambda p: {"url": "postgresql://u:hunter22@h/db?synchronous_commit=off"},
    ),
    ("parameter twice", "url_parameter", lambda p: {"url": "postgresql://u:hunter22@h/db?schema=a&schema=b"}),
    ("password with a ?", "url_parameter", lambda p: {"url": "postgresql://u:x?hunter22@h/db?nope=1"}),
    ("no topic", "url_incomplete", lambda p: {"log": "kafka://host:9092", "store": f"sqlite:{p}/s.db"}),
    ("a log as store", "url_scheme", lambda p: {"log": f"sqlite:{p}/l.db", "store": "kafka://host/orders"}),
    ("a store as log", "url_scheme", lambda p: {"log": "cassandra://host/orders", "store": f"sqlite:{p}/s.db"}),
    ("a log alone", "url_incomplete", lambda p: {"url": "kafka://host/orders"}),
    ("a store alone", "url_incomplete", lambda p: {"url": "cassandra://user:hunter22@host/orders"}),
    ("keyspace", "url_incomplete", lambda p: {"log": f"sqlite:{p}/l.db", "store": "cassandra://u:hunter22@h/a-b"}),
    ("parameter", "url_parameter", lambda p: {"url": f"sqlite:{p}/orders?synchronous=off"}),
    ("parameter of memory", "url_parameter", lambda p: {"url": "memory:?x=1"}),
    ("port 70000", "url_port", lambda p: {"url": "postgresql://user:hunter22@host:70000/db"}),
    ("password with a slash", "url_port", lambda p: {"url": "postgresql://user:x/hunter22@host:5432,b:0/db"}),
    ("port of a second host", "url_port", lambda p: {"url": "postgresql://u:hunter22@a:1,b:99999/db"}),
    ("port no number", "url_port", lambda p: {"url": "kafka://host:abc/orders"}),
    ("port 0", "url_port", lambda p: {"url": "kafka://[::1]:0/orders"}),
    ("nothing", "url_incomplete", lambda p: {}),
    ("log without store", "url_incomplete", lambda p: {"log": f"sqlite:{p}/l.db"}),
    ("store without log", "url_incomplete", lambda p: {"store": f"sqlite:{p}/s.db"}),
    ("url and log", "url_incomplete", lambda p: {"url": "memory:", "log": "memory:"}),
    ("no path", "url_incomplete", lambda p: {"url": "sqlite:"}),
    ("no parent folder", "url_incomplete", lambda p: {"url": f"sqlite:{p}/no/orders"}),
    ("no parent of a file", "url_incomplete", lambda p: {"log": f"sqlite:{p}/no/l.db", "store": f"sqlite:{p}/s.db"}),
    ("file for a folder", "url_incomplete", lambda p: {"url": f"sqlite:{_file(p)}"}),
    ("folder for a file", "url_incomplete", lambda p: {"log": f"sqlite:{p}", "store": f"sqlite:{p}/s.db"}),
    ("one file for both", "url_incomplete", lambda p: {"log": f"sqlite:{p}/x.db", "store": f"sqlite:{p}/x.db"}),
    ("named memory", "url_incomplete", lambda p: {"url": "memory:orders"}),
    ("host for a path", "url_incomplete", lambda p: {"url": "sqlite://host/orders"}),
    ("NUL in a path", "url_incomplete", lambda p: {"url": "sqlite:a\0b"}),
    ("unknown setting", "setting", lambda p: {"url": f"sqlite:{p}/orders", "partition": 3}),
    ("bad setting", "setting", lambda p: {"url": f"sqlite:{p}/orders", "read_page": 0}),
]


@pytest.mark.parametrize(("code", "given"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
@pytest.mark.req("J112")
def test_refused_and_nothing_made(tmp_path: Path, code: str, given: Callable[[Path], dict[str, Any]]) -> None:
    arguments = given(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(InvalidInput) as caught:
        strandline.connect(**arguments)
    assert caught.value.code == code
    assert caught.value.hint
    assert "; allowed " in caught.value.message
    assert contents(tmp_path) == before
    assert "hunter22" not in repr((caught.value.message, caught.value.hint, caught.value.facts))


def test_an_unknown_scheme_lists_the_known() -> None:
    with pytest.raises(InvalidInput) as caught:
        strandline.connect("mysql://host/db")
    assert "sqlite:FOLDER" in caught.value.message
    assert "memory:" in caught.value.message
    with pytest.raises(InvalidInput) as caught:
        strandline.connect("mysql://user:hunter22@host/db")
    assert "user:***@host" in caught.value.message


def test_a_parameter_that_is_nearly_right() -> None:
    with pytest.raises(InvalidInput) as caught:
        strandline.connect("postgresql://host/db?shema=orders")
    assert caught.value.hint == "did you mean schema?"


def test_work_is_opened_when_it_is_asked_for() -> None:
    with strandline.connect("memory:", work="postgresql://user:hunter22@127.0.0.1:1/db") as s:
        with pytest.raises(Unavailable) as caught:
            s.work("mails")
        assert caught.value.name == "Unavailable.away"
        assert "hunter22" not in caught.value.message


@pytest.mark.req("U13")
def test_a_clock_that_cannot_be_right(tmp_path: Path) -> None:
    for now in (0, 1_500_000_000 * 10**6, 4_102_444_800 * 10**6):
        for url in ("memory:", f"sqlite:{tmp_path}/orders"):
            with pytest.raises(Unsupported) as caught:
                strandline.connect(url, clock=FakeClock(now))
            assert caught.value.name == "Unsupported.clock"
    assert contents(tmp_path) == {}


@pytest.mark.req("J109")
def test_check_makes_nothing(tmp_path: Path) -> None:
    for arguments in (
        {"url": f"sqlite:{tmp_path}/orders"},
        {"log": f"sqlite:{tmp_path}/l", "store": f"sqlite:{tmp_path}/s"},
    ):
        with pytest.raises(SchemaMismatch) as caught:
            strandline.connect(**arguments, schema="check")  # type: ignore[arg-type]
        assert caught.value.name == "SchemaMismatch.no_schema"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("J111", "U5")
@pytest.mark.parametrize(
    ("setting", "stored", "given"), [("partitions", 4, 8), ("segment_size", 100, 10), ("bucket_size", "day", "hour")]
)
def test_what_creation_fixed(tmp_path: Path, setting: str, stored: Any, given: Any) -> None:
    url = f"sqlite:{tmp_path}/orders"
    with strandline.connect(url, **{setting: stored}) as s:
        one(s)
        carry(s)
    before = contents(tmp_path)
    with pytest.raises(SchemaMismatch) as caught:
        strandline.connect(url, **{setting: given})
    assert caught.value.name == "SchemaMismatch.setting"
    assert (caught.value.setting, str(caught.value.stored), str(caught.value.given)) == (
        setting,
        str(stored),
        str(given),
    )
    assert contents(tmp_path) == before
    with strandline.connect(url) as s:
        assert payloads(s) == [1]


# ---------------------------------------------------------------- the pair


@pytest.mark.req("J32", "RR6", "U6")
def test_another_log_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with strandline.connect(f"sqlite:{tmp_path}/{name}") as s:
            one(s, name)
            ids = s.log.log_id
            carry(s)
    before = contents(tmp_path)
    with pytest.raises(SchemaMismatch) as caught:
        strandline.connect(log=f"sqlite:{tmp_path}/b/log.db", store=f"sqlite:{tmp_path}/a/store.db")
    assert caught.value.name == "SchemaMismatch.log_replaced"
    assert caught.value.given == ids
    assert caught.value.stored in caught.value.message
    assert contents(tmp_path) == before


@pytest.mark.req("J32", "RR6", "U6")
def test_a_log_that_is_gone_or_older_is_refused_and_none_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    with strandline.connect(f"sqlite:{folder}") as s:
        one(s, 1)
    shutil.copy(folder / "log.db", tmp_path / "older.db")
    with strandline.connect(f"sqlite:{folder}") as s:
        one(s, 2)
        carry(s, partition=KEY.partition(8))
    (folder / "log.db").rename(tmp_path / "newer.db")
    with pytest.raises(SchemaMismatch) as caught:
        strandline.connect(f"sqlite:{folder}")
    assert caught.value.name == "SchemaMismatch.log_replaced"
    assert not (folder / "log.db").exists()
    shutil.copy(tmp_path / "older.db", folder / "log.db")
    with pytest.raises(SchemaMismatch) as caught:
        strandline.connect(f"sqlite:{folder}")
    assert caught.value.name == "SchemaMismatch.log_replaced"
    assert (caught.value.stored, caught.value.given) == (1, 0)
    (tmp_path / "newer.db").replace(folder / "log.db")
    with strandline.connect(f"sqlite:{folder}") as s:
        assert payloads(s) == [1, 2]


@pytest.mark.req("U4")
def test_a_foreign_file_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    for name in ("log.db", "store.db"):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_bytes(b"this is no database of ours" * 100)
        before = contents(tmp_path)
        for schema in ("create", "check"):
            with pytest.raises(SchemaMismatch) as caught:
                strandline.connect(f"sqlite:{folder}", schema=schema)
            assert caught.value.name == "SchemaMismatch.foreign_file"
        if name == "store.db":
            assert contents(tmp_path) == before
        assert (folder / name).read_bytes() == before[f"{folder.name}/{name}"]


def _create(url: str, start: Any, answers: Any) -> None:
    start.wait()
    try:
        with strandline.connect(url) as s:
            one(s)
            answers.put(s.log.log_id)
    except Exception as error:
        answers.put(repr(error))


@pytest.mark.req("J108", "RJ12")
def test_creators(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(8), context.Queue()
    url = f"sqlite:{tmp_path}/orders"
    processes = [context.Process(target=_create, args=(url, start, answers)) for _ in range(8)]
    for process in processes:
        process.start()
    ids = {answers.get(timeout=120) for _ in processes}
    for process in processes:
        process.join(30)
    assert len(ids) == 1
    with strandline.connect(url, schema="check") as s:
        assert ids == {s.log.log_id}
        assert payloads(s) == [1] * 8


# ---------------------------------------------------------------- the package


def test_public_names_are_there_and_no_others() -> None:
    package = importlib.import_module("strandline")
    for name in package.__all__:
        assert hasattr(package, name), name
    public = {name for name in vars(package) if not name.startswith("_")}
    modules = {name for name in public if type(getattr(package, name)) is type(sys)}
    assert public - modules == set(package.__all__) - {"__version__"}


def test_importing_it_is_light() -> None:
    heavy = ("pyspark", "apsw", "pandas", "pyarrow", "typer", "rich", "psycopg", "matplotlib")
    code = f"import strandline, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.req("J112")
def test_every_call_of_a_closed_connection_says_that(tmp_path: Path) -> None:
    s = strandline.connect(f"sqlite:{tmp_path}/orders")
    s.close()
    calls: list[Callable[[], object]] = [
        lambda: s.by_tag("blue"),
        lambda: s.by_slices("order", 0, 1023),
        lambda: s.wait_for_strandline(1),
        s.strandline, s.status, s.streams, s.groups, s.projections.list,
        lambda: s.work("mails"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(InvalidInput, match="this connection is closed") as caught:
            call()
        assert caught.value.code == "closed"


def test_a_second_close_is_harmless(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        s = strandline.connect(f"sqlite:{tmp_path}/orders")
        one(s)
        s.close()
        s.close()
    assert caplog.records == []


def test_what_is_open_shows_itself_briefly() -> None:
    s = strandline.connect("memory:", partitions=3)
    s.journal.append("order|42", [Event("Placed", 1)])
    assert repr(s) == "<Strandline <Journal MemoryLog of 3 partitions, MemoryStore>>"
    assert repr(s.journal.head("order|42")).startswith("Head(seq_nr=1, delete_to=0, life=1, partition=1, offset=0,")
    assert "given" not in repr(s.journal.head("order|42"))
    s.close()
    assert "closed" in repr(s)


@pytest.mark.req("J86")
@pytest.mark.parametrize(("given", "found"), [({}, 10_000), ({"batch_actions_max": 40_000}, 40_000)])
def test_ranges_towards_cassandra_are_shorter_unless_told_otherwise(
    given: dict[str, Any], found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = strandline.connect(f"sqlite:{tmp_path}/shop", **given)
    places: dict[str, Any] = {"log": f"sqlite:{tmp_path}/shop/log.db", "store": "cassandra://h/k"}
    monkeypatch.setattr(backend_of(urls_of(**places).store), "open_store", lambda *_: there.store)
    with there, strandline.connect(**places, **given) as s:
        assert there.settings.batch_actions_max == 40_000
        assert s.settings.batch_actions_max == found
