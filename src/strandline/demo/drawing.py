"""Pictures of a run: append rate, lag and strandline over time, with what was killed. For a terminal, and as a PNG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from strandline.demo.sampling import Event, Sample

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours that stay apart for every kind of colour vision (Okabe and Ito).
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#777777"
ROWS, LABEL_WIDTH, WIDTH_MAX = 4, 10, 100
_EIGHTHS, _ASCII = " ▁▂▃▄▅▆▇█", " .-=#"


class Panel(NamedTuple):
    """One quantity over time."""

    title: str
    value: Callable[[Sample], float]
    colour: str
    style: str


PANELS = (
    Panel("appends acknowledged, per second", lambda sample: sample.rate_per_s, BLUE, "blue"),
    Panel("lag: actions in the log that are not in the store yet", lambda sample: float(sample.lag), ORANGE, "yellow"),
    Panel(
        "strandline: seconds behind now; 0 if all is in the store", lambda sample: sample.strandline_s, GREEN, "green"
    ),
)


def terminal(samples: Sequence[Sample], events: Sequence[Event], width: int, *, unicode: bool = True) -> list[Text]:
    """The charts as lines of text: a number under them for each event, and a legend."""
    columns = max(20, min(width - LABEL_WIDTH - 1, WIDTH_MAX))
    end_s = samples[-1].at_s if samples else 1.0
    lines = []
    for panel in PANELS:
        lines.append(Text(" " * LABEL_WIDTH + panel.title, style="bold"))
        lines += _chart([panel.value(sample) for sample in _spread(samples, columns, end_s, panel)], panel, unicode)
    rule = [" "] * columns
    for number, event in enumerate(events, 1):
        rule[_free(rule, min(columns - 1, int(event.at_s / end_s * columns)))] = str(number % 10)
    lines.append(Text(" " * LABEL_WIDTH + "".join(rule), style="bold red"))
    axis = f"{'0 s':<{columns - 8}}{end_s:>6.0f} s"
    lines.append(Text(" " * LABEL_WIDTH + axis, style="dim"))
    for number, event in enumerate(events, 1):
        style = "red" if event.bad else ""
        lines.append(Text(f"{'':{LABEL_WIDTH}}{number} at {event.at_s:5.1f} s  {event.what}", style=style))
    return lines


def _spread(samples: Sequence[Sample], columns: int, end_s: float, panel: Panel) -> list[Sample]:
    """One sample for each column: the greatest of those that fall into it, else the one before."""
    chosen: list[Sample | None] = [None] * columns
    for sample in samples:
        column = min(columns - 1, int(sample.at_s / end_s * columns))
        before = chosen[column]
        if before is None or panel.value(sample) > panel.value(before):
            chosen[column] = sample
    filled = []
    last = Sample(0.0, 0, 0.0, 0.0, 0, 0.0)
    for sample_or_none in chosen:
        last = sample_or_none or last
        filled.append(last)
    return filled


def _chart(values: Sequence[float], panel: Panel, unicode: bool) -> list[Text]:
    glyphs = _EIGHTHS if unicode else _ASCII
    steps = len(glyphs) - 1
    most = max(values, default=0.0) or 1.0
    lines = []
    for row in reversed(range(ROWS)):
        scale = {ROWS - 1: _short(most), 0: "0"}.get(row, "")
        label = f"{scale:>{LABEL_WIDTH - 2}}  "
        filled = [value / most * ROWS - row for value in values]
        bars = "".join(glyphs[max(0, min(steps, round(part * steps)))] for part in filled)
        lines.append(Text.assemble((label, "dim"), (bars, panel.style)))
    return lines


def _free(rule: list[str], column: int) -> int:
    """The next column without a mark."""
    while rule[column] != " " and column < len(rule) - 1:
        column += 1
    return column


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def png(path: Path, samples: Sequence[Sample], events: Sequence[Event], title: str) -> None:
    """The same as a picture with three panels over one time axis."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 10, "font.family": "sans-serif"}):
        figure = Figure(figsize=(11, 8), dpi=130, layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(len(PANELS), 1, sharex=True)
        times = [sample.at_s for sample in samples]
        for axes, panel in zip(panels, PANELS, strict=True):
            _draw_panel(axes, panel, times, [panel.value(sample) for sample in samples], events)
        _draw_labels(panels[0], events)
        panels[-1].set_xlabel("seconds since the start")
        panels[-1].set_xlim(0, times[-1] if times else 1)
        figure.suptitle(title, fontsize=13, fontweight="bold", x=0.01, ha="left")
        figure.savefig(path)


def _draw_panel(axes: Axes, panel: Panel, times: list[float], values: list[float], events: Sequence[Event]) -> None:
    axes.fill_between(times, values, color=panel.colour, alpha=0.25, linewidth=0)
    axes.plot(times, values, color=panel.colour, linewidth=1.8)
    axes.set_title(panel.title, fontsize=10, loc="left", pad=4)
    axes.set_ylim(bottom=0, top=(max(values, default=0.0) or 1.0) * 1.08)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value == int(value) else f"{value:,.1f}")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for event in events:
        if event.bad:
            axes.axvline(event.at_s, color=RED, linewidth=1.6)
        else:
            axes.axvline(event.at_s, color=GREY, linewidth=1, linestyle=":")


def _draw_labels(axes: Axes, events: Sequence[Event]) -> None:
    """What happened, above the first panel, slanted so that neighbours do not cover each other."""
    for event in events:
        axes.annotate(
            event.what,
            xy=(event.at_s, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 20),
            textcoords="offset points",
            rotation=25,
            ha="left",
            va="bottom",
            fontsize=9,
            color=RED if event.bad else "#444444",
            fontweight="bold" if event.bad else "normal",
            rotation_mode="anchor",
        )
