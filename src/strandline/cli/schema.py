"""`strandline schema`: what log and store say of themselves, and the only way to upgrade them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.cli.arguments import confirm
from strandline.cli.options import Options
from strandline.cli.output import emit, printable, say
from strandline.cli.record import Yes
from strandline.errors import Unsupported
from strandline.settings import Settings

if TYPE_CHECKING:
    from strandline.sqlite.schema import Kind

PACKAGES: dict[Kind, str] = {"log": "strandline.log", "store": "strandline.store"}


def show(options: Options) -> None:
    """Show what creation fixed, and the steps of the schema.

    Example: strandline schema show --url sqlite:orders
    """
    from strandline.sqlite import describe_database

    for kind, path in _files(options):
        found = describe_database(path, kind=kind, package=PACKAGES[kind], settings=Settings.of(options.settings))
        missing = [step for step in found.known if step not in found.done]
        unknown = [step for step in found.done if step not in found.known]
        if options.json:
            emit({"kind": kind, "path": str(path), **found._asdict(), "missing": missing, "unknown": unknown})
            continue
        say(f"{kind}: {printable(str(path))}")
        for name, value in sorted(found.fixed.items()):
            say(f"  {name} = {printable(value)}")
        say(f"  steps done: {' '.join(found.done)}")
        if missing:
            say(f"  missing: {' '.join(missing)}; `strandline schema upgrade` does them")
        if unknown:
            say(f"  not known to this program: {' '.join(unknown)}; use a newer strandline")


def upgrade(options: Options, yes: Yes = False) -> None:
    """Do the steps that the schema lacks. There is no way back.

    Example: strandline schema upgrade --url sqlite:orders
    """
    files = list(_files(options))
    confirm("upgrade the schema of log and store: older programs will refuse them", yes=yes)
    from strandline.sqlite import upgrade_database

    for kind, path in files:
        steps = upgrade_database(path, kind=kind, package=PACKAGES[kind], settings=Settings.of(options.settings))
        if options.json:
            emit({"kind": kind, "path": str(path), "done": steps})
        else:
            say(f"{kind}: {'up to date' if not steps else 'did ' + ' '.join(steps)}")


def _files(options: Options) -> Iterator[tuple[Kind, Path]]:
    from strandline.connect import places_of

    places = places_of(**options.target())
    kinds: tuple[Kind, ...] = ("log", "store")
    for kind, place in zip(kinds, places, strict=True):
        if place.path is None:
            raise Unsupported("a journal in memory has no schema", code="not_shared", hint="give sqlite:FOLDER")
        yield kind, place.path
