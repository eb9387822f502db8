"""Classes that are prepared once: used by the JVMs that they fit, passed over by all others, told if they cannot be."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest
from tests.acceptance.cli_call import call

from strandline.errors import Unsupported
from strandline.pipeline import classes, jvm, session
from strandline.pipeline.java import Java, find_java

SPARK_HOME = Path(pyspark.__file__).parent


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "strandline"


def made(cache: Path, name: str, spark: Path) -> Path:
    """What was prepared before, for another Java or with another Spark."""
    folder = cache / f"classes-{name}-made"
    folder.mkdir(parents=True, mode=0o700)
    (cache / f"classes-{name}.json").write_text(json.dumps({"spark": str(spark), "classes": [str(folder), 1, 2]}))
    return folder


def is_used(java: Java, options: list[str]) -> bool:
    """Whether a JVM can use them; this one must."""
    command = [
        str(java.executable),
        *jvm._flags(java),
        *options,
        "-Xshare:on",
        "-cp",
        f"{SPARK_HOME}/jars/*",
        "-version",
    ]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_prepared_classes_are_used_while_they_are_whole_and_ours(cache: Path) -> None:
    java = find_java()
    assert classes.options(java, SPARK_HOME) == []
    kept = {name: made(cache, name, spark) for name, spark in {"gone": cache / "none", "other": SPARK_HOME}.items()}
    for name, age_s in {"being made": 60, "left over": 3600}.items():
        kept[name] = cache / f"classes-{name}"
        kept[name].mkdir()
        then = time.time() - age_s
        os.utime(kept[name], (then, then))
    answer = call("pipeline", "prepare", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.lines[0]["bytes"] > 10**8
    assert session.is_prepared()
    options = classes.options(java, SPARK_HOME)
    assert is_used(java, options)
    (stamp,) = set(cache.glob("classes-*.json")) - {cache / "classes-other.json"}
    (folder,) = cache.glob(f"{stamp.stem}-*")
    assert {name for name, folder in kept.items() if folder.is_dir()} == {"other", "being made"}
    assert not (cache / "classes-gone.json").exists()
    assert sorted(path.name for path in folder.iterdir()) == ["java.jsa", "spark.jsa"]

    assert classes.options(replace(java, version=java.version + 1), SPARK_HOME) == []
    assert classes.options(java, SPARK_HOME.parent) == []
    folder.chmod(0o777)
    assert classes.options(java, SPARK_HOME) == [], "others can put theirs in its place"
    folder.chmod(0o700)
    assert classes.options(java, SPARK_HOME) == options
    half = folder / "spark.jsa"
    half.chmod(0o600)
    with half.open("ab") as file:
        file.truncate(half.stat().st_size // 2)
    assert classes.options(java, SPARK_HOME) == [], "a JVM would crash"
    half.unlink()
    assert classes.options(java, SPARK_HOME) == []
    for damaged in ("", "[]", "{}", '{"classes": []}', '{"classes": [1, 2, 3]}'):
        stamp.write_text(damaged)
        assert classes.options(java, SPARK_HOME) == []
    assert not session.is_prepared()


@pytest.mark.parametrize(
    ("script", "why"), [("echo no such option >&2; exit 1", "no such option"), ("exit 3", "exit 3")]
)
def test_a_java_that_cannot_is_told_and_nothing_is_left(cache: Path, tmp_path: Path, script: str, why: str) -> None:
    executable = tmp_path / "java" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o700)
    java = Java(tmp_path / "java", 17, "JAVA_HOME")
    with pytest.raises(Unsupported) as caught:
        classes.prepare(java, SPARK_HOME, [])
    assert caught.value.code == "spark_setup"
    assert why in caught.value.message
    assert "only slower" in caught.value.hint
    assert list(cache.iterdir()) == []
