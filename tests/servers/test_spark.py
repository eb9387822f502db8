"""The Spark cluster as tests have it: sessions join with its secret, and workers can be killed.

The pipeline runs on it in every run of the tests, and a worker is killed there; more of that is the soak's.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from strandline.servers.spark import SparkCluster

# In a process of its own: a process has one session, and that of the other tests is local.
COUNT = """
import json, sys
from strandline.pipeline import session
spark = session.start(sys.argv[1], conf=json.loads(sys.argv[2]))
print(spark.sparkContext.parallelize(range(100), 4).map(lambda number: number + 1).sum(), flush=True)
"""


def count(cluster: SparkCluster, conf: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COUNT, cluster.url, json.dumps(conf)], capture_output=True, text=True, check=False
    )


@pytest.mark.soak
@pytest.mark.spark
def test_a_session_runs_on_the_cluster(spark_cluster: SparkCluster) -> None:
    answer = count(spark_cluster, spark_cluster.conf)
    assert answer.stdout == "5050\n", answer.stderr
    # What the settings file says is what the session needs.
    lines = (spark_cluster.conf_folder / "spark-defaults.conf").read_text().splitlines()
    assert {line.partition("=")[0] for line in lines} == set(spark_cluster.conf)
    assert (spark_cluster.conf_folder / "spark-defaults.conf").stat().st_mode & 0o077 == 0


@pytest.mark.soak
@pytest.mark.spark
def test_a_cluster_comes_back_with_its_workers(spark_cluster: SparkCluster) -> None:
    address = spark_cluster.url
    assert spark_cluster.alive_workers() == 2
    spark_cluster.kill_worker(1)
    assert spark_cluster.alive
    spark_cluster.start_worker(1)
    spark_cluster.kill()
    assert not spark_cluster.alive
    spark_cluster.restart()
    assert (spark_cluster.url, spark_cluster.alive_workers()) == (address, 2)
