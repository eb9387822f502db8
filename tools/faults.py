"""`make faults`: applies each patch of tests/faults to a copy of the sources, and looks whether random programs notice.

A patch says above its text what it breaks, and within how many programs of which part and back-end that must be seen:

    what: a delete moves the end of deleted events back
    find: journal sqlite 100

    python tools/faults.py [NAME …] [--check]

`--check` only says whether every patch applies.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FAULTS = ROOT / "tests" / "faults"
RUN = """
import logging, sys
logging.disable(logging.CRITICAL)
from strandline.testing.prove.run import prove
from strandline.testing.prove.servers import Servers
part, on, seeds = sys.argv[1:]
with Servers() as servers:
    proof = prove(part, on, range(int(seeds)), servers=servers, tries=0, failures_max=1)
for failure in proof.failures:
    print(failure.seed, failure.message[:200].replace(chr(10), " "))
sys.exit(5 if proof.failures else 0)
"""
FOUND = 5


class Fault(NamedTuple):
    """A small change that makes the product wrong."""

    name: str
    path: Path
    what: str
    part: str
    on: str
    seeds: str


def faults(names: list[str]) -> list[Fault]:
    """The patches, or those of these names."""
    found = []
    for path in sorted(FAULTS.glob("*.patch")):
        said = dict(
            line.split(": ", 1) for line in path.read_text(encoding="utf-8").partition("\n--- ")[0].splitlines() if line
        )
        part, on, seeds = said["find"].split()
        if not names or path.stem in names:
            found.append(Fault(path.stem, path, said["what"], part, on, seeds))
    return found


def applies(fault: Fault, folder: Path, *, check: bool) -> bool:
    """Apply a patch to a copy of the sources, or see whether it could be."""
    how = ["patch", "-p1", "--quiet", "--force", "--input", str(fault.path)] + (["--dry-run"] if check else [])
    done = subprocess.run(how, cwd=folder, capture_output=True, check=False)  # noqa: S603 (our own patches)
    return done.returncode == 0


def found_by(fault: Fault) -> tuple[bool, str]:
    """Whether the programs notice a fault, and what they saw first."""
    with tempfile.TemporaryDirectory(prefix="strandline-fault-") as made:
        folder = Path(made)
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        if not applies(fault, folder, check=False):
            return False, "the patch does not apply any more"
        environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(  # noqa: S603 (ourselves)
            [sys.executable, "-c", RUN, fault.part, fault.on, fault.seeds],
            env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=1800,
        )  # fmt: skip
        said = done.stdout.strip() if done.returncode == FOUND else done.stderr.strip()[-300:]
        return done.returncode == FOUND, said or "nothing"


def main(argv: list[str]) -> int:
    """Go through the faults; 1 if one was not noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a fault; all of them without one")
    parser.add_argument("--check", action="store_true", help="say only whether each patch applies")
    asked = parser.parse_args(argv)
    chosen = faults(asked.names)
    if unknown := set(asked.names) - {fault.name for fault in chosen}:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    missed = 0
    for fault in chosen:
        begun = time.monotonic()
        if asked.check:
            good, said = applies(fault, ROOT, check=True), "does not apply"
            said = "" if good else said
        else:
            good, said = found_by(fault)
        missed += not good
        seconds = time.monotonic() - begun
        sys.stdout.write(f"{'found ' if good else 'MISSED'} {seconds:5.1f} s  {fault.name}: {fault.what} | {said}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{missed} missed\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
