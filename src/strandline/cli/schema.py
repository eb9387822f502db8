"""`strandline schema`: what log and store say of themselves, and the only way to upgrade them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from strandline.cli.arguments import confirm
from strandline.cli.options import Options
from strandline.cli.output import emit, printable, say
from strandline.cli.record import Yes
from strandline.settings import Settings

if TYPE_CHECKING:
    from strandline.backends.api import Backend, Kind
    from strandline.urls import Url


def show(options: Options) -> None:
    """Show what creation fixed, and the steps of the schema.

    Example: strandline schema show --url sqlite:orders
    """
    for kind, url, backend in _places(options):
        found = backend.describe(url, kind, Settings.of(options.settings))
        missing = [step for step in found.known if step not in found.done]
        unknown = [step for step in found.done if step not in found.known]
        if options.json:
            emit({"kind": kind, "path": str(url), **found._asdict(), "missing": missing, "unknown": unknown})
            continue
        say(f"{kind}: {printable(str(url))}")
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
    places = list(_places(options))
    confirm("upgrade the schema of log and store: older programs will refuse them", yes=yes)
    for kind, url, backend in places:
        steps = backend.upgrade(url, kind, Settings.of(options.settings))
        if options.json:
            emit({"kind": kind, "path": str(url), "done": steps})
        else:
            say(f"{kind}: {'up to date' if not steps else 'did ' + ' '.join(steps)}")


def _places(options: Options) -> Iterator[tuple[Kind, Url, Backend]]:
    from strandline.backends import backend_of
    from strandline.urls import urls_of

    urls = urls_of(**options.target())
    yield "log", urls.log, backend_of(urls.log)
    yield "store", urls.store, backend_of(urls.store)
