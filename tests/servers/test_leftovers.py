"""A server never outlives who started it, however that one ends; and nothing of it is left."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from strandline.servers.kafka import KafkaServer
from strandline.servers.postgres import PostgresServer
from strandline.servers.server import free_port
from tests.lanes import needs_servers

KEEP = """
import json, os, sys, time
from strandline.servers.all import SERVERS
server = SERVERS[sys.argv[1]]().start()
if len(sys.argv) > 2:
    if os.fork() == 0:  # a fork that lives on must not keep the server alive
        time.sleep(600)
print(json.dumps([server.process.pid, str(server.folder)]), flush=True)
time.sleep(600)
"""
COMMAND = "from strandline.cli import main; raise SystemExit(main())"


@contextmanager
def running(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program in a session of its own; whatever is left of it at the end is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def wait_until(done: Callable[[], bool], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def keeper_below(pid: int) -> psutil.Process | None:
    """The keeper that a process has started, if it has."""
    for child in psutil.Process(pid).children():
        with suppress(psutil.Error):  # others come and go
            if "keeper.py" in " ".join(child.cmdline()):
                return child
    return None


def family_of(pid: int) -> list[psutil.Process]:
    """A server's keeper, the server and all that it started."""
    keeper = psutil.Process(pid).parent()
    assert keeper is not None
    return [keeper, *keeper.children(recursive=True)]


@pytest.mark.parametrize(
    "name", ["postgres", *(pytest.param(name, marks=[pytest.mark.soak, needs_servers]) for name in ("kafka", "spark"))]
)
def test_a_server_dies_with_a_starter_that_is_killed(name: str, request: pytest.FixtureRequest) -> None:
    if name == "kafka":
        request.getfixturevalue("kafka")  # it can be had here
    with running(KEEP, name) as starter:
        pid, folder = json.loads(line_of(starter))
        family = family_of(pid)
        assert len(family) > (3 if name == "postgres" else 1)
        starter.kill()
        wait_until(lambda: all(is_gone(process) for process in family))
        wait_until(lambda: not Path(folder).exists())


def test_a_fork_of_the_starter_keeps_nothing_alive() -> None:
    with running(KEEP, "postgres", "fork") as starter:
        pid, folder = json.loads(line_of(starter))
        family = family_of(pid)
        (fork,) = [process for process in psutil.Process(starter.pid).children() if process not in family]
        starter.kill()
        wait_until(lambda: all(is_gone(process) for process in family))
        wait_until(lambda: not Path(folder).exists())
        assert fork.is_running()


def test_a_server_dies_with_its_keeper() -> None:
    with PostgresServer() as server:
        family = family_of(server.process.pid)
        family[0].kill()
        wait_until(lambda: all(is_gone(process) for process in family))
        assert not server.alive


def test_closing_leaves_neither_process_nor_folder() -> None:
    with PostgresServer() as server:
        family, folder = family_of(server.process.pid), server.folder
    assert all(is_gone(process) for process in family)
    assert not folder.exists()
    server.close()


def test_a_kill_takes_all_that_the_server_started() -> None:
    with PostgresServer() as server:
        family = family_of(server.process.pid)
        server.kill()
        assert all(is_gone(process) for process in family)


def test_ports_are_free_and_not_those_of_clients_and_differ() -> None:
    ports = []
    for _ in range(50):
        random.seed(1)  # as before each test
        ports.append(free_port())
    assert all(12_000 <= port <= 32_000 for port in ports)
    assert len(set(ports)) == len(ports)


@pytest.mark.parametrize("ends", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT] * 5])
def test_the_command_stops_in_order(ends: list[signal.Signals]) -> None:
    with running(COMMAND, "servers", "postgres", "--json") as command:
        told = json.loads(line_of(command))
        assert told["server"] == "postgres"
        assert told["url"].startswith("postgresql://postgres@/postgres?host=")
        log = Path(told["log_path"])
        assert log.exists()
        family = psutil.Process(command.pid).children(recursive=True)
        assert family
        for end in ends:
            command.send_signal(end)
            time.sleep(0.02)
        out, err = command.communicate(timeout=60)
        assert (command.returncode, out, err) == (0, "", "stopped\n")
        assert all(is_gone(process) for process in family)
        assert not log.parent.exists()


def test_the_command_can_be_stopped_while_a_server_starts(kafka: KafkaServer) -> None:
    assert kafka.alive  # it can be had here
    with running(COMMAND, "servers", "kafka") as command:
        wait_until(lambda: keeper_below(command.pid) is not None, timeout_s=60)
        keeper = keeper_below(command.pid)
        assert keeper is not None
        folder = Path(json.loads(keeper.cmdline()[-1])["folder"])
        family = [keeper, *keeper.children()]
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=60)
        assert (command.returncode, out, err) == (0, "", "stopped\n")
        assert all(is_gone(process) for process in family)
        assert not folder.exists()


def test_the_command_says_when_a_server_ends_by_itself() -> None:
    with running(COMMAND, "servers", "postgres") as command:
        shown = [line_of(command) for _ in range(4)]
        assert shown[0].split()[0] == "postgres"
        assert shlex.split(shown[2])[-2:] == ["--url", shown[0].split()[1]]
        (keeper,) = psutil.Process(command.pid).children()
        (server,) = keeper.children()
        server.kill()
        _, err = command.communicate(timeout=60)
        assert command.returncode == 6
        assert "PostgreSQL ended by itself" in err


def test_an_unknown_server_is_named() -> None:
    with running(COMMAND, "servers", "postgers") as command:
        _, err = command.communicate(timeout=60)
        assert command.returncode == 2
        assert "did you mean postgres?" in err
