"""`strandline schema`: what the parts of a journal say of themselves, and the only way to upgrade them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from strandline.cli.arguments import confirm
from strandline.cli.options import Options
from strandline.cli.output import emit, printable, say
from strandline.cli.record import Yes
from strandline.errors import SchemaMismatch
from strandline.settings import Settings

if TYPE_CHECKING:
    from strandline.backends.api import Backend
    from strandline.sql.api import Part
    from strandline.urls import Url

MUST_BE: Final = ("log", "store")


def show(options: Options) -> None:
    """Show what creation fixed, and the steps of the schema.

    Example: strandline schema show --url sqlite:orders
    """
    for part, url, backend in _places(options):
        found = backend.describe(url, part, Settings.of(options.settings))
        missing = [step for step in found.known if step not in found.done]
        unknown = [step for step in found.done if step not in found.known]
        if options.json:
            emit({"kind": part.kind, "path": str(url), **found._asdict(), "missing": missing, "unknown": unknown})
            continue
        say(f"{part.kind}: {printable(str(url))}")
        for name, value in sorted(found.fixed.items()):
            say(f"  {name} = {printable(value)}")
        say(f"  steps done: {' '.join(found.done)}")
        if missing:
            say(f"  missing: {' '.join(missing)}; {options.command('schema upgrade')} does them")
        if unknown:
            say(f"  not known to this program: {' '.join(unknown)}; use a newer strandline")


def upgrade(options: Options, yes: Yes = False) -> None:
    """Do the steps that the schema lacks. There is no way back.

    Example: strandline schema upgrade --url sqlite:orders
    """
    places = list(_places(options))
    confirm("upgrade the schema of log and store: older programs will refuse them", yes=yes)
    for part, url, backend in places:
        steps = backend.upgrade(url, part, Settings.of(options.settings))
        options.tell(
            {"kind": part.kind, "path": str(url), "done": steps},
            f"{part.kind}: {'up to date' if not steps else 'did ' + ' '.join(steps)}",
        )


def _places(options: Options) -> Iterator[tuple[Part, Url, Backend]]:
    """Yield the parts that a journal has: log and store, and further ones where they were made."""
    from strandline.backends import backend_of
    from strandline.connect import parts
    from strandline.urls import urls_of

    for kind, url in urls_of(**options.target())._asdict().items():
        if url is None:
            continue
        part, backend = parts()[kind], backend_of(url)
        if kind not in MUST_BE and not _is_there(part, url, backend, Settings.of(options.settings)):
            continue
        yield part, url, backend


def _is_there(part: Part, url: Url, backend: Backend, settings: Settings) -> bool:
    try:
        backend.describe(url, part, settings)
    except SchemaMismatch as error:
        if error.code != "no_schema":
            raise
        return False
    return True
