"""`strandline pipeline` on Spark, as a process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.cli_call import COMMAND, appended, call, process_env, run

import strandline
from strandline.pipeline import replicate
from strandline.settings import Settings

DEADLINE_S = 240


def status(url: str) -> dict[str, Any]:
    (found,) = call("status", "--url", url, "--json").lines
    assert isinstance(found, dict)
    return found


def test_second_pipeline_is_refused(url: str) -> None:
    appended(url)
    with strandline.connect(url) as s:
        lease = s.store.lease().take("the first")
        answer = call("pipeline", "run", "--once", "--url", url, "--json")
        lease.release()
    assert (answer.code, answer.name) == (4, "LeaseHeld.lease_held")
    said = r"the first carries this store since \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ, \d+\.\d s ago"
    assert re.fullmatch(said, answer.problem["detail"])
    assert answer.problem["facts"]["since"] > 0


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["--slices", "9-3"], "slice_range"),
        (["--slices", "0-1024"], "slice_range"),
        (["--slices", "a"], "slice_range"),
        (["--from", "2026-01-01T00:00:00"], "time_without_zone"),
        (["--to", "yesterday"], "time_format"),
        (["--out", "."], "option"),
    ],
)
@pytest.mark.req("J122")
def test_bad_options_of_a_replay_start_no_spark(argv: list[str], name: str, url: str) -> None:
    appended(url)
    answer = call("pipeline", "replay", "--out", "events", *argv, "--url", url, "--json")
    assert (answer.code, answer.name) == (2, f"InvalidInput.{name}")
    assert not Path("events").exists()


@pytest.mark.parametrize("command", [["run"], ["run", "--once"], ["replay", "--out", "events"]])
def test_a_wrong_url_is_told_before_spark_is_started(command: list[str], url: str) -> None:
    answer = call("pipeline", *command, "--url", "postgresql://user:hunter22@127.0.0.1:1/orders")
    assert answer.code == 6
    assert [line.partition(":")[0] for line in answer.err.splitlines()] == ["error", "hint"]


@pytest.mark.parametrize("command", [["run"], ["run", "--once"], ["replay", "--out", "events"]])
@pytest.mark.req("J109")
def test_a_mistyped_url_makes_no_journal(command: list[str], url: str) -> None:
    answer = call("pipeline", *command, "--url", url, "--json")
    assert (answer.code, answer.name) == (7, "SchemaMismatch.no_schema")
    assert "--create" in answer.problem["hint"]
    assert not Path("orders").exists()


@pytest.mark.req("J109")
def test_create_makes_the_journal(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    carried: list[dict[str, Any]] = []

    def carry(**given: Any) -> replicate.Summary:
        carried.append(given)
        return replicate.Summary(0, 0, 0)

    monkeypatch.setattr(replicate, "run", carry)
    answer = call("pipeline", "run", "--once", "--create", "--url", url)
    assert (answer.code, answer.out) == (0, "carried 0 events\n")
    assert [given["url"] for given in carried] == [url]
    assert len(status(url)["partitions"]) == 8


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.req("RS2")
@pytest.mark.timeout(600)
def test_run_once_then_until_stopped(url: str) -> None:
    for number in range(5):
        appended(url, 2, key=f"order|{number}")
    once = run("pipeline", "run", "--once", "--url", url, "--json", timeout_s=DEADLINE_S)
    assert (once.code, once.err) == (0, "")
    assert sum(batch["events"] for batch in once.lines) == 10
    assert once.lines[-1]["strandline"] > 0
    assert all(partition["lag"] == 0 for partition in once.lines[-1]["partitions"])
    assert len(call("keys", "order", "--url", url).out.splitlines()) == 5

    argv = [*COMMAND, "pipeline", "run", "--url", url]
    with subprocess.Popen(argv, env=process_env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        appended(url, 3, key="order|9")
        said = next(line for line in process.stdout if b": 3 events in" in line)
        assert status(url)["lease_holder"] is not None
        process.send_signal(signal.SIGTERM)
        told = time.monotonic()
        out, err = process.communicate(timeout=DEADLINE_S)
    assert time.monotonic() - told < Settings().shutdown_grace_s
    assert process.returncode == 0, err
    assert said.startswith(b"batch 1: ")
    (last,) = out.decode().splitlines()[-1:]
    assert re.fullmatch(r"carried 3 events; all recorded up to \S+ \S+Z is in the store", last)
    assert b"Traceback" not in err
    assert status(url)["lease_holder"] is None


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_replay(url: str) -> None:
    from pyarrow import parquet

    appended(url, 3)
    appended(url, 2, key="user|a")
    done = run(
        "pipeline", "replay", "--out", "events", "--entity-type", "order", "--url", url, "--json", timeout_s=DEADLINE_S
    )
    assert (done.code, done.err) == (0, "")
    assert done.lines == [{"out": "events", "events": 3}]
    rows = parquet.read_table("events", columns=["key", "seq_nr", "payload"]).to_pylist()
    found = sorted((row["key"], row["seq_nr"], json.loads(row["payload"])) for row in rows)
    assert found == [("order|42", number, {"total": number}) for number in (1, 2, 3)]


def interrupted(url: str, moment: str, wait_s: float = 0.0) -> None:
    """Ctrl-C at some moment of a run: it ends in order, says so, and gives its lease back."""
    argv = [*COMMAND, "pipeline", "run", "--url", url]
    with subprocess.Popen(
        argv, env=process_env(), process_group=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if moment == "loading":
            while b"orjson" not in Path(f"/proc/{process.pid}/maps").read_bytes():
                assert process.poll() is None
        else:
            assert process.stderr.readline() == "starting Spark …\n".encode()
        if moment == "carrying":
            assert process.stdout.readline().startswith(b"batch 1: ")
        time.sleep(wait_s)  # to be somewhere in the middle of what comes next
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, err = process.communicate(timeout=DEADLINE_S)
    said = err.decode().removeprefix("stopping: waits for the batch in hand; Ctrl-C again ends at once\n")
    assert (process.returncode, said) == (130, "interrupted\n"), (moment, wait_s)
    assert status(url)["lease_holder"] is None


@pytest.mark.spark
@pytest.mark.req("RS2")
@pytest.mark.parametrize(("moment", "wait_s"), [("loading", 0.0), ("starting", 0.5), ("carrying", 0.0)])
def test_ctrl_c_ends_it_in_order(url: str, moment: str, wait_s: float) -> None:
    appended(url, 1)
    interrupted(url, moment, wait_s)


@pytest.mark.spark
@pytest.mark.soak
def test_ctrl_c_at_any_moment_of_a_busy_machine(url: str) -> None:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        for number in range(8):
            appended(url, 1)
            interrupted(url, "carrying" if number % 4 == 3 else "starting", number * 0.7)
    finally:
        for process in busy:
            process.kill()
            process.wait()
