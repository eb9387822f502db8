"""What a pipeline that has nothing to do takes of the machine, as it comes."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psutil
import pytest
from tests.acceptance.cli_call import COMMAND

import strandline
from strandline import Event

PROCESSES_MAX, MIB_MAX = 5, 700


@pytest.mark.req("J87")
@pytest.mark.spark
def test_an_idle_pipeline_is_small(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/shop"
    with strandline.connect(url) as s:
        for number in range(20):
            s.journal.append(f"order|{number}", [Event("Placed", number)])
        with subprocess.Popen([*COMMAND, "pipeline", "run", "--url", url], stdout=subprocess.DEVNULL) as pipeline:
            try:
                deadline = time.monotonic() + 60
                while not s.strandline():
                    assert time.monotonic() < deadline, "it does not carry"
                    time.sleep(0.05)
                for number in range(3):
                    place = s.journal.append("order|1", [Event("Paid", number)])
                    s.journal.wait_replicated(place, timeout_s=30)
                started = psutil.Process(pipeline.pid)
                processes = [started, *started.children(recursive=True)]
                mib = [process.memory_info().rss >> 20 for process in processes]
            finally:
                pipeline.terminate()
        assert pipeline.returncode == 0
        assert len(processes) <= PROCESSES_MAX, processes
        assert sum(mib) <= MIB_MAX, mib
