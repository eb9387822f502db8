"""Fetching jars: from a repository that is a folder, by the real Ivy. Whole and checked, or not at all."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.errors import Corrupt, Unavailable
from strandline.servers.jars import CACHE, IVY_SETTINGS, LIBRARIES, JarSet, jars

NAMES = ("shell-1.0.jar", "pearl-2.0.jar")
FETCH = """
import sys
from pathlib import Path
from strandline.servers.jars import JarSet, jars
parts = (("org.beach", "shell", "1.0"), ("org.beach", "pearl", "2.0"))
print(sorted(path.name for path in jars(JarSet("beach", "1.0", parts, "little", Path(sys.argv[1]))).glob("*.jar")))
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that Ivy takes for a repository, with two jars in it, and an empty cache."""
    place = tmp_path / "repository"
    place.mkdir()
    for name in NAMES:
        (place / name).write_bytes(name.encode() * 100)
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(f"""<ivysettings>
      <settings defaultResolver="here"/>
      <resolvers>
        <filesystem name="here"><artifact pattern="{place}/[artifact]-[revision].[ext]"/></filesystem>
      </resolvers>
    </ivysettings>""")
    monkeypatch.setenv(IVY_SETTINGS, str(settings))
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    return place


@pytest.fixture
def beach(repository: Path, tmp_path: Path) -> JarSet:
    """What to fetch from it."""
    lines = [f"{hashlib.sha256((repository / name).read_bytes()).hexdigest()}  {name}\n" for name in NAMES]
    (tmp_path / "beach.sha256").write_text("".join(lines))
    parts = (("org.beach", "shell", "1.0"), ("org.beach", "pearl", "2.0"))
    return JarSet("beach", "1.0", parts, takes="little", lock_folder=tmp_path)


def test_jars_are_fetched_once(beach: JarSet, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = jars(beach)
    assert {path.name for path in folder.glob("*.jar")} == set(NAMES)
    for name in NAMES:
        (repository / name).unlink()
    assert jars(beach) == folder
    assert capsys.readouterr().err.count("Fetching beach 1.0") == 1


def test_what_was_damaged_since_is_fetched_again(beach: JarSet) -> None:
    folder = jars(beach)
    (folder / NAMES[0]).write_bytes(b"half")
    (folder / "stranger.jar").write_bytes(b"")
    assert jars(beach) == folder
    assert (folder / NAMES[0]).read_bytes() == NAMES[0].encode() * 100
    assert {path.name for path in folder.glob("*.jar")} == set(NAMES)
    (folder / NAMES[1]).unlink()
    assert (jars(beach) / NAMES[1]).exists()


def test_other_contents_are_refused(beach: JarSet, repository: Path, tmp_path: Path) -> None:
    (repository / NAMES[1]).write_bytes(b"not what was pinned")
    with pytest.raises(Corrupt, match=NAMES[1]) as caught:
        jars(beach)
    assert (caught.value.name, caught.value.files) == ("Corrupt.digest", [NAMES[1]])
    assert not list(tmp_path.glob("cache/jars/**/*.jar"))


def test_a_lock_file_that_changed_asks_for_a_new_fetch(beach: JarSet) -> None:
    jars(beach)
    beach.lock_path.write_text(beach.lock_path.read_text().replace("pearl-2.0", "pearl-3.0"))
    with pytest.raises(Corrupt, match=r"pearl-2\.0\.jar, pearl-3\.0\.jar"):
        jars(beach)


def test_without_a_repository_the_error_says_what_to_do(beach: JarSet, repository: Path) -> None:
    (repository / NAMES[0]).unlink()
    with pytest.raises(Unavailable, match=r"beach 1\.0 cannot be fetched: .*shell") as caught:
        jars(beach)
    assert IVY_SETTINGS in caught.value.hint
    assert CACHE in caught.value.hint


def test_many_processes_fetch_once(beach: JarSet, repository: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", FETCH, beach.lock_folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        for _ in range(3)
    ]
    answers = [process.communicate(timeout=120) for process in started]
    assert [out.strip() for out, _ in answers] == [str(sorted(NAMES))] * 3
    assert "".join(err for _, err in answers).count("Fetching") == 1


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=lambda library: library.name)
def test_lock_files_are_those_of_the_versions(library: JarSet) -> None:
    for _, module, version in library.parts:
        assert f"{module}-{version}.jar" in library.lock
    assert all(len(digest) == 64 for digest in library.lock.values())
