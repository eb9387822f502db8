"""How Spark's Python processes start: a process that is slow to load PySpark is not given up."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline.pipeline import worker

UTIL = """
import socket

def local_connect_and_auth(where, secret):
    if secret is None:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(where)
    else:
        sock = socket.create_connection(("127.0.0.1", where))
    file = sock.makefile("rwb")
    if secret is not None:
        _do_server_auth(file, secret)
    return file, sock

def _do_server_auth(file, secret):
    file.write(secret.encode())
"""
RUNNER = """
import os
from pyspark.util import local_connect_and_auth

where = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH") or int(os.environ["PYTHON_WORKER_FACTORY_PORT"])
file, _ = local_connect_and_auth(where, os.environ.get("PYTHON_WORKER_FACTORY_SECRET"))
file.write(b"here")
file.flush()
"""


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """A PySpark that loads only when somebody opens a pipe."""
    package = tmp_path / "path" / "pyspark"
    package.mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe")
    (package / "__init__.py").write_text(f"open({str(tmp_path / 'pipe')!r}).read()\n")
    (package / "util.py").write_text(UTIL)
    (package / "runner.py").write_text(RUNNER)
    return tmp_path


@contextmanager
def started(slow: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-P", worker.__file__, "-m", "pyspark.runner"],
        env={**os.environ, "PYTHONPATH": str(slow / "path"), **environment},
        cwd=slow,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("way", ["unix", "tcp"])
def test_a_worker_connects_before_it_loads_pyspark(slow: Path, way: str) -> None:
    """Spark waits 10 s for that, whatever is set; on a busy machine loading takes longer."""
    if way == "unix":
        listener, where = socket.socket(socket.AF_UNIX), {"PYTHON_WORKER_FACTORY_SOCK_PATH": str(slow / "s")}
        listener.bind(str(slow / "s"))
        listener.listen()
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
        where = {"PYTHON_WORKER_FACTORY_PORT": port, "PYTHON_WORKER_FACTORY_SECRET": "secret:"}
    listener.settimeout(20)
    with started(slow, **where) as process, listener:
        connection, _ = listener.accept()
        (slow / "pipe").write_text("")  # now it may load
        with connection, connection.makefile("rb") as file:
            assert file.read() == (b"here" if way == "unix" else b"secret:here")
        assert process.communicate(timeout=20)[1] == b""


def test_a_worker_that_nobody_waits_for_any_more_leaves_without_a_word(slow: Path) -> None:
    with started(slow, PYTHON_WORKER_FACTORY_SOCK_PATH=str(slow / "gone")) as process:
        assert process.communicate(timeout=20)[1] == b""
        assert process.returncode != 0
