"""How a schema of a PostgreSQL database is opened: what is refused at start, what is created, compared and upgraded."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import strandline
from strandline import Event, InvalidInput, Key, SchemaMismatch, Unavailable, Unsupported
from strandline.backends.postgres import schema as schemas
from strandline.backends.postgres.checks import SETTINGS, ServerFacts, check_server
from strandline.backends.postgres.driver_errors import outcome_of
from strandline.backends.postgres.pool import Pool
from strandline.extras import install
from strandline.servers.postgres import PostgresServer
from strandline.settings import Settings
from strandline.sql.api import Part
from strandline.sql.statements import script
from strandline.sql.steps import steps_in
from strandline.testing import carry
from strandline.testing.log_contract.made import KEY, draft_of, everything, partition_for
from tests.log.postgres_logs import create, new_url, opened, parsed

SAFE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "data_checksums": "on",
        "server_encoding": "UTF8"}  # fmt: skip


@pytest.fixture(scope="module")
def own() -> Iterator[PostgresServer]:
    """A server that tests may spoil."""
    with PostgresServer() as server:
        yield server


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url.partition("&schema")[0], autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def tables(url: str) -> set[str]:
    with psycopg.connect(url.partition("&schema")[0]) as connection:
        found = connection.execute("SELECT schemaname || '.' || tablename FROM pg_tables").fetchall()
    return {str(name) for (name,) in found}


# ---------------------------------------------------------------- servers that are not safe


@contextmanager
def altered(server: PostgresServer, name: str, value: str) -> Iterator[None]:
    run(server.url, f"ALTER SYSTEM SET {name} = {value}", "SELECT pg_reload_conf()")
    try:
        with psycopg.connect(server.url, autocommit=True) as connection:
            while connection.execute(f"SHOW {name}").fetchone() != (value,):
                pass
        yield
    finally:
        run(server.url, f"ALTER SYSTEM RESET {name}", "SELECT pg_reload_conf()")


@pytest.mark.req("U7")
@pytest.mark.parametrize(
    ("setting", "value"),
    [("fsync", "off"), ("full_page_writes", "off"), ("synchronous_commit", "off"), ("synchronous_commit", "local")],
)
def test_a_server_that_can_lose_commits_is_refused_and_nothing_is_made(
    own: PostgresServer, setting: str, value: str
) -> None:
    before = tables(own.url)
    with altered(own, setting, value):
        with pytest.raises(Unsupported) as caught:
            strandline.connect(new_url(own))
        assert caught.value.name == "Unsupported.postgres_unsafe"
        assert (caught.value.setting, caught.value.found, caught.value.needed) == (setting, value, "on")
        assert setting in caught.value.hint
        if value == "off" and setting == "synchronous_commit":
            with pytest.warns(RuntimeWarning, match="can lose the last acknowledged appends"):
                opened(new_url(own), accept_power_loss=True).close()
        else:
            with pytest.raises(Unsupported):
                strandline.connect(new_url(own), accept_power_loss=True)
            assert tables(own.url) == before


@pytest.mark.req("U7")
def test_a_database_in_another_encoding_is_refused(own: PostgresServer) -> None:
    run(own.url, "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(Unsupported) as caught:
        strandline.connect(own.url_of("latin"))
    assert (caught.value.name, caught.value.found) == ("Unsupported.postgres_unsafe", "LATIN1")


@pytest.mark.req("U7")
def test_a_standby_is_refused() -> None:
    with PostgresServer() as server:
        url = new_url(server)
        opened(url).close()
        server.stop()
        (server.folder / "data" / "standby.signal").touch()
        server.start()
        with pytest.raises(Unsupported) as caught:
            opened(url)
        assert (caught.value.name, caught.value.found) == ("Unsupported.postgres_unsafe", "a standby")


@pytest.mark.req("U7")
@pytest.mark.parametrize(
    ("number", "standby", "settings", "refused"),
    [(120_017, False, SAFE, "version"), (130_000, False, SAFE, None), (180_004, True, SAFE, "role")],
)
def test_what_is_safe(number: int, standby: bool, settings: dict[str, str], refused: str | None) -> None:
    server = ServerFacts(f"PostgreSQL {number}", number, standby, settings)
    if refused is None:
        check_server(server, "here", accept_power_loss=False)
        return
    with pytest.raises(Unsupported) as caught:
        check_server(server, "here", accept_power_loss=True)
    assert (caught.value.name, caught.value.setting) == ("Unsupported.postgres_unsafe", refused)


@pytest.mark.req("U7")
@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_the_server_does_not_have_is_a_warning(name: str) -> None:
    settings = {known: value for known, value in SAFE.items() if known != name}
    with pytest.warns(RuntimeWarning, match=f"no setting {name}"):
        check_server(ServerFacts("another server", 150_000, False, settings), "here", accept_power_loss=False)


@pytest.mark.req("U7")
def test_no_page_checksums_is_a_warning() -> None:
    with pytest.warns(RuntimeWarning, match="checksums"):
        check_server(
            ServerFacts("", 150_000, False, {**SAFE, "data_checksums": "off"}), "here", accept_power_loss=False
        )


# ---------------------------------------------------------------- servers that are not there


AWAY: list[tuple[str, Callable[[PostgresServer], str], str, str]] = [
    ("nobody listens", lambda own: "postgresql://me:hunter22@127.0.0.1:1/db", "is refused", "start PostgreSQL there"),
    ("no such folder", lambda own: "postgresql://me:hunter22@/db?host=/no/such/folder", "no such socket", "start"),
    ("no such host", lambda own: "postgresql://me:hunter22@no-such-host.invalid/db", "no such host", "start"),
    ("no such database", lambda own: own.url_of("nosuch"), 'there is no database "nosuch"', "create the database"),
    ("no such user", lambda own: own.url.replace("postgres@", "stranger:hunter22@"), 'no user "stranger"', "user"),
    ("no password", lambda own: own.url.replace("postgres@", "guarded@"), "it asks for a password", "password"),
    ("no right to log in", lambda own: own.url.replace("postgres@", "shut@"), 'user "shut" may not log in', "user"),
    ("a rule", lambda own: own.url.replace("postgres@", "barred@"), "pg_hba.conf does not let this user in", "user"),
    ("wrong password", lambda own: own.url.replace("postgres@", "guarded:hunter22@"), "the password of", "password"),
]
OF_LIBPQ = ("connection to server", "FATAL", "fe_sendauth", "failed:")


@pytest.mark.req("RS8", "RS10")
@pytest.mark.parametrize(("make", "why", "hint"), [case[1:] for case in AWAY], ids=[case[0] for case in AWAY])
def test_a_server_that_lets_nobody_in(
    own: PostgresServer, make: Callable[[PostgresServer], str], why: str, hint: str
) -> None:
    rules = own.folder / "data" / "pg_hba.conf"
    text = rules.read_text()
    if "guarded" not in text:
        rules.write_text("local all guarded scram-sha-256\nlocal all barred reject\n" + text)
        run(own.url, "CREATE ROLE guarded LOGIN PASSWORD 'right'", "CREATE ROLE shut", "CREATE ROLE barred LOGIN")
        run(own.url, "SELECT pg_reload_conf()")
    with pytest.raises(Unavailable) as caught:
        strandline.connect(make(own), append_timeout_s=2)
    assert (caught.value.name, caught.value.applied) == ("Unavailable.away", "no")
    assert caught.value.message.startswith("postgresql://")
    assert why in caught.value.message
    assert not any(word in caught.value.message for word in OF_LIBPQ), caught.value.message
    assert hint in caught.value.hint
    shown = repr((caught.value, caught.value.message, caught.value.hint, caught.value.facts, caught.value.__cause__))
    assert "hunter22" not in shown


DISTANT = "postgresql://me@db.example/shop"
CHECKED = {"sslmode": "verify-full", "sslrootcert": "system"}


@pytest.mark.req("D4")
@pytest.mark.parametrize(
    ("url", "environment", "expected"),
    [
        (DISTANT, {}, CHECKED),
        ("postgresql://me@localhost,db.example/shop", {}, CHECKED),
        ("postgresql:///shop?host=db.example", {}, CHECKED),
        (DISTANT + "?sslrootcert=ca.pem", {}, {"sslmode": "verify-full", "sslrootcert": "ca.pem"}),
        (DISTANT, {"PGSSLROOTCERT": "ca.pem"}, {"sslmode": "verify-full"}),
        (DISTANT + "?sslmode=disable", {}, {"sslmode": "disable"}),
        (DISTANT, {"PGSSLMODE": "require"}, {}),
        ("postgresql://me@localhost,127.0.0.2,[::1]/shop", {}, {}),
        ("postgresql:///shop?host=/run/postgresql", {}, {}),
    ],
)
def test_what_a_url_says_of_tls(
    url: str, environment: dict[str, str], expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGSSLMODE", "PGSSLROOTCERT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": str(tmp_path), **environment}.items():
        monkeypatch.setenv(name, value)
    arguments = Pool(parsed(url), Settings())._arguments
    assert {name: value for name, value in arguments.items() if name.startswith("ssl")} == expected
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql" / "root.crt").touch()
    assert Pool(parsed(url), Settings())._arguments.get("sslrootcert") != "system"


def test_a_password_works(own: PostgresServer) -> None:
    test_a_server_that_lets_nobody_in(own, *AWAY[-1][1:])
    run(own.url, "GRANT ALL ON DATABASE postgres TO guarded")
    with closing(opened(f"{own.url.replace('postgres@', 'guarded:right@')}&schema=guarded")) as log:
        assert log.append([draft_of(KEY)])[0].place is not None
        assert "right" not in log._database.where


def test_a_user_without_rights_is_told_so(own: PostgresServer) -> None:
    run(own.url, "CREATE ROLE guest LOGIN")
    with pytest.raises(Unavailable) as caught:
        strandline.connect(f"{own.url.replace('postgres@', 'guest@')}&schema=guests")
    assert (caught.value.name, caught.value.sqlstate) == ("Unavailable.away", "42501")
    assert "schema" in caught.value.hint


@pytest.mark.parametrize("schema", ["create", "check"])
def test_a_user_without_rights_on_what_is_there_is_told_so(own: PostgresServer, schema: str) -> None:
    """It is there, and nothing else is said."""
    name = f"private_{schema}"
    run(own.url, f"CREATE ROLE {name} LOGIN")
    opened(f"{own.url}&schema={name}").close()
    with pytest.raises(Unavailable) as caught:
        opened(f"{own.url.replace('postgres@', f'{name}@')}&schema={name}", schema=schema)
    assert (caught.value.name, caught.value.sqlstate) == ("Unavailable.away", "42501")
    assert "grant" in caught.value.hint


def test_a_schema_of_the_servers_own(own: PostgresServer) -> None:
    with pytest.raises(InvalidInput) as caught:
        strandline.connect(f"{own.url}&schema=pg_mine")
    assert caught.value.code == "url_parameter"
    assert "another schema" in caught.value.hint


def test_a_read_only_default_is_overruled_by_what_must_write(own: PostgresServer) -> None:
    with closing(opened(new_url(own))) as log, altered(own, "default_transaction_read_only", "on"):
        for _ in range(3):  # from the second on what the first one left is used
            assert log.append([draft_of(KEY)])[0].place is not None
        assert len(everything(log, partition_for(KEY))) == 3


STATES: list[tuple[str, str, str, str]] = [
    ("57014", "write", "Unavailable.timeout", "no"),
    ("55P03", "commit", "Unavailable.timeout", "no"),
    ("25P03", "commit", "Unavailable.timeout", "no"),
    ("57014", "commit", "Unavailable.timeout", "unknown"),
    ("40001", "commit", "Unavailable.serialization", "no"),
    ("40P01", "write", "Unavailable.serialization", "no"),
    ("53100", "commit", "Unavailable.no_space", "no"),
    ("53300", "connect", "Unavailable.overloaded", "no"),
    ("58030", "write", "Unavailable.log_failed", "no"),
    ("58030", "commit", "Unavailable.log_failed", "unknown"),
    ("40003", "write", "Unavailable.away", "unknown"),
    ("40003", "commit", "Unavailable.away", "unknown"),
    ("57P01", "write", "Unavailable.away", "no"),
    ("57P01", "commit", "Unavailable.away", "unknown"),
    ("08006", "commit", "Unavailable.away", "unknown"),
    ("57P03", "connect", "Unavailable.away", "no"),
    ("25006", "write", "Unavailable.away", "no"),
    ("28P01", "connect", "Unavailable.away", "no"),
    ("28000", "connect", "Unavailable.away", "no"),
    ("42501", "write", "Unavailable.away", "no"),
    ("XX001", "read", "Corrupt.digest", "no"),
    ("23505", "write", "Corrupt.conflict", "no"),
    ("42P01", "read", "SchemaMismatch.version", "no"),
    ("42P07", "write", "SchemaMismatch.foreign_file", "no"),
]


DENIED = ("28P01", "28000", "42501")
"""Who is refused with these is refused again."""


@pytest.mark.req("RA2", "RA3", "RS7", "RS8")
@pytest.mark.parametrize(("state", "doing", "name", "applied"), STATES)
def test_what_an_error_of_the_server_means(state: str, doing: Any, name: str, applied: str) -> None:
    error = psycopg.errors.lookup(state)("it says secret things")
    outcome = outcome_of(error, "here", doing, secret="secret")
    assert outcome is not None
    assert (outcome.name, outcome.applied) == (name, applied)
    assert outcome.retryable == (isinstance(outcome, Unavailable) and state not in DENIED)
    assert outcome.hint
    assert "secret" not in outcome.message


def test_what_only_a_bug_causes_passes_as_it_is() -> None:
    assert outcome_of(psycopg.errors.SyntaxError("oops"), "here", "read") is None


# ---------------------------------------------------------------- schemas


@pytest.mark.req("J109")
def test_check_makes_nothing(url: str, postgres: PostgresServer) -> None:
    before = tables(postgres.url)
    with pytest.raises(SchemaMismatch) as caught:
        strandline.connect(url, schema="check")
    assert caught.value.name == "SchemaMismatch.no_schema"
    assert tables(postgres.url) == before


@pytest.mark.req("J108", "RJ12")
@pytest.mark.parametrize("advisory", [True, False])
def test_of_many_creators_one_creates_and_the_others_wait(url: str, advisory: bool) -> None:
    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(6), context.Queue()
    processes = [context.Process(target=create, args=(url, advisory, start, answers)) for _ in range(6)]
    for process in processes:
        process.start()
    ids = {answers.get(timeout=120) for _ in processes}
    for process in processes:
        process.join(30)
    with closing(opened(url, schema="check")) as log:
        assert ids == {log.log_id}
        assert len(everything(log, partition_for(KEY))) == 6


@pytest.mark.req("J108", "RJ12")
def test_a_dead_creators_row_is_taken_over(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = parsed(url).parameters["schema"]
    run(url, f'CREATE SCHEMA "{name}"')
    foundation = schemas.PostgresSchema(name, Part("log", "strandline.log")).filled(
        script("strandline.sql", "foundation", "postgres")
    )
    run(url, foundation, f"""INSERT INTO "{name}".log_lock VALUES ('schema', 'dead', 5)""")
    with closing(opened(url, advisory=False)) as log:
        assert log.append([draft_of(KEY)])[0].place is not None
    fresh = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    run(
        url,
        f"""INSERT INTO "{name}".log_lock VALUES ('schema', 'lives', {fresh})""",
        f'DELETE FROM "{name}".log_setting',
    )
    monkeypatch.setattr(schemas, "LOCK_WAIT_S", 0.2)
    with pytest.raises(Unavailable) as caught:
        opened(url, advisory=False)
    assert caught.value.name == "Unavailable.timeout"


@pytest.mark.req("RJ12", "J110")
@pytest.mark.parametrize("advisory", [True, False])
def test_a_creation_that_was_killed_half_way_is_ended_by_the_next(
    url: str, advisory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = schemas.PostgresSchema.own
    left = 0

    def dying(self: schemas.PostgresSchema, name: str) -> str:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt
        return record(self, name)

    for calls in range(1, 40):
        left = calls
        monkeypatch.setattr(schemas.PostgresSchema, "own", dying)
        try:
            opened(url, advisory=advisory).close()
            break
        except KeyboardInterrupt:
            continue
        finally:
            monkeypatch.setattr(schemas.PostgresSchema, "own", record)
            if not advisory:
                run(url, *free_lock(url))
    with closing(opened(url, schema="check")) as log:
        assert log.append([draft_of(KEY)])[0].place is not None


def free_lock(url: str) -> list[str]:
    """What 60 s would do."""
    name = parsed(url).parameters["schema"]
    return [f'UPDATE "{name}".log_lock SET taken = 0'] if f"{name}.log_lock" in tables(url) else []


@pytest.mark.req("J110", "J23")
@pytest.mark.parametrize(
    ("change", "code", "remedy"),
    [
        ("DELETE FROM {}.log_schema_step", "version", "strandline schema upgrade"),
        ("INSERT INTO {}.log_schema_step VALUES (99, '999_later', false)", "version", "newer"),
        ("ALTER TABLE {}.log_action DROP COLUMN life", "version", "backup"),
        ("ALTER TABLE {}.log_head ALTER COLUMN state DROP NOT NULL", "version", "backup"),
        ("DROP TABLE {}.log_head", "version", "backup"),
        ("UPDATE {}.log_setting SET value = '9' WHERE name = 'fold_version'", "fold_version", "strandline"),
    ],
)
def test_another_schema_than_this_programs_is_refused(url: str, change: str, code: str, remedy: str) -> None:
    opened(url).close()
    run(url, change.format(f'"{parsed(url).parameters["schema"]}"'))
    with pytest.raises(SchemaMismatch) as caught:
        opened(url)
    assert caught.value.code == code
    assert remedy in caught.value.hint


def command(*arguments: str) -> str:
    """What a command of ours says."""
    code = "from strandline.cli import main; main()"
    words = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.req("J110", "RS5")
def test_upgrade_does_what_is_missing_and_keeps_everything(url: str) -> None:
    with strandline.connect(url) as s:
        s.journal.append(Key("order", "42"), [Event("Placed", 1)])
        carry(s)
    name = parsed(url).parameters["schema"]
    last = steps_in("strandline.store", "sql", "postgres")[-1].name
    run(url, f"DELETE FROM \"{name}\".schema_step WHERE name = '{last}'")
    with pytest.raises(SchemaMismatch) as caught:
        strandline.connect(url)
    assert last in caught.value.message
    assert f"store: did {last}" in command("schema", "upgrade", "--yes", "--url", url)
    assert "partitions = 8" in command("schema", "show", "--url", url)
    with strandline.connect(url) as s:
        assert [event.payload for event in s.journal.read(Key("order", "42"))] == [1]


def test_somebody_elses_tables_are_left_alone(url: str) -> None:
    name = parsed(url).parameters["schema"]
    run(url, f'CREATE SCHEMA "{name}"', f'CREATE TABLE "{name}".log_head (theirs integer)')
    with pytest.raises(SchemaMismatch) as caught:
        opened(url)
    assert caught.value.name == "SchemaMismatch.version"
    assert "log_head" in caught.value.message


@pytest.mark.req("J111", "U5")
@pytest.mark.parametrize(
    ("setting", "stored", "given"),
    [("partitions", 4, 8), ("segment_size", 100, 10), ("append_ids_kept", 256, 32), ("bucket_size", "day", "hour")],
)
def test_what_creation_fixed(url: str, setting: str, stored: Any, given: Any) -> None:
    settings: dict[str, Any] = {setting: stored}
    strandline.connect(url, **settings).close()
    with pytest.raises(SchemaMismatch) as caught:
        strandline.connect(url, **{setting: given})
    assert caught.value.name == "SchemaMismatch.setting"
    assert (caught.value.setting, caught.value.stored, caught.value.given) == (setting, stored, given)


# ---------------------------------------------------------------- the client library


def test_without_the_client_library_the_hint_says_how_to_get_it() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "import strandline\n"
        "try: strandline.connect('postgresql://me:hunter22@host/db')\n"
        "except strandline.Unsupported as error: print(error.name, '|', error.message, '|', error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    name, message, hint = done.stdout.strip().split(" | ")
    assert (name, hint) == ("Unsupported.not_installed", install("postgres"))
    assert "psycopg" in message
    assert "hunter22" not in done.stdout
