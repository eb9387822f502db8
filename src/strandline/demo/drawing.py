"""Pictures of a run: append rate, lag and strandline over time, with what was killed. For a terminal, and as a PNG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.text import Text

from strandline.demo.sampling import DemoSample, StoryMark

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours that stay apart for every kind of colour vision (Okabe and Ito).
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#777777"
ROWS, LABEL_WIDTH, WIDTH_MAX = 4, 10, 100
CHARACTER_SHARE = 0.0068
"""Width of a character in the picture's labels, as a share of the time axis."""
_EIGHTHS, _ASCII = " ▁▂▃▄▅▆▇█", " .-=#"


class Panel(NamedTuple):
    """One quantity over time."""

    title: str
    value: Callable[[DemoSample], float]
    colour: str
    style: str


PANELS = (
    Panel("appends acknowledged, per second", lambda sample: sample.rate_per_s, BLUE, "blue"),
    Panel("lag: actions in the log that are not in the store yet", lambda sample: float(sample.lag), ORANGE, "yellow"),
    Panel("strandline: seconds behind the newest event", lambda sample: sample.strandline_s, GREEN, "green"),
)


def terminal(
    samples: Sequence[DemoSample], events: Sequence[StoryMark], width: int, *, unicode: bool = True
) -> list[Text]:
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


def _spread(samples: Sequence[DemoSample], columns: int, end_s: float, panel: Panel) -> list[DemoSample]:
    """One sample for each column: the greatest of those that fall into it, else the one before."""
    chosen: list[DemoSample | None] = [None] * columns
    for sample in samples:
        column = min(columns - 1, int(sample.at_s / end_s * columns))
        before = chosen[column]
        if before is None or panel.value(sample) > panel.value(before):
            chosen[column] = sample
    filled = []
    last = DemoSample(0.0, 0, 0.0, 0.0, 0, 0.0)
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


def png(path: Path, samples: Sequence[DemoSample], events: Sequence[StoryMark], title: str) -> None:
    """Draw a picture with three panels over one time axis."""
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
            _draw_absence(axes, samples, named=axes is panels[1])
        _draw_labels(panels[0], events, times[-1])
        panels[-1].set_xlabel("seconds since the start")
        panels[-1].set_xlim(0, times[-1])
        figure.suptitle(title, fontsize=13, fontweight="bold", x=0.01, ha="left")
        figure.savefig(path)


def _draw_panel(axes: Axes, panel: Panel, times: list[float], values: list[float], events: Sequence[StoryMark]) -> None:
    axes.fill_between(times, values, color=panel.colour, alpha=0.25, linewidth=0)
    axes.plot(times, values, color=panel.colour, linewidth=1.8)
    ground: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2}
    axes.text(0.008, 0.96, panel.title, transform=axes.transAxes, va="top", fontweight="bold", bbox=ground)
    axes.set_ylim(bottom=0, top=(max(values, default=0.0) or 1.0) * 1.3)
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


def _draw_labels(axes: Axes, events: Sequence[StoryMark], span_s: float) -> None:
    """Write the events above the first panel; an earlier one stands higher, so that no line crosses a text."""
    placed: list[tuple[float, int]] = []
    for event in reversed(events):
        end_s = event.at_s + (len(event.what) + 2) * CHARACTER_SHARE * span_s
        level = 1 + max((level for at_s, level in placed if at_s < end_s), default=-1)
        placed.append((event.at_s, level))
        colour = RED if event.bad else GREY
        height = 10 + 15 * level
        top: dict[str, Any] = {
            "xy": (event.at_s, 1.0),
            "xycoords": ("data", "axes fraction"),
            "textcoords": "offset points",
        }
        line: dict[str, Any] = {
            "arrowstyle": "-",
            "color": colour,
            "lw": 1.6 if event.bad else 0.8,
            "shrinkA": 0,
            "shrinkB": 0,
        }
        axes.annotate("", xytext=(0, height + 6), arrowprops=line, **top)
        axes.annotate(
            event.what, xytext=(4, height), ha="left", va="center", fontsize=9.5,
            color=RED if event.bad else "#444444", fontweight="bold" if event.bad else "normal", **top,
        )  # fmt: skip


def _draw_absence(axes: Axes, samples: Sequence[DemoSample], *, named: bool) -> None:
    """A grey ground wherever no pipeline was there."""
    start_s: float | None = None
    for sample in [*samples, None]:
        if sample is not None and not sample.carrying:
            start_s = sample.at_s if start_s is None else start_s
            end_s = sample.at_s
        elif start_s is not None:
            axes.axvspan(
                start_s, end_s if sample is None else sample.at_s, color="#EEEEEE", zorder=0, label="no pipeline"
            )
            start_s = None
    if named and axes.get_legend_handles_labels()[0]:
        axes.legend(axes.get_legend_handles_labels()[0][:1], ["no pipeline"], loc="upper right", fontsize=9)
