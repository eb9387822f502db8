"""Pictures of the console for README and guide: `make pictures`, or STRANDLINE_PICTURES=FOLDER."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests import lanes
from tests.console.shop import PARKED, Shop, writing
from tests.console.test_pages import DESK, PHONE, Visit
from tests.server.worlds import Served

PICTURES = os.environ.get("STRANDLINE_PICTURES")
"""The folder where they are put; without it there are none."""
pytestmark = [
    lanes.of_the_console,
    pytest.mark.skipif(PICTURES is None, reason="made by make pictures"),
    pytest.mark.timeout(240),
]
TAKEN: dict[str, tuple[str, str, dict[str, int]]] = {
    "console-overview": ("", "light", DESK),
    "console-dark": ("", "dark", DESK),
    "console-phone": ("", "light", PHONE),
    "console-journal": ("/journals/order%7C1?payloads=shown", "light", DESK),
    "console-projection": ("/projections/totals/1", "light", DESK),
    "console-group": ("/groups/default/transfer-2", "light", DESK),
    "console-work": ("/work/mails?priority=new", "light", DESK),
}
"""By the name of a picture: its page, its colours, its size."""


def test_pictures(chromium: Any, server: Served, shop: Shop) -> None:
    folder = Path(PICTURES or "")
    folder.mkdir(parents=True, exist_ok=True)
    context = chromium.new_context(viewport=DESK)
    visit = Visit(context.new_page(), server, server.url)
    visit.log_in(server.token)
    shop.mended.set()
    shop.s.projections.unpark("prices", PARKED)
    parcels = shop.s.work("parcels")
    for letter in parcels.dead():
        parcels.acknowledge(letter.dead_id)
    with writing(shop.s, 6):
        visit.page.wait_for_timeout(70_000)  # for lines of a minute
        for name, (path, scheme, size) in TAKEN.items():
            visit.page.set_viewport_size(size)
            visit.page.emulate_media(color_scheme=scheme)
            visit.go(path)
            visit.page.wait_for_timeout(300)
            whole = size is DESK and path != ""
            visit.page.screenshot(path=folder / f"{name}.png", full_page=whole, animations="disabled")
    visit.page.set_viewport_size(DESK)
    visit.page.emulate_media(color_scheme="light")
    visit.go("/projections/totals/1")
    visit.page.click("button:text-is('Unpark')")
    visit.page.wait_for_selector("#ask")
    visit.page.fill("#f-why", "The price of order 7 is there now.")
    visit.page.screenshot(path=folder / "console-act.png", animations="disabled")
    context.close()
    for picture in folder.glob("console-*.png"):
        _squeeze(picture)


def _squeeze(picture: Path) -> None:
    """Keep 256 colours, those that have most of it, and signals before greys: half the size."""
    from PIL import Image

    with Image.open(picture) as image:
        whole = image.convert("RGB")
    counts: Any = whole.getcolors(whole.width * whole.height) or ()
    counts = sorted(counts, key=lambda one: one[0] * (1 + max(one[1]) - min(one[1])), reverse=True)[:256]
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, colour in counts for part in colour])
    whole.quantize(palette=palette, dither=Image.Dither.NONE).save(picture, optimize=True)
