#!/usr/bin/env python3
"""What a release is made of, and what is looked at before it.

    python tools/release.py audit     security rules, pins and hashes, known vulnerabilities; exit 1: something is bad
    python tools/release.py build     dist/: wheel and sdist, built twice and compared; bill of materials; SHA256SUMS

What cannot be looked at here, because a tool is absent or its advisories cannot be reached, is said to be not run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parents[1]
LOCK: Final = "constraints.txt"
OF_A_CHECKOUT: Final = ("dev",)
"""Extras that users of the package have no need of."""
NOT_RUN: Final = "not run"
SOURCES: Final = ("src", "pyproject.toml", "README.md", "LICENSE", ".gitignore")
"""What a wheel is made from."""
EPOCH: Final = 1577836800
_PIN: Final = re.compile(
    r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)([^\n\\]*(?:\\\n +--hash=sha256:[0-9a-f]{64} ?)*)", re.MULTILINE
)


# ---------------------------------------------------------------- audit


def audit(root: Path = ROOT) -> bool:
    """Look at code and dependencies, say what was found, and return whether all is well."""
    found = {
        "ruff S": rules(root),
        "bandit": high(root / "src"),
        "pins": unpinned(root),
        "pip-audit": vulnerable(root / LOCK),
    }
    for name, faults in found.items():
        say(f"{name}: {'ok' if not faults else faults[0] if is_not_run(faults) else f'{len(faults)} found'}")
        for fault in () if is_not_run(faults) else faults:
            say(f"    {fault}")
    return not any(faults and not is_not_run(faults) for faults in found.values())


def is_not_run(faults: list[str]) -> bool:
    """Return whether a tool said nothing because it could not."""
    return bool(faults) and faults[0].startswith(NOT_RUN)


def rules(root: Path) -> list[str]:
    """Return what ruff's security rules find, with the exceptions of pyproject.toml."""
    done = python("-m", "ruff", "check", "--output-format", "concise", "src", "tools", folder=root)
    return [line for line in done.stdout.splitlines() if re.search(r": S\d+ ", line)]


def high(folder: Path) -> list[str]:
    """Return what bandit finds and calls of high severity. Marks of ours in the code silence nothing."""
    done = python("-m", "bandit", "--quiet", "--recursive", "--ignore-nosec", "--severity-level", "high", "--format",
                  "json", str(folder), folder=folder)  # fmt: skip
    answer = json.loads(done.stdout)
    return [
        *(f"{one['filename']}:{one['line_number']} {one['test_id']} {one['issue_text']}" for one in answer["results"]),
        *(f"{one['filename']}: {one['reason']}" for one in answer["errors"]),
    ]


def pins(lock: Path) -> dict[str, tuple[str, int]]:
    """The packages of a lock, each with its version and how many files of it are known by their hashes."""
    return {
        canonicalize_name(name): (version, hashes.count("--hash="))
        for name, version, hashes in _PIN.findall(lock.read_text(encoding="utf-8"))
    }


def unpinned(root: Path) -> list[str]:
    """Return what the project asks for that the lock does not pin to one version with hashes."""
    locked = pins(root / LOCK)
    lines = [line for line in (root / LOCK).read_text(encoding="utf-8").splitlines() if line[:1] not in {"", " ", "#"}]
    faults = [f"{line}: not one version" for line in lines if not _PIN.match(line)]
    faults += [f"{name} {version}: no hash" for name, (version, hashes) in locked.items() if not hashes]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for more in project["project"]["optional-dependencies"].values():
        asked += more
    for text in asked:
        wanted = Requirement(text)
        name = canonicalize_name(wanted.name)
        if name == "strandline":
            continue
        version, _ = locked.get(name, ("", 0))
        if not version or not wanted.specifier.contains(version, prereleases=True):
            faults.append(f"{text}: the lock has {version or 'none'}")
    return faults


def vulnerable(lock: Path) -> list[str]:
    """Known vulnerabilities of what is locked, or that nobody could look."""
    program = shutil.which("pip-audit")
    if program is None:
        return [f"{NOT_RUN}: pip-audit is not here (pip install pip-audit)"]
    call = [program, "--requirement", str(lock), "--require-hashes", "--disable-pip", "--format", "json"]
    done = subprocess.run(  # noqa: S603 - a program of this machine's user
        call, capture_output=True, text=True, check=False
    )
    try:
        looked: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return [f"{NOT_RUN}: pip-audit reached no advisories: {done.stderr.strip().splitlines()[-1:]}"]
    skipped = [one["name"] for one in looked if "skip_reason" in one]
    faults = [f"{one['name']} {one['version']}: {bad['id']}" for one in looked for bad in one.get("vulns", ())]
    if skipped and not faults:  # it says that nothing is known, also where it could ask nobody
        return [f"{NOT_RUN}: pip-audit could not look at {len(skipped)} of {len(looked)} packages"]
    return faults


# ---------------------------------------------------------------- build


