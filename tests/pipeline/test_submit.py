"""`spark-submit` as docs/SPARK.md has it: a job whose driver and executors have nothing of each other's files.

Driver and executors have a Python each, which is not the checkout's: all libraries and no Strandline.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Event
from strandline.connect import Strandline
from strandline.pipeline.java import find_java
from strandline.servers.java import SHORT
from strandline.servers.postgres import PostgresServer
from strandline.servers.spark import SparkCluster
from strandline.store.scans import look_at

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "SPARK.md").read_text(encoding="utf-8").partition("\n## Submit\n")[2]
KEYS = [f"order|{number}" for number in range(12)]
LIBRARIES = Path(pytest.__file__).parents[1]
CARRIED_ALONG = """
    apsw dateutil numpy numpy.libs orjson pandas psycopg psycopg_binary psycopg_binary.libs pyarrow pytz sqlglot
    typing_extensions.py
""".split()
"""The libraries that executors need on PostgreSQL. PySpark is the cluster's own."""

AFTERWARDS = """
import json, sys, time
import strandline

def who(_):
    import sys
    import strandline
    return strandline.__file__, sys.path

dynamic = spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true"

def executors():
    return spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1

there = spark.sparkContext.parallelize(range(2), 2).map(who).collect()
counts = [executors()]
deadline = time.monotonic() + 60
while dynamic and executors() and time.monotonic() < deadline:
    time.sleep(0.1)
counts.append(executors())
with strandline.connect(open("shop.url").read()) as s:
    for key in sys.argv[1:]:
        s.journal.append(key, [strandline.Event("Paid", 1)])
run("file:shop.url", spark=spark, once=True)
counts.append(executors())
open("said.json", "w").write(json.dumps({"there": there, "executors": counts}))
"""


def job() -> str:
    """The page's job, which here ends when all is carried, and what it says then."""
    (found,) = (each for each in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "getOrCreate" in each)
    assert found.count("spark=spark)  #") == 1
    return found.replace("spark=spark)  #", "spark=spark, once=True)  #") + AFTERWARDS


def environment(folder: Path) -> Path:
    """The Python of a new environment with the libraries of this one, and without Strandline."""
    venv.create(folder, symlinks=True)
    for library in LIBRARIES.iterdir():
        if "strandline" not in library.name and library.suffix != ".pth":
            (libraries_of(folder) / library.name).symlink_to(library)
    return folder / "bin" / "python"


def archive(folder: Path, wheel: Path) -> Path:
    """An archive of an environment with Strandline and its libraries, and nothing that points to this one."""
    venv.create(folder / "env", symlinks=True)
    there = libraries_of(folder / "env")
    zipfile.ZipFile(wheel).extractall(there)
    for name in CARRIED_ALONG:
        (there / name).symlink_to(LIBRARIES / name)
    packed = folder / "env.tar.gz"
    with tarfile.open(packed, "w:gz", compresslevel=1) as tar:
        for path in (folder / "env").iterdir():
            tar.dereference = path.name == "lib"
            tar.add(path, path.name)
    shutil.rmtree(folder / "env")
    return packed


def libraries_of(folder: Path) -> Path:
    (found,) = folder.glob("lib/python*/site-packages")
    return found


def submitted(url: str, driver: Path, cluster: SparkCluster, python: str, *options: str) -> dict[str, Any]:
    """What the job says that was submitted with the driver's environment, from a folder in it."""
    place = driver / "work"
    place.mkdir()
    (place / "shop.url").write_text(url)
    (place / "job.py").write_text(job())
    words = [str(libraries_of(driver) / "pyspark" / "bin" / "spark-submit"), "--master", cluster.url]
    quick = [f"spark.{which}.extraJavaOptions={' '.join(SHORT)}" for which in ("driver", "executor")]
    words += ["--deploy-mode", "client", *(word for each in quick for word in ("--conf", each))]
    words += [*options, "job.py", *KEYS]
    done = subprocess.run(
        words, cwd=place, capture_output=True, text=True, check=False, timeout=240,
        env={
            "PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "JAVA_HOME": str(find_java().home),
            "SPARK_CONF_DIR": str(cluster.conf_folder), "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_DRIVER_PYTHON": str(driver / "bin" / "python"), "PYSPARK_PYTHON": python,
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said: dict[str, Any] = json.loads((place / "said.json").read_bytes())
    return said


def check(said: dict[str, Any], driver: Path, imported: str) -> None:
    """Executors took Strandline from what was sent, and have no path of the driver's, nor of the checkout."""
    of_the_cluster = LIBRARIES / "pyspark"
    for file, path in said["there"]:
        assert re.fullmatch(imported, file), file
        paths = [Path(each) for each in path]
        assert any(each.is_relative_to(of_the_cluster) for each in paths)
        assert not [
            each for each in paths
            if each.is_relative_to(driver) or (each.is_relative_to(ROOT) and not each.is_relative_to(of_the_cluster))
        ]  # fmt: skip
    assert len(said["there"]) == 2


def check_carried(s: Strandline) -> None:
    """The store has both events of each key."""
    for key in KEYS:
        _, head = look_at(s.store, key, strandline.Key.of(key).partition(8))
        assert isinstance(head, strandline.Head)
        rows = s.store.page(key, head.life, head.segment_size, from_=1, to=100, limit=100).rows
        assert [cells[0] for cells in rows] == [1, 2]


@pytest.mark.req("J88")
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_job_is_submitted_with_the_wheel(
    wheel: Path, postgres: PostgresServer, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Executors come and go: between the two runs of the job there is none."""
    url, driver = postgres.database(), tmp_path / "driver"
    environment(driver)
    python = environment(tmp_path / "elsewhere")
    sent = driver / "strandline.zip"
    shutil.copy(wheel, sent)  # as the page has it: Spark does not see what is named .whl
    with strandline.connect(url) as s:
        s.journal.append_many([(key, [Event("Placed", 1)]) for key in KEYS])
        said = submitted(
            url, driver, spark_cluster, str(python), "--py-files", str(sent),
            "--conf", "spark.dynamicAllocation.enabled=true",
            "--conf", "spark.dynamicAllocation.shuffleTracking.enabled=true",
            "--conf", "spark.dynamicAllocation.executorIdleTimeout=1s",
        )  # fmt: skip
        check_carried(s)
    check(said, driver, r".*/strandline\.zip/strandline/__init__\.py")
    before, between, after = said["executors"]
    assert (before > 0, between, after > 0) == (True, 0, True)


@pytest.mark.req("J88")
@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_job_is_submitted_with_an_archive(
    wheel: Path, postgres: PostgresServer, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    url, driver = postgres.database(), tmp_path / "driver"
    environment(driver)
    zipfile.ZipFile(wheel).extractall(libraries_of(driver))
    packed = archive(tmp_path, wheel)
    with strandline.connect(url) as s:
        s.journal.append_many([(key, [Event("Placed", 1)]) for key in KEYS])
        said = submitted(url, driver, spark_cluster, "./env/bin/python", "--archives", f"{packed}#env")
        check_carried(s)
    check(said, driver, r".*/app-[^/]+/\d+/env/lib/python[^/]+/site-packages/strandline/__init__\.py")
