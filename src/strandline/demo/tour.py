"""The tour: set up, play the story, draw it, say what to try next."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

from rich.text import Text

from strandline import extras
from strandline.demo.drawing import png, terminal
from strandline.demo.place import FILES, SERVERS, play_on
from strandline.demo.proof import FINDINGS_SHOWN_MAX, Proof
from strandline.demo.sampling import Sampler
from strandline.demo.serving import serving
from strandline.demo.stage import Stage
from strandline.demo.story import TourSettings, perform
from strandline.errors import InvalidInput, MissingEvent, invalid
from strandline.pipeline.java import find_java
from strandline.testing.shop.shelf import stored_events

FOLDER = Path("demo-out")
ORDERS, SECONDS, DOWN_S, WRITERS, SEED = 3000, 36.0, 3.0, 4, 7
MARKER = "strandline-demo"
"""A file that says: made by a demo, and may be replaced by the next."""
PICTURE = "demo.png"
NEEDED = ("pyspark", "pyarrow", "pandas", "matplotlib")


def run(
    *,
    folder: Path | None = None,
    orders: int = ORDERS,
    on: str = FILES,
    keep: bool = False,
    seconds: float = SECONDS,
    down_s: float = DOWN_S,
    writers: int = WRITERS,
    seed: int = SEED,
    serve: bool = False,
    stage: Stage | None = None,
) -> int:
    """Play the demo in `folder`, which is left for you to look at; the exit code: 0 if the proof holds.

    `on`: "sqlite", "postgres", or "kafka" (with Cassandra); servers are started for it, and stopped. What an earlier
    demo left there is replaced, unless `keep`: then a new folder beside it is used. With `serve` a console shows it all
    the time, and afterwards until Ctrl-C.
    """
    if orders < 1:
        raise invalid("option", "orders", "too few", allowed="1 or more", got=orders)
    if on not in SERVERS:
        raise invalid("option", "on", "unknown", allowed=" ".join(SERVERS), got=on)
    _check_installed()
    place = _prepare(folder or FOLDER, keep)
    stage = stage or Stage()
    with play_on(on, place, stage) as target:
        plan = TourSettings(place, orders, min(writers, orders), seconds, down_s, seed, target)
        with serving(target, plan.work_file, place, stage) if serve else nullcontext():
            proof, sampler = perform(plan, stage)
            _show(stage, plan, proof, sampler, on)
    return 0 if proof.sound else MissingEvent.exit_code


def _check_installed() -> None:
    extras.check("dev", *NEEDED)
    find_java()


def _prepare(folder: Path, keep: bool) -> Path:
    """An empty folder. Nothing is removed that a demo did not make."""
    if keep:
        names = (folder, *(folder.with_name(f"{folder.name}-{number}") for number in range(2, 1000)))
        folder = next((name for name in names if not name.exists()), folder)
    if folder.exists():
        if not folder.is_dir() or (any(folder.iterdir()) and not (folder / MARKER).exists()):
            raise InvalidInput(
                f"folder: {folder} has other things in it; allowed a new or empty folder, or that of an earlier demo",
                code="option",
                hint="give another --folder",
                field="folder",
            )
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("Made by `strandline demo`, which may replace all of this folder.\n", encoding="utf-8")
    return folder


def _show(stage: Stage, plan: TourSettings, proof: Proof, sampler: Sampler, on: str) -> None:
    stage.plain()
    for line in terminal(sampler.samples, sampler.events, stage.console.width, unicode=stage.unicode):
        stage.plain(line)
    stage.plain()
    yes, no = ("✓", "✗") if stage.unicode else ("ok", "NO")
    for holds, text in proof.lines():
        stage.plain(Text.assemble((f"  {yes if holds else no} ", "bold green" if holds else "bold red"), text))
    for finding in proof.findings[:FINDINGS_SHOWN_MAX]:
        stage.plain(Text(f"    {finding.kind}: {finding.key}: {finding.what}", style="red"))
    verdict = "nothing lost, nothing repeated, nothing reordered" if proof.sound else "THE PROOF FAILS"
    stage.plain(Text(f"  {verdict}", style="bold green" if proof.sound else "bold red"))
    path = plan.folder / PICTURE
    png(path, sampler.samples, sampler.events, f"{proof.counts.appends:,} appends, four kills: {verdict}")
    stage.plain()
    stage.plain(f"picture   {path}")
    journal = "journal in shop/, " if on == FILES else ""
    stage.plain(f"files     {plan.folder}/  ({journal}ledgers, what each process said, demo.json)")
    stage.plain("try next")
    for command in _next(plan) if on == FILES else _next_on_servers(on):
        stage.plain(f"  {command}")


def _next(plan: TourSettings) -> list[str]:
    """Commands that work as they are printed, from the folder where the demo was started."""
    program, url = _program(), shlex.quote(str(plan.target.url))
    rows = stored_events(plan.target)
    longest = {kind: max((key for key in rows if key.startswith(kind)), key=lambda key: len(rows[key]), default=None)
               for kind in ("order|", "stock|")}  # fmt: skip
    commands = []
    if longest["order|"] is not None:
        commands.append(f"{program} read {shlex.quote(longest['order|'])} --url {url}")
    if longest["stock|"] is not None:
        last = rows[longest["stock|"]][-1].seq_nr
        commands.append(f"{program} read {shlex.quote(longest['stock|'])} --from {max(1, last - 9)} --url {url}")
    return [
        *commands,
        f"{program} status --url {url}",
        f"{program} serve --show-payloads --url {url}",
        f"{program} keys order --limit 10 --url {url}",
        f"{program} bench append --quick",
    ]


def _next_on_servers(on: str) -> list[str]:
    """The demo's own servers are gone by then."""
    program = _program()
    return [f"{program} servers {' '.join(SERVERS[on])}", f"{program} bench append --on {on} --quick"]


def _program() -> str:
    """How to call the command from here: by its name where that finds this one."""
    ours = Path(sys.executable).parent / "strandline"
    found = shutil.which("strandline")
    if found is not None and (not ours.exists() or ours.samefile(found)):
        return "strandline"
    if not ours.exists():
        return "strandline"
    near = os.path.relpath(ours)
    return shlex.quote(str(ours) if near.startswith("..") else near)