def build(into: Path, root: Path = ROOT) -> list[Path]:
    """Build wheel and sdist twice from different copies; an error unless the two are the same bytes."""
    into.mkdir(parents=True, exist_ok=True)
    made = []
    with tempfile.TemporaryDirectory() as folder:
        first, second = (
            built(root, Path(folder) / name, age) for name, age in (("one", 10**8), ("another", 2 * 10**8))
        )
        for one, other in zip(first, second, strict=True):
            if one.read_bytes() != other.read_bytes():
                raise SystemExit(f"{one.name} is not the same when it is built again")
            made.append(Path(shutil.copy(one, into)))
    version = distribution("strandline").version
    bill = into / f"strandline-{version}.cdx.json"
    bill.write_text(json.dumps(bill_of_materials(), indent=2) + "\n", encoding="utf-8")
    made.append(bill)
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in made)
    (into / "SHA256SUMS").write_text(sums, encoding="ascii")
    return [*made, into / "SHA256SUMS"]


def built(root: Path, folder: Path, age_s: int) -> list[Path]:
    """Wheel and sdist of a copy, whose files are of another time."""
    copy = folder / "copy"
    copy.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    also = [name.strip("/") for name in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]]
    for name in sorted({*SOURCES, *also}):
        place = root / name
        shutil.copytree(place, copy / name, ignore=ignored) if place.is_dir() else shutil.copy(place, copy / name)
    for file in copy.rglob("*"):
        os.utime(file, (age_s, age_s))
    done = python("-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder / "dist"), folder=copy,
                  SOURCE_DATE_EPOCH=str(EPOCH))  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    return sorted((folder / "dist").iterdir())  # the wheel first


# ---------------------------------------------------------------- bill of materials


def bill_of_materials(name: str = "strandline") -> dict[str, Any]:
    """The package, and all that it and its extras bring, as CycloneDX, from what is installed here."""
    found: dict[str, Distribution] = {}
    needs: dict[str, list[str]] = {}
    required = set(closure(distribution(name), (), found, needs))
    extras = [
        extra for extra in distribution(name).metadata.get_all("Provides-Extra") or () if extra not in OF_A_CHECKOUT
    ]
    everything = closure(distribution(name), extras, found, needs)
    components = [_component(found[one], "required" if one in required else "optional") for one in sorted(everything)]
    reference = {one: _reference(found.get(one) or distribution(one)) for one in needs}
    content = json.dumps(components).encode()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, hashlib.sha256(content).hexdigest())}",
        "version": 1,
        "metadata": {"component": {**_component(distribution(name), None), "type": "application"}},
        "components": components,
        "dependencies": [
            {"ref": reference[one], "dependsOn": [reference[each] for each in sorted(needs[one])]}
            for one in sorted(needs)
        ],
    }  # fmt: skip


def closure(
    of: Distribution, extras: list[str] | tuple[str, ...], found: dict[str, Distribution], needs: dict[str, list[str]]
) -> list[str]:
    """The names of all that a distribution needs with these extras, also those that these need."""
    reached: dict[str, None] = {}
    waiting: list[tuple[Distribution, tuple[str, ...]]] = [(of, tuple(extras))]
    seen = set()
    while waiting:
        one, wanted = waiting.pop()
        name = canonicalize_name(one.name)
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        direct = needs.setdefault(name, [])
        for need in _needed(one, wanted):
            other = canonicalize_name(need.name)
            if other == canonicalize_name(of.name):
                continue
            found.setdefault(other, distribution(other))
            reached[other] = None
            if other not in direct:
                direct.append(other)
            waiting.append((found[other], tuple(sorted(need.extras))))
    return list(reached)


def _needed(one: Distribution, extras: tuple[str, ...]) -> Iterator[Requirement]:
    for text in one.requires or ():
        need = Requirement(text)
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield need


def _reference(one: Distribution) -> str:
    return f"pkg:pypi/{canonicalize_name(one.name)}@{one.version}"


def _component(one: Distribution, scope: str | None) -> dict[str, Any]:
    told = {
        "type": "library",
        "bom-ref": _reference(one),
        "name": one.name,
        "version": one.version,
        "purl": _reference(one),
    }
    licences = _licences(one)
    return {**told, **({"scope": scope} if scope else {}), **({"licenses": licences} if licences else {})}


def _licences(one: Distribution) -> list[dict[str, Any]]:
    if "License-Expression" in one.metadata:
        return [{"expression": one.metadata["License-Expression"]}]
    classified = [
        text.rpartition(" :: ")[2] for text in one.metadata.get_all("Classifier") or () if text.startswith("License ::")
    ]
    written = (one.metadata["License"] or "").strip().partition("\n")[0]
    return [{"license": {"name": name}} for name in classified or ([written] if written else [])]


def python(*call: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a module of this environment."""
    return subprocess.run(  # noqa: S603 - this very Python
        [sys.executable, *call],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def say(line: str) -> None:
    """Tell the caller."""
    sys.stdout.write(f"{line}\n")


def main(argv: list[str]) -> int:
    """Do what was asked for; the exit code."""
    if argv == ["audit"]:
        return 0 if audit() else 1
    if argv == ["build"]:
        for file in build(ROOT / "dist"):
            say(str(file.relative_to(ROOT)))
        return 0
    sys.stderr.write(f"{__doc__}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
