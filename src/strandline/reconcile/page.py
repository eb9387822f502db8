"""The report of reconcile as one HTML page, with a picture of where differences lie. Nothing in it is loaded."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from html import escape
from typing import Final

from strandline.reconcile.findings import COUNTED, KINDS, Difference, ReconcileReport
from strandline.reconcile.tallies import DAY_US
from strandline.values.keys import SLICES, slice_of

ROWS: Final = 64
"""The number of rows of the picture; each row is a run of slices."""
COLUMNS_MAX: Final = 60
SIDE, LEFT, TOP = 12, 90, 30
LISTED_MAX: Final = 2000
_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; color: #1c2430; background: #fff }
table { border-collapse: collapse; margin: 1rem 0 } td, th { padding: .25rem .7rem; text-align: left;
border-bottom: 1px solid #dde3ea; vertical-align: top } .number { text-align: right } .mended { color: #1a7f4b }
.open { color: #b3261e } svg text { font: 10px system-ui, sans-serif; fill: #54606e } code { font-size: 13px }
"""


def page_of(report: ReconcileReport, *, what: str) -> str:
    """Return the page. `what` names the journal that was compared: a URL without its password."""
    left = len(report.unrepaired)
    found = len(report.findings)
    headline = "No difference was found" if not found else f"{found} found, {found - left} repaired, {left} left"
    counted = "".join(
        f'<tr><td>{name.replace("_", " ")}</td><td class="number">{_shown(name, getattr(report, name))}</td></tr>'
        for name in COUNTED
    )
    busy = f"<p>{len(report.busy)} keys were being written all the time and were left out.</p>" if report.busy else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Reconcile: {escape(headline)}</title>'
        f"<style>{_STYLE}</style><h1>Reconcile</h1><p>{escape(what)}</p><h2>{escape(headline)}</h2>"
        f"<table>{counted}</table>{busy}{_kinds(report)}{_picture(report)}{_list(report)}</html>\n"
    )


def _shown(name: str, value: int) -> str:
    if name == "strandline" and value:
        return datetime.fromtimestamp(value / 10**6, UTC).isoformat(timespec="seconds")
    return f"{value:,}"


def _kinds(report: ReconcileReport) -> str:
    counts = Counter(finding.kind for finding in report.findings)
    if not counts:
        return ""
    rows = "".join(
        f'<tr><td><code>{kind}</code></td><td class="number">{count:,}</td><td>{escape(KINDS[kind])}</td></tr>'
        for kind, count in counts.most_common()
    )
    return f"<h2>Kinds</h2><table><tr><th>kind</th><th>count</th><th>meaning</th></tr>{rows}</table>"


def _picture(report: ReconcileReport) -> str:
    """Return the picture as SVG: slices downwards, days to the right; the darker a field, the more differences."""
    placed = [finding for finding in report.findings if finding.key is not None]
    if not placed:
        return ""
    days = sorted({finding.timestamp // DAY_US for finding in placed if finding.timestamp})
    first = days[0] if days else 0
    step = max(1, -(-(days[-1] + 1 - first) // COLUMNS_MAX)) if days else 1
    columns = (days[-1] - first) // step + 1 if days else 0
    counts = Counter((_row_of(finding), _column_of(finding, first, step)) for finding in placed)
    most = max(counts.values())
    fields = "".join(_field(row, column, count, most) for (row, column), count in sorted(counts.items()))
    width, height = LEFT + (columns + 2) * SIDE, TOP + ROWS * SIDE
    lines = "".join(
        f'<text x="0" y="{TOP + row * SIDE + 9}">slice {row * SLICES // ROWS}</text>' for row in range(0, ROWS, 8)
    )
    ends = "".join(
        f'<text x="{LEFT + (at + 1) * SIDE}" y="{TOP - 8}">{_day(first + at * step)}</text>'
        for at in dict.fromkeys([0, max(0, columns - 1)])
        if columns and (at == 0 or columns > 8)
    )
    frame = (
        f'<rect x="{LEFT}" y="{TOP}" width="{(columns + 1) * SIDE}" height="{ROWS * SIDE}" fill="#f5f7fa" '
        'stroke="#c8d0da"/>'
    )
    return (
        "<h2>Where differences lie</h2><p>Slices downwards, time to the right; the first column has what has no time. "
        "Green fields were repaired wholly.</p>"
        f'<svg role="img" aria-label="differences by slice and time" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">{frame}{lines}{ends}{fields}{_repaired(placed, first, step)}</svg>'
    )


def _row_of(finding: Difference) -> int:
    return slice_of(finding.key or "") * ROWS // SLICES


def _column_of(finding: Difference, first: int, step: int) -> int:
    return 1 + (finding.timestamp // DAY_US - first) // step if finding.timestamp else 0


def _day(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_US / 10**6, UTC).date().isoformat()


def _field(row: int, column: int, count: int, most: int) -> str:
    shade = 0.3 + 0.7 * count / most
    return (
        f'<rect x="{LEFT + column * SIDE}" y="{TOP + row * SIDE}" width="{SIDE - 1}" height="{SIDE - 1}" '
        f'fill="#b3261e" fill-opacity="{shade:.2f}"><title>slices {row * SLICES // ROWS} to '
        f"{(row + 1) * SLICES // ROWS - 1}: {count}</title></rect>"
    )


def _repaired(placed: list[Difference], first: int, step: int) -> str:
    """Return the fields in which every difference was repaired; they have another colour."""
    fields: dict[tuple[int, int], bool] = {}
    for finding in placed:
        place = _row_of(finding), _column_of(finding, first, step)
        fields[place] = fields.get(place, True) and finding.repaired
    return "".join(
        f'<rect x="{LEFT + column * SIDE}" y="{TOP + row * SIDE}" width="{SIDE - 1}" height="{SIDE - 1}" '
        'fill="#1a7f4b" pointer-events="none"/>'
        for (row, column), whole in sorted(fields.items())
        if whole
    )


def _list(report: ReconcileReport) -> str:
    if not report.findings:
        return ""
    rows = "".join(_row(finding) for finding in report.findings[:LISTED_MAX])
    more = len(report.findings) - LISTED_MAX
    note = f"<p>{more:,} more are in the answer of --json.</p>" if more > 0 else ""
    titles = "".join(f"<th>{name}</th>" for name in ("kind", "key", "life", "numbers", "tag", "expected", "found", ""))
    return f"<h2>Findings</h2><table><tr>{titles}</tr>{rows}</table>{note}"


def _row(finding: Difference) -> str:
    numbers = ", ".join(map(str, finding.seq_nrs[:10])) + (" …" if len(finding.seq_nrs) > 10 else "")
    state = '<td class="mended">repaired</td>' if finding.repaired else '<td class="open">left</td>'
    key = finding.key if finding.key is not None else f"partition {finding.partition}"
    life = "" if finding.life is None else str(finding.life)
    texts = (key, life, numbers, finding.tag or "", finding.expected, finding.found)
    cells = "".join(f"<td>{escape(text)}</td>" for text in texts)
    return f"<tr><td><code>{finding.kind}</code></td>{cells}{state}</tr>"
