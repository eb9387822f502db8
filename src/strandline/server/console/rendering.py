"""Pages from templates: all text is escaped, and characters that a screen does not show are written
by their numbers.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

import jinja2

from strandline.server.console import texts
from strandline.server.console.drawing import took

HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"
LIVE: Final = "live_"
"""Blocks whose names begin so are regions that a page renews by itself."""


class LiveRegion(NamedTuple):
    """A part of a page that is renewed: its name, a checksum, its HTML."""

    name: str
    version: str
    html: str


@cache
def templates() -> jinja2.Environment:
    """Return the templates, with the filters and functions that all of them use."""
    loader = jinja2.FileSystemLoader(HERE / "templates")
    made = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=texts.visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "when": texts.when, "seconds": texts.seconds, "number": texts.number, "segment": texts.segment, "took": took,
        "payload": texts.payload_text,
    }  # fmt: skip
    made.globals |= {"query": texts.query, "static": static_version()}
    made.globals["ui"] = made.get_template("ui.html").module
    return made


@cache
def static_version() -> str:
    """Return the checksum that is in the addresses of static files; it changes when a file does."""
    digest = sha256()
    for path in sorted(STATIC.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def page(template: str, found: dict[str, Any]) -> str:
    """Return a whole page."""
    regions = {region.name: region for region in live_regions(template, found)}
    return templates().get_template(template).render(found, regions=regions)


def live_regions(template: str, found: dict[str, Any]) -> list[LiveRegion]:
    """Return the regions of a page, as they are now."""
    made = templates().get_template(template)
    context = made.new_context(found)
    regions = []
    for name, block in made.blocks.items():
        if name.startswith(LIVE):
            html = "".join(block(context))
            regions.append(LiveRegion(name.removeprefix(LIVE), f"{crc32(html.encode()):08x}", html))
    return regions
