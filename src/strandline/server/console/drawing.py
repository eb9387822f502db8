"""Pictures as SVG, drawn here: lines over time, the graph of a group, its timeline.

Colours come from the style sheet by class, so pictures follow light and dark; nothing is inline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final, NamedTuple

from markupsafe import Markup, escape

WIDTH, HEIGHT = 300, 56
BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, EDGE = 168, 46, 44, 16, 8
NAME_MAX: Final = 22
LABEL_WIDTH, BAR_WIDTH, BAR_HEIGHT = 170, 560, 22
_SVG: Final = Markup('<svg viewBox="0 0 {} {}" class="{}" role="img" aria-label="{}"{}>{}</svg>')


class Bar(NamedTuple):
    """A bar of a timeline: its first and last time (µs), and its outcome."""

    label: str
    start: int
    end: int
    state: str
    undo: bool = False


def line(values: Sequence[tuple[float, float]], span_s: float, label: str) -> Markup:
    """Draw figures over the last `span_s` seconds, the newest at the right; (time, value), the oldest first."""
    if not values:
        return Markup('<svg viewBox="0 0 {} {}" class="line" aria-hidden="true"></svg>').format(WIDTH, HEIGHT)
    newest = values[-1][0]
    most = max(value for _, value in values) or 1.0
    points = [
        (WIDTH * (1 - (newest - at) / span_s), HEIGHT - 2 - (HEIGHT - 6) * value / most)
        for at, value in values
        if newest - at <= span_s
    ]
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    first, last = points[0][0], points[-1][0]
    area = Markup('<polygon class="area" points="{:.1f},{} {} {:.1f},{}"/>').format(first, HEIGHT, drawn, last, HEIGHT)
    path = Markup('<polyline class="stroke" points="{}"/>').format(drawn)
    dot = Markup('<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="2.2"/>').format(*points[-1])
    return _SVG.format(WIDTH, HEIGHT, "line", label, Markup(' preserveAspectRatio="none"'), area + path + dot)


# ---------------------------------------------------------------- the graph of a group


def graph(states: Mapping[str, tuple[str, str]], needs: Mapping[str, Sequence[str]], label: str) -> Markup:
    """Draw steps as boxes; each is to the right of the steps that it waits for. `states` has a state and a note for
    each.
    """
    depth = _depths(states, needs)
    column: dict[int, int] = {}
    place: dict[str, tuple[int, int]] = {}
    for name in states:
        row = column.get(depth[name], 0)
        column[depth[name]] = row + 1
        place[name] = EDGE + depth[name] * (BOX_WIDTH + GAP_X), EDGE + row * (BOX_HEIGHT + GAP_Y)
    width = 2 * EDGE + (max(depth.values(), default=0) + 1) * (BOX_WIDTH + GAP_X) - GAP_X
    height = 2 * EDGE + max(column.values(), default=1) * (BOX_HEIGHT + GAP_Y) - GAP_Y
    inside = Markup().join(
        [*_edges(place, needs, depth), *(_box(name, *states[name], *place[name]) for name in states)]
    )
    size = Markup(' width="{}" height="{}"').format(width, height)
    return _SVG.format(width, height, "graph", label, size, inside)


def _depths(states: Mapping[str, object], needs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    known = {name: [need for need in needs.get(name, ()) if need in states] for name in states}
    depth: dict[str, int] = {}
    try:
        for name in TopologicalSorter(known).static_order():
            depth[name] = 1 + max((depth[need] for need in known[name]), default=-1)
    except CycleError:  # a damaged history is shown all the same
        return dict.fromkeys(states, 0)
    return depth


def _edges(
    place: Mapping[str, tuple[int, int]], needs: Mapping[str, Sequence[str]], depth: Mapping[str, int]
) -> Iterator[Markup]:
    """Return the edges between steps, without those that others imply."""
    before: dict[str, set[str]] = {}
    for name in sorted(place, key=lambda one: depth[one]):
        own = {need for need in needs.get(name, ()) if need in place}
        before[name] = own.union(*(before.get(need, set()) for need in own))
        for need in own:
            if any(need in before.get(other, ()) for other in own if other != need):
                continue
            x1, y1 = place[need][0] + BOX_WIDTH, place[need][1] + BOX_HEIGHT // 2
            x2, y2 = place[name][0], place[name][1] + BOX_HEIGHT // 2
            path = f"M{x1} {y1}C{x1 + GAP_X // 2} {y1} {x2 - GAP_X // 2} {y2} {x2 - 5} {y2}"
            tip = f"M{x2 - 6} {y2 - 4}L{x2} {y2}L{x2 - 6} {y2 + 4}z"
            yield Markup('<path class="edge" d="{}"/><path class="tip" d="{}"/>').format(path, tip)


def _box(name: str, state: str, note: str, x: int, y: int) -> Markup:
    shown = name if len(name) <= NAME_MAX else name[: NAME_MAX - 1] + "…"
    return Markup(
        '<g class="step state-{}"><title>{}: {} {}</title><rect x="{}" y="{}" width="{}" height="{}" rx="6"/>'
        '<circle cx="{}" cy="{}" r="4"/><text class="name" x="{}" y="{}">{}</text>'
        '<text class="note" x="{}" y="{}">{}</text></g>'
    ).format(
        state, name, state, note, x, y, BOX_WIDTH, BOX_HEIGHT, x + 14, y + 17, x + 26, y + 21, shown, x + 26, y + 37,
        f"{state.replace('_', ' ')}{f' · {note}' if note else ''}",
    )  # fmt: skip


# ---------------------------------------------------------------- its timeline


def timeline(bars: Sequence[Bar], label: str) -> Markup:
    """Draw a bar for each step and each undo, on one axis of time."""
    start = min(bar.start for bar in bars)
    span = max(1, max(bar.end for bar in bars) - start)
    height = len(bars) * (BAR_HEIGHT + 6) + 22
    width = LABEL_WIDTH + BAR_WIDTH + 76
    rows = [_bar(bar, n, start, span) for n, bar in enumerate(bars)]
    axis = Markup("").join(_tick(part, span, height) for part in (0.0, 0.25, 0.5, 0.75, 1.0))
    size = Markup(' width="{}" height="{}"').format(width, height)
    return _SVG.format(width, height, "timeline", label, size, axis + Markup("").join(rows))


def _tick(part: float, span: int, height: int) -> Markup:
    x = LABEL_WIDTH + part * BAR_WIDTH
    return Markup(
        '<line class="grid" x1="{x:.0f}" x2="{x:.0f}" y1="0" y2="{}"/><text class="tick" x="{x:.0f}" y="{}">{}</text>'
    ).format(height - 18, height - 4, took(round(part * span)), x=x)


def _bar(bar: Bar, n: int, start: int, span: int) -> Markup:
    y = n * (BAR_HEIGHT + 6) + 2
    x = LABEL_WIDTH + (bar.start - start) / span * BAR_WIDTH
    width = max(3.0, (bar.end - bar.start) / span * BAR_WIDTH)
    shown = bar.label if len(bar.label) <= NAME_MAX else bar.label[: NAME_MAX - 1] + "…"
    return Markup(
        '<g class="bar state-{}{}"><title>{}: {} in {}</title><text class="name" x="{}" y="{}">{}</text>'
        '<rect x="{:.1f}" y="{}" width="{:.1f}" height="{}" rx="3"/><text class="took" x="{:.1f}" y="{}">{}</text></g>'
    ).format(
        bar.state, " undo" if bar.undo else "", bar.label, bar.state, took(bar.end - bar.start), LABEL_WIDTH - 8,
        y + 16, shown, x, y, width, BAR_HEIGHT, x + width + 6, y + 16, took(bar.end - bar.start),
    )  # fmt: skip


def took(us: int) -> str:
    """Return a duration as a person reads it."""
    if us < 1000:
        return f"{us} µs" if us else "0"
    if us < 10_000:
        return f"{us / 1000:.1f} ms"
    if us < 1_000_000:
        return f"{us / 1000:.0f} ms"
    return f"{us / 1e6:.1f} s" if us < 120_000_000 else f"{us / 6e7:.0f} min"


__all__ = ["Bar", "escape", "graph", "line", "timeline", "took"]
